r"""Weighted sums of products of all columns, with weights and residuals that the label holder alone knows.

Each step of Newton's method asks for :math:`X_p^T d` and :math:`X_p^T (w \odot X_q)`. Products with the label holder's
columns are those of a masked matrix with what it multiplies in clear. The products of one party's own columns with each
other are columns of a matrix Z, which is sent masked once, so that a step sends one number for each row; for many
columns, and for two parties of which none holds labels, :math:`w \odot X_q` is shared first and multiplied then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import NamedTuple

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import PrivacyError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.vertical.gram import FactoredColumns, weight_bits
from p2pfl.plugins.vertical.private_messages import send_floats
from p2pfl.plugins.vertical.products import DealtProduct, Factors, Matrix, SharedMatrix
from p2pfl.plugins.vertical.ring import Words, fixed_point, limb_bits, multiply, sum_room, words

MAX_PAIRED_COLUMNS = 32
"""Columns of a party beyond which products of pairs are more numbers than shares of all steps."""

MIN_PEOPLE = 10
"""Least sum of weights in units of the largest one: people whose equal weights would make up the sum."""


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Scores and weights of the rows, which the label holder alone knows.

    Parameters
    ----------
    scores, weights
        d and w, ``[n]``.
    score_bound, weight_bound
        Bounds of their magnitudes that everybody knows; ``None`` if there are none, and their powers of two are told to
        the solver.
    """

    scores: Floats
    weights: Floats
    score_bound: float | None = None
    weight_bound: float | None = None

    def checked(self, owner: str) -> RowWeights:
        """Return the same, unless one person has much of the weights or scores in the sums; called at their owner.

        Sums then show the row of this person, which a solver can bring about by the coefficients that it sends.

        Parameters
        ----------
        owner
            Name of the label holder.

        Raises
        ------
        PrivacyError
            A sum is smaller.
        """
        for values, name in ((self.weights, "weights"), (self.scores, "residuals")):
            sizes = np.abs(values)
            if not sizes.sum() >= MIN_PEOPLE * sizes.max(initial=0.0):
                raise PrivacyError(
                    f"{owner} sends no sums in which one person has more than 1/{MIN_PEOPLE} of all {name}, as they "
                    "come close to that person's row; set model.options.ridge, merge rare levels, or leave out the "
                    "column that tells the class"
                )
        return self


class OpenedPart(NamedTuple):
    """Part of a result that is opened.

    Attributes
    ----------
    rows, columns
        Places in the result; no columns for the score.
    power
        The numbers are in units of two to this power, less an exponent that the label holder tells.
    exponent
        Place of this exponent.
    paired
        True if they are products of pairs of the rows.
    """

    rows: list[int]
    columns: list[int]
    power: int
    exponent: int
    paired: bool = False


