""":class:`Lasso`, generalised linear models under an L1 penalty, for a whole path of penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.core.explanations import Explained
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Owns, Round, Tensors, symmetric
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import labels_of
from p2pfl.plugins.exact.elementary import added, times
from p2pfl.plugins.exact.regression.fits import converged, path_of
from p2pfl.plugins.exact.regression.glm import GLM, HALVINGS
from p2pfl.plugins.exact.regression.sandwich import CLASSICAL
from p2pfl.plugins.exact.tensor_model import Shapes, scalars

STEPS = 100
"""Most Newton steps of one penalty."""

SWEEPS = 20_000
"""Most sweeps over the coefficients within a step."""

DECREMENT = 1e-20
"""A penalty is done where a step would change the deviance by less than this share."""

SCALARS = (
    *("samples", "held_out", "weight_sum", "saturated", "deviance", "null_deviance"),
    *("largest", "place", "chosen", "converged"),
)
"""Numbers of a fit."""

FACTS = ("samples", "held_out", "deviance", "null_deviance", "chosen", "converged")
"""Numbers that are printed with the coefficients."""


@dataclass(frozen=True)
class Quadratic:
    r"""Deviance of a linear model as a function of its coefficients, from totals at one point.

    .. math:: D(\beta) = D(b) - 2 g^T (\beta - b) + (\beta - b)^T H (\beta - b)

    Parameters
    ----------
    at
        b, ``[p]``.
    information, score
        H ``[p, p]`` and g ``[p]``: weighted products of columns, and of columns with the residuals of b.
    squares
        D(b).
    weight
        Sum of the weights of the samples.

    Examples
    --------
    >>> quadratic = Quadratic(np.zeros(1), np.array([[2.0]]), np.array([3.0]), 5.0, 4.0)
    >>> quadratic.slope(np.ones(1)).tolist(), quadratic.deviance(np.ones(1)), quadratic.mean(np.ones(1))
    ([1.0], 1.0, 0.25)
    """

    at: Floats
    information: Floats
    score: Floats
    squares: float
    weight: float

    def slope(self, beta: Floats) -> Floats:
        """Return the products of columns with the residuals, ``[p]``."""
        return self.score - times(self.information, beta - self.at)

    def deviance(self, beta: Floats) -> float:
        """Return the deviance."""
        moved = beta - self.at
        return self.squares - added(moved * (self.score + self.slope(beta)))

    def mean(self, beta: Floats) -> float:
        """Return the mean deviance; NaN without samples."""
        return self.deviance(beta) / self.weight if self.weight else float("nan")


@dataclass(frozen=True, kw_only=True)
class Lasso(GLM):
    r"""Path of generalised linear models with the elastic net penalty of glmnet and scikit-learn.

    .. math:: \min_\beta \; -\frac{1}{n} \ell(\beta) + \lambda \Bigl(\rho \lVert \beta \rVert_1
              + \tfrac{1 - \rho}{2} \lVert \beta \rVert_2^2\Bigr)

    A round is one penalty, from the smallest with which all coefficients are zero downwards, each from the model
    before. Its steps are Newton's, with coordinate descent on the totals, which needs no further ones. With the family
    ``gaussian`` the first round is the whole path, as one total of products is enough for all penalties.

    Parameters
    ----------
    features, classes, family, fit_intercept
        As of :class:`p2pfl.plugins.exact.regression.glm.GLM`; the intercept has no penalty.
    ridge
        Must be 0; ``l1_ratio`` mixes both penalties.
    l1_ratio
        :math:`\rho`, above 0.
    lambdas
        Number of penalties.
    smallest
        The last penalty as a share of the first.

    References
    ----------
    Friedman, Hastie, Tibshirani, Regularization paths for generalized linear models via coordinate descent, Journal of
    Statistical Software 33, 2010.
    """

    name: ClassVar[str] = "lasso"

    l1_ratio: float = 1.0
    lambdas: int = 50
    smallest: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge:
            raise ModelError("model.options.ridge has no effect with lasso; leave it out, and set l1_ratio below 1")
        if self.errors != CLASSICAL:
            raise ModelError(
                "model.options.errors has no effect with lasso, which has no standard errors; leave it out"
            )
        if self.estimates:
            raise ModelError(
                'model.options.alpha = "estimate" does not work with lasso; give a number that glm estimated'
            )
        if self.chosen == "multinomial":
            raise ModelError(
                f"lasso predicts two classes or a number, not {self.classes} classes; use glm without a penalty, or "
                "boosting"
            )
        if not (0 < self.l1_ratio <= 1 and 0 < self.smallest < 1 and 2 <= self.lambdas <= 1000):
            raise ModelError(
                f"model.options: l1_ratio = {self.l1_ratio}, smallest = {self.smallest} and lambdas = {self.lambdas} "
                "make no path; set l1_ratio to above 0 and at most 1, smallest between 0 and 1, lambdas to 2 to 1000"
            )

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the coefficients of the chosen penalty and the path, once it has ended."""
        facts = converged(tensors, FACTS)
        if facts is None:
            return None
        labels = self.labels(self.merged_labels(labels_of(fields), tensors), classes)
        facts |= self.splines.facts(tensors)
        return path_of(self.name, self.stacked(tensors), tensors, labels, facts, intercept=self.fit_intercept)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        shapes = self._linear | dict.fromkeys(SCALARS, (1,))
        shapes |= dict.fromkeys(("penalties", "deviances", "validation"), (self.lambdas,))
        return shapes | {"path": (self.lambdas, self.width)}

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the samples of which totals are taken by themselves."""
        return ("train", "validation") if self.chosen == "gaussian" else ("train",)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Fit the model of the next penalty; the last round chooses the one of the least validation deviance."""
        index = int(tensors["place"][0])
        if tensors["converged"][0]:
            return Outcome(tensors, over=True)
        if not index:
            tensors = yield from self._begin(tensors, own)
            if not tensors["samples"][0]:
                return Outcome(tensors, over=True)
            if self.chosen == "gaussian":
                return (yield from self._whole(tensors, own))
            null = yield from self._derived(self.kind, self.stacked(tensors), tensors, own)
            tensors = self._starting(null["score"], tensors)
        before = tensors["path"][index - 1] if index else self.stacked(tensors)
        penalty = float(tensors["largest"][0]) * self._share(index)
        beta, deviance = yield from self._fitted(before, penalty, tensors, own)
        validation = yield from self._validated(beta, own)
        return self._kept(_noted(tensors, index, beta, (penalty, deviance, validation)), index)

    def _starting(self, score: Floats, tensors: Tensors) -> Tensors:
        """Return the tensors with the smallest penalty under which all coefficients are zero."""
        largest = float(np.abs(score[: len(self.roles.kept)]).max(initial=0.0))
        return {**tensors, **scalars(largest=largest / (tensors["weight_sum"][0] * self.l1_ratio))}

    def _whole(self, tensors: Tensors, own: Owns) -> Round:
        """Return the whole path of a linear model, whose deviances are quadratic in the coefficients."""
        start = self.stacked(tensors)
        train, validation = yield from self._quadratics(start, own)
        tensors = self._starting(train.score, tensors)
        beta = start
        for index in range(self.lambdas):
            penalty = float(tensors["largest"][0]) * self._share(index)
            first, second = self._prices(penalty, tensors)
            beta = descended(train.information, train.slope(beta), beta, first=first, second=second)
            scores = penalty, train.deviance(beta), validation.mean(beta)
            tensors = _noted(tensors, index, beta, scores)
        return self._kept(tensors, self.lambdas - 1)

    def _quadratics(self, beta: Floats, own: Owns) -> Asked[tuple[Quadratic, Quadratic]]:
        """Ask for the products of all columns in the training and the validation parts, by one total."""
        upper = np.triu_indices(self.width)
        terms = len(upper[0]) + self.width + 2

        def answer(peer: str) -> Ints:
            parts = []
            for part in (own(peer).train, own(peer).validation):
                part.check_complete(peer, model=self.name)
                products = self._terms(self.kind, part, beta)
                parts += [products, self._summed(part, 1, lambda where: np.ones((where.stop - where.start, 1)))]
            return np.concatenate(parts)

        total = yield Question(answer, size=2 * (sums.size(terms) + sums.size(1)))
        quadratics = []
        for half in np.split(total, 2):
            values, weight = sums.numbers(half[: sums.size(terms)]), sums.numbers(half[sums.size(terms) :])
            information = symmetric(values[: len(upper[0])], size=self.width)
            quadratics.append(
                Quadratic(beta, information, values[len(upper[0]) : -2], float(values[-2]), float(weight[0]))
            )
        return quadratics[0], quadratics[1]

    def _share(self, index: int) -> float:
        """Return a penalty as a share of the first one, by square roots and products alone."""
        share, whole = 1.0, index / (self.lambdas - 1)
        power = self.smallest
        for _ in range(40):  # binary digits of the exponent
            power, whole = float(np.sqrt(power)), 2 * whole
            if whole >= 1:
                share, whole = share * power, whole - 1
        return self.smallest if index == self.lambdas - 1 else share

    def _kept(self, tensors: Tensors, index: int) -> Outcome:
        """Return the model of the least validation deviance so far, or the last one without validation data."""
        validation = tensors["validation"][: index + 1]
        chosen = index if np.isnan(validation).any() else int(validation.argmin())
        beta, over = tensors["path"][chosen], index + 1 == self.lambdas
        deviances = tensors["deviances"]
        given = self._weighing(beta) | scalars(
            deviance=deviances[chosen], place=index + 1, chosen=chosen, converged=over
        )
        return Outcome({**tensors, **given}, float(deviances[index] / tensors["samples"][0]), over=over)

    def _fitted(self, beta: Floats, penalty: float, tensors: Tensors, own: Owns) -> Asked[tuple[Floats, float]]:
        """Return the coefficients of a penalty, and their deviance."""
        first, second = self._prices(penalty, tensors)
        deviance = 0.0
        for _ in range(STEPS):
            derived = yield from self._derived(self.kind, beta, tensors, own)
            deviance = float(derived["deviance"])
            new = descended(derived["information"], derived["score"], beta, first=first, second=second)
            step = new - beta
            change = added(step * step * np.diag(derived["information"]))
            if change <= DECREMENT * max(1.0, abs(deviance)):
                break
            beta = yield from self._searched(beta, step, own, first, second)
        return beta, deviance

    def _prices(self, penalty: float, tensors: Tensors) -> tuple[Floats, Floats]:
        """Return the penalties of magnitudes and of squares of each coefficient, ``[width]``."""
        weight = penalty * float(tensors["weight_sum"][0])
        first = np.full(self.width, weight * self.l1_ratio)
        second = np.full(self.width, weight * (1 - self.l1_ratio))
        if self.fit_intercept:
            first[-1] = second[-1] = 0.0
        return first, second

    def _searched(self, beta: Floats, step: Floats, own: Owns, first: Floats, second: Floats) -> Asked[Floats]:
        """Return the best of the whole step and shortened ones."""
        tried = [beta + step * 0.5**power for power in range(HALVINGS)]
        deviances = yield from self._deviances(self.kind, tried, own)
        prices = [added(first * np.abs(each) + 0.5 * second * each * each) for each in tried]
        return tried[int((0.5 * deviances + np.array(prices)).argmin())]

    def _validated(self, beta: Floats, own: Owns) -> Asked[float]:
        """Return the mean deviance over the validation parts; NaN if there are none."""

        def compared(peer: str) -> Ints:
            part = own(peer).validation
            weights = self._summed(part, 1, lambda where: np.ones((where.stop - where.start, 1)))
            return np.concatenate([self._compared(self.kind, part, [beta]), weights])

        total = yield Question(compared, size=2 * sums.size(1))
        deviance, weight = (float(sums.numbers(each)[0]) for each in np.split(total, 2))
        return deviance / weight if weight else float("nan")


