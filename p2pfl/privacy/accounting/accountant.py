r"""Accountant: what one release guarantees, for each observer, adjacency and set of colluders.

Everything that is released counts as seen by everybody. Releases compose as :math:`\mu^2 = \sum_t \mu_t^2`, for private
noise and masks are fresh in each, and whatever happens to released rows afterwards is free. See
:mod:`p2pfl.privacy.accounting.leakage` for the noise and masks of models.

Every peer adds normal noise of deviation :math:`\sigma \Delta` to its contribution to a total, with :math:`\Delta` the
L2 norm by which one sample can change it. Uniform masks hide all but the total (:mod:`p2pfl.privacy.total_masks`), and
t colluders can subtract their own noise from it. So a total with the noise of N peers costs

.. math:: \mu = \frac{1}{\sigma \sqrt{N - t}}

for a sample of an honest peer: for t = 0 as much as the noise of a trusted curator. Noise is rounded to integers. With
a deviation of at least 16 of them, which :class:`p2pfl.privacy.release.PrivateNeighbourhood` requires, a sum of
rounded normal numbers differs from a rounded normal number by less than 1e-1000.

References
----------
P. Kairouz, Z. Liu, T. Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation", ICML 2021: totals.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting.colluders import Search, worst_rows
from p2pfl.privacy.accounting.leakage import NoiseCover, check_deviations, complete_leak, find_first_highest
from p2pfl.topology import Topology

Adjacency = Literal["zero-out", "replace"]
"""Adjacency: one peer's update changes to zero, or to any other."""

_CHANGE_FACTORS = {"zero-out": 1.0, "replace": 2.0}


@dataclass(frozen=True)
class Guarantee:
    r"""Protection of one peer's update in one release, or of one sample in a total, with its assumptions.

    Parameters
    ----------
    observer
        Observer in words; everybody sees all that is released.
    colluders
        Peers that reveal to the observer all they know.
    adjacency
        ``"zero-out"``: with or without a peer's update. ``"replace"``: with another one instead.
    mu
        :math:`\mu` of the worst-off honest peer.
    local
        :math:`\mu` of the worst-off peer if everybody else colludes: what private noise alone gives.
    peer
        Peer that is worst off.
    search
        True if the colluders are known to be the worst: ``"exact"`` or ``"enumerated"`` if so,
        ``"searched"`` if they are the worst that were found.
    """

    observer: str
    colluders: tuple[str, ...]
    adjacency: Adjacency
    mu: float
    local: float
    peer: str
    search: Search


def account(
    graph: Topology,
    *,
    clip: float,
    noise: float,
    mask: float,
    bits: int = 20,
    adjacency: Adjacency = "zero-out",
    colluders: int | Collection[str] = 0,
    size: int | None = None,
) -> Guarantee:
    r"""Return the guarantee of one release against the broker and these colluders, or the worst so many.

    .. math:: \mu = S \sqrt{\max_u (\Sigma^{-1})_{uu}}

    Parameters
    ----------
    graph
        The mask graph.
    clip, noise, mask, bits
        As in :class:`p2pfl.privacy.release.Settings`. Without a clip or without noise :math:`\mu` is infinite.
    adjacency
        S is the clip for ``"zero-out"``, twice the clip for ``"replace"``.
    colluders
        Names, or how many: then the worst set of that size.
    size
        P, the length of a row; then rounding to the grid adds :math:`2^{-\text{bits}} \sqrt P / 2` to S, twice
        that for ``"replace"``.

    Raises
    ------
    InputError
        A number out of range, or a name that is not a peer's.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> given = account(ring(8), clip=1.0, noise=1.0, mask=4.0, colluders=1)
    >>> round(given.mu, 6), given.local, given.search
    (0.486346, 1.0, 'enumerated')
    """
    change = sensitivity(clip=clip, adjacency=adjacency, bits=bits, size=size)
    if graph.is_complete and isinstance(colluders, int) and 0 <= colluders < len(graph.peers) - 1:
        check_deviations(noise=noise, mask=mask)
        return Guarantee(
            observer=name_observer(colluders),
            colluders=graph.peers[:colluders],
            adjacency=adjacency,
            mu=change * math.sqrt(complete_leak(len(graph.peers) - colluders, noise=noise, mask=mask)),
            local=change / noise if noise else math.inf,
            peer=graph.peers[colluders],
            search="exact",
        )
    cover = NoiseCover.of(graph, noise=noise, mask=mask)
    search: Search = "exact"
    if isinstance(colluders, int):
        rows, _, search = worst_rows(cover, count=colluders)
        observer = name_observer(colluders)
        colluders = [graph.peers[row] for row in rows]
    else:
        observer = "broker and these colluders" if colluders else name_observer(0)
    kept = cover.honest(colluders)
    if not len(kept):
        raise InputError("no peer is honest; name fewer colluders")
    leaks = cover.leaks(kept)  # [H]
    return Guarantee(
        observer=observer,
        colluders=tuple(sorted(set(colluders))),
        adjacency=adjacency,
        mu=change * math.sqrt(leaks.max()),
        local=change * math.sqrt(1 / noise**2) if noise else math.inf,
        peer=graph.peers[kept[find_first_highest(leaks)]],
        search=search,
    )


