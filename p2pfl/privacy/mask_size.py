r"""Default deviation of a pairwise mask, computed from public numbers.

A mask should be large, so that a neighbour that subtracts the one mask it knows reads little of the update under the
others. It should also be small: when a peer dies between masking and sending, its masks stay in the models of the
others, with deviation

.. math:: r = m \, \max_{v, i} \lVert (W_{-v}^S B)_i \rVert_2 ,

m the deviation of a mask, S the gossip steps of a round, B the signed incidence of the masks, and :math:`W_{-v}` the
mixing weights without the dead peer v, whose share stays with those that miss it. The default equates r with u, an
estimate of the root mean square of a number of an update: a death then disturbs a model about as much as a round of a
peer's training may move it. It is at least 2 u, so that masks hide something where few gossip steps average little, and
at most :math:`u \sqrt{P}`, the norm of the update.

The norm of an update is private. It is estimated from public numbers: the sum of the steps at a gradient of norm 1
(:math:`\sqrt{P}` for optimisers that scale each number of the gradient to about 1), and at most the norm of the initial
parameters. This is no bound: gradients can be longer and shorter.

``python -m benchmarks.mask_size`` prints what a neighbour reads and what a death costs, for multiples of u at 3, 8 and
16 peers; docs/notes/protection.md shows the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import scipy  # imports scipy.sparse when that is first used, which takes 20 MiB

from p2pfl.topology import Topology, Weights

ADAPTIVE = {"adadelta", "adagrad", "adam", "adamax", "adamw", "nadam", "radam", "rmsprop", "rprop"}
"""Optimisers of torch.optim that scale each number of the gradient by its own history."""

MIN_MASK_FACTOR = 2.0
"""Multiple of an update's size below which a neighbour reads too much of it: see the table."""

MAX_VICTIMS = 8
"""Number of deaths to consider, of the peers with the most masks; on large graphs the others are similar."""

SMALL_GRAPH = 64
"""Peers up to which matrices are arrays, so that a device needs no scipy."""

MAX_DENSE_PEERS = 500
"""Peers up to which products of matrices are fast, so that no eigenvectors are needed."""

NEGLIGIBLE_REST = 1e-6
"""Share of a mode of the masks that counts as averaged out."""


def update_size(
    *, norm: float, size: int, rate: float, steps: int | None, optimizer: str = "sgd", momentum: float = 0.0
) -> float:
    """Estimate the root mean square of a number of one round's update from public numbers.

    Parameters
    ----------
    norm
        L2 norm of the initial parameters; 0 if all of them are zero.
    size
        P, how many there are.
    rate
        The learning rate.
    steps
        Optimiser steps in a round; ``None`` where they depend on private numbers of samples.
    optimizer, momentum
        As in torch.optim.

    Returns
    -------
    float
        Above zero.

    Examples
    --------
    >>> round(update_size(norm=5.0, size=2500, rate=0.1, steps=10), 3)
    0.02
    >>> update_size(norm=5.0, size=2500, rate=0.1, steps=None)
    0.1
    """
    gradient = math.sqrt(size) if optimizer.lower() in ADAPTIVE else 1.0
    path = math.inf if steps is None else rate * steps * gradient / max(1 - momentum, 0.01)
    bounds = [each for each in (path, norm) if 0 < each < math.inf]
    return min(bounds, default=1.0) / math.sqrt(size)


def mask_deviation(update: float, *, size: int, residual: float, bits: int) -> float:
    """Return the deviation of a mask whose loss disturbs a model about as much as one update.

    Parameters
    ----------
    update
        Of :func:`update_size`.
    size
        P, how many parameters there are.
    residual
        Of :func:`residual`.
    bits
        Fraction bits of the grid, on which a mask is at least 16 points wide.

    Returns
    -------
    float
        Rounded to two digits, so that every device computes the same.

    Examples
    --------
    >>> [mask_deviation(0.01, size=10_000, residual=left, bits=20) for left in (0.1, 1.0)]
    [0.1, 0.02]
    """
    multiple = min(max(1 / residual, MIN_MASK_FACTOR), math.sqrt(size))
    return float(f"{max(update * multiple, 16 * 2.0**-bits):.2g}")


