r"""Newton's method at the peer that solves: the next point, the noise of its predictors, and the end.

Pure functions of sums: a state makes the next one, so that a question that is asked again gets the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import PrivacyError
from p2pfl.plugins.exact.elementary import inverse
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS

FIRST = 0.3
"""Deviation of the noise of the first predictors, in units of theirs."""

LAST = 3e-4
"""Deviation of noise below which exact predictors follow; their step squares the distance that is left."""

MOVED_SHARE = 0.3
"""Least noise of predictors as a share of the distance by which the last step has moved them."""

FASTEST, SLOWEST = 0.1, 0.5
"""Least and largest factor by which the noise falls from one point to the next."""

ERRORS_HIDDEN = 3.0
"""Least noise of a point in units of what the noise before it has moved it by."""

EVEN_POINTS = 6
"""Number of the last points under noise that may be shown, over which it falls to :data:`LAST` whatever steps do."""

MAX_NOISE = 2.0**20
"""Largest deviation of noise that a party adds; that of predictors which move by more than any model's."""

STILL = 1e-3
"""Root mean square by which the exact step may move predictors; a second one would show their change."""

STILL_EXACT = 1e-6
"""The same without noise, where steps go on until then."""

PLAUSIBLE = 3.0
"""Deviations of noise that a rise of the deviance may have before a step is halved."""

PLAUSIBLE_LAST = 6.0
"""The same at the exact predictors, where the fit would end without a result: by chance once in 1e9 fits."""

ROUNDING = 1e-12
"""Rise of the deviance, as a share, that is rounding."""

PREDICTOR_BITS = 24
"""Fraction bits of a predictor, whose rounding is noise, too."""

LEAST_NOISE = 2.0**-PREDICTOR_BITS
"""Least deviation of the first noise, where columns say nothing of the target."""

WIDE = 3.0
"""Deviation of a party's predictors beyond which its noise grows with them, as large coefficients would outweigh it."""


@dataclass(eq=False)
class ShownPredictors:
    """Predictors of a fit so far, as all peers know them: each owner bounds its noise by the schedule, not by others.

    Parameters
    ----------
    noisy
        True for noise, False for exact predictors.
    factor
        Largest factor by which the noise falls, see :func:`falling_factor`.
    points, accepted
        Number of points, and of those that were accepted.
    exact
        True once exact predictors were shown.
    """

    noisy: bool
    factor: float
    points: int = 0
    accepted: int = 0
    exact: bool = False

    def show(self, deviation: float) -> float:
        """Return the least noise of the next predictors, in units of their deviation or of 1.

        Parameters
        ----------
        deviation
            Deviation of the noise that the solver publishes; 0 for exact predictors.

        Raises
        ------
        PrivacyError
            Honest peers have no such noise at this point, or there were all predictors that may be shown.
        """
        if self.points == MAX_PREDICTORS or (self.noisy and self.exact):
            raise PrivacyError(
                f"a peer asks for further predictors after {self.points}, the last ones that this fit shows; it does "
                "not follow the protocol, so compare versions"
            )
        last = self.accepted >= noisy_points(self.factor)
        if not 0 <= deviation <= MAX_NOISE or (self.noisy and deviation == 0 and not last):
            raise PrivacyError(
                f"a peer asks for predictors with noise of deviation {deviation:.3g}, but noise falls by a factor of "
                f"{self.factor:.2g} at most, and exact ones come only at the end; it does not follow the protocol, so "
                "compare versions"
            )
        self.points, self.exact = self.points + 1, deviation == 0
        return max(FIRST * self.factor**self.accepted, LAST) if self.noisy else 0.0

    def judge(self, *, accepted: bool) -> None:
        """Note whether the point was accepted."""
        self.accepted += accepted


def falling_factor(coefficients: int, rows: int) -> float:
    r"""Return the factor by which noise falls at most from one point to the next.

    A step from predictors under noise of deviation s ends about :math:`s \sqrt{p / n}` away from where it would
    end without. If the next noise were smaller than that, the label holder would see a further combination of columns
    nearly without noise. So noise falls slowly where there are few rows.

    Parameters
    ----------
    coefficients, rows
        p and n.

    Examples
    --------
    >>> [round(falling_factor(24, rows), 2) for rows in (500, 2000, 30_000)]
    [0.5, 0.33, 0.1]
    """
    return min(max(ERRORS_HIDDEN * math.sqrt(coefficients / rows), FASTEST), SLOWEST)


