"""Processes that share the peers of a simulation: started here, or by torchrun."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed import (  # type: ignore[attr-defined] # exported without `__all__`
    FileStore,
    PrefixStore,
    ProcessGroupGloo,
    Store,
)
from torch.distributed.rendezvous import rendezvous

from p2pfl.core.errors import InputError, P2PFLError, RunError
from p2pfl.core.imports import without_working_directory
from p2pfl.core.process import cores
from p2pfl.experiment import Experiment, Plan, plan
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.parts.peer_graph import load_graph
from p2pfl.experiment.settings_rules import check
from p2pfl.privacy.keys import KEY_BYTES, KeyedSource, SecretSource, SeededSource, Source
from p2pfl.simulation.sharding.group import MAX_WAIT, Backend, WorkerGroup
from p2pfl.simulation.sharding.part import WorkerShard
from p2pfl.simulation.sharding.shard import Shard
from p2pfl.topology import Weights


@dataclass(frozen=True)
class RunOptions:
    """Arguments of a simulation that all its processes receive.

    Attributes
    ----------
    baselines, resume, source
        Arguments of :func:`p2pfl.simulate`.
    """

    baselines: bool
    resume: bool
    source: Source | None


Follow = Callable[[Experiment, WorkerGroup, RunOptions], None]
"""Function that simulates the peers of a worker that does not lead."""

HERE = "127.0.0.1"
"""Address of workers on this machine."""

PAUSE = 0.02
"""Seconds from one look at whether all workers have started to the next."""

SOON = 2.0
"""Seconds in which a worker that failed is gone."""

_runs = 0
"""Number of simulations in a process that torchrun started, for their keys in the store."""


def is_launched() -> bool:
    """Return whether torchrun started this process as one of several, and choose its GPU if there is one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return False
    _take_gpu(int(os.environ.get("LOCAL_RANK", "0")))
    return True


def leads() -> bool:
    """Return whether this process writes and reports: the only one, or the first of torchrun's."""
    return not is_launched() or int(os.environ["RANK"]) == 0


@contextmanager
def shard_simulation(
    made: Experiment | Plan, *, workers: int, follow: Follow, options: RunOptions, unaccounted: bool = False
) -> Iterator[tuple[Plan, Shard]]:
    """Plan a simulation, and share its peers among workers until the context is left.

    Parameters
    ----------
    made
        The experiment, or its plan, which then holds the data of all peers.
    workers
        Number of processes, of which this one is the first.
    follow, options
        Function that the other processes call, and its arguments.
    unaccounted
        True if the run may stay outside of the account of its data.

    Raises
    ------
    InputError
        ``workers`` is not a number of processes, there are fewer peers than workers, torchrun started another number of
        processes, or parts of the experiment do not work together.
    """
    if not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers must be a whole number of processes above 0, but it is {workers!r}; change it")
    together = is_launched()
    if not together and workers == 1:
        resolved = plan(made, unaccounted=unaccounted) if isinstance(made, Experiment) else made
        yield resolved, Shard(resolved.topology.peers)
        return
    if together and workers not in (1, int(os.environ["WORLD_SIZE"])):
        raise InputError(f"torchrun started {os.environ['WORLD_SIZE']} workers, not {workers}; leave --workers out")
    size, count = int(os.environ["WORLD_SIZE"]) if together else workers, _count(made)
    if size > count:
        raise InputError(f"{count} peers cannot be divided among {size} workers; start at most {count}")
    if isinstance(made, Experiment):
        check(Composition.of(made))  # before processes start
    experiment = made if isinstance(made, Experiment) else made.experiment
    with _join() if together else _start_workers(experiment, workers=workers, follow=follow, options=options) as group:
        try:
            yield divide_plan(made if together else experiment, group, unaccounted=unaccounted)
        except BaseException as error:
            group.fail(error)
            raise