class WeightedProducts:
    """Weighted products of the columns of all parties.

    Parameters
    ----------
    factored
        Columns as factors of products.
    """

    def __init__(self, factored: FactoredColumns) -> None:
        self.factored = factored
        self.products, self.design = factored.products, factored.blocks.design
        self.bits, self.room = limb_bits(self.design.rows), sum_room(self.design.rows)
        self.column_bits, self.weight_bits = weight_bits(self.design.rows)
        self.narrow = cache(self._narrow)
        self.pairs = cache(self._pairs)

    @property
    def label(self) -> str:
        """The label holder."""
        return self.design.roles.label

    def places(self, party: str) -> list[int]:
        """Return the places of the coefficients of a party, the intercept among them."""
        return self.design.coefficients(party)

    def _narrow_values(self, party: str) -> Words:
        """Return the columns of a party in fewer bits, which are the highest ones."""
        values = self.factored.blocks.of(party).values(slice(None))
        return words(np.rint(np.ldexp(values, self.column_bits - 2 * self.bits)).astype(np.int64))

    def _narrow(self, party: str) -> Matrix:
        return self.products.matrix(party, self.design.widths[party], lambda: self._narrow_values(party))

    def _pairs(self, party: str) -> Matrix:
        upper = np.triu_indices(self.design.widths[party])

        def entries() -> Words:
            values = self._narrow_values(party)
            return values[:, upper[0]] * values[:, upper[1]]

        return self.products.matrix(party, len(upper[0]), entries)

    def ask(self, weighted: Callable[[], RowWeights], *, exact: bool) -> Questions[Callable[[], tuple[Floats, Floats]]]:
        """Ask for the weighted products, and return the function by which the solver reads them.

        It returns :math:`X^T W X` ``[p, p]`` and :math:`X^T d` ``[p]``, in the units of the Gram matrix.

        Parameters
        ----------
        weighted
            Function that returns what the label holder knows, called there alone.
        exact
            True for weights of twice as many bits.
        """
        step = _WeightedStep(self, cache(lambda: weighted().checked(self.label)), exact=exact)
        told = yield from send_floats(
            step.told, size=step.width + 2 + step.width + step.width**2, sender=self.label, to=self.design.roles.solver
        )
        shared: dict[str, list[SharedMatrix]] = {}
        opened, checks = list[tuple[OpenedPart, SharedMatrix]](), list[DealtProduct]()
        for party in self.design.roles.features:
            factors = step.factors(party)
            dealt = yield from self.products.multiply(factors)
            shared[party] = [each.product for each, factor in zip(dealt, factors, strict=True) if factor.elementwise]
            checks += dealt
            opened += step.with_label(party, dealt)
        yield from self._between(shared, opened, checks)
        read = yield from self.products.open(
            [each for _, each in opened],
            to=self.design.roles.solver,
            checks=[each.check for each in checks],
        )
        parts = [each for each, _ in opened]
        return cache(lambda: self._assembled(told(), parts, read()))

    def _between(
        self,
        shared: dict[str, list[SharedMatrix]],
        opened: list[tuple[OpenedPart, SharedMatrix]],
        checks: list[DealtProduct],
    ) -> Questions[None]:
        """Ask for the products of columns of parties without labels with shared weighted ones."""
        features = self.design.roles.features
        power = 2 * (2 * self.bits - self.column_bits)
        pairs = [*combinations(features, 2), *((p, p) for p in features if not self.is_paired(p))]
        for left, right in pairs:
            for limb, share in enumerate(shared[right]):
                total = list[SharedMatrix]()
                for holder in (right, self.label):
                    part = self.products.matrix(holder, share.shape[1], share.at[holder])
                    if holder == left:
                        local = partial(self._times, left, part)
                        total.append(self.products.held(left, (self.design.widths[left], share.shape[1]), local))
                    else:
                        dealt = yield from self.products.multiply([Factors(self.narrow(left), part)])
                        checks += dealt
                        total.append(dealt[0].product)
                places = self.places(left), self.places(right)
                opened.append((OpenedPart(*places, power - limb * self.weight_bits, 1), total[0] + total[1]))

    def _times(self, party: str, part: Matrix) -> Words:
        """Return the products of a party's columns with its share of weighted ones."""
        return multiply(self._narrow_values(party), part.entries())

    def needs_shares(self, party: str) -> bool:
        """Return whether weighted columns of a party are shared."""
        return not self.is_paired(party) or party != self.design.roles.features[0]

    def is_paired(self, party: str) -> bool:
        """Return whether the products of pairs of a party's columns are sent."""
        return self.design.widths[party] <= MAX_PAIRED_COLUMNS

    def _assembled(self, told: Floats, parts: Sequence[OpenedPart], values: Sequence[Ints]) -> tuple[Floats, Floats]:
        """Return the information and the score."""
        size, own = self.design.size, self.places(self.label)
        width = len(own)
        exponents = told[: width + 2].astype(np.int64)
        information, score = np.zeros((size, size)), np.zeros(size)
        score[own] = told[width + 2 : 2 * width + 2]
        information[np.ix_(own, own)] = told[2 * width + 2 :].reshape(width, width)
        for part, whole in zip(parts, values, strict=True):
            last = part.exponent + len(part.columns) if part.exponent >= 2 else part.exponent + 1
            numbers = np.ldexp(whole.astype(np.float64), part.power - exponents[part.exponent : last])
            if not part.columns:
                score[part.rows] += numbers[:, 0]
            elif part.paired:
                rows = np.array(part.rows)
                upper = np.triu_indices(len(rows))
                added = np.zeros((len(rows), len(rows)))
                added[upper] = added.T[upper] = numbers[:, 0]
                information[np.ix_(rows, rows)] += added
            else:
                information[np.ix_(part.rows, part.columns)] += numbers
                if part.rows != part.columns:
                    information[np.ix_(part.columns, part.rows)] += numbers.T
        return information, score


