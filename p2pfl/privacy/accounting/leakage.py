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
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.linalg when that is first used, which takes 6 MiB
import scipy.sparse  # likewise its csgraph

from p2pfl.core.errors import InputError
from p2pfl.topology import Topology

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Edge = tuple[str, str]
Key = TypeVar("Key", str, Edge)
Noise = float | Mapping[str, float]
"""Deviation of the private noise: of every peer, or peer by peer."""
Mask = float | Mapping[Edge, float]
"""Deviation of an edge's noise: of every edge, or edge by edge."""

SPREAD = 2.0**20
"""Ratio of the largest and the smallest variance up to which Cholesky's factors are as good as needed."""

_IN_RANGE = 1e-9
"""Up to which part of its length a column counts as lying in the range of the noise."""


def find_first_highest(leaks: Floats) -> int:
    """Return the first place of the largest leak; those that differ only by rounding are equal, on every processor."""
    most = leaks.max()
    return int(np.argmax(leaks >= most - 1e-9 * abs(most))) if math.isfinite(most) else int(np.argmax(leaks))


def leakage(graph: Topology, *, noise: Noise, mask: Mask, colluders: Collection[str] = frozenset()) -> dict[str, float]:
    r"""Return :math:`(\Sigma^{-1})_{uu}` of each honest peer u; multiply by :math:`S^2` to get :math:`\mu^2`.

    Infinite where private noise is missing: a component of honest peers all without it gives its
    sum away exactly. Dense: one inverse for each component, for up to a few thousand peers.

    Parameters
    ----------
    graph
        The mask graph; directed edges mask as undirected ones.
    noise, mask
        Deviations of private noise and of masks, zero or more; one number, or a mapping of every peer
        and of every edge.
    colluders
        Peers that reveal all they know. A peer whose masks were revealed counts as one, too.

    Returns
    -------
    dict
        In peer order.

    Raises
    ------
    InputError
        A deviation that is negative, infinite or missing, or a colluder who is no peer.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> round(leakage(ring(8), noise=1.0, mask=4.0)["peer0"], 10)
    0.1630950217
    >>> round(leakage(ring(8), noise=1.0, mask=4.0, colluders={"peer1"})["peer0"], 7)
    0.2365327
    """
    cover = NoiseCover.of(graph, noise=noise, mask=mask)
    kept = cover.honest(colluders)
    return {cover.peers[row]: float(leak) for row, leak in zip(kept, cover.leaks(kept), strict=True)}


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
    def of(cls, graph: Topology, *, noise: Noise, mask: Mask) -> NoiseCover:
        """Check the deviations and square them."""
        own: Floats = np.array(_deviations("noise", noise, graph.peers), dtype=np.float64)  # [N]
        masked = isinstance(mask, Mapping) or mask  # without masks, a million edges are not looked at
        edges = sorted({(min(edge), max(edge)) for edge in graph.edges}) if masked else []
        if isinstance(mask, Mapping):
            mask = {(min(edge), max(edge)): deviation for edge, deviation in mask.items()}
        deviations: Floats = np.array(_deviations("mask", mask, edges), dtype=np.float64)  # [E]
        number = {peer: row for row, peer in enumerate(graph.peers)}
        ends = np.array([(number[a], number[b]) for a, b in edges], dtype=np.int64).reshape(-1, 2)  # [E, 2]
        there = deviations**2 >= np.finfo(np.float64).tiny  # a square that underflows covers nothing
        ends, deviations = ends[there], deviations[there]
        places = tuple(np.concatenate([ends, ends[:, ::-1]]).T)
        masks = scipy.sparse.coo_array((np.tile(deviations**2, 2), places), shape=(len(own), len(own))).tocsr()
        masks.sort_indices()
        return cls(graph.peers, own**2, masks)

    def honest(self, colluders: Collection[str]) -> Ints:
        """Return the row numbers of all peers except the colluders."""
        colluders = set(colluders)
        if strangers := sorted(colluders - set(self.peers)):
            raise InputError(f'colluder "{strangers[0]}" is not one of the {len(self.peers)} peers; check its name')
        return np.array([row for row, peer in enumerate(self.peers) if peer not in colluders], dtype=np.int64)

    def without(self, gone: Collection[str]) -> NoiseCover:
        """Take the masks of the edges of some peers away."""
        here = scipy.sparse.diags_array([float(peer not in gone) for peer in self.peers])  # [N, N]
        masks = scipy.sparse.csr_array(here @ self.masks @ here)
        masks.eliminate_zeros()
        masks.sort_indices()
        return NoiseCover(self.peers, self.own, masks)

    def leaks(self, kept: Ints) -> Floats:
        """Return the leaks of the kept peers, ``[H]``, if all others collude."""
        leaks = self._alone(kept)
        for part, own, masks in self._parts(kept):
            leaks[part] = _precision(own, masks).diagonal()
        return leaks

    def precision(self) -> Floats:
        r"""Return :math:`\Sigma^{-1}` without colluders, ``[N, N]``; blocks without noise are infinite."""
        everybody = np.arange(len(self.peers))
        matrix = np.diag(self._alone(everybody))  # [N, N]
        for part, own, masks in self._parts(everybody):
            matrix[np.ix_(part, part)] = _precision(own, masks)
        return matrix

    def _alone(self, kept: Ints) -> Floats:
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
    if max(own.max(), masks.max()) <= SPREAD * least:
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
    found: Floats = half.T @ (half / pivots[:, None])
    return found


