"""Scores of peers that learn alone, computed by all workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from p2pfl.algorithms.baselines import Baseline, baseline, score_alone
from p2pfl.learning import Learner
from p2pfl.simulation.evaluating import by_peer
from p2pfl.simulation.sharding.shard import Shard

Scores = dict[str, float]
"""Scores of a peer by name."""


@dataclass(frozen=True)
class LocalScores:
    """Peers that train without any communication, as :func:`p2pfl.algorithms.baselines.baseline` returns them.

    Attributes
    ----------
    shard
        Peers that this process trains.
    """

    shard: Shard

    def __call__(self, learner: Learner, peers: tuple[str, ...], *, rounds: int) -> Baseline:
        """Return the scores of peers that train for as many rounds, where this process leads."""
        if self.shard.workers == 1:
            return baseline(learner, peers, rounds=rounds)
        own = by_peer(score_alone(learner, self.shard.peers, rounds=rounds))
        listed = self.shard.collect(own, Scores)
        found = dict(zip(self.shard.everyone, listed, strict=False))
        return Baseline(_columns(found, peers) if self.shard.leads else {}, None)


def _columns(found: dict[str, Scores], peers: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return scores by name, ``[R]`` each."""
    return {name: torch.tensor([found[peer][name] for peer in peers], dtype=torch.float64) for name in found[peers[0]]}
