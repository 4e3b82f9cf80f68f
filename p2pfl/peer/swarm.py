"""Every peer as its own process on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from p2pfl.errors import RunError
from p2pfl.experiment import Experiment, Plan, plain, plan
from p2pfl.peer.child import Done, Event, Failed, main
from p2pfl.peer.peer import Progress
from p2pfl.report import Record, Run
from p2pfl.report.summary import summarise
from p2pfl.transport.broker import embedded

GRACE = 1.0
"""Seconds that a process has to end after it was asked to."""


@dataclass
class _Swarm:
    """The processes of a run."""

    processes: dict[str, ForkServerProcess] = field(default_factory=dict)
    pipes: dict[Connection, str] = field(default_factory=dict)

    def start(self, experiment: Experiment, names: tuple[str, ...], *, url: str, folder: Path) -> None:
        """Fork one process a peer from a server that has imported torch once."""
        context: ForkServerContext = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["p2pfl.peer.preload"])
        threads = max(1, (os.cpu_count() or 1) // len(names))
        table = plain(experiment)
        for name in names:
            ours, theirs = context.Pipe()
            errand = {"table": table, "url": url, "folder": str(folder), "threads": threads, "pipe": theirs}
            process = context.Process(target=main, args=(name,), kwargs=errand, name=name, daemon=True)
            process.start()
            theirs.close()
            self.processes[name] = process
            self.pipes[ours] = name

    def events(self) -> Iterator[Event]:
        """What the peers say, until all have ended."""
        while self.pipes:
            for pipe in wait(list(self.pipes)):
                assert isinstance(pipe, Connection)  # noqa: S101 (we put nothing else in)
                try:
                    yield pipe.recv()
                except (EOFError, ConnectionResetError):
                    name = self.pipes.pop(pipe)
                    pipe.close()
                    process = self.processes[name]
                    process.join(GRACE)
                    if process.exitcode != 0:
                        how = (
                            f"signal {-process.exitcode}"
                            if (process.exitcode or 0) < 0
                            else f"exit status {process.exitcode}"
                        )
                        yield Failed(name, f"its process ended with {how}", RunError.status)

    def end(self) -> None:
        """Leave no process behind."""
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


def run(
    experiment: Experiment,
    *,
    folder: Path,
    resolved: Plan | None = None,
    observe: Callable[[Event], None] | None = None,
) -> Run:
    """Spawn every peer of an experiment on this machine and wait for them.

    Parameters
    ----------
    experiment
        Validated settings; ``transport.broker`` says whether a broker is to be started.
    folder
        Of the run directory.
    resolved
        The experiment's plan, where it is at hand.
    observe
        Called with everything the peers say.

    Raises
    ------
    RunError
        If a peer failed; the others have been ended.
    """
    resolved = resolved or plan(experiment)
    names = resolved.topology.peers
    with contextlib.ExitStack() as stack:
        url = experiment.transport.broker
        if url == "embedded":
            url = stack.enter_context(embedded()).url
        result = Run(experiment, folder=folder)
        swarm = _Swarm()
        stack.callback(swarm.end)
        begun = time.perf_counter()
        swarm.start(experiment, names, url=url, folder=folder)
        done, durations = _follow(swarm, result, begun, observe)
    memory = [last.memory for last in done.values() if last.memory is not None]
    durations["total_s"] = time.perf_counter() - begun
    summary = summarise(
        resolved, together={name: last.scores for name, last in done.items()}, records=result.metrics, seconds=durations
    )
    summary["peer_memory"] = int(statistics.median(memory)) if memory else None
    result.finish(summary)
    return result


def _follow(
    swarm: _Swarm, result: Run, begun: float, observe: Callable[[Event], None] | None
) -> tuple[dict[str, Done], dict[str, float]]:
    """Keep the records as they come; the peers' last words, and how long it took."""
    done: dict[str, Done] = {}
    first = last = begun
    learning: set[str] = set()
    for event in swarm.events():
        match event:
            case Progress(phase="learning") if event.peer not in learning:
                learning.add(event.peer)
                first = time.perf_counter()
            case Record():
                result.record([event])
                last = time.perf_counter()
            case Done():
                done[event.peer] = event
            case Failed():
                raise _error(event)
            case _:
                pass
        if observe is not None:
            observe(event)
    return done, {"wall_s": last - first, "start_s": first - begun}


def _error(failed: Failed) -> RunError:
    error = RunError(f"{failed.peer}: {failed.reason}")
    error.status = failed.status
    return error
