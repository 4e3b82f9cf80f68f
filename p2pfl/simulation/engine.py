""":func:`simulate`, which runs an experiment on all rows at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import scipy.sparse
import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, AsyncLearner, State, Statistics, learn, start
from p2pfl.compression import Codec
from p2pfl.errors import BudgetError, InputError, PrivacyError
from p2pfl.experiment import Experiment, Plan, plan, read
from p2pfl.experiment.agreement import Agreement, reported
from p2pfl.experiment.composing import compose
from p2pfl.experiment.modes import Mode
from p2pfl.identity import SeededSource, Source
from p2pfl.learning import Learner, home
from p2pfl.neighbourhood import Neighbourhood, settled
from p2pfl.privacy import Masks, swarm_secrets
from p2pfl.process import keep_freed_memory, one_thread
from p2pfl.report import Record, Run
from p2pfl.report.model import described
from p2pfl.report.notices.masses import given
from p2pfl.report.spending.budget import check_accounted
from p2pfl.report.spending.meter import Meter
from p2pfl.report.summary import Durations, summarise
from p2pfl.robust import Attack, Rule
from p2pfl.simulation.asynchronous import AsynchronousNeighbourhood, Flight
from p2pfl.simulation.checkpoint import FILE, Checkpoint, Keeper, check_resumable, remaining
from p2pfl.simulation.checkpoint import after as checkpointed
from p2pfl.simulation.evaluating import Evaluator
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.mixing import Mixer
from p2pfl.simulation.placing import HOST, moved
from p2pfl.simulation.recording import records_of
from p2pfl.simulation.secagg import summing
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood, totalling


@one_thread()
def simulate(
    experiment: str | Path | Experiment | Mapping[str, Any] | Plan | Algorithm,
    learner: Learner | None = None,
    topology: graphs.Topology | graphs.Schedule | None = None,
    *,
    rounds: int = 10,
    seed: int = 0,
    privacy: Mode | None = None,
    codec: Codec | None = None,
    rule: Rule | None = None,
    attack: Attack | None = None,
    settings: Mapping[str, Any] | None = None,
    peers: int | None = None,
    folder: Path | None = None,
    resume: bool = False,
    source: Source | None = None,
    observe: Callable[[list[Record]], None] | None = None,
    baselines: bool = True,
    began: datetime | None = None,
    unaccounted: bool = False,
) -> Run:
    """Simulate an experiment.

    Torch uses one intra-op thread during the simulation, and the earlier number afterwards. On glibc the process keeps
    up to 128 MiB of freed memory from then on.

    Parameters
    ----------
    experiment
        Algorithm; or a file, name of a shipped experiment, table, an experiment already read, or its plan.
    learner, topology, rounds, seed, privacy, codec, rule, attack, settings
        The other parts of a run, if the first argument is an algorithm, see :func:`p2pfl.compose`.
    peers
        Number of peers in place of ``topology.peers``.
    folder
        Path of the run directory; in memory by default.
    resume
        Whether to go on with the run that was interrupted in ``folder``, after its last checkpoint.
    source
        Source of keys and private noise; derived from the seed of the experiment by default.
    observe
        Function called with the records of each round.
    baselines
        Whether to train every peer alone and one model on all data, for comparison.
    began
        Start of the run in UTC, for the summary; now by default.
    unaccounted
        Whether the run may stay outside of the privacy budget of its data, see
        :func:`p2pfl.report.spending.budget.check_accounted`. Models of a simulation reveal as much as those of live
        peers.

    Returns
    -------
    Run
        Run with ``metrics``, ``models``, ``summary`` and ``plot()``.

    Examples
    --------
    >>> run = simulate({"rounds": 2, "topology": {"kind": "complete", "peers": 4}})
    >>> run.summary["together"] > 0.1
    True

    The same without an experiment file:

    >>> from p2pfl.algorithms import FedAvg
    >>> from p2pfl.learning import TorchLearner
    >>> data = {peer: (torch.eye(4), torch.tensor([0, 1, 0, 1])) for peer in graphs.ring(4).peers}
    >>> learner = TorchLearner(torch.nn.Linear(4, 2), data, rate=0.5)
    >>> sorted(simulate(FedAvg(epochs=5), learner, graphs.ring(4), rounds=3, seed=7).models)
    ['peer0', 'peer1', 'peer2', 'peer3']
    """
    keep_freed_memory()
    changes = [] if peers is None else [f"topology.peers={peers}"]
    begun, began = time.perf_counter(), began or datetime.now(UTC)
    if isinstance(experiment, Plan):
        resolved = experiment
    elif isinstance(experiment, str | Path | Experiment | Mapping):
        resolved = plan(read(experiment, changes=changes))
    else:
        more: dict[str, Any] = {"privacy": privacy, "codec": codec, "rule": rule, "attack": attack}
        needed = _both(learner, topology)
        resolved = compose(experiment, *needed, rounds=rounds, seed=seed, settings=settings, **more)
    wanted = resolved.experiment
    source = source or SeededSource(wanted.seed)
    accounted = check_accounted(resolved, unaccounted=unaccounted)
    resolved = resolved.drawing(source)
    run, left = _resumed(resolved, folder) if resume else (Run(wanted, folder=folder, began=began), None)
    first = time.perf_counter()
    names = resolved.topology.peers
    sent = torch.zeros(len(names), dtype=torch.int64)
    agreed: dict[str, Any] = {"statistics": None, "common": None}
    scale: dict[str, torch.Tensor] = {}
    with Keeper(folder, clock=time.perf_counter) as keeper:
        with run:
            if wanted.data.scale:
                resolved, found = _open(resolved, sent=sent)
                agreed["statistics"], scale = reported(found), found.tensors()
            run.describe(described(resolved))
            evaluator = Evaluator(resolved)
            state, work, meter, final = _recorded(
                resolved, run, source, observe, evaluator, sent=sent, keeper=keeper, left=left
            )
            if wanted.learning.consensus:
                state, agreed["common"] = _close(resolved, state, round=run.metrics[-1].round + 1)
                final = evaluator.full(state.rows)
        last = time.perf_counter()
        state = moved(state, HOST)
        for index, name in enumerate(names):
            tensors = scale | {key: value[index] for key, value in state.tensors().items()}
            run.checkpoint(name, resolved.saved(state.rows[index]), tensors, round=run.metrics[-1].round)
        together = {name: evaluator.tested(found) for name, found in zip(names, final, strict=True)}
        seconds = Durations(
            start=first - begun, rounds=last - first, total=time.perf_counter() - begun, training=work.seconds
        )
        summary = summarise(
            resolved,
            together=together,
            records=run.metrics,
            seconds=seconds,
            agreed=agreed,
            stopped=meter.stopped(1 + max(record.round for record in run.metrics)),
            played=meter.samples.played,
            given=given(resolved, state, peers=names),
            baselines=baselines,
            accounted=accounted,
            gradients=work.steps,
            evaluation=None if evaluator.scope.full else evaluator.stated,
        )
        run.finish(summary)
    return run


def _resumed(resolved: Plan, folder: Path | None) -> tuple[Run, Checkpoint]:
    """Return the run in a folder and its checkpoint, with which it goes on."""
    check_resumable(resolved)
    if folder is None:
        raise InputError("a run that was kept in memory cannot be resumed; pass its folder")
    names = resolved.topology.peers
    left = Checkpoint.load(folder / FILE, peers=len(names), size=resolved.learner.layout.size)
    run = Run.resume(folder, first=dict.fromkeys(names, left.facts.round + 1))
    if run.experiment != resolved.experiment:
        raise InputError(f"{folder} holds another experiment; resume the one in its experiment.toml")
    return run, left


def _both(
    learner: Learner | None, topology: graphs.Topology | graphs.Schedule | None
) -> tuple[Learner, graphs.Topology | graphs.Schedule]:
    """Return the learner and the topology, both of which a run without an experiment file needs."""
    if learner is None or topology is None:
        raise InputError("an algorithm alone cannot be simulated; pass a learner and a topology beside it")
    return learner, topology


class Attending:
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

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of the peers that are present."""
        after = await self.algorithm.round(state, learner, net, round)
        present = self.present(round)  # [N]
        return after if bool(present.all()) else after.where(present, state)


