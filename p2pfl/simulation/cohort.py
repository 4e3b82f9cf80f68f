"""The cohort of a round: the peers that a simulation computes one by one, and one that stands in for all others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch

from p2pfl.algorithms import Algorithm, AsyncLearner, Averaging, State, average_of
from p2pfl.core.codecs import Zstd
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Neighbourhood, Public, ReceivedModels, Released
from p2pfl.core.rows import Rows, alike, repeated, to_device
from p2pfl.experiment import Plan
from p2pfl.experiment.modes import Independent, NoPrivacy, Pairwise
from p2pfl.privacy import Settings
from p2pfl.privacy.keys import Source
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.own_state import apart_of, has_few_models, map_own, pick
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
    secret
        Whether it is a secret who is drawn.
    weight
        Sum of the sample weights of all peers of the run; by default their number.
    samples
        Argument of :class:`Cohorts`.

    Examples
    --------
    >>> cohort = Cohort(Shard(("ada", "bob", "cleo", "dan")), np.array([1]))
    >>> cohort.peers, cohort.others
    (('bob', 'ada'), 3)
    >>> cohort.spread(torch.tensor([7, 0])).tolist()
    [0, 7, 0, 0]
    """

    def __init__(
        self,
        shard: Shard,
        members: Ints,
        drawn: Ints | None = None,
        *,
        secret: bool = False,
        weight: float | None = None,
        samples: torch.Tensor | None = None,
    ) -> None:
        super().__init__(shard.everyone)
        self._samples = samples
        self.secret, self.weight = secret, len(shard.everyone) if weight is None else weight
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

    @cached_property
    def joined(self) -> torch.Tensor:
        """Peers of the cohort that are drawn for the round, ``[R]`` bool."""
        return torch.from_numpy(np.isin(self.places, self.drawn))

    @property
    def recorded(self) -> tuple[Ints, Ints]:
        """Numbers of the peers that have records of the round where not all have, and their rows.

        They are those that are drawn; and the first peer where that is secret.
        """
        if not self.secret:
            return self.drawn, np.searchsorted(self.members, self.drawn)
        return np.zeros(1, np.int64), np.flatnonzero(self.places == 0)

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

    def balanced(self, masses: torch.Tensor) -> torch.Tensor:
        """Return weights of the cohort, ``[R, 1]``, in which the stand-in has the mean weight of those that sit out.

        It has none where they have none.
        """
        count = len(self.members)
        if not self.secret and not float(masses[count:].sum()):
            return masses
        weight, masses = self.weight, masses.clone()
        if not self.secret:  # weights are samples in some unit, which that of the stand-in tells
            weight = float(masses[-1]) * len(self.everyone)
            if self._samples is not None:
                weight *= float(self._samples.double().mean()) / float(self._samples[self.places[-1]])
        members = torch.tensor([float(masses[:count].sum()), self.others], dtype=torch.float64)
        taken, others = self.shard.sums(members).tolist()
        masses[count:] = (weight - taken) / max(others, 1)
        return masses

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

    Attributes
    ----------
    margin
        Magnitude of the masks that would be in each number, in grid points.
    """

    def __init__(
        self, cohort: Cohort, weights: Sequence[Weights], *, round: int, seed: int, zstd: Zstd | None = None
    ) -> None:
        super().__init__(weights, round=round, seed=seed, zstd=zstd, shard=cohort)
        self.cohort, self.margin = cohort, 0.0

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release the rows without protection, those of the peers that sit out with their mean weight."""
        return await super().release(rows, since=since, masses=None if masses is None else self.cohort.balanced(masses))

    async def mix(self, released: Released) -> Released:
        """Replace every row by the average over all peers."""
        self._count(released)
        masses = released.masses
        after = Released(self.cohort.average(released.values), None if masses is None else self.cohort.average(masses))
        if released.grid is None:  # else the rows lack the noise and the masks that would hide how far they are
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
        self.count_bytes(sizes(released, zstd=self.zstd, margin=self.margin))
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

    def weigh(self, plan: Plan) -> Plan:
        """Return the plan of these peers: as it is."""
        return plan

    def trains(self, present: torch.Tensor) -> torch.Tensor:
        """Return which of the peers that are present may train, ``[N]`` bool: all."""
        return present

    def conceal(self, learner: Inline) -> None:
        """Keep what the learner shows of a round."""


