r"""Spectral facts: the speed at which mixing weights lead all peers to consensus.

With :math:`J = \mathbf{1}\mathbf{1}^\top / N`, the contraction :math:`\lVert W_k \cdots W_1 - J \rVert_2` is the
factor by which k gossip steps shrink the distance from the mean at worst. For one symmetric W it is
:math:`\rho`, its second largest eigenvalue modulus.

Weights that do not keep the mean (an EL-Local schedule) agree elsewhere; their contraction measures the distance
from the mean that results. Weights that keep only sums (:func:`p2pfl.topology.push`) mix models and push-sum weights
in the same way; their contraction measures the quotients, with all push-sum weights one at first.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse  # imports its linalg and csgraph when they are first used, which takes 10 MiB

from p2pfl.core.draws import draw
from p2pfl.core.errors import TopologyError
from p2pfl.topology.graph import depth
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
    matrices = [each.matrix for each in weights]
    n = len(weights[0].peers)
    masses = _push_sum_weights(weights)
    wanders = not all(each.keeps_mean for each in weights)
    if n <= _DENSE:
        product = _apply(matrices, np.eye(n)) / masses[:, None]  # [N, N]
        return float(np.linalg.norm(_centred(product) if wanders else product, 2))
    if len(matrices) == 1 and _symmetric(matrices[0]):
        return _largest(lambda vector: _apply(matrices, vector), n)
    back = [matrix.T.tocsr() for matrix in reversed(matrices)]

    def there_and_back(vector: Floats) -> Floats:
        vector = _apply(matrices, vector) / masses
        vector = (_centred(vector) if wanders else vector) / masses
        for matrix in back:
            vector = matrix @ vector
        return _centred(vector)

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
    _check_joined(weights)
    if len(weights) == 1 and weights[0].keeps_mean and _normal(weights[0].matrix):
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


def _apply(matrices: list[scipy.sparse.csr_array], vectors: Floats) -> Floats:
    """Return ``(W_k ... W_1 - J) v``; the mean is removed first, where nothing is lost to cancellation."""
    vectors = _centred(vectors)
    for matrix in matrices:
        vectors = matrix @ vectors
    return vectors


def _centred(vectors: Floats) -> Floats:
    centred: Floats = vectors - vectors.mean(axis=0)
    return centred


def _push_sum_weights(weights: Sequence[Weights]) -> Floats:
    """Return push-sum weights ``[N]`` that start at one: they stay one, except for weights that only keep sums."""
    masses = np.ones(len(weights[0].peers))
    if not all(each.keeps_consensus for each in weights):
        for each in weights:
            masses = each.matrix @ masses
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


def _symmetric(matrix: scipy.sparse.csr_array) -> bool:
    return bool(abs(matrix - matrix.T).max() < 1e-14)


def _normal(matrix: scipy.sparse.csr_array) -> bool:
    """Return whether a matrix is normal, so that its powers shrink exactly as the powers of its contraction."""
    return _symmetric(matrix) or bool(abs(matrix @ matrix.T - matrix.T @ matrix).max() < 1e-14)


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
    total = sum((each.matrix for each in weights[1:]), weights[0].matrix)
    either = scipy.sparse.csr_array(total + total.T)
    if depth(either) is None:
        parts, _ = scipy.sparse.csgraph.connected_components(either, directed=False)
        raise TopologyError(f"the weights leave {parts} groups of peers that never mix; add edges between them")
