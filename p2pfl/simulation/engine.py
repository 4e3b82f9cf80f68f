""":func:`simulate`, which runs an experiment on all rows at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, State, Statistics, average_of
from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.core.process import keep_freed_memory, one_thread
from p2pfl.data import Federation
from p2pfl.data.federation import standardise
from p2pfl.experiment import Experiment, Plan
from p2pfl.experiment.composing import RunParts, wanted_experiment
from p2pfl.experiment.growing_data import GrowingData
from p2pfl.experiment.resolving import federate_data
from p2pfl.experiment.swarm_agreement import PeersAgreement, report_statistics
from p2pfl.learning import Learner
from p2pfl.learning.learner import KeepsModels, KeepsPrivate
from p2pfl.privacy.keys import Source
from p2pfl.results import Record, Run
from p2pfl.results.content import BestKept
from p2pfl.results.models.model_description import describe_file, describe_model, metadata
from p2pfl.results.progress import show_progress
from p2pfl.results.repetitions.digests import digests
from p2pfl.results.saved_models import best_file
from p2pfl.results.spending.ledger import check_runs, record_runs
from p2pfl.results.spending.meter import Meter
from p2pfl.results.summary import Durations, summarise
from p2pfl.simulation.best_models import BestModels, judge_of
from p2pfl.simulation.cohort import recorded_average, sampled_average
from p2pfl.simulation.data_reading import DataReader, check_resumption
from p2pfl.simulation.evaluation_size import Evaluator, RoundScores, Scores, train_apart
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.memory_estimate import check_memory, memory_errors
from p2pfl.simulation.playing import play_rounds
from p2pfl.simulation.round_records import HOST, RecordedPeers, SentBytes, move_state, records_of
from p2pfl.simulation.sharding import Shard
from p2pfl.simulation.sharding.group import WorkerGroup
from p2pfl.simulation.sharding.shared_checkpoint import keeper_of, open_run
from p2pfl.simulation.sharding.workers import RunOptions, divide_plan, shard_simulation, source_of
from p2pfl.simulation.simulation_checkpoint import (
    CheckpointKeeper,
    SimulationCheckpoint,
    digest_trace,
    remaining_rounds,
)
from p2pfl.simulation.simulation_checkpoint import after as checkpointed
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood, total_arguments

WRITTEN = 32 * 2**20
"""Bytes of the parameters of models that are written together."""


@memory_errors()
@one_thread()
def simulate(
    experiment: str | Path | Experiment | Mapping[str, Any] | Plan | Algorithm,
    learner: Learner | None = None,
    topology: graphs.Topology | graphs.Schedule | graphs.NetworkxGraph | None = None,
    *,
    peers: int | None = None,
    folder: Path | Callable[[Plan], Path] | None = None,
    resume: bool = False,
    source: Source | None = None,
    observe: Callable[[list[Record]], None] | None = None,
    progress: bool = False,
    baselines: bool = True,
    began: datetime | None = None,
    unaccounted: bool = False,
    workers: int = 1,
    **parts: Unpack[RunParts],
) -> Run:
    """Simulate an experiment.

    Torch uses one intra-op thread during the simulation, and the earlier number afterwards. On glibc the process keeps
    up to 128 MiB of freed memory from then on.

    Parameters
    ----------
    experiment
        Algorithm; or a file, name of a shipped experiment, table, an experiment already read, or its plan.
    learner, topology
        The other parts of a run, if the first argument is an algorithm.
    peers
        Number of peers in place of ``topology.peers`` of a file or table.
    folder
        Path of the run directory, or a function that returns it once the run is planned; in memory by default.
    resume
        Whether to go on with the run that was interrupted in ``folder``, after its last checkpoint.
    source
        Source of keys and private noise. By default they come from the operating system wherever a guarantee rests
        on them, and follow from the seed of the experiment elsewhere. With a source that can be computed again, such
        as ``SeededSource(7)``, the models repeat to the last bit, and the run states no epsilon. Workers receive a
        copy each, which must return the same bytes.
    observe
        Function called with the records of each round.
    progress
        Whether to draw a bar of the rounds, in a terminal or under the cell of a notebook.
    baselines
        Whether to train every peer alone and one model on all data, for comparison.
    began
        Start of the run in UTC, for the summary; now by default.
    unaccounted
        Whether the run may stay outside of the privacy budget of its data, see
        :func:`p2pfl.experiment.accounts.admitted`. Models of a simulation reveal as much as those of live peers. A plan
        has passed already.
    workers
        Number of processes that share the peers on this machine. In a process that torchrun started, its processes
        share them, and this argument stays 1.
    **parts
        ``rounds``, ``seed``, ``privacy``, ``codec``, ``rule``, ``attack`` and ``settings`` of :func:`p2pfl.compose`, if
        the first argument is an algorithm.

    Returns
    -------
    Run
        Run with ``metrics``, ``models``, ``summary`` and ``plot()``; without these in workers that do not lead.

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
    first, began = time.perf_counter(), began or datetime.now(UTC)
    made = wanted_experiment(experiment, learner, topology, peers=peers, parts=parts)
    if isinstance(made, partial):
        made = made(unaccounted=unaccounted)
    options, begun = RunOptions(baselines, resume, source), RunStart(first, began)
    with shard_simulation(made, workers=workers, follow=follow, options=options, unaccounted=unaccounted) as (
        planned,
        shard,
    ):
        drawn = source_of(planned, shard, source)
        resolved = planned.drawing(drawn, unaccounted=unaccounted)
        simulated = partial(simulate_part, resolved, shard, source=drawn)
        if not shard.leads:
            return run_without_loop(simulated(begun=begun, baselines=baselines, resume=resume))
        if baselines and resolved.federation.lazy:
            raise InputError(
                "the samples of clients are loaded where they train, and baselines train on those of all; leave the "
                "baselines out (baselines=False)"
            )
        check_runs(resolved, shard.peers, now=began)
        check_memory(resolved, workers=workers, peers=len(shard.peers), baselines=baselines)
        run_folder = folder(resolved) if callable(folder) else folder
        with show_progress(observe, rounds=resolved.experiment.horizon, wanted=progress) as seen:
            return run_without_loop(
                simulated(begun=begun, baselines=baselines, resume=resume, folder=run_folder, observe=seen)
            )


