"""The peers of a run in processes on this machine, each in its own or several in one."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from p2pfl.algorithms import Statistics
from p2pfl.core.errors import RunError
from p2pfl.core.tensors import torch
from p2pfl.experiment import Experiment, Plan, plain, plan, schema
from p2pfl.experiment.swarm_agreement import directly, scale
from p2pfl.network.peer.launch import fork_server as server
from p2pfl.network.peer.launch.brokers import brokers, connect, password_warnings
from p2pfl.network.peer.launch.ended import summarise_peers
from p2pfl.network.peer.launch.event_log import EventLog
from p2pfl.network.peer.launch.process_groups import (
    check_masked_peers,
    check_open_files,
    count_processes,
    count_threads,
    count_turns,
    share_processes,
    stretch_timeouts,
)
from p2pfl.network.peer.launch.worker import LIFE_SIGN_INTERVAL, Errand, earlier, main
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.peer.storage.writer import erase_keys
from p2pfl.network.peer.updates import Done, Event, Failed, ModelDescription
from p2pfl.network.protocol.membership.entry_round import common
from p2pfl.network.transport.broker import embedded
from p2pfl.privacy.keys import Identity, SecretSource
from p2pfl.results import Record, Run, sent_rows
from p2pfl.results.lock import LOCK_SECONDS, RUN_LOCK, own_directory
from p2pfl.results.notices.kinds import PeerResponded, PeerSilent
from p2pfl.results.spending.ledger import check_runs
from p2pfl.results.summary import Durations

GRACE = 1.0
"""Seconds that a process has to end after it was asked to."""

QUIET = 10.0
"""Seconds without a sign of life after which a peer's process is reported as silent."""

SILENCE = 120.0
"""Seconds without a sign of life after which a peer's process counts as stuck."""

ENDING = 30.0
"""Seconds in which a process whose pipe is closed must have ended; others wait meanwhile."""

RESUMABLE = frozenset({"ProcessEnded", "ProcessStuck", "TransportError"})
"""Kinds of failures after which a run can go on from its checkpoints, as they do not follow from the experiment."""


@dataclass
class _Swarm:
    """The processes of a run, by the names of their peers."""

    processes: dict[tuple[str, ...], ForkServerProcess] = field(default_factory=dict)
    pipes: dict[Connection, tuple[str, ...]] = field(default_factory=dict)

    def start(self, groups: Sequence[tuple[str, ...]], errand: Errand) -> None:
        """Fork one process for each group of peers from a server that has imported torch once."""
        context = server.start()
        for names in groups:
            ours, theirs = context.Pipe()
            process = context.Process(target=main, args=(names, errand, theirs), name=names[0], daemon=True)
            process.start()
            theirs.close()
            self.processes[names] = process
            self.pipes[ours] = names

    def events(self) -> Iterator[Event]:
        """Yield what the peers report, until all have ended."""
        received: dict[tuple[str, ...], float] = {}
        silent: set[tuple[str, ...]] = set()
        while self.pipes:
            for pipe in wait(list(self.pipes), timeout=GRACE):
                assert isinstance(pipe, Connection)  # noqa: S101 (we put nothing else in)
                names = self.pipes[pipe]
                try:
                    event = pipe.recv()
                    received[names] = time.monotonic()
                    if names in silent:
                        silent.discard(names)
                        yield PeerResponded(peer=names[0])
                    yield event
                except (EOFError, ConnectionResetError):
                    del self.pipes[pipe]
                    pipe.close()
                    received.pop(names, None)
                    if reason := _end(self.processes[names]):
                        yield Failed(names[0], f"{_whose(names)} {reason}", RunError.status, "ProcessEnded")
            for names, when in received.items():
                quiet = time.monotonic() - when
                if quiet > QUIET and names not in silent:
                    silent.add(names)
                    yield PeerSilent(peer=names[0], seconds=quiet)  # for all of its process
                if quiet > SILENCE:
                    due = f"and one is due every {LIFE_SIGN_INTERVAL:g} s"
                    reason = f"{_whose(names)} is stuck: no sign of life for {SILENCE:g} s, {due}"
                    yield Failed(names[0], reason, RunError.status, "ProcessStuck")

    def end(self) -> None:
        """Leave no process behind but the fork server, which goes when we go."""
        for process in self.processes.values():
            if process.is_alive():
                process.terminate()
        deadline = time.monotonic() + GRACE
        for process in self.processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self.pipes:
            pipe.close()
        self.pipes.clear()


