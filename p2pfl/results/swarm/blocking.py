"""Peers that block others: the ends of the graph of waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from p2pfl.results.swarm.state import ABSENT, Swarm


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
    >>> [found] = blockages({"ada": ["bob"], "bob": ["cy"], "dan": ["bob", "cy"]})
    >>> found.blockers, found.waiting
    (('cy',), ('ada', 'bob', 'dan'))
    >>> [found] = blockages({"ada": ["bob"], "bob": ["cy"], "cy": ["bob"]})
    >>> found.cycle, found.blockers, found.waiting
    (True, ('bob', 'cy'), ('ada',))
    """
    graph = {peer: sorted({*others} - {peer}) for peer, others in waits.items()}
    graph = {peer: others for peer, others in graph.items() if others}
    found = []
    for group in _groups(graph):
        if not any(other not in group for peer in group for other in graph.get(peer, ())):
            behind = _reaching(group, graph) - group
            found.append(Blockage(tuple(sorted(group)), tuple(sorted(behind))))
    return sorted(found, key=lambda each: (-len(each.waiting), each.blockers))


def waits_of(swarm: Swarm) -> dict[str, tuple[str, ...]]:
    """Return the neighbours that each waiting peer of a swarm waits for."""
    return {peer.name: peer.waits_for for peer in swarm.peers.values() if peer.activity == "waiting"}


def urgent_first(found: Iterable[Blockage], swarm: Swarm) -> list[Blockage]:
    """Return blockages in their order, but those by a peer that is silent or gone first.

    When neighbours give up a silent peer, their reports arrive within a second of each other. Until all are here, a
    peer whose neighbours' reports are late seems to block them.
    """
    return sorted(found, key=lambda each: all(swarm.peers[name].activity not in ABSENT for name in each.blockers))


def _groups(graph: Mapping[str, list[str]]) -> Iterator[set[str]]:
    """Yield the strongly connected components of a graph (Tarjan, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    inside: set[str] = set()
    for start in graph:
        if start in order:
            continue
        path = [(start, iter(graph.get(start, ())))]
        order[start] = low[start] = len(order)
        open_.append(start)
        inside.add(start)
        while path:
            peer, others = path[-1]
            other = next(others, None)
            if other is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[peer])
                if low[peer] == order[peer]:
                    place = open_.index(peer)
                    group = {*open_[place:]}
                    del open_[place:]
                    inside -= group
                    yield group
            elif other not in order:
                order[other] = low[other] = len(order)
                open_.append(other)
                inside.add(other)
                path.append((other, iter(graph.get(other, ()))))
            elif other in inside:
                low[peer] = min(low[peer], order[other])


def _reaching(group: set[str], graph: Mapping[str, list[str]]) -> set[str]:
    """Return the peers from which a path leads to a group, with the group."""
    behind: dict[str, list[str]] = {}
    for peer, others in graph.items():
        for other in others:
            behind.setdefault(other, []).append(peer)
    found, pending = {*group}, [*group]
    while pending:
        for peer in behind.get(pending.pop(), ()):
            if peer not in found:
                found.add(peer)
                pending.append(peer)
    return found
