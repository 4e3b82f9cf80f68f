r"""Mixing weights: doubly stochastic matrices with the sparsity of a graph.

:math:`W_{ij}` is the weight listener i gives the row of sender j. Rows sum to one, so that a common
row stays; columns sum to one, so that the mean of all rows stays.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse

from p2pfl.errors import TopologyError
from p2pfl.topology.graph import Topology, brief

TOLERANCE = 1e-9
"""How far from one the sums of given weights may be."""


@dataclass(frozen=True, eq=False)  # matrices have no single truth value
class Weights:
    """Who gives whose row which weight.

    Parameters
    ----------
    peers
        Row order, sorted.
    matrix
        ``[N, N]`` float64, doubly stochastic, indices sorted.
    """

    peers: tuple[str, ...]
    matrix: scipy.sparse.csr_array

    @property
    def symmetric(self) -> bool:
        """Whether every edge weighs alike at both ends."""
        return bool(abs(self.matrix - self.matrix.T).max() <= 1e-12)

    def row(self, peer: str) -> dict[str, float]:
        """Nonzero weights that ``peer`` gives, its own among them, in peer order.

        Examples
        --------
        >>> from p2pfl.topology import star
        >>> metropolis(star(4)).row("peer1")
        {'peer0': 0.25, 'peer1': 0.75}
        """
        if peer not in self._numbers:
            raise TopologyError(
                f'expected one of the {len(self.peers)} peers ({brief(self.peers)}), got "{peer}"; check its name'
            )
        number = self._numbers[peer]
        span = slice(*self.matrix.indptr[number : number + 2])
        columns, values = self.matrix.indices[span], self.matrix.data[span]
        return {self.peers[column]: float(value) for column, value in zip(columns, values, strict=True) if value}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {peer: number for number, peer in enumerate(self.peers)}


def metropolis(topology: Topology) -> Weights:
    r"""Metropolis-Hastings weights: :math:`W_{ij} = 1 / (1 + \max(d_i, d_j))`, the rest on the own row.

    Xiao, Boyd and Lall (2006). Every peer knows its row from its neighbours' degrees alone.

    Raises
    ------
    TopologyError
        The graph is directed and some peer hears, or is heard by, more peers than another.
    """
    hears = topology.adjacency.tocoo()
    heard = np.diff(topology.adjacency.indptr)  # [N]
    if topology.directed:
        sent = np.bincount(hears.col, minlength=len(topology.peers))  # [N]
        balance = f'as many peers as "{topology.peers[0]}" hears ({heard[0]})'
        _refuse(topology, np.maximum(abs(heard - heard[0]), abs(sent - heard[0])), balance)
    return _filled(topology, 1.0 / (1.0 + np.maximum(heard[hears.row], heard[hears.col])))


def max_degree(topology: Topology) -> Weights:
    r"""Maximum-degree weights: :math:`W_{ij} = 1 / (1 + \max_k d_k)`, the rest on the own row.

    Also for directed graphs in which every peer hears as many as hear it.

    Raises
    ------
    TopologyError
        The graph is directed and some peer hears more or fewer peers than it is heard by.
    """
    heard = np.diff(topology.adjacency.indptr)  # [N]
    sent = np.bincount(topology.adjacency.indices, minlength=len(topology.peers))  # [N]
    _refuse(topology, abs(heard - sent), "equally many peers")
    return _filled(topology, np.full(topology.adjacency.nnz, 1.0 / (1.0 + heard.max())))


def given(topology: Topology, matrix: npt.ArrayLike | scipy.sparse.sparray) -> Weights:
    """Weights of the user's own, dense or sparse, rows and columns in peer order.

    Raises
    ------
    TopologyError
        Not ``[N, N]``, a negative or missing number, a row or column whose sum is more than 1e-9 from
        one, a weight where the graph has no edge, or an edge without a weight.
    """
    n = len(topology.peers)
    try:
        weights = scipy.sparse.csr_array(matrix, dtype=np.float64, copy=True)
    except (TypeError, ValueError) as error:
        raise TopologyError(
            f"expected weights as an {n} x {n} matrix of numbers, got none ({error}); mend it"
        ) from error
    if weights.shape != (n, n):
        shape = " x ".join(map(str, weights.shape))
        raise TopologyError(f"expected weights as a {n} x {n} matrix, one row a peer, got {shape}; resize it")
    weights.sum_duplicates()  # and sorts
    weights.eliminate_zeros()
    if not (np.isfinite(weights.data).all() and (weights.data >= 0).all()):
        raise TopologyError("expected weights that are finite and not negative, got others; replace them")
    for axis, what in ((1, "row"), (0, "column")):
        sums = np.asarray(weights.sum(axis=axis))
        worst = int(np.argmax(abs(sums - 1.0)))
        if abs(sums[worst] - 1.0) > TOLERANCE:
            raise TopologyError(
                f"expected every {what} of the weights to sum to 1 within {TOLERANCE}, got {sums[worst]:.12g} "
                f'in that of "{topology.peers[worst]}"; scale the weights to be doubly stochastic'
            )
    _check_sparsity(topology, weights)
    return Weights(topology.peers, weights)


def _check_sparsity(topology: Topology, weights: scipy.sparse.csr_array) -> None:
    edges = topology.adjacency
    off = weights - scipy.sparse.diags_array(weights.diagonal())
    difference = ((off != 0).astype(np.int8) - (edges != 0).astype(np.int8)).tocoo()
    for listener, sender, sign in zip(difference.row, difference.col, difference.data, strict=True):
        if sign:
            place = f'for "{topology.peers[listener]}" hearing "{topology.peers[sender]}"'
            came = f"a weight {place}, which is no edge" if sign > 0 else f"none {place}, which is an edge"
            raise TopologyError(f"expected weights exactly on the edges of the graph, got {came}; change either")


def _filled(topology: Topology, off_diagonal: npt.NDArray[np.float64]) -> Weights:
    """Weights on the edges, in the order of the adjacency; what is missing to one on the diagonal."""
    n = len(topology.peers)
    edges = topology.adjacency
    listener = np.repeat(np.arange(n), np.diff(edges.indptr))
    own = 1.0 - np.bincount(listener, weights=off_diagonal, minlength=n)  # [N]
    values = np.concatenate([off_diagonal, own])
    places = (np.concatenate([listener, np.arange(n)]), np.concatenate([edges.indices, np.arange(n)]))
    matrix = scipy.sparse.coo_array((values, places), shape=(n, n)).tocsr()
    matrix.sort_indices()
    return Weights(topology.peers, matrix)


def _refuse(topology: Topology, excess: npt.NDArray[np.int64], balance: str) -> None:
    if excess.any():
        peer = topology.peers[int(np.argmax(excess))]
        raise TopologyError(
            f'expected a directed graph in which every peer hears and is heard by {balance}, got "{peer}", which hears '
            f"{len(topology.hears(peer))} and is heard by {len(topology.heard_by(peer))}; "
            "make the edges undirected or give the weights"
        )
