"""Rounds that neighbours have reached, by their heartbeats."""

from __future__ import annotations

from collections.abc import Collection

from p2pfl.network.protocol.timing.pace import ALONE
from p2pfl.network.protocol.wire.messages import Pulse


class NeighbourProgress:
    """Rounds in which the current incarnations of neighbours take part.

    Attributes
    ----------
    entered
        By neighbour: the first round that it takes part in.
    places
        By neighbour: the furthest gossip step, a round and a step, that it has reported.
    gathering
        Neighbours whose last heartbeat reported that they have not begun.

    Examples
    --------
    >>> progress = NeighbourProgress()
    >>> progress.receive("b", Pulse(1, 0, 0, 0, round=5, step=1, first=3))
    >>> progress.entered, progress.moved_rounds("b")
    ({'b': 3}, [5])
    """

    def __init__(self) -> None:
        self.entered: dict[str, int] = {}
        self.places: dict[str, tuple[int, int]] = {}
        self.gathering: set[str] = set()

    def moved_rounds(self, peers: Collection[str]) -> list[int]:
        """Return the rounds of the peers that have left the gossip step in which they began."""
        there = [peer for peer in peers if peer in self.places]
        return [self.places[peer][0] for peer in there if self.places[peer] > (self.entered[peer], 0)]

    def reached_rounds(self, peers: Collection[str]) -> list[int]:
        """Return the rounds that neighbours have reached; 0 for one that has not moved since it began.

        A neighbour that has not moved does not show where the run is, but it counts, so that none decides alone.
        """
        here = {peer for peer in peers if self.moved_rounds([peer])}
        return [self.places[peer][0] if peer in here else 0 for peer in peers]

    def supported_steps(self) -> list[tuple[int, int]]:
        """Return the gossip steps of neighbours, without those more than a few rounds ahead of half of them.

        A Byzantine neighbour can move a late peer by these few rounds and no more, unless it is the only neighbour.
        """
        positions = sorted(self.places.values())
        half = positions[(len(positions) - 1) // 2][0] if positions else 0
        return positions if len(positions) < 2 else [each for each in positions if each[0] <= half + ALONE]

    def receive(self, peer: str, pulse: Pulse) -> None:
        """Record a heartbeat."""
        if pulse.first is None:
            self.gathering.add(peer)
            return
        self.gathering.discard(peer)
        self.entered[peer] = pulse.first
        self.places[peer] = max((pulse.round, pulse.step), self.places.get(peer, (0, 0)))

    def suppose(self, peer: str) -> None:
        """Assume that a neighbour takes part from the beginning; a later heartbeat of it may correct that."""
        self.entered[peer] = 0

    def forget(self, peer: str) -> None:
        """Forget a neighbour."""
        self.entered.pop(peer, None)
        self.places.pop(peer, None)
        self.gathering.discard(peer)
