"""Weighted rows as integers of a ring: how wide it must be, and the sums that a receiver is given."""

from __future__ import annotations

import numpy as np
import scipy  # imports scipy.sparse when that is first used, which takes 20 MiB

from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, Floats, Ints, spans, to_grid


def width(terms: int, *, largest: float, bits: int) -> int:
    r"""Return the bits of the smallest ring that holds every sum: 32 if :math:`n\, L\, 2^f < 2^{31}`, else 64.

    Parameters
    ----------
    terms
        n, in a sum.
    largest
        L, the largest magnitude of a number in a term: for updates alone the clip and eight deviations
        of the noise. Infinite where nothing bounds it.
    bits
        f, fraction bits of the grid.

    Examples
    --------
    >>> width(8, largest=1.0 + 8 * 0.5, bits=20), width(8, largest=float("inf"), bits=20)
    (32, 64)
    """
    return 32 if terms * largest * 2.0**bits < 2**31 else 64


def portion(points: Floats, *, weight: float) -> Ints:
    r"""Return a weighted row on its grid, :math:`\mathrm{rint}(W_{rj} x_j)`, half to even; ``[P]``.

    Parameters
    ----------
    points
        ``[P]``, in steps of the grid; smaller than ``LIMIT``.
    weight
        :math:`W_{rj}`.

    Examples
    --------
    >>> portion(np.array([3.0, -5.0, 6.0]), weight=0.5)
    array([ 2, -2,  3])
    """
    out = np.empty(points.shape)  # [P]
    for columns in spans(points.size, VALUES_PER_BLOCK):  # each stays in the cache
        to_grid(np.multiply(points[columns], weight, out=out[columns]), scale=1.0)
    return out.view(np.int64)


def portions(weights: scipy.sparse.csr_array, points: Floats) -> Ints:
    r"""Return the sums of weighted rows, :math:`\sum_j \mathrm{rint}(W_{rj} x_j)`, ``[R, P]``: exact.

    Parameters
    ----------
    weights
        ``[R, S]``.
    points
        ``[S, P]``, in steps of the grid; smaller than ``LIMIT``.

    Examples
    --------
    >>> portions(scipy.sparse.csr_array([[0.5, 0.5], [0.0, 1.0]]), np.array([[3.0, 4.0], [5.0, 8.0]]))
    array([[4, 6],
           [5, 8]])
    """
    count, size = weights.shape[0], points.shape[1]
    sums = np.zeros((count, size), np.int64)  # [R, P]
    received = np.diff(weights.indptr)  # [R]
    for columns in spans(size, max(1, 4 * VALUES_PER_BLOCK // count)):
        for position in range(int(received.max(initial=0))):
            rows = np.flatnonzero(received > position)  # [K]
            edges = weights.indptr[rows] + position
            block = points[weights.indices[edges], columns]  # [K, columns]
            block *= weights.data[edges, None]
            sums[rows, columns] += to_grid(block, scale=1.0)
    return sums