def noisy_points(factor: float) -> int:
    """Return the least number of points under noise, which falls by a factor from :data:`FIRST` to :data:`LAST`.

    Examples
    --------
    >>> [noisy_points(factor) for factor in (0.1, 0.3, 0.5)]
    [3, 6, 10]
    """
    return math.ceil(math.log(LAST / FIRST) / math.log(factor))


def least_noise(share: float, predictors: Floats, earlier: Floats) -> float:
    """Return the deviation below which the noise of a party's own predictors never is.

    It follows from what the party alone knows, so that neither published numbers nor large coefficients end it, and no
    new combination of its columns shows that others choose.

    Parameters
    ----------
    share
        What :meth:`ShownPredictors.show` returns.
    predictors, earlier
        The predictors, and those that were shown last, ``[n]``.

    Examples
    --------
    >>> sizes = [np.array([size, -size]) for size in (0.1, 2.0, 3.0, 300.0)]
    >>> [round(least_noise(0.1, each, each), 3) for each in sizes], round(least_noise(0.1, sizes[2], sizes[1]), 3)
    ([0.01, 0.1, 0.1, 10.0], 0.3)
    """
    size, moved = (math.sqrt(float((each**2).mean())) for each in (predictors, predictors - earlier))
    return max(share * max(min(1.0, size), size / WIDE), MOVED_SHARE * moved)


class NewtonPoint(NamedTuple):
    """Sums over the rows at a point, which the label holder tells the solver.

    Attributes
    ----------
    deviance, pearson
        The deviance, and Pearson's statistic.
    weight, squares
        Sums of the weights, and of the squared scores.
    """

    deviance: float
    pearson: float
    weight: float
    squares: float


@dataclass(frozen=True, eq=False)
class Problem:
    """Constants of all steps.

    Parameters
    ----------
    gram
        Sums of products of the columns ``[p, p]``, of which the first are ones in units of a power of two.
    rows
        Number of common rows.
    penalty
        Ridge of each coefficient, ``[p]``.
    noisy
        True for noise that falls, False for exact predictors.

    Raises
    ------
    PrivacyError
        Such sums are those of no columns.
    """

    gram: Floats
    rows: int
    penalty: Floats
    noisy: bool
    kept: Ints = field(init=False)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.gram).all() and self.gram[0, 0] > 0):
            raise PrivacyError(
                "sums of products that no columns have came from a party, which does not follow the protocol; compare "
                "versions"
            )
        independent = np.diag(inverse(self.gram + np.diag(self.penalty))[0]) > 0
        object.__setattr__(self, "kept", np.flatnonzero(independent))

    @property
    def factor(self) -> float:
        """Largest factor by which the noise falls."""
        return falling_factor(len(self.gram), self.rows)

    @property
    def one(self) -> float:
        """Number that stands for 1 in the column of ones."""
        return math.sqrt(self.gram[0, 0] / self.rows)

    def spread(self, beta: Floats) -> float:
        """Return the deviation of linear predictors."""
        squares, mean = float(beta @ self.gram @ beta) / self.rows, float(beta[0]) * self.one
        return math.sqrt(max(squares - mean * mean, 0.0))

    def inverse(self, information: Floats) -> Floats:
        """Return the inverse of an information with the ridge, zero for dependent columns, ``[p, p]``."""
        inner = np.ix_(self.kept, self.kept)
        whole = np.zeros_like(self.gram)
        whole[inner] = inverse(information[inner] + np.diag(self.penalty[self.kept]))[0]
        return whole


