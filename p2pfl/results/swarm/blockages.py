"""Peers that block others, the ends of the graph of waits; and groups of peers that lost each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from p2pfl.results.swarm.state import ABSENT_ACTIVITIES, PeerState, Swarm


@dataclass(frozen=True)
class Blockage:
    """Peers at the end of a chain of waits.

    Attributes
    ----------
    blockers
        One peer that waits for nobody, or several that wait for each other.
    waiting
        Peers that wait for them, directly or through others; sorted.
    """

    blockers: tuple[str, ...]
    waiting: tuple[str, ...]

    @property
    def cycle(self) -> bool:
        """True if peers wait for each other."""
        return len(self.blockers) > 1


def blockages(waits: Mapping[str, Iterable[str]]) -> list[Blockage]:
    """Return the ends of all chains of waits, the one for which most peers wait first.

    Parameters
    ----------
    waits
        By waiting peer: those that it waits for.

    Examples
    --------
    >>> [blockage] = blockages({"ada": ["bob"], "bob": ["cy"], "dan": ["bob", "cy"]})
    >>> blockage.blockers, blockage.waiting
    (('cy',), ('ada', 'bob', 'dan'))
    >>> [blockage] = blockages({"ada": ["bob"], "bob": ["cy"], "cy": ["bob"]})
    >>> blockage.cycle, blockage.blockers, blockage.waiting
    (True, ('bob', 'cy'), ('ada',))
    """
    graph = {peer: {*others} - {peer} for peer, others in waits.items()}
    graph = {peer: others for peer, others in graph.items() if others}
    behind: dict[str, set[str]] = {}
    for peer, others in graph.items():
        for other in others:
            behind.setdefault(other, set()).add(peer)
    result, seen = list[Blockage](), set[str]()
    for peer in (*graph, *behind):
        if peer in seen:
            continue
        end, ahead, back = peer, _find_reachable(peer, graph), _find_reachable(peer, behind)
        while further := ahead - back:  # from there no wait leads back
            end = next((each for each in further if each not in graph), None) or min(further)
            ahead, back = _find_reachable(end, graph), _find_reachable(end, behind)
        seen |= back
        result.append(Blockage(tuple(sorted(ahead)), tuple(sorted(back - ahead))))
    return sorted(result, key=lambda each: (-len(each.waiting), each.blockers))


def waits_of(swarm: Swarm) -> dict[str, tuple[str, ...]]:
    """Return the neighbours that each waiting peer of a swarm waits for."""
    return {peer.name: peer.waits_for for peer in swarm.peers.values() if peer.activity == "waiting"}


def urgent_first(blocked: Iterable[Blockage], swarm: Swarm) -> list[Blockage]:
    """Return blockages in their order, but those by a peer that is silent or gone first.

    When neighbours give up a silent peer, their reports arrive within a second of each other. Until all are here, a
    peer whose neighbours' reports are late seems to block them.
    """
    return sorted(
        blocked, key=lambda each: all(swarm.peers[name].activity not in ABSENT_ACTIVITIES for name in each.blockers)
    )


def _find_reachable(start: str, graph: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the peers to which a path leads from one, with that one."""
    reached, pending = {start}, [start]
    while pending:
        fresh = {*graph.get(pending.pop(), ())} - reached
        reached |= fresh
        pending += fresh
    return reached


@dataclass(frozen=True)
class Partition:
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


def find_partition(swarm: Swarm) -> Partition | None:
    """Return the groups into which the peers of a swarm fall; ``None`` if they are one.

    Only peers that reported something after others had lost them count: a peer that is gone is no group.
    """
    active = {peer.name: peer for peer in swarm.peers.values() if _takes_part(peer)}
    lost = [(peer, name) for peer in active.values() for name in peer.lost_by if name in active]
    broken = {frozenset((peer.name, name)) for peer, name in lost}
    graph: dict[str, set[str]] = {name: set() for name in active}
    for peer in active.values():
        for name in peer.seen_by & active.keys():
            if frozenset((peer.name, name)) not in broken:
                graph[peer.name].add(name)
                graph[name].add(peer.name)
    group: dict[str, str] = {}
    for name in active:
        if name not in group:
            group |= dict.fromkeys(_find_reachable(name, graph), name)
    apart = [peer.lost_at for peer, name in lost if group[peer.name] != group[name] and peer.lost_at is not None]
    if not apart:
        return None
    groups = [tuple(name for name in active if group[name] == head) for head in dict.fromkeys(group.values())]
    return Partition(tuple(sorted(groups, key=len)), max(apart))


def _takes_part(peer: PeerState) -> bool:
    """Return whether a peer goes on as far as it reports itself, whatever its neighbours report."""
    reported = peer.last is not None and (peer.lost_at is None or peer.last > peer.lost_at)
    ended = peer.failure is not None or peer.finished or peer.silent_since is not None or peer.announced == "dead"
    offline = peer.waiting_since is not None and not peer.connected
    return reported and peer.phase in {"gathering", "learning", "paused"} and not ended and not offline
