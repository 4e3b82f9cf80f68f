"""The cohort of a round: the peers that a simulation computes one by one, and one that stands in for all others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from p2pfl.algorithms import Algorithm, AsyncLearner, Averaging, State, average_of
from p2pfl.core.codecs import Zstd
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Neighbourhood, ReceivedModels, Released
from p2pfl.core.rows import alike, repeated, to_device
from p2pfl.experiment import Plan
from p2pfl.simulation.sharding import Shard
from p2pfl.simulation.sharding.shard import Values
from p2pfl.simulation.stacked import StackedNeighbourhood, sizes
from p2pfl.topology import Weights


class Cohort(Shard):
    """Peers that one process computes in a round in which all peers get one average.

    The last of ``peers`` stands in for the ``others``, which have the same state and sit out.

    Parameters
    ----------
    shard
        Peers that the process simulates.
    members
        Numbers of the peers that are computed one by one, among those of the shard, sorted.
    drawn
        Numbers of the members that are drawn for the round, sorted; all members by default.

    Examples
    --------
    >>> cohort = Cohort(Shard(("ada", "bob", "cleo", "dan")), np.array([1]))
    >>> cohort.peers, cohort.others
    (('bob', 'ada'), 3)
    >>> cohort.spread(torch.tensor([7, 0])).tolist()
    [0, 7, 0, 0]
    """

    def __init__(self, shard: Shard, members: Ints, drawn: Ints | None = None) -> None:
        super().__init__(shard.everyone)
        self.shard, self.leads, self.workers, self.rank = shard, shard.leads, shard.workers, shard.rank
        self.members, self.others = members, len(shard.peers) - len(members)
        self.drawn = members if drawn is None else drawn
        gaps = np.flatnonzero(members != np.arange(len(members)))
        free = int(gaps[0]) if len(gaps) else len(members)  # the first peer that is no member
        self.places = np.append(members, free) if self.others else members  # [R]
        self.peers = tuple(shard.peers[place] for place in self.places.tolist())

    @cached_property
    def _rows_of(self) -> torch.Tensor:
        """Row of each peer of the shard, ``[N]``."""
        rows = np.full(len(self.shard.peers), len(self.members))
        rows[self.members] = np.arange(len(self.members))
        return torch.from_numpy(rows)

    def own(self, values: Values) -> Values:
        """Return the values of the cohort, ``[R, ...]``, out of those of all peers, ``[N, ...]``."""
        mine = self.shard.own(values)
        return self.select(mine) if isinstance(mine, torch.Tensor) else mine[self.places]

    def select(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values of the cohort, ``[R, ...]``, out of those of all peers of the process."""
        if repeated(values):
            return values[:1].expand(len(self.places), *values.shape[1:])
        return values[to_device(torch.from_numpy(self.places), values.device)]

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values of all peers of the process, out of those of the cohort, ``[R, ...]``.

        Where all rows are equal, they are one in memory.
        """
        if alike(values):
            return values[:1].expand(len(self.shard.peers), *values.shape[1:])
        return values[to_device(self._rows_of, values.device)]

    @cached_property
    def weights(self) -> torch.Tensor:
        """Weight of each peer of the cohort in the average, ``[R]`` float64; the stand-in weighs as all others do."""
        weights = torch.full((len(self.places),), 1 / len(self.everyone), dtype=torch.float64)
        if self.others:
            weights[-1] *= self.others
        return weights

    def average(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the average over all peers, once in memory, ``[R, ...]``."""
        weights = to_device(self.weights.to(rows.dtype), rows.device).unsqueeze(0)  # [1, R]
        return self.shard.sums(weights @ rows).expand(len(rows), -1)


class CohortNeighbourhood(StackedNeighbourhood):
    """One round of a cohort, whose gossip step gives all peers the average.

    Parameters
    ----------
    cohort
        Peers that are computed.
    weights, round, seed, zstd
        Arguments of :class:`p2pfl.simulation.stacked.StackedNeighbourhood`.
    """

    def __init__(
        self, cohort: Cohort, weights: Sequence[Weights], *, round: int, seed: int, zstd: Zstd | None = None
    ) -> None:
        super().__init__(weights, round=round, seed=seed, zstd=zstd, shard=cohort)
        self.cohort = cohort

    async def mix(self, released: Released) -> Released:
        """Replace every row by the average over all peers."""
        self._count(released)
        masses = released.masses
        after = Released(self.cohort.average(released.values), None if masses is None else self.cohort.average(masses))
        self.record_step(released, after)
        return after

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the rows of the cohort, which each of its peers receives with their weights in the average."""
        self._count(released)
        rows, count = released.values, len(released.rows)
        listener, sender = torch.cartesian_prod(torch.arange(count), torch.arange(count)).unbind(1)  # [R^2]
        return ReceivedModels(rows, listener, sender, self.cohort.weights[sender], self.peers)

    def _count(self, released: Released) -> None:
        """Count a gossip step, its bytes, and the models that peers receive in it."""
        self.step += 1
        self.count_bytes(sizes(released, zstd=self.zstd))
        self.received += len(self.everyone) - 1


class AllPeers:
    """Peers of each round of a run that computes all of them.

    Parameters
    ----------
    shard
        Peers that this process simulates.

    Attributes
    ----------
    current
        Peers of the round.
    """

    def __init__(self, shard: Shard) -> None:
        self.current = shard

    def open(self, round: int) -> Shard:
        """Return the peers of a round: all."""
        del round
        return self.current

    def play(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm of these peers: as it is."""
        return algorithm


