r"""Mixing weights: stochastic matrices with the sparsity of a graph.

:math:`W_{ij}` is the weight that receiver i gives the model of sender j. Where rows of W sum to one, a model that
all peers share stays as it is; where columns sum to one, the mean of all models stays. :func:`metropolis`,
:func:`max_degree` and :func:`given` do both. :func:`push` does only the latter, so that models must be divided by
push-sum weights that are mixed in the same way; weights that come with the edges (:func:`edge_weights`) may do only
the former.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.sparse when that is first used, which takes 20 MiB

from p2pfl.core.errors import TopologyError
from p2pfl.topology.graph import TOLERANCE, Topology, brief
from p2pfl.topology.sparse_rows import SparseRows

ROUNDING = 1e-12
"""Difference of two equal weights, one of which is what the others leave of 1."""


@dataclass(frozen=True, eq=False)  # an array comparison has no single truth value
class Weights:
    """Mixing matrix of a graph, with the names of its peers.

    Parameters
    ----------
    peers
        Names in the order of rows and columns, sorted.
    matrix
        ``[N, N]`` float64, not negative, indices sorted.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> metropolis(ring(3)).matrix.toarray().round(3)[0].tolist()
    [0.333, 0.333, 0.333]
    """

    peers: tuple[str, ...]
    matrix: scipy.sparse.csr_array

    @classmethod
    def of(cls, peers: tuple[str, ...], rows: SparseRows) -> Weights:
        """Return the weights with these entries, whose matrix is made where it is needed."""
        weights = cls.__new__(cls)
        weights.__dict__.update(peers=peers, rows=rows)
        return weights

    @classmethod
    def average(cls, peers: tuple[str, ...]) -> Weights:
        """Return the weights with which each of N peers takes the average of all: 1 / N everywhere.

        Examples
        --------
        >>> Weights.average(("ada", "bob")).row("ada")
        {'ada': 0.5, 'bob': 0.5}
        """
        weights = cls.__new__(cls)  # whose N^2 numbers are made where they are needed
        facts = dict.fromkeys(("averages", "symmetric", "keeps_consensus", "keeps_mean"), True)
        weights.__dict__.update(facts, peers=peers)
        return weights

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Return the matrix, and make it where the weights have come without it."""
            if name != "matrix" or "peers" not in self.__dict__:
                raise AttributeError(f"{type(self).__name__} has no attribute {name}")
            return self.__dict__.setdefault("matrix", self.rows.matrix)

    @cached_property
    def rows(self) -> SparseRows:
        """Entries of the matrix, which need no scipy."""
        if "matrix" in self.__dict__:
            return SparseRows(self.matrix.data, self.matrix.indices, self.matrix.indptr)
        count = len(self.peers)  # of an average
        columns = np.tile(np.arange(count, dtype=np.int32), count)
        return SparseRows(np.full(count**2, 1.0 / count), columns, np.arange(count + 1, dtype=np.int32) * count)

    @property
    def entries(self) -> int:
        """Number of weights that are stored, or would be.

        Examples
        --------
        >>> Weights.average(("ada", "bob", "cleo")).entries
        9
        """
        return len(self.rows.data) if {"matrix", "rows"} & {*self.__dict__} else len(self.peers) ** 2

    @cached_property
    def squares(self) -> npt.NDArray[np.float64]:
        """Sum of the squared weights that each peer gives, ``[N]``."""
        if self.averages:
            return np.full(len(self.peers), 1.0 / len(self.peers))
        return np.asarray(np.bincount(self.rows.rows, weights=self.rows.data**2, minlength=len(self.peers)), np.float64)

    @cached_property
    def averages(self) -> bool:
        """True if one gossip step gives everybody the average of all models, to rounding."""
        data, count = self.rows.data, len(self.peers)
        if len(data) != count**2 or not data.all():
            return False
        rows = data.reshape(count, count)
        return bool((np.ptp(rows, axis=1) < ROUNDING).all())

    @cached_property
    def symmetric(self) -> bool:
        """True if every edge weighs the same at both ends."""
        back = self.rows.transposed
        if all(map(np.array_equal, back[1:], self.rows[1:])):
            return bool(abs(back.data - self.rows.data).max(initial=0.0) <= 1e-12)
        places = [rows.rows * len(self.peers) + rows.indices for rows in (self.rows, back)]
        _, entry = np.unique(np.concatenate(places), return_inverse=True)
        return bool(abs(np.bincount(entry, weights=np.concatenate([self.rows.data, -back.data]))).max() <= 1e-12)

    def row(self, peer: str) -> dict[str, float]:
        """Return the nonzero weights that ``peer`` gives, including its own, in peer order.

        Examples
        --------
        >>> from p2pfl.topology import star
        >>> metropolis(star(4)).row("peer1")
        {'peer0': 0.25, 'peer1': 0.75}
        """
        if peer not in self._numbers:
            raise TopologyError(
                f'peer "{peer}" is not one of the {len(self.peers)} peers ({brief(self.peers)}); check its name'
            )
        number = self._numbers[peer]
        span = slice(*self.rows.indptr[number : number + 2])
        columns, values = self.rows.indices[span], self.rows.data[span]
        return {self.peers[column]: float(value) for column, value in zip(columns, values, strict=True) if value}

    @cached_property
    def keeps_consensus(self) -> bool:
        """True if rows sum to one: a model that all peers share stays as it is."""
        return self._sums_to_one(axis=1)

    @cached_property
    def keeps_mean(self) -> bool:
        """True if columns sum to one: the mean of all models stays, and masks cancel.

        >>> from p2pfl.topology import Topology
        >>> push(Topology(("a", "b"), (("a", "b"), ("b", "a")), directed=True)).keeps_mean
        True
        """
        return self._sums_to_one(axis=0)

    def _sums_to_one(self, *, axis: int) -> bool:
        lines = self.rows.indices if axis == 0 else self.rows.rows
        sums = np.bincount(lines, weights=self.rows.data, minlength=len(self.peers))  # [N]
        return bool(abs(sums - 1.0).max() <= TOLERANCE)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {peer: number for number, peer in enumerate(self.peers)}


