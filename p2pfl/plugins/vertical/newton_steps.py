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

SCHEDULE = (0.3, 0.3, 0.3, 0.1, 0.03, 0.003, 0.0003, 0.0)
"""Deviations of the noise of the predictors, in units of theirs or of 1."""

AGAIN = (0.003, 0.0003)
"""Further steps before the exact one, where the last one moved predictors by more than :data:`CLOSE`."""

MAX_RESTARTS = 2
"""Most times that these are taken."""

LONGEST = (*SCHEDULE[:-1], *AGAIN * MAX_RESTARTS, 0.0)
"""Noise of all points, if these are taken as often as may be."""

CLOSE = 1e-2
"""Root mean square by which a step may move predictors before the exact one, which squares the distance."""

STILL = 1e-3
"""Root mean square by which the exact step may move predictors; a second one would show their change."""

STILL_EXACT = 1e-6
"""The same without noise, where steps go on until then."""

PLAUSIBLE = 3.0
"""Deviations of noise that a rise of the deviance may have before a step is halved."""

ROUNDING = 1e-12
"""Rise of the deviance, as a share, that is rounding."""

PREDICTOR_BITS = 24
"""Fraction bits of a predictor, whose rounding is noise, too."""


WIDE = 3.0
"""Deviation of a party's predictors beyond which its noise grows with them, as large coefficients would outweigh it."""


@dataclass(eq=False)
class ShownPredictors:
    """Predictors of a fit so far, as all peers know them: each owner bounds its noise by the schedule, not by others.

    Parameters
    ----------
    noisy
        True for the schedule of noise, False for exact predictors.
    points, accepted
        Number of points, and of those that were accepted.
    exact
        True once exact predictors were shown.
    """

    noisy: bool
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
            The schedule has no such noise at this point, or there were all predictors that may be shown.
        """
        if self.points == MAX_PREDICTORS or (self.noisy and self.exact):
            raise PrivacyError(
                f"a peer asks for further predictors after {self.points}, the last ones that this fit shows; it does "
                "not follow the protocol, so compare versions"
            )
        most = LONGEST[min(self.accepted, len(LONGEST) - 1)] if self.noisy else 0.0
        first, further = len(SCHEDULE) - 1, len(AGAIN)
        last = self.accepted >= first and (self.accepted - first) % further == 0
        if not 0 <= deviation <= most or (self.noisy and deviation == 0 and not last):
            raise PrivacyError(
                f"a peer asks for predictors with noise of deviation {deviation:.3g}, where the schedule has at most "
                f"{most:.3g}, and exact ones only at the end; it does not follow the protocol, so compare versions"
            )
        self.points, self.exact = self.points + 1, deviation == 0
        return most

    def judge(self, *, accepted: bool) -> None:
        """Note whether the point was accepted."""
        self.accepted += accepted


def least_noise(share: float, predictors: Floats) -> float:
    """Return the deviation below which the noise of a party's own predictors never is.

    It follows from what the party alone knows, so that neither published numbers nor large coefficients end it.

    Parameters
    ----------
    share
        What :meth:`ShownPredictors.show` returns.
    predictors
        The predictors ``[n]``.

    Examples
    --------
    >>> [round(least_noise(0.3, np.array([size, -size])), 3) for size in (0.1, 2.0, 3.0, 300.0)]
    [0.03, 0.3, 0.3, 30.0]
    """
    size = math.sqrt(float((predictors**2).mean()))
    return share * max(min(1.0, size), size / WIDE)


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
        True for the schedule of noise, False for exact predictors.

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
    schedule
        Noise of the points to come.
    going, accepted
        True if there is another point, and if the last one was accepted.
    deviation
        Deviation of the noise of this point's predictors.
    restarts, steps
        How often further steps were added, and number of points so far.
    moved, gain
        Root mean square by which the last step moved predictors, and by how much it lowers the deviance.
    """

    problem: Problem
    beta: Floats
    before: Floats
    covariance: Floats
    objective: float
    slack: float = 0.0
    schedule: tuple[float, ...] = SCHEDULE
    going: bool = True
    accepted: bool = True
    deviation: float = 0.0
    restarts: int = 0
    steps: int = 0
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
        return cls(problem, before + covariance @ score, before, covariance, deviance)

    def prepared(self) -> Self:
        """Return the state in which the predictors of the next point are asked for, if there is one."""
        schedule, restarts = self.schedule, self.restarts
        if not self.problem.noisy:
            going = self.moved > STILL_EXACT
            schedule = (0.0,)
        else:
            if schedule == (0.0,) and self.moved > CLOSE and restarts < MAX_RESTARTS:
                schedule, restarts = (*AGAIN, 0.0), restarts + 1
            going = bool(schedule)
        if not going or self.steps == MAX_PREDICTORS:
            return replace(self, going=False)
        deviation = schedule[0] * min(1.0, self.problem.spread(self.beta)) if schedule[0] else 0.0
        return replace(self, schedule=schedule, restarts=restarts, steps=self.steps + 1, deviation=deviation)

    def judged(self, point: NewtonPoint) -> Self:
        """Return the state after a point, which is halved if the deviance rose by more than noise explains.

        After exact predictors under the schedule of noise, it is the end.
        """
        objective = point.deviance + float(self.problem.penalty @ self.beta**2)
        variance = self.deviation**2 + 4.0**-PREDICTOR_BITS
        slack = variance * point.weight + PLAUSIBLE * 2 * math.sqrt(max(variance * point.squares, 0.0))
        allowed = self.objective + self.slack + slack + ROUNDING * max(1.0, abs(self.objective))
        if not objective <= allowed and self.problem.noisy and self.schedule == (0.0,):
            return replace(self, accepted=False, schedule=(), moved=math.inf)
        if not objective <= allowed:
            return replace(self, beta=(self.before + self.beta) / 2, accepted=False)
        return replace(
            self, before=self.beta, objective=objective, slack=slack, schedule=self.schedule[1:], accepted=True
        )

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
