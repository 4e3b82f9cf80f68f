"""Coming and going: whose name is free, who came, who went, who may not be dead."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Protocol

from p2pfl.errors import PeerError, TransportError
from p2pfl.peer.desk import Desk
from p2pfl.protocol.wire.messages import Claim, Hello, Key

ECHO = 30.0
"""Seconds within which the broker must return our own message: more than the keepalive, by which a connection ends."""

BOARD = "+/state"
"""Where everybody's last word is kept."""

LOOK = 5.0
"""Seconds between two looks at the board, or more, so that names come no faster than ``RATE``."""

RATE = 10.0
"""Names a second, of some 700 bytes each."""

ASKED = 2
"""Times that a neighbour is asked to show that it lives before another key may announce itself under its name."""

PROOF = 2.0
"""Seconds within which a peer of the same name must answer a claim."""


class Host(Protocol):
    """What follows from it that a neighbour comes or goes."""

    def join(self, peer: str) -> None:
        """Begin with a neighbour that is there; a :class:`~p2pfl.errors.PeerError` if its experiment is another."""

    def renew(self, peer: str) -> None:
        """Make room for a neighbour's next life."""

    def part(self, peer: str) -> None:
        """Wait no longer for a neighbour that went."""

    def back(self, peer: str) -> None:
        """Go on with a neighbour that was lost in its present life."""

    def heal(self) -> None:
        """Somebody came or went, so that others may be neighbours."""


