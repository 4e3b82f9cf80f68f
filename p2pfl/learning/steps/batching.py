"""Batches and steps of a stack of rows of different lengths."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from p2pfl.core.rows import to_device
from p2pfl.core.tensors import torch
from p2pfl.data import IntArray, Orders
from p2pfl.learning.steps.sparse_samples import SparseSamples

POSITIONS_PER_CHUNK = 2**18
"""Positions of samples that are found at once on the CPU."""

POSITIONS_PER_DEVICE_CHUNK = 2**26
"""Positions of samples that are found at once on another device."""


BLOCK_BYTES = {"cpu": 24 * 2**20}
"""Bytes that a block of rows may touch in one step, by device; elsewhere more, as launching work dominates there.

Peer-steps of 2,000 CNNs (8-16 on 8x8, batches of 16) on two cores with 2 MiB of L2 each took 171, 132, 105, 105 and 118
microseconds in blocks of 6, 12, 24, 48 and 96 MiB; those of 1,000 MLPs (64-32-10) by numpy 9.1, 7.1 and 6.6 in
blocks of 4, 12 and 24 MiB. Calls of Python, and handing over the interpreter between threads, dominate below, memory
above.
"""


@dataclass(frozen=True)
class Batch:
    """Samples of one step for K rows, padded to the longest batch among them.

    Attributes
    ----------
    features, targets
        ``[K, B, *shape]`` and ``[K, B, ...]``.
    weights
        ``[K, B]``: one over the batch size of the row, zero for padding; ``None`` where all rows have B samples.
    keys
        ``[K]`` int64 keys of dropout in this step; ``None`` for a model without dropout.
    """

    features: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor | None
    keys: torch.Tensor | None


@dataclass(frozen=True)
class Footprint:
    """Memory that a row needs, and that a block of rows may use.

    Attributes
    ----------
    row
        Bytes of the parameters of one row.
    sample
        Bytes of the activations of one sample.
    block
        Bytes a block may touch in one step.
    """

    row: int
    sample: int
    block: int

    def rows(self, width: int) -> int:
        """Return the number of rows, with batches of ``width`` samples, that make a block."""
        return max(1, self.block // (2 * self.row + width * self.sample))


class DeviceSamples:
    """Samples of R rows, on the device.

    Parameters
    ----------
    each
        Positions of each row's samples in the data set.
    device
        Device of the data set.

    Attributes
    ----------
    shared
        True if all rows have the same samples, in one array.
    samples
        Positions of all samples, those of the first row first; once if they are shared.
    starts, counts
        ``[R]``: where the samples of each row begin, and how many there are.
    """

    def __init__(self, each: Sequence[IntArray], device: torch.device) -> None:
        self.shared = bool(each) and all(mine is each[0] for mine in each)
        self.counts = np.array([len(mine) for mine in each], dtype=np.int64)  # [R]
        self.starts = np.zeros_like(self.counts) if self.shared else np.cumsum(self.counts) - self.counts  # [R]
        samples = np.concatenate([np.empty(0, np.int64), *(each[:1] if self.shared else each)])
        self.samples = to_device(torch.from_numpy(samples), device)
        self._each = each
        self._spread: torch.Tensor | None = None
        self._sparse: list[SparseSamples | None] = []

    @cached_property
    def first_of_run(self) -> int | None:
        """Position of the first sample where all rows share samples that follow each other in the data set."""
        if not self.shared or not len(self._each[0]):
            return None
        positions = self._each[0]
        start = int(positions[0])
        return start if np.array_equal(positions, np.arange(start, start + len(positions))) else None

    def first_row(self) -> DeviceSamples:
        """Return the samples of the first row."""
        return DeviceSamples(self._each[:1], self.samples.device)

    def sorted_by_zeros(self, features: torch.Tensor, *, width: int) -> SparseSamples | None:
        """Return the samples that all rows share in the order of :class:`SparseSamples`; it is computed once."""
        if not self._sparse:
            self._sparse = [SparseSamples.sort(features, self.samples, width=width)]
        return self._sparse[0]

    def target_variances(self, targets: torch.Tensor) -> torch.Tensor:
        """Return the variance of each row's targets, ``[R]`` float64, of several the mean; it is computed once."""
        if self._spread is None:
            variances = [self._variance(targets, mine) for mine in (self._each[:1] if self.shared else self._each)]
            spread = torch.tensor(variances * (len(self._each) if self.shared else 1), dtype=torch.float64)  # [R]
            self._spread = to_device(spread, targets.device)
        return self._spread

    def _variance(self, targets: torch.Tensor, mine: IntArray) -> float:
        where = to_device(torch.from_numpy(mine), targets.device)
        return float(targets[where].double().var(0, correction=0).mean()) if len(mine) else 0.0


class PeerSamples:
    """Samples of the peers that were asked for last.

    Parameters
    ----------
    parts
        Positions of each peer's samples in the data set.
    device
        Device of the data set.
    """

    def __init__(self, parts: Mapping[str, IntArray], device: torch.device) -> None:
        self.parts, self.device = parts, device
        self._last: tuple[tuple[str, ...], DeviceSamples] | None = None

    def of(self, peers: tuple[str, ...]) -> DeviceSamples:
        """Return the samples of some peers."""
        last = self._last
        if last is None or last[0] is not peers:
            last = self._last = peers, DeviceSamples([self.parts[peer] for peer in peers], self.device)
        return last[1]


