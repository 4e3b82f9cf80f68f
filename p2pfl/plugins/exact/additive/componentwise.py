""":class:`Componentwise`, model-based boosting of base learners by exact totals."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints, from_wide, wide
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Part, Round, Tensors
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.additive.base_learners import DEGREE, OWN, AdditiveModel, BaseLearner, penalty_for
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.design_cells import check_columns
from p2pfl.plugins.exact.elementary import added_along, inverse, log
from p2pfl.plugins.exact.sketch import sketch
from p2pfl.plugins.exact.tensor_model import DEFAULT_LEAST, Shapes, TensorModel, check_validated, scalars, stopped

Log = Sequence[tuple[int, Floats | None]]
"""Steps: number of the chosen learner, and the coefficients of a shared one."""

FRACTION = 44
"""Fraction bits of the sums of a step; with fewer than 40, choices differ after some thousand steps."""

TIE = 1e-9
"""Errors of a shared learner and of own effects that differ by less are equal; the shared one is then chosen."""

CANDIDATES, REFINEMENTS = 64, 12
"""Penalties of sites that are compared by one total, and such totals."""


@dataclass
class Site:
    """Scores of the samples of a peer, and its own effects, which follow from the public log of steps.

    Parameters
    ----------
    bases
        Values of the functions of each learner, ``[n, size]`` each.
    targets
        Targets, ``[n]``.
    penalties
        Penalty matrix of each learner with that of a site, ``[size, size]`` each; empty without site effects.
    offset, rate
        First score, and factor of each step.
    binary
        True if targets are two classes.
    origin
        Public numbers that all of this follows from.
    validation
        Values of the functions, and targets, of samples that decide when the model is good enough.
    """

    bases: Sequence[Floats]
    targets: Floats
    penalties: Sequence[Floats]
    offset: float
    rate: float
    binary: bool
    origin: bytes
    validation: tuple[Sequence[Floats], Floats] | None = None
    applied: int = 0
    history: array[float] = field(default_factory=lambda: array("d"))
    scores: Floats = field(init=False)
    effects: list[Floats] = field(init=False)

    def __post_init__(self) -> None:
        self.scores = np.full(len(self.targets), self.offset)
        self._checked = np.full(0 if self.validation is None else len(self.validation[1]), self.offset)
        self.effects = [np.zeros(basis.shape[1]) for basis in self.bases]
        self._stacked = np.ascontiguousarray(np.concatenate([*self.bases], axis=1).T)  # [sizes, n]
        self._starts = np.cumsum([0, *(basis.shape[1] for basis in self.bases)])
        self._inverses = [
            np.linalg.inv(basis.T @ basis + penalty)
            for basis, penalty in zip(self.bases, self.penalties, strict=bool(self.penalties))
        ]
        self._residuals = self.targets
        width = self._starts[-1]
        self._products: Floats | None = None  # with the residuals of the scores as they are
        self._errors = np.zeros((width, width))
        for index, inverted in enumerate(self._inverses):
            where = slice(self._starts[index], self._starts[index + 1])
            gram = self.bases[index].T @ self.bases[index]
            self._errors[where, where] = inverted @ gram @ inverted - 2 * inverted

    def follows(self, choices: Floats, firsts: Floats) -> bool:
        """Return whether the steps applied so far are the first ones of a log.

        Parameters
        ----------
        choices, firsts
            Chosen learner of each step, and the first coefficient of a shared one or 0, ``[steps]``.
        """
        own = np.frombuffer(self.history).reshape(-1, 2)
        count = len(own)
        return count <= len(choices) and bool((own == np.stack([choices[:count], firsts[:count]], axis=1)).all())

    def advance(self, log: Log) -> None:
        """Apply further steps."""
        for choice, shared in log:
            index = choice % len(self.bases)
            basis = self.bases[index]
            if shared is None:
                theta = self._inverses[index] @ self._fitted()[self._starts[index] : self._starts[index + 1]]
                self.effects[index] += self.rate * theta
            else:
                theta = shared[: basis.shape[1]]
            self.scores += self.rate * (basis @ theta)
            if self.validation is not None:
                self._checked += self.rate * (self.validation[0][index] @ theta)
            self._products = None
            self.history.extend((float(choice), 0.0 if shared is None else float(shared[0])))
            self.applied += 1

    def terms(self) -> Floats:
        """Return products of all functions with the residuals, their squares, the loss, and errors of own effects.

        With validation samples, their loss and their number follow.
        """
        products, residuals = self._fitted(), self._residuals
        squares = float(residuals @ residuals)
        loss = self._loss(self.targets, self.scores)
        errors = np.add.reduceat(products * (self._errors @ products), self._starts[:-1]) + squares
        checked = [] if self.validation is None else [self._loss(self.validation[1], self._checked), len(self._checked)]
        return np.concatenate([products, [squares, loss], errors if self._inverses else [], checked])

    def _loss(self, targets: Floats, scores: Floats) -> float:
        """Return the log loss, or half of the squared error, over samples."""
        if self.binary:
            return float(np.logaddexp(0.0, np.where(targets > 0, -scores, scores)).sum())
        residuals = targets - scores
        return float(residuals @ residuals) / 2

    def _fitted(self) -> Floats:
        """Return the products of all functions with the residuals, which are the negative derivative of the loss."""
        if self._products is None:
            self._residuals = self.targets - (scipy.special.expit(self.scores) if self.binary else self.scores)
            self._products = self._stacked @ self._residuals
        return self._products


@dataclass(frozen=True, kw_only=True)
class Componentwise(TensorModel):
    r"""Component-wise boosting with site effects.

    Each step fits every base learner to the residuals and adds the one of least squared error:

    .. math:: \theta_j = (Z_j^T Z_j + \lambda_j K_j)^{-1} Z_j^T u, \qquad f \leftarrow f + \nu Z_j \theta_j

    A learner exists twice: shared by all peers, and with effects of each peer's own, which never leave it. One total a
    step has the products of all functions with the residuals, and the errors of own effects.

    Parameters
    ----------
    features, classes, rounds
        Number of features, of classes (two; ``None`` for a number), and of rounds.
    fields
        Columns of the table; each is a base learner.
    every
        Steps of a round.
    learning_rate
        :math:`\nu`.
    df
        Degrees of freedom of a learner, which choose :math:`\lambda_j`.
    site_df
        Degrees of freedom of a random intercept of sites, which choose their penalty; 0 for no site effects.
    knots
        Inner knots of a spline, equally spaced.
    linear
        Columns of numbers that are straight lines instead of splines.
    ranges
        Ends of columns of numbers that are known; those of others follow from counts of their values, to 1/128.
    early_stopping, n_iter_no_change, tol
        Stop where the loss on the validation parts has not fallen by ``tol`` within ``n_iter_no_change`` steps.
    least
        Least number of samples of a level, or of a value of a column of two; 1 if a single one may be shown.

    References
    ----------
    Schalk, Bischl, Rügamer, Privacy-preserving and lossless distributed estimation of high-dimensional generalized
    additive mixed models, Statistics and Computing 34, 2024; Bühlmann and Yu, Boosting with the L2 loss, JASA 98, 2003.
    """

    name: ClassVar[str] = "componentwise"
    shows: ClassVar[str] = (
        "how many samples have each value of each number, to a relative width of 1/128, products of the functions of "
        "each column, and at each step their products with the residuals"
    )

    checks: ClassVar[str] = (
        "a level, or one of two values of a column (a value of another number can be that of one person)"
    )

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        more = {
            "site_df": "the sum of the errors of effects of the peers' own",
            "early_stopping": "the loss of the validation parts",
        }
        return ", ".join([cls.shows, *(words for key, words in more.items() if options.get(key))])

    features: int
    classes: int | None
    rounds: int
    fields: tuple[Field, ...] | None = None
    every: int = 100
    learning_rate: float = 0.1
    df: float = 5.0
    site_df: float = 0.0
    knots: int = 20
    linear: tuple[str, ...] = ()
    ranges: dict[str, tuple[float, float]] | None = None
    early_stopping: bool = False
    n_iter_no_change: int = 10
    tol: float = 1e-7
    least: int = DEFAULT_LEAST

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes != 2:
            raise ModelError(
                f"model.name: componentwise predicts two classes or a number, not {self.classes} classes; use boosting"
            )
        if not (self.every >= 1 and 0 < self.learning_rate <= 1 and self.df > 1 and self.knots >= 1):
            raise ModelError(
                f"model.options: every = {self.every}, learning_rate = {self.learning_rate}, df = {self.df} and knots "
                f"= {self.knots} cannot be; set every and knots to at least 1, the rate to at most 1, and df above 1"
            )
        if not 0 <= self.site_df < math.inf:
            raise ModelError(f"model.options.site_df is {self.site_df}; set it to a number of sites, or to 0 for none")
        if not (self.n_iter_no_change >= 1 and self.tol >= 0):
            raise ModelError(
                f"model.options.n_iter_no_change = {self.n_iter_no_change} and tol = {self.tol} stop at no step; set "
                "n_iter_no_change to at least 1 and tol to at least 0"
            )
        named = {learner.column for learner in self.learners if learner.kind != "onehot"}
        if unknown := [name for name in (*self.linear, *(self.ranges or {})) if name not in named]:
            raise ModelError(
                f'model.options names the column "{unknown[0]}", which has no numbers; choose from {", ".join(named)}'
            )

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Refuse levels and columns of two values that few samples have."""
        yield from check_columns(check, features=self.features, fields=self.fields)
        return tensors

    @cached_property
    def learners(self) -> tuple[BaseLearner, ...]:
        """Base learners in the order of the columns."""
        learners = []
        for column, where in located(self.features, self.fields):
            kind = "onehot" if column.levels is not None else "linear" if column.name in self.linear else "spline"
            sizes = {"onehot": where.stop - where.start, "linear": 2, "spline": self.knots + DEGREE + 1}
            learners.append(BaseLearner(column.name, kind, where.start, sizes[kind]))
        return tuple(learners)

    @property
    def widest(self) -> int:
        """Largest number of coefficients of a learner."""
        return max(learner.size for learner in self.learners)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        many, widest, steps = len(self.learners), self.widest, self.rounds * self.every
        shapes: Shapes = dict.fromkeys(("samples", "offset", "site_penalty", "steps"), (1,))
        shapes |= dict.fromkeys(("low", "high", "penalty"), (many,))
        shapes |= {"coefficients": (many, widest), "gram": (many, widest, widest)}
        shapes |= {"choices": (steps,), "risks": (steps,), "updates": (steps, widest)}
        return shapes | ({"validation": (steps,)} if self.early_stopping else {})

    def module(self) -> AdditiveModel:
        """Return the torch module of the shared effects."""
        return self.predictor(())

    def predictor(self, names: Collection[str]) -> AdditiveModel:
        """Return the torch module of the shared effects, and of those of a peer's own if the names have them."""
        return AdditiveModel(self.shapes, self.learners, binary=self.classes is not None, own=OWN in names)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, 2]``, or predicted means ``[n, 1]``, of the shared effects, as for a new site."""
        bases = self._bases(tensors, part)
        predictor = np.full(len(part), float(tensors["offset"][0]))
        for learner, basis, own in zip(self.learners, bases, tensors["coefficients"], strict=True):
            predictor = predictor + basis @ own[: learner.size]
        return self._outputs(predictor)

    def personal(self, tensors: Tensors, own: Own, part: Part) -> Floats:
        """Return outputs as :meth:`predicted` does, with the effects of a peer's own."""
        site = self._site(tensors, own)
        shared = self.predicted(tensors, part)[:, -1]
        bases = self._bases(tensors, part)
        return self._outputs(shared + sum(basis @ own for basis, own in zip(bases, site.effects, strict=True)))

    def owned(self, tensors: Tensors, own: Own) -> Tensors:
        """Return the coefficients of a peer's own effects, ``[J, W]``; nothing without effects of sites."""
        if not self.site_df or not tensors["samples"][0]:
            return {}
        effects = np.zeros((len(self.learners), self.widest))
        for row, effect in zip(effects, self._site(tensors, own).effects, strict=True):
            row[: len(effect)] = effect
        return {OWN: effects}

    def _outputs(self, scores: Floats) -> Floats:
        if self.classes is None:
            return scores[:, None]
        return np.stack([np.zeros_like(scores), scores], axis=1)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take ``every`` steps."""
        done = int(tensors["steps"][0])
        if done >= self.rounds * self.every:
            return Outcome(tensors, over=True)
        if not tensors["samples"][0]:
            tensors = yield from self._begin(tensors, own)
            if not tensors["samples"][0]:
                return Outcome(tensors, over=True)
        new = {name: np.array(value) for name, value in tensors.items()}
        solvers = self._solvers(new)
        steps, sites = list[tuple[int, Floats | None]](), dict[str, Site]()
        sizes = [learner.size for learner in self.learners]
        terms = sum(sizes) + 2 + (len(sizes) if self.site_df else 0) + (2 if self.early_stopping else 0)
        taken, stalled = done, False

        def answer(peer: str) -> Ints:
            if peer not in sites:
                sites[peer] = self._site(tensors, own(peer))
            sites[peer].advance(steps[sites[peer].applied - done :])
            return wide(sites[peer].terms(), fraction=FRACTION)

        for step in range(done, done + self.every):
            total = yield Question(answer, size=2 * terms)
            values = from_wide(total, fraction=FRACTION)
            new["risks"][step] = values[sum(sizes) + 1] / new["samples"][0]
            if self.early_stopping:
                check_validated(values[-1])
                new["validation"][step] = values[-2] / values[-1]
                values = values[:-2]
                stalled = stopped(new["validation"][: step + 1], self.n_iter_no_change, self.tol)
                if stalled:
                    break
            choice, theta = self._chosen(values, new["gram"], solvers)
            new["choices"][step], taken = choice, step + 1
            steps.append((choice, theta))
            if theta is not None:
                new["updates"][step] = theta
                new["coefficients"][choice] += self.learning_rate * theta
        new |= scalars(steps=taken)
        return Outcome(new, float(new["risks"][step]), over=stalled or taken >= self.rounds * self.every)

    def _site(self, tensors: Tensors, own: Own) -> Site:
        """Return the private part of a peer after the steps of a model: the one kept, or one made anew from the log."""
        done = int(tensors["steps"][0])
        origin = b"".join(tensors[name].tobytes() for name in ("offset", "low", "high", "penalty", "site_penalty"))
        part = own.train
        site: Site | None = part.kept.get("componentwise")
        followed = site is not None and site.origin == origin
        if site is None or not followed or not site.follows(tensors["choices"][:done], tensors["updates"][:done, 0]):
            site = self._made(tensors, own, origin)
            part.kept["componentwise"] = site
        site.advance(_log(tensors, since=site.applied))
        return site

    def _made(self, tensors: Tensors, own: Own, origin: bytes) -> Site:
        part, checked = own.train, own.validation if self.early_stopping else None
        sites = float(tensors["site_penalty"][0])
        penalties = [
            strength * learner.penalty + sites * np.eye(learner.size)
            for strength, learner in zip(tensors["penalty"].tolist(), self.learners, strict=True)
        ]
        return Site(
            bases=self._bases(tensors, part),
            targets=part.targets.astype(np.float64),
            penalties=penalties if self.site_df else (),
            offset=float(tensors["offset"][0]),
            rate=self.learning_rate,
            binary=self.classes is not None,
            origin=origin,
            validation=None if checked is None else (self._bases(tensors, checked), checked.targets.astype(np.float64)),
        )

    def _bases(self, tensors: Tensors, part: Part) -> list[Floats]:
        ends = zip(self.learners, tensors["low"].tolist(), tensors["high"].tolist(), strict=True)
        return [learner.basis(part.features, low=low, high=high) for learner, low, high in ends]

    def _chosen(self, values: Floats, gram: Floats, solvers: Floats) -> tuple[int, Floats | None]:
        """Return the learner of least error, and its coefficients if it is shared."""
        many, widest = len(self.learners), self.widest
        products = np.zeros((many, widest))
        index = 0
        for number, learner in enumerate(self.learners):
            products[number, : learner.size] = values[index : index + learner.size]
            index += learner.size
        squares = float(values[index])
        thetas = _applied(solvers, products)
        errors = added_along(thetas * (_applied(gram, thetas) - 2 * products)) + squares
        own, shared = values[index + 2 :], int(errors.argmin())
        if len(own) and own.min() < errors[shared] - TIE:
            return many + int(own.argmin()), None
        return shared, thetas[shared]

    def _solvers(self, tensors: Tensors) -> Floats:
        """Return the inverse of each learner's penalised products, ``[J, W, W]``."""
        inverses = np.zeros_like(tensors["gram"])
        for number, (learner, strength) in enumerate(zip(self.learners, tensors["penalty"].tolist(), strict=True)):
            where = slice(learner.size)
            inverses[number, where, where] = inverse(
                tensors["gram"][number, where, where] + strength * learner.penalty
            )[0]
        return inverses

    def _begin(self, tensors: Tensors, own: Owns) -> Asked[Tensors]:
        """Agree on ends of columns, products of functions, penalties and the offset."""
        low, high = yield from ends(self.learners, self.ranges or {}, own, model=self.name, least=self.least)
        given = {**tensors, "low": low, "high": high}
        sizes = [learner.size for learner in self.learners]
        terms = sum(size * size for size in sizes)
        size = sums.size(terms + 1) + 1
        total = yield Question(lambda peer: self._products(own(peer).train, given), size=size)
        samples, values = int(total[-1]), sums.numbers(total[:-1])
        if not samples:
            return tensors
        mean, index = float(values[-1]) / samples, 0
        gram, penalty = np.zeros_like(tensors["gram"]), np.zeros(len(sizes))
        for number, learner in enumerate(self.learners):
            size = learner.size
            block = values[index : index + size * size].reshape(size, size)
            gram[number, :size, :size] = 0.5 * (block + block.T)
            penalty[number] = penalty_for(gram[number, :size, :size], learner.penalty, df=self.df)
            index += size * size
        if self.classes is not None and not 0 < mean < 1:
            raise LearningError("all samples are of one class, so there is nothing to learn; add peers with the other")
        offset = log(mean) - log(1 - mean) if self.classes is not None else mean
        sites = (yield from site_penalty(own, df=self.site_df, fraction=FRACTION)) if self.site_df else 0.0
        agreed = scalars(samples=samples, offset=offset, site_penalty=sites)
        return {**given, "gram": gram, "penalty": penalty, **agreed}

    def _products(self, part: Part, tensors: Tensors) -> Ints:
        """Return exact sums of products of functions, that of targets, and the number of samples."""
        bases, targets = self._bases(tensors, part), part.targets.astype(np.float64)

        def each(where: slice) -> Floats:
            own = [basis[where] for basis in bases]
            pairs = [(basis[:, :, None] * basis[:, None, :]).reshape(len(basis), -1) for basis in own]
            return np.concatenate([*pairs, targets[where, None]], axis=1)

        terms = sum(learner.size**2 for learner in self.learners) + 1
        return np.append(sums.summed(len(part), terms, each), len(part))


