"""Sparse matrices of graphs by rows, without scipy: :class:`SparseRows`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.sparse when that is first used, which takes 20 MiB


class SparseRows(NamedTuple):
    """Entries of a sparse matrix by rows, named and ordered as in :class:`scipy.sparse.csr_array`.

    A device that needs no products of matrices needs no scipy.

    Attributes
    ----------
    data, indices
        Values and columns of all entries ``[E]``, row by row, sorted by column.
    indptr
        Where the entries of each row begin, and where the last ones end ``[N + 1]``.
    """

    data: npt.NDArray[np.float64]
    indices: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]

    @classmethod
    def of(
        cls, values: npt.NDArray[np.float64], rows: npt.NDArray[Any], columns: npt.NDArray[Any], *, count: int
    ) -> SparseRows:
        """Return the entries of a square matrix, each of which is given once.

        Examples
        --------
        >>> some = SparseRows.of(np.array([3.0, 5.0]), np.array([1, 0]), np.array([0, 1]), count=2)
        >>> some.data.tolist(), some.indices.tolist(), some.indptr.tolist()
        ([5.0, 3.0], [1, 0], [0, 1, 2])
        """
        order = np.argsort(rows.astype(np.int64) * count + columns)
        ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
        return cls(values[order], columns[order].astype(np.int32), ends.astype(np.int32))

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Row of each entry, ``[E]``."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    @property
    def transposed(self) -> SparseRows:
        """Entries of the transposed matrix."""
        return SparseRows.of(self.data, self.indices, self.rows, count=len(self.indptr) - 1)

    def __matmul__(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the product of the matrix and numbers ``[N, ...]``, which are added in the order of the entries."""
        products, counts = np.zeros((len(self.indptr) - 1, *values.shape[1:])), np.diff(self.indptr)
        for place in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(counts > place)
            entries = self.indptr[rows] + place
            products[rows] += (self.data[entries] * values[self.indices[entries]].T).T
        return products

    @property
    def dense(self) -> npt.NDArray[np.float64]:
        """Entries as an array ``[N, N]``."""
        whole = np.zeros((len(self.indptr) - 1, len(self.indptr) - 1))
        whole[self.rows, self.indices] = self.data
        return whole

    @property
    def matrix(self) -> scipy.sparse.csr_array:
        """Entries as a matrix of scipy."""
        count = len(self.indptr) - 1
        return scipy.sparse.csr_array((self.data, self.indices, self.indptr), shape=(count, count))