@memory_errors()
def follow(experiment: Experiment, group: WorkerGroup, options: RunOptions) -> None:
    """Simulate the peers of one worker that does not lead."""
    keep_freed_memory()
    with one_thread():
        begun = RunStart(time.perf_counter(), datetime.now(UTC))
        resolved, shard = divide_plan(experiment, group)
        source = source_of(resolved, shard, options.source)
        run_without_loop(
            simulate_part(
                resolved, shard, begun=begun, source=source, baselines=options.baselines, resume=options.resume
            )
        )


@dataclass(frozen=True)
class RunStart:
    """Start of a run.

    Attributes
    ----------
    clock, began
        When it was, by the clock of durations and in UTC.
    """

    clock: float
    began: datetime


async def simulate_part(
    resolved: Plan,
    shard: Shard,
    *,
    source: Source,
    begun: RunStart,
    baselines: bool,
    resume: bool,
    folder: Path | None = None,
    observe: Callable[[list[Record]], None] | None = None,
) -> Run:
    """Simulate the peers of one process.

    Parameters
    ----------
    resolved
        Plan of all peers.
    shard
        Peers of this process.
    source, baselines, resume, folder, observe
        Arguments of :func:`simulate`; the last two where this process leads.
    begun
        Start of the run.

    Returns
    -------
    Run
        The run, which is complete where this process leads.
    """
    wanted = resolved.experiment
    resolved = resolved.drawing(source)
    names = shard.everyone
    sent = SentBytes.none(len(shard.peers))
    agreed: dict[str, Any] = {"statistics": None, "common": None}
    statistics: Statistics | None = None
    with (
        open_run(resolved, shard, folder=folder, resume=resume, began=begun.began) as (run, left),
        keeper_of(shard, None if resolved.asynchronous else folder, clock=time.perf_counter) as keeper,
    ):
        if run.folder is not None and not resolved.claims:  # a digest lets others test a guess at a peer's samples
            run.note_data(digests(resolved.federation))
        first = time.perf_counter()
        if left is not None:
            check_resumption(wanted)
            resolved = resolved.continuing(secret=left.facts.secret)
        data = GrowingData.of(resolved, shard.peers)
        if wanted.data.scale:
            record_runs(resolved, shard.peers, now=begun.began)
            resolved, statistics = open_statistics(resolved, shard, sent=sent)
            agreed["statistics"] = report_statistics(statistics)
        run.describe(describe_model(resolved))
        evaluator = Evaluator(resolved, shard)
        data = data.scaled(resolved, statistics)
        state, work, meter, scored, best = await _play(
            resolved,
            shard,
            run,
            source=source,
            observe=observe,
            evaluator=evaluator,
            data=data,
            sent=sent,
            keeper=keeper,
            left=left,
            began=begun.began,
        )
        resolved = evaluator.plan  # on the data that were read last
        final, listed = scored.end(state), scored.listed
        ended = int(shard.shared(run.metrics[-1].round if shard.leads else 0))
        if wanted.learning.consensus:
            state, agreed["common"] = close_run(resolved, shard, state, round=ended + 1)
            final = evaluator.full(state.rows)
        last = time.perf_counter()
        _write_models(resolved, shard, run, move_state(state, HOST), listed, round=ended)
        kept = None if best is None else _write_best(resolved, shard, run, best)
        with_scores = names if listed.numbers is None else listed.peers
        together = dict(zip(with_scores, shard.collect(final, Scores), strict=False))
        steps, training = shard.sums(torch.tensor([work.steps]))[0], work.seconds
        apart, workers = partial(train_apart, shard), shard.workers_done(training)
        if meter is None:  # this process does not lead
            if baselines and final[0]:
                apart(resolved.learner, shard.peers, rounds=ended + 1)
            return run
        seconds = Durations(
            start=first - begun.clock, rounds=last - first, total=time.perf_counter() - begun.clock, training=training
        )
        summary = summarise(
            resolved,
            together={name: evaluator.test_scores(scores) for name, scores in together.items()},
            records=run.metrics,
            seconds=seconds,
            agreed=agreed,
            stopped=meter.stopped(1 + max(record.round for record in run.metrics)),
            played=meter.samples.played,
            baselines=baselines,
            everyone=lambda: everyone(resolved, statistics),
            gradients=None if _hides_steps(resolved, shard) else int(steps),
            best=kept,
            evaluation=scored.stated,
            apart=apart,
            workers=workers,
            registered=len(names),
            sent=None if listed.numbers is None else int(sent.each.sum()),
            models=lambda: dict(zip(listed.peers, listed.models(move_state(state, HOST)), strict=True)),
        )
        run.finish(summary)
    return run


