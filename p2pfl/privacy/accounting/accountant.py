r"""Accountant: the privacy guarantee of a run before it starts, for each observer, adjacency and set of colluders.

Everything that is released counts as seen by everybody. A peer's rounds compose as
:math:`\mu^2 = \sum_t \mu_t^2`, for private noise and masks are fresh in each, and whatever happens to
released rows afterwards is free. See :mod:`p2pfl.privacy.accounting.leakage` for one round.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting.colluders import Search, worst_rows
from p2pfl.privacy.accounting.leakage import Mask, Noise, NoiseCover, find_first_highest
from p2pfl.privacy.accounting.spending import Cost, spent
from p2pfl.topology import Schedule, Topology

Adjacency = Literal["zero-out", "replace"]
"""Adjacency: one peer's update changes to zero, or to any other."""

_CHANGE = {"zero-out": 1.0, "replace": 2.0}


@dataclass(frozen=True)
class Guarantee:
    r"""Protection of one peer's updates of all rounds, with its assumptions.

    Parameters
    ----------
    observer
        Observer in words; everybody sees all that is released.
    colluders
        Peers that reveal to the observer all they know.
    adjacency
        ``"zero-out"``: with or without a peer's updates. ``"replace"``: with others instead.
    mu
        :math:`\mu` of the worst-off honest peer over all rounds.
    local
        :math:`\mu` of the worst-off peer if everybody else colludes: what private noise alone gives.
    peer
        Peer that is worst off.
    search
        True if the colluders are known to be the worst: ``"exact"`` or ``"enumerated"`` if so,
        ``"searched"`` if they are the worst that were found.
    rounds
        Number of releases.
    """

    observer: str
    colluders: tuple[str, ...]
    adjacency: Adjacency
    mu: float
    local: float
    peer: str
    search: Search
    rounds: int

    def epsilon(self, delta: float) -> float:
        r"""Return :math:`\varepsilon` at a :math:`\delta`, part of which covers the truncation of the noise."""
        return self._epsilon(self.mu, delta)

    def local_epsilon(self, delta: float) -> float:
        r"""Return :math:`\varepsilon` at a :math:`\delta` if all other peers collude."""
        return self._epsilon(self.local, delta)

    def _epsilon(self, mu: float, delta: float) -> float:
        each = mu / math.sqrt(self.rounds)
        return spent({Cost(each): self.rounds}, delta=delta)


def account(
    graph: Topology | Schedule,
    *,
    clip: float,
    noise: Noise,
    mask: Mask,
    bits: int = 20,
    rounds: int = 1,
    adjacency: Adjacency = "zero-out",
    colluders: int | Collection[str] = 0,
    size: int | None = None,
    absent: Mapping[int, Collection[str]] | None = None,
    seed: int = 0,
) -> Guarantee:
    r"""Return what holds against the broker and these colluders, or the worst so many.

    .. math:: \mu = S \sqrt{\max_u \sum_t (\Sigma_t^{-1})_{uu}}

    Parameters
    ----------
    graph
        The mask graph, or one for each round.
    clip, noise, mask, bits
        As in :class:`p2pfl.privacy.release.Settings`; noise and mask also peer by peer and edge by edge.
        Without a clip or without noise :math:`\mu` is infinite.
    rounds
        Number of releases, each with fresh noise.
    adjacency
        S is the clip for ``"zero-out"``, twice the clip for ``"replace"``.
    colluders
        Names, or how many: then the worst set of that size in all rounds.
    size
        P, the length of a row; then rounding to the grid adds :math:`2^{-\text{bits}} \sqrt P / 2` to S, twice
        that for ``"replace"``.
    absent
        Peers that dropped out of a round after all masks had been announced, and whose masks were therefore
        revealed. What they sent all the same is covered by their private noise alone.
    seed
        As in :func:`p2pfl.privacy.accounting.colluders.worst_colluders`.

    Raises
    ------
    InputError
        A number out of range, or a name that is not a peer's.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> given = account(ring(8), clip=1.0, noise=1.0, mask=4.0, rounds=4, colluders=1)
    >>> round(given.mu, 6), given.local, given.search
    (0.972693, 2.0, 'enumerated')
    >>> round(given.epsilon(1e-5), 2)
    4.24
    """
    change = sensitivity(clip=clip, adjacency=adjacency, bits=bits, size=size)
    if not rounds >= 1:
        raise InputError(f"the number of rounds is {rounds}, but must be at least 1; change it")
    covers = _covers(graph, noise=noise, mask=mask, rounds=rounds, absent=absent or {})
    search: Search = "exact"
    if isinstance(colluders, int):
        rows, _, search = worst_rows(covers, count=colluders, seed=seed)
        observer = _among(colluders)
        colluders = [graph.peers[row] for row in rows]
    else:
        observer = "broker and these colluders" if colluders else _among(0)
    kept = covers[0][1].honest(colluders)
    if not len(kept):
        raise InputError("no peer is honest; name fewer colluders")
    leaks = np.sum([times * cover.leaks(kept) for times, cover in covers], axis=0)  # [H]
    with np.errstate(divide="ignore"):
        alone = np.sum([times / cover.own[kept] for times, cover in covers], axis=0)  # [H]
    return Guarantee(
        observer=observer,
        colluders=tuple(sorted(set(colluders))),
        adjacency=adjacency,
        mu=change * math.sqrt(leaks.max()),
        local=change * math.sqrt(alone.max()),
        peer=graph.peers[kept[find_first_highest(leaks)]],
        search=search,
        rounds=rounds,
    )


