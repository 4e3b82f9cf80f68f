"""Senders and receivers of one peer in each phase of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from p2pfl.topology import Schedule, Topology, Weights


class Edges:
    """The edges of one peer in each phase of a schedule.

    Parameters
    ----------
    me
        Name of the peer.
    topology, weights
        Of the plan.

    Attributes
    ----------
    period
        Number of phases of the schedule.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> sorted(Edges("peer0", ring(5)).neighbours)
    ['peer1', 'peer4']
    """

    def __init__(self, me: str, topology: Topology | Schedule, weights: Sequence[Weights] = ()) -> None:
        self.me, self.topology, self.weights = me, topology, tuple(weights)
        self.peers, self.period = len(topology.peers), topology.period

    def senders_in(self, phase: int) -> tuple[str, ...]:
        """Return the neighbours whose models this peer receives in a phase."""
        return self._senders[phase]

    def receivers_in(self, phase: int) -> tuple[str, ...]:
        """Return the neighbours to which this peer sends its model in a phase."""
        return self._receivers[phase]

    @property
    def neighbours(self) -> frozenset[str]:
        """Peers that share an edge with this one in any phase."""
        return frozenset(self.topology.neighbours(self.me))

    @property
    def senders(self) -> frozenset[str]:
        """Neighbours whose models this peer receives in any phase."""
        return frozenset(self.topology.senders(self.me))

    def is_needed_for(self, peer: str, *, round: int, steps: int) -> bool:
        """Return whether a peer can make some gossip steps of a round only after this peer has sent a model.

        Examples
        --------
        >>> from p2pfl.topology import build
        >>> edges = Edges("peer0", build("exponential", peers=4, seed=0))  # which sends to peer1 and peer2
        >>> [edges.is_needed_for(peer, round=0, steps=1) for peer in ("peer2", "peer3")]
        [True, False]
        >>> edges.is_needed_for("peer3", round=0, steps=2)
        True
        """
        delayed = {self.me}
        for phase in range(round, round + min(steps, self.peers * self.period)):
            graph = self.topology.at(phase)
            delayed |= {receiver for each in delayed for receiver in graph.receivers(each)}
            if peer in delayed:
                return True
        return False

    def row(self, phase: int) -> dict[str, float]:
        """Return the weights that this peer applies in a phase, including its own."""
        return dict(self._rows[phase])

    @cached_property
    def _senders(self) -> tuple[tuple[str, ...], ...]:
        """Neighbours whose models this peer receives, by phase."""
        return tuple(self.topology.at(phase).senders(self.me) for phase in range(self.period))

    @cached_property
    def _receivers(self) -> tuple[tuple[str, ...], ...]:
        """Neighbours to which this peer sends its model, by phase."""
        return tuple(self.topology.at(phase).receivers(self.me) for phase in range(self.period))

    @cached_property
    def _rows(self) -> tuple[dict[str, float], ...]:
        """Weights that this peer applies, by phase."""
        return tuple(weights.row(self.me) for weights in self.weights)

    @cached_property
    def turns(self) -> tuple[dict[str, int], ...]:
        """Order in which large models are sent, by phase."""
        return tuple(self.topology.at(phase).turns for phase in range(self.period))
