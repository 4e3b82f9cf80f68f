r"""Calibration of the probabilities of two classes: the test of Hosmer and Lemeshow, slope and intercept.

References
----------
Hosmer and Lemeshow, Goodness of fit tests for the multiple logistic regression model, Communications in Statistics 9,
1980; Van Calster et al., Calibration: the Achilles heel of predictive analytics, BMC Medicine 17, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TEST_GROUPS = 10
"""Groups of the test of Hosmer and Lemeshow."""

MAX_NEWTON_STEPS = 60
"""Most Newton steps of a slope or an intercept."""

MIN_GROUP_SIZE = 1e-9
"""Least number of samples that a group is divided by."""

MIN_PROBABILITY = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class GoodnessOfFit:
    """Test of Hosmer and Lemeshow.

    Parameters
    ----------
    statistic
        Sum over groups and classes of squared differences between observed and expected numbers over expected ones.
    groups
        Number of groups, the degrees of freedom for samples to which the model has not been fitted.
    p
        Probability of a statistic at least as large if the probabilities are right.
    """

    statistic: float
    groups: int
    p: float


def hosmer_lemeshow(samples: Ints, positive: Ints, expected: Floats) -> GoodnessOfFit | None:
    """Return the test of Hosmer and Lemeshow; ``None`` with fewer than two groups.

    Groups are tenths of the samples in the order of their probability; samples of one cell stay together.

    Parameters
    ----------
    samples, positive
        Number of samples, and of those of class 1, in each cell of the probability of class 1, ascending.
    expected
        Sum of these probabilities in each cell.

    Examples
    --------
    >>> test = hosmer_lemeshow(np.array([50, 50]), np.array([10, 42]), np.array([10.0, 40.0]))
    >>> test.statistic, test.groups, round(test.p, 4)
    (0.5, 2, 0.7788)
    """
    used = np.flatnonzero(samples)
    count = samples[used]
    reached = np.cumsum(count) * TEST_GROUPS
    ranks = int(count.sum()) * np.arange(1, TEST_GROUPS)
    ends = np.unique(np.append(np.searchsorted(reached, ranks, side="left"), len(used) - 1))
    if len(used) < 2 or len(ends) < 2:
        return None
    starts = np.append(0, ends[:-1] + 1)
    size, hits, sums = (np.add.reduceat(each[used], starts) for each in (samples, positive, expected))
    terms = _terms(hits, sums) + _terms(size - hits, size - sums)
    statistic = float(terms.sum())
    return GoodnessOfFit(statistic, len(starts), float(scipy.special.chdtrc(len(starts), statistic)))


def hosmer_lemeshow_ungrouped(chances: Floats, positive: npt.NDArray[np.bool_]) -> GoodnessOfFit | None:
    """Return the test of Hosmer and Lemeshow for the probability of class 1 of each sample, ``[n]``."""
    cells, where = np.unique(chances, return_inverse=True)
    samples, hits = (np.bincount(where, weights=each, minlength=len(cells)) for each in (None, positive))
    return hosmer_lemeshow(samples.astype(np.int64), hits.astype(np.int64), cells * samples)


def slope(probabilities: Floats, targets: Ints) -> float:
    """Return the coefficient of the log-odds in a logistic regression on them: 1 if they are neither too bold nor shy.

    NaN where no maximum exists, as if the log-odds separate the classes.
    """
    logits = _logits(probabilities)
    return _fit(np.column_stack([logits, np.ones_like(logits)]), np.zeros_like(logits), targets)


def intercept(probabilities: Floats, targets: Ints) -> float:
    """Return the intercept of a logistic regression whose offset is the log-odds: above 0 if they are too low.

    NaN where no maximum exists, as with one class alone.
    """
    logits = _logits(probabilities)
    return _fit(np.ones((len(logits), 1)), logits, targets)


def _terms(observed: Floats, expected: Floats) -> Floats:
    terms: Floats = (observed - expected) ** 2 / np.maximum(expected, MIN_GROUP_SIZE)
    return terms


def _logits(probabilities: Floats) -> Floats:
    logits: Floats = scipy.special.logit(probabilities[:, 1].clip(MIN_PROBABILITY, 1 - MIN_PROBABILITY))
    return logits


def _fit(design: Floats, offset: Floats, targets: Ints) -> float:
    """Return the first coefficient of a logistic regression."""
    beta = np.zeros(design.shape[1])
    for _ in range(MAX_NEWTON_STEPS):
        means = scipy.special.expit(design @ beta + offset)
        information = design.T @ (design * (means * (1 - means))[:, None])
        if not np.linalg.cond(information) < 1e12:
            return float("nan")
        step = np.linalg.solve(information, design.T @ (targets - means))
        beta = beta + np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-12:
            return float(beta[0])
    return float("nan")
