r"""Calibration: the cheapest noises for a guarantee.

With one gossip step a round and weights W, private noise of deviation :math:`s` and masks of
deviation :math:`m` on a graph of Laplacian L leave every row, on average and in every coordinate,
the variance

.. math:: J = \frac1n \operatorname{tr} \bigl[ (s^2 I + m^2 L) M \bigr] + H \frac{s^2}{n},
          \qquad M = \sum_{t \ge 1} A^{t\top} A^t, \quad A = W - \tfrac1n 1 1^\top

for learning rate 1: the disagreement that releases of all earlier rounds have left, and the common
error of H rounds. For several steps W is their product. For a symmetric W of eigenvalues
:math:`w_k` that commutes with L of eigenvalues :math:`\lambda_k` the first part is
:math:`\frac1n \sum_{k \ge 2} (s^2 + m^2 \lambda_k) w_k^2 / (1 - w_k^2)`.

References
----------
The regime of one step is DECOR's; see :mod:`p2pfl.privacy.masks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy  # imports scipy.optimize and scipy.sparse when they are first used, which takes a fifth of a second

from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting.accountant import Adjacency, Guarantee, account, sensitivity
from p2pfl.privacy.accounting.colluders import Rows, worst_rows
from p2pfl.privacy.accounting.leakage import Floats, Ints, NoiseCover
from p2pfl.topology import Topology, Weights, check_connected, metropolis

_RELATIVE_SLACK = 1e-9
"""Part of the guarantee that is given up, so that rounding never exceeds it."""
_NOISE_OVERHEAD = 0.1
"""Excess of the variance of private noise over the least possible one, where masks are mixed away."""
_SETS_BEFORE_SCALING = 30
"""After how many sets of colluders the search scales the noises it has until they hold."""
_MAX_TRIED_SETS = 200
"""Sets of colluders that are tried while the noises are still sought."""


@dataclass(frozen=True)
class Calibration:
    r"""Noises that keep a guarantee.

    Parameters
    ----------
    noise, mask
        Deviations of private noise and of each edge's mask.
    guarantee
        Guarantee of these noises, by :func:`p2pfl.privacy.accounting.accountant.account`.
    cost
        J, the variance they leave in every coordinate of a row.
    """

    noise: float
    mask: float
    guarantee: Guarantee
    cost: float


def calibrate(
    graph: Topology,
    weights: Weights | None = None,
    *,
    mu: float,
    clip: float,
    rounds: int,
    steps: int = 1,
    colluders: int = 0,
    adjacency: Adjacency = "zero-out",
    bits: int = 20,
    size: int | None = None,
) -> Calibration:
    r"""Return the noises with which a round costs :math:`\mu` on this graph, and which disturb models least.

    Where gossip mixes masks away, that is where after the steps of one round less than the floor
    :math:`s^2 / n` is left of them, masks are nearly free and private noise is what costs:
    its variance is set to 1.1 times the least that any masks allow, :math:`S^2 / (c \mu^2)`
    with c peers in the smallest component of honest ones, and the mask follows by bisection. Else
    both are chosen to minimise J (see the module), by a search over the private noise with the mask
    at each from bisection. Either way against the worst ``colluders`` peers.

    Parameters
    ----------
    graph
        Carries gossip and masks, connected.
    weights
        Mixing weights; left out, Metropolis-Hastings.
    mu
        Cost of one round.
    clip, adjacency, bits, size
        As in :func:`p2pfl.privacy.accounting.accountant.account`.
    rounds
        H, over how many rounds errors that all rows share add up.
    steps
        Gossip steps a round.
    colluders
        Number of peers that may collude.

    Raises
    ------
    InputError
        A number out of range, or weights that never bring the peers together.
    TopologyError
        The graph is not connected.

    Examples
    --------
    >>> from p2pfl.topology import hypercube
    >>> calibrated = calibrate(hypercube(4), mu=0.268051, clip=1.0, rounds=1, steps=16)
    >>> round(calibrated.noise, 4), round(calibrated.mask, 4)
    (0.9782, 6.382)
    """
    weights = weights or metropolis(graph)
    _check(graph, weights, mu=mu, clip=clip, rounds=rounds, steps=steps)
    change = sensitivity(clip=clip, adjacency=adjacency, bits=bits, size=size)
    allowed = (mu / change * (1 - _RELATIVE_SLACK)) ** 2
    if graph.is_complete and weights.averages and 0 <= colluders < len(graph.peers) - 1:
        prices = _Prices(rounds / len(graph.peers), 0.0, 0.0)
        sets: dict[Rows, tuple[_Spectrum, ...]] = {
            tuple(range(colluders)): (_Spectrum.complete(len(graph.peers) - colluders),)
        }
        noise, mask = _NoiseBound(allowed, len(graph.peers), sets).best(prices)
    else:
        prices = _Prices.of(graph, weights, steps=steps, horizon=rounds)
        noise, mask = _noises(graph, prices, allowed=allowed, colluders=colluders)
    against = partial(account, graph, clip=clip, bits=bits, adjacency=adjacency, size=size)
    guarantee = against(noise=noise, mask=mask, colluders=colluders)
    if guarantee.mu > mu:  # scaling both leaves the worst set the worst
        excess = guarantee.mu / mu * (1 + _RELATIVE_SLACK)
        noise, mask = noise * excess, mask * excess
        scaled = against(noise=noise, mask=mask, colluders=guarantee.colluders)
        guarantee = replace(scaled, observer=guarantee.observer, search=guarantee.search)
    return Calibration(noise, mask, guarantee, prices.cost(noise, mask))


def _noises(graph: Topology, prices: _Prices, *, allowed: float, colluders: int) -> tuple[float, float]:
    """Solve for the sets of colluders known so far, find the worst of a few for that, and again until it is known.

    A few sets find the noises; the thorough search of the caller shows that no other set is worse.
    """
    bound = _NoiseBound(allowed, len(graph.peers), {})
    noise, mask = 1.0, 10.0  # any, to start with a set
    while True:
        rows, leak, _ = worst_rows(NoiseCover.of(graph, noise=noise, mask=mask), count=colluders, limit=_MAX_TRIED_SETS)
        if bound.sets and leak <= allowed * (1 + _RELATIVE_SLACK / 2):
            return noise, mask
        if not bound.add(graph, rows):
            return noise * math.sqrt(leak / allowed), mask * math.sqrt(leak / allowed)
        noise, mask = bound.best(prices)


@dataclass(frozen=True)
class _Prices:
    r"""Costs of a unit of variance of private noise and of masks.

    Parameters
    ----------
    noise, mask
        :math:`\operatorname{tr} M / n + H / n` and :math:`\operatorname{tr}(L M) / n`.
    left
        :math:`\operatorname{tr}(L A^\top A) / n`: of masks, after the steps of one round.
    """

    noise: float
    mask: float
    left: float

    @classmethod
    def of(cls, graph: Topology, weights: Weights, *, steps: int, horizon: float) -> _Prices:
        n = len(graph.peers)
        laplacian = scipy.sparse.csgraph.laplacian(NoiseCover.of(graph, noise=0.0, mask=1.0).masks).toarray()  # [N, N]
        once = weights.matrix.toarray() - 1 / n  # [N, N]
        if np.allclose(once, once.T, rtol=0, atol=1e-14):
            values, vectors = np.linalg.eigh(once)
            squares = np.where(np.abs(values) > 1e-14, np.abs(values), 0.0) ** (2 * steps)  # [N]
            _check_mixes(float(squares.max()))
            on = np.einsum("ik,ik->k", vectors, laplacian @ vectors)  # [N]
            sums = squares / (1 - squares)
            return cls((sums.sum() + horizon) / n, float(on @ sums) / n, float(on @ squares) / n)
        turn = np.linalg.matrix_power(once, steps)  # [N, N]
        left = turn.T @ turn
        both = _sum_powers(turn)
        return cls(
            (np.trace(both) + horizon) / n, float((laplacian * both).sum()) / n, float((laplacian * left).sum()) / n
        )

    def cost(self, noise: float, mask: float) -> float:
        """Return J."""
        return float(self.noise * noise**2 + self.mask * mask**2)


def _sum_powers(turn: Floats) -> Floats:
    r"""Return :math:`\sum_{t \ge 1} A^{t\top} A^t`, by doubling."""
    total = turn.T @ turn  # [N, N]
    for _ in range(60):
        more = turn.T @ total @ turn
        total = total + more
        if np.abs(more).max() <= 1e-15 * np.abs(total).max():
            return total
        turn = turn @ turn
    _check_mixes(1.0)
    return total


@dataclass(frozen=True)
class _NoiseBound:
    """Private noise and masks under which no known set of colluders sees more than is allowed.

    Parameters
    ----------
    allowed
        Largest leak of one round.
    peers
        How many.
    sets
        The components of honest peers that each set leaves.
    """

    allowed: float
    peers: int
    sets: dict[Rows, tuple[_Spectrum, ...]]

    @property
    def local(self) -> float:
        """Private noise that needs no masks."""
        return 1 / math.sqrt(self.allowed)

    @property
    def floor(self) -> float:
        """Private noise that no masks could lower."""
        return 1 / math.sqrt(self.allowed * min(part.count for parts in self.sets.values() for part in parts))

    def add(self, graph: Topology, rows: Rows) -> bool:
        """Learn of a set of colluders, unless it is known or there are enough."""
        if rows in self.sets or len(self.sets) == _SETS_BEFORE_SCALING:
            return False
        cover = NoiseCover.of(graph, noise=1.0, mask=1.0)  # where masks are: their size does not matter
        self.sets[rows] = tuple(_spectra(cover, np.setdiff1d(np.arange(len(cover.peers)), rows)))
        return True

    def best(self, prices: _Prices) -> tuple[float, float]:
        """Return the cheapest noise and mask."""
        noise = min(self.local, self.floor * math.sqrt(1 + _NOISE_OVERHEAD))
        mask = self.mask(noise)
        # Masks of one round are mixed away where less of them is left than private noise has to leave.
        mixed = prices.left * mask**2 <= noise**2 / self.peers
        return (noise, mask) if mixed else self.cheapest(prices)

    def cheapest(self, prices: _Prices) -> tuple[float, float]:
        """Return the noise between floor and local with the smallest J, and its mask."""
        if self.floor >= self.local * (1 - _RELATIVE_SLACK):
            return self.local, 0.0
        # By logarithm, from just above the floor, where masks are still finite.
        grid = np.linspace(math.log(self.floor) + 1e-6, math.log(self.local), 24)

        def cost(log: float) -> float:
            return prices.cost(math.exp(log), self.mask(math.exp(log)))

        best = int(np.argmin([cost(log) for log in grid]))
        around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
        minimum = scipy.optimize.minimize_scalar(cost, bounds=around, method="bounded", options={"xatol": 1e-6})
        log = min((float(minimum.x), float(grid[best])), key=cost)
        noise = math.exp(log)
        return (noise, self.mask(noise)) if noise < self.local else (self.local, 0.0)

    def mask(self, noise: float) -> float:
        """Return the smallest mask that keeps every leak of this private noise down to what is allowed."""
        parts = [part for parts in self.sets.values() for part in parts]
        return max(part.mask(noise, allowed=self.allowed) for part in parts)


@dataclass(frozen=True, eq=False)
class _Spectrum:
    r"""One component of honest peers: :math:`(\Sigma^{-1})_{uu} = \sum_k \phi_k(u)^2 / (s^2 + m^2 \lambda_k)`.

    Parameters
    ----------
    count
        C, its number of peers.
    values
        ``[V]``, eigenvalues of its Laplacian but the zero.
    squares
        ``[C, V]``, squared entries of their vectors; one row where all are equal.
    """

    count: int
    values: Floats
    squares: Floats

    @classmethod
    def complete(cls, count: int) -> _Spectrum:
        """Return that of a complete graph, whose Laplacian has one eigenvalue besides the zero."""
        return cls(count, np.array([float(count)]), np.array([[1 - 1 / count]]))

    def excess(self, noise: float, mask: float, allowed: float) -> float:
        """Return the excess of the largest leak over the permitted one, relative to it."""
        most = float((self.squares @ (1 / (noise**2 + mask**2 * self.values))).max()) if self.count > 1 else 0.0
        return (most + 1 / (self.count * noise**2)) / allowed - 1

    def mask(self, noise: float, *, allowed: float) -> float:
        if 1 / noise**2 <= allowed * (1 + _RELATIVE_SLACK / 4):
            return 0.0
        spare = allowed - 1 / (self.count * noise**2)
        if spare <= 0:
            return math.inf
        # Leaving the private noise out beside the masks can only ask for more mask.
        enough = math.sqrt(float((self.squares @ (1 / self.values)).max()) / spare)
        mask = scipy.optimize.brentq(
            lambda mask: self.excess(noise, mask, allowed), 0.0, enough, rtol=1e-13, xtol=1e-300
        )
        return float(mask) * (1 + 1e-12)


def _spectra(cover: NoiseCover, kept: Ints) -> Iterator[_Spectrum]:
    """Return components of the honest peers if only these rows are honest; every mask counts as one."""
    count, label = scipy.sparse.csgraph.connected_components(cover.masks[kept][:, kept], directed=False)
    for number in range(count):
        part = kept[label == number]
        joined = (cover.masks[part][:, part] > 0).toarray().astype(np.float64)  # [C, C]
        values, vectors = scipy.linalg.eigh(np.diag(joined.sum(axis=1)) - joined)
        yield _Spectrum(len(part), values[1:], vectors[:, 1:] ** 2)


def _check(graph: Topology, weights: Weights, *, mu: float, clip: float, rounds: int, steps: int) -> None:
    check_connected(graph)
    if weights.peers != graph.peers:
        raise InputError("the weights belong to other peers than the graph; make them from the graph")
    if not 0 < mu < math.inf:
        raise InputError(f"mu is {mu}, but must be above 0 and finite; leave the noise out to hide nothing")
    if math.isinf(clip):
        raise InputError("there is no finite clip, and noise cannot hide a change of any size; set a clip")
    for name, number in (("rounds", rounds), ("gossip steps", steps)):
        if not number >= 1:
            raise InputError(f"the number of {name} is {number}, but must be at least 1; change it")


def _check_mixes(rest: float) -> None:
    if not rest < 1 - 1e-13:
        raise InputError("the weights never bring all peers together; let each keep some weight for its own model")