def linear_view(
    A: npt.ArrayLike,
    B: npt.ArrayLike,
    *,
    variances: npt.ArrayLike,
    sensitivity: float,
    users: Sequence[Hashable] | None = None,
    local: float | Mapping[Hashable, float] = math.inf,
) -> dict[Hashable, float]:
    r"""Return :math:`\mu` of each user against whoever sees :math:`y = A x + B z`, z Gaussian.

    With :math:`G = A^\top (B \operatorname{diag}(v) B^\top)^+ A` and a user's columns s, t, in each of
    which what he adds changes by at most S,

    .. math:: \mu_u^2 \le S^2 \sum_{s,t} |G_{us,ut}|

    with equality for a single column; infinite where a column of his is outside the range of B, for
    then some of it is seen without noise. For restricted observers, retries, and noise that is
    correlated in time. Where later rows depend on what the observer did not see, this relies on the
    adaptive theorem of MAFALDA (arXiv 2510.17480).

    Singular values that double precision cannot tell from zero are taken as no noise at all, so an
    ill-conditioned view is reported as leaking more, never less.

    Parameters
    ----------
    A, B
        ``[M, K]`` and ``[M, Z]``, good to about nine digits; leave out the columns of noise that the observer knows.
    variances
        ``[Z]`` of z, or one for all.
    sensitivity
        S.
    users
        ``[K]``: whose column of A it is; left out, each its own.
    local
        What :math:`\mu` is at most, by the noise that only the user knows; of all users, or user by user.

    Raises
    ------
    InputError
        Shapes that do not fit, numbers that are not finite or negative variances.

    Examples
    --------
    Two peers, one mask, seen by everybody:

    >>> both = linear_view([[1, 0], [0, 1]], [[1, 0, 1], [0, 1, -1]], variances=[1, 1, 4], sensitivity=1.0)
    >>> round(both[0] ** 2, 6)
    0.555556
    """
    A, B = np.array(A, dtype=np.float64, ndmin=2), np.array(B, dtype=np.float64, ndmin=2)
    users = range(A.shape[1]) if users is None else users
    deviations = _check_view(A, B, np.asarray(variances, dtype=np.float64), users)
    noise = B * deviations  # [M, Z]
    whitened, outside = whiten(A, noise)
    result: dict[Hashable, float] = {}
    for user in dict.fromkeys(users):
        columns = [column for column, whose in enumerate(users) if whose == user]
        gram = whitened[:, columns].T @ whitened[:, columns]
        mu = math.inf if outside[columns].any() else sensitivity * math.sqrt(np.abs(gram).sum())
        result[user] = float(min(mu, local[user] if isinstance(local, Mapping) else local))
    return result


def whiten(A: Floats, noise: Floats) -> tuple[Floats, Ints]:
    r"""Return what :math:`y = A x + N z` with standard normal z shows of x, in units of the noise.

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
    # Multiplying a message by a number tells nothing, but helps the singular values.
    size = np.linalg.norm(noise, axis=1, keepdims=True)  # [M, 1]
    size = np.where(size > 0, size, np.linalg.norm(A, axis=1, keepdims=True))  # [M, 1]
    size[size == 0] = 1.0
    left, singular, _ = np.linalg.svd(noise / size, full_matrices=noise.shape[0] > noise.shape[1])  # [M, M]
    A = A / size
    cut = max(noise.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)
    rank = int((singular > cut).sum())
    seen = left.T @ A  # [M, K]
    outside = np.linalg.norm(seen[rank:], axis=0) > _IN_RANGE * np.linalg.norm(A, axis=0)  # [K]
    return seen[:rank] / singular[:rank, None], outside.astype(np.int64)


def _check_view(A: Floats, B: Floats, variances: Floats, users: Sequence[Hashable]) -> Floats:
    """Return the deviations, ``[Z]``."""
    if A.shape[0] != B.shape[0] or len(users) != A.shape[1] or variances.shape not in {(), (B.shape[1],)}:
        raise InputError(
            f"A {A.shape}, B {B.shape}, variances {variances.shape} and {len(users)} users do not fit A [M, K], "
            "B [M, Z], Z variances and K users; give each message a row and each column of A its user"
        )
    if not (np.isfinite(A).all() and np.isfinite(B).all() and np.isfinite(variances).all() and (variances >= 0).all()):
        raise InputError("the view contains entries that are not finite or variances below 0; fix the view")
    return np.broadcast_to(np.sqrt(variances), B.shape[1:])


def _deviations(name: str, given: float | Mapping[Key, float], keys: Sequence[Key]) -> list[float]:
    """Return one deviation for each key, in order."""
    if isinstance(given, Mapping):
        if odd := set(keys) ^ set(given):
            key = min(odd, key=str)
            shown = "-".join(key) if isinstance(key, tuple) else key
            raise InputError(
                f'a {name} deviation is needed for each place in the graph and no other, but "{shown}" is in '
                "only one of both; add or remove it"
            )
        values = [given[key] for key in keys]
    else:
        values = [given] * len(keys)
        _check_deviation(name, given)
    for value in values:
        _check_deviation(name, value)
    return [float(value) for value in values]


def _check_deviation(name: str, deviation: float) -> None:
    if not 0 <= deviation < math.inf:
        raise InputError(f"the {name} deviation is {deviation}, but must be at least 0; 0 adds no {name}")