def divide_plan(made: Experiment | Plan, group: WorkerGroup, *, unaccounted: bool = False) -> tuple[Plan, WorkerShard]:
    """Return the plan of one worker, which holds the data of its own peers, and its peers.

    Parameters
    ----------
    made
        The experiment, or its plan, which then stays as it is. All workers are given the same of the two.
    group
        All workers.
    unaccounted
        True if the run may stay outside of the account of its data, which the first worker checks for all.
    """
    shards = list[WorkerShard]()

    def divide(weights: Sequence[Weights]) -> WorkerShard:
        shards.append(WorkerShard(weights, group))
        return shards[0]

    if isinstance(made, Plan):
        resolved, shard = made, divide(made.weights)
    else:
        resolved = plan(made, divide=divide, unaccounted=unaccounted or group.rank > 0)
        shard = shards[0]
    if resolved.asynchronous:
        raise InputError(
            f"{resolved.experiment.learning.algorithm} runs in one process, as its models travel for several rounds; "
            "leave --workers out"
        )
    return resolved, shard


def _count(made: Experiment | Plan) -> int:
    """Return the number of peers."""
    if isinstance(made, Plan):
        return len(made.topology.peers)
    options = load_graph(made)
    return made.topology.count if options is None else len(options.peers)


@contextmanager
def _join() -> Iterator[WorkerGroup]:
    """Join the processes that torchrun started."""
    global _runs  # noqa: PLW0603 (the store outlives a simulation)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store, _, _ = next(iter(rendezvous("env://", rank, size, timeout=MAX_WAIT)))
    _runs += 1
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    yield connect(PrefixStore(f"p2pfl {_runs}", store), rank=rank, size=size, local=local)


@contextmanager
def _start_workers(
    experiment: Experiment, *, workers: int, follow: Follow, options: RunOptions
) -> Iterator[WorkerGroup]:
    """Start the other workers as processes on this machine, and end them when the context is left."""
    if experiment.topology.kind == "own":
        raise InputError(
            "a run that is put together in Python cannot be started again in other processes; start the script with "
            "torchrun --nproc-per-node instead"
        )
    folder = Path(tempfile.mkdtemp(prefix="p2pfl-"))
    crew = Crew([])
    with _fewer_threads(workers):
        try:
            path = folder / "store"
            store = FileStore(str(path), workers)
            context = multiprocessing.get_context("spawn")
            for rank in range(1, workers):
                task = Task(str(path), rank, workers, experiment, follow, options)
                crew.processes.append(context.Process(target=_work, args=(task,), daemon=True, name=f"p2pfl {rank}"))
                with without_working_directory():
                    crew.processes[-1].start()
            crew.wait(store)
            _take_gpu(0)
            yield connect(store, rank=0, size=workers, local=workers, missing=crew.find_failure)
            crew.end()
        finally:
            crew.kill()
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Crew:
    """Processes of the workers that do not lead."""

    processes: list[BaseProcess] = field(default_factory=list)

    def wait(self, store: Store) -> None:
        """Wait until all have started.

        Raises
        ------
        P2PFLError
            One of them failed.
        """
        for rank in range(1, len(self.processes) + 1):
            while not store.check([_ready(rank)]):
                if missing := self.find_failure(within=0.0):
                    raise RunError(
                        f"{missing} before it began; see its output, start fewer workers, and in a script of your own "
                        'start them below `if __name__ == "__main__":`'
                    )
                time.sleep(PAUSE)

    def find_failure(self, within: float = SOON) -> str:
        """Return how a worker ended; empty if all still run."""
        end = time.monotonic() + within
        while True:
            for rank, process in enumerate(self.processes, start=1):
                if process.exitcode:
                    status = f"by signal {-process.exitcode}" if process.exitcode < 0 else f"status {process.exitcode}"
                    verb = "was killed" if process.exitcode < 0 else "ended with"
                    return f"worker {rank} of {len(self.processes) + 1} {verb} {status}"
            if time.monotonic() >= end:
                return ""
            time.sleep(PAUSE)

    def end(self) -> None:
        """Wait until all have ended."""
        for process in self.processes:
            process.join(SOON)

    def kill(self) -> None:
        """End all that still run."""
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()


