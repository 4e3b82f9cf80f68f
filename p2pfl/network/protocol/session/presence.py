"""Announcements of this peer, and presence of others: joined, left, or suspected to be gone."""

from __future__ import annotations

from collections import Counter

from p2pfl.core.errors import PeerError
from p2pfl.network.protocol.interface.effects import Publish
from p2pfl.network.protocol.session.name_claim import NameClaim
from p2pfl.network.protocol.session.neighbour_changes import Neighbours
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.wire.messages import Announcement, Claim, Key

ASKED = 2
"""Number of times that a neighbour is asked for a sign of life before another key may take over its name."""


class Presence:
    """Announcements, Last Wills, and the introductions in which neighbours exchange keys.

    Parameters
    ----------
    shared
        State that all parts of the session use.
    naming
        State of this peer's own entry.
    neighbours
        Part of the session that carries out the consequences.

    Attributes
    ----------
    joined
        Neighbours of whose current incarnation this peer knows everything that it needs to read their messages.
    turn
        Number of times that this peer has returned after its Last Will was published.
    left
        True if this peer has sent its goodbye, after which it announces nothing.
    """

    def __init__(self, shared: Shared, naming: NameClaim, neighbours: Neighbours) -> None:
        self.shared, self.naming, self.neighbours = shared, naming, neighbours
        self.joined: set[str] = set()
        self.turn = 0
        self.left = False
        self._wills: dict[str, tuple[float, Announcement]] = {}  # by neighbour: arrival time and Last Will
        self._asked = Counter[str]()  # by neighbour: requests to answer since its current announcement

    # ------------------------------------------------------------------ this peer

    def places(self) -> tuple[str, ...]:
        """Return the topics of announcements to subscribe to."""
        return tuple(f"{peer}/state" for peer in (self.shared.me.peer, *sorted(self.shared.membership.neighbours)))

    def announce(self, *, answers: bytes = b"") -> None:
        """Announce this peer, unless it has sent its goodbye."""
        if not self.left:
            announcement = self.shared.codec.announcement("up", answers=answers, turn=self.turn)
            self.shared.do(Publish("state", announcement, retain=True))

    def come_back(self) -> None:
        """Announce that this peer is alive, because the broker may have published its Last Will."""
        self.turn += 1
        self.announce()

    def say_goodbye(self, *, done: bool, receipt: str) -> None:
        """Announce that this peer leaves, with all rounds played or not."""
        self.left = True
        goodbye = self.shared.codec.announcement("left", turn=self.turn, done=done)
        self.shared.do(Publish("state", goodbye, retain=True, receipt=receipt))

    def answer_claim(self, claim: Claim) -> None:
        """Handle a claim to this peer's name: its own, or that of a new peer, which reads the answer and leaves."""
        if claim.incarnation == self.shared.me.incarnation:
            self.naming.echo()
        elif claim.incarnation > self.shared.me.incarnation:
            self.announce(answers=claim.key)

    def _refute_will(self, announcement: Announcement) -> None:
        """Announce this peer if the broker published the Last Will of this incarnation or of an earlier one."""
        if announcement.incarnation == self.shared.me.incarnation:
            self.come_back()
        elif announcement.incarnation < self.shared.me.incarnation:
            self.announce()

    # ------------------------------------------------------------------ neighbours

    def receive_announcement(self, announcement: Announcement) -> None:
        """Handle an announcement of any status.

        Raises
        ------
        PeerError
            This peer cannot continue: its name is in use, or a neighbour runs another experiment.
        """
        membership, me, naming = self.shared.membership, self.shared.me, self.naming
        if not membership.trusts(announcement):
            self.shared.refuse(announcement.peer, "not trusted")
            return
        if naming.inside and announcement.peer == me.peer and announcement.status == "dead":
            self._refute_will(announcement)
            return
        if announcement.peer == me.peer and announcement.incarnation != me.incarnation and not naming.echoed:
            naming.namesake = announcement  # retained: of a live peer, or left over from an earlier incarnation
            return
        if self._is_doubtful(announcement):
            return
        previous = membership.up.get(announcement.peer)
        try:
            news = membership.receive(announcement)
        except PeerError as error:
            if naming.inside or announcement.peer == me.peer:
                raise
            naming.quarrel = error
            return
        if news:
            self._follow(announcement, again=previous is not None and previous.incarnation == announcement.incarnation)

    def meet(self, sender: str, key: Key) -> None:
        """Handle the key of a neighbour's incarnation, which no earlier incarnation could have wrapped for this peer.

        Raises
        ------
        DecodeError
            The key is not for this peer, or belongs to another incarnation.
        PeerError
            The neighbour runs another experiment, this peer has not begun, and no operator may change that of either.
        """
        envelope, membership = self.shared.codec.envelope, self.shared.membership
        if envelope is not None and not (envelope.meets(sender) or envelope.has_settled([sender])):
            envelope.meet(membership.up[sender])  # it knows of an edge that this peer does not know yet
        if envelope is not None and envelope.receive(sender, key):
            self.shared.publish(f"in/{sender}", envelope.handover(sender))
        if sender not in membership.proven:
            try:
                self._join(sender)
            except PeerError:
                if not (membership.begun or membership.changeable):
                    raise
                self.shared.refuse(sender, "another experiment")  # one that was away follows a change in a moment

    def alive(self, peer: str) -> None:
        """Note that a neighbour is alive: only its current incarnation can have sent the message that arrived."""
        self._wills.pop(peer, None)
        if self.shared.membership.alive(peer):  # the announcement of its return, sent only once, may be lost
            self.neighbours.back(peer)

    def bury(self) -> None:
        """Treat neighbours as gone that have not returned within the grace period after their Last Will."""
        for peer, (since, will) in tuple(self._wills.items()):
            if self.shared.now - since >= self.shared.grace:
                del self._wills[peer]
                if self.shared.membership.receive(will):
                    self._follow(will, again=True)

    def introduce(self) -> None:
        """Repeat unanswered keys, and announce this peer again if a neighbour may have missed its announcement."""
        envelope, membership = self.shared.codec.envelope, self.shared.membership
        if envelope is None:
            return
        waiting = [peer for peer in sorted(membership.greeted) if envelope.meets(peer)]
        if waiting or (membership.absent and not membership.begun):
            self.announce()  # a peer may have missed or overwritten the retained announcement
        for peer in waiting:
            self._asked[peer] += 1
            if self._asked[peer] >= ASKED:
                membership.unanswered.add(peer)
            self.shared.publish(f"in/{peer}", envelope.handover(peer))

    @property
    def acquainted(self) -> bool:
        """True if this peer and all present peers can read each other's messages."""
        envelope = self.shared.codec.envelope
        return envelope is None or envelope.has_settled(self.shared.membership.present)

    def _is_doubtful(self, announcement: Announcement) -> bool:
        """Return whether a peer may be alive despite its Last Will.

        A broker that shuts down in order publishes the Last Wills of all peers.
        """
        membership = self.shared.membership
        previous = membership.up.get(announcement.peer)
        if announcement.status == "up":
            if previous is None or (announcement.incarnation, announcement.turn) > (
                previous.incarnation,
                previous.turn,
            ):
                self._wills.pop(announcement.peer, None)
            return False
        if announcement.status == "left" or previous is None:
            return False
        present = announcement.peer in membership.present or announcement.peer not in membership.neighbours
        if not self.shared.grace or not present or announcement.incarnation != previous.incarnation:
            return False
        self._wills.setdefault(announcement.peer, (self.shared.now, announcement))
        return True

    def _follow(self, announcement: Announcement, *, again: bool) -> None:
        """Update the session after a neighbour joined, left or, ``again`` in the same incarnation, returned."""
        membership = self.shared.membership
        if announcement.peer not in membership.greeted:
            self.neighbours.part(announcement.peer)
        elif again and announcement.peer in self.joined:
            self.neighbours.back(announcement.peer)
        elif announcement.peer in membership.neighbours | self.joined:
            self._greet(announcement)

    def _greet(self, announcement: Announcement) -> None:
        """Begin the introduction to a neighbour that joined, or joined again."""
        peer, envelope = announcement.peer, self.shared.codec.envelope
        if peer in self.joined:
            self.joined.discard(peer)
            self.neighbours.part(peer)
            self.neighbours.renew(peer)
        if envelope is None:
            self._join(peer)
        else:
            self._asked.pop(peer, None)
            envelope.meet(announcement)
            self.shared.publish(f"in/{peer}", envelope.handover(peer))

    def _join(self, peer: str) -> None:
        self.shared.membership.prove(peer)
        if peer in self.shared.membership.proven:
            self.joined.add(peer)
            self.neighbours.join(peer)