class _WeightedStep:
    """One step: the weighted matrices of the label holder, and the products that follow from them."""

    def __init__(self, whole: WeightedProducts, weighted: Callable[[], RowWeights], *, exact: bool) -> None:
        self.whole, self.exact = whole, exact
        self.width = len(whole.places(whole.label))
        self._weighted = weighted
        label, products = whole.label, whole.products
        self.own = cache(lambda: whole.factored.blocks.of(label).values(slice(None))[:, : self.width])  # [n, k]
        free = whole.room - whole.bits
        limbs = 1 + exact
        self.scores = cache(lambda: fixed_point(weighted().scores[:, None], bits=free, bound=weighted().score_bound))
        self.weights = cache(
            lambda: fixed_point(
                weighted().weights[:, None], bits=limbs * whole.weight_bits, bound=weighted().weight_bound
            )
        )
        self.columns = cache(lambda: fixed_point(self.own() * weighted().weights[:, None], bits=free))
        self.right = {
            "scores": products.matrix(label, 1, lambda: words(self.scores().values)),
            "columns": products.matrix(label, self.width, lambda: words(self.columns().values)),
        }
        self.limbs = [products.matrix(label, 1, partial(self._limb, number)) for number in range(limbs)]

    def _limb(self, number: int) -> Words:
        """Return a limb of the weights, the highest first."""
        if not self.exact:
            return words(self.weights().values)
        return self.weights().limbs(self.whole.weight_bits)[number]

    def told(self) -> Floats:
        """Return the powers of two and the products of its own columns, which the label holder tells the solver."""
        weighted, own = self._weighted(), self.own()
        exponents = np.concatenate([self.scores().exponents, self.weights().exponents, self.columns().exponents])
        exponents[1] -= self.exact * self.whole.weight_bits  # those of the highest limb
        return np.concatenate([exponents, own.T @ weighted.scores, (own.T @ (own * weighted.weights[:, None])).ravel()])

    def factors(self, party: str) -> list[Factors]:
        """Return the factors of the products of a party with the label holder."""
        high, low = self.whole.factored.high(party), self.whole.factored.low(party)
        factors = [
            Factors(high, self.right["scores"]),
            Factors(low, self.right["scores"]),
            Factors(high, self.right["columns"]),
        ]
        if self.whole.is_paired(party):
            factors += [Factors(self.whole.pairs(party), limb) for limb in self.limbs]
        if self.whole.needs_shares(party):
            factors += [Factors(self.whole.narrow(party), limb, elementwise=True) for limb in self.limbs]
        return factors

    def with_label(self, party: str, dealt: Sequence[DealtProduct]) -> list[tuple[OpenedPart, SharedMatrix]]:
        """Return the products that are opened, with their places."""
        whole, bits = self.whole, self.whole.bits
        mine, own = whole.places(party), whole.places(whole.label)
        parts = [OpenedPart(mine, [], bits, 0), OpenedPart(mine, [], 0, 0), OpenedPart(mine, own, bits, 2)]
        if whole.is_paired(party):
            power = 2 * (2 * bits - whole.column_bits)
            parts += [
                OpenedPart(mine, mine, power - limb * whole.weight_bits, 1, paired=True)
                for limb in range(len(self.limbs))
            ]
        return [(part, each.product) for part, each in zip(parts, dealt, strict=False)]