def metropolis(topology: Topology) -> Weights:
    r"""Return Metropolis-Hastings weights: :math:`W_{ij} = 1 / (1 + \max(d_i, d_j))`, the rest on the diagonal.

    Every peer derives its row of W from the degrees of its neighbours alone (Xiao, Boyd and Lall 2006).

    Returns
    -------
    Weights
        Symmetric, doubly stochastic weights.

    Raises
    ------
    TopologyError
        The graph is directed, and some peers receive from or send to more peers than others.

    Examples
    --------
    >>> from p2pfl.topology import star
    >>> metropolis(star(4)).row("peer1")
    {'peer0': 0.25, 'peer1': 0.75}
    """
    if topology.is_complete:
        return Weights.average(topology.peers)
    arcs = topology.arcs
    received = np.diff(arcs.indptr)  # [N]
    if topology.directed:
        sent = np.bincount(arcs.indices, minlength=len(topology.peers))  # [N]
        balance = f'as many peers as "{topology.peers[0]}" receives from ({received[0]})'
        _refuse(topology, np.maximum(abs(received - received[0]), abs(sent - received[0])), balance)
    return _fill(topology, 1.0 / (1.0 + np.maximum(received[arcs.rows], received[arcs.indices])))


def max_degree(topology: Topology) -> Weights:
    r"""Return maximum-degree weights: :math:`W_{ij} = 1 / (1 + \max_k d_k)`, the rest on the diagonal.

    They also exist for directed graphs in which every peer sends to as many peers as it receives from.

    Returns
    -------
    Weights
        Doubly stochastic weights.

    Raises
    ------
    TopologyError
        The graph is directed and some peer sends to more or fewer peers than it receives from.

    Examples
    --------
    >>> from p2pfl.topology import star
    >>> max_degree(star(4)).row("peer1")
    {'peer0': 0.25, 'peer1': 0.75}
    """
    if topology.is_complete:
        return Weights.average(topology.peers)
    received = np.diff(topology.arcs.indptr)  # [N]
    sent = np.bincount(topology.arcs.indices, minlength=len(topology.peers))  # [N]
    _refuse(topology, abs(received - sent), "equally many peers")
    return _fill(topology, np.full(len(topology.arcs.data), 1.0 / (1.0 + received.max())))


