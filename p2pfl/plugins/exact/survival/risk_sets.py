"""Risk sets from sums by stratum and cell of time: the partial likelihood, hazards, and their change over time.

Whoever leaves in a cell is at risk in it and in all earlier ones, but not in the cells up to that in which they enter.
So risk sets are differences of sums of later cells, and need no total of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError
from p2pfl.learning.exact_model import symmetric
from p2pfl.plugins.exact.elementary import added, inverse, log, product
from p2pfl.plugins.exact.survival.curves import kaplan_meier


@dataclass(frozen=True, eq=False)
class CellSums:
    """Sums over the samples of all peers by stratum and cell.

    Parameters
    ----------
    leaving, events, entering
        Sums over the samples that leave, those with the event, and those that enter, ``[S, C, T]``: of risks, risks
        times features, and risks times the upper triangle of products of features.
    covered
        Features of those with the event, ``[S, C, p]``.
    diverted
        Sums over the samples that have another event, ``[S, C, T]``; zero where this ends their time at risk.
    left, died, entered, lost
        Numbers of samples that leave, have the event, enter, and have another event, ``[S, C]``.
    """

    leaving: Floats
    events: Floats
    entering: Floats
    diverted: Floats
    covered: Floats
    left: Ints
    died: Ints
    entered: Ints
    lost: Ints

    @property
    def width(self) -> int:
        """p, number of features."""
        return int(self.covered.shape[-1])

    @property
    def compares(self) -> bool:
        """True if somebody is at risk where somebody else has the event."""
        there = np.cumsum((self.left - self.entered)[:, ::-1], axis=1)[:, ::-1]
        return bool(self.lost.any() or ((self.died > 0) & (there > self.died)).any() or not self.died.any())

    @property
    def at_risk(self) -> Floats:
        r"""Sums over those at risk, ``[S, C, T]``.

        Whoever has another event in cell b stays at risk with the weight :math:`G_c / G_b`, see :attr:`staying`.
        """
        at_risk = later(self.leaving) - later(self.entering)
        if not self.lost.any():
            return at_risk
        staying = self.staying[None, :, None]
        each = self.diverted / np.where(staying > 0, staying, 1.0)
        return at_risk + staying * (np.cumsum(each, axis=1) - each)

    @property
    def staying(self) -> Floats:
        """G, share that censoring leaves before each cell, over all strata, ``[C]``; events come before censoring.

        References
        ----------
        Fine and Gray, A proportional hazards model for the subdistribution of a competing risk, JASA 94, 1999.
        """
        left, died, lost = (each.cumsum(axis=0)[-1] for each in (self.left, self.died, self.lost))
        there = np.cumsum(left[::-1])[::-1] - died - lost
        kept = np.where(there > 0, 1 - (left - died - lost) / np.maximum(there, 1), 1.0)
        return np.concatenate([[1.0], np.multiply.accumulate(kept)[:-1]])

    @property
    def moments(self) -> Floats:
        """Sums of products of the features over all samples, ``[p, p]``, if all risks are 1."""
        total = later(self.leaving)[:, 0].cumsum(axis=0)[-1]
        return symmetric(total[1 + self.width :], size=self.width)


def later(sums: Floats) -> Floats:
    """Return the sums over each cell and all later ones, ``[S, C, T]``."""
    return np.cumsum(sums[:, ::-1], axis=1)[:, ::-1]


@dataclass(frozen=True, eq=False)
class RiskSet:
    """People at risk when one of the events of a cell happens.

    Attributes
    ----------
    stratum, cell
        Its stratum and cell.
    share
        Share of the risk of those with the event in the cell that counts as gone, by Efron's method.
    total
        Sum of the risks.
    mean, spread
        Mean ``[p]`` and covariance ``[p, p]`` of the features, weighted by risks.
    """

    stratum: int
    cell: int
    share: float
    total: float
    mean: Floats
    spread: Floats


def risk_sets(sums: CellSums, *, efron: bool) -> Iterator[RiskSet]:
    """Yield a risk set for each event, by stratum and cell.

    Raises
    ------
    LearningError
        Nobody is at risk.
    """
    at_risk, width = sums.at_risk, sums.width
    for stratum, cell in np.argwhere(sums.died).tolist():
        tied = int(sums.died[stratum, cell])
        for index in range(tied):
            share = index / tied if efron else 0.0
            sums_of = at_risk[stratum, cell] - share * sums.events[stratum, cell]
            total = float(sums_of[0])
            if not total > 0:
                raise LearningError(
                    "the totals of the times cannot be right, because a peer has added what it does not have; "
                    "compare with the other owners which peers take part"
                )
            mean = sums_of[1 : 1 + width] / total
            square = symmetric(sums_of[1 + width :] / total, size=width)
            yield RiskSet(stratum, cell, share, total, mean, square - mean[:, None] * mean[None, :])


@dataclass(frozen=True, eq=False)
class PartialLikelihood:
    """Logarithm of the partial likelihood with its derivatives.

    Attributes
    ----------
    value, score, information
        The logarithm, its first derivatives ``[p]``, and the negative second ones ``[p, p]``.
    """

    value: float
    score: Floats
    information: Floats


def partial_likelihood(sums: CellSums, beta: Floats, *, efron: bool) -> PartialLikelihood:
    """Return the partial likelihood of coefficients ``[p]``."""
    covered = sums.covered.reshape(-1, sums.width).cumsum(axis=0)[-1]
    value, score = added(beta * covered), covered
    information = np.zeros((sums.width, sums.width))
    for each in risk_sets(sums, efron=efron):
        value -= log(each.total)
        score = score - each.mean
        information = information + each.spread
    return PartialLikelihood(value, score, information)


@dataclass(frozen=True, eq=False)
class Hazards:
    """Hazards of a sample of mean features by stratum and cell, by Breslow's or Efron's estimate.

    Attributes
    ----------
    hazard
        Increments of the cumulative hazard, ``[S, C]``.
    square
        Increments of its variance that is due to the events, ``[S, C]``.
    means
        Increments of the mean features of those at risk, weighted by the hazard, ``[S, C, p]``.
    """

    hazard: Floats
    square: Floats
    means: Floats


def hazards(sums: CellSums, *, efron: bool) -> Hazards:
    """Return the hazards that follow from sums.

    References
    ----------
    Breslow, Covariance analysis of censored survival data, Biometrics 30, 1974.
    """
    hazard, square = np.zeros((2, *sums.died.shape))
    means = np.zeros(sums.covered.shape)
    for each in risk_sets(sums, efron=efron):
        index = each.stratum, each.cell
        hazard[index] += 1 / each.total
        square[index] += 1 / (each.total * each.total)
        means[index] += each.mean / each.total
    return Hazards(hazard, square, means)


TRANSFORMS = ("km", "identity", "rank")
"""Functions of time with which coefficients may change; R's default is the first."""


