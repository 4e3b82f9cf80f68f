"""Results of peers that have ended, and the summaries of their runs."""

from __future__ import annotations

import asyncio
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from p2pfl.algorithms import State, Statistics
from p2pfl.core.errors import P2PFLError, RunError, foremost
from p2pfl.core.tensors import torch
from p2pfl.experiment import Plan
from p2pfl.experiment.swarm_agreement import alike, report_statistics, scale
from p2pfl.network.peer.launch.event_log import EventLog
from p2pfl.network.peer.peer import Peer
from p2pfl.network.peer.storage.best import best_kept
from p2pfl.network.peer.updates import Alone, Done
from p2pfl.network.transport import Transport
from p2pfl.privacy.keys import FIRST, Source
from p2pfl.results import Record, Run
from p2pfl.results.content import PeerSummary, Summary
from p2pfl.results.models.model_description import describe_file, describe_model, metadata
from p2pfl.results.notices.kinds import LossRose
from p2pfl.results.spending.meter import stopped
from p2pfl.results.spending.stated import StatedGuarantee
from p2pfl.results.summary import Durations, computing_share, describe, explain, scores, summarise


def results_of(peer: Peer, state: State, *, memory: int | None, written: int | None) -> Done:
    """Return the results of a peer that has ended in a state; this may take long.

    Parameters
    ----------
    peer, state
        The peer, and its state.
    memory, written
        Bytes of its process, and those that this has written.
    """
    learner, played = peer.plan.learner, peer.meter.samples.played
    return Done(
        peer.name,
        scores(learner.evaluate(state.rows, peers=(peer.name,)), 0),
        memory,
        written=written,
        common=peer.ended.common,
        stopped=peer.stopped,
        best=peer.best.best,
        unsettled=peer.ended.unsettled or None,
        spent=peer.meter.spent,
        played=None if played is None else played[peer.name],
        explained=explain(learner, state.rows[0]),
    )


def summarise_peers(
    resolved: Plan,
    done: Mapping[str, Done],
    run: Run,
    *,
    agreed: Statistics | None,
    seconds: Durations,
    alarms: Sequence[LossRose],
    baselines: bool,
    models: Callable[[], Mapping[str, torch.Tensor]],
) -> Summary:
    """Return the summary of a run of live peers.

    Parameters
    ----------
    resolved
        Plan with the data of all peers, scaled by what they agreed on.
    done
        Results of the peers.
    run
        Run with the records.
    agreed
        Statistics of the features that all peers agreed on; ``None`` without them.
    seconds, alarms, baselines, models
        Arguments of :func:`p2pfl.results.summary.summarise`.
    """
    ended, common = done.items(), alike([each.common for each in done.values()])
    memory = [each.memory for each in done.values() if each.memory is not None]
    return summarise(
        resolved,
        together={name: each.scores for name, each in ended},
        records=run.metrics,
        seconds=seconds,
        memory=int(statistics.median(memory)) if memory else None,
        written=_written(done, run),
        agreed={"statistics": None if agreed is None else report_statistics(agreed), "common": common},
        stopped=stopped([each.stopped for each in done.values()]),
        alarms=alarms,
        unsettled={name: each.unsettled for name, each in ended if each.unsettled},
        best={name: best_kept(name, each.best) for name, each in ended if each.best is not None},
        spent=max((each.spent for each in done.values() if each.spent is not None), default=None),
        played={name: each.played for name, each in ended if each.played is not None} or None,
        baselines=baselines,
        models=models,
    )


def _written(done: Mapping[str, Done], run: Run) -> int | None:
    """Return the bytes that a peer writes in a round: its own files, the median of all, and its records and notices."""
    written = [each.written for each in done.values() if each.written is not None]
    if not written or not run.recorded:
        return None
    return int((statistics.median(written) * len(done) + run.disk.written) / run.recorded)


def summarise_peer(
    plan: Plan,
    done: Done,
    *,
    alarms: Sequence[LossRose],
    run: Run,
    alone: Alone | None = None,
) -> PeerSummary:
    """Return the summary of one peer.

    Parameters
    ----------
    plan
        Experiment, resolved for this peer.
    done
        Results of the peer.
    alarms
        Alarms of the run.
    run
        Run with the records of the peer.
    alone
        Model that the peer has trained alone; ``None`` if it has not.
    """
    played = None if done.played is None else {done.peer: done.played}
    return PeerSummary(
        name=plan.experiment.name,
        peer=done.peer,
        accounted=plan.accounted,
        scores=done.scores,
        alone=None if alone is None else alone.scores,
        intervals={} if alone is None else alone.intervals,
        common=done.common,
        stopped=done.stopped,
        privacy=msgspec.convert(describe(plan, spent=done.spent, played=played), StatedGuarantee),
        alarms=tuple(alarms),
        unsettled={done.peer: done.unsettled} if done.unsettled else {},
        best={} if done.best is None else {done.peer: best_kept(done.peer, done.best)},
        explained=done.explained,
        computing=computing_share(run.metrics),
        bytes_written=_written({done.peer: done}, run),
    )


