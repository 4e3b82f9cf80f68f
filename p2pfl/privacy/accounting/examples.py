"""Guarantee of DP-SGD inside a peer for each of its samples."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from p2pfl.privacy.accounting.spending import Cost, spent


@dataclass(frozen=True, order=True)
class SampledSteps:
    """Steps of DP-SGD that one peer makes in one round, each on a secret batch.

    Parameters
    ----------
    noise
        z, standard deviation over clip.
    rate
        q, the probability with which a sample is in a batch.
    steps
        How many.
    """

    noise: float
    rate: float
    steps: int


def compose_epsilon(rounds: Mapping[SampledSteps, int], *, delta: float) -> float:
    r"""Return :math:`\varepsilon` of all rounds together, for each single sample.

    Batches must be Poisson samples, as those of :class:`p2pfl.learning.example_private.ExamplePrivateLearner`.

    Parameters
    ----------
    rounds
        Number of rounds by their steps.
    delta
        :math:`\delta`.

    Raises
    ------
    InputError
        The extra ``privacy`` is not installed.

    Examples
    --------
    >>> round(compose_epsilon({SampledSteps(1.0, 0.01, 100): 10}, delta=1e-5), 3)
    1.829
    """
    costs: Counter[Cost] = Counter()
    for each, count in rounds.items():
        if each.rate and each.steps and count:
            costs[Cost(1 / each.noise if each.noise else math.inf, each.rate)] += each.steps * count
    return spent(costs, delta=delta)


def worst(costs: Iterable[tuple[float, int]], *, noise: float, delta: float) -> tuple[float, float, int]:
    """Return epsilon, q and the number of steps of the peer whose samples are protected least.

    More samples make q smaller and the steps more, so there may be as many candidates as peers. Epsilon
    grows with both: the largest q and steps of some candidates bound them all, and only where the bound
    is highest is it worth looking closer.

    Parameters
    ----------
    costs
        q and steps of each peer, at least one.
    noise, delta
        z, standard deviation over clip, and delta.

    Examples
    --------
    >>> worst([(0.01, 500), (0.02, 500), (0.02, 100)], noise=1.0, delta=1e-5)[1:]
    (0.02, 500)
    """
    points: list[tuple[float, int]] = []  # rates rise as steps fall
    for rate, steps in sorted(set(costs), key=lambda cost: (-cost[1], -cost[0])):
        if not points or rate > points[-1][0]:
            points.append((rate, steps))

    def bound(low: int, high: int) -> tuple[float, int, int]:
        steps = SampledSteps(noise, points[high - 1][0], points[low][1])
        return -compose_epsilon({steps: 1}, delta=delta), low, high

    open_ = [bound(0, len(points))]
    while True:
        value, low, high = heapq.heappop(open_)
        if high - low == 1:
            return -value, *points[low]
        middle = (low + high) // 2
        heapq.heappush(open_, bound(low, middle))
        heapq.heappush(open_, bound(middle, high))


def worst_off(peers: Iterable[Mapping[SampledSteps, int]], *, delta: float) -> dict[str, float]:
    """Return the guarantee of rounds for the samples of the peer whose samples are hidden least.

    Parameters
    ----------
    peers
        For each peer, how many rounds had which steps; at least one peer.
    delta
        As in :func:`compose_epsilon`.

    Returns
    -------
    dict
        ``epsilon``, and of that peer the largest ``sampling_rate``, all ``steps`` and the least ``noise_multiplier``.

    Examples
    --------
    >>> worst = worst_off([{SampledSteps(1.0, 0.01, 50): 10}, {SampledSteps(1.0, 0.02, 50): 12}], delta=1e-5)
    >>> worst["sampling_rate"], worst["steps"]
    (0.02, 600)
    """
    kinds = {frozenset((each, count) for each, count in rounds.items() if count) for rounds in peers}
    totals = [(sum(each.steps * count for each, count in kind), kind) for kind in kinds]
    if all(len({(each.noise, each.rate) for each, _ in kind}) <= 1 for kind in kinds):
        by_noise: dict[float, list[tuple[float, int]]] = {}
        for steps, kind in totals:
            first = next((each for each, _ in kind), SampledSteps(1.0, 0.0, 0))
            by_noise.setdefault(first.noise, []).append((first.rate, steps))
        costliest = [(*worst(costs, noise=noise, delta=delta), noise) for noise, costs in by_noise.items()]
        largest, rate, steps, noise = max(costliest)
        return {"epsilon": largest, "sampling_rate": rate, "steps": steps, "noise_multiplier": noise}
    ranked = [(compose_epsilon(dict(kind), delta=delta), steps, kind) for steps, kind in totals]
    largest, steps, kind = max(ranked, key=lambda each: each[:2])
    rate, noise = max(each.rate for each, _ in kind), min(each.noise for each, _ in kind)
    return {"epsilon": largest, "sampling_rate": rate, "steps": steps, "noise_multiplier": noise}
