"""Whom one peer hears and who hears it, in which exchange: decided without a clock or a loop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from p2pfl.topology import Healing, Schedule, Topology, Weights, turns


class Edges:
    """The edges of one peer in each phase of a schedule.

    Parameters
    ----------
    me
        Whose.
    topology, weights
        As planned, with everybody there.
    healing
        The same graph over any of its peers; without it the planned one stays.

    Examples
    --------
    >>> from p2pfl.topology import healing
    >>> ring = healing("ring", peers=5, seed=0)
    >>> edges = Edges("peer0", ring.whole, ring.weights(ring.whole), healing=ring)
    >>> edges.see({"peer0", "peer2", "peer3", "peer4"}), sorted(edges.neighbours)
    (True, ['peer2', 'peer4'])
    """

    def __init__(
        self,
        me: str,
        topology: Topology | Schedule,
        weights: Sequence[Weights] = (),
        *,
        healing: Healing | None = None,
    ) -> None:
        self.me, self.topology, self.weights, self.healing = me, topology, tuple(weights), healing
        self.peers = len(topology.peers)

    @property
    def period(self) -> int:
        """Phases of the schedule; who is missing does not change it."""
        return self.topology.period

    def see(self, there: Collection[str]) -> bool:
        """Take part in the graph of those who are there; return whether it is another than before."""
        if self.healing is None or self.topology.peers == tuple(sorted(there)):
            return False
        self.topology = self.healing.over(there)
        self.weights = self.healing.weights(self.topology)
        self.__dict__.pop("turns", None)
        return True

    def hears(self, phase: int) -> tuple[str, ...]:
        """Whose rows come in this phase."""
        return self.topology.at(phase).hears(self.me)

    def heard_by(self, phase: int) -> tuple[str, ...]:
        """Who gets ours."""
        return self.topology.at(phase).heard_by(self.me)

    @property
    def neighbours(self) -> frozenset[str]:
        """Who shares an edge with us, in whichever phase."""
        return frozenset(self.topology.neighbours(self.me))

    @property
    def senders(self) -> frozenset[str]:
        """Whom we hear, in whichever phase."""
        return frozenset(self.topology.hears(self.me))

    def row(self, phase: int) -> dict[str, float]:
        """Return the weights that this peer applies in a phase, including its own."""
        return self.weights[phase].row(self.me)

    @cached_property
    def turns(self) -> tuple[dict[str, int], ...]:
        """By phase, in which order large rows are sent."""
        return tuple(turns(self.topology.at(phase)) for phase in range(self.period))
