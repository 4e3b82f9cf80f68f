"""Samples with many zeros, in an order in which few of their features take part in a product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from p2pfl.core.tensors import torch

MAX_MULTIPLIED_SHARE = 0.9
"""Largest share of the features for which an order is worth its memory, a copy of the samples."""


@dataclass(frozen=True)
class SparseSamples:
    """Samples that all rows share, sorted such that the first features of a batch are all that differ from zero.

    Features are sorted by the number of samples that use them, and samples by the rarest feature that they use. Of the
    test pictures of MNIST, batches of 256 use 412 of 784 pixels in the mean.

    Attributes
    ----------
    features
        Sorted samples, ``[n, I]``.
    positions
        Their places in the data set, ``[n]``.
    columns
        Places of the features in a sample, ``[I]``.
    used
        Features that each batch needs.
    width
        Samples of a batch; the last may have fewer.
    """

    features: torch.Tensor
    positions: torch.Tensor
    columns: torch.Tensor
    used: list[int]
    width: int

    @classmethod
    def sort(cls, features: torch.Tensor, positions: torch.Tensor, *, width: int) -> Self | None:
        """Return samples in such an order; ``None`` where too few of their features are zero.

        Parameters
        ----------
        features
            Of all samples of the data set, ``[S, *shape]``.
        positions
            Of the shared samples, ``[n]``.
        width
            Samples of a batch.

        Examples
        --------
        >>> import torch
        >>> samples = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0], [4.0, 0.0, 5.0], [0.0, 6.0, 0.0]])
        >>> sparse = SparseSamples.sort(samples, torch.arange(4), width=2)
        >>> sparse.columns.tolist(), sparse.positions.tolist(), sparse.used
        ([2, 1, 0], [1, 0, 3, 2], [2, 3])
        """
        batches = torch.split(positions, width)
        counts = torch.stack([(features[batch].flatten(1) != 0).sum(0) for batch in batches]).sum(0)  # [I]
        columns = torch.argsort(counts, descending=True, stable=True)  # [I]
        ranks = torch.empty_like(columns).scatter_(0, columns, torch.arange(1, len(columns) + 1))  # [I]
        last = torch.cat([((features[batch].flatten(1) != 0) * ranks).amax(1) for batch in batches])  # [n]
        last, order = last.sort(stable=True)
        used = [max(1, int(each[-1])) for each in torch.split(last, width) if len(each)]
        if sum(used) > MAX_MULTIPLIED_SHARE * len(used) * len(columns):
            return None
        positions = positions[order]
        sorted_features = torch.cat([features[batch].flatten(1)[:, columns] for batch in torch.split(positions, width)])
        return cls(sorted_features, positions, columns, used, width)
