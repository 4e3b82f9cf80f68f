"""Rounds of a simulation."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import scipy.sparse
import torch

from p2pfl.algorithms import Algorithm, AsyncLearner, ReadingAlgorithm, State, learn, start
from p2pfl.core.errors import BudgetError
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.rows import held_once
from p2pfl.experiment import Plan
from p2pfl.learning import Learner, home
from p2pfl.privacy import Masks, swarm_secrets
from p2pfl.privacy.keys import Source
from p2pfl.simulation.asynchronous import AsynchronousStackedNeighbourhood, Flight
from p2pfl.simulation.cohort import AllPeers, Cohort, CohortNeighbourhood, Cohorts, cohorts_of
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.mixing import Mixer
from p2pfl.simulation.private_cohort import PrivateCohort
from p2pfl.simulation.round_records import move_state
from p2pfl.simulation.secagg import sum_neighbourhoods
from p2pfl.simulation.sharding import Shard
from p2pfl.simulation.simulation_checkpoint import SimulationCheckpoint
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood, total_arguments


class AttendanceAlgorithm:
    """Algorithm that leaves the state of absent peers unchanged.

    Parameters
    ----------
    algorithm
        Algorithm of the peers that are present.
    present
        Function that returns the peers present in a round, ``[N]`` bool.
    """

    def __init__(self, algorithm: Algorithm, *, present: Callable[[int], torch.Tensor]) -> None:
        self.algorithm = algorithm
        self.present = present

    def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> Coroutine[Any, Any, State]:
        """Run one round of the peers that are present."""
        present = self.present(round)  # [N]
        if bool(present.all()):  # nothing here holds the state, so the algorithm can free it
            return self.algorithm.round(state, learner, net, round)
        return self._partly(present, state, learner, net, round)

    async def _partly(
        self, present: torch.Tensor, state: State, learner: AsyncLearner, net: Neighbourhood, round: int
    ) -> State:
        return (await self.algorithm.round(state, learner, net, round)).where(present, state)


async def play_rounds(
    resolved: Plan,
    *,
    source: Source,
    rounds: range,
    faults: Faults,
    charge: Callable[..., None] | None = None,
    observe: Callable[[int, State, StackedNeighbourhood, Inline], Awaitable[None]] | None = None,
    count: Callable[[list[int]], None] | None = None,
    left: SimulationCheckpoint | None = None,
    shard: Shard | None = None,
    judge: Callable[[int, State], Awaitable[torch.Tensor]] | None = None,
    read: Callable[[int, State], Learner] | None = None,
    sparse: bool = False,
) -> tuple[State, Inline]:
    """Run the rounds until the budget is spent; return the last state, and the learner, which counts its work.

    Parameters
    ----------
    resolved, source
        Plan and source as in :func:`simulate`.
    rounds, faults
        Rounds to run, and their faults.
    charge
        Function ``charge(round, whole=...)`` called before each release; whole if all peers are present.
    observe
        Coroutine function that is awaited after each round.
    count
        Function as in :class:`Inline`.
    left
        Checkpoint with which to begin; the common start of all peers by default.
    shard
        Peers that this process simulates; all of them by default.
    judge
        Coroutine function as in :func:`p2pfl.algorithms.learn`.
    read
        Function of each round and the state before it that returns the learner on the data of the round, where these
        are read again.
    sparse
        Argument of :class:`p2pfl.simulation.cohort.Cohorts`.

    Raises
    ------
    BudgetError
        The budget does not permit the first round.
    """
    settings, names, protection = resolved.experiment, resolved.topology.peers, resolved.protection
    shard = shard or Shard(names)
    faults, end = _limit_faults(resolved, faults, rounds, left)
    neighbourhood = _neighbourhoods(resolved, faults=faults)

    cohorts: Cohorts | AllPeers

    def everyone(round: int) -> torch.Tensor:
        return faults.present(names, seed=settings.seed, round=round)  # [N]

    def present(round: int) -> torch.Tensor:
        return cohorts.current.own(everyone(round))  # [R]

    def turns(round: int) -> torch.Tensor:
        return shard.own(faults.turns(names, seed=settings.seed, round=round))  # [R]

    def opened(round: int) -> StackedNeighbourhood:
        net = neighbourhood(round, cohorts.open(round))
        net.postponed = []
        return net

    own = turns if faults.slow else None
    trains = lambda round: cohorts.trains(present(round))  # noqa: E731 (a statement of its own)
    learner = Inline(resolved.learner, present=trains, clock=time.perf_counter, turns=own, count=count, shard=shard)
    first = _begun(resolved, learner, left, shard)
    cohorts = cohorts_of(resolved, first, shard=shard, source=source, sparse=sparse)
    masks = _masks(resolved, source, cohorts)

    def hidden(net: StackedNeighbourhood, round: int) -> Neighbourhood:
        there = everyone(round)  # [N]
        whole = bool(there.all())
        among = masks if whole else _masks_among(masks, names, there, least=protection.partners)
        # faults make sums reveal more than was checked, also of other rounds
        lossy = protection.sums is not None and faults != Faults()
        # late releases of slow peers were charged when the others made as many cycles
        paid = None if charge is None or round not in rounds else partial(charge, round, whole=whole and not lossy)
        wrap = partial(PrivateCohort.over, protection.mode)
        hides = wrap(net, settings=protection.settings, masks=among, source=source, round=round, charge=paid)
        return resolved.contested(hides, round=round, observer=net, together=names, sums=shard.sums)

    last = first if left is not None and protection.claimed else None
    handed = [first]
    del first

    async def after(round: int, state: State, net: StackedNeighbourhood) -> None:
        nonlocal last
        last = state if protection.claimed else None
        learner.check()
        net.check()
        cohorts.conceal(learner)
        if observe is not None:
            await observe(round, state, net, learner)

    played = cohorts.play(AttendanceAlgorithm(cohorts.weigh(resolved).played, present=present))
    coroutine = learn(
        _reading(played, learner, read),
        learner,
        handed.pop(),
        rounds=range(rounds.start, end),
        neighbourhood=opened,
        private=hidden,
        observe=after,
        stop=resolved.stop,
        judge=judge,
    )
    try:
        state = await coroutine
    except BudgetError:  # absent peers made rounds cost more; the releases of this one are counted
        if last is None:
            raise
        state = last
    return state, learner


def _reading(algorithm: Algorithm, learner: Inline, read: Callable[[int, State], Learner] | None) -> Algorithm:
    """Return the algorithm, before each round of which the data are read again, if they are."""

    async def again(round: int, state: State) -> None:
        if read is not None:
            learner.learner = read(round, state)

    return algorithm if read is None else ReadingAlgorithm(algorithm, again)


def _limit_faults(
    resolved: Plan, faults: Faults, rounds: range, left: SimulationCheckpoint | None
) -> tuple[Faults, int]:
    """Return the faults with the limits of a plan, and the round after the last one, in which slow peers end theirs."""
    end = rounds.stop
    if faults.slow:
        faults = replace(faults, cycles=rounds.stop)
        seed = resolved.experiment.seed
        waits = (faults.turns(resolved.topology.peers, seed=seed, round=0) < 0).any()  # some peer is slow
        end *= faults.pace if waits else 1
    if resolved.masked and (faults.absence or faults.slow):
        adjacency = resolved.protection.graph.adjacency
        faults = replace(faults, partners=scipy.sparse.csr_array(adjacency + adjacency.T))
    return faults, rounds.start if left is not None and left.facts.ended else end


def _begun(resolved: Plan, learner: Inline, left: SimulationCheckpoint | None, shard: Shard) -> State:
    """Return the state with which the first round begins; a checkpoint's work is counted in."""
    state = start(resolved.learner, shard.peers) if left is None else left.state
    if left is not None:
        learner.steps, learner.seconds = left.facts.steps, left.facts.seconds
    return move_state(state.map(held_once), home(resolved.learner))


