"""Batches and steps of a stack of rows of different lengths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from p2pfl.data import IntArray


@dataclass(frozen=True)
class Batch:
    """Samples of one step for K rows, padded to the longest batch among them.

    Attributes
    ----------
    features, targets
        ``[K, B, *shape]`` and ``[K, B]``.
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


class Plan:
    """Steps of K rows, rows with the most steps first.

    Parameters
    ----------
    batches
        Positions of each row's batches within its part.
    parts
        Positions of each row's samples in the data set.

    Attributes
    ----------
    index
        ``[T, K, B]`` int64 positions in the data set, 0 where padded.
    sizes
        ``[T, K]`` int64 batch sizes, 0 where a row has no step left.
    active
        Number of rows, counted from the first, that take each step.
    widths
        Length of the longest batch of each step.
    even
        Whether all active rows have batches of that length.
    """

    def __init__(self, batches: Sequence[Sequence[IntArray]], parts: Sequence[IntArray]) -> None:
        counts = np.array([len(mine) for mine in batches])  # [K]
        steps = int(counts[0])
        every = [batch for mine in batches for batch in mine]
        lengths = np.fromiter(map(len, every), dtype=np.int64, count=len(every))
        sizes = np.zeros((len(counts), steps), dtype=np.int64)  # [K, T]
        sizes[np.arange(steps) < counts[:, None]] = lengths
        # One flat array holds the positions of all rows, each shifted to the start of its part in `samples`.
        samples = np.concatenate(parts)
        begins = np.repeat(np.cumsum([0, *(len(part) for part in parts[:-1])]), sizes.sum(axis=1))
        width = int(lengths.max())
        index = np.zeros((len(counts), steps, width), dtype=np.int64)  # [K, T, B]
        index[np.arange(width) < sizes[:, :, None]] = samples[np.concatenate(every) + begins]
        self.index = torch.from_numpy(np.ascontiguousarray(index.swapaxes(0, 1)))  # [T, K, B]
        self.sizes = sizes.T  # [T, K]
        self.active: list[int] = np.count_nonzero(sizes, axis=0).tolist()
        self.widths: list[int] = sizes.max(axis=0).tolist()
        self.even: list[bool] = (sizes.sum(axis=0) == np.multiply(self.active, self.widths)).tolist()

    def weights(self, step: int) -> torch.Tensor | None:
        """Return the weights ``[K, B]`` of the samples of a step, or ``None`` where no row is padded."""
        if self.even[step]:
            return None
        sizes = self.sizes[step, : self.active[step], None]  # [K, 1]
        return torch.from_numpy((np.arange(self.widths[step]) < sizes) / sizes)  # [K, B]
