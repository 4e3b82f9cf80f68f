r"""How fast weights bring everybody together.

With :math:`J = \mathbf{1}\mathbf{1}^\top / N`, one number says it all: the contraction
:math:`\lVert W_k \cdots W_1 - J \rVert_2`, by which k exchanges shrink the distance from the mean at
worst. For one symmetric W it is :math:`\rho`, its second largest eigenvalue modulus.

Weights that do not keep the mean (an EL-Local schedule) agree elsewhere: theirs is the distance from
whatever mean there is then. Weights that keep only sums (:func:`p2pfl.topology.push`) are those of rows and of
masses, by which rows are divided: theirs is of the quotients, all masses being one at first.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import LinearOperator, eigsh

from p2pfl.draws import draw
from p2pfl.errors import TopologyError
from p2pfl.topology.weights import Weights

Floats = npt.NDArray[np.float64]

_DENSE = 256
"""Up to how many peers the product is formed; beyond, it is only applied."""
_SLACK = 1e-9
"""Relative error forgiven where a tolerance is met exactly."""
_MOST_STEPS = 2**14
"""After how many exchanges a schedule counts as one that never gets there."""


def contraction(weights: Sequence[Weights]) -> float:
    r"""Return :math:`\lVert W_k \cdots W_1 - J \rVert_2` of weights in the order of their exchanges.

    Zero: everybody has the exact mean afterwards. One: somebody may be no closer to it. For one doubly
    stochastic W this is the second largest singular value.

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
    masses = _masses(weights)
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
    """One minus :func:`contraction`: the spectral gap."""
    return 1.0 - contraction(weights)


def steps(weights: Sequence[Weights] | Callable[[int], Weights], *, tolerance: float) -> int:
    r"""Return the smallest number of exchanges, at least 1, whose contraction is at most ``tolerance``.

    Parameters
    ----------
    weights
        Of a period, repeated over and over, or a function of the exchange. One W that is symmetric, or
        normal, needs :math:`\lceil \log \tau / \log \rho \rceil`; others are searched by bisection, for
        no exchange undoes another's contraction. Where weights are not doubly stochastic one might, by
        a little: then there may be a smaller number.
    tolerance
        Between 0 and 1.

    Raises
    ------
    TopologyError
        The tolerance is out of range, or the weights do not get there.

    Examples
    --------
    >>> from p2pfl.topology import hypercube, metropolis
    >>> steps([metropolis(hypercube(3))], tolerance=2**-5)
    5
    """
    _check_tolerance(tolerance)
    if not callable(weights):
        _check_joined(weights)
        if len(weights) == 1 and weights[0].keeps_mean and _normal(weights[0].matrix):
            rho = contraction(weights)
            _check_contracts(rho)
            return _ceil(math.log(tolerance) / math.log(rho)) if rho > tolerance else 1
    at = weights if callable(weights) else lambda exchange: weights[exchange % len(weights)]

    def reached(count: int) -> bool:
        return contraction([at(exchange) for exchange in range(count)]) <= tolerance * (1 + _SLACK)

    enough = 1
    while not reached(enough):
        enough *= 2
        if enough > _MOST_STEPS:
            raise TopologyError(
                f"expected weights that contract to {tolerance}, got none after {_MOST_STEPS} exchanges; "
                "raise the tolerance or add edges"
            )
    first = enough // 2 + 1
    return first + bisect_left(range(first, enough), True, key=reached)


def chebyshev_steps(rho: float, tolerance: float) -> int:
    r"""Return how many exchanges reach ``tolerance`` with Chebyshev's acceleration.

    The smallest s with :math:`1 / T_s(1 / \rho) \le \tau`, the least that any polynomial of degree s in
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


def heavy_ball_steps(rho: float, tolerance: float) -> int:
    r"""Return how many exchanges reach ``tolerance`` with the heavy ball.

    The smallest s with :math:`r^s (1 + s \sqrt{1 - \rho^2}) \le \tau`, where
    :math:`r = \rho / (1 + \sqrt{1 - \rho^2})` (Golub and Varga 1961): somewhat more than
    :func:`chebyshev_steps`.

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
    >>> heavy_ball_steps(0.99, 1e-3)
    65
    """
    _check_tolerance(tolerance)
    _check_contracts(rho)
    root = math.sqrt(1 - rho**2)

    def reached(steps: int) -> bool:
        return float((rho / (1 + root)) ** steps) * (1 + steps * root) <= tolerance * (1 + _SLACK)

    enough = 1
    while not reached(enough):
        enough *= 2
    return 1 + bisect_left(range(1, enough), True, key=reached)


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
    """``(W_k ... W_1 - J) v``; the mean goes first, where nothing is lost to cancellation."""
    vectors = _centred(vectors)
    for matrix in matrices:
        vectors = matrix @ vectors
    return vectors


def _centred(vectors: Floats) -> Floats:
    centred: Floats = vectors - vectors.mean(axis=0)
    return centred


def _masses(weights: Sequence[Weights]) -> Floats:
    """What masses of one have become, ``[N]``: still one, but for weights that only keep sums."""
    masses = np.ones(len(weights[0].peers))
    if not all(each.keeps_consensus for each in weights):
        for each in weights:
            masses = each.matrix @ masses
    return masses


def _largest(apply: Callable[[Floats], Floats], n: int) -> float:
    """Largest eigenvalue modulus of a symmetric operator, by Lanczos."""
    start = draw(0, "lanczos").standard_normal(n)
    size = float(np.linalg.norm(apply(start)) / np.linalg.norm(start))
    if size < 1e-14:  # nothing but rounding is left, and Lanczos needs something
        return size
    operator = LinearOperator((n, n), matvec=apply, dtype=np.float64)
    # 64 vectors instead of 20 make long rings and paths converge in a fraction of a second.
    values = eigsh(operator, k=1, which="LM", v0=start, ncv=64, tol=1e-12, return_eigenvectors=False)
    return float(abs(values[0]))


def _symmetric(matrix: scipy.sparse.csr_array) -> bool:
    return bool(abs(matrix - matrix.T).max() < 1e-14)


def _normal(matrix: scipy.sparse.csr_array) -> bool:
    """Powers of a normal matrix shrink exactly as its contraction's powers do."""
    return _symmetric(matrix) or bool(abs(matrix @ matrix.T - matrix.T @ matrix).max() < 1e-14)


def _ceil(ratio: float) -> int:
    return max(1, math.ceil(ratio * (1 - _SLACK)))


def _check_tolerance(tolerance: float) -> None:
    if not 0 < tolerance < 1:
        raise TopologyError(f"expected a tolerance between 0 and 1, got {tolerance}; change it")


def _check_contracts(rho: float) -> None:
    if not 0 <= rho < 1 - 1e-12:
        raise TopologyError(
            f"expected weights whose contraction is below 1, got {rho:.6g}; connect all peers and let each keep "
            "some weight for its own row"
        )


def _check_joined(weights: Sequence[Weights]) -> None:
    total = sum((each.matrix for each in weights[1:]), weights[0].matrix)
    parts, _ = csgraph.connected_components(total, directed=False)
    if parts > 1:
        raise TopologyError(
            f"expected weights that bring all peers together, got {parts} parts that never mix; add edges between them"
        )