def _noted(tensors: Tensors, index: int, beta: Floats, scores: tuple[float, float, float]) -> Tensors:
    """Return the tensors with the coefficients of a penalty, the penalty, its deviance and that of validation."""
    new = {name: tensors[name].copy() for name in ("penalties", "deviances", "validation", "path")}
    new["penalties"][index], new["deviances"][index], new["validation"][index] = scores
    new["path"][index] = beta
    return {**tensors, **new}


def descended(information: Floats, score: Floats, beta: Floats, *, first: Floats, second: Floats) -> Floats:
    r"""Return the minimum of a quadratic with penalties, by coordinate descent.

    .. math:: \tfrac12 (b - \beta)^T H (b - \beta) - g^T (b - \beta)
              + \sum_j a_j \lvert b_j \rvert + \tfrac{c_j}{2} b_j^2

    Parameters
    ----------
    information, score, beta
        H ``[p, p]``, g and :math:`\beta` ``[p]``.
    first, second
        Penalties a and c of each coefficient, ``[p]``.

    Examples
    --------
    >>> descended(np.eye(2), np.array([3.0, 0.5]), np.zeros(2), first=np.ones(2), second=np.zeros(2)).tolist()
    [2.0, 0.0]
    """
    coefficients, slope = beta.copy(), score.copy()
    diagonal = np.diag(information).copy()
    active = list(range(len(beta)))
    for sweep in range(SWEEPS):
        moved = 0.0
        for index in active:
            curve = diagonal[index]
            if not curve > 0:
                continue
            old = float(coefficients[index])
            pull = float(slope[index]) + curve * old
            shrunk = max(abs(pull) - float(first[index]), 0.0) * (1.0 if pull > 0 else -1.0)
            new = shrunk / (curve + float(second[index]))
            if new != old:
                coefficients[index] = new
                slope = slope - information[:, index] * (new - old)
                moved = max(moved, (new - old) * (new - old) * curve)
        whole = len(active) == len(beta)
        if moved <= 1e-26 * max(1.0, float(np.abs(score).max())):
            if whole:
                break
            active = list(range(len(beta)))
        elif whole and sweep:
            active = [index for index in active if coefficients[index] != 0]
    return coefficients