def _applied(matrices: Floats, vectors: Floats) -> Floats:
    """Return the products of matrices ``[J, W, W]`` and vectors ``[J, W]``, added column by column."""
    return added_along(matrices * vectors[:, None, :])


def _log(tensors: Tensors, *, since: int) -> Log:
    """Return the steps of a model from one on; those of own effects have no coefficients that others know."""
    done, many = int(tensors["steps"][0]), len(tensors["coefficients"])
    choices = tensors["choices"][since:done].astype(int).tolist()
    return [
        (choice, update if choice < many else None)
        for choice, update in zip(choices, tensors["updates"][since:done], strict=True)
    ]


def ends(
    learners: Sequence[BaseLearner], known: Mapping[str, tuple[float, float]], own: Owns, *, model: str, least: int
) -> Asked[tuple[Floats, Floats]]:
    """Return the ends of each column: those that are given, or those of the cells of its values.

    Those of a spline leave out cells beyond which fewer than ``least`` people have values.

    Parameters
    ----------
    learners
        Base learners, one for each column.
    known
        Ends of columns by name.
    own
        Samples of a peer.
    model
        Name of the model, for errors.
    least
        Least number of people in the piece of a spline at an end.
    """
    low, high = np.zeros(len(learners)), np.ones(len(learners))
    asked = [
        (number, learner.index)
        for number, learner in enumerate(learners)
        if learner.kind != "onehot" and learner.column not in known
    ]
    for number, learner in enumerate(learners):
        if learner.column in known:
            low[number], high[number] = known[learner.column]

    def values(peer: str) -> list[Any]:
        part = own(peer).train
        part.check_complete(peer, model=model)
        return [part.features[:, index] for _, index in asked]

    if not asked:
        return low, high
    sketches, _ = yield from sketch(values, columns=len(asked))
    for (number, _), cells in zip(asked, sketches, strict=True):
        if len(cells.counts):
            count = int(cells.counts.sum())
            enough = min(least, (count + 1) // 2) if learners[number].kind == "spline" else 1
            low[number] = cells.low[cells.reached(enough)]
            high[number] = cells.high[cells.reached(count + 1 - enough)]
    return low, high


def site_penalty(own: Owns, *, df: float, fraction: int) -> Asked[float]:
    """Return the penalty with which a random intercept of the peers has ``df`` degrees of freedom.

    Peers add their degrees of freedom under several penalties at once, so that nobody shows its number of samples.

    Parameters
    ----------
    own
        Samples of a peer.
    df
        Degrees of freedom.
    fraction
        Fraction bits of what peers add.
    """
    low, high = 0.0, 2.0**40
    for _ in range(REFINEMENTS):
        tried = low + (high - low) * np.arange(1, CANDIDATES) / CANDIDATES

        def terms(peer: str, tried: Floats = tried) -> Ints:
            samples = len(own(peer).train)
            shares = samples / (samples + tried)
            return wide(2 * shares - shares * shares, fraction=fraction)

        total = yield Question(terms, size=2 * (CANDIDATES - 1))
        above = from_wide(total, fraction=fraction) > df
        index = int(above.sum())  # degrees of freedom fall as the penalty rises
        low, high = (tried[index - 1] if index else low), (tried[index] if index < len(tried) else high)
    return 0.5 * (low + high)