def _hides_steps(resolved: Plan, shard: Shard) -> bool:
    """Return whether only those trained who take part in secret, so that the number of steps says how many did."""
    secret = resolved.protection.settings.participation < 1
    return secret and sampled_average(resolved, workers=shard.workers) is not None


def _write_models(resolved: Plan, shard: Shard, run: Run, state: State, listed: RecordedPeers, *, round: int) -> None:
    """Write the models of the listed peers; those that are all the same are once in memory."""
    common: dict[str, torch.Tensor] = {}
    bare = resolved.learner.bare
    one = shard.alike(state.rows) and not isinstance(bare, KeepsModels)  # in all processes
    usual = None if isinstance(bare, KeepsPrivate) else metadata(describe_model(resolved))  # of all files

    def saved(row: torch.Tensor, peer: str) -> dict[str, torch.Tensor]:
        if not one:
            return resolved.saved(row, peer=peer)
        if not common:
            common.update(resolved.saved(row, peer=peer))
        return dict(common)

    height = max(1, WRITTEN // max(1, state.rows[:1].nbytes))
    blocks = shard.blocks({"rows": state.rows})
    if listed.numbers is not None:
        blocks = iter([(listed.numbers.numpy(), {"rows": listed.models(state)})])
    for numbers, tensors in blocks:
        for low in range(0, len(numbers), height):
            names = [shard.everyone[number] for number in numbers[low : low + height].tolist()]
            rows = dict(zip(names, tensors["rows"][low : low + height], strict=True))
            owned = {peer: resolved.owned(row, peer=peer) for peer, row in rows.items()}
            run.save(
                {peer: saved(row, peer) for peer, row in rows.items()},
                round=round,
                own={peer: model for peer, model in owned.items() if model},
                about={peer: usual or metadata(describe_file(resolved, peer)) for peer in rows},
            )


def _write_best(resolved: Plan, shard: Shard, run: Run, best: BestModels) -> dict[str, BestKept]:
    """Write the best model of every peer; return what the summary lists of them."""
    models: dict[str, BestKept] = {}
    tensors = {"rows": best.rows, "losses": best.losses, "rounds": best.rounds}
    for numbers, block in shard.blocks(tensors):
        rounds, losses = block["rounds"].tolist(), block["losses"].tolist()
        for index, number in enumerate(numbers.tolist()):
            if rounds[index] < 0:
                continue
            name = shard.everyone[number]
            models[name] = BestKept(rounds[index], losses[index], "validation", best_file(name))
            run.save_best(name, resolved.saved(block["rows"][index], peer=name), models[name])
    return models


async def _play(
    resolved: Plan,
    shard: Shard,
    run: Run,
    *,
    source: Source,
    observe: Callable[[list[Record]], None] | None,
    evaluator: Evaluator,
    data: GrowingData,
    sent: SentBytes,
    keeper: CheckpointKeeper,
    left: SimulationCheckpoint | None,
    began: datetime,
) -> tuple[State, Inline, Meter | None, RoundScores, BestModels | None]:
    """Play all rounds that the budget allows, after those of a checkpoint, and record them.

    Returns
    -------
    tuple
        The last state, the learner, the meter of the process that leads, the scores of peers after the last round, and
        their best models, if they judge them.
    """
    names, claimed, secret = shard.everyone, resolved.protection.claimed, resolved.protection.secret
    meter = None
    if shard.leads:
        meter = Meter(
            resolved,
            names,
            run=f"{resolved.experiment.name} simulated",
            earlier=None if left is None else left.costs,
            sampled=None if left is None else left.sampled,
            more=left is None,
        )
    if not resolved.experiment.data.scale:  # then it is recorded already
        record_runs(resolved, shard.peers, now=began)
    if left is not None:
        sent.each = left.sent

    def charge(round: int, *, whole: bool) -> None:
        if claimed:
            shard.lead(lambda: None if meter is None else meter.charge(round, whole=whole))

    def count(own: list[int]) -> None:
        """Count the steps of DP-SGD of all peers in their own rounds, before anything that depends on them leaves."""
        trained = shard.collect(own, int)
        shard.lead(lambda: None if meter is None else meter.samples.count_turns(trained))

    judge = judge_of(resolved, shard, evaluator, begun=None if left is None else left.best)

    trace = digest_trace(average_of(resolved.algorithm))
    faults = Faults.of(resolved.experiment.simulation, asynchronous=resolved.asynchronous)
    own = range(0) if meter is None else remaining_rounds(meter, left)
    rounds = range(int(shard.shared(own.start)), int(shard.shared(own.stop)))
    reader = DataReader(data, evaluator, meter=meter, run=run, judge=judge, first=rounds.start)
    few = recorded_average(resolved, workers=shard.workers)
    scored = RoundScores(evaluator, shard, average=few, first=rounds.start)

    async def record(round: int, state: State, net: StackedNeighbourhood, learner: Inline) -> None:
        sent.add(net.shard.spread(net.bytes_out))
        last = round == rounds.stop - 1 and learner.turns is None
        evaluated = scored.after(round, state, net.shard, last=last)
        own = [round] * len(scored.listed.peers) if learner.turns is None else learner.turns(round).tolist()
        judge.record(state.rows, evaluated, rounds=own)
        spent = shard.shared((meter and meter.spent) or 0.0) if claimed and secret else None
        scores = reader.average.scores(round, state, whole=last)
        mine = records_of(
            own,
            state,
            net,
            learner,
            shard=shard,
            listed=scored.listed,
            evaluated=evaluated,
            sent=sent.each,
            mean_model=scores,
            spent=spent,
            average=average_of(resolved.algorithm),
        )
        records = [record for each in shard.collect(mine, list[Record]) for record in each]
        run.record(records)
        keeper.keep(
            checkpointed(
                round,
                state,
                sent.each,
                costs={} if meter is None else meter.costs,
                sampled={} if meter is None else meter.samples.own,
                best=judge.best,
                stop=rounds.stop,
                work=learner,
                secret=secret,
                trace=trace,
            )
        )
        if observe is not None and records:
            observe(records)

    state, work = await play_rounds(
        resolved,
        source=source,
        rounds=rounds,
        faults=faults,
        left=left,
        shard=shard,
        charge=charge,
        observe=record,
        count=None if resolved.source is None else count,
        judge=None if judge.patience is None else judge.judge,
        read=reader.function,
        sparse=few is not None,
    )
    keeper.end()
    if scored.late:
        run.rescore(dict(zip(names, shard.collect(scored.end(state), Scores), strict=False)))
    return state, work, meter, scored, judge.best


def _total_neighbourhood(resolved: Plan, shard: Shard, *, round: int) -> StackedNeighbourhood:
    """Return a neighbourhood for totals before the first round or after the last one, in which nobody is absent."""
    seed = resolved.experiment.seed
    return StackedNeighbourhood(resolved.weights, round=round, seed=seed, shard=shard, **total_arguments(resolved))


def open_statistics(resolved: Plan, shard: Shard, *, sent: SentBytes) -> tuple[Plan, Statistics]:
    """Agree on statistics before the first round; peers wait for each other, so there are no faults."""
    net = _total_neighbourhood(resolved, shard, round=0)
    scaled, statistics = run_without_loop(PeersAgreement(resolved).open(net))
    sent.add(net.bytes_out)
    return scaled, statistics


def close_run(resolved: Plan, shard: Shard, state: State, *, round: int) -> tuple[State, dict[str, float] | None]:
    """Agree on one final model, and on its score on the test data of all peers where it may be published."""
    agreement = PeersAgreement(resolved)
    net = _total_neighbourhood(resolved, shard, round=round)
    state = run_without_loop(agreement.settle(net, state))
    scored = resolved.learner.evaluate(state.rows, peers=net.peers)
    if not scored or not agreement.scored:
        return state, None
    try:
        counts = agreement.tallies(state.rows, peers=net.peers)
        return state, run_without_loop(agreement.score(net, scored, counts, row=state.rows[0]))
    except PrivacyError:  # live peers keep their scores as well, and report why
        return state, None


def everyone(resolved: Plan, statistics: Statistics | None) -> Federation:
    """Return the data of all peers, which a worker reads again, scaled by the statistics that all agreed on."""
    federation = resolved.federation
    if federation.elsewhere is None:
        return federation
    whole = federate_data(resolved.experiment, resolved.topology.peers)
    return (
        whole if statistics is None else standardise(whole, mean=statistics.mean[0], deviation=statistics.deviation[0])
    )
