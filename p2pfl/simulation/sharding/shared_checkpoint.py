"""Checkpoints of simulations by several workers, in the file of one process: any number of workers can go on.

The tensors of all peers travel in blocks to the worker that leads, which writes each row to its place in the file.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from p2pfl.algorithms import average_of
from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import DRIVE, OWNER_ONLY
from p2pfl.experiment import Plan
from p2pfl.results import Run
from p2pfl.results.lock import LOCK_SECONDS, SIMULATION_LOCK, own_directory
from p2pfl.simulation.own_state import unpacked
from p2pfl.simulation.sharding.part import WorkerShard
from p2pfl.simulation.sharding.shard import Shard
from p2pfl.simulation.simulation_checkpoint import (
    FILE,
    CheckpointKeeper,
    Facts,
    Pause,
    SimulationCheckpoint,
    digest_trace,
)

SOONEST = 1.0
"""Seconds from one checkpoint to the next, at least; an interrupted run loses what came after the last one."""

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Number types by their names in safetensors."""


def keeper_of(shard: Shard, folder: Path | None, *, clock: Callable[[], float]) -> CheckpointKeeper:
    """Return the keeper of the checkpoints of a run."""
    return (
        SharedKeeper(folder, shard, clock=clock)
        if isinstance(shard, WorkerShard)
        else CheckpointKeeper(folder, clock=clock)
    )


class SharedKeeper(CheckpointKeeper):
    """Keeper of the newest checkpoint of a run of several workers, which write it together after a round.

    A run that is interrupted or fails goes on from the last one, because its workers may be in different rounds.

    Parameters
    ----------
    folder
        Run directory of the worker that leads; ``None`` elsewhere, or to write nothing.
    shard
        Peers of this worker.
    clock
        Clock of the durations.
    """

    def __init__(self, folder: Path | None, shard: WorkerShard, *, clock: Callable[[], float]) -> None:
        super().__init__(folder, clock=clock)
        self._shard = shard
        self.pause = Pause(clock, least=SOONEST)

    def keep(self, newest: SimulationCheckpoint) -> None:
        """Take the state after a round; all workers write it if the one that leads says that it is time to."""
        size = newest.bytes * self._shard.workers
        if self._shard.shared(int(self.path is not None and self.pause.over(size))):
            with self.pause.time_writing():
                save(newest, self.path, self._shard)

    def end(self) -> None:
        """Do nothing: the run goes on from the last checkpoint that was written."""

    def write(self) -> None:
        """Do nothing: a worker alone has no checkpoint to write."""


