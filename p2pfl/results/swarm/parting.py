"""Detection of groups of peers that do not reach each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from p2pfl.results.swarm.state import PeerState, Swarm

ACTIVE = {"gathering", "learning", "waiting"}
"""Activities of a peer that takes part."""


@dataclass(frozen=True)
class Parting:
    """Groups of peers that do not reach each other.

    Attributes
    ----------
    groups
        Names of the peers of each group, the smallest group first.
    since
        Time at which the last of their edges was lost, in seconds since the start of the run.
    """

    groups: tuple[tuple[str, ...], ...]
    since: float


def parting(swarm: Swarm) -> Parting | None:
    """Return the groups into which the peers of a swarm fall; ``None`` if they are one.

    Only peers that reported something after others had lost them count: a peer that is gone is no group.
    """
    active = {peer.name: peer for peer in swarm.peers.values() if _takes_part(peer)}
    lost = [(one, other) for one in active.values() for name in one.lost_by if (other := active.get(name))]
    if not lost:
        return None
    group = _groups(active, _edges(active, lost))
    apart = [one.lost_at for one, other in lost if group[one.name] != group[other.name] and one.lost_at is not None]
    if not apart:
        return None
    members: dict[str, list[str]] = {}
    for name, head in group.items():
        members.setdefault(head, []).append(name)
    return Parting(tuple(sorted((tuple(each) for each in members.values()), key=len)), max(apart))


def _takes_part(peer: PeerState) -> bool:
    reported = peer.last is not None and (peer.lost_at is None or peer.last > peer.lost_at)
    return peer.phase in {"gathering", "learning"} and reported and own_activity(peer) in ACTIVE


def own_activity(peer: PeerState) -> str:
    """Return what a peer does as far as it reports itself, whatever its neighbours report."""
    if peer.failure is not None or peer.finished or peer.silent_since is not None or peer.announced == "dead":
        return "away"
    if peer.waiting_since is not None:
        return "waiting" if peer.connected else "offline"
    return peer.phase or "unseen"


def _edges(active: dict[str, PeerState], lost: Iterable[tuple[PeerState, PeerState]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of active peers of which one sees the other and none has lost the other."""
    broken = {frozenset((one.name, other.name)) for one, other in lost}
    for peer in active.values():
        for name in peer.seen_by:
            if name in active and frozenset((peer.name, name)) not in broken:
                yield peer.name, name


def _groups(active: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return by peer the name that stands for its group (union-find)."""
    head = {name: name for name in active}

    def find(name: str) -> str:
        while head[name] != name:
            head[name] = head[head[name]]
            name = head[name]
        return name

    for one, other in edges:
        head[find(one)] = find(other)
    return {name: find(name) for name in head}