def play(
    resolved: Plan,
    *,
    source: Source,
    rounds: range,
    faults: Faults,
    charge: Callable[..., None] | None = None,
    observe: Callable[[int, State, StackedNeighbourhood, Inline], None] | None = None,
    count: Callable[[int, list[bool]], None] | None = None,
    left: Checkpoint | None = None,
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
        Function called after each round.
    count
        Function as in :class:`Inline`.
    left
        Checkpoint with which to begin; the common start of all peers by default.

    Raises
    ------
    BudgetError
        The budget does not permit the first round.
    """
    settings, names, protection = resolved.experiment, resolved.topology.peers, resolved.protection
    masks = _masks(resolved, source) if resolved.masked else None
    end = rounds.stop
    if faults.slow:
        faults = replace(faults, cycles=rounds.stop)
        waits = (faults.turns(names, seed=settings.seed, round=0) < 0).any()  # some peer is slow
        end *= faults.pace if waits else 1
    if resolved.masked:
        adjacency = protection.graph.adjacency
        faults = replace(faults, partners=scipy.sparse.csr_array(adjacency + adjacency.T))
    neighbourhood = _neighbourhoods(resolved, faults=faults)

    def present(round: int) -> torch.Tensor:
        return faults.present(names, seed=settings.seed, round=round)  # [N]

    def turns(round: int) -> torch.Tensor:
        return faults.turns(names, seed=settings.seed, round=round)  # [N]

    own = turns if faults.slow else None
    learner = Inline(resolved.learner, present=present, clock=time.perf_counter, turns=own, count=count)
    first = _begun(resolved, learner, left)

    def hidden(net: StackedNeighbourhood, round: int) -> Neighbourhood:
        here = {name for name, there in zip(names, present(round).tolist(), strict=True) if there}
        whole = len(here) == len(names)
        among = masks if masks is None or whole else masks.among(here, least=protection.partners)
        # faults make sums reveal more than was checked, also of other rounds
        lossy = protection.sums is not None and faults != Faults()
        # late releases of slow peers were charged when the others made as many cycles
        paid = None if charge is None or round not in rounds else partial(charge, round, whole=whole and not lossy)
        hides = protection.mode.wrap(
            net, settings=protection.settings, masks=among, source=source, round=round, charge=paid
        )
        return resolved.contested(hides, round=round, told=net)

    last = None if left is None else first

    async def after(round: int, state: State, net: StackedNeighbourhood) -> None:
        nonlocal last
        last = state
        learner.check()
        if observe is not None:
            observe(round, state, net, learner)

    coroutine = learn(
        Attending(resolved.played, present=present),
        learner,
        first,
        rounds=range(rounds.start, end),
        neighbourhood=neighbourhood,
        private=hidden,
        observe=after,
        stop=resolved.stop,
    )
    try:
        state = settled(coroutine)
    except BudgetError:  # absent peers made rounds cost more; the releases of this one are counted
        if last is None:
            raise
        state = last
    return state, learner


def _begun(resolved: Plan, learner: Inline, left: Checkpoint | None) -> State:
    """Return the state with which the first round begins; a checkpoint's work is counted in."""
    state = start(resolved.learner, resolved.topology.peers) if left is None else left.state
    if left is not None:
        learner.steps, learner.seconds = left.facts.steps, left.facts.seconds
    return moved(state, home(resolved.learner))


def _neighbourhoods(resolved: Plan, *, faults: Faults) -> Callable[[int], StackedNeighbourhood]:
    """Return a function that makes the neighbourhood of each round."""
    if resolved.protection.sums is not None:
        return summing(resolved, faults=faults)
    seed, zstd, weights = resolved.experiment.seed, resolved.zstd, resolved.weights
    flight = Flight(weights, seed=seed, faults=faults) if resolved.asynchronous else None
    totals, mixer = totalling(resolved), Mixer(weights)

    def neighbourhood(round: int) -> StackedNeighbourhood:
        if flight is not None:
            return AsynchronousNeighbourhood(weights, round=round, seed=seed, faults=faults, flight=flight, zstd=zstd)
        how: dict[str, Any] = {"faults": faults, "zstd": zstd, "mixer": mixer, **totals}
        return StackedNeighbourhood(weights, round=round, seed=seed, **how)

    return neighbourhood


def _open(resolved: Plan, *, sent: torch.Tensor) -> tuple[Plan, Statistics]:
    """Agree on statistics before the first round; peers wait for each other, so there are no faults."""
    net = StackedNeighbourhood(resolved.weights, round=0, seed=resolved.experiment.seed, **totalling(resolved))
    scaled, found = settled(Agreement(resolved).open(net))
    sent.add_(net.bytes_out)
    return scaled, found


def _close(resolved: Plan, state: State, *, round: int) -> tuple[State, dict[str, float] | None]:
    """Agree on one final model, and on its score on the test data of all peers where it may be published."""
    agreement = Agreement(resolved)
    net = StackedNeighbourhood(resolved.weights, round=round, seed=resolved.experiment.seed, **totalling(resolved))
    state = settled(agreement.settle(net, state))
    scored = resolved.learner.evaluate(state.rows, peers=net.peers)
    if not scored or not agreement.scored:
        return state, None
    try:
        return state, settled(agreement.score(net, scored, agreement.tallies(state.rows, peers=net.peers)))
    except PrivacyError:  # live peers keep their scores as well, and report why
        return state, None


def _recorded(
    resolved: Plan,
    run: Run,
    source: Source,
    observe: Callable[[list[Record]], None] | None,
    evaluator: Evaluator,
    *,
    sent: torch.Tensor,
    keeper: Keeper,
    left: Checkpoint | None,
) -> tuple[State, Inline, Meter, list[dict[str, float]]]:
    """Play all rounds that the budget allows, after those of a checkpoint, and record them.

    Returns
    -------
    tuple
        The last state, the learner, the meter, and the scores of all peers after the last round.
    """
    names = resolved.topology.peers
    final: list[dict[str, float]] | None = None
    earlier = None if left is None else left.costs
    meter = Meter(resolved, names, run=f"{resolved.experiment.name} simulated", earlier=earlier)
    if left is not None:
        sent.copy_(left.sent)

    def record(round: int, state: State, net: StackedNeighbourhood, learner: Inline) -> None:
        nonlocal final
        sent.add_(net.bytes_out)
        whole = evaluator.scope.full or (round == rounds.stop - 1 and learner.turns is None)
        evaluated = evaluator.full(state.rows) if whole else evaluator.after(round, state.rows)
        final = evaluated if whole else None
        own = [round] * len(names) if learner.turns is None else learner.turns(round).tolist()
        records = records_of(own, state, net, learner, evaluated=evaluated, sent=sent, spent=meter.spent)
        run.record(records)
        keeper.keep(checkpointed(round, state, sent, work=learner, costs=meter.costs))
        if observe is not None and records:
            observe(records)

    wrong = resolved.experiment.simulation
    faults = Faults(wrong.loss, wrong.absence, delay=wrong.delay, slow=wrong.slow, pace=wrong.pace)
    rounds, charge = remaining(meter, left), meter.charge
    how: dict[str, Any] = {"charge": charge, "observe": record, "count": meter.samples.count}
    state, work = play(resolved, source=source, rounds=rounds, faults=faults, left=left, **how)
    keeper.end()
    if final is None:  # it stopped early, or slow peers end their rounds later
        final = evaluator.full(state.rows)
        run.rescore(dict(zip(names, final, strict=True)))
    return state, work, meter, final


def _masks(resolved: Plan, source: Source) -> Masks:
    graph, settings = resolved.protection.graph, resolved.protection.settings
    secrets = swarm_secrets(graph, source=source, run=resolved.experiment.name)
    return Masks(secrets, deviation=settings.mask, bits=settings.bits, topology=graph)