class Presence:
    """What one peer says of itself, and believes of others.

    Parameters
    ----------
    desk
        Says and counts.
    host
        Does what follows.

    Attributes
    ----------
    joined
        Neighbours of whose present life all is known that it takes to hear them.
    """

    def __init__(self, desk: Desk, host: Host) -> None:
        self.desk, self.host = desk, host
        self.line, self.membership, self.me = desk.line, desk.membership, desk.me
        self.joined: set[str] = set()
        self._echo = asyncio.Event()
        self._doubts: dict[str, tuple[float, Hello]] = {}  # by neighbour: its will, and when it came
        self._namesake: Hello | None = None
        self._said = False
        self._quarrel: PeerError | None = None
        self._looked = 0.0
        self._asked = Counter[str]()  # by neighbour: how often its present announcement was asked for an answer

    # ------------------------------------------------------------------ our own name

    async def enter(self, *, size: int, again: float) -> None:
        """Make sure that the name is free and that messages of so many bytes pass, and only then say hello.

        Parameters
        ----------
        size
            Of the claim.
        again
            Seconds after which a claim is repeated: brokers acknowledge and then drop, or restart.
        """
        await self._claim(size, again=again)
        await self.line.say("up")
        self._said = True
        if self._quarrel is not None:  # told after the hello, so that the other end can tell it, too
            raise self._quarrel

    async def _claim(self, size: int, *, again: float) -> None:
        """Ask whoever bears our name to speak up; the echo tells that retained messages have come."""
        clock, waited = self.desk.clock, 0.0
        while not self._echo.is_set():
            if waited >= ECHO:
                raise TransportError(
                    f"expected the broker to return our own message of {size} bytes within {ECHO:g} s, got nothing:"
                    " lower transport.chunk, raise what it takes (message_size_limit of mosquitto), or see whether it "
                    f'lets "{self.me.peer}" speak in its own name, as which transport.credentials or '
                    "transport.certificate must show it (with transport.version = 5 it says so)"
                )
            began = clock()
            await self.line.claim(size=size)
            pause = min(again + 2 * (clock() - began), ECHO / 4)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._echo.wait()
            waited += pause  # whatever the clock says: we may have stood still
        if self._namesake is not None and self._namesake.status == "up":
            await asyncio.sleep(PROOF)  # the reader raises if it answers

    async def claimed(self, claim: Claim) -> None:
        """Somebody claims our name: ourselves, or a newcomer, who reads our answer and leaves."""
        if claim.incarnation == self.me.incarnation:
            self._echo.set()
        elif claim.incarnation > self.me.incarnation:
            await self.line.say("up", answers=claim.key)

    def _mourned(self, hello: Hello) -> None:
        """Say that we live, where the broker takes us for dead or noticed only now that an earlier life has ended."""
        if hello.incarnation <= self.me.incarnation and self.desk.tasks is not None:
            ours = hello.incarnation == self.me.incarnation
            self.desk.tasks.create_task(self.line.come_back() if ours else self.line.say("up"))

    # ------------------------------------------------------------------ neighbours

    def heard(self, hello: Hello) -> None:
        """Take a hello, of whatever status."""
        if not self.membership.trusts(hello):
            self.desk.refuse(hello.peer, "not trusted")
            return
        if self._said and hello.peer == self.me.peer and hello.status == "dead":
            self._mourned(hello)
            return
        if hello.peer == self.me.peer and hello.incarnation != self.me.incarnation and not self._echo.is_set():
            self._namesake = hello  # retained: alive, or what is left of an earlier life
            return
        if self._doubted(hello):
            return
        known = self.membership.up.get(hello.peer)
        try:
            news = self.membership.hear(hello)
        except PeerError as error:
            if self._said or hello.peer == self.me.peer:
                raise
            self._quarrel = error
            return
        if news:
            self._follow(hello, again=known is not None and known.incarnation == hello.incarnation)

    def met(self, sender: str, key: Key) -> None:
        """Take the key of a neighbour's life, which no earlier life could have wrapped for us."""
        envelope = self.line.envelope
        if envelope is not None and not (envelope.meets(sender) or envelope.settled([sender])):
            envelope.meet(self.membership.up[sender])  # it believes in an edge of which we have not heard yet
        if envelope is not None and envelope.hear(sender, key):
            self.desk.post(f"in/{sender}", envelope.handover(sender))
        if sender not in self.membership.proven:
            try:
                self._join(sender)
            except PeerError:
                if not self.membership.begun:
                    raise
                self.desk.refuse(sender, "another experiment")  # too late to stop for
                return
        self.desk.news.tell()

    def lives(self, peer: str) -> None:
        """Something of a neighbour's present life came, which only it can have said: it is not dead."""
        self._doubts.pop(peer, None)
        if self.membership.lives(peer):  # its hello, said once after it was lost, may be lost as well
            self.host.back(peer)

    def bury(self) -> None:
        """Believe of those that have not come back that they are dead."""
        for peer, (since, will) in tuple(self._doubts.items()):
            if self.desk.clock() - since >= self.line.channel.grace:
                del self._doubts[peer]
                if self.membership.hear(will):
                    self._follow(will, again=True)

    async def introduce(self) -> None:
        """Say again what a neighbour has not answered; of one that has not come, our hello may have been lost."""
        envelope = self.line.envelope
        if envelope is None:
            return
        waiting = [peer for peer in sorted(self.membership.greeted) if envelope.meets(peer)]
        board = bool(self.membership.names) and not self.membership.begun  # which is written at its own pace
        if not board and (waiting or (self.membership.absent and not self.membership.begun)):
            await self.line.say("up")  # somebody may have missed, or overwritten, what the broker keeps
        for peer in waiting:
            self._asked[peer] += 1
            if self._asked[peer] >= ASKED:
                self.membership.unanswered.add(peer)
            self.desk.post(f"in/{peer}", envelope.handover(peer))

    async def look(self) -> None:
        """Read the board again, where it says who is there: a word may have been lost, and ours may not be on it."""
        membership, now = self.membership, self.desk.clock()
        if not membership.names or now < self._looked + max(LOOK, len(membership.names) / RATE):
            return
        self._looked = now
        await self.line.listen(BOARD)  # to what one listens to already, too, the broker says again what it keeps
        if not membership.begun:
            await self.line.say("up")

    def approach(self) -> None:
        """Meet who has become a neighbour."""
        envelope, membership = self.line.envelope, self.membership
        for peer in sorted((membership.neighbours & membership.greeted) - self.joined):
            if envelope is None or not envelope.meets(peer):
                self._greet(membership.up[peer])

    @property
    def acquainted(self) -> bool:
        """Whether all who are there can read us, and we them."""
        return self.line.envelope is None or self.line.envelope.settled(self.membership.present)

    def _doubted(self, hello: Hello) -> bool:
        """Whether a peer that is said to be dead may not be: the broker says so of all when it ends in order."""
        known = self.membership.up.get(hello.peer)
        if hello.status == "up":
            if known is None or (hello.incarnation, hello.turn) > (known.incarnation, known.turn):
                self._doubts.pop(hello.peer, None)
            return False
        if hello.status == "left" or known is None:
            return False
        present = hello.peer in self.membership.present or hello.peer not in self.membership.neighbours
        if not self.line.channel.grace or not present or hello.incarnation != known.incarnation:
            return False
        self._doubts.setdefault(hello.peer, (self.desk.clock(), hello))
        return True

    def _follow(self, hello: Hello, *, again: bool) -> None:
        """Do what follows from it that a neighbour came, went or, ``again`` in the same life, came back."""
        if hello.peer not in self.membership.greeted:
            self.host.part(hello.peer)
        elif again and hello.peer in self.joined:
            self.host.back(hello.peer)
        elif hello.peer in self.membership.neighbours | self.joined:
            self._greet(hello)
        self.host.heal()
        self.desk.news.tell()

    def _greet(self, hello: Hello) -> None:
        """Begin with a neighbour that came, or came again."""
        if hello.peer in self.joined:
            self.joined.discard(hello.peer)
            self.host.part(hello.peer)
            self.host.renew(hello.peer)
        if self.line.envelope is None:
            self._join(hello.peer)
        else:
            self._asked.pop(hello.peer, None)
            self.line.envelope.meet(hello)
            self.desk.post(f"in/{hello.peer}", self.line.envelope.handover(hello.peer))

    def _join(self, peer: str) -> None:
        self.membership.prove(peer)
        if peer in self.membership.proven:
            self.joined.add(peer)
            self.host.join(peer)
