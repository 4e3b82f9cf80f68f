"""The weighted mean of those who take part in a round, by gossip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from p2pfl.algorithms.algorithm import AsyncLearner
from p2pfl.algorithms.gossip import UNSET, Gossip, maximum
from p2pfl.learning import straggles
from p2pfl.neighbourhood import Neighbourhood, Public
from p2pfl.rows import Rows, draw


@dataclass(frozen=True)
class Averaging:
    r"""What takes the place of a server that averages its clients.

    .. math:: \bar x = \frac{\sum_{k \in S} n_k x_k}{\sum_{k \in S} n_k}

    over the set S of peers that take part in the round. Weights are homogeneous coordinates: what
    is mixed is :math:`[m_k x_k, m_k]` with the public mass :math:`m_k = n_k / \bar n` (zero outside
    S), and the division comes last. Where nobody knows all sizes, the largest is flooded and takes
    the place of their mean. On the complete graph one exchange gives the server's average;
    elsewhere it is as exact as the gossip.

    Parameters
    ----------
    peers
        All peers, from whom each round's participants are drawn; a run fills them in where there are none, and the
        seed, the mean size and the diameter with them.
    seed
        Of that draw.
    gossip
        How the mean is approached; a run chooses as many gossip steps as its tolerance asks for where this is left out.
    weighted
        Whether peers count by their samples, or all alike.
    mean_samples
        :math:`\bar n`, the same for all peers; ``None`` where it is not known.
    diameter
        Exchanges in which the largest size reaches everybody.
    fraction
        C: :math:`\max(1, \lfloor C N + 1/2 \rfloor)` peers take part in a round.
    dropped
        Share of the peers that straggle, and are left out of the round for it.

    References
    ----------
    McMahan et al., Communication-efficient learning of deep networks from decentralized data,
    AISTATS 2017, Algorithm 1.
    """

    peers: tuple[str, ...] = ()
    seed: int = 0
    gossip: Gossip = UNSET
    weighted: bool = True
    mean_samples: float | None = None
    diameter: int = 1
    fraction: float = 1.0
    dropped: float = 0.0

    async def __call__(self, net: Neighbourhood, rows: Rows, *, since: Public, masses: torch.Tensor | None) -> Public:
        """Release ``[R, P]`` rows and return their mean; ``since`` where nobody near takes part.

        What it returns follows from released rows and from ``since`` alone, so that it is public if ``since`` is.
        """
        released = await net.release(rows, since=since, masses=masses)
        return (await self.gossip(net, released)).average(own=since)

    def participants(self, peers: tuple[str, ...], *, round: int) -> torch.Tensor:
        """Which of ``peers`` take part in a round, ``[R]`` bool; every peer knows it of all."""
        count = max(1, int(self.fraction * len(self.peers) + 0.5))
        names = set(self.peers)
        if count < len(self.peers):
            chosen = draw(self.seed, "participants", round=round).permutation(len(self.peers))[:count]
            names = {self.peers[index] for index in chosen}
        late = partial(straggles, seed=self.seed, round=round, share=self.dropped)
        return torch.tensor([peer in names and not (self.dropped and late(peer)) for peer in peers])

    async def masses(self, learner: AsyncLearner, net: Neighbourhood, active: torch.Tensor) -> torch.Tensor | None:
        """Public masses ``[R, 1]``, or ``None`` where everybody counts alike."""
        taking_part = active.to(torch.float64).unsqueeze(-1)  # [R, 1]
        if not self.weighted:
            return None if self.fraction == 1.0 and not self.dropped else taking_part
        samples = learner.learner.samples(net.peers).to(torch.float64).unsqueeze(-1)  # [R, 1]
        if self.mean_samples is not None:
            return samples / self.mean_samples * taking_part
        return samples / await maximum(net, samples, steps=self.diameter) * taking_part
