"""Worst colluders: the sets of peers that help an adversary most.

He chooses his colluders after he has seen the graph, so the guarantee is that of the worst set, not
of an average one. More colluders never leak less, so every set has exactly as many as allowed.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting.leakage import Floats, Ints, NoiseCover
from p2pfl.topology import Topology

Search = Literal["exact", "enumerated", "searched"]
"""Proven to be the worst; the worst of all sets, each tried; the worst of those tried."""
Rows = tuple[int, ...]
"""A set of colluders by row number, sorted."""
Score = Callable[[Rows], float]

_MAX_WORK = 2e10
"""About how many multiplications a search may take: seconds."""
_MAX_VARIANCE_RATIO = 1e7
"""Largest ratio of mask to noise variance at which a downdate keeps enough digits to rank sets."""
_RECOMPUTED_SETS = 4
"""Number of the highest-ranked sets that are computed again."""


def find_parted_peers(graph: Topology, *, colluders: int) -> tuple[str, ...]:
    r"""Return one or two peers that so many colluders could separate from all others; none if they cannot.

    Masks hide a peer among those with whom it is connected when the colluders are taken away, and among two each
    sees the other. Colluders part a connected set from all others if they are all its neighbours: of a peer u
    those in :math:`N(u)`, of two that are neighbours those in :math:`N(u) \cup N(v) \setminus \{u, v\}`.

    Examples
    --------
    >>> from p2pfl.topology import complete, ring, star
    >>> find_parted_peers(ring(4), colluders=1), find_parted_peers(ring(4), colluders=2)
    ((), ('peer0',))
    >>> find_parted_peers(complete(3), colluders=1), find_parted_peers(star(4), colluders=0)
    (('peer0', 'peer1'), ())
    """
    for peer in graph.peers[:1] if graph.is_complete else graph.peers:  # where all are alike, one is enough
        near = graph.neighbours(peer)
        if len(near) <= colluders:
            return (peer,)
        for other in near if len(near) == colluders + 1 else ():  # with more, one of them is left
            if len({*near, *graph.neighbours(other)} - {peer, other}) <= colluders:
                return peer, other
    return ()


def worst_rows(cover: NoiseCover, *, count: int, limit: int = 20_000) -> tuple[Rows, float, Search]:
    r"""Return the ``count`` peers who, colluding, make the leak of some other peer largest.

    Up to ``limit`` sets are all tried. Beyond, those are tried that isolate a peer as far as they
    can (its neighbours), those that a greedy search adds one by one, and sets drawn by key. The leak
    that is returned is computed anew for the set that is returned, so it is always that set's own.

    Parameters
    ----------
    cover
        Noise and masks of all peers.
    count
        Number of colluders; at least one peer must be left.
    limit
        Number of sets to try.

    Returns
    -------
    (rows, leak, search)
        ``search`` is ``"exact"`` where no set can be worse, ``"enumerated"`` where all were tried, or
        ``"searched"``: then a worse set may exist.

    Raises
    ------
    InputError
        The count is out of range.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> worst, leak, search = worst_rows(NoiseCover.of(ring(8), noise=1.0, mask=4.0), count=1)
    >>> worst, round(leak, 7), search
    ((0,), 0.2365327, 'enumerated')
    """
    n = len(cover.peers)
    if not 0 <= count < n:
        raise InputError(f"{n} peers cannot have {count} colluders; use 0 to {n - 1}, as one must be honest")
    search = _ColluderSearch(cover, count, limit)
    if (proven := search.proven()) is not None:
        return proven, search.leak(proven), "exact"
    sets, method = search.candidates()
    worst = _highest(search.leak, sets)[0]
    return worst, search.leak(worst), method


@dataclass(frozen=True, eq=False)
class _ColluderSearch:
    cover: NoiseCover
    count: int
    limit: int

    @cached_property
    def neighbours(self) -> list[Ints]:
        masks = self.cover.masks
        return np.split(masks.indices, masks.indptr[1:-1])

    def leak(self, rows: Iterable[int]) -> float:
        """Return the largest leak of an honest peer, from the definition."""
        return float(self.cover.leaks(np.setdiff1d(np.arange(len(self.cover.peers)), list(rows))).max())

    def pad(self, rows: Iterable[int], *, victim: int) -> Rows:
        """Fill a set up to the count with whoever comes first, but for the victim."""
        chosen = sorted(rows)
        others = (row for row in range(len(self.cover.peers)) if row != victim and row not in chosen)
        return tuple(sorted([*chosen, *itertools.islice(others, self.count - len(chosen))]))

    def proven(self) -> Rows | None:
        """Return a set than which none is worse, where that is plain to see."""
        if self.count == 0:
            return ()
        with np.errstate(divide="ignore"):
            floor = 1 / self.cover.own  # [N]: the leak if all others collude; no set can be worse
        for victim in np.flatnonzero(floor == floor.max()).tolist():
            if len(self.neighbours[victim]) <= self.count:
                return self.pad(self.neighbours[victim].tolist(), victim=victim)
        if math.isinf(floor.min()):
            return self.pad((), victim=0)
        return tuple(range(self.count)) if _complete(self.cover) else None

    def candidates(self) -> tuple[list[Rows], Search]:
        """Return the sets that rank highest, and how they were found."""
        n, ranking = len(self.cover.peers), _Ranking.of(self.cover)
        anew = 1.5 * n**3 + 3e6
        update = ranking.cost(self.count)
        score, cost = (ranking.worst, update) if update < anew and not ranking.flattened else (self.leak, anew)
        everything = itertools.combinations(range(n), self.count)
        if math.comb(n, self.count) <= min(self.limit, _MAX_WORK / cost):
            return _highest(score, everything), "enumerated"
        score, cost = (ranking.worst, update) if update < anew else (self.leak, anew)
        budget = max(8, min(self.limit, int(_MAX_WORK / cost)))
        drawn = self.draw_sets(min(1000, budget // 4))
        tried = {*self.yield_neighbour_sets(budget // 2), *drawn, self.greedy(score, budget // 4)}
        return _highest(score, tried), "searched"

    def yield_neighbour_sets(self, budget: int) -> Iterator[Rows]:
        """Yield sets of neighbours of one peer each."""
        victims = list(range(len(self.cover.peers)))
        if budget < len(victims):
            victims = draw(0, "victims").choice(victims, budget, replace=False).tolist()
        for victim in victims:
            around, share = self.neighbours[victim].tolist(), budget // len(victims)
            if len(around) <= self.count:
                yield self.pad(around, victim=victim)
            elif math.comb(len(around), self.count) <= share:
                yield from itertools.combinations(around, self.count)
            else:
                stream = draw(0, "isolating colluders", self.cover.peers[victim])
                for _ in range(share):
                    rows = stream.choice(around, self.count, replace=False)
                    yield tuple(sorted(rows.tolist()))

    def greedy(self, score: Score, budget: int) -> Rows:
        """Add the peer that makes the leak largest, one by one."""
        stream = draw(0, "greedy colluders")
        most = max(1, budget // self.count)
        chosen: Rows = ()
        for _ in range(self.count):
            others = [row for row in range(len(self.cover.peers)) if row not in chosen]
            if most < len(others):
                others = stream.choice(others, most, replace=False).tolist()
            chosen = _highest(score, (tuple(sorted((*chosen, row))) for row in others))[0]
        return chosen

    def draw_sets(self, budget: int) -> Iterator[Rows]:
        stream = draw(0, "colluders")
        for _ in range(budget):
            yield tuple(sorted(stream.choice(len(self.cover.peers), self.count, replace=False).tolist()))


@dataclass(frozen=True, eq=False)
class _Ranking:
    r"""Leaks after the removal of a few peers, from :math:`P = \Sigma^{-1}` of all of them.

    Without the masks of the colluders' edges, whose incidence is :math:`K_C` and variances
    :math:`V_C`, the covariance is :math:`\Sigma - K_C V_C K_C^\top`. No colluder has an edge in it any
    more, so it falls into the colluders' rows, which are diagonal, and those of the honest peers,
    which are what :mod:`p2pfl.privacy.accounting.leakage` inverts: edges to a colluder disappear *and* his row
    leaves, and the honest entries of the inverse's diagonal are the leaks. By Woodbury's identity

    .. math:: (\Sigma - K_C V_C K_C^\top)^{-1} = P + P K_C (V_C^{-1} - K_C^\top P K_C)^{-1} K_C^\top P

    of as small a rank as the colluders have edges. :math:`V_C^{-1} - K_C^\top P K_C` is as singular as
    masks are larger than noise, so beyond a ratio the masks are flattened: good enough to rank.
    """

    cover: NoiseCover
    precision: Floats
    flattened: bool

    @classmethod
    def of(cls, cover: NoiseCover) -> _Ranking:
        flat, changed = _flat(cover)
        return cls(flat, flat.precision(), changed)

    def cost(self, count: int) -> float:
        """Return the approximate number of multiplications to rank a set of this size."""
        n = len(self.precision)
        rank = count * self.cover.masks.nnz / n
        return float(3e5 + 2.0 * n * rank**2 + rank**3)

    def worst(self, rows: Rows) -> float:
        """Return the largest leak of an honest peer."""
        own, other, variances = _edges(self.cover, rows)
        through = self.precision[own] - self.precision[other]  # [E, N]
        inner = _differences(self.precision, own, other)  # [E, E]
        change = np.linalg.solve(np.diag(1 / variances) - inner, through)  # [E, N]
        leaks = self.precision.diagonal() + np.einsum("en,en->n", through, change)
        leaks[list(rows)] = -np.inf
        return float(leaks.max())


def _differences(precision: Floats, own: Ints, other: Ints) -> Floats:
    r"""Return :math:`K^\top P K`, ``[E, E]``."""
    ends = np.concatenate([own, other])
    block = precision[np.ix_(ends, ends)]  # [2 E, 2 E]
    half = len(own)
    across: Floats = block[:half, :half] - block[:half, half:] - block[half:, :half] + block[half:, half:]  # [E, E]
    return across


def _edges(cover: NoiseCover, rows: Rows) -> tuple[Ints, Ints, Floats]:
    """Return every edge of a colluder once: its end, the other end, and the variance of its mask."""
    masks = cover.masks
    spans = [slice(*masks.indptr[row : row + 2]) for row in rows]
    own = np.repeat(np.array(rows), [span.stop - span.start for span in spans])
    other = np.concatenate([masks.indices[span] for span in spans])
    variances = np.concatenate([masks.data[span] for span in spans])
    once = ~(np.isin(other, rows) & (other < own))
    return own[once], other[once], variances[once]


def _flat(cover: NoiseCover) -> tuple[NoiseCover, bool]:
    """Bring masks and noise close enough for a downdate; return whether that took a change."""
    strongest = cover.masks.data.max(initial=0.0)
    degree = max(np.diff(cover.masks.indptr).max(), 1)
    own = np.maximum(cover.own, cover.own.max() / _MAX_VARIANCE_RATIO)
    most = _MAX_VARIANCE_RATIO * own.min() / degree
    factor = 1.0 if strongest <= most else most / strongest
    changed = factor < 1 or bool((own != cover.own).any())
    return NoiseCover(cover.peers, own, cover.masks * factor), changed


def _highest(score: Score, sets: Iterable[Rows]) -> list[Rows]:
    """Return sets by score; those that differ only in the tenth digit keep their order."""
    return heapq.nsmallest(_RECOMPUTED_SETS, sets, key=lambda rows: (-float(f"{score(rows):.9e}"), rows))


def _complete(cover: NoiseCover) -> bool:
    """Return whether all peers are in equivalent places."""
    n = len(cover.peers)
    alike = [np.ptp(values) == 0 for values in (cover.own, cover.masks.data) if len(values)]
    return bool(cover.masks.nnz in {0, n * (n - 1)} and all(alike))
