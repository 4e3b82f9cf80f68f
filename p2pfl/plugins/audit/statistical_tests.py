r"""Statistical tests of noise that was released, each with a known probability of a false alarm, and of scores.

Functions of noise take it as points of the grid, ``[M, P]``: M releases of P numbers each. A correct build
draws each number from :math:`\mathcal N(0, \sigma^2)`, independently of all others. Each function returns what it found
and the most that a correct build exceeds with probability :data:`FALSE_ALARM_RATE`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, rankdata

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FALSE_ALARM_RATE = 1e-5
"""Probability that one test raises a false alarm: at most 100 tests leave an audit below 1 in 1000."""

BIN_EDGES = np.array([-4.0, -3.5, -3.0, *np.linspace(-2.6, 2.6, 27), 3.0, 3.5, 4.0])
"""Ends of the bins of the distribution test, in standard deviations: the tails have their own."""

MIN_EXPECTED = 5.0
"""Fewest numbers that a bin of the distribution test must expect."""

BOUND_CONFIDENCE = 0.999
"""Confidence of all bounds of one audit together: a correct build fails one audit in a thousand."""

BOUNDS_PER_OBSERVER = 5
"""Number of bounds for each observer: mu of two players, mu and epsilon of canaries, and epsilon of texts."""


class StatisticalResult(NamedTuple):
    """Return value of a test.

    Attributes
    ----------
    measured, allowed
        What was found, and the most that a correct build exceeds with probability :data:`FALSE_ALARM_RATE`.
    """

    measured: float
    allowed: float


def deviation(points: Ints, *, expected: float) -> StatisticalResult:
    r"""Compare the standard deviation of all numbers with the expected one.

    Parameters
    ----------
    points
        ``[M, P]``.
    expected
        :math:`\sigma`, in points.

    Returns
    -------
    StatisticalResult
        The relative error of the measured deviation.

    Examples
    --------
    >>> noise = np.rint(np.random.default_rng(0).normal(0.0, 1000.0, (50, 1000))).astype(np.int64)
    >>> deviation(noise, expected=1000.0).measured < 0.02 < deviation(noise, expected=1031.0).measured
    True
    """
    ratio = math.sqrt(float(np.square(points / expected).mean()))
    return StatisticalResult(abs(ratio - 1), normal(tests=1) / math.sqrt(2 * points.size))


def distribution(points: Ints, *, expected: float) -> StatisticalResult:
    r"""Compare a histogram, tails included, with the normal distribution by Pearson's :math:`\chi^2`.

    Parameters
    ----------
    points, expected
        As in :func:`deviation`.
    """
    edges = BIN_EDGES[(ndtr(-np.abs(BIN_EDGES)) * points.size > MIN_EXPECTED) & (np.abs(BIN_EDGES) * expected > 1)]
    counts = np.diff(np.searchsorted(np.sort(points, axis=None), edges * expected), prepend=0, append=points.size)
    wanted = np.diff(ndtr(edges), prepend=0.0, append=1.0) * points.size  # [bins]
    statistic = float((np.square(counts - wanted) / wanted).sum())
    return StatisticalResult(statistic, float(chi2.isf(FALSE_ALARM_RATE, max(1, len(wanted) - 1))))


def low_bits(points: Ints, *, expected: float) -> StatisticalResult:
    r"""Count the ones in every bit of the numbers that is far below their deviation: half of them are.

    Parameters
    ----------
    points, expected
        As in :func:`deviation`.

    Returns
    -------
    StatisticalResult
        The largest distance of a count from one half, in standard deviations; 0 where no bit is far enough below.

    Examples
    --------
    >>> noise = np.rint(np.random.default_rng(0).normal(0.0, 2.0**20, (10, 1000))).astype(np.int64)
    >>> quarters = np.rint(noise / 2**18).astype(np.int64) * 2**18
    >>> [each.measured <= each.allowed for each in (low_bits(part, expected=2.0**20) for part in (noise, quarters))]
    [True, False]
    """
    bits = max(0, math.floor(math.log2(expected)) - 1)  # modulo these numbers are uniform, to one part in 10^9
    if not bits:
        return StatisticalResult(0.0, 0.0)
    ones = np.array([np.count_nonzero(points >> bit & 1) for bit in range(bits)])
    farthest = float(np.abs(ones - points.size / 2).max()) / math.sqrt(points.size / 4)
    return StatisticalResult(farthest, normal(tests=bits))


def every_position(points: Ints, *, expected: float) -> StatisticalResult:
    r"""Find the column, or the release, whose numbers differ most from the expected deviation.

    Parameters
    ----------
    points, expected
        As in :func:`deviation`.

    Returns
    -------
    StatisticalResult
        How surprising the worst one is: :math:`-\log_{10} p`, corrected for how many there are.
    """
    squares = np.square(points / expected)  # [M, P]
    surprise = 0.0
    for axis, count in ((0, points.shape[0]), (1, points.shape[1])):
        sums = squares.sum(axis)
        smallest = float(np.minimum(chi2.cdf(sums, count), chi2.sf(sums, count)).min())
        likely = min(1.0, 2 * smallest * (points.shape[0] + points.shape[1]))
        surprise = max(surprise, -math.log10(max(likely, 1e-300)))
    return StatisticalResult(surprise, -math.log10(FALSE_ALARM_RATE))


def find_shared_noise(points: Ints, *, apart: npt.NDArray[np.bool_] | None = None) -> StatisticalResult:
    """Find the two releases whose noise is most alike.

    Parameters
    ----------
    points
        ``[M, P]``.
    apart
        Pairs that must be independent, ``[M, M]``; all by default.

    Returns
    -------
    StatisticalResult
        The largest correlation of two rows.

    Examples
    --------
    >>> noise = np.rint(np.random.default_rng(0).normal(0.0, 1000.0, (20, 1000))).astype(np.int64)
    >>> noise[7] = noise[8] + noise[9]
    >>> outcome = find_shared_noise(noise)
    >>> outcome.measured > 0.6 > outcome.allowed
    True
    """
    rows = points / np.maximum(np.sqrt(np.square(points.astype(np.float64)).sum(axis=1, keepdims=True)), 1.0)  # [M, P]
    alike = np.abs(rows @ rows.T)  # [M, M]
    pairs = np.triu(np.ones(alike.shape, bool), 1) & (True if apart is None else apart)
    if not pairs.any():
        return StatisticalResult(0.0, 1.0)
    return StatisticalResult(float(alike[pairs].max()), _correlation(points.shape[1], tests=int(pairs.sum())))


def find_repeated_noise(points: Ints) -> StatisticalResult:
    """Find the distance at which the numbers of one release are most like each other.

    Parameters
    ----------
    points
        ``[M, P]``.

    Returns
    -------
    StatisticalResult
        The largest autocorrelation over all releases together, in standard deviations.

    Examples
    --------
    >>> noise = np.rint(np.random.default_rng(0).normal(0.0, 1000.0, (20, 1000))).astype(np.int64)
    >>> twice = np.hstack([noise, noise])
    >>> [outcome.measured <= outcome.allowed for outcome in map(find_repeated_noise, (noise, twice))]
    [True, False]
    """
    size = points.shape[1]
    rows = points / np.sqrt(np.square(points.astype(np.float64)).mean(axis=1, keepdims=True).clip(1.0))  # [M, P]
    power = np.square(np.abs(np.fft.rfft(rows, 2 * size))).sum(axis=0)
    lags = np.arange(1, size - 1)  # at the last ones there are too few pairs
    lags = lags[(size - lags) * len(points) >= 100]  # for a sum to be normal
    if not len(lags):
        return StatisticalResult(0.0, 0.0)
    sums = np.fft.irfft(power, 2 * size)[lags]
    return StatisticalResult(
        float(np.abs(sums / np.sqrt((size - lags) * len(points))).max()), normal(tests=len(lags)) + 1
    )


def normal(*, tests: int) -> float:
    """Return the magnitude that the largest of some standard normal numbers exceeds at :data:`FALSE_ALARM_RATE`.

    Examples
    --------
    >>> round(normal(tests=1), 3)
    4.417
    """
    return -float(ndtri(FALSE_ALARM_RATE / (2 * tests)))


def _correlation(size: int, *, tests: int) -> float:
    """Return the limit that the largest correlation of independent rows exceeds at :data:`FALSE_ALARM_RATE`."""
    far = normal(tests=tests)
    return math.tanh(far / math.sqrt(max(1, size - 1))) * (1 + 1e-9)


class Separation(NamedTuple):
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
        return (
            self.mu - float(ndtri(1 - (1 - BOUND_CONFIDENCE) / tests)) * self.error
            if math.isfinite(self.mu)
            else self.mu
        )


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
    >>> outcome = separation(rng.normal(size=100_000) + 0.5 * truth, truth)
    >>> abs(outcome.mu - 0.5) < 4 * outcome.error, round(outcome.error, 4)
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