def push(topology: Topology) -> Weights:
    r"""Return column-stochastic weights for any directed graph: :math:`W_{ij} = 1 / (1 + |\text{receivers of } j|)`.

    Each sender splits its model and its push-sum weight evenly over itself and its receivers, so it only needs to know
    their number. Sums stay the same, a common model does not. Models are therefore divided by push-sum weights that
    travel in the same way (:class:`p2pfl.core.neighbourhood.Released`), and the quotients agree on the mean where every
    peer reaches every other (:func:`check_connected`).

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
    sent = np.bincount(topology.arcs.indices, minlength=len(topology.peers))  # [N]
    share = np.asarray(1.0 / (1.0 + sent), dtype=np.float64)
    return _fill(topology, share[topology.arcs.indices], own=share)


def weights_among(topology: Topology, weights: Weights, members: Collection[str]) -> Weights:
    """Return weights among some of the peers, which keep the mean of their models; each of the others keeps its own.

    They are those of Metropolis, or of push-sum where the weights of all peers are not symmetric.

    Examples
    --------
    >>> from p2pfl.topology import complete
    >>> some = weights_among(complete(3), metropolis(complete(3)), ["peer0", "peer2"])
    >>> some.row("peer0"), some.row("peer1")
    ({'peer0': 0.5, 'peer2': 0.5}, {'peer1': 1.0})
    """
    graph = topology.among(members)
    return metropolis(graph) if weights.symmetric else push(graph)


def edge_weights(topology: Topology) -> Weights:
    """Return the weights of the edges of a graph; each peer keeps the rest, up to one, for its own model.

    Raises
    ------
    TopologyError
        The edges have no weights.

    Examples
    --------
    >>> edge_weights(Topology(("a", "b"), (("a", "b"),), weights=(0.25,))).row("b")
    {'a': 0.25, 'b': 0.75}
    """
    if topology.edges and not topology.weights:
        raise TopologyError(
            f"the {len(topology.edges)} edges have no weights; use metropolis weights, or a graph whose edges "
            "have weights"
        )
    return _fill(topology, topology.weighted_arcs.data)


def natural(topology: Topology) -> Weights:
    """Return the weights of the edges where they have some, otherwise Metropolis-Hastings weights.

    Raises
    ------
    TopologyError
        The edges have no weights and :func:`metropolis` refuses the graph.

    Examples
    --------
    >>> from p2pfl.topology import base, ring
    >>> bool((natural(ring(4)).matrix != metropolis(ring(4)).matrix).nnz)
    False
    >>> natural(base(2).at(0)).row("peer0")
    {'peer0': 0.5, 'peer1': 0.5}
    """
    return edge_weights(topology) if topology.weights else metropolis(topology)


def given(topology: Topology, matrix: npt.ArrayLike | scipy.sparse.sparray) -> Weights:
    """Return weights that the user gives, dense or sparse, with rows and columns in peer order.

    Returns
    -------
    Weights
        Doubly stochastic weights.

    Raises
    ------
    TopologyError
        The matrix is not ``[N, N]``, has a negative or missing number, a row or column whose sum is more than 1e-9
        from one, or a weight where the graph has no edge; or an edge has no weight.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> given(ring(2), [[0.75, 0.25], [0.25, 0.75]]).row("peer0")
    {'peer0': 0.75, 'peer1': 0.25}
    """
    n = len(topology.peers)
    try:
        weights = scipy.sparse.csr_array(matrix, dtype=np.float64, copy=True)
    except (TypeError, ValueError) as error:
        raise TopologyError(f"the weights are not a {n} x {n} matrix of numbers ({error}); replace them") from error
    if weights.shape != (n, n):
        shape = " x ".join(map(str, weights.shape))
        raise TopologyError(f"the weights are a {shape} matrix, but there are {n} peers; give a {n} x {n} matrix")
    weights.sum_duplicates()  # and sorts
    weights.eliminate_zeros()
    if not (np.isfinite(weights.data).all() and (weights.data >= 0).all()):
        raise TopologyError("the weights contain a negative or non-finite number; replace it")
    for axis, line in ((1, "row"), (0, "column")):
        sums = np.asarray(weights.sum(axis=axis))
        worst = int(np.argmax(abs(sums - 1.0)))
        if abs(sums[worst] - 1.0) > TOLERANCE:
            raise TopologyError(
                f'the {line} of "{topology.peers[worst]}" in the weights sums to {sums[worst]:.12g}, not to 1 '
                f"within {TOLERANCE}; scale the weights to be doubly stochastic"
            )
    _check_sparsity(topology, weights)
    return Weights(topology.peers, weights)


def _check_sparsity(topology: Topology, weights: scipy.sparse.csr_array) -> None:
    edges = topology.adjacency
    off = weights - scipy.sparse.diags_array(weights.diagonal())
    difference = ((off != 0).astype(np.int8) - (edges != 0).astype(np.int8)).tocoo()
    for listener, sender, sign in zip(difference.row, difference.col, difference.data, strict=True):
        if sign:
            edge = f'from "{topology.peers[sender]}" to "{topology.peers[listener]}"'
            came = f"a weight {edge}, where the graph has no edge" if sign > 0 else f"no weight on the edge {edge}"
            raise TopologyError(f"there is {came}; change the weights or the graph")


def _fill(
    topology: Topology, off_diagonal: npt.NDArray[np.float64], own: npt.NDArray[np.float64] | None = None
) -> Weights:
    """Return weights on the edges, in the order of the adjacency; by default the diagonal holds the rest up to one.

    On a complete graph whose edges all have the weight 1/n, so has the diagonal, although the rest rounds to another
    number for most n: equal weights are one average (:func:`p2pfl.simulation.mixing.uniform`).
    """
    n = len(topology.peers)
    edges = topology.arcs
    listener = edges.rows
    if own is None and len(edges.data) == n * (n - 1) and bool((off_diagonal == 1.0 / n).all()):
        own = np.full(n, 1.0 / n)  # [N]
    if own is None:  # rounding may leave a negative rest where the edges take all the weight
        own = np.maximum(0.0, 1.0 - np.bincount(listener, weights=off_diagonal, minlength=n))  # [N]
    values = np.concatenate([off_diagonal, own])
    entries = (np.concatenate([listener, np.arange(n)]), np.concatenate([edges.indices, np.arange(n)]))
    return Weights.of(topology.peers, SparseRows.of(values, *entries, count=n))


def _refuse(topology: Topology, excess: npt.NDArray[np.int64], balance: str) -> None:
    if excess.any():
        peer = topology.peers[int(np.argmax(excess))]
        raise TopologyError(
            f'"{peer}" receives from {len(topology.senders(peer))} peers and sends to '
            f"{len(topology.receivers(peer))}, but in this directed graph every peer must receive from and send "
            f'to {balance}; make the edges undirected, give the weights, or use "push"'
        )
