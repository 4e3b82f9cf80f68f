r"""Mixing weights: stochastic matrices with the sparsity of a graph.

:math:`W_{ij}` is the weight listener i gives the row of sender j. Where rows sum to one, a common row
stays; where columns sum to one, the mean of all rows stays. :func:`metropolis`, :func:`max_degree` and
:func:`given` do both. :func:`push` does only the latter, so that rows must be divided by masses that
are mixed alike; weights that come with the edges (:func:`edge_weights`) may do only the former.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse

from p2pfl.errors import TopologyError
from p2pfl.topology.graph import TOLERANCE, Topology, brief


@dataclass(frozen=True, eq=False)  # matrices have no single truth value
class Weights:
    """Who gives whose row which weight.

    Parameters
    ----------
    peers
        Row order, sorted.
    matrix
        ``[N, N]`` float64, not negative, indices sorted.
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
    def keeps_consensus(self) -> bool:
        """Whether rows sum to one: a row that all have in common stays as it is."""
        return self._sums_to_one(axis=1)

    @cached_property
    def keeps_mean(self) -> bool:
        """Whether columns sum to one: the mean of all rows stays, and masks cancel.

        >>> from p2pfl.topology import Topology
        >>> push(Topology(("a", "b"), (("a", "b"), ("b", "a")), directed=True)).keeps_mean
        True
        """
        return self._sums_to_one(axis=0)

    def _sums_to_one(self, *, axis: int) -> bool:
        return bool(abs(np.asarray(self.matrix.sum(axis=axis)) - 1.0).max() <= TOLERANCE)

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


def max_degree(topology: Topology, *, degree: int | None = None) -> Weights:
    r"""Maximum-degree weights: :math:`W_{ij} = 1 / (1 + \max_k d_k)`, the rest on the own row.

    Also for directed graphs in which every peer hears as many as hear it.

    Parameters
    ----------
    degree
        Taken for the maximum, for graphs that are a part of one of this degree.

    Raises
    ------
    TopologyError
        The graph is directed and some peer hears more or fewer peers than it is heard by; or some peer hears more than
        ``degree``.
    """
    heard = np.diff(topology.adjacency.indptr)  # [N]
    sent = np.bincount(topology.adjacency.indices, minlength=len(topology.peers))  # [N]
    _refuse(topology, abs(heard - sent), "equally many peers")
    most = int(heard.max())
    if degree is not None and most > degree:
        raise TopologyError(f"expected no peer to hear more than {degree} others, got one that hears {most}: raise it")
    return _filled(topology, np.full(topology.adjacency.nnz, 1.0 / (1.0 + (most if degree is None else degree))))


def push(topology: Topology) -> Weights:
    r"""Column-stochastic weights: :math:`W_{ij} = 1 / (1 + |\text{who hears } j|)`, for any directed graph.

    Each sender splits its row and its mass evenly over itself and those who hear it, so it need only know
    how many they are. Sums stay, a common row does not: rows are divided by masses that travel alike
    (:class:`p2pfl.neighbourhood.Released`), and the quotients agree on the mean where every peer reaches
    every other (:func:`check_connected`).

    References
    ----------
    Kempe, Dobra and Gehrke, Gossip-based computation of aggregate information, FOCS 2003; Assran et al.,
    Stochastic gradient push, ICML 2019.

    Examples
    --------
    >>> chain = Topology(("a", "b", "c"), (("a", "b"), ("b", "c"), ("b", "a"), ("c", "a")), directed=True)
    >>> push(chain).matrix.sum(axis=0).round(12).tolist()
    [1.0, 1.0, 1.0]
    """
    sent = np.bincount(topology.adjacency.indices, minlength=len(topology.peers))  # [N]
    share = np.asarray(1.0 / (1.0 + sent), dtype=np.float64)
    return _filled(topology, share[topology.adjacency.indices], own=share)


def edge_weights(topology: Topology) -> Weights:
    """Weights that come with the edges of a graph; what is missing to one goes to the own row.

    Raises
    ------
    TopologyError
        The edges have none.

    Examples
    --------
    >>> edge_weights(Topology(("a", "b"), (("a", "b"),), weights=(0.25,))).row("b")
    {'a': 0.25, 'b': 0.75}
    """
    if topology.shares is None:
        raise TopologyError(
            f"expected edges with weights, got {len(topology.edges)} without; "
            "take metropolis weights, or a graph whose edges have some"
        )
    return _filled(topology, topology.shares.data)


def natural(topology: Topology) -> Weights:
    """Weights that come with the edges where they do, else Metropolis-Hastings'.

    Raises
    ------
    TopologyError
        As :func:`metropolis`.
    """
    return edge_weights(topology) if topology.weights else metropolis(topology)


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


def _filled(
    topology: Topology, off_diagonal: npt.NDArray[np.float64], own: npt.NDArray[np.float64] | None = None
) -> Weights:
    """Weights on the edges, in the order of the adjacency; by default what is missing to one on the diagonal."""
    n = len(topology.peers)
    edges = topology.adjacency
    listener = np.repeat(np.arange(n), np.diff(edges.indptr))
    if own is None:  # rounding may leave less than nothing where the edges take all
        own = np.maximum(0.0, 1.0 - np.bincount(listener, weights=off_diagonal, minlength=n))  # [N]
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
            'make the edges undirected, give the weights, or take "push"'
        )
