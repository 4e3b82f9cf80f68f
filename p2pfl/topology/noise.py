r"""What mixing does to the noise of learning, which comes anew in every round.

A small spectral gap says how slowly the last disagreement dies. Learning is faster where noise is averaged
over many peers soon, and that is another number: the effective neighbours :math:`n_W(\gamma)` of

    Vogels, Hendrikx and Jaggi, Beyond spectral gap: the role of the topology in decentralized learning,
    NeurIPS 2022.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse

from p2pfl.errors import TopologyError
from p2pfl.topology.weights import Weights

Floats = npt.NDArray[np.float64]

NEGLIGIBLE = 1e-20
"""Weight of the terms of a series that are no longer summed."""


def effective_neighbours(weights: Sequence[Weights], *, decay: float) -> float:
    r"""Return :math:`n_W(\gamma)`: over how many peers noise is averaged that is forgotten at that rate.

    Of :math:`x_{t+1} = W(\sqrt{\gamma} x_t + \xi_t)` with fresh noise of variance one everywhere, the variance
    of a peer alone, :math:`1 / (1 - \gamma)`, over that of a peer in the swarm

    .. math:: \sum_{t \ge 1} \gamma^{t - 1} \lVert (W^t)_i \rVert^2,

    which is a mean over the peers, and over the phases where weights take turns. One without edges, n for
    the complete graph; few for small :math:`\gamma`, close to n as it comes near 1.

    Parameters
    ----------
    weights
        Of a period, repeated over and over; rows sum to one.
    decay
        :math:`\gamma`, of the memory: from 0 to below 1.

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
        raise TopologyError(f"expected a decay from 0 to below 1, got {decay}; change it")
    return 1 / ((1 - decay) * float(np.mean(_settled(weights)(decay))))


def rate(weights: Sequence[Weights], *, step: float, noise: float) -> float:
    r"""Return by how much a round of learning shrinks the squared error on random quadratics.

    Every peer sees :math:`\tfrac12 (d^\top x)^2` for random d with :math:`E\,dd^\top = I` and
    :math:`E\,(dd^\top)^2 = \zeta I`, makes a gradient step :math:`\eta`, and mixes. Then
    :math:`E\,x_t^2 = (1 - r)\,E\,x_{t-1}^2` with r the solution of

    .. math:: r = 1 - (1 - \eta)^2 - \frac{(\zeta - 1)\,\eta^2}{n_W(\gamma)}, \qquad
              \gamma = \frac{(1 - \eta)^2}{1 - r},

    here with the smallest number of effective neighbours that any peer has in any phase: exact where all
    are alike, else a bound.

    Parameters
    ----------
    weights
        Of a period; rows sum to one.
    step
        :math:`\eta`.
    noise
        :math:`\zeta`, at least 1.

    Raises
    ------
    TopologyError
        ``step`` not between 0 and 1, ``noise`` below 1, or rows that do not sum to one.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> round(rate([metropolis(ring(32))], step=0.0574, noise=100), 5)
    0.0797
    """
    if not (0 < step < 1 and noise >= 1):
        raise TopologyError(f"expected a step between 0 and 1 and noise of at least 1, got {step} and {noise}; change")
    return _rate(_settled(weights), step, noise)


def best_rate(weights: Sequence[Weights], *, noise: float) -> tuple[float, float]:
    """Return the largest :func:`rate` that any step gives, and that step.

    Raises
    ------
    TopologyError
        As :func:`rate`.

    Examples
    --------
    >>> from p2pfl.topology import complete, metropolis
    >>> [round(each, 4) for each in best_rate([metropolis(complete(32))], noise=100)]
    [0.2443, 0.2443]
    """
    if noise < 1:
        raise TopologyError(f"expected noise of at least 1, got {noise}; raise it")
    variances = _settled(weights)
    found = scipy.optimize.minimize_scalar(
        lambda log: -_rate(variances, math.exp(log), noise),
        bounds=(-math.log(noise) - 1e-3, -1e-6),  # alone 1 / noise is best, and mixing allows larger steps
        method="bounded",
        options={"xatol": 1e-7},
    )
    return -float(found.fun), math.exp(found.x)


def remainder(weights: Sequence[Weights]) -> float:
    r"""Return what an exchange leaves of the squared deviation from the mean, on average over where it is.

    :math:`(\lVert W \rVert_F^2 - 1) / (N - 1)` for independent rows of one distribution, about the mean
    before the exchange, averaged over the phases: the worst case is the square of :func:`contraction`.

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


def _settled(weights: Sequence[Weights]) -> Callable[[float], list[Floats]]:
    """The variances of the peers, as a function of the decay, after each phase once they no longer change."""
    if not all(each.keeps_consensus for each in weights):
        raise TopologyError("expected weights whose rows sum to one, got others; take metropolis weights")
    matrices = [each.matrix for each in weights]
    first = matrices[0].toarray()
    if len(matrices) > 1 or not np.array_equal(first, first.T):
        return lambda decay: _covariances(matrices, decay)
    values, vectors = np.linalg.eigh(first)
    return lambda decay: [vectors**2 @ (values**2 / (1 - decay * values**2))]


def _covariances(matrices: list[scipy.sparse.csr_array], decay: float) -> list[Floats]:
    r"""The diagonals of what solves :math:`C = \gamma^p \Phi C \Phi^\top + Q` over a period of p exchanges.

    Every doubling sums twice as many of its terms.
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
    found = []
    for matrix in matrices:
        start = walk(matrix, start)
        found.append(start.diagonal())
    return found


def _rate(variances: Callable[[float], list[Floats]], step: float, noise: float) -> float:
    kept = (1 - step) ** 2  # gamma (1 - r)

    def excess(left: float) -> float:
        """Of the variance that comes each round over what may remain, where the error shrinks to ``left``."""
        worst = max(float(each.max()) for each in variances(kept / left))
        return (noise - 1) * step**2 * worst - left

    # 1 - r lies between no noise, where errors shrink by (1 - eta)^2, and noise that nobody averages.
    alone = kept + (noise - 1) * step**2
    if noise == 1:
        return 1 - kept
    return 1 - float(scipy.optimize.brentq(excess, kept * (1 + 1e-12), alone * (1 + 1e-9), xtol=1e-13))