def residual(graph: Topology, weights: Sequence[Weights], *, steps: int) -> float:
    """Return the deviation that the masks of a dead peer leave in a parameter of a survivor, for masks of deviation 1.

    Parameters
    ----------
    graph
        Graph of mask partners.
    weights
        Of the gossip steps, in turn.
    steps
        Number of gossip steps in a round.

    Returns
    -------
    float
        Of the worst survivor and, among the ``MAX_VICTIMS`` peers with the most masks, the worst death.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> round(residual(ring(3), [metropolis(ring(3))], steps=1), 3)
    0.816
    """
    pairs = Topology(graph.peers, graph.edges).arcs
    counts = np.diff(pairs.indptr)  # [N]
    most = np.argsort(-counts, kind="stable")[:MAX_VICTIMS]
    small = len(graph.peers) <= SMALL_GRAPH
    matrices = [each.rows.dense if small else each.matrix for each in weights]
    degrees = np.diag(counts) if small else scipy.sparse.diags_array(counts.astype(np.float64))
    gram = degrees - (pairs.dense if small else pairs.matrix)  # [N, N]: B B', the masks that two rows share
    return max(_largest_rest(gram, matrices, dead=int(victim), steps=steps) for victim in most)


def _largest_rest(gram: Any, matrices: Sequence[Any], *, dead: int, steps: int) -> float:
    """Return the largest norm of a survivor's row of the masks, mixed without the dead peer."""
    here = np.ones(gram.shape[0])  # [N]
    here[dead] = 0.0
    diagonal = np.diag if isinstance(gram, np.ndarray) else scipy.sparse.diags_array
    without = []
    for matrix in matrices:
        kept = diagonal(here) @ matrix @ diagonal(here)  # [N, N]
        without.append(kept + diagonal(here * (1 - kept.sum(axis=1))))
    slowest = _slowest(without[0], steps) if len(without) == 1 else None
    if slowest is not None:
        modes, left = slowest  # [N, k], [k]
        modes = modes * here[:, None]
        shared = left[:, None] * (modes.T @ (gram @ modes)) * left  # [k, k]
        squares = ((modes @ shared) * modes).sum(axis=1)  # [N]
    else:
        mixed = _product(without, steps)  # [N, N]
        squares = ((mixed @ _dense(gram)) * mixed).sum(axis=1)  # [N]
    return math.sqrt(squares.max())


def _product(matrices: Sequence[Any], steps: int) -> Any:
    """Return the product of the first matrices, which repeat, the last one leftmost; sparse while it is thin."""
    size = matrices[0].shape[0]
    start = np.eye(size) if isinstance(matrices[0], np.ndarray) else scipy.sparse.eye_array(size, format="csr")

    def product(factors: Iterable[Any]) -> Any:
        return reduce(lambda done, each: _dense(each @ done), factors, start)

    turns, rest = divmod(steps, len(matrices))
    power, squared = [], _dense(product(matrices))
    while turns:
        if turns & 1:
            power.append(squared)
        turns >>= 1
        squared = _dense(squared @ squared) if turns else squared
    return product([*power, *matrices[:rest]])


def _dense(matrix: Any) -> Any:
    """Return a sparse matrix as an array once a tenth of it is filled."""
    sparse = not isinstance(matrix, np.ndarray)
    return matrix.toarray() if sparse and matrix.nnz > matrix.shape[0] ** 2 / 10 else matrix


def _slowest(matrix: scipy.sparse.csr_array, steps: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the eigenvectors ``[N, k]`` that many steps leave, and what is left of each ``[k]``.

    Graphs that need many steps, such as large rings, have few of them. ``None`` where a product of matrices is as fast:
    for small graphs, few steps, and weights that are not symmetric or have eigenvalues near -1.
    """
    size = matrix.shape[0]
    if size <= MAX_DENSE_PEERS or steps < size / 8 or abs(matrix - matrix.T).max() > 1e-12:
        return None
    from scipy.sparse.linalg import eigsh  # noqa: PLC0415 (16 MiB that peers of small graphs do not need)

    start = np.cos(np.arange(size))  # [N]; eigsh would draw it at random
    [lowest] = eigsh(matrix, k=1, which="SA", v0=start, tol=1e-4, return_eigenvectors=False)
    if abs(lowest) ** steps > NEGLIGIBLE_REST:
        return None
    count = 16
    while count < size // 4:
        values, modes = eigsh(matrix, k=count, sigma=1 + 1 / steps, v0=start)
        left = np.clip(values, 0, 1) ** steps  # [k]
        if left.min() < NEGLIGIBLE_REST:
            return modes, left
        count *= 4
    return None