def save(checkpoint: SimulationCheckpoint, path: Path | None, shard: WorkerShard) -> None:
    """Write the checkpoint of all workers; an older one is replaced as a whole or not at all.

    Raises
    ------
    StorageError
        The disk is full or not writable.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors().items()}
    steps = int(shard.sums(torch.tensor([checkpoint.facts.steps])))
    facts = replace(checkpoint.facts, steps=steps, same={})
    count = len(shard.everyone)
    buffers = {} if path is None else _begin(path.with_suffix(".new"), tensors, facts, count=count)
    for where, block in shard.blocks(tensors):
        for name, value in block.items():
            buffers[name][where] = value.reshape(len(value), -1).contiguous().view(torch.uint8).numpy()
    shard.lead(lambda: None if path is None else _commit(path, buffers))


def _begin(path: Path, tensors: Mapping[str, torch.Tensor], facts: Facts, *, count: int) -> dict[str, Any]:
    """Write the head of a file of safetensors; return where the bytes of each tensor belong, ``[N, bytes]``."""
    head: dict[str, Any] = {"__metadata__": {"facts": json.dumps(asdict(facts))}}
    shapes = {name: (value.dtype, [count, *value.shape[1:]]) for name, value in tensors.items()}
    end = 0
    for name, (dtype, shape) in shapes.items():
        size = math.prod(shape) * dtype.itemsize
        head[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    first = 8 + len(text)
    try:
        path.unlink(missing_ok=True)
        path.touch(mode=OWNER_ONLY)  # models of peers before they are released
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(first + end)
        return {
            name: _place(path, first + head[name]["data_offsets"][0], shape[0], math.prod(shape[1:]) * dtype.itemsize)
            for name, (dtype, shape) in shapes.items()
        }
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error}); free some space") from None


def _commit(path: Path, buffers: Mapping[str, Any]) -> None:
    """Replace the last checkpoint by the one that has been written."""
    try:
        for buffer in buffers.values():
            if isinstance(buffer, np.memmap):  # the others are empty
                buffer.flush()
        DRIVE.rename(path.with_suffix(".new"), path)
        DRIVE.sync(path.parent)
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error}); free some space") from None


def _place(path: Path, first: int, count: int, length: int) -> Any:
    """Return the bytes of a tensor in a file, ``[N, bytes]``."""
    if not count * length:
        return np.empty((count, length), np.uint8)
    return np.memmap(path, np.uint8, "r+", offset=first, shape=(count, length))


def load_checkpoint(shard: Shard, folder: Path | None, *, size: int) -> SimulationCheckpoint:
    """Return the checkpoint of the local peers, which the process that leads reads for all.

    Parameters
    ----------
    shard
        Peers of this process.
    folder
        Run directory, where this process leads.
    size
        Number of parameters of the experiment.

    Raises
    ------
    P2PFLError
        As :meth:`SimulationCheckpoint.load`.
    """
    whole: list[SimulationCheckpoint] = []

    def read() -> None:
        if folder is not None:
            whole.append(SimulationCheckpoint.load(folder / FILE, peers=len(shard.everyone), size=size))

    shard.lead(read)
    return _scatter(shard, whole[0] if whole else None) if isinstance(shard, WorkerShard) else whole[0]


def _scatter(shard: WorkerShard, whole: SimulationCheckpoint | None) -> SimulationCheckpoint:
    """Return the part of a checkpoint that concerns this worker; ``whole`` where it leads."""
    if whole is not None:
        whole = replace(whole, state=unpacked(whole.state, peers=len(whole.sent)))
    tensors_by_name = {} if whole is None else whole.tensors()
    about = {name: (NAMES[value.dtype], list(value.shape[1:])) for name, value in tensors_by_name.items()}
    facts = None if whole is None else asdict(whole.facts)
    shapes, listed = json.loads(shard.group.share(json.dumps([about, facts]).encode()))
    tensors = {name: shard.scatter(tensors_by_name.get(name), _like(*shape)) for name, shape in shapes.items()}
    listed |= {"costs": tuple(map(tuple, listed["costs"])), "steps": listed["steps"] if shard.leads else 0}
    return SimulationCheckpoint.of(Facts(**listed), tensors)


def _like(kind: str, shape: Sequence[int]) -> torch.Tensor:
    """Return an empty tensor of such rows, ``[0, ...]``."""
    return torch.empty(0, *shape, dtype=next(dtype for dtype, name in NAMES.items() if name == kind))


@contextmanager
def open_run(
    resolved: Plan, shard: Shard, *, folder: Path | None, resume: bool, began: datetime
) -> Iterator[tuple[Run, SimulationCheckpoint | None]]:
    """Return a run and, if it is resumed, the checkpoint with which it goes on; own its directory in the context.

    Parameters
    ----------
    resolved
        Plan of the run.
    shard
        Peers of this process, which has a directory where it leads.
    folder
        Run directory; ``None`` for a run in memory.
    resume
        Whether to go on with the run in ``folder``.
    began
        Start of a new run in UTC.

    Raises
    ------
    InputError
        The directory cannot be written or is in use, or the run in it cannot be resumed or is another one.
    """
    if resume:
        with _own_folder(folder, within=LOCK_SECONDS):
            run, left = _resume(resolved, folder, shard)
            with run:
                yield run, left
        return
    with Run(resolved.experiment, folder=folder, began=began) as run, _own_folder(folder, within=LOCK_SECONDS):
        yield run, None


def _own_folder(folder: Path | None, *, within: float) -> AbstractContextManager[object]:
    """Return what owns a run directory, if there is one."""
    return (
        nullcontext()
        if folder is None or not folder.is_dir()
        else own_directory(folder / SIMULATION_LOCK, within=within)
    )


def _resume(resolved: Plan, folder: Path | None, shard: Shard) -> tuple[Run, SimulationCheckpoint]:
    """Return the run in a folder and its checkpoint, with which it goes on."""
    if folder is None and shard.leads:
        raise InputError("a run that was kept in memory cannot be resumed; pass its folder")
    if resolved.asynchronous:
        raise InputError(
            f"{resolved.experiment.learning.algorithm} keeps no checkpoints, as its models travel for several rounds; "
            "start the simulation again"
        )
    left = load_checkpoint(shard, folder, size=resolved.learner.layout.size)
    if left.facts.trace != digest_trace(average_of(resolved.algorithm)):
        raise InputError(
            "simulation.devices.trace is not the trace that the run began with; put that one back, or start the "
            "simulation again"
        )
    if folder is None:
        return Run(resolved.experiment), left
    if Run.load(folder).experiment != resolved.experiment:  # before any record is dropped
        raise InputError(f"{folder} holds another experiment; resume the one in its experiment.toml")
    return Run.resume(folder, first=dict.fromkeys(shard.everyone, left.facts.round + 1)), left
