"""Checkpoints of simulations by several workers, in the file of one process: any number of workers can go on.

The tensors of all peers travel in blocks to the worker that leads, which writes each row to its place in the file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from p2pfl.algorithms import State
from p2pfl.encodings import Ints
from p2pfl.errors import StorageError
from p2pfl.files import DRIVE
from p2pfl.simulation.checkpoint import FILE, PART, CheckpointKeeper, Facts, SimulationCheckpoint
from p2pfl.simulation.sharding.part import WorkerShard
from p2pfl.simulation.sharding.shard import Shard

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
        self._due = clock() + SOONEST

    def keep(self, newest: SimulationCheckpoint) -> None:
        """Take the state after a round; all workers write it if the one that leads says that it is time to."""
        if not self._shard.shared(int(self.path is not None and self._clock() >= self._due)):
            return
        begun = self._clock()
        save(newest, self.path, self._shard)
        now = self._clock()
        self._due = now + max(SOONEST, PART * (now - begun))

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
    state = checkpoint.state
    given = {"rows": state.rows, **state.tensors(), "sent": checkpoint.sent}
    tensors = {name: value.detach().cpu().contiguous() for name, value in given.items()}
    steps = int(shard.sums(torch.tensor([checkpoint.facts.steps])))
    if path is None:
        for _ in shard.blocks(tensors):
            raise AssertionError("only the worker that leads receives models")
        shard.lead(_nothing)
        return
    fresh = path.with_suffix(".new")
    places = _begin(fresh, tensors, replace(checkpoint.facts, steps=steps, same={}), peers=len(shard.everyone))
    for numbers, block in shard.blocks(tensors):
        for name, value in block.items():
            places[name][numbers] = value.reshape(len(value), -1).contiguous().view(torch.uint8).numpy()

    def commit() -> None:
        try:
            for place in places.values():
                place.flush()
            DRIVE.rename(fresh, path)
            DRIVE.sync(path.parent)
        except OSError as error:
            raise StorageError(f"{path} cannot be written ({error}); free some space") from None

    shard.lead(commit)


def _nothing() -> None:
    """Do nothing."""


def _begin(path: Path, tensors: Mapping[str, torch.Tensor], facts: Facts, *, peers: int) -> dict[str, Any]:
    """Write the head of a file of safetensors; return where the bytes of each tensor belong, ``[N, bytes]``."""
    head: dict[str, Any] = {"__metadata__": {"facts": json.dumps(asdict(facts))}}
    end = 0
    for name, value in tensors.items():
        size = value[:1].nbytes * peers
        shape = [peers, *value.shape[1:]]
        head[name] = {"dtype": NAMES[value.dtype], "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    first = 8 + len(text)
    try:
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(first + end)
        return {
            name: _place(path, first + head[name]["data_offsets"][0], peers, value[:1].nbytes)
            for name, value in tensors.items()
        }
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error}); free some space") from None


def _place(path: Path, first: int, peers: int, length: int) -> Any:
    """Return the bytes of a tensor in a file, ``[N, bytes]``."""
    if not length:
        return np.empty((peers, 0), np.uint8)
    return np.memmap(path, np.uint8, "r+", offset=first, shape=(peers, length))


def loaded(shard: Shard, folder: Path | None, *, size: int, edges: Ints | None) -> SimulationCheckpoint:
    """Return the checkpoint of the local peers, which the process that leads reads for all.

    Parameters
    ----------
    shard
        Peers of this process.
    folder
        Run directory, where this process leads.
    size, edges
        Arguments of :meth:`SimulationCheckpoint.load`.

    Raises
    ------
    P2PFLError
        As :meth:`SimulationCheckpoint.load`.
    """
    whole: list[SimulationCheckpoint] = []

    def read() -> None:
        if folder is not None:
            whole.append(SimulationCheckpoint.load(folder / FILE, peers=len(shard.everyone), size=size, edges=edges))

    shard.lead(read)
    return _scattered(shard, whole[0] if whole else None) if isinstance(shard, WorkerShard) else whole[0]


def _scattered(shard: WorkerShard, whole: SimulationCheckpoint | None) -> SimulationCheckpoint:
    """Return the part of a checkpoint that concerns this worker; ``whole`` where it leads."""
    given = {} if whole is None else {"rows": whole.state.rows, **whole.state.tensors(), "sent": whole.sent}
    about = {name: (NAMES[value.dtype], list(value.shape[1:])) for name, value in given.items()}
    facts = None if whole is None else asdict(whole.facts)
    shapes, told = json.loads(shard.group.share(json.dumps([about, facts]).encode()))
    kinds = {name: kind for kind, name in NAMES.items()}
    found = {
        name: shard.scatter(given.get(name), torch.empty(0, *shape, dtype=kinds[kind]))
        for name, (kind, shape) in shapes.items()
    }
    told |= {"costs": tuple(map(tuple, told["costs"])), "steps": told["steps"] if shard.leads else 0}
    rows, sent = found.pop("rows"), found.pop("sent")
    return SimulationCheckpoint(Facts(**told), State.restore(rows, found), sent)
