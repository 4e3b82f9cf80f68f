"""Weighted mean of the participants of a round, by gossip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Protocol, Self, runtime_checkable

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner
from p2pfl.algorithms.devices import Devices, Invitation, Invitations, choose, count_invited
from p2pfl.algorithms.gossip import UNSET, Gossip, maximum
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Neighbourhood, Public
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.learning import straggles
from p2pfl.topology import Schedule, Topology, flood_steps

REFERENCE_SAMPLES = 2.0**20
"""Stands for an unknown mean number of samples where only floats are scaled, whose digits a power of two keeps."""


@dataclass(frozen=True)
class Averaging:
    r"""Weighted mean of the participants' models, which replaces the average of a server.

    .. math:: \bar x = \frac{\sum_{k \in S} n_k x_k}{\sum_{k \in S} n_k}

    over the set S of peers that take part in the round. Weights are homogeneous coordinates: peers mix
    :math:`[m_k x_k, m_k]` with the public weight :math:`m_k = n_k / \bar n` (zero outside S), and divide
    at the end. If the mean number of samples is unknown, a run uses :math:`2^{20}` where models leave as they are.
    Clips, masks and codecs are sized for weights near one, and small numbers lose digits in float16: there, peers flood
    the largest number and use it instead. On the complete graph one gossip step gives the server's average; elsewhere
    the result is as exact as the gossip.

    Parameters
    ----------
    peers
        All peers, from which the participants of each round are drawn. If it is empty, a run fills it in, together
        with the seed, the mean number of samples and the graph.
    seed
        Seed of the draw.
    gossip
        Gossip steps of the mean; by default a run makes as many as its tolerance requires.
    weighted
        True if peers are weighted by their number of samples.
    mean_samples
        :math:`\bar n`, or what stands for it, the same for all peers; ``None`` to flood the largest number.
    graph
        Graph over which peers flood numbers; ``None`` if one gossip step reaches everybody.
    fraction
        C: :math:`\max(1, \lfloor C N + 1/2 \rfloor)` peers take part in a round.
    dropped
        Share of the peers that are stragglers and therefore left out of a round.
    devices
        Devices of the peers in a simulation, which decide who is invited and who counts; ``None`` to count all drawn.

    Examples
    --------
    >>> average = Averaging(("ada", "bob", "cleo", "dan"), fraction=0.5)
    >>> int(average.participants(average.peers, round=0).sum())
    2

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
    graph: Topology | Schedule | None = None
    fraction: float = 1.0
    dropped: float = 0.0
    devices: Devices | None = None

    @cached_property
    def flood_steps(self) -> int:
        """Gossip steps after which a number reaches all peers; large graphs take long, so it is computed on demand."""
        return 1 if self.graph is None else flood_steps(self.graph)

    @property
    def count(self) -> int:
        """Number of peers that are wanted in a round."""
        return max(1, int(self.fraction * len(self.peers) + 0.5))

    @property
    def invites(self) -> int:
        """Largest number of peers that are drawn for a round."""
        invited = 1.0 if self.devices is None else self.devices.invited
        return min(len(self.peers), count_invited(self.count, invited))

    @property
    def partial(self) -> bool:
        """True if some peers may sit out a round."""
        return self.fraction < 1 or self.dropped > 0 or self.devices is not None

    @cached_property
    def _invitations(self) -> Invitations | None:
        if self.devices is None:
            return None
        return Invitations(self.devices, peers=len(self.peers), count=self.count, seed=self.seed)

    def invitation(self, round: int) -> Invitation | None:
        """Return who is invited to a round and who counts; ``None`` without devices."""
        return None if self._invitations is None else self._invitations.at(round)

    async def __call__(self, net: Neighbourhood, rows: Rows, *, since: Public, masses: torch.Tensor | None) -> Public:
        """Release models ``[R, P]`` and return their mean, or ``since`` where no participant is near.

        The result depends only on released models and on ``since``, so it is public.
        """
        return (await self.gossip(net, await net.release(rows, since=since, masses=masses))).average(own=since)

    @property
    def alike(self) -> bool:
        """True if the same number of peers counts in each round."""
        return self._invitations is None and not self.dropped

    def fewest(self, rounds: int, *, enough: int) -> tuple[int, int]:
        """Return the smallest number of peers that count in one of the first rounds where any do, and that round.

        Stragglers that are dropped do not count, and counting stops at ``enough`` peers.
        """
        counts = ((self._counted(round, most=enough), round) for round in range(1 if self.alike else rounds))
        return min(((few, round) for few, round in counts if few), default=(enough, 0))

    def _counted(self, round: int, *, most: int) -> int:
        """Return how many peers count in a round, at most ``most``."""
        here = self.invitation(round)
        drawn = self.drawn(round) if here is None else here.counted
        numbers = range(len(self.peers)) if drawn is None else drawn.tolist()
        late = partial(straggles, seed=self.seed, round=round, share=self.dropped)
        there = (number for number in numbers if not (self.dropped and late(self.peers[number])))
        return sum(1 for _ in islice(there, most))

    def participants(self, peers: tuple[str, ...], *, round: int) -> torch.Tensor:
        """Return which of ``peers`` take part in a round, ``[R]`` bool; each peer can compute this for all."""
        here = self.invitation(round)
        drawn = self.drawn(round) if here is None else here.counted
        names = {*self.peers} if drawn is None else {self.peers[number] for number in drawn}
        late = partial(straggles, seed=self.seed, round=round, share=self.dropped)
        return torch.tensor([peer in names and not (self.dropped and late(peer)) for peer in peers])

    def drawn(self, round: int) -> Ints | None:
        """Return the numbers of the peers that are drawn for a round, in any order; ``None`` if they are all."""
        here = self.invitation(round)
        if here is not None:
            return here.invited
        return None if self.count >= len(self.peers) else choose(self.seed, len(self.peers), self.count, round=round)

    async def masses(self, learner: AsyncLearner, net: Neighbourhood, active: torch.Tensor) -> torch.Tensor | None:
        """Return public weights ``[R, 1]``, or ``None`` if all peers have the same weight."""
        if not self.weighted and not self.partial:
            return None
        taking_part = active.to(torch.float64).unsqueeze(-1)  # [R, 1]
        if not self.weighted:
            return taking_part
        samples = learner.learner.samples(net.peers).to(torch.float64).unsqueeze(-1)  # [R, 1]
        if self.mean_samples is not None:
            return samples / self.mean_samples * taking_part
        return samples / await maximum(net, samples, steps=self.flood_steps) * taking_part