def table(
    graph: Topology | Schedule,
    *,
    clip: float,
    noise: Noise,
    mask: Mask,
    bits: int = 20,
    rounds: int = 1,
    adjacency: Adjacency = "zero-out",
    colluders: int = 1,
    size: int | None = None,
    absent: Mapping[int, Collection[str]] | None = None,
    seed: int = 0,
) -> list[Guarantee]:
    """Return the guarantee against each observer, from the least that he knows to the most.

    The broker; one peer besides, the worst for somebody; ``colluders`` peers, if more than one; and
    everyone else, which is what holds whoever may collude.

    Parameters
    ----------
    graph, clip, noise, mask, bits, rounds, adjacency, size, absent, seed
        As in :func:`account`.
    colluders
        How many at most.

    Raises
    ------
    InputError
        As :func:`account`.

    Examples
    --------
    >>> from p2pfl.topology import complete
    >>> rows = table(complete(6), clip=1.0, noise=0.5, mask=2.0, rounds=10, colluders=2)
    >>> for row in rows:
    ...     print(f"{row.observer}: {row.mu:.3f}")
    broker: 2.648
    broker and one neighbour: 2.897
    broker and 2 colluders: 3.234
    broker and everyone else: 6.325
    """
    most = len(graph.peers) - 1
    counts = sorted({0, min(1, most), colluders} - ({1} if most < 1 else set()))
    result = [
        account(
            graph,
            clip=clip,
            noise=noise,
            mask=mask,
            bits=bits,
            rounds=rounds,
            adjacency=adjacency,
            colluders=count,
            size=size,
            absent=absent,
            seed=seed,
        )
        for count in counts
    ]
    return result if most in counts else [*result, _everyone(graph, noise=noise, mask=mask, guarantee=result[0])]


def sensitivity(*, clip: float, adjacency: Adjacency = "zero-out", bits: int = 20, size: int | None = None) -> float:
    r"""Return S, by how much one peer's update on the grid can change.

    Zero-out changes one clipped update that was rounded to the grid, replace changes two:

    .. math:: S = C + 2^{-\text{bits}} \sqrt P / 2 \quad\text{or}\quad 2 C + 2^{-\text{bits}} \sqrt P

    Raises
    ------
    InputError
        The clip is not positive, or the adjacency is not one of the two.

    Examples
    --------
    >>> round(sensitivity(clip=1.0, size=10**6), 7)
    1.0004768
    """
    if adjacency not in _CHANGE:
        raise InputError(f'the adjacency "{adjacency}" is unknown; choose "zero-out" or "replace"')
    if not clip > 0:
        raise InputError(f"the clip is {clip}, but must be above 0; infinity clips nothing")
    return _CHANGE[adjacency] * (clip + 2.0**-bits * math.sqrt(size or 0) / 2)


def _among(count: int) -> str:
    others = {0: "", 1: " and one neighbour"}
    return "broker" + others.get(count, f" and {count} colluders")


def _covers(
    graph: Topology | Schedule, *, noise: Noise, mask: Mask, rounds: int, absent: Mapping[int, Collection[str]]
) -> list[tuple[int, NoiseCover]]:
    """Count the rounds by cover."""
    if isinstance(mask, Mapping) and graph.period > 1:
        raise InputError("a schedule of graphs needs a single mask deviation, not one for each edge; give a number")
    if strangers := sorted({peer for gone in absent.values() for peer in gone} - set(graph.peers)):
        raise InputError(f'"{strangers[0]}" cannot drop out, as it is not a peer; check its name')
    gone = {round: frozenset(peers) for round, peers in absent.items() if 0 <= round < rounds and peers}
    kinds: Counter[tuple[int, frozenset[str]]] = Counter()
    for number in range(graph.period):
        kinds[number, frozenset()] = len(range(number, rounds, graph.period))
    for round, peers in gone.items():
        kinds[round % graph.period, frozenset()] -= 1
        kinds[round % graph.period, peers] += 1
    whole = {number: NoiseCover.of(graph.at(number), noise=noise, mask=mask) for number in range(graph.period)}
    return [(times, whole[number].without(peers)) for (number, peers), times in kinds.items() if times]


def _everyone(graph: Topology | Schedule, *, noise: Noise, mask: Mask, guarantee: Guarantee) -> Guarantee:
    """Return the case in which only the peer with the least private noise is honest."""
    own = NoiseCover.of(graph.at(0), noise=noise, mask=mask).own
    peer = graph.peers[int(np.argmin(own))]
    others = tuple(other for other in graph.peers if other != peer)
    return replace(
        guarantee,
        observer="broker and everyone else",
        colluders=others,
        mu=guarantee.local,
        peer=peer,
        search="exact",
    )
