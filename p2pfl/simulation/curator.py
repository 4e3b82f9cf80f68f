r"""Whether learning together can pay at a guarantee: a trusted curator against everybody alone.

A curator whom all n peers trusted would average their clipped updates and add the noise that hides
any one of them. Per round, with S the sensitivity and :math:`\mu` of a round,

.. math:: \frac1n \sum_i u_i + N\Bigl(0, \bigl(\tfrac{S}{n \mu}\bigr)^2\Bigr)

No masks do better (see :mod:`p2pfl.privacy.accounting.leakage`: :math:`\mu^2 \ge S^2 / (n s^2)`), so where even
that is not better than learning alone, the experiment need not be run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import DPSGD, Algorithm, Gossip, average_of
from p2pfl.algorithms.baselines import alone
from p2pfl.errors import InputError, RunError
from p2pfl.experiment import Plan
from p2pfl.identity import SeededSource
from p2pfl.privacy.accounting.accountant import sensitivity
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.process import keep_freed_memory, one_thread
from p2pfl.rows import distances
from p2pfl.simulation.engine import play
from p2pfl.simulation.stacked import Faults

HALVINGS = 6
"""Simulations that look for the noise at which learning together begins to pay, and
the power of two by which it is lowered at most."""


@dataclass(frozen=True)
class Comparison:
    """A curator's mean score beside that of learning alone.

    Parameters
    ----------
    metric
        The score's name.
    alone, curator
        Mean scores; ``None`` where training broke down under the noise.
    noiseless
        The curator's without noise, clipped all the same; ``None`` where it was not needed.
    share
        The largest tried share of the curator's noise at which he is better than alone: 1 where he
        is, ``None`` where he is not with one 64th of it.
    length
        The norm of an update of the first round, the median over peers: noise hides as much as the clip.
    """

    metric: str
    alone: float
    curator: float | None
    noiseless: float | None
    share: float | None
    length: float

    @property
    def pays(self) -> bool:
        """Whether learning together can be better than alone."""
        return self.share == 1.0

    @property
    def hopeless(self) -> bool:
        """Whether it is not the noise that is in the way."""
        return not self.pays and not _better(self.noiseless, self.alone, metric=self.metric)


@one_thread()
def curator(plan: Plan, *, noise_share: float = 1.0) -> dict[str, torch.Tensor]:
    r"""Return scores ``[N]`` at the noise of a trusted curator with the guarantee of the plan.

    The same experiment on the complete graph, where one exchange averages exactly, and each peer
    adds :math:`f S / (\mu \sqrt n)`, in sum the curator's noise. Nothing leaves this process, so no
    budget is charged.

    Parameters
    ----------
    plan
        With the data of all peers.
    noise_share
        f. The noise of the mean is that of n / f peers, or of f times less :math:`1/\mu`.

    Raises
    ------
    InputError
        No differential privacy is claimed, or the share is negative.
    RunError
        Training broke down under the noise.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> table = {"rounds": 2, "topology": {"peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}}
    >>> claimed = plan(read(table | {"privacy": {"mode": "pairwise", "epsilon": 8.0}}))
    >>> tuple(curator(claimed)["accuracy"].shape)
    (4,)
    """
    keep_freed_memory()
    protection, peers = plan.protection, plan.topology.peers
    if not protection.claimed:
        raise InputError("expected a claim of differential privacy to compare with, got none: set privacy.epsilon")
    if not noise_share >= 0:
        raise InputError(f"expected a share of the noise of 0 or more, got {noise_share}: 1 is the curator's")
    given = protection.settings
    change = sensitivity(clip=given.clip, adjacency=protection.wanted.adjacency, bits=given.bits, size=protection.size)
    noise = noise_share * change / (protection.guarantee.mu * math.sqrt(len(peers)))
    complete = graphs.complete(len(peers)).named(peers)
    trusted = replace(
        plan,
        topology=complete,
        weights=(graphs.metropolis(complete),),
        algorithm=_averaging(plan.algorithm),
        protection=replace(protection, settings=replace(given, noise=noise, mask=0.0), graph=complete, sums=None),
        stop=None if plan.stop is None else replace(plan.stop, steps=1),
    )
    faults = Faults(absence=plan.experiment.simulation.absence)  # no links, so none is lossy
    source = SeededSource(plan.experiment.seed)
    state, _ = play(trusted, source=source, rounds=range(_rounds(plan)), faults=faults)
    return plan.learner.evaluate(state.rows, peers=peers)


@one_thread()
def compare(plan: Plan) -> Comparison:
    """Compare the curator with learning alone; where he is not better, look for the noise at which he is.

    At most eight simulations, of one seed: what they say is about right.

    Parameters
    ----------
    plan
        With the data of all peers, and a claim.

    Raises
    ------
    InputError
        No differential privacy is claimed.
    """
    single = alone(plan.learner, plan.topology.peers, rounds=_rounds(plan))
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
        return Comparison(metric, own, reached, None, 1.0, length)
    noiseless = score(0.0)
    if not _better(noiseless, own, metric=metric):
        return Comparison(metric, own, reached, noiseless, None, length)
    share = None
    least, most = 2.0**-HALVINGS, 1.0
    for _ in range(HALVINGS):  # bisection of the exponent
        middle = math.sqrt(least * most)
        if _better(score(middle), own, metric=metric):
            share = least = middle
        else:
            most = middle
    return Comparison(metric, own, reached, noiseless, share, length)


def needed(plan: Plan, found: Comparison) -> tuple[int, float]:
    """How many peers, or else what epsilon, have the share of the curator's noise that pays.

    Raises
    ------
    InputError
        No share was found.
    """
    if not found.share:
        raise InputError(
            "expected a share of the noise at which learning together pays, got none: change the clip or the rounds"
        )
    protection = plan.protection
    eased = Cost(protection.cost.mu / found.share, protection.cost.probability)
    return math.ceil(len(plan.topology.peers) / found.share), protection.total({eased: _rounds(plan)})


def _length(plan: Plan) -> float:
    """The norm of an update of the first round, before it is clipped: the median over peers."""
    peers = plan.topology.peers
    start = plan.learner.start(peers)  # [N, P]
    return float(distances(plan.learner.fit(start, peers=peers, round=0).rows, start).median())


def _rounds(plan: Plan) -> int:
    return plan.protection.affordable or plan.protection.rounds


def _averaging(algorithm: Algorithm) -> Algorithm:
    """The same with one exchange a round."""
    settings: Any = algorithm  # a dataclass, if it is one of ours
    average = average_of(algorithm)
    if is_dataclass(algorithm) and average is not None:
        averaging: Algorithm = replace(settings, average=replace(average, gossip=Gossip(1), diameter=1))
        return averaging
    if isinstance(algorithm, DPSGD):
        return replace(algorithm, gossip=Gossip(1))
    raise InputError(
        "expected an algorithm that averages, or DPSGD, to compare with a curator, got "
        f"{type(algorithm).__name__}: leave it out"
    )


def _better(one: float | None, other: float | None, *, metric: str) -> bool:
    """Whether a score is better than another; no score, or one that is not a number, is not."""
    if one is None or other is None:
        return False
    return one < other if metric == "loss" else one > other