@runtime_checkable
class Averages(Protocol):
    """An algorithm that takes the mean over the participants of a round."""

    average: Averaging


@runtime_checkable
class SharesPart(Protocol):
    """An algorithm that releases a part of a model."""

    @property
    def shared(self) -> int:
        """Number of parameters that the algorithm releases."""
        ...

    def sharing(self, size: int) -> Self:
        """Return the algorithm on rows of ``size`` numbers, all of which it releases."""
        ...


@runtime_checkable
class SendsMore(Protocol):
    """An algorithm whose messages are longer than a model."""

    @property
    def beside(self) -> int:
        """Largest count of numbers sent beside a model, in the type of its parameters."""
        ...


def average_of(algorithm: Algorithm) -> Averaging | None:
    """Return the average that an algorithm takes; ``None`` if all peers have equal weights.

    Examples
    --------
    >>> from p2pfl.algorithms import DPSGD
    >>> average_of(DPSGD())
    """
    average = algorithm.average if isinstance(algorithm, Averages) else None
    return average if isinstance(average, Averaging) else None


def count_shared(algorithm: Algorithm, size: int) -> int:
    """Return how many of ``size`` parameters leave a peer."""
    return algorithm.shared if isinstance(algorithm, SharesPart) else size


def count_extra(algorithm: Algorithm) -> int:
    """Return how many numbers an algorithm sends beside a model at most.

    Raises
    ------
    ExperimentError
        The algorithm declares something else than a number.
    """
    count: object = algorithm.beside if isinstance(algorithm, SendsMore) else 0
    if not isinstance(count, int) or count < 0:
        raise ExperimentError(
            f"{type(algorithm).__name__}: beside is {count!r}; declare a property that returns a whole number >= 0"
        )
    return count


def share_all(algorithm: Algorithm, size: int) -> Algorithm:
    """Return an algorithm that releases all ``size`` numbers of a row, which are no parameters."""
    if not isinstance(algorithm, SharesPart):
        return algorithm
    whole: Algorithm = algorithm.sharing(size)
    return whole
