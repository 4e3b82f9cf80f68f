"""What follows from it that a neighbour comes, goes, comes back or has lied."""

from __future__ import annotations

from p2pfl.protocol.session.effects import Forget, Subscribe, Unsubscribe
from p2pfl.protocol.session.shared import Shared
from p2pfl.protocol.session.streams import Streams


class Neighbours:
    """Begins and ends what this peer exchanges with each neighbour.

    Parameters
    ----------
    shared
        What all parts of the session know.
    streams
        Models on their way.
    """

    def __init__(self, shared: Shared, streams: Streams) -> None:
        self.shared, self.streams = shared, streams
        self._accounts: set[str] = set()  # whose accounts are subscribed to

    def places(self) -> tuple[str, ...]:
        """Return the topics of neighbours to subscribe to at first; their announcements are the presence's."""
        shared = self.shared
        self._accounts.update(shared.membership.neighbours if shared.books.kept else ())
        return (*(f"{peer}/account" for peer in sorted(self._accounts)), *self.streams.places)

    def join(self, peer: str) -> None:
        """Open the streams to and from a neighbour that lives, and tell it how far it may go."""
        shared, streams, membership = self.shared, self.streams, self.shared.membership
        hello = membership.up[peer]
        shared.mailbox.know(peer)
        shared.books.begin(peer, life=hello.incarnation, key=hello.key, epoch=membership.epoch(peer))
        streams.open(hello)
        if not membership.begun or peer not in streams.senders:
            shared.progress.suppose(peer)
        streams.grant()
        self._subscribe_account(peer)
        if membership.begun and peer in shared.edges.neighbours:  # it comes late
            streams.again()
            streams.pulses()

    def renew(self, peer: str) -> None:
        """Make room for a neighbour's next incarnation."""
        self.streams.forget(peer)
        self.shared.mailbox.forget(peer)
        self.shared.do(Forget(peer))
        self._forget(peer)

    def part(self, peer: str) -> None:
        """Wait no longer for a neighbour that went."""
        self.streams.drop(peer)

    def back(self, peer: str) -> None:
        """Go on with a neighbour that was lost: it still knows all that it knew."""
        self.streams.resume(peer)

    def exclude(self, peer: str) -> None:
        """Have nothing to do any more with a neighbour that has said two different things."""
        self.shared.membership.exclude(peer)
        self.streams.close(peer)
        self.streams.drop(peer)

    def rewire(self) -> bool:
        """Take part in the graph of those who are there; return whether it is another than before.

        :meth:`resume` follows, once those who have become neighbours are met.
        """
        shared, streams = self.shared, self.streams
        before, places = shared.edges.senders, {*streams.places}
        if not shared.edges.see(shared.membership.view):
            return False
        now = shared.edges.senders
        shared.membership.neighbours |= shared.edges.neighbours
        streams.narrow()
        for peer in sorted(before ^ now):
            self._forget(peer)
        shared.progress.rewire(before, now)
        for peer in sorted((before - now) & shared.membership.present):
            shared.progress.suppose(peer)
        for peer in sorted(shared.edges.neighbours & shared.membership.present):
            streams.open(shared.membership.up[peer])
        self._subscribe({*streams.places} - places)
        gone = places - {*streams.places}
        if gone:
            shared.do(Unsubscribe(tuple(sorted(gone))))
        return True

    def resume(self) -> None:
        """Tell all how far they may go on in another graph."""
        self.streams.grant()
        self.streams.pulses()

    def _subscribe_account(self, peer: str) -> None:
        """Listen to the account of somebody who may become a neighbour, now that both can read each other."""
        if self.shared.books.healing and peer not in self._accounts:
            self._accounts.add(peer)
            self._subscribe({f"{peer}/account"})

    def _subscribe(self, places: set[str]) -> None:
        if places:
            self.shared.do(Subscribe(tuple(sorted(places))))

    def _forget(self, peer: str) -> None:
        """Know nothing any more of how a neighbour does."""
        self.shared.progress.forget(peer)
        self.shared.timeouts.forget(peer)
