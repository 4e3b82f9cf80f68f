"""Sparse products of mixing weights and rows, on the device of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.neighbourhood import Released
from p2pfl.core.rows import Rows, for_each_block, to_device
from p2pfl.topology import Weights


class Mixer:
    """Products ``W @ Y``, which copy the weights of each gossip step to the device once.

    Parameters
    ----------
    weights
        Weights whose copies are kept; those of steps with faults are used once.
    """

    def __init__(self, weights: Sequence[Weights]) -> None:
        self._weights = weights
        self._ready: dict[tuple[int, torch.device, torch.dtype], _Operator] = {}
        self._powers: dict[tuple[int, tuple[float, ...], torch.device, torch.dtype], Power] = {}

    def __call__(self, matrix: scipy.sparse.csr_array, values: Rows, *, keep: bool = False) -> Rows:
        """Return ``W @ Y``, ``[N, P]``; with ``keep`` the caller keeps the matrix, so its copy is kept as well."""
        key = id(matrix), values.device, values.dtype
        operator = self._ready.get(key)
        if operator is None:
            operator = _Operator(matrix, values)
            if keep or self.keeps(matrix):
                self._ready[key] = operator
        return operator(values)

    def keeps(self, matrix: scipy.sparse.csr_array) -> bool:
        """Return whether the weights are those of the simulation, and no others that are used once."""
        return any(matrix is each.matrix for each in self._weights)

    def power(self, matrix: scipy.sparse.csr_array, omegas: tuple[float, ...], *, like: Rows) -> Power:
        """Return what several gossip steps with weights that the mixer keeps do to rows like some, and keep it."""
        key = id(matrix), omegas, like.device, like.dtype
        if key not in self._powers:
            self._powers[key] = _power(matrix, omegas, like)
        return self._powers[key]


GAIN = 8
"""Least number of products with a dense matrix in the time of one with a sparse matrix of as many weights.

``benchmarks/mixing.py`` finds 9 to 28 on cores with AVX-512.
"""

MAX_DENSE_PEERS = 2048
"""Most peers whose gossip steps are one product; the dense matrix takes 48 MiB for them."""


def at_once(matrix: scipy.sparse.csr_array, *, steps: int) -> bool:
    """Return whether gossip steps are faster as one product with their dense matrix; it follows from shapes alone.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> [at_once(metropolis(ring(peers)).matrix, steps=20) for peers in (100, 1000)]
    [True, False]
    """
    count = matrix.shape[0]
    return steps > 1 and count <= MAX_DENSE_PEERS and count**2 <= GAIN * steps * matrix.nnz


@dataclass(frozen=True)
class Power:
    """Several gossip steps as one dense matrix.

    Attributes
    ----------
    weights
        ``[N, N]`` float64 on the CPU, for sample weights.
    rounded
        The same on the device and in the number type of the rows.
    """

    weights: torch.Tensor
    rounded: torch.Tensor

    def __call__(self, released: Released) -> Released:
        """Return rows and sample weights after these steps."""
        masses = None if released.masses is None else self.weights @ released.masses  # [N, 1]
        return Released(self.rounded @ released.values, masses)


def _power(matrix: scipy.sparse.csr_array, omegas: tuple[float, ...], like: Rows) -> Power:
    """Return what gossip steps make of the identity."""
    previous = now = np.eye(matrix.shape[0])  # [N, N]
    for omega in omegas:
        mixed = matrix @ now
        if omega != 1:
            mixed = omega * mixed + (1 - omega) * previous
        previous, now = now, mixed
    weights = torch.from_numpy(now)
    return Power(weights, to_device(weights.to(like.dtype), like.device))


def product(matrix: scipy.sparse.csr_array, values: Rows) -> Rows:
    """Return ``W @ Y`` for sparse W, ``[N, P]``.

    ``embedding_bag`` is torch's fused gather and weighted sum, and beats the CSR products of torch and scipy
    (benchmarks/mixing.py). On the CPU several threads mix blocks of receivers. If all weights are equal, as on
    complete graphs, there is one average, which all rows are (:func:`p2pfl.core.rows.repeated`).

    Returns
    -------
    torch.Tensor
        Mixed rows ``[N, P]``.
    """
    return _Operator(matrix, values)(values)


def uniform(matrix: scipy.sparse.csr_array, *, tolerance: float = 0.0) -> bool:
    """Return whether all receivers weigh all rows alike, up to a tolerance, so that there is one average.

    Examples
    --------
    >>> from p2pfl.topology import complete, metropolis, ring
    >>> uniform(metropolis(complete(4)).matrix), uniform(metropolis(ring(4)).matrix)
    (True, False)
    """
    count = matrix.shape[0]
    if matrix.shape[1] != count or matrix.nnz != count**2 or not matrix.has_sorted_indices:
        return False
    return bool((abs(matrix.data.reshape(count, count) - matrix.data[:count]) <= tolerance).all())


class _Operator:
    """Matrix on the device and in the number type of some rows."""

    def __init__(self, matrix: scipy.sparse.csr_array, like: Rows) -> None:
        count, device = matrix.shape[0], like.device
        self.count = count
        self.alike = uniform(matrix)
        data = matrix.data[:count] if self.alike else matrix.data
        self.data = to_device(torch.from_numpy(data).to(like.dtype), device)  # [N] or [E]
        if not self.alike:
            self.indices = to_device(torch.from_numpy(matrix.indices).long(), device)  # [E]
            self.ends = matrix.indptr.tolist()
            self.begins = to_device(torch.from_numpy(matrix.indptr[:-1]).long(), device)  # [N]

    def __call__(self, values: Rows) -> Rows:
        if self.alike:
            return (self.data @ values).expand(self.count, -1)  # [N, P]
        values = values.contiguous()  # of rows that are one in memory, embedding_bag takes ten times as long
        if values.device.type != "cpu":
            return self._mix(values, slice(0, self.count))
        mixed = values.new_empty(self.count, values.shape[-1])  # [N, P]
        for_each_block(lambda part: mixed[part].copy_(self._mix(values, part)), mixed)
        return mixed

    def _mix(self, values: Rows, part: slice) -> Rows:
        """Return the mixed rows of some receivers."""
        low, high = self.ends[part.start], self.ends[min(part.stop, self.count)]
        begins = self.begins[part] - low
        edges = slice(low, high)
        mixed: Rows = torch.nn.functional.embedding_bag(
            self.indices[edges], values, begins, mode="sum", per_sample_weights=self.data[edges]
        )
        return mixed
