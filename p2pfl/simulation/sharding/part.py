""":class:`WorkerShard`, the shard of one worker among several."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
import scipy.sparse
import torch

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import P2PFLError
from p2pfl.core.process import peak_memory
from p2pfl.core.rows import Rows, alike, to_device
from p2pfl.results.content import WorkerResult
from p2pfl.simulation.mixing import Mixer, uniform
from p2pfl.simulation.sharding.group import WorkerGroup
from p2pfl.simulation.sharding.shard import Near, Shard, Values
from p2pfl.topology import Weights, owners, partition


@dataclass(frozen=True)
class Boundary:
    """Part of a gossip step that concerns one worker.

    Attributes
    ----------
    matrix
        Weights of its R peers, ``[R, R + B]``: of its own models, then of those that it takes. Those of a receiver are
        in the order of the whole matrix, so that sums have the same rounding.
    outside
        Numbers of the B peers whose models it takes, by worker.
    sent
        Places of the models that it gives, by worker.
    gives, takes
        Number of models for and from each worker.
    """

    matrix: scipy.sparse.csr_array
    outside: Ints
    sent: torch.Tensor
    gives: tuple[int, ...]
    takes: tuple[int, ...]


def boundary(matrix: scipy.sparse.csr_array, *, owner: Ints, worker: int, workers: int) -> Boundary:
    """Return what a worker gives and takes in a gossip step; a model travels once to each worker that needs it.

    Parameters
    ----------
    matrix
        Weights of all receivers, ``[N, N]``.
    owner
        Worker of each peer, ``[N]``.
    worker, workers
        Number of the worker, and number of workers.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> part = boundary(metropolis(ring(4)).matrix, owner=np.array([0, 0, 1, 1]), worker=0, workers=2)
    >>> part.outside.tolist(), part.sent.tolist(), part.gives
    ([2, 3], [0, 1], (0, 2))
    """
    count = len(owner)
    listener = np.repeat(np.arange(count), np.diff(matrix.indptr))  # [E]
    to, sender = np.divmod(np.unique(owner[listener] * count + matrix.indices), count)
    outside = sender[(to == worker) & (owner[sender] != worker)]
    outside = outside[np.argsort(owner[outside], kind="stable")]  # [B]
    sent = (to != worker) & (owner[sender] == worker)
    own = np.flatnonzero(owner == worker)  # [R]
    row_index = np.full(count, -1)  # of each model here
    row_index[own], row_index[outside] = np.arange(len(own)), len(own) + np.arange(len(outside))
    part = matrix[own]
    columns = row_index[part.indices].astype(part.indices.dtype)
    return Boundary(
        scipy.sparse.csr_array((part.data, columns, part.indptr), shape=(len(own), len(own) + len(outside))),
        outside,
        torch.from_numpy(row_index[sender[sent]]),
        tuple(np.bincount(to[sent], minlength=workers).tolist()),
        tuple(np.bincount(owner[outside], minlength=workers).tolist()),
    )


T = TypeVar("T")

ROUNDING = 1e-12
"""Difference of two equal weights, one of which is what the others leave of 1."""

BLOCK = 64 * 2**20
"""Bytes of the models that travel at a time to the worker that writes them."""


class WorkerShard(Shard):
    """Peers of one worker.

    Parameters
    ----------
    weights
        Mixing weights of each gossip step of a period.
    group
        All workers.

    Raises
    ------
    TopologyError
        There are fewer peers than workers.
    """

    def __init__(self, weights: Sequence[Weights], group: WorkerGroup) -> None:
        super().__init__(weights[0].peers)
        self.group, self.workers, self.rank, self.leads = group, group.size, group.rank, group.rank == 0
        self.numbers = partition(weights, group.size)
        self.owner = owners(self.numbers)  # [N]
        self.places = torch.from_numpy(self.numbers[group.rank])  # [R]
        self.peers = tuple(self.everyone[number] for number in self.places.tolist())
        self._kept = {id(each.matrix): each for each in weights}
        self._steps: dict[int, _Step] = {}

    def own(self, values: Values) -> Values:
        """Return the values of the local peers, ``[R, ...]``, out of those of all peers, ``[N, ...]``."""
        if isinstance(values, torch.Tensor):
            return values[self.places]
        own_values: Ints = values[self.places.numpy()]
        return own_values

    def near(self, matrix: scipy.sparse.csr_array, rows: torch.Tensor) -> Near:
        """Return what local peers receive in a gossip step; boundary models come from other workers."""
        step = self._step(matrix)
        local, at = len(self.peers), step.boundary
        near = rows.new_empty(at.matrix.shape[1], *rows.shape[1:])  # [R + B, P]
        near[:local] = rows
        sent = rows[to_device(at.sent, rows.device)]
        self.group.swap(sent, gives=at.gives, takes=at.takes, into=near[local:])
        return Near(at.matrix, near, step.peers)

    def mixed(self, mixer: Mixer, matrix: scipy.sparse.csr_array, rows: Rows) -> Rows:
        """Return the rows of the local peers after a gossip step; where all get the average, only sums travel."""
        step = self._step(matrix)
        if step.share is not None:
            average = self.group.total(to_device(step.share.to(rows.dtype), rows.device) @ rows)  # [P]
            return average.expand(len(rows), -1)
        near = self.near(matrix, rows)
        return mixer(near.matrix, near.rows, keep=id(matrix) in self._kept)

    def total(self, integers: Ints, *, refused: P2PFLError | None = None) -> Ints:
        """Return the sum over all workers of integers ``[K]``; raise the error of the first that refuses."""
        self.group.agree(refused)
        total: Ints = self.group.total(torch.from_numpy(integers)).numpy()
        return total

    def mean(self, mean: torch.Tensor) -> torch.Tensor:
        """Return the mean over all peers, ``[P]``, given that over the local ones."""
        return self.group.total(mean * (len(self.peers) / len(self.everyone)))

    def sums(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return sums over all workers of numbers ``[K]``."""
        return self.group.total(numbers)

    def alike(self, rows: Rows) -> bool:
        """Return whether all models are the same."""
        if int(self.group.total(torch.tensor([int(not alike(rows))]))):
            return False
        gives = [int(self.leads)] * self.workers
        first = self.group.swap(rows[:1].repeat(sum(gives), 1), gives=gives, takes=[1] + [0] * (self.workers - 1))
        return not int(self.group.total(torch.tensor([int(not torch.equal(first, rows[:1]))])))

    def collect(self, items: Sequence[T], kind: type[T]) -> list[T]:
        """Return what all peers have of a kind, in their order, where this worker leads; nothing elsewhere."""
        parts = self.group.gather(msgspec.msgpack.encode(list(items)))
        if not self.leads:
            return []
        listed = [each for part in parts for each in msgspec.msgpack.decode(part, type=list[kind])]  # type: ignore[valid-type]
        order = np.argsort(np.concatenate(self.numbers))
        return [listed[index] for index in order]

    def lead(self, function: Callable[[], None]) -> None:
        """Call a function in the worker that leads; all workers raise its error."""
        refused = None
        if self.leads:
            try:
                function()
            except P2PFLError as error:
                refused = error
        self.group.agree(refused)

    def shared(self, number: float) -> float:
        """Return the number of the worker that leads."""
        return float(self.group.total(torch.tensor([number if self.leads else 0.0], dtype=torch.float64)))

    def handed(self, data: Callable[[], bytes]) -> bytes:
        """Return the bytes that a function returns in the worker that leads, at all workers."""
        return self.group.share(data() if self.leads else b"")

    def workers_done(self, training: float) -> list[WorkerResult]:
        """Return what the workers did, where this one leads."""
        done = WorkerResult(len(self.peers), self.group.bytes_out, training, peak_memory())
        return [
            msgspec.msgpack.decode(each, type=WorkerResult) for each in self.group.gather(msgspec.msgpack.encode(done))
        ]

    def blocks(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[Ints, dict[str, torch.Tensor]]]:
        """Yield some numbers and their tensors, one worker after the other."""
        for worker, low, high in _spans(tensors, self.numbers):
            mine = worker == self.rank
            block = {}
            for name, value in tensors.items():
                sent = value[low:high] if mine else value[:0]
                gives, takes = [0] * self.workers, [0] * self.workers
                gives[0] = len(sent)
                takes[worker] = (high - low) * self.leads
                block[name] = self.group.swap(sent, gives=gives, takes=takes)
            if self.leads:
                yield self.numbers[worker][low:high], block

    def scatter(self, values: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
        """Return the values of the local peers, ``[R, ...]``, out of those of all peers at the worker that leads.

        Parameters
        ----------
        values
            ``[N, ...]`` on the CPU where this worker leads, ``None`` elsewhere.
        like
            Empty tensor of the same shape and type, ``[0, ...]``.
        """
        sent = like if values is None else values[torch.from_numpy(np.concatenate(self.numbers))]
        gives = [len(each) * self.leads for each in self.numbers]
        return self.group.swap(sent, gives=gives, takes=[len(self.peers)] + [0] * (self.workers - 1))

    def _step(self, matrix: scipy.sparse.csr_array) -> _Step:
        """Return the part of a gossip step that concerns this worker; those of steps without faults are kept."""
        step = self._steps.get(id(matrix))
        if step is None:
            at = boundary(matrix, owner=self.owner, worker=self.rank, workers=self.workers)
            peers = self.peers + tuple(self.everyone[number] for number in at.outside.tolist())
            shares = (
                matrix.data[: len(self.everyone)][self.places.numpy()] if uniform(matrix, tolerance=ROUNDING) else None
            )
            step = _Step(at, peers, None if shares is None else torch.from_numpy(shares))
            if id(matrix) in self._kept:
                self._steps[id(matrix)] = step
        return step


def _spans(tensors: Mapping[str, torch.Tensor], numbers: Sequence[Ints]) -> Iterator[tuple[int, int, int]]:
    """Yield a worker and the first and last place of successive blocks of what it has, the same in all workers."""
    bytes_each = sum(math.prod(value.shape[1:]) * value.element_size() for value in tensors.values())
    height = max(1, BLOCK // max(1, bytes_each))
    for worker, own in enumerate(numbers):
        for low in range(0, len(own), height):
            yield worker, low, min(low + height, len(own))


@dataclass(frozen=True)
class _Step:
    """Boundary of a gossip step.

    Attributes
    ----------
    boundary
        What travels.
    peers
        Names of the S senders.
    share
        Weight of each local peer in the average that everybody gets, ``[R]``; ``None`` if averages differ.
    """

    boundary: Boundary
    peers: tuple[str, ...]
    share: torch.Tensor | None
