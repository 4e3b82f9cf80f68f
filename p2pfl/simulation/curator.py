r"""Comparison of a trusted curator with local learning, to find out if a guarantee leaves room for a benefit.

A curator that all n peers trust averages their clipped updates and adds the noise that hides
any one of them. Per round, with S the sensitivity and :math:`\mu` of a round,

.. math:: \frac1n \sum_i u_i + N\Bigl(0, \bigl(\tfrac{S}{n \mu}\bigr)^2\Bigr)

No masks do better (see :mod:`p2pfl.privacy.accounting.leakage`: :math:`\mu^2 \ge S^2 / (n s^2)`), so if even
the curator is no better than local learning, there is no need to run the experiment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import DPSGD, Algorithm, Gossip, average_of
from p2pfl.algorithms.baselines import score_alone
from p2pfl.core.errors import InputError, RunError
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.core.process import keep_freed_memory, one_thread
from p2pfl.core.rows import distances
from p2pfl.experiment import Plan
from p2pfl.experiment.accounts import admitted_exactly
from p2pfl.privacy.accounting.accountant import sensitivity
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation.playing import play_rounds
from p2pfl.simulation.stacked import Faults

HALVINGS = 6
"""Number of simulations that search for the noise at which learning together pays, and the largest power of two by
which the noise is lowered."""


@dataclass(frozen=True)
class CuratorComparison:
    """Mean score of a curator beside that of local learning.

    Parameters
    ----------
    metric
        Name of the score.
    alone, curator
        Mean scores; ``None`` if training diverged under the noise.
    noiseless
        Score of the curator without noise but with clipping; ``None`` if it was not needed.
    share
        Largest tried share of the curator's noise at which the curator beats local learning: 1 for all of it,
        ``None`` if one 64th of it is too much.
    length
        Median over peers of the norm of an update in the first round, to compare with the clip.
    """

    metric: str
    alone: float
    curator: float | None
    noiseless: float | None
    share: float | None
    length: float

    @property
    def pays(self) -> bool:
        """True if learning together can be better than local learning."""
        return self.share == 1.0

    @property
    def hopeless(self) -> bool:
        """True if the curator is no better even without noise."""
        return not self.pays and not _better(self.noiseless, self.alone, metric=self.metric)


@one_thread()
def curator(plan: Plan, *, noise_share: float = 1.0) -> dict[str, torch.Tensor]:
    r"""Return scores ``[N]`` at the noise of a trusted curator with the guarantee of the plan.

    It runs the same experiment on the complete graph, where one gossip step averages exactly, and each peer
    adds :math:`f S / (\mu \sqrt n)`, in sum the noise of the curator. Nothing leaves this process, so no
    budget is charged.

    Parameters
    ----------
    plan
        Plan with the data of all peers.
    noise_share
        f. The noise of the mean equals that of n / f peers, or of an f times smaller :math:`1/\mu`.

    Raises
    ------
    InputError
        The plan claims no differential privacy, the share is negative, or the data have an account and the plan may
        not stay outside of it.
    RunError
        Training diverged under the noise.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> table = {"rounds": 2, "topology": {"peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}}
    >>> claimed = plan(read(table | {"privacy": {"mode": "pairwise", "epsilon": 8.0}}))
    >>> tuple(curator(claimed)["accuracy"].shape)
    (4,)
    """
    keep_freed_memory()
    admitted_exactly(plan.experiment, plan.federation.peers, unaccounted=plan.unaccounted)
    protection, peers = plan.protection, plan.topology.peers
    if not protection.claimed or protection.totals:
        raise InputError("the experiment claims no differential privacy to compare with; set privacy.epsilon")
    if not noise_share >= 0:
        raise InputError(
            f"the share of the noise is {noise_share}, but must be at least 0; 1 is the noise of the curator"
        )
    settings = protection.settings
    change = sensitivity(
        clip=settings.clip, adjacency=protection.wanted.adjacency, bits=settings.bits, size=protection.size
    )
    noise = noise_share * change / (protection.guarantee.mu * math.sqrt(len(peers)))
    complete = graphs.complete(len(peers)).named(peers)
    trusted = replace(
        plan,
        topology=complete,
        weights=(graphs.metropolis(complete),),
        algorithm=_to_averaging(plan.algorithm),
        protection=replace(protection, settings=replace(settings, noise=noise, mask=0.0), graph=complete, sums=None),
        stop=None if plan.stop is None else replace(plan.stop, steps=1),
    )
    faults = Faults(absence=plan.experiment.simulation.absence)  # there are no links that could be lossy
    source = SeededSource(plan.experiment.seed)  # only scores leave this process, which no guarantee covers
    state, _ = run_without_loop(play_rounds(trusted, source=source, rounds=range(_rounds(plan)), faults=faults))
    return plan.learner.evaluate(state.rows, peers=peers)


@one_thread()
def compare(plan: Plan) -> CuratorComparison:
    """Compare the curator with local learning; if it is no better, search for the noise at which it is.

    This takes at most eight simulations of one seed, so the result is approximate.

    Parameters
    ----------
    plan
        Plan with the data of all peers, and a claim.

    Raises
    ------
    InputError
        The plan claims no differential privacy.
    """
    single = score_alone(plan.learner, plan.topology.peers, rounds=_rounds(plan))
    metric = next((name for name in single if name != "loss"), "loss")
    own = float(single[metric].double().mean())

    def score(share: float) -> float | None:
        try:
            return float(curator(plan, noise_share=share)[metric].double().mean())
        except RunError:
            return None

    length = _length(plan)
    reached = score(1.0)
    if _better(reached, own, metric=metric):
        return CuratorComparison(metric, own, reached, None, 1.0, length)
    noiseless = score(0.0)
    if not _better(noiseless, own, metric=metric):
        return CuratorComparison(metric, own, reached, noiseless, None, length)
    share = None
    least, most = 2.0**-HALVINGS, 1.0
    for _ in range(HALVINGS):  # bisection of the exponent
        middle = math.sqrt(least * most)
        if _better(score(middle), own, metric=metric):
            share = least = middle
        else:
            most = middle
    return CuratorComparison(metric, own, reached, noiseless, share, length)


def break_even(plan: Plan, comparison: CuratorComparison) -> tuple[int, float]:
    """Return the number of peers, or alternatively the epsilon, at which the noise is low enough to pay.

    Raises
    ------
    InputError
        No share of the noise pays.
    """
    if not comparison.share:
        raise InputError("no share of the noise makes learning together pay; change the clip or the rounds")
    protection = plan.protection
    eased = Cost(protection.cost.mu / comparison.share, protection.cost.probability)
    return math.ceil(len(plan.topology.peers) / comparison.share), protection.total({eased: _rounds(plan)})


def _length(plan: Plan) -> float:
    """Return the median over peers of the norm of an update in the first round, before clipping."""
    peers = plan.topology.peers
    start = plan.learner.start(peers)  # [N, P]
    return float(distances(plan.learner.fit(start, peers=peers, round=0).rows, start).median())


def _rounds(plan: Plan) -> int:
    return plan.protection.affordable or plan.protection.rounds


def _to_averaging(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm with one gossip step per round."""
    settings: Any = algorithm  # built-in algorithms are dataclasses
    average = average_of(algorithm)
    if is_dataclass(algorithm) and average is not None:
        averaging: Algorithm = replace(settings, average=replace(average, gossip=Gossip(1), graph=None))
        return averaging
    if isinstance(algorithm, DPSGD):
        return replace(algorithm, gossip=Gossip(1))
    raise InputError(
        f"{type(algorithm).__name__} cannot be compared with a curator; use an algorithm that averages, or DPSGD"
    )


def _better(one: float | None, other: float | None, *, metric: str) -> bool:
    """Return whether a score is better than another; a missing score or NaN is not."""
    if one is None or other is None:
        return False
    return one < other if metric == "loss" else one > other