def _neighbourhoods(resolved: Plan, *, faults: Faults) -> Callable[[int, Shard], StackedNeighbourhood]:
    """Return a function that makes the neighbourhood of each round, of some peers."""
    if resolved.protection.sums is not None:
        return sum_neighbourhoods(resolved, faults=faults)
    seed, zstd, weights = resolved.experiment.seed, resolved.zstd, resolved.weights
    flight = Flight(weights, seed=seed, faults=faults) if resolved.asynchronous else None
    totals, mixer = total_arguments(resolved), Mixer(weights)

    def neighbourhood(round: int, shard: Shard) -> StackedNeighbourhood:
        if isinstance(shard, Cohort):
            return CohortNeighbourhood(shard, weights, round=round, seed=seed, zstd=zstd)
        if flight is not None:
            return AsynchronousStackedNeighbourhood(
                weights, round=round, seed=seed, faults=faults, flight=flight, zstd=zstd
            )
        return StackedNeighbourhood(
            weights, round=round, seed=seed, faults=faults, zstd=zstd, mixer=mixer, shard=shard, **totals
        )

    return neighbourhood


def _masks_among(masks: Masks | None, names: Sequence[str], present: torch.Tensor, *, least: int) -> Masks | None:
    """Return the masks of the peers that are present, ``[N]`` bool."""
    return None if masks is None else masks.among({*compress(names, present.tolist())}, least=least)


def _masks(resolved: Plan, source: Source, cohorts: Cohorts | AllPeers) -> Masks | None:
    """Return the masks of all peers; ``None`` without any, and of cohorts, in whose sum they cancel."""
    if not resolved.masked or isinstance(cohorts, Cohorts):
        return None
    graph, settings = resolved.protection.graph, resolved.protection.settings
    secrets = swarm_secrets(graph, source=source, run=resolved.experiment.name)
    return Masks(secrets, deviation=settings.mask, bits=settings.bits, topology=graph)