@dataclass(frozen=True)
class BatchSchedule:
    """Batches of R rows in a round.

    Attributes
    ----------
    part
        Samples of each row.
    widths
        ``[R]``: samples in a batch of each row.
    counts
        ``[R]``: steps of each row.
    first
        Number of the first batch in the round.
    orders
        Permutations of the samples, one for each epoch.
    """

    part: DeviceSamples
    widths: IntArray
    counts: IntArray
    first: int
    orders: Orders

    @property
    def epoch(self) -> IntArray:
        """Steps of each row in an epoch, ``[R]``."""
        return -(-self.part.counts // np.maximum(self.widths, 1))


class StepPlan:
    """Steps of K rows, rows with the most steps first.

    Parameters
    ----------
    schedule
        Batches of all rows.
    chosen
        ``[K]``: the rows.

    Attributes
    ----------
    sizes
        ``[T, K]`` int64 batch sizes, 0 where a row has no step left.
    active
        Number of rows, counted from the first, that take each step.
    widths
        Length of the longest batch of each step.
    even
        True if all active rows have batches of that length.
    """

    def __init__(self, schedule: BatchSchedule, chosen: IntArray) -> None:
        part, orders = schedule.part, schedule.orders
        counts, widths, each = (of[chosen] for of in (schedule.counts, schedule.widths, schedule.epoch))  # [K]
        step = np.arange(counts[0])[:, None]  # [T, 1]
        epoch, within = np.divmod(schedule.first + step, each)  # [T, K]
        left = part.counts[chosen] - within * widths
        self.sizes: IntArray = np.where(step < counts, np.minimum(widths, left), 0)  # [T, K]
        self.active: list[int] = np.count_nonzero(self.sizes, axis=1).tolist()
        self.widths: list[int] = self.sizes.max(axis=1).tolist()
        self.even: list[bool] = (self.sizes.sum(axis=1) == np.multiply(self.active, self.widths)).tolist()
        begins = orders.base[chosen] + epoch * orders.stride[chosen] + within * widths  # [T, K]
        numbers = np.stack([begins, self.sizes, np.broadcast_to(part.starts[chosen], begins.shape)])
        self._samples, self._order = part.samples, orders.flat
        self._located = range(0)
        self._array: IntArray = np.empty((0, 0, 0), np.int64)
        self._numbers = to_device(torch.from_numpy(numbers), part.samples.device).unsqueeze(-1)  # [3, T, K, 1]

    def index(self, step: int) -> torch.Tensor:
        """Return the positions in the data set of the samples of a step, 0 where padded, ``[K, B]`` int64."""
        if step not in self._located:
            self._located = range(step, self._until(step))
            self._positions = self._position(self._located)
        return self._positions[step - self._located.start, : self.active[step], : self.widths[step]]

    def positions(self, step: int) -> IntArray:
        """Return the same as :meth:`index` as an array, on the CPU."""
        if step not in self._located:
            self.index(step)
            self._array = self._positions.numpy()  # [S, K, B]
        return self._array[step - self._located.start, : self.active[step], : self.widths[step]]

    def _until(self, step: int) -> int:
        """Return the step up to which positions are found at once; at least half of the rows are still active then."""
        active, width = self.active[step], max(self.widths[step:])
        most = POSITIONS_PER_CHUNK if self._numbers.device.type == "cpu" else POSITIONS_PER_DEVICE_CHUNK
        last = min(len(self.active), step + max(1, most // (active * width)))
        return bisect.bisect_right(self.active, -active // 2, step + 1, last, key=operator.neg)

    def _position(self, steps: range) -> torch.Tensor:
        """Return the positions of the samples of some steps, ``[S, K, B]``."""
        own = slice(steps.start, steps.stop)
        active, widths = self.active[own], self.widths[own]
        begin, sizes, start = self._numbers[:, own, : active[0]].unbind()  # [S, K, 1] each
        offsets = torch.arange(max(widths), device=sizes.device)  # [B]
        if all(self.even[own]) and active[-1] == active[0] and len({*widths}) == 1:
            return self._samples[start + self._order[begin + offsets]]
        real = offsets < sizes
        position = self._order[torch.where(real, begin + offsets, 0)]
        return torch.where(real, self._samples[torch.where(real, start + position, 0)], 0)

    def shares(self, step: int) -> npt.NDArray[np.float64]:
        """Return one over the batch size of each row for its samples, 0 where padded, ``[K, B]``."""
        sizes = self.sizes[step, : self.active[step], None]  # [K, 1]
        shares: npt.NDArray[np.float64] = (np.arange(self.widths[step]) < sizes) / sizes
        return shares

    def weights(self, step: int, *, dtype: torch.dtype) -> torch.Tensor | None:
        """Return the weights ``[K, B]`` of the samples of a step, or ``None`` where no row is padded."""
        if self.even[step]:
            return None
        sizes = self._numbers[1, step, : self.active[step]]  # [K, 1]
        offsets = torch.arange(self.widths[step], device=sizes.device)
        return ((offsets < sizes).double() / sizes).to(dtype)  # [K, B]