@dataclass(frozen=True)
class Task:
    """Task of one worker.

    Attributes
    ----------
    store
        Path of the store.
    rank, size
        Number of the worker and number of all.
    experiment
        The experiment.
    follow, options
        Function that the worker calls, and its arguments.
    """

    store: str
    rank: int
    size: int
    experiment: Experiment
    follow: Follow
    options: RunOptions


def _work(task: Task) -> None:
    """Run one worker; Ctrl-C ends the first worker, which ends all others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _take_gpu(task.rank)
    store = FileStore(task.store, task.size)
    store.set(_ready(task.rank), "")
    group = connect(store, rank=task.rank, size=task.size, local=task.size)
    try:
        task.follow(task.experiment, group, task.options)
    except P2PFLError as error:
        group.fail(error)
        raise SystemExit(error.status) from None
    except BaseException as error:
        group.fail(error)
        raise


def connect(store: Store, *, rank: int, size: int, local: int, missing: Callable[[], str] = str) -> WorkerGroup:
    """Connect a worker to the others.

    Parameters
    ----------
    store
        Store that all workers reach.
    rank, size
        Number of this worker and number of all.
    local
        Number of workers on this machine; with a GPU for each, models travel by NCCL.
    missing
        As for :class:`WorkerGroup`.
    """
    gloo: Any = ProcessGroupGloo  # its stub lacks what it needs to be told an address
    options: Any = MAX_WAIT  # gloo then takes the address of the host, or that of the interface GLOO_SOCKET_IFNAME
    if local == size:
        options = gloo._Options()  # noqa: SLF001 (torch has no public name for it)
        options._timeout = MAX_WAIT  # noqa: SLF001
        options._devices = [gloo.create_device(hostname=HERE)]  # noqa: SLF001
    host: Backend = gloo(PrefixStore("gloo", store), rank, size, options)
    device: Backend | None = None
    if torch.cuda.is_available() and distributed.is_nccl_available() and local <= torch.cuda.device_count():
        nccl: Any = distributed.ProcessGroupNCCL
        device = nccl(PrefixStore("nccl", store), rank, size)
    group = WorkerGroup(store, rank=rank, size=size, host=host, device=device, missing=missing)
    group.total(torch.zeros(1))  # one that failed sooner would leave others waiting for its connection
    group.bytes_out = 0
    return group


def _take_gpu(rank: int) -> None:
    """Use one of the GPUs, if there are any."""
    if torch.cuda.is_available():
        torch.cuda.set_device(rank % torch.cuda.device_count())


@contextmanager
def _fewer_threads(workers: int) -> Iterator[None]:
    """Divide the cores among the workers, which inherit the environment."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(max(1, cores() // workers))
    try:
        yield
    finally:
        with contextlib.suppress(KeyError):
            del os.environ["OMP_NUM_THREADS"]
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def _ready(rank: int) -> str:
    """Return the key of a worker that has started."""
    return f"ready {rank}"


def source_of(resolved: Plan, shard: Shard, source: Source | None) -> Source:
    """Return the source from which all processes of a simulation draw keys, private noise and secret participation.

    A guarantee needs draws that nobody can repeat, so where one rests on them they come from the operating system. The
    process that leads draws one key and hands it to the others, which have to draw the same.

    Parameters
    ----------
    resolved
        Plan of the simulation.
    shard
        Peers of this process.
    source
        Source that the caller chose; ``None`` for the default.
    """
    if source is None and not resolved.claims:
        return SeededSource(resolved.experiment.seed)
    if source is not None and not isinstance(source, SecretSource):
        return source
    secrets = SecretSource()
    if shard.workers == 1:
        return secrets
    key = shard.handed(lambda: secrets.bytes(KEY_BYTES, purpose="simulation", peer=""))
    return KeyedSource(key, secret=True)