def _whose(names: tuple[str, ...]) -> str:
    """Return the subject of a sentence about the process of a peer, which it may share with others."""
    return "its process" if len(names) == 1 else f"its process, with {len(names)} peers,"


def _divide(resolved: Plan, workers: int | None) -> list[tuple[str, ...]]:
    """Return the peers of each process; refuse more than one machine serves."""
    names = resolved.topology.peers
    groups = share_processes(names, count_processes(len(names), workers))
    check_masked_peers(len(names), masks=resolved.masked)
    check_open_files(len(names), len(groups))
    return groups


def _roster(names: tuple[str, ...], folder: Path) -> dict[str, bytes]:
    """Return the public keys of all peers; create the key of each peer in the folder unless it exists."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        if not (folder / f"{name}.pem").exists():
            Identity.generate(SecretSource(), peer=name).save(folder / f"{name}.pem")
    return {name: Identity.load(folder / f"{name}.pem").public for name in names}


def run(
    experiment: Experiment,
    *,
    folder: Path,
    resolved: Plan | None = None,
    observe: Callable[[Event], None] | None = None,
    resume: bool = False,
    baselines: bool = True,
    began: datetime | None = None,
    unaccounted: bool = False,
    keep_rows: bool = False,
    workers: int | None = None,
) -> Run:
    """Spawn the peers of an experiment on this machine and wait for them.

    Parameters
    ----------
    experiment
        Validated settings; ``transport.broker`` says whether a broker is to be started.
    folder
        Of the run directory.
    resolved
        The experiment's plan, where it is at hand.
    observe
        Called with every event of the peers.
    resume
        True to go on with the run in ``folder``, from the last round of which all have a checkpoint; a run that has
        ended is returned as it is.
    baselines
        True to train every peer alone and one model on all data, for comparison.
    began
        Start of a new run in UTC, for the summary; now by default.
    unaccounted
        True if the run may be outside of the account of its data, see
        :func:`p2pfl.experiment.accounts.admitted`; a plan has passed already.
    keep_rows
        True if each peer of a new run keeps the rows that it sends, see :mod:`p2pfl.results.sent_rows`.
    workers
        Number of processes that share the peers; by default that of
        :func:`~p2pfl.network.peer.launch.process_groups.count_processes`.

    Raises
    ------
    InputError
        If another process has the run that is to be gone on with, the data have an account that cannot count it, or
        the system permits too few open files.
    BrokerError
        If the broker cannot be started or reached.
    RunError
        If a peer failed; the others have been ended.
    """
    begun, began = time.perf_counter(), began or datetime.now(UTC)
    resolved = resolved or plan(experiment, live=True, unaccounted=unaccounted)
    known = resume and experiment.data.refresh is not None  # each peer checks the rows of its checkpoint itself
    check_runs(resolved, () if known else resolved.federation.peers, now=began)
    names, early = resolved.topology.peers, list[Event]()
    groups = _divide(resolved, workers)

    def notify(event: Event) -> None:
        early.append(event)
        if observe is not None:
            observe(event)

    with contextlib.ExitStack() as owning, contextlib.ExitStack() as stack:
        owner = owning.enter_context(own_directory(folder / RUN_LOCK, within=LOCK_SECONDS)) if resume else None
        if resume and (over := Run.load(folder)).summary:  # it ended while we waited for the lock
            return over
        if experiment.transport.broker == "embedded":
            urls: tuple[str, ...] = (stack.enter_context(embedded()).url,)
        else:
            urls = brokers(experiment)
            asyncio.run(_reach(experiment, urls=urls, peer=names[0], notify=notify))
        for warning in password_warnings(experiment, urls=urls, peer=names[0]):  # once, not by each
            notify(warning)
        left = {name: earlier(folder, name, notify=notify) for name in names} if resume else {}
        together = (common(each.rounds for each in left.values()),) if resume else None
        begin = {name: max(each.at(*together).rounds, default=0) for name, each in left.items()} if together else {}
        opened = Run.resume(folder, first=begin) if resume else Run(experiment, folder=folder, began=began)
        result = stack.enter_context(opened)
        owner = owner or owning.enter_context(own_directory(folder / RUN_LOCK))
        if keep_rows and not resume:
            sent_rows.keep_rows(folder)
        swarm = _Swarm()
        stack.callback(swarm.end)
        threads = count_threads(len(groups))
        roster = _roster(names, folder / "keys") if experiment.trust == schema.TrustSettings() else None
        accepted = resolved.unaccounted or unaccounted
        pinned, written = plain(resolved.pinned), plain(resolved.experiment)
        pinned = stretch_timeouts(pinned, by=count_turns(len(names), workers))
        errand = Errand(pinned, urls, folder, accepted, threads, roster, together, owner, written)
        swarm.start(groups, errand)
        log = EventLog(result, now=lambda: datetime.now(UTC))
        for event in early:
            log.observe(event)
        done, first, last = _follow(swarm, result, observe, log=log)
        done = dict(sorted(done.items()))
        stack.pop_all().close()
        ended = time.perf_counter()
        agreed: Statistics | None = None
        if experiment.data.scale:
            resolved, agreed = _scaled(resolved, folder)
        summary = summarise_peers(
            resolved,
            done,
            result,
            agreed=agreed,
            seconds=Durations(start=first - begun, rounds=last - first, total=ended - begun),
            alarms=log.alarms,
            baselines=baselines,
            models=partial(_models, folder, names),
        )
        result.finish(summary)
        erase_keys(folder)
    return result


def _scaled(resolved: Plan, folder: Path) -> tuple[Plan, Statistics]:
    """Return the plan on features that are scaled as those of the peers, and by what."""
    if resolved.experiment.data.refresh is not None:  # a table may have grown since they agreed
        for name in resolved.topology.peers:
            for checkpoint in CheckpointStore(folder / "peers", name).checkpoints():
                if checkpoint.statistics is not None:
                    return scale(resolved, checkpoint.statistics), checkpoint.statistics
    return directly(resolved)


def _models(folder: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return the final model ``[P]`` of each peer that has a checkpoint."""
    saved = {name: CheckpointStore(folder / "peers", name).checkpoints() for name in names}
    return {name: checkpoints[0].state.rows[0] for name, checkpoints in saved.items() if checkpoints}


