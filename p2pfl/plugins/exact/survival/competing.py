"""Competing risks from counts by cell of time: cumulative incidence by cause, its errors, and Gray's test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints


@dataclass(frozen=True, eq=False)
class Incidence:
    """Cumulative incidence of an event that others compete with.

    Attributes
    ----------
    share, error
        Share that has had the event after each cell, and its standard error, ``[C]``.
    """

    share: Floats
    error: Floats


def cumulative_incidence(events: Ints, leaving: Ints, cause: int) -> Incidence:
    r"""Return the cumulative incidence of a cause by the estimate of Aalen and Johansen.

    .. math:: F_k(c) = \sum_{c' \le c} S(c' - 1) \frac{d_{k c'}}{n_{c'}}

    The error is that of the infinitesimal jackknife, as R's ``survfit`` has it: all samples that leave in a cell with
    the same cause, or with none, have the same influence, which is linear in :math:`F_k` from there on.

    Parameters
    ----------
    events
        Events by cause and cell, ``[K, C]``.
    leaving
        Samples that leave with an event or without it, ``[C]``.
    cause
        k, position of the cause.

    Examples
    --------
    >>> cumulative_incidence(np.array([[1, 0], [0, 1]]), np.array([1, 3]), 0).share.tolist()
    [0.25, 0.25]

    References
    ----------
    Aalen and Johansen, An empirical transition matrix for non-homogeneous Markov chains based on censored observations,
    Scandinavian Journal of Statistics 5, 1978.
    """
    there = np.cumsum(leaving[::-1])[::-1].astype(np.float64)  # [C]
    died, own = events.sum(axis=0).astype(np.float64), events[cause].astype(np.float64)
    safe = np.maximum(there, 1.0)
    alive = there - died
    before = np.concatenate([[1.0], np.cumprod(np.where(there > 0, alive / safe, 1.0))[:-1]])  # S(c - 1)
    step = before * own / safe
    share = np.cumsum(step)
    # influence of whoever is at risk throughout a cell without an event: on log S, and on the share
    waiting = np.where(alive > 0, died / (safe * np.where(alive > 0, alive, 1.0)), 0.0)
    drift = np.concatenate([[0.0], np.cumsum(waiting)[:-1]])  # on log S before the cell
    present = np.cumsum(drift * step - before * own / (safe * safe))
    # of whoever leaves in the cell, on the share after it and on log S from it on
    kinds = [(leaving - events.sum(axis=0), 0.0, False), (events[cause], 1.0, True)]
    kinds.append((events.sum(axis=0) - events[cause], 0.0, True))
    constant, linear, square = np.zeros((3, len(share)))
    for number, hit, event in kinds:
        after = drift + waiting - (np.where(alive > 0, 1 / np.where(alive > 0, alive, 1.0), 0.0) if event else 0.0)
        offset = present + hit * before / safe - after * share
        constant += number * offset * offset
        linear += number * offset * after
        square += number * after * after
    constant, linear, square = (np.cumsum(each) for each in (constant, linear, square))
    remaining = there - leaving
    variance = remaining * present * present + constant + 2 * linear * share + square * share * share
    return Incidence(share, np.sqrt(np.maximum(variance, 0.0)))


def gray_test(events: Ints, leaving: Ints, cause: int) -> tuple[float, float]:
    """Return the statistic and the p-value of Gray's test that groups have one cumulative incidence of a cause.

    Parameters
    ----------
    events
        Events by cause, group and cell, ``[K, G, C]``.
    leaving
        Samples that leave, by group, ``[G, C]``; no group is empty.
    cause
        Position of the cause.

    References
    ----------
    Gray, A class of K-sample tests for comparing the cumulative incidence of a competing risk, Annals of Statistics 16,
    1988.
    """
    groups = leaving.shape[0]
    at_risk = np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1].astype(np.float64)
    own = events[cause].astype(np.float64)
    other = events.sum(axis=0) - own
    score, variance, free = np.zeros(groups), np.zeros((groups, groups)), np.zeros(groups)
    incidence, alive, whole = np.zeros(groups), np.ones(groups), 0.0
    slope, mixed = np.zeros((2, groups, groups))
    for cell in np.flatnonzero(events.sum(axis=(0, 1))).tolist():
        there, hit, rest = at_risk[:, cell], own[:, cell], other[:, cell]
        here = (there > 0) & (alive > 0)
        weight = np.where(here, there / np.where(here, alive, 1.0), 0.0)
        total, count = weight.sum(), hit.sum()
        after = np.where(here, alive * (there - hit - rest) / np.where(here, there, 1.0), alive)
        now = whole + count / total
        between = np.diag(weight) - weight[:, None] * weight[None, :] / total
        slope = slope + between * count / (total * (1 - whole))
        expected = weight * (1 - incidence)
        score = score + np.where(here, hit - count * expected / expected.sum(), 0.0)
        share = np.where(after > 0, (1 - now) / np.where(after > 0, after, 1.0), 0.0)
        for group in np.flatnonzero(here).tolist():
            size, number = float(there[group]), float(rest[group])
            if count:
                loss = 1 - share[group] if after[group] > 0 else 1.0
                ties = 1 - (count - 1) / (total * alive[group] - 1) if count > 1 else 1.0
                spread = ties * alive[group] * count / (total * size)
                change = between[:, group] - loss * slope[:, group]
                variance = variance + spread * change[:, None] * change[None, :]
                mixed[:, group] += spread * loss * change
                free[group] += spread * loss * loss
            if number and after[group] > 0:
                ties = 1 - (number - 1) / (size - 1) if number > 1 else 1.0
                spread = ties * alive[group] ** 2 * number / (size * size)
                change = share[group] * slope[:, group]
                variance = variance + spread * change[:, None] * change[None, :]
                mixed[:, group] -= spread * share[group] * change
                free[group] += spread * share[group] ** 2
        incidence = incidence + np.where(here, alive * hit / np.where(here, there, 1.0), 0.0)
        whole, alive = now, after
    cross = slope @ mixed.T
    variance = variance + (slope * free) @ slope.T + cross + cross.T
    last = slice(0, groups - 1)
    statistic = float(score[last] @ np.linalg.solve(variance[last, last], score[last]))
    return statistic, float(scipy.special.chdtrc(groups - 1, statistic))
