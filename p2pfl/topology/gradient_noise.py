r"""Effect of mixing on the noise of learning, which is fresh in every round.

The spectral gap measures how slowly the last disagreement vanishes. Learning speeds up where mixing averages
noise over many peers early, which another number measures: the effective neighbours :math:`n_W(\gamma)` of

    Vogels, Hendrikx and Jaggi, Beyond spectral gap: the role of the topology in decentralized learning,
    NeurIPS 2022.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse

from p2pfl.core.errors import TopologyError
from p2pfl.topology.weights import Weights

Floats = npt.NDArray[np.float64]

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
    return 1 / ((1 - decay) * float(np.mean(_settled(weights)(decay))))


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


def _settled(weights: Sequence[Weights]) -> Callable[[float], list[Floats]]:
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
    found = []
    for matrix in matrices:
        start = walk(matrix, start)
        found.append(start.diagonal())
    return found