@dataclass(frozen=True)
class SecretParticipation:
    """Participation that only the source knows: each peer with the same probability, in each round anew.

    Parameters
    ----------
    source
        Source of secrets.
    share
        The probability.
    weight
        Sum of the sample weights of all peers.
    divisor
        Number of samples that weighs one; ``None`` if all peers weigh the same.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> SecretParticipation(SeededSource(7), 0.5, 8.0, None).joined(tuple("abcdefgh"), round=0).nonzero().tolist()
    [[7]]
    """

    source: Source
    share: float
    weight: float
    divisor: float | None

    @classmethod
    def of(cls, plan: Plan, average: Averaging, *, source: Source) -> Self | None:
        """Return that of a plan; ``None`` where nobody takes part in secret."""
        share, peers = plan.protection.settings.participation, plan.topology.peers
        if share == 1:
            return None
        if not average.weighted:
            return cls(source, share, float(len(peers)), None)
        samples = plan.learner.samples(peers).double()
        divisor = average.mean_samples or float(samples.max())  # as live peers flood it
        return cls(source, share, float(samples.sum()) / divisor, divisor)

    def joined(self, peers: Sequence[str], *, round: int) -> torch.Tensor:
        """Return which of all peers take part in a round, ``[N]`` bool."""
        words = self.source.bytes(8 * len(peers), purpose="participation of a cohort", peer=peers[0], round=round)
        return torch.from_numpy(np.frombuffer(words, "<u8") < np.uint64(int(self.share * 2**64)))


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
    secret
        Who takes part in secret; ``None`` where the seed decides.
    samples
        Number of samples of each peer, by which averages weigh them, ``[N]``; ``None`` if all peers weigh the same.
    sparse
        Whether the models, too, are those of the peers apart and one other, see
        :func:`p2pfl.simulation.own_state.models_of`.

    Attributes
    ----------
    apart
        Numbers of the peers whose state differs from that of the others, among those of the shard.
    current
        Cohort of the round.
    """

    def __init__(
        self,
        shard: Shard,
        average: Averaging,
        state: State,
        *,
        secret: SecretParticipation | None = None,
        samples: torch.Tensor | None = None,
        sparse: bool = False,
    ) -> None:
        self.shard, self.average, self.secret, self.sparse = shard, average, secret, sparse
        equal, apart = all(map(repeated, (state.rows, *state.tensors().values()))), apart_of(state)
        self.apart = np.arange(0 if equal else len(shard.peers)) if apart is None else apart
        self._samples = samples
        self.current: Shard = shard
        self._numbers = {peer: number for number, peer in enumerate(shard.peers)} if shard.workers > 1 else None

    def open(self, round: int) -> Cohort:
        """Return the cohort of a round."""
        if self.secret is not None:
            there = self.shard.own(self.secret.joined(self.shard.everyone, round=round))  # the same in every process
            joined = np.flatnonzero(there.numpy())
            members, weight = self._members(joined), self.secret.weight
            self.cohort = self.current = Cohort(self.shard, members, joined, secret=True, weight=weight)
            return self.cohort
        drawn = self.average.drawn(round)
        if drawn is None:
            drawn = np.arange(len(self.shard.peers))
        elif self._numbers is not None:
            names = (self.average.peers[number] for number in drawn)
            drawn = np.array([self._numbers[name] for name in names if name in self._numbers], np.int64)
        members = self._members(drawn)
        self.cohort = self.current = Cohort(self.shard, members, np.sort(drawn), samples=self._samples)
        return self.current

    def _members(self, drawn: Ints) -> Ints:
        """Return the peers that are computed one by one, at least one, sorted: those drawn, and those apart."""
        members = np.union1d(drawn, self.apart)
        return members if len(members) else np.zeros(1, np.int64)

    def play(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm of all peers that computes the cohort of each round alone."""
        return CohortAlgorithm(algorithm, self)

    def trains(self, present: torch.Tensor) -> torch.Tensor:
        """Return which of the peers that are present may train, ``[R]`` bool: those that take part in secret."""
        return present if self.secret is None else present & self.cohort.joined

    def conceal(self, learner: Inline) -> None:
        """Delete what the learner shows of who has trained in a round, where that is secret."""
        if self.secret is not None:
            learner.update = None

    def weigh(self, plan: Plan) -> Plan:
        """Return the plan with weights that do not depend on who is in a secret cohort."""
        if self.secret is None or self.secret.divisor is None:
            return plan
        settings: Any = plan.algorithm  # a dataclass, as it has an average that a run has filled in
        return replace(
            plan, algorithm=replace(settings, average=replace(self.average, mean_samples=self.secret.divisor))
        )

    def select(self, state: State) -> State:
        """Return the state of the cohort before a round, out of that of all peers."""
        apart, places = apart_of(state), self.cohort.places
        if apart is None:
            return state.map(self.cohort.select)
        own = map_own(state, lambda values: pick(values, apart, places))
        packed = has_few_models(state)
        whole = replace(state, rows=state.public.rows if packed else state.rows, extra={}, memory=None)
        whole = whole.map(self.cohort.select)
        rows = pick(state.rows, apart, places) if packed else whole.rows
        return replace(whole, rows=rows, extra=own.extra, memory=own.memory)

    def spread(self, state: State) -> State:
        """Return the state of all peers after a round, out of that of the cohort, whose report it keeps.

        Of what algorithm and optimiser keep, and of the models where these are sparse, a process that has all peers
        keeps rows of those apart, and one other.
        """
        cohort, tensors = self.cohort, (state.rows, *state.tensors().values())
        differ = np.zeros(len(cohort.places), bool)
        for values in tensors:
            if not alike(values):
                differ |= (values != values[-1]).flatten(1).any(1).cpu().numpy() if cohort.others else True
        self.apart = cohort.places[differ]
        if self.shard.workers > 1 or not 0 < len(self.apart) < len(self.shard.peers) - 1:
            return state.map(cohort.spread)
        places = np.flatnonzero(differ)
        kept = torch.from_numpy(np.append(places, len(differ) - 1) if cohort.others else places)
        own = map_own(state, lambda values: _few(values, kept), apart=self.apart)
        packed = self.sparse and not alike(state.rows)
        whole = replace(state, rows=state.public.rows if packed else state.rows, extra={}, memory=None)
        whole = whole.map(cohort.spread)
        rows = _few(state.rows, kept) if packed else whole.rows
        return replace(whole, rows=rows, extra=own.extra, memory=own.memory)


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
        if self.cohorts.cohort.secret:
            after = replace(after, report=None)  # it shows who has trained
        return self.cohorts.spread(after)