def table(
    graph: Topology,
    *,
    clip: float,
    noise: float,
    mask: float,
    bits: int = 20,
    adjacency: Adjacency = "zero-out",
    colluders: int = 1,
    size: int | None = None,
) -> list[Guarantee]:
    """Return the guarantee against each observer, from the least that he knows to the most.

    The broker; one peer besides, the worst for somebody; ``colluders`` peers, if more than one; and
    everyone else, which is what holds whoever may collude.

    Parameters
    ----------
    graph, clip, noise, mask, bits, adjacency, size
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
    >>> rows = table(complete(6), clip=1.0, noise=0.5, mask=2.0, colluders=2)
    >>> for row in rows:
    ...     print(f"{row.observer}: {row.mu:.3f}")
    broker: 0.837
    broker and one neighbour: 0.916
    broker and 2 colluders: 1.023
    broker and everyone else: 2.000
    """
    most = len(graph.peers) - 1
    counts = sorted({0, min(1, most), colluders} - ({1} if most < 1 else set()))
    of = partial(account, graph, clip=clip, noise=noise, mask=mask, bits=bits, adjacency=adjacency, size=size)
    result = [of(colluders=count) for count in counts]
    if most in counts:
        return result
    first, *others = graph.peers
    worst = replace(result[0], mu=result[0].local, colluders=tuple(others), peer=first, search="exact")
    return [*result, replace(worst, observer=name_observer(most, everyone=most))]


def find_isolated(
    graph: Topology,
    *,
    clip: float,
    noise: float,
    mask: float,
    bits: int = 20,
    adjacency: Adjacency = "zero-out",
    colluders: int = 0,
    size: int | None = None,
) -> tuple[str, float]:
    r"""Return who is worst off if a malicious broker makes its mask partners mask with it alone, and :math:`\mu`.

    A broker that drops messages, delays them or replays Last Wills decides who each peer believes to be there. A peer
    that misses a mask partner charges its local floor. But a peer u does not see whom its partners mask with: if each
    of its d honest partners is made to mask with u alone, the mask graph around u is a star, and of one round

    .. math:: \mu^2 = S^2 \Big/ \Big(s^2 + d \, \frac{m^2 s^2}{m^2 + s^2}\Big)

    with the private noise s and the mask deviation m, while u charges what the whole graph would give. No more can be
    taken away unnoticed: an edge of u itself that is missing is charged. It is never above the local floor S / s.

    Parameters
    ----------
    graph, clip, noise, mask, bits, adjacency, size
        As in :func:`account`.
    colluders
        Number of mask partners that reveal their masks to the broker.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> peer, mu = find_isolated(ring(8), clip=1.0, noise=1.0, mask=4.0)
    >>> round(mu, 4)
    0.589
    """
    change = sensitivity(clip=clip, adjacency=adjacency, bits=bits, size=size)
    peer = min(graph.peers, key=graph.degree)
    if not noise:
        return peer, math.inf
    partners = max(0, graph.degree(peer) - colluders)
    return peer, change / math.sqrt(noise**2 + partners * (mask * noise) ** 2 / (mask**2 + noise**2))


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
    if adjacency not in _CHANGE_FACTORS:
        raise InputError(f'the adjacency "{adjacency}" is unknown; choose "zero-out" or "replace"')
    if not clip > 0:
        raise InputError(f"the clip is {clip}, but must be above 0; infinity clips nothing")
    return _CHANGE_FACTORS[adjacency] * (clip + 2.0**-bits * math.sqrt(size or 0) / 2)


def name_observer(colluders: int, *, everyone: int | None = None) -> str:
    """Return the broker with a number of colluders in words; ``everyone`` is the number of all other peers."""
    if colluders == everyone:
        return "broker and everyone else"
    return "broker" + {0: "", 1: " and one neighbour"}.get(colluders, f" and {colluders} colluders")


def account_total(
    peers: tuple[str, ...], *, noise: float, colluders: int, adjacency: Adjacency = "zero-out"
) -> Guarantee:
    r"""Return the guarantee of one total for a sample of an honest peer.

    Parameters
    ----------
    peers
        Names of all participants.
    noise
        :math:`\sigma`, deviation of the noise of a peer in units of what a sample can change.
    colluders
        t.
    adjacency
        ``"zero-out"``: with or without a sample. ``"replace"``: with another one instead, which changes twice as much.

    Examples
    --------
    >>> peers = tuple("abcde")
    >>> account_total(peers, noise=0.5, colluders=1).mu, account_total(peers, noise=0.5, colluders=1).local
    (1.0, 2.0)
    """
    floor = _CHANGE_FACTORS[adjacency] / noise if noise else math.inf
    others = {0: "", 1: " and one peer"}
    return Guarantee(
        observer="the broker" + others.get(colluders, f" and {colluders} peers"),
        colluders=peers[:colluders],
        adjacency=adjacency,
        mu=floor / math.sqrt(max(1, len(peers) - colluders)),
        local=floor,
        peer=peers[-1],
        search="exact",
    )


def calibrate_total(mu: float, *, peers: int, colluders: int, adjacency: Adjacency = "zero-out") -> float:
    r"""Return the deviation :math:`\sigma` with which a total costs :math:`\mu`.

    Examples
    --------
    >>> calibrate_total(1.0, peers=5, colluders=1)
    0.5
    """
    return _CHANGE_FACTORS[adjacency] / (mu * math.sqrt(max(1, peers - colluders)))
