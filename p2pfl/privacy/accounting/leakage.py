r"""Leakage: what all published values reveal of one peer's row, exactly and for any graph.

What colluders know can be subtracted. What is left of the honest peers' rows is
:math:`N(x, \Sigma)` in every coordinate, with :math:`s_i` the private noise of peer i, K the
incidence of the mask edges between honest peers and :math:`v_e` their variances:

.. math:: \Sigma = \operatorname{diag}(s_i^2) + K \operatorname{diag}(v_e) K^\top

A change of peer u's row of norm S is then exactly :math:`\mu`-GDP with
:math:`\mu^2 = S^2 (\Sigma^{-1})_{uu}`. That diagonal is the leak.

References
----------
The optimum of the program whose feasible points prove the theorems of GOPA, see :mod:`p2pfl.privacy.masks`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.linalg and scipy.sparse when they are first used, which takes 26 MiB

from p2pfl.core.errors import InputError
from p2pfl.topology import Topology

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_VARIANCE_RATIO = 2.0**20
"""Ratio of the largest and the smallest variance up to which Cholesky's factors are as good as needed."""

_RANGE_TOLERANCE = 1e-9
"""Up to which part of its length a column counts as lying in the range of the noise."""


def find_first_highest(leaks: Floats) -> int:
    """Return the first place of the largest leak; those that differ only by rounding are equal, on every processor."""
    most = leaks.max()
    return int(np.argmax(leaks >= most - 1e-9 * abs(most))) if math.isfinite(most) else int(np.argmax(leaks))


def check_deviations(*, noise: float, mask: float) -> None:
    """Raise :class:`InputError` for a deviation that is negative or infinite."""
    for name, deviation in (("noise", noise), ("mask", mask)):
        if not 0 <= deviation < math.inf:
            raise InputError(f"the {name} deviation is {deviation}, but must be at least 0; 0 adds no {name}")


def complete_leak(count: int, *, noise: float, mask: float) -> float:
    r"""Return the leak of each of so many honest peers that all share masks of one deviation.

    The Laplacian of a complete graph has the eigenvalue 0 once, of the constant vector, and n otherwise:

    .. math:: (\Sigma^{-1})_{uu} = \frac{1}{n s^2} + \frac{1 - 1/n}{s^2 + n m^2}

    Examples
    --------
    >>> from p2pfl.topology import complete
    >>> cover = NoiseCover.of(complete(5), noise=0.5, mask=2.0)
    >>> math.isclose(cover.leaks(cover.honest(()))[0], complete_leak(5, noise=0.5, mask=2.0))
    True
    """
    if not noise:
        return math.inf
    return 1 / (count * noise**2) + (1 - 1 / count) / (noise**2 + count * mask**2)


@dataclass(frozen=True, eq=False)
class NoiseCover:
    """The noise that covers a round, as variances in peer order.

    Parameters
    ----------
    own
        ``[N]``, of private noise.
    masks
        ``[N, N]`` symmetric, of the mask of each edge; none stored that is zero.
    """

    peers: tuple[str, ...]
    own: Floats
    masks: scipy.sparse.csr_array

    @classmethod
    def of(cls, graph: Topology, *, noise: float, mask: float) -> NoiseCover:
        """Return the cover by private noise and by masks of one deviation each; directed edges mask as undirected ones.

        Raises
        ------
        InputError
            A deviation is negative or infinite.

        Examples
        --------
        >>> from p2pfl.topology import ring
        >>> cover = NoiseCover.of(ring(8), noise=1.0, mask=4.0)
        >>> [round(float(cover.leaks(cover.honest(colluders))[0]), 7) for colluders in ((), {"peer1"})]
        [0.163095, 0.2365327]
        """
        check_deviations(noise=noise, mask=mask)
        count, square = len(graph.peers), mask**2
        masks = scipy.sparse.csr_array((count, count))
        if square >= np.finfo(np.float64).tiny:  # a square that underflows covers nothing
            masks = ((graph.adjacency + graph.adjacency.T) > 0).astype(np.float64).tocsr() * square
            masks.sort_indices()
        return cls(graph.peers, np.full(count, noise**2), masks)

    def honest(self, colluders: Collection[str]) -> Ints:
        """Return the row numbers of all peers except the colluders."""
        colluders = set(colluders)
        if strangers := sorted(colluders - set(self.peers)):
            raise InputError(f'colluder "{strangers[0]}" is not one of the {len(self.peers)} peers; check its name')
        return np.array([row for row, peer in enumerate(self.peers) if peer not in colluders], dtype=np.int64)

    def leaks(self, kept: Ints) -> Floats:
        """Return the leaks of the kept peers, ``[H]``, if all others collude."""
        leaks = self._leaks_without_masks(kept)
        for part, own, masks in self._parts(kept):
            leaks[part] = _precision(own, masks).diagonal()
        return leaks

    def precision(self) -> Floats:
        r"""Return :math:`\Sigma^{-1}` without colluders, ``[N, N]``; blocks without noise are infinite."""
        everybody = np.arange(len(self.peers))
        matrix = np.diag(self._leaks_without_masks(everybody))  # [N, N]
        for part, own, masks in self._parts(everybody):
            matrix[np.ix_(part, part)] = _precision(own, masks)
        return matrix

    def _leaks_without_masks(self, kept: Ints) -> Floats:
        """Return the leaks of the kept peers without masks, ``[H]``."""
        with np.errstate(divide="ignore"):
            alone: Floats = 1 / self.own[kept]
        return alone

    def _parts(self, kept: Ints) -> Iterator[tuple[Ints, Floats, Floats]]:
        """Yield each component of two or more of the kept: places ``[C]``, own ``[C]`` and masks ``[C, C]``."""
        masks = self.masks[kept][:, kept] if len(kept) < len(self.peers) else self.masks
        if not masks.nnz:  # a device without masks need not import csgraph
            return
        count, label = scipy.sparse.csgraph.connected_components(masks, directed=False)
        order = np.argsort(label, kind="stable")
        sizes = np.bincount(label, minlength=count)
        for part in np.split(order, np.cumsum(sizes)[:-1]) if count else []:
            if len(part) > 1:
                yield part, self.own[kept[part]], masks[part][:, part].toarray()