def _few(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return some rows, which are one in memory where all are equal."""
    if alike(values):
        return values[:1].expand(len(rows), *values.shape[1:])
    return values[to_device(rows, values.device)]


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
    hidden = plan.protection.settings if plan.asked.mode.hides else Settings()
    public, secret = average.partial, hidden.participation < 1
    if public == secret or (secret and (traits.needs_plain_averages or traits.personal)):
        return None  # personal models show who takes part in secret
    exact = plan.gossip.steps == 1 and all(each.averages and each.keeps_mean for each in plan.weights)
    contested = any(part is not None for part in (plan.rule, plan.attack, plan.stop, plan.source))
    if plan.codec is not None:  # whose losses a peer keeps until it gets a whole average
        contested |= hidden.hidden or plan.asked.codec is None or not plan.asked.codec.alike
    contested |= hidden.hidden and plan.zstd is not None  # the size of a compressed row depends on its masks
    drawn = secret or hidden.noise > 0  # once for all peers, so that what repeats would be other numbers
    contested |= hidden.hidden and (workers > 1 or (drawn and not plan.protection.secret))
    plain = not contested and type(plan.protection.mode) in {NoPrivacy, Independent, Pairwise}
    sized = workers == 1 or not average.weighted or average.mean_samples is not None
    if traits.idle_weighs:  # by a weight that the stand-in tells, from the numbers of samples at the beginning
        if average.weighted and plan.experiment.data.refresh is not None:
            return None
        samples = plan.learner.samples(plan.topology.peers) if average.weighted else torch.ones(1)
        sized = workers == 1 and bool((samples > 0).all())
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


def cohort_size(plan: Plan, average: Averaging) -> int:
    """Return how many peers a round computes in the mean: the cohort, and one for all others."""
    return 1 + (math.ceil(average.invites * plan.protection.settings.participation))


def cohorts_of(plan: Plan, state: State, *, shard: Shard, source: Source, sparse: bool = False) -> Cohorts | AllPeers:
    """Return the cohorts of a run whose peers take an exact average of a few; otherwise all peers.

    Parameters
    ----------
    plan, source
        Plan and source of the run.
    state, shard, sparse
        Arguments of :class:`Cohorts`.
    """
    average = sampled_average(plan, workers=shard.workers)
    if average is None:
        return AllPeers(shard)
    samples = plan.learner.samples(shard.peers) if average.weighted and shard.workers == 1 else None
    secret = SecretParticipation.of(plan, average, source=source)
    return Cohorts(shard, average, state, secret=secret, samples=samples, sparse=sparse)
