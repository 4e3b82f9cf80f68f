"""Guarantee of DP-SGD inside a peer for each of its samples."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.resolution import truncation

HOPELESS = 50.0
"""An epsilon beyond which nothing is hidden, and the convolution takes minutes: the looser bound of Rényi is used."""


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
    steps: Counter[tuple[float, float]] = Counter()
    for each, count in rounds.items():
        if each.rate and each.steps and count:
            steps[each.noise, each.rate] += each.steps * count
    if not steps:
        return 0.0
    if not all(noise for noise, _ in steps):
        return math.inf
    cut = math.fsum(count * truncation(1 / noise) for (noise, _), count in steps.items())  # noise has an end
    if cut >= delta > 0:
        return math.inf
    delta -= cut
    mechanisms = {(1 / noise, rate): count for (noise, rate), count in sorted(steps.items())}
    share = math.fsum(count * truncation(mu) for (mu, rate), count in mechanisms.items() if rate == 1)
    if share >= delta > 0:
        return math.inf
    delta -= share  # for the cut of the noise of totals, which take all samples
    bound = divergence.renyi(mechanisms, delta=delta)
    return bound if bound > HOPELESS else divergence.mixture_epsilon(mechanisms, delta=delta)


def epsilon(noise: float, *, rate: float, steps: int, delta: float) -> float:
    r"""Return :math:`\varepsilon` of the steps of DP-SGD, for each single sample.

    By privacy loss distributions, which round up (:func:`p2pfl.privacy.accounting.divergence.mixture_epsilon`). Batches
    must be Poisson samples, as those of :class:`p2pfl.learning.example_private.ExamplePrivateLearner`. Where nothing is
    hidden any more (an epsilon above 50), by Rényi divergences, which overstate more.

    Parameters
    ----------
    noise
        z, standard deviation over clip.
    rate
        q, the probability with which a sample is in a batch.
    steps
        How many.
    delta
        :math:`\delta`.

    Raises
    ------
    InputError
        A number out of range, or the extra ``privacy`` is not installed.

    Examples
    --------
    >>> round(epsilon(1.0, rate=0.01, steps=1000, delta=1e-5), 3)
    1.829
    """
    if not (noise >= 0 and 0 <= rate <= 1 and steps >= 0 and 0 < delta < 1):
        raise InputError(
            f"noise {noise} and steps {steps} must be at least 0, rate {rate} from 0 to 1 and delta {delta} "
            "between 0 and 1; change them"
        )
    return compose_epsilon({SampledSteps(noise, rate, steps): 1}, delta=delta)


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
        As in :func:`epsilon`.

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
        return -epsilon(noise, rate=points[high - 1][0], steps=points[low][1], delta=delta), low, high

    open_ = [bound(0, len(points))]
    while True:
        value, low, high = heapq.heappop(open_)
        if high - low == 1:
            return -value, *points[low]
        middle = (low + high) // 2
        heapq.heappush(open_, bound(low, middle))
        heapq.heappush(open_, bound(middle, high))


def worst_off(peers: Iterable[Mapping[SampledSteps, int]], *, delta: float) -> dict[str, float]:
    """Return what rounds promise the samples of the peer whose samples are hidden least.

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
    >>> found = worst_off([{SampledSteps(1.0, 0.01, 50): 10}, {SampledSteps(1.0, 0.02, 50): 12}], delta=1e-5)
    >>> found["sampling_rate"], found["steps"]
    (0.02, 600)
    """
    kinds = {frozenset((each, count) for each, count in rounds.items() if count) for rounds in peers}
    totals = [(sum(each.steps * count for each, count in kind), kind) for kind in kinds]
    if all(len({(each.noise, each.rate) for each, _ in kind}) <= 1 for kind in kinds):
        by_noise: dict[float, list[tuple[float, int]]] = {}
        for steps, kind in totals:
            first = next((each for each, _ in kind), SampledSteps(1.0, 0.0, 0))
            by_noise.setdefault(first.noise, []).append((first.rate, steps))
        found = [(*worst(costs, noise=noise, delta=delta), noise) for noise, costs in by_noise.items()]
        largest, rate, steps, noise = max(found)
        return {"epsilon": largest, "sampling_rate": rate, "steps": steps, "noise_multiplier": noise}
    ranked = [(compose_epsilon(dict(kind), delta=delta), steps, kind) for steps, kind in totals]
    largest, steps, kind = max(ranked, key=lambda each: each[:2])
    rate, noise = max(each.rate for each, _ in kind), min(each.noise for each, _ in kind)
    return {"epsilon": largest, "sampling_rate": rate, "steps": steps, "noise_multiplier": noise}
