"""Consequences for a session when a neighbour joins, leaves, returns or equivocates."""

from __future__ import annotations

from p2pfl.network.protocol.interface.effects import Forget
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.session.streams import Streams


class Neighbours:
    """Start and end of the communication with each neighbour.

    Parameters
    ----------
    shared
        State that all parts of the session use.
    streams
        Models in transit.
    """

    def __init__(self, shared: Shared, streams: Streams) -> None:
        self.shared, self.streams = shared, streams

    def places(self) -> tuple[str, ...]:
        """Return the topics of neighbours to subscribe to first; ``Presence`` handles their announcements."""
        shared = self.shared
        accounts = sorted(shared.membership.neighbours) if shared.ledgers.kept else ()
        return (*(f"{peer}/account" for peer in accounts), *self.streams.places)

    def join(self, peer: str) -> None:
        """Open the streams to and from a live neighbour, and grant it credit to send."""
        shared, streams, membership = self.shared, self.streams, self.shared.membership
        announcement = membership.up[peer]
        shared.mailbox.know(peer)
        shared.ledgers.begin(peer, incarnation=announcement.incarnation, epoch=membership.epoch(peer))
        streams.open(announcement)
        if not membership.begun or peer not in streams.senders:
            shared.progress.suppose(peer)
        streams.grant()
        if membership.begun and peer in shared.edges.neighbours:  # it joins late
            streams.again()
            streams.pulses()

    def renew(self, peer: str) -> None:
        """Discard the state of a neighbour, so that its next incarnation can begin."""
        self.streams.forget(peer)
        self.shared.mailbox.forget(peer)
        self.shared.do(Forget(peer))
        self._forget(peer)

    def part(self, peer: str) -> None:
        """Stop waiting for a neighbour that left."""
        self.streams.drop(peer)

    def leave_out(self, peer: str) -> None:
        """Treat a neighbour as gone until it begins another incarnation, because the others continue without it."""
        membership = self.shared.membership
        membership.gone.add(peer)
        membership.lost.discard(peer)
        membership.returning.discard(peer)
        self.part(peer)

    def back(self, peer: str) -> None:
        """Continue with a neighbour that was lost and has kept its state."""
        self.streams.resume(peer)

    def exclude(self, peer: str) -> None:
        """Exclude a neighbour that has signed two different statements."""
        self.shared.membership.exclude(peer)
        self.streams.close(peer)
        self.streams.drop(peer)

    def _forget(self, peer: str) -> None:
        """Discard the progress and the timing statistics of a neighbour."""
        self.shared.progress.forget(peer)
        self.shared.timeouts.forget(peer)
