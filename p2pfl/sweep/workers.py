"""Processes that make runs: each imports torch once, and a process that dies costs one run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess

from p2pfl.peer.launch import fork_server
from p2pfl.sweep.cell import Job, work

ENDING = 5.0
"""Seconds that a process may take to end before it is killed."""


@dataclass
class _Worker:
    process: ForkServerProcess
    jobs: Connection
    life: Connection
    job: Job | None = None


def results(jobs: Sequence[Job], *, processes: int) -> Iterator[tuple[Job, str | None]]:
    """Make runs in parallel; yield each as it ends, with why it failed or ``None``.

    Parameters
    ----------
    jobs
        Runs to make.
    processes
        Number of processes, each of which uses one thread.
    """
    context = fork_server.start("p2pfl.sweep.preload")
    pending = deque(jobs)
    workers: list[_Worker] = []
    try:
        while pending or workers:
            while pending and len(workers) < processes:
                workers.append(_started(context))
                _assign(workers[-1], pending)
            for ready in wait([worker.jobs for worker in workers]):
                worker = next(each for each in workers if each.jobs is ready)
                done, reply = worker.job, _reply(worker)
                if not pending or worker.process.exitcode is not None:
                    workers.remove(worker)
                    _end(worker)
                else:
                    _assign(worker, pending)
                if done is not None:
                    yield done, reply
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            _end(worker)


def _started(context: ForkServerContext) -> _Worker:
    ours, theirs = context.Pipe()
    alive, life = context.Pipe()
    process = context.Process(target=work, args=(theirs, life))
    process.start()
    theirs.close()
    life.close()
    return _Worker(process, ours, alive)


def _assign(worker: _Worker, pending: deque[Job]) -> None:
    worker.job = pending.popleft()
    with suppress(BrokenPipeError):  # it has died, which its reply reports
        worker.jobs.send(worker.job)


def _reply(worker: _Worker) -> str | None:
    try:
        found: str | None = worker.jobs.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join(ENDING)
        return f"its process ended with status {worker.process.exitcode}; it may have run out of memory"
    return found


def _end(worker: _Worker) -> None:
    worker.jobs.close()
    worker.life.close()
    worker.process.join(ENDING)
    if worker.process.exitcode is None:
        worker.process.kill()
        worker.process.join()
