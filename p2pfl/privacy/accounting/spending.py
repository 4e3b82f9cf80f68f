r"""Composition of the costs of rounds: over a run, its resumption, and all runs on the same data.

A round of cost :math:`(\mu, q)` is a Gaussian mechanism :math:`\mu` that a peer joins in secret with
probability q. Where q = 1 costs add as :math:`\mu^2 = \sum_t \mu_t^2`; else privacy loss
distributions are convolved (see :mod:`p2pfl.privacy.accounting.divergence`). Each round takes a share of delta for the
cut of the private noise (:func:`p2pfl.privacy.release_settings.truncation`); epsilon holds at what is left.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.release_settings import truncation


@dataclass(frozen=True, order=True)
class Cost:
    """Cost of one round, for the peer with the weakest protection.

    Parameters
    ----------
    mu
        For one who takes part.
    probability
        Of taking part, in secret.
    """

    mu: float
    probability: float = 1.0


def spent(costs: Mapping[Cost, int], *, delta: float) -> float:
    r"""Return :math:`\varepsilon` of all rounds together; infinity where the cut of the noise takes all of delta.

    Parameters
    ----------
    costs
        Number of rounds by their cost.
    delta
        :math:`\delta`.

    Raises
    ------
    InputError
        A number out of range, or the extra ``privacy`` is not installed.

    Examples
    --------
    >>> round(spent({Cost(0.3): 100}, delta=1e-5), 3) == round(spent({Cost(3.0): 1}, delta=1e-5), 3)
    True
    >>> spent({}, delta=1e-5)
    0.0
    """
    costs = {cost: count for cost, count in costs.items() if count and cost.mu and cost.probability}
    share = math.fsum(count * truncation(cost.mu) for cost, count in costs.items())
    if share >= delta > 0:
        return math.inf
    delta -= share
    whole = divergence.epsilon(math.sqrt(math.fsum(count * cost.mu**2 for cost, count in costs.items())), delta=delta)
    if math.isinf(whole) or all(cost.probability == 1 for cost in costs):
        return whole
    rounds = {(cost.mu, cost.probability): count for cost, count in costs.items()}
    bound = whole if whole <= HOPELESS_EPSILON else min(whole, divergence.renyi(rounds, delta=delta))
    return bound if bound > HOPELESS_EPSILON else divergence.mixture_epsilon(rounds, delta=delta)


def affordable(
    cost: Cost, *, budget: float, delta: float, rounds: int, before: Mapping[Cost, int] | None = None
) -> int:
    r"""Return the number of ``rounds`` rounds that fit into a budget, after what was spent before.

    Parameters
    ----------
    cost
        Of each round.
    budget
        :math:`\varepsilon` that is not to be exceeded.
    delta, before
        As in :func:`spent`.
    rounds
        Number of rounds that are wanted.

    Examples
    --------
    >>> affordable(Cost(0.5), budget=8.0, delta=1e-5, rounds=40)
    11
    """
    return bisect_right(
        range(1, rounds + 1), budget, key=lambda n: spent(Counter(before or {}) + Counter({cost: n}), delta=delta)
    )


def per_round(*, epsilon: float, delta: float, rounds: int, probability: float = 1.0) -> float:
    r"""Return the :math:`\mu` of a round of which ``rounds`` together cost ``epsilon``.

    Raises
    ------
    InputError
        A number out of range, or the extra ``privacy`` is not installed.

    Examples
    --------
    >>> round(per_round(epsilon=8.0, delta=1e-5, rounds=100), 4)
    0.1666
    """
    whole = divergence.mu(epsilon, delta=delta) / math.sqrt(rounds)
    least, most = 0.0, whole
    if probability == 1:
        if math.isinf(whole) or rounds * truncation(whole) < _NEGLIGIBLE_DELTA * delta:
            return whole
    else:  # sitting out in secret can only help
        least, most = whole, 2 * whole
        while spent({Cost(most, probability): rounds}, delta=delta) < epsilon:
            least, most = most, 2 * most
            if most > 100:
                raise InputError(
                    f"epsilon {epsilon} for {rounds} rounds that a peer joins with probability {probability} needs "
                    "no noise; ask for less"
                )
    for _ in range(_EXACT_BISECTIONS if probability == 1 else _CONVOLVED_BISECTIONS):
        middle = (least + most) / 2
        if spent({Cost(middle, probability): rounds}, delta=delta) <= epsilon:
            least = middle
        else:
            most = middle
    return least


HOPELESS_EPSILON = 50.0
"""An epsilon beyond which nothing is hidden, and the convolution takes minutes: the looser bound of Rényi is used."""

_NEGLIGIBLE_DELTA = 1e-12
"""Share of delta below which the cut of the noise changes no digit of epsilon that is shown."""

_EXACT_BISECTIONS = 60
"""Bisections of mu: to the last digit, from below."""

_CONVOLVED_BISECTIONS = 14
"""Bisections of mu where losses are convolved: to 1 part in 10,000, from below."""