@dataclass(frozen=True, eq=False)
class NewtonState:
    """State of the method.

    Parameters
    ----------
    problem
        Constants of all steps.
    beta, before
        The point that comes next, and the last accepted one, ``[p]``.
    covariance
        Inverse of the last information, ``[p, p]``.
    objective, slack
        Penalised deviance of the last accepted point, and what noise may have changed it by.
    going, accepted
        True if there is another point, and if the last one was accepted.
    deviation
        Deviation of the noise of this point's predictors; infinite before the first point.
    steps, agreed
        Number of points so far, and of those that were accepted.
    moved, gain
        Root mean square by which the last step moved predictors, and by how much it lowers the deviance.
    """

    problem: Problem
    beta: Floats
    before: Floats
    covariance: Floats
    objective: float
    slack: float = 0.0
    going: bool = True
    accepted: bool = True
    deviation: float = math.inf
    steps: int = 0
    agreed: int = 0
    moved: float = math.inf
    gain: float = 0.0

    @classmethod
    def begin(cls, problem: Problem, *, intercept: float, score: Floats, weight: float, deviance: float) -> Self:
        """Take the first step, from the model of the mean.

        Parameters
        ----------
        problem
            Problem.
        intercept, weight, deviance
            Linear predictor of the mean, the weight of each row there, and the deviance.
        score
            Products of the columns with the scores there, ``[p]``.
        """
        before = np.zeros(len(problem.gram))
        before[0] = intercept / problem.one
        covariance = problem.inverse(weight * problem.gram)
        beta = before + covariance @ score
        return cls(problem, beta, before, covariance, deviance, moved=problem.spread(beta))

    def prepared(self) -> Self:
        """Return the state in which the predictors of the next point are asked for, if there is one."""
        if not self.problem.noisy:
            going = self.moved > STILL_EXACT or not self.steps
            return replace(self, going=False) if not going or self.steps == MAX_PREDICTORS else self._next(0.0)
        if not self.deviation:
            return replace(self, going=False)
        deviation, last = self._next_deviation(), self.agreed >= noisy_points(self.problem.factor)
        return self._next(deviation) if deviation or last else replace(self, going=False, moved=math.inf)

    def _next(self, deviation: float) -> Self:
        return replace(self, steps=self.steps + 1, deviation=deviation)

    def _next_deviation(self) -> float:
        """Return the deviation of the next noise, 0 for exact predictors."""
        noisy = MAX_PREDICTORS - self.steps - 1  # points that may still come before the exact one
        deviation, last = self.deviation, self.agreed >= noisy_points(self.problem.factor)
        if self.accepted:
            fallen = self.problem.factor * deviation if self.steps else LEAST_NOISE
            deviation = min(max(fallen, MOVED_SHARE * self.moved), MAX_NOISE)
            if last and deviation <= LAST:
                return 0.0
        if 0 < noisy <= EVEN_POINTS and self.deviation > LAST:
            deviation = min(deviation, self.deviation * (LAST / self.deviation) ** (1 / noisy))
        return deviation if noisy else 0.0

    def judged(self, point: NewtonPoint) -> Self:
        """Return the state after a point, which is halved if the deviance rose by more than noise explains.

        After exact predictors that follow noisy ones, it is the end.
        """
        objective = point.deviance + float(self.problem.penalty @ self.beta**2)
        variance = self.deviation**2 + 4.0**-PREDICTOR_BITS
        slack = variance * point.weight + PLAUSIBLE * 2 * math.sqrt(max(variance * point.squares, 0.0))
        ends = self.problem.noisy and not self.deviation
        doubt = (self.slack + slack) * (PLAUSIBLE_LAST / PLAUSIBLE if ends else 1.0)
        allowed = self.objective + doubt + ROUNDING * max(1.0, abs(self.objective))
        if not objective <= allowed and ends:
            return replace(self, accepted=False, moved=math.inf)
        if not objective <= allowed:
            return replace(self, beta=(self.before + self.beta) / 2, accepted=False)
        return replace(self, before=self.beta, objective=objective, slack=slack, agreed=self.agreed + 1, accepted=True)

    def stepped(self, information: Floats, score: Floats) -> Self:
        """Return the state after a step from the accepted point.

        Parameters
        ----------
        information, score
            Weighted products of the columns ``[p, p]``, and products with the scores ``[p]``.
        """
        slope = score - self.problem.penalty * self.beta
        covariance = self.problem.inverse(information)
        step = covariance @ slope
        moved = math.sqrt(max(float(step @ self.problem.gram @ step) / self.problem.rows, 0.0))
        gain = float(step @ slope)
        return replace(self, beta=self.beta + step, covariance=covariance, moved=moved, gain=gain)

    def with_errors(self, information: Floats) -> Self:
        """Return the state with the inverse of the expected information as covariance."""
        return replace(self, covariance=self.problem.inverse(information))

    def with_meat(self, meat: Floats) -> Self:
        """Return the state with the covariance of scores whose sums of products ``[p, p]`` are not the information."""
        return replace(self, covariance=self.covariance @ meat @ self.covariance)
