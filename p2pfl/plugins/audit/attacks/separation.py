r"""Separation of two cases by scores: area under the ROC curve, true positives, :math:`\mu`, and its error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

CONFIDENCE = 0.999
"""Confidence of all bounds of one audit together: a correct build fails one audit in a thousand."""

LOOKS = 3
"""Number of bounds for each observer: two players and the canaries."""


@dataclass(frozen=True)
class Separation:
    r"""Measured :math:`\mu` of a statistic, and its standard error.

    Parameters
    ----------
    mu
        Distance of the two means in standard deviations.
    error
        Standard error of ``mu``, from the number of trials.
    """

    mu: float
    error: float

    def lower(self, *, tests: int) -> float:
        r"""Return the lower confidence bound of :math:`\mu` for this many simultaneous tests."""
        return self.mu - float(ndtri(1 - (1 - CONFIDENCE) / tests)) * self.error if math.isfinite(self.mu) else self.mu


def separation(scores: Floats, truth: Bools) -> Separation:
    r"""Return :math:`\hat\mu = (m_1 - m_0) / s` of scores whose spread is the same in both cases.

    Its error is :math:`\sqrt{1/n_1 + 1/n_0 + \hat\mu^2 / (2 (n - 2))}`. If scores have no spread,
    :math:`\mu` is infinite where the means differ.

    Parameters
    ----------
    scores, truth
        ``[T]``: higher scores should mean true.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(100_000) % 2 == 0
    >>> found = separation(rng.normal(size=100_000) + 0.5 * truth, truth)
    >>> abs(found.mu - 0.5) < 4 * found.error, round(found.error, 4)
    (True, 0.0064)
    """
    inside, outside = scores[truth], scores[~truth]
    distance = float(inside.mean() - outside.mean())
    squares = float(np.square(inside - inside.mean()).sum() + np.square(outside - outside.mean()).sum())
    spread = math.sqrt(squares / (len(scores) - 2))
    if spread <= 1e-12 * abs(distance):
        return Separation(math.copysign(math.inf, distance) if distance else 0.0, 0.0)
    mu = distance / spread
    return Separation(mu, math.sqrt(1 / len(inside) + 1 / len(outside) + mu**2 / (2 * (len(scores) - 2))))


def auc(scores: Floats, truth: Bools) -> float:
    """Return the area under the ROC curve: how often a true case scores above a false one, with ties counting half.

    Examples
    --------
    >>> auc(np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, False, True, True]))
    0.875
    """
    positive, negative = int(truth.sum()), int((~truth).sum())
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))


def auc_error(area: float, *, positive: int, negative: int) -> float:
    """Return the standard error of an area under the ROC curve.

    References
    ----------
    J. A. Hanley, B. J. McNeil, "The meaning and use of the area under a receiver operating characteristic
    (ROC) curve", Radiology 143, 1982.

    Examples
    --------
    >>> round(auc_error(0.5, positive=100, negative=100), 4)
    0.0409
    """
    high = max(area, 1 - area)
    first, second = high / (2 - high), 2 * high**2 / (1 + high)
    spread = high * (1 - high) + (positive - 1) * (first - high**2) + (negative - 1) * (second - high**2)
    return math.sqrt(max(0.0, spread) / (positive * negative))


def tpr(scores: Floats, truth: Bools, *, fpr: float) -> float:
    """Return the share of true cases above the score that at most ``fpr`` of the false cases exceed.

    Examples
    --------
    >>> tpr(np.array([0.0, 1.0, 2.0, 3.0]), np.array([False, True, False, True]), fpr=0.4)
    0.5
    """
    false = np.sort(scores[~truth])[::-1]
    threshold = false[math.floor(fpr * len(false))]
    return float((scores[truth] > threshold).mean())