class Cohorts:
    """Cohort of each round: the participants, and all peers whose state is not that of the others.

    Parameters
    ----------
    shard
        Peers that this process simulates.
    average
        Average whose participants train.
    state
        State of the peers before the first round.

    Attributes
    ----------
    apart
        Numbers of the peers whose state differs from that of the others, among those of the shard.
    current
        Cohort of the round.
    """

    def __init__(self, shard: Shard, average: Averaging, state: State) -> None:
        self.shard, self.average = shard, average
        equal = all(map(repeated, (state.rows, *state.tensors().values())))
        self.apart = np.arange(0 if equal else len(shard.peers))
        self.current: Shard = shard
        self._numbers = {peer: number for number, peer in enumerate(shard.peers)} if shard.workers > 1 else None

    def open(self, round: int) -> Cohort:
        """Return the cohort of a round."""
        drawn = self.average.drawn(round)
        if drawn is None:
            drawn = np.arange(len(self.shard.peers))
        elif self._numbers is not None:
            names = (self.average.peers[number] for number in drawn)
            drawn = np.array([self._numbers[name] for name in names if name in self._numbers], np.int64)
        self.cohort = self.current = Cohort(self.shard, np.union1d(drawn, self.apart), np.sort(drawn))
        return self.current

    def play(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm of all peers that computes the cohort of each round alone."""
        return CohortAlgorithm(algorithm, self)

    def select(self, state: State) -> State:
        """Return the state of the cohort before a round, out of that of all peers."""
        return state.map(self.cohort.select)

    def spread(self, state: State) -> State:
        """Return the state of all peers after a round, out of that of the cohort, whose report it keeps."""
        cohort, tensors = self.cohort, (state.rows, *state.tensors().values())
        differ = np.zeros(len(cohort.places), bool)
        for values in tensors:
            if not alike(values):
                differ |= (values != values[-1]).flatten(1).any(1).cpu().numpy() if cohort.others else True
        self.apart = cohort.places[differ]
        return state.map(cohort.spread)


class CohortAlgorithm:
    """Algorithm of all peers that computes the cohort of each round alone.

    Parameters
    ----------
    algorithm
        Algorithm of the peers.
    cohorts
        Cohort of each round.
    """

    def __init__(self, algorithm: Algorithm, cohorts: Cohorts) -> None:
        self.algorithm, self.cohorts = algorithm, cohorts

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of the cohort.

        Raises
        ------
        RunError
            The peer that stands in for those that sit out has trained.
        """
        handed = [self.cohorts.select(state)]  # nothing here holds the state, so the algorithm can free it
        del state
        after = await self.algorithm.round(handed.pop(), learner, net, round)
        if self.cohorts.cohort.others and after.report is not None and int(after.report.steps[-1]) > 0:
            raise RunError(
                "a peer that sits out the round has trained, although the algorithm declares the trait idle_alike; "
                "declare traits without it"
            )
        return self.cohorts.spread(after)


def sampled_average(plan: Plan, *, workers: int) -> Averaging | None:
    """Return the exact average of all peers that participants of a round take; ``None`` where a cohort is not enough.

    Parameters
    ----------
    plan
        The plan.
    workers
        Number of processes that share the peers.
    """
    average, traits, simulated = average_of(plan.algorithm), plan.asked.algorithm, plan.experiment.simulation
    if average is None or not (traits.idle_alike and _declares_round(plan.algorithm) and type(average) is Averaging):
        return None
    if average.fraction == 1 and not average.dropped:
        return None
    exact = plan.gossip.steps == 1 and all(each.averages and each.keeps_mean for each in plan.weights)
    contested = any(part is not None for part in (plan.codec, plan.rule, plan.attack, plan.stop, plan.source))
    plain = not contested and not plan.protection.mode.traits.hides
    sized = workers == 1 or not average.weighted or average.mean_samples is not None
    lasting = not (simulated.loss or simulated.absence or plan.asynchronous)
    return average if exact and plain and sized and lasting else None


def _declares_round(algorithm: Algorithm) -> bool:
    """Return whether its traits describe its round: the class that declares them defines or inherits that round.

    A subclass that overrides the round and inherits the traits has not declared what its own round does.
    """

    def owner(name: str) -> type:
        return next((each for each in type(algorithm).__mro__ if name in vars(each)), object)

    return issubclass(owner("traits"), owner("round"))


MAX_LISTED = 20_000
"""Largest number of peers that all have records, results and a model, although most of them sit out."""


def recorded_average(plan: Plan, *, workers: int) -> Averaging | None:
    """Return the average whose participants alone have records, results and models; ``None`` where all peers have."""
    many = len(plan.topology.peers) > MAX_LISTED and workers == 1
    plain = not plan.validates and not plan.experiment.learning.consensus
    return sampled_average(plan, workers=workers) if many and plain else None


def cohorts_of(plan: Plan, state: State, *, shard: Shard) -> Cohorts | AllPeers:
    """Return the cohorts of a run whose peers take an exact average of a few; otherwise all peers."""
    average = sampled_average(plan, workers=shard.workers)
    return AllPeers(shard) if average is None else Cohorts(shard, average, state)