def transformed(sums: CellSums, begins: Floats, *, transform: str) -> Floats:
    """Return a function of time by cell ``[C]``, whose mean over the events is zero.

    Parameters
    ----------
    sums
        Numbers of samples by cell.
    begins
        Begin of each cell, ``[C]``.
    transform
        ``km`` for one minus the share without the event before the cell, over all strata; ``identity`` for the time;
        ``rank`` for the mean rank among the events.
    """
    died, left, entered = (each.cumsum(axis=0)[-1] for each in (sums.died, sums.left, sums.entered))
    if transform == "km":
        curve = kaplan_meier(died, left, entered)
        values = 1 - np.concatenate([[1.0], curve.survival[:-1]])
    elif transform == "identity":
        values = begins
    else:
        values = died.cumsum() - (died - 1) / 2
    return values - added(values * died) / max(1, int(died.sum()))


@dataclass(frozen=True, eq=False)
class Drift:
    r"""Score of the coefficients of features times a function of time, at zero.

    .. math:: u = \sum_e g_e (x_e - \bar x_e), \qquad
              V = \sum_e g_e^2 V_e - \Bigl(\sum_e g_e V_e\Bigr) \Bigl(\sum_e V_e\Bigr)^{-1} \Bigl(\sum_e g_e V_e\Bigr)

    over the events e, whose Schoenfeld residuals are :math:`x_e - \bar x_e`.

    Attributes
    ----------
    score, variance
        ``[p]`` and ``[p, p]``.
    """

    score: Floats
    variance: Floats


def drift(sums: CellSums, time: Floats, *, efron: bool) -> Drift:
    """Return how coefficients change with a function of time ``[C]``.

    References
    ----------
    Grambsch and Therneau, Proportional hazards tests and diagnostics based on weighted residuals, Biometrika 81, 1994.
    """
    score = (sums.covered * time[None, :, None]).reshape(-1, sums.width).cumsum(axis=0)[-1]
    plain, once, twice = np.zeros((3, sums.width, sums.width))
    for each in risk_sets(sums, efron=efron):
        g = float(time[each.cell])
        score = score - g * each.mean
        plain, once, twice = plain + each.spread, once + g * each.spread, twice + g * g * each.spread
    inverted, _ = inverse(plain)
    return Drift(score, twice - product(product(once, inverted), once))
