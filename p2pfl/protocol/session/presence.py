"""What one peer announces of itself, and believes of others: who came, who went, who may not be dead."""

from __future__ import annotations

from collections import Counter

from p2pfl.errors import PeerError
from p2pfl.protocol.session.effects import Publish, Subscribe
from p2pfl.protocol.session.naming import Naming
from p2pfl.protocol.session.neighbours import Neighbours
from p2pfl.protocol.session.shared import Shared
from p2pfl.protocol.wire.messages import Claim, Hello, Key

BOARD = "+/state"
"""Where everybody's last announcement is kept."""

LOOK = 5.0
"""Seconds between two looks at the board, or more, so that names come no faster than ``RATE``."""

RATE = 10.0
"""Names a second, of some 700 bytes each."""

ASKED = 2
"""Times that a neighbour is asked to show that it lives before another key may announce itself under its name."""


class Presence:
    """Announcements, Last Wills, and the introductions in which neighbours exchange keys.

    Parameters
    ----------
    shared
        What all parts of the session know.
    naming
        Whether this peer is announced.
    neighbours
        Does what follows.

    Attributes
    ----------
    joined
        Neighbours of whose present incarnation all is known that it takes to read them.
    turn
        How often this peer has come back after its Last Will was published.
    left
        Whether it has said goodbye, which is its last word.
    """

    def __init__(self, shared: Shared, naming: Naming, neighbours: Neighbours) -> None:
        self.shared, self.naming, self.neighbours = shared, naming, neighbours
        self.joined: set[str] = set()
        self.turn = 0
        self.left = False
        self._wills: dict[str, tuple[float, Hello]] = {}  # by neighbour: its Last Will, and when it came
        self._looked = 0.0
        self._asked = Counter[str]()  # by neighbour: how often its present announcement was asked for an answer

    # ------------------------------------------------------------------ this peer

    def places(self) -> tuple[str, ...]:
        """Return the topics of announcements to subscribe to."""
        membership = self.shared.membership
        return (
            (BOARD,)
            if membership.names
            else tuple(f"{peer}/state" for peer in (self.shared.me.peer, *sorted(membership.neighbours)))
        )

    def announce(self, *, answers: bytes = b"") -> None:
        """Announce this peer; nothing any more after a goodbye."""
        if not self.left:
            announcement = self.shared.codec.announcement("up", answers=answers, turn=self.turn)
            self.shared.do(Publish("state", announcement, retain=True))

    def come_back(self) -> None:
        """Announce that this peer lives after all: the broker may have published its Last Will."""
        self.turn += 1
        self.announce()

    def say_goodbye(self, *, done: bool, receipt: str) -> None:
        """Announce that this peer leaves, with all rounds played or not."""
        self.left = True
        goodbye = self.shared.codec.announcement("left", turn=self.turn, done=done)
        self.shared.do(Publish("state", goodbye, retain=True, receipt=receipt))

    def claimed(self, claim: Claim) -> None:
        """Take a claim to this peer's name: its own, or that of a newcomer, who reads the answer and leaves."""
        if claim.incarnation == self.shared.me.incarnation:
            self.naming.echo()
        elif claim.incarnation > self.shared.me.incarnation:
            self.announce(answers=claim.key)

    def _mourned(self, hello: Hello) -> None:
        """Announce this peer where the broker takes it for dead, or noticed only now that an earlier one has ended."""
        if hello.incarnation == self.shared.me.incarnation:
            self.come_back()
        elif hello.incarnation < self.shared.me.incarnation:
            self.announce()

    # ------------------------------------------------------------------ neighbours

    def heard(self, hello: Hello) -> None:
        """Take an announcement, of whatever status.

        Raises
        ------
        PeerError
            This peer cannot go on: its name is taken, or a neighbour runs another experiment.
        """
        membership, me, naming = self.shared.membership, self.shared.me, self.naming
        if not membership.trusts(hello):
            self.shared.refuse(hello.peer, "not trusted")
            return
        if naming.inside and hello.peer == me.peer and hello.status == "dead":
            self._mourned(hello)
            return
        if hello.peer == me.peer and hello.incarnation != me.incarnation and not naming.echoed:
            naming.namesake = hello  # retained: alive, or what is left of an earlier life
            return
        if self._doubted(hello):
            return
        known = membership.up.get(hello.peer)
        try:
            news = membership.hear(hello)
        except PeerError as error:
            if naming.inside or hello.peer == me.peer:
                raise
            naming.quarrel = error
            return
        if news:
            self._follow(hello, again=known is not None and known.incarnation == hello.incarnation)

    def met(self, sender: str, key: Key) -> None:
        """Take the key of a neighbour's incarnation, which no earlier one could have wrapped for us.

        Raises
        ------
        DecodeError
            It is not for us, or of another incarnation.
        PeerError
            The neighbour runs another experiment, and this peer has not begun.
        """
        envelope, membership = self.shared.codec.envelope, self.shared.membership
        if envelope is not None and not (envelope.meets(sender) or envelope.settled([sender])):
            envelope.meet(membership.up[sender])  # it believes in an edge of which we have not heard yet
        if envelope is not None and envelope.hear(sender, key):
            self.shared.publish(f"in/{sender}", envelope.handover(sender))
        if sender not in membership.proven:
            try:
                self._join(sender)
            except PeerError:
                if not membership.begun:
                    raise
                self.shared.refuse(sender, "another experiment")  # too late to stop for

    def lives(self, peer: str) -> None:
        """Note a message of a neighbour's present incarnation, which only it can have sent: it is not dead."""
        self._wills.pop(peer, None)
        if self.shared.membership.lives(peer):  # its announcement, sent once after it was lost, may be lost as well
            self.neighbours.back(peer)

    def bury(self) -> None:
        """Take those for dead that have not come back after their Last Will."""
        for peer, (since, will) in tuple(self._wills.items()):
            if self.shared.now - since >= self.shared.grace:
                del self._wills[peer]
                if self.shared.membership.hear(will):
                    self._follow(will, again=True)

    def introduce(self) -> None:
        """Send again what a neighbour has not answered; where one has not come, our announcement may be lost."""
        envelope, membership = self.shared.codec.envelope, self.shared.membership
        if envelope is None:
            return
        waiting = [peer for peer in sorted(membership.greeted) if envelope.meets(peer)]
        board = bool(membership.names) and not membership.begun  # which is written at its own pace
        if not board and (waiting or (membership.absent and not membership.begun)):
            self.announce()  # somebody may have missed, or overwritten, what the broker keeps
        for peer in waiting:
            self._asked[peer] += 1
            if self._asked[peer] >= ASKED:
                membership.unanswered.add(peer)
            self.shared.publish(f"in/{peer}", envelope.handover(peer))

    def look(self) -> None:
        """Read the board again, where it says who is there: an announcement may be lost, or ours not be on it."""
        membership, now = self.shared.membership, self.shared.now
        if not membership.names or now < self._looked + max(LOOK, len(membership.names) / RATE):
            return
        self._looked = now
        self.shared.do(Subscribe((BOARD,)))  # the broker sends again what it keeps, also to who is subscribed already
        if not membership.begun:
            self.announce()

    def heal(self) -> None:
        """Take part in the graph of those who are there, by the last signed announcement of each."""
        if self.neighbours.rewire():
            self.approach()
            self.neighbours.resume()

    def approach(self) -> None:
        """Meet who has become a neighbour."""
        envelope, membership = self.shared.codec.envelope, self.shared.membership
        for peer in sorted((membership.neighbours & membership.greeted) - self.joined):
            if envelope is None or not envelope.meets(peer):
                self._greet(membership.up[peer])

    @property
    def acquainted(self) -> bool:
        """Whether all who are there can read us, and we them."""
        envelope = self.shared.codec.envelope
        return envelope is None or envelope.settled(self.shared.membership.present)

    def _doubted(self, hello: Hello) -> bool:
        """Return whether a peer that is said to be dead may not be: the broker says so of all when it ends in order."""
        membership = self.shared.membership
        known = membership.up.get(hello.peer)
        if hello.status == "up":
            if known is None or (hello.incarnation, hello.turn) > (known.incarnation, known.turn):
                self._wills.pop(hello.peer, None)
            return False
        if hello.status == "left" or known is None:
            return False
        present = hello.peer in membership.present or hello.peer not in membership.neighbours
        if not self.shared.grace or not present or hello.incarnation != known.incarnation:
            return False
        self._wills.setdefault(hello.peer, (self.shared.now, hello))
        return True

    def _follow(self, hello: Hello, *, again: bool) -> None:
        """Do what follows from it that a neighbour came, went or, ``again`` in the same incarnation, came back."""
        membership = self.shared.membership
        if hello.peer not in membership.greeted:
            self.neighbours.part(hello.peer)
        elif again and hello.peer in self.joined:
            self.neighbours.back(hello.peer)
        elif hello.peer in membership.neighbours | self.joined:
            self._greet(hello)
        self.heal()

    def _greet(self, hello: Hello) -> None:
        """Begin with a neighbour that came, or came again."""
        peer, envelope = hello.peer, self.shared.codec.envelope
        if peer in self.joined:
            self.joined.discard(peer)
            self.neighbours.part(peer)
            self.neighbours.renew(peer)
        if envelope is None:
            self._join(peer)
        else:
            self._asked.pop(peer, None)
            envelope.meet(hello)
            self.shared.publish(f"in/{peer}", envelope.handover(peer))

    def _join(self, peer: str) -> None:
        self.shared.membership.prove(peer)
        if peer in self.shared.membership.proven:
            self.joined.add(peer)
            self.neighbours.join(peer)
