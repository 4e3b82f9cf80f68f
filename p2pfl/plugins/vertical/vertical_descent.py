r"""Linear regression of two parties by gradient descent on encrypted residuals, the protocol of Yang et al.

It is here for teaching and comparison: it takes hundreds of steps to the model that :mod:`.linear` finds in one, and
the helper C learns the loss of each step. C holds the key; A has columns, B columns and labels:

1. A sends B :math:`[[u_A]]` and :math:`[[L_A]]`, B computes :math:`[[d]] = [[u_A + u_B - y]]` and the loss.
2. B sends A :math:`[[d]]`; both compute :math:`[[\sum_i d_i x_i + \alpha \Theta + m]]` under a mask m of their own.
3. C decrypts, and returns the masked gradients; A and B take off their masks and step.

The objective is :math:`\lVert X_A \Theta_A + X_B \Theta_B - y \rVert^2 + \alpha \lVert \Theta \rVert^2`.

References
----------
Yang, Liu, Chen and Tong, Federated machine learning: concept and applications, ACM TIST 10, 2019, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, InputError, LearningError, ModelError
from p2pfl.data.parties import Party
from p2pfl.learning.additive import Questions
from p2pfl.plugins.vertical.gram import Blocks, JoinedTable, ask_design
from p2pfl.plugins.vertical.linear import LinearFit
from p2pfl.plugins.vertical.paillier import MODULUS_BITS, Powers, PrivateKey, PublicKey, Stream, stream
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.private_messages import PrivateMessage, ints_to_large, large_to_ints, publish, send
from p2pfl.plugins.vertical.statement import DescentRun, VerticalRun
from p2pfl.plugins.vertical.vertical_models import VerticalFit
from p2pfl.plugins.vertical.vertical_regression import VerticalRegression
from p2pfl.plugins.vertical.whole import WholeFit, fit_whole
from p2pfl.privacy.keys import KEY_BYTES, Source

FRACTION = 32
"""Fraction bits of predictors and residuals."""

COLUMN_FRACTION = 24
"""Fraction bits of standardised columns."""

MASK_BITS = 168
"""Bits of a mask, 40 more than any sum of products has."""

MASKED_WORDS = 3
"""Integers of a message that carry a masked sum."""

LARGEST = 2.0**8
"""Bound of standardised columns, beyond which they are cut."""

LARGEST_TARGET = 2.0**28
"""Bound of targets less their mean."""

ROUNDING = 1e-9
"""Rise of the loss, as a share, that is rounding."""

Value = TypeVar("Value")

Thetas = Mapping[str, Callable[[], Floats]]
"""Functions that return the standardised coefficients of each party; private."""


@dataclass(frozen=True)
class DescentOptions:
    """Options of gradient descent.

    Parameters
    ----------
    ridge
        As of :func:`~p2pfl.plugins.vertical.linear.fit_linear`, in units of standardised columns.
    rate
        Share of the gradient, divided by the number of rows, by which standardised coefficients change.
    steps
        Most steps.
    tolerance
        Share of the loss by which it must fall in a step for another one.
    bits
        Bits of the key.
    """

    ridge: float = 0.0
    rate: float = 0.2
    steps: int = 300
    tolerance: float = 1e-13
    bits: int = MODULUS_BITS

    def __post_init__(self) -> None:
        if not (0 <= self.ridge < math.inf and 0 < self.rate < 2 and self.steps >= 1 and self.tolerance >= 0):
            raise ModelError(
                f"model.options: ridge = {self.ridge}, rate = {self.rate}, steps = {self.steps} and tolerance = "
                f"{self.tolerance} make no descent; set ridge and tolerance to at least 0, rate between 0 and 2, and "
                "steps to at least 1"
            )


def check_pair(roles: PartyRoles) -> None:
    """Refuse other roles than two parties and a helper.

    Raises
    ------
    InputError
        There are more than two parties, or no helper.
    """
    if len(roles.parties) != 2 or roles.helper is None:
        raise InputError(
            f"vertical_descent is a protocol of two parties and a helper, not of {', '.join(roles.peers)}; name a "
            '`helper`, or set model.name to "glm"'
        )


def fit_descent(table: JoinedTable, source: Source, options: DescentOptions) -> Questions[LinearFit]:
    """Fit a linear model of two parties with a helper.

    Parameters
    ----------
    table, source, options
        Table of all columns, the source of secret bytes, and options.

    Raises
    ------
    InputError
        There are more than two parties, or no helper.
    LearningError
        The loss rises.
    """
    check_pair(table.roles)
    design = yield from ask_design(table)
    return (yield from _Descent(Blocks(design, table), source, options).ask())


@dataclass(frozen=True, kw_only=True)
class VerticalDescent(VerticalRegression):
    """Linear model of two parties by gradient descent on encrypted residuals, to compare with ``glm``.

    Parameters
    ----------
    rate, steps, tolerance
        As of :class:`DescentOptions`.
    """

    name: ClassVar[str] = "vertical_descent"
    with_errors: ClassVar[bool] = False
    published: ClassVar[str] = "the loss at each step"
    run: ClassVar[type[VerticalRun]] = DescentRun

    family: Literal["gaussian"] = "gaussian"
    rate: float = 0.2
    steps: int = 300
    tolerance: float = 1e-13

    def __post_init__(self) -> None:
        super().__post_init__()
        self.options(MODULUS_BITS)  # checks them

    def options(self, bits: int) -> DescentOptions:
        """Return the options of the descent under a key of some bits."""
        return DescentOptions(self.ridge, self.rate, self.steps, self.tolerance, bits)

    @property
    def received(self) -> str:
        """The part of the model that a party receives, in words."""
        return f"its own coefficients and gradient at each of at most {self.steps} steps"

    def check(self, peer: str, party: Party, roles: PartyRoles) -> None:
        """Refuse other roles than two parties and a helper, few columns, and classes."""
        check_pair(roles)
        super().check(peer, party, roles)

    def ask(self, table: JoinedTable, source: Source) -> Questions[LinearFit]:
        """Return the questions of the descent."""
        fit = yield from fit_descent(table, source, self.options(MODULUS_BITS))
        deviance = math.nan if self.ridge else fit.figures["loss"]
        return replace(fit, figures={**fit.figures, "deviance": deviance})

    def mean_loss(self, fit: VerticalFit) -> float | None:
        """Return the mean deviance of the training rows, which is public without a penalty."""
        return None if self.ridge else super().mean_loss(fit)

    def whole(self, features: Floats, targets: npt.NDArray[Any]) -> WholeFit:
        """Return the model of columns in one place."""
        return fit_whole(features, targets, family=self.family, ridge=self.ridge)


class _Descent:
    """One fit."""

    def __init__(self, blocks: Blocks, source: Source, options: DescentOptions) -> None:
        self.blocks, self.options = blocks, options
        self.design, self.roles = blocks.design, blocks.design.roles
        self.label, self.other = self.roles.label, self.roles.features[0]
        self.helper = self.roles.solver
        self.words = 2 * options.bits // 64  # of an encrypted number

        @cache
        def drawn(peer: str) -> Stream:
            return stream(source.bytes(KEY_BYTES, purpose="vertical descent", peer=peer))

        self.drawn = drawn
        self.private = cache(lambda: PrivateKey(drawn(self.helper), bits=options.bits))
        self.keys: dict[str, Callable[[], tuple[PublicKey, Powers]]] = {}
        self.standard = cache(self._standard)
        self.points = cache(lambda party: _fixed(self.standard(party)[0], COLUMN_FRACTION))

    def _standard(self, party: str) -> tuple[Floats, Floats, Floats]:
        """Return the standardised columns of a party, their deviations, and of the label holder the target."""
        centred = self.blocks.of(party).centred
        columns, target = (centred[:, 1:-1], centred[:, -1]) if party == self.label else (centred, centred[:0, 0])
        deviation = np.sqrt((columns**2).mean(axis=0))
        deviation = np.where(deviation > 0, deviation, 1.0)
        if np.abs(target).max(initial=0.0) >= LARGEST_TARGET:
            raise DataError(
                f"{party} has targets that are {LARGEST_TARGET:,.0f} or more from their mean, which do not fit "
                "encrypted sums; give them in larger units"
            )
        return np.clip(columns / deviation, -LARGEST, LARGEST), deviation, target

    def ask(self) -> Questions[LinearFit]:
        """Take all steps."""
        for party in self.roles.parties:
            message = yield from send(self._modulus, size=self.words, sender=self.helper, to=party)
            self.keys[party] = cache(partial(self._key, message, party))
        theta: Thetas = {party: partial(np.zeros, self.design.widths[party]) for party in self.roles.parties}
        losses = [math.inf]
        for _ in range(self.options.steps):
            theta, total = yield from self._step(theta)
            [loss] = yield from publish(partial(self._loss, total), size=1, sender=self.helper)
            if not loss <= losses[-1] * (1 + ROUNDING):
                raise LearningError(f"the loss rises with model.options.rate = {self.options.rate}; set a lower one")
            losses.append(float(loss))
            if losses[-2] - loss <= self.options.tolerance * loss:
                break
        figures = {"samples": float(self.design.rows), "loss": losses[-1], "steps": float(len(losses) - 1)}
        figures["null_deviance"] = losses[1]  # the first loss is that of coefficients of zero
        return LinearFit(self.design, figures, lambda party: self._own(party, theta[party]()))

    def _modulus(self) -> Ints:
        return large_to_ints([self.private().public.modulus], self.words)

    def _key(self, message: PrivateMessage, party: str) -> tuple[PublicKey, Powers]:
        """Return the public key as a party has it, and powers that hide what it encrypts."""
        key = PublicKey(ints_to_large(message.read(party), self.words)[0], bits=self.options.bits)
        return key, key.rerandomiser(self.drawn(party))

    def _hidden(self, party: str, number: Any, message: int) -> Any:
        """Return an encryption of the sum of an encrypted number, 1 for none, and a message, by a party."""
        key, powers = self.keys[party]()
        return key.hide(number, message, powers.power(self.drawn(party)(powers.bits)))

    def _step(self, theta: Thetas) -> Questions[tuple[Thetas, PrivateMessage]]:
        """Return the coefficients after a step, and where the helper has the encrypted loss before it."""
        rows, words = self.design.rows, self.words
        predictors = {party: once(partial(self._predictor, party, theta[party])) for party in theta}
        sent = yield from send(
            once(lambda: large_to_ints(self._own_part(predictors[self.other], theta[self.other]), words)),
            size=(rows + 1) * words,
            sender=self.other,
            to=self.label,
        )
        received = once(lambda: self._numbers(sent, self.label))
        both = once(lambda: self._residuals(received(), predictors[self.label]()))
        residuals = yield from send(
            once(lambda: large_to_ints(both(), words)), size=rows * words, sender=self.label, to=self.other
        )
        total = yield from send(
            once(lambda: self._encrypted_loss(received(), predictors[self.label](), theta[self.label]())),
            size=words,
            sender=self.label,
            to=self.helper,
        )
        at = {self.label: both, self.other: once(lambda: self._numbers(residuals, self.other))}
        after = {}
        for party in theta:
            after[party] = yield from self._gradient(party, at[party], theta[party])
        return after, total

    def _predictor(self, party: str, theta: Callable[[], Floats]) -> Ints:
        """Return a party's part of the predictors, less the target, as whole numbers, ``[n]``."""
        columns, _, target = self.standard(party)
        part = columns @ theta()
        return _fixed(part - target if len(target) else part, FRACTION)

    def _squares(self, part: Ints, theta: Floats) -> int:
        """Return what a party alone adds to the loss."""
        penalty = self.options.ridge * float(theta @ theta)
        squares: int = sum(value * value for value in part.tolist())
        return squares + round(math.ldexp(penalty, 2 * FRACTION))

    def _own_part(self, part: Callable[[], Ints], theta: Callable[[], Floats]) -> list[Any]:
        """Return the encrypted predictors of the party without labels, and what it adds to the loss."""
        messages = [*part().tolist(), self._squares(part(), theta())]
        return [self._hidden(self.other, 1, message) for message in messages]

    def _numbers(self, message: PrivateMessage, party: str) -> list[Any]:
        """Return encrypted numbers that a party received."""
        return self.keys[party]()[0].check(ints_to_large(message.read(party), self.words))

    def _residuals(self, received: Sequence[Any], own: Ints) -> list[Any]:
        """Return the encrypted residuals."""
        pairs = zip(received[:-1], own.tolist(), strict=True)
        return [self._hidden(self.label, number, message) for number, message in pairs]

    def _encrypted_loss(self, received: Sequence[Any], own: Ints, theta: Floats) -> Ints:
        """Return the encrypted loss."""
        key, _ = self.keys[self.label]()
        mixed = key.combine(received[:-1], 2 * own) * received[-1] % key.square
        return large_to_ints([self._hidden(self.label, mixed, self._squares(own, theta))], self.words)

    def _loss(self, total: PrivateMessage) -> Floats:
        """Return the loss, which the helper decrypts."""
        [number] = ints_to_large(total.read(self.helper), self.words)
        return np.array([math.ldexp(self.private().decrypt(number), -2 * FRACTION)])

    def _gradient(
        self, party: str, residuals: Callable[[], list[Any]], theta: Callable[[], Floats]
    ) -> Questions[Callable[[], Floats]]:
        """Return the function by which a party reads its coefficients after a step."""
        width, draw = self.design.widths[party], partial(self.drawn, party)
        masks = once(lambda: [draw()(MASK_BITS) for _ in range(width)])

        def encrypted() -> Ints:
            key, _ = self.keys[party]()
            penalty = np.ldexp(self.options.ridge * theta(), FRACTION + COLUMN_FRACTION)
            sums = (key.combine(residuals(), np.ascontiguousarray(column)) for column in self.points(party).T)
            messages = zip(sums, masks(), penalty.tolist(), strict=True)
            return large_to_ints(
                [self._hidden(party, number, round(own) + mask) for number, mask, own in messages], self.words
            )

        def decrypted() -> Ints:
            numbers = ints_to_large(hidden.read(self.helper), self.words)
            return large_to_ints([self.private().decrypt(each) for each in numbers], MASKED_WORDS, signed=True)

        hidden = yield from send(once(encrypted), size=width * self.words, sender=party, to=self.helper)
        opened = yield from send(once(decrypted), size=width * MASKED_WORDS, sender=self.helper, to=party)

        def after() -> Floats:
            sums = zip(ints_to_large(opened.read(party), MASKED_WORDS, signed=True), masks(), strict=True)
            slope = np.array([math.ldexp(total - mask, -FRACTION - COLUMN_FRACTION) for total, mask in sums])
            return theta() - self.options.rate / self.design.rows * slope

        return once(after)

    def _own(self, party: str, theta: Floats) -> Mapping[str, Floats]:
        """Return the coefficients of a party in units of its columns."""
        beta = theta / self.standard(party)[1]
        if party != self.label:
            return {"coefficients": beta}
        means = self.blocks.of(party).means
        return {"coefficients": beta, "intercept": np.array([means[-1] - means[1:-1] @ beta])}


def once(compute: Callable[[], Value]) -> Callable[[], Value]:
    """Return a function that computes once, and then forgets what it needed, such as the numbers of earlier steps."""
    pending, kept = [compute], list[Value]()

    def read() -> Value:
        if not kept:
            kept.append(pending[0]())
            pending.clear()
        return kept[0]

    return read


def _fixed(values: Floats, fraction: int) -> Ints:
    """Return numbers as whole ones with fraction bits."""
    return np.rint(np.ldexp(values, fraction)).astype(np.int64)