@dataclass
class Ended:
    """Records of the peers of this process while they run, and the peers that have ended.

    Parameters
    ----------
    run
        Run of the peers.
    log
        Files of the run.
    peers
        Number of peers.
    observe
        Function that is called with the records of a round, once all peers have ended it.
    """

    run: Run
    log: EventLog
    peers: int
    observe: Callable[[list[Record]], None] | None = None
    states: dict[str, tuple[Peer, State]] = field(default_factory=dict)
    rounds: dict[int, list[Record]] = field(default_factory=lambda: defaultdict(list))

    async def run_peers(
        self,
        plans: Mapping[str, Plan],
        *,
        transport: Transport,
        source: Source | None,
        begin: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Run all peers to their ends; the first one that fails ends the others.

        Parameters
        ----------
        plans
            Plan of each peer.
        transport
            Transport to the broker.
        source
            Source of keys and private noise; the operating system's secrets by default.
        begin
            Function that is called in the task of each peer with its name.
        """
        failed = list[Exception]()

        async def live(name: str) -> None:
            begin(name)
            async with Peer(
                name,
                plans[name],
                transport=transport,
                source=source,
                incarnation=None if source is None else FIRST,  # as a simulation has
                observe=lambda record, _: self.record(record),
                notice=self.log.observe,
                now=self.log.now,
            ) as peer:
                try:
                    self.states[name] = peer, await peer.run()
                except Exception as error:  # before the others learn that it is gone, and fail as well
                    failed.append(_name_peer(name, error))
                    raise

        try:
            async with asyncio.TaskGroup() as tasks:
                for name in plans:
                    tasks.create_task(live(name))
        except BaseExceptionGroup as group:
            raise (failed[0] if failed else foremost(group)) from None

    def record(self, record: Record) -> None:
        """Store a record, and show a round that all peers have ended."""
        self.log.record(record)
        self.rounds[record.round].append(record)
        if self.observe is not None and len(self.rounds[record.round]) == self.peers:
            self.observe(self.rounds[record.round])

    def keep(self) -> dict[str, Done]:
        """Store the final and the best models, on the scale of their training; return the results of the peers."""
        last = self.run.metrics[-1].round if self.run.metrics else 0  # a budget may pay for no round
        done = dict[str, Done]()
        for name in next(iter(self.states.values()))[0].plan.topology.peers:
            peer, state = self.states[name]
            done[name] = results_of(peer, state, memory=None, written=None)
            self.run.describe(describe_model(peer.plan))  # all peers agree
            own = peer.plan.owned(state.rows[0], peer=name)
            self.run.save(
                {name: peer.plan.saved(state.rows[0], peer=name)},
                round=last,
                own={name: own} if own else {},
                about={name: metadata(describe_file(peer.plan, name))},
            )
            if peer.best.best is not None and peer.best.rows is not None:
                self.run.save_best(name, peer.plan.saved(peer.best.rows[0], peer=name), best_kept(name, peer.best.best))
        return done

    def summary(
        self, resolved: Plan, done: Mapping[str, Done], *, began: datetime, total: float, baselines: bool
    ) -> Summary:
        """Return the summary of the run, which began then and lasted ``total`` seconds; see :func:`summarise_peers`."""
        agreed = next(iter(self.states.values()))[0].statistics
        return summarise_peers(
            resolved if agreed is None else scale(resolved, agreed),
            done,
            self.run,
            agreed=agreed,
            seconds=_durations(self.run.metrics, began=began, total=total),
            alarms=self.log.alarms,
            baselines=baselines,
            models=lambda: {name: state.rows[0] for name, (_, state) in self.states.items()},
        )


def _name_peer(name: str, error: Exception) -> Exception:
    """Return an error that says in which peer it was raised."""
    if not isinstance(error, P2PFLError):
        error.add_note(f"raised in {name}")
        return error
    named = RunError(f"{name}: {error}")
    named.status = error.status
    return named


def _durations(records: Sequence[Record], *, began: datetime, total: float) -> Durations:
    """Return when the last peer began its first round, and when the last round ended; a budget may pay for none."""
    starts, end = dict[str, float](), total
    for record in records:
        end = ((record.time or began) - began).total_seconds()
        starts.setdefault(record.peer, end - record.seconds_training - record.seconds_waiting)
    start = max(starts.values(), default=end)
    return Durations(start=start, rounds=end - start, total=total)
