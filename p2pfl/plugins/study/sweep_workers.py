"""Processes that make runs: each imports torch once, and a process that dies costs one run."""

from __future__ import annotations

import json
import math
import os
import threading
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess

from p2pfl.network.peer.launch import fork_server
from p2pfl.plugins.study.cell import Job, Outcomes, attempt, refusals

ENDING = 5.0
"""Seconds that a process may take to end before it is killed."""

Bundle = tuple[Job, ...]
"""Runs that one process is given at a time."""


@dataclass
class _Worker:
    process: ForkServerProcess
    jobs: Connection
    life: Connection
    bundle: Bundle = ()


def results(jobs: Sequence[Job], *, processes: int) -> Iterator[tuple[Job, str | None]]:
    """Make runs in parallel; yield each when it has ended, with why it failed or ``None``.

    Parameters
    ----------
    jobs
        Runs to make.
    processes
        Number of processes, each of which uses one thread.
    """
    yield from _shared([(job,) for job in jobs], _attempted, processes=processes)


def refused(jobs: Sequence[Job], *, processes: int) -> Outcomes:
    """Return why each run would be refused before its first round, or ``None``, by digest; nothing is trained.

    Parameters
    ----------
    jobs
        Runs to check, one of each setting.
    processes
        Number of processes.
    """
    made = _shared(_by_data(jobs, processes=processes), refusals, processes=processes)
    return {job.digest: reason for job, reason in made}


def _attempted(bundle: Bundle) -> Outcomes:
    """Make runs one after the other."""
    return {job.digest: attempt(job) for job in bundle}


def _by_data(jobs: Sequence[Job], *, processes: int) -> list[Bundle]:
    """Return the runs in bundles with the same data each, which one process reads once to check all of them."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(_data(job), []).append(job)
    each = math.ceil(processes / max(1, len(groups)))  # bundles of a group
    return [tuple(group[place::each]) for group in groups.values() for place in range(min(each, len(group)))]


def _data(job: Job) -> str:
    """Return what decides the data of a run."""
    table = tomllib.loads(job.experiment)
    peers = {key: table["topology"].get(key) for key in ("peers", "file")}
    return json.dumps([table["data"], table["seed"], peers], sort_keys=True, default=str)


def _shared(
    given: Sequence[Bundle], make: Callable[[Bundle], Outcomes], *, processes: int
) -> Iterator[tuple[Job, str | None]]:
    """Let processes make something of each bundle; yield what became of its runs when it is done."""
    context = fork_server.start("p2pfl.plugins.study.sweep_preload")
    pending = deque(given)
    workers: list[_Worker] = []
    try:
        while pending or workers:
            while pending and len(workers) < processes:
                workers.append(_started(context, make))
                _assign(workers[-1], pending)
            for ready in wait([worker.jobs for worker in workers]):
                worker = next(each for each in workers if each.jobs is ready)
                bundle, made = worker.bundle, _reply(worker)
                pending.extendleft((job,) for job in reversed(bundle) if job.digest not in made)
                if not pending or worker.process.exitcode is not None:
                    workers.remove(worker)
                    _end(worker)
                else:
                    _assign(worker, pending)
                yield from ((job, made[job.digest]) for job in bundle if job.digest in made)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            _end(worker)


def _started(context: ForkServerContext, make: Callable[[Bundle], Outcomes]) -> _Worker:
    ours, theirs = context.Pipe()
    alive, life = context.Pipe()
    process = context.Process(target=work, args=(theirs, life, make))
    process.start()
    theirs.close()
    life.close()
    return _Worker(process, ours, alive)


def _assign(worker: _Worker, pending: deque[Bundle]) -> None:
    worker.bundle = pending.popleft()
    with suppress(BrokenPipeError):  # it has died, which its reply reports
        worker.jobs.send(worker.bundle)


def _reply(worker: _Worker) -> Outcomes:
    """Return what the process made of its bundle: nothing, if it died while it made several runs."""
    try:
        found: Outcomes = worker.jobs.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join(ENDING)
        why = f"its process ended with status {worker.process.exitcode}; it may have run out of memory"
        return {job.digest: why for job in worker.bundle} if len(worker.bundle) == 1 else {}
    return found


def _end(worker: _Worker) -> None:
    worker.jobs.close()
    worker.life.close()
    worker.process.join(ENDING)
    if worker.process.exitcode is None:
        worker.process.kill()
        worker.process.join()


def work(jobs: Connection, life: Connection, make: Callable[[Bundle], Outcomes]) -> None:
    """Take bundles of runs until there are no more; reply to each with what was made of it.

    Parameters
    ----------
    jobs
        Delivers each bundle and takes the reply.
    life
        Ends when the process that waits for the results ends, and this one with it.
    make
        Function that makes or checks the runs of a bundle.
    """
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    from p2pfl.core.process import set_threads  # noqa: PLC0415 (the fork server has imported it)

    set_threads(1)  # each cell has a core of its own
    while True:
        try:
            bundle: Bundle = jobs.recv()
        except EOFError:
            return
        jobs.send(make(bundle))


def _end_with(life: Connection) -> None:
    life.poll(None)
    os._exit(1)