def _follow(
    swarm: _Swarm, result: Run, observe: Callable[[Event], None] | None, *, log: EventLog
) -> tuple[dict[str, Done], float, float]:
    """Keep records and events as they come; return each peer's :class:`Done`, and when rounds began and ended."""
    done: dict[str, Done] = {}
    began: dict[str, float] = {}
    last = time.perf_counter()
    for event in swarm.events():
        log.observe(event)
        match event:
            case Record():
                log.record(event)
                last = time.perf_counter()
                began.setdefault(event.peer, last - event.seconds_training - event.seconds_waiting)
            case ModelDescription():
                result.describe(event.about)
            case Done():
                done[event.peer] = event
            case Failed():
                raise _error(event)
            case _:
                pass
        if observe is not None:
            observe(event)
    return done, max(began.values(), default=last), last


async def _reach(experiment: Experiment, *, urls: tuple[str, ...], peer: str, notify: Callable[[Event], None]) -> None:
    """Connect to a broker once, so that a problem with it is known before anything starts."""
    transport = connect(experiment, urls=urls, peer=peer, notify=notify)
    async with transport.join(f"{experiment.name}-{secrets.token_hex(8)}"):
        pass


def _end(process: ForkServerProcess) -> str:
    """Return how a process failed, without a subject; empty if it did not."""
    process.join(ENDING)
    status = process.exitcode
    if status == 0:
        return ""
    if status is None:
        return "closed its pipe and goes on"
    if status >= 0:
        return f"ended with status {status}"
    names = {each.value: each.name for each in signal.Signals}  # without real-time signals
    cause = "; the system may have run out of memory" if status == -signal.SIGKILL else ""
    return f"was ended by {names.get(-status, f'signal {-status}')}{cause}"


def _error(failed: Failed) -> RunError:
    error = RunError(f"{failed.peer}: {failed.reason}")
    error.status = failed.status
    error.resumes = failed.status == RunError.status and failed.error in RESUMABLE
    return error