def _precision(own: Floats, masks: Floats) -> Floats:
    r"""Return :math:`\Sigma^{-1}` of one connected component, ``[C, C]``.

    Masks far larger than the noise leave :math:`\Sigma` nearly singular: its quadratic form along the
    constant vector is the noise alone. So the coordinates are changed, from :math:`z` to the total
    :math:`1^\top z`, whose variance the masks do not touch, and all but one peer r, the root. With
    R the inverse of the grounded :math:`\Sigma` (row and column r left out), :math:`w` the variances
    of the masks of r and :math:`b = R w`, :math:`b_r = 1`,

    .. math:: \Sigma^{-1} = R + b b^\top / \kappa, \qquad \kappa = s_r^2 + \sum_j s_j^2 b_j

    All terms are sums of numbers that are not negative, so the result is as good for masks a million times the noise
    as for none.
    """
    n = len(own)
    if not own.any():
        return np.full((n, n), np.inf)
    root = int(np.argmax(masks.sum(axis=1)))
    rest = np.delete(np.arange(n), root)
    through = np.ones(n)  # [C], b
    result = np.zeros((n, n))  # [C, C]
    if n > 1:
        inside = masks[np.ix_(rest, rest)]
        inverse = _inverse(inside, own[rest] + masks[rest, root])
        through[rest] = inverse @ masks[rest, root]
        result[np.ix_(rest, rest)] = inverse
    result += np.outer(through, through / (own @ through))
    return result


def _inverse(masks: Floats, own: Floats) -> Floats:
    r"""Return the inverse of :math:`\operatorname{diag}(o + M 1) - M`, ``[n, n]``, for M and o that are not negative.

    Noise far below the masks is lost in the diagonal of that matrix. Where rounding could lose it, the elimination
    keeps M and o apart and never subtracts (Grassmann, Taksar and Heyman, "Regenerative analysis and steady state
    distributions for Markov chains", Operations Research 33(5), 1985). Each number is then exact to rounding, at the
    price of a step of Python for each row.
    """
    least = min(own[own > 0].min(initial=np.inf), masks[masks > 0].min(initial=np.inf))
    if max(own.max(), masks.max()) <= MAX_VARIANCE_RATIO * least:
        matrix = np.diag(own + masks.sum(axis=1)) - masks
        factor = scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
        lower, _ = scipy.linalg.lapack.dpotri(factor, lower=True)
        lower = np.tril(lower)
        inverse: Floats = lower + np.tril(lower, -1).T
        return inverse
    masks, own, n = masks.copy(), own.copy(), len(own)
    pivots, factor = np.ones(n), np.eye(n)
    for k in range(n):
        row = masks[k, k + 1 :]
        pivots[k] = own[k] + row.sum()
        share = row / pivots[k]
        factor[k + 1 :, k] = -share
        own[k + 1 :] += share * own[k]
        masks[k + 1 :, k + 1 :] += np.outer(share, row)
        np.fill_diagonal(masks[k + 1 :, k + 1 :], 0.0)
    half = scipy.linalg.solve_triangular(factor, np.eye(n), lower=True, unit_diagonal=True)  # not negative
    product: Floats = half.T @ (half / pivots[:, None])
    return product


def whiten(A: Floats, noise: Floats) -> tuple[Floats, Ints]:
    r"""Return the part of x that :math:`y = A x + N z` with standard normal z shows, in units of the noise.

    Parameters
    ----------
    A, noise
        ``[M, K]`` and ``[M, Z]``.

    Returns
    -------
    whitened, outside
        ``[rank, K]``, whose Gram matrix is :math:`G = A^\top (N N^\top)^+ A`; and ``[K]``, 1 for a column
        outside the range of the noise, of which some is seen as it is.

    Examples
    --------
    A sum of two numbers, each under noise of its own:

    >>> whitened, outside = whiten(np.array([[1.0, 1.0]]), np.array([[1.0, 1.0]]))
    >>> np.round(whitened.T @ whitened, 3).tolist(), outside.tolist()
    ([[0.5, 0.5], [0.5, 0.5]], [0, 0])
    """
    # Multiplying a message by a number shows nothing, but helps the singular values.
    size = np.linalg.norm(noise, axis=1, keepdims=True)  # [M, 1]
    size = np.where(size > 0, size, np.linalg.norm(A, axis=1, keepdims=True))  # [M, 1]
    size[size == 0] = 1.0
    left, singular, _ = np.linalg.svd(noise / size, full_matrices=noise.shape[0] > noise.shape[1])  # [M, M]
    A = A / size
    cut = max(noise.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)
    rank = int((singular > cut).sum())
    seen = left.T @ A  # [M, K]
    outside = np.linalg.norm(seen[rank:], axis=0) > _RANGE_TOLERANCE * np.linalg.norm(A, axis=0)  # [K]
    return seen[:rank] / singular[:rank, None], outside.astype(np.int64)
