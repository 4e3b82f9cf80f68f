r"""Spectral facts: the speed at which mixing weights lead all peers to consensus.

With :math:`J = \mathbf{1}\mathbf{1}^\top / N`, the contraction :math:`\lVert W_k \cdots W_1 - J \rVert_2` is the
factor by which k gossip steps shrink the distance from the mean at worst. For one symmetric W it is
:math:`\rho`, its second largest eigenvalue modulus.

Weights that do not keep the mean (an EL-Local schedule) agree elsewhere; their contraction measures the distance
from the mean that results. Weights that keep only sums (:func:`p2pfl.topology.push`) mix models and push-sum weights
in the same way; their contraction measures the quotients, with all push-sum weights one at first.

The spectral gap measures how slowly the last disagreement vanishes. Learning speeds up where mixing averages the noise
of learning, which is fresh in every round, over many peers early: :func:`effective_neighbours`.

References
----------
Vogels, Hendrikx and Jaggi, Beyond spectral gap: the role of the topology in decentralized learning, NeurIPS 2022.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.sparse, its linalg and csgraph when they are first used, which takes 30 MiB

from p2pfl.core.draws import draw
from p2pfl.core.errors import TopologyError
from p2pfl.topology.graph import depth
from p2pfl.topology.sparse_rows import SparseRows
from p2pfl.topology.weights import Weights

Floats = npt.NDArray[np.float64]

_DENSE = 256
"""Largest number of peers for which the product is formed; beyond, it is only applied."""
_SLACK = 1e-9
"""Relative error that is ignored where a tolerance is met exactly."""
_MOST_STEPS = 2**14
"""Number of gossip steps after which a schedule counts as one that never reaches the tolerance."""


def contraction(weights: Sequence[Weights]) -> float:
    r"""Return :math:`\lVert W_k \cdots W_1 - J \rVert_2` of weights in the order of their gossip steps.

    At zero every peer has the exact mean afterwards. At one some peers may be no closer to it. For one doubly
    stochastic W this is the second largest singular value.

    Parameters
    ----------
    weights
        One matrix per gossip step.

    Returns
    -------
    float
        The contraction.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, one_peer_exponential, ring
    >>> round(contraction([metropolis(ring(8))]), 8)
    0.80473785
    >>> round(contraction([metropolis(t) for t in one_peer_exponential(8).topologies]), 8)
    0.0
    """
    kept = all(each.keeps_mean and each.keeps_consensus for each in weights)
    if kept and any(each.averages for each in weights):
        return 0.0  # without the N^2 weights of an average
    n = len(weights[0].peers)
    matrices: list[Any] = [each.rows if n <= _DENSE else each.matrix for each in weights]
    masses = _push_sum_weights(weights)
    wanders = not all(each.keeps_mean for each in weights)
    if n <= _DENSE:
        product = _apply(matrices, np.eye(n)) / masses[:, None]  # [N, N]
        return float(np.linalg.norm(_centre(product) if wanders else product, 2))
    if len(weights) == 1 and weights[0].symmetric:
        return _largest(lambda vector: _apply(matrices, vector), n)
    back = [matrix.T.tocsr() for matrix in reversed(matrices)]

    def there_and_back(vector: Floats) -> Floats:
        vector = _apply(matrices, vector) / masses
        vector = (_centre(vector) if wanders else vector) / masses
        for matrix in back:
            vector = matrix @ vector
        return _centre(vector)

    return math.sqrt(_largest(there_and_back, n))


def gap(weights: Sequence[Weights]) -> float:
    """Return the spectral gap, one minus :func:`contraction`.

    Returns
    -------
    float
        The gap; zero if some peers never agree.

    Examples
    --------
    >>> from p2pfl.topology import hypercube, metropolis
    >>> round(gap([metropolis(hypercube(3))]), 8)
    0.5
    """
    return 1.0 - contraction(weights)


def steps(weights: Sequence[Weights], *, tolerance: float) -> int:
    r"""Return the smallest number of gossip steps, at least 1, whose contraction is at most ``tolerance``.

    Parameters
    ----------
    weights
        Weights of a period, which repeats. A symmetric or normal W needs
        :math:`\lceil \log \tau / \log \rho \rceil`; others are searched by bisection, because no step undoes
        the contraction of another. Weights that are not doubly stochastic may undo a little of it; then a
        smaller number may exist.
    tolerance
        Target contraction, between 0 and 1.

    Returns
    -------
    int
        Number of gossip steps.

    Raises
    ------
    TopologyError
        The tolerance is out of range, or the weights do not reach it.

    Examples
    --------
    >>> from p2pfl.topology import hypercube, metropolis
    >>> steps([metropolis(hypercube(3))], tolerance=2**-5)
    5
    """
    _check_tolerance(tolerance)
    if any(each.averages and each.keeps_mean for each in weights[:1]):
        return 1
    _check_joined(weights)
    if len(weights) == 1 and weights[0].keeps_mean and (weights[0].symmetric or _normal(weights[0].matrix)):
        rho = contraction(weights)
        _check_contracts(rho)
        return _ceil(math.log(tolerance) / math.log(rho)) if rho > tolerance else 1

    def reached(count: int) -> bool:
        return contraction([weights[step % len(weights)] for step in range(count)]) <= tolerance * (1 + _SLACK)

    enough = 1
    while not reached(enough):
        enough *= 2
        if enough > _MOST_STEPS:
            raise TopologyError(
                f"the weights do not contract to {tolerance} within {_MOST_STEPS} gossip steps; raise the "
                "tolerance or add edges"
            )
    first = enough // 2 + 1
    return first + bisect_left(range(first, enough), True, key=reached)


def chebyshev_steps(rho: float, tolerance: float) -> int:
    r"""Return the number of gossip steps that reach ``tolerance`` with Chebyshev acceleration.

    It is the smallest s with :math:`1 / T_s(1 / \rho) \le \tau`, the least that any polynomial of degree s in
    a symmetric W can promise (Scaman et al. 2017, arXiv 1702.08704): about the square root of
    :func:`steps`.

    Parameters
    ----------
    rho
        :func:`contraction` of one symmetric W.
    tolerance
        Between 0 and 1.

    Raises
    ------
    TopologyError
        The tolerance is out of range, or ``rho`` is not below one.

    Examples
    --------
    >>> chebyshev_steps(0.99, 1e-3)
    54
    """
    _check_tolerance(tolerance)
    _check_contracts(rho)
    return _ceil(math.acosh(1 / tolerance) / math.acosh(1 / rho)) if rho > tolerance else 1


def lowest(weights: Weights) -> float:
    """Return the smallest eigenvalue of one symmetric W.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> round(lowest(metropolis(ring(4))), 8)
    -0.33333333
    """
    matrix, n = weights.matrix, len(weights.peers)
    if n <= _DENSE:
        return float(np.linalg.eigvalsh(matrix.toarray())[0])
    return 1.0 - _largest(lambda vector: vector - matrix @ vector, n)  # I - W has no negative eigenvalue


def _apply(matrices: list[Any], vectors: Floats) -> Floats:
    """Return ``(W_k ... W_1 - J) v``; the mean is removed first, where nothing is lost to cancellation."""
    vectors = _centre(vectors)
    for matrix in matrices:
        vectors = matrix @ vectors
    return vectors


def _centre(vectors: Floats) -> Floats:
    centred: Floats = vectors - vectors.mean(axis=0)
    return centred


def _push_sum_weights(weights: Sequence[Weights]) -> Floats:
    """Return push-sum weights ``[N]`` that start at one: they stay one, except for weights that only keep sums."""
    masses = np.ones(len(weights[0].peers))
    if not all(each.keeps_consensus for each in weights):
        for each in weights:
            masses = each.rows @ masses
    return masses


def _largest(apply: Callable[[Floats], Floats], n: int) -> float:
    """Return the largest eigenvalue modulus of a symmetric operator, by Lanczos."""
    start = draw(0, "lanczos").standard_normal(n)
    size = float(np.linalg.norm(apply(start)) / np.linalg.norm(start))
    if size < 1e-14:  # only rounding is left, and Lanczos needs a nonzero operator
        return size
    operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=apply, dtype=np.float64)
    # With 64 vectors instead of 20, long rings and paths converge in a fraction of a second.
    values = scipy.sparse.linalg.eigsh(
        operator, k=1, which="LM", v0=start, ncv=64, tol=1e-12, return_eigenvectors=False
    )
    return float(abs(values[0]))


def _normal(matrix: scipy.sparse.csr_array) -> bool:
    """Return whether a matrix is normal, so that its powers shrink exactly as the powers of its contraction."""
    return bool(abs(matrix @ matrix.T - matrix.T @ matrix).max() < 1e-14)


def _ceil(ratio: float) -> int:
    return max(1, math.ceil(ratio * (1 - _SLACK)))


def _check_tolerance(tolerance: float) -> None:
    if not 0 < tolerance < 1:
        raise TopologyError(f"the tolerance must be between 0 and 1, but it is {tolerance}; change it")


def _check_contracts(rho: float) -> None:
    if not 0 <= rho < 1 - 1e-12:
        raise TopologyError(
            f"the contraction of the weights must be below 1, but it is {rho:.6g}; connect all peers and let "
            "each keep some weight for its own model"
        )


def _check_joined(weights: Sequence[Weights]) -> None:
    count = len(weights[0].peers)
    ways = [way for each in weights for way in (each.rows, each.rows.transposed)]
    either = np.unique(np.concatenate([way.rows * count + way.indices for way in ways]))
    entries = SparseRows.of(np.ones(len(either)), *np.divmod(either, count), count=count)
    if depth(entries) is None:
        parts, _ = scipy.sparse.csgraph.connected_components(entries.matrix, directed=False)
        raise TopologyError(f"the weights leave {parts} groups of peers that never mix; add edges between them")


NEGLIGIBLE = 1e-20
"""Weight below which the terms of a series are no longer summed."""


def effective_neighbours(weights: Sequence[Weights], *, decay: float) -> float:
    r"""Return :math:`n_W(\gamma)`, the number of peers that average noise which decays at rate :math:`\gamma`.

    For :math:`x_{t+1} = W(\sqrt{\gamma} x_t + \xi_t)` with fresh noise of variance one at every peer, it is the
    variance of a peer alone, :math:`1 / (1 - \gamma)`, divided by that of a peer in the network

    .. math:: \sum_{t \ge 1} \gamma^{t - 1} \lVert (W^t)_i \rVert^2,

    which is a mean over the peers, and over the gossip steps of a period. It is 1 without edges and n for the
    complete graph; it is small for small :math:`\gamma`, and approaches n as :math:`\gamma` approaches 1.

    Parameters
    ----------
    weights
        Weights of a period, which repeats; rows sum to one.
    decay
        Rate :math:`\gamma` of the memory, from 0 to below 1.

    Returns
    -------
    float
        Number of effective neighbours, from 1 to n.

    Raises
    ------
    TopologyError
        The decay is out of range, or rows do not sum to one.

    Examples
    --------
    >>> from p2pfl.topology import hypercube, metropolis, ring
    >>> [round(effective_neighbours([metropolis(graph)], decay=0.9), 3) for graph in (ring(32), hypercube(5))]
    [6.632, 19.636]
    """
    if not 0 <= decay < 1:
        raise TopologyError(f"the decay must be at least 0 and below 1, but it is {decay}; change it")
    return 1 / ((1 - decay) * float(np.mean(_stationary_variances(weights)(decay))))


def remainder(weights: Sequence[Weights]) -> float:
    r"""Return the fraction of the squared deviation from the mean that remains after a gossip step, on average.

    It is :math:`(\lVert W \rVert_F^2 - 1) / (N - 1)` for independent rows of one distribution, about the mean
    before the gossip step, averaged over the steps of a period. The worst case is the square of :func:`contraction`.

    Examples
    --------
    >>> from p2pfl.topology import epidemic_oracle, metropolis
    >>> schedule = epidemic_oracle(16, degree=2, period=3, seed=0)
    >>> round(remainder([metropolis(graph) for graph in schedule.topologies]), 4)  # (1 - 2/15) / 3
    0.2889
    """
    n = len(weights[0].peers)
    if n == 1:
        return 0.0
    return float(np.mean([((each.matrix.data**2).sum() - 1) / (n - 1) for each in weights]))


def _stationary_variances(weights: Sequence[Weights]) -> Callable[[float], list[Floats]]:
    """Return a function of the decay that gives the stationary variances of the peers after each gossip step."""
    if not all(each.keeps_consensus for each in weights):
        raise TopologyError("the rows of the weights do not sum to one; use metropolis weights")
    matrices = [each.matrix for each in weights]
    first = matrices[0].toarray()
    if len(matrices) > 1 or not np.array_equal(first, first.T):
        return lambda decay: _covariances(matrices, decay)
    values, vectors = np.linalg.eigh(first)
    return lambda decay: [vectors**2 @ (values**2 / (1 - decay * values**2))]


def _covariances(matrices: list[scipy.sparse.csr_array], decay: float) -> list[Floats]:
    r"""Return the diagonals of the solution of :math:`C = \gamma^p \Phi C \Phi^\top + Q` over a period of p steps.

    Every doubling sums twice as many terms of its series.
    """
    unit = np.eye(matrices[0].shape[0])

    def walk(matrix: scipy.sparse.csr_array, start: Floats) -> Floats:
        moved: Floats = matrix @ (matrix @ (decay * start + unit)).T  # symmetric, like the start
        return moved

    product, start = unit, np.zeros_like(unit)
    for matrix in matrices:
        product, start = matrix @ product, walk(matrix, start)
    left = decay ** len(matrices)
    while left > NEGLIGIBLE:
        start = start + left * (product @ start @ product.T)
        product, left = product @ product, left**2
    diagonals = []
    for matrix in matrices:
        start = walk(matrix, start)
        diagonals.append(start.diagonal())
    return diagonals
