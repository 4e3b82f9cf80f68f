"""A peer's link to its neighbours: carries out what the streams, the mailbox and the membership decide."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from p2pfl.errors import AuthenticityError, DecodeError
from p2pfl.peer.adding import Adding
from p2pfl.peer.desk import Desk
from p2pfl.peer.line import Line
from p2pfl.peer.presence import BOARD, Presence
from p2pfl.peer.streams import Streams
from p2pfl.peer.threads import SLOW
from p2pfl.protocol import plausible as possible
from p2pfl.protocol.edges import Edges
from p2pfl.protocol.ledgers.books import Books
from p2pfl.protocol.mailbox import Delivery, Mailbox
from p2pfl.protocol.membership import Membership, missing
from p2pfl.protocol.progress import Whereabouts
from p2pfl.protocol.timeouts import Doubts
from p2pfl.protocol.wire.messages import Account, Ack, Chunk, Claim, ForOne, Hello, Key, Message, Plain, Pulse
from p2pfl.protocol.wire.rows import HEAD, read_row

PULSE = 1.0
"""Seconds between heartbeats."""


async def _nothing() -> None:
    """Nothing need be kept."""


class Link:
    """The shell around one peer's streams.

    Parameters
    ----------
    line
        To the broker.
    membership, mailbox
        Decide.
    edges
        Whom we hear, and who hears us, in which exchange.
    row_bytes
        Upper bound of a row's message.
    chunk
        Bytes in a publish.
    patience
        Seconds without progress after which a listener is no longer waited for.
    last
        The last round that anybody plays.

    Attributes
    ----------
    desk, streams, presence
        What all parts share; rows on their way; coming and going.
    books
        What is applied of partners' rows and masks; they are told.
    durable
        Awaited before anything is said that must not be forgotten.
    first
        The first round that this life takes part in; ``None`` until it is known.
    whereabouts
        Which part of the run the neighbours play.
    adding
        What is added up in secret; nothing by default.
    doubts
        Who is waited for, and how long.
    """

    def __init__(
        self,
        line: Line,
        *,
        membership: Membership,
        mailbox: Mailbox,
        edges: Edges,
        row_bytes: int,
        chunk: int,
        patience: float,
        last: int = possible.UNLIMITED,
    ) -> None:
        self.line, self.membership, self.mailbox, self.patience = line, membership, mailbox, patience
        self.last = last
        line.bound(possible.largest(row_bytes))
        self.me = membership.me
        self.edges = edges
        self.desk = Desk(line, membership)
        self.news, self.clock, self.changed = self.desk.news, self.desk.clock, self.desk.changed
        self.streams = Streams(self.desk, mailbox, edges=edges, row_bytes=row_bytes, chunk=chunk, deliver=self._deliver)
        self.presence = Presence(self.desk, self)
        self.books = Books(self.me.peer)
        self.adding: Adding | None = None
        self.doubts = Doubts(period=PULSE, patience=patience)
        self.waiting = False
        self.durable: Callable[[], Awaitable[None]] = _nothing
        self.first: int | None = None
        self.whereabouts = Whereabouts()
        self._heeded: set[str] = set()  # whose accounts come
        self._loops: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------ entering and leaving

    async def enter(self, tasks: asyncio.TaskGroup) -> None:
        """Subscribe, make sure the name is free, and only then say hello."""
        self.desk.tasks = tasks
        me, around = self.me.peer, sorted(self.membership.neighbours)
        self._heeded.update(around if self.books.kept else [])
        accounts = [f"{peer}/account" for peer in sorted(self._heeded)]
        states = [BOARD] if self.membership.names else [f"{peer}/state" for peer in (me, *around)]
        self._loops.append(tasks.create_task(self._read(), name="reader"))
        await self.line.listen(f"{me}/in/+", *states, *accounts, *self.streams.places)
        size = min(self.streams.row_bytes, self.streams.chunk + HEAD, self.line.channel.limit)  # of what is to pass
        away = self.line.channel.away  # before the hello: what is planted with it may be published while it is said
        await self.presence.enter(size=size, again=PULSE)
        self._loops.append(tasks.create_task(self._beat(away), name="pulse"))

    async def gather(self, *, quorum: float, within: float) -> None:
        """Wait for the neighbours.

        Raises
        ------
        PeerError
            If fewer than the quorum came in time.
        """
        deadline = self.clock() + within
        longer = deadline + within  # those that go on from a checkpoint begin at their deadline, and then say where
        membership = self.membership
        while not self._gathered():
            if self.clock() < deadline:
                await self.changed(by=deadline)
            elif self._untold() and membership.complete(quorum=quorum) and self.clock() < longer:
                await self.changed(by=longer)
            elif self.whereabouts.running or membership.complete(quorum=quorum):
                break
            else:
                raise missing(membership, within=within)

    def _gathered(self) -> bool:
        """Whether all have come whom there is reason to wait for."""
        membership, whereabouts = self.membership, self.whereabouts
        if any(self.me.rounds) and membership.over:
            return True
        if not self.presence.acquainted or membership.greeted & membership.neighbours > membership.present:
            return False
        if whereabouts.running:  # who is not there now comes late, too, as do those who gather like us
            here = self.streams.senders & membership.present
            return here <= whereabouts.places.keys() | whereabouts.gathering
        return not (membership.absent or membership.silent or self._untold())

    def _untold(self) -> set[str]:
        """Who may be ahead of one that has nothing to go on from, and has not said where it is."""
        here = self.streams.senders & self.membership.present
        resumed = {peer for peer in here if any(self.membership.up[peer].rounds)}  # with more than the common start
        return set() if self.me.rounds else resumed - self.whereabouts.places.keys()

    def begin(self, first: int) -> None:
        """Take part from this round on."""
        self.membership.begun = True
        self.first = first
        self.mailbox.open((first, 0), ())
        self.heal()
        self._pulse()

    async def leave(self, *, done: bool = True) -> None:
        """Wait until what was sent has arrived, and say goodbye, with all rounds played or not."""
        deadline = self.clock() + self.patience
        while not self._idle() and self.clock() < deadline:
            await self.changed(by=deadline)  # the heartbeat asks again
        await self.desk.posted()  # a goodbye is the last word
        await self.line.leave(done=done, kept=not done and bool(self.membership.names))  # if others go around us

    def _idle(self) -> bool:
        """Whether nobody waits for anything of ours any more."""
        awaited = set() if self.adding is None else self.adding.giving.awaited & self.membership.present
        return not awaited and self.streams.idle

    def close(self) -> None:
        """End the reader and the heartbeat."""
        for task in self._loops:
            task.cancel()

    # ------------------------------------------------------------------ neighbours that come and go

    def join(self, peer: str) -> None:
        """Open the streams to and from a neighbour that lives, and tell it how far it may go."""
        hello = self.membership.up[peer]
        self.mailbox.know(peer)
        self.books.begin(peer, life=hello.incarnation, key=hello.key, epoch=self.membership.epoch(peer))
        self.streams.open(hello)
        if not self.membership.begun or peer not in self.streams.senders:
            self.whereabouts.suppose(peer)
        self.streams.grant()
        self._heed(peer)
        if self.membership.begun and peer in self.edges.neighbours:  # it comes late
            self.streams.again()
            self._pulse()

    def heal(self) -> None:
        """Take part in the graph of those who are there, by the last signed word of each."""
        before, places = self.edges.senders, set(self.streams.places)
        if not self.edges.see(self.membership.view):
            return
        now = self.edges.senders
        self.membership.neighbours |= self.edges.neighbours
        self.streams.narrow()
        for peer in sorted(before ^ now):
            self._forget(peer)
        self.whereabouts.rewire(before, now)
        for peer in sorted((before - now) & self.membership.present):
            self.whereabouts.suppose(peer)
        for peer in sorted(self.edges.neighbours & self.membership.present):
            self.streams.open(self.membership.up[peer])
        self.desk.listen(set(self.streams.places) - places)
        self.desk.ignore(places - set(self.streams.places))
        self.presence.approach()
        self.streams.grant()
        self._pulse()
        self.news.tell()

    def _heed(self, peer: str) -> None:
        """Hear the accounts of somebody with whom rows may be exchanged, now that we can read each other."""
        if self.books.healing and peer not in self._heeded:
            self._heeded.add(peer)
            self.desk.listen({f"{peer}/account"})

    def turned(self) -> None:
        """Undo in books that go on from a checkpoint what was exchanged with lives that have ended since."""
        for peer in self.whereabouts.places:
            self.books.revive(peer, self.whereabouts.entered[peer])

    def renew(self, peer: str) -> None:
        """Make room for a neighbour's next life."""
        self.streams.forget(peer)
        self.mailbox.forget(peer)
        if self.adding is not None:
            self.adding.getting.forget(peer)
        self._forget(peer)

    def _forget(self, peer: str) -> None:
        """Know nothing any more of how a neighbour does."""
        self.whereabouts.forget(peer)
        self.doubts.forget(peer)

    def part(self, peer: str) -> None:
        """Wait no longer for a neighbour that went."""
        self.streams.drop(peer)

    def back(self, peer: str) -> None:
        """Go on with a neighbour that was lost: it still knows all that it knew."""
        self.streams.resume(peer)

    def expects(self, peer: str, round: int) -> bool:
        """Whether a neighbour's rows of a round will come."""
        if peer in self.membership.returning:
            return True  # until it says where it goes on
        return peer in self.membership.present and self.whereabouts.expects(peer, round)

    # ------------------------------------------------------------------ hearing

    async def _read(self) -> None:
        async for sender, message, state in self.line.heard():
            try:
                if isinstance(message, DecodeError):
                    raise message
                await self._dispatch(sender, message, state=state)
            except DecodeError as error:
                if state and sender in self.membership.absent:  # told if nothing better comes
                    self.membership.refused[sender] = f'"{sender}": {error}'
                self.desk.refuse(sender, "not authentic" if isinstance(error, AuthenticityError) else "not a message")

    async def _dispatch(self, sender: str, message: Message, *, state: bool) -> None:
        streams, present = self.streams, sender in self.membership.present
        if not isinstance(message, Plain | Chunk):  # which the broker can repeat
            self._lives(sender, beat=isinstance(message, Pulse))
        match message:
            case Hello() if state and message.peer == sender:
                self.presence.heard(message)
            case Claim() if sender == self.me.peer:
                await self.presence.claimed(message)
            case Key() if self.line.envelope is not None and sender in self.membership.greeted:
                self.presence.met(sender, message)
            case Chunk() if (sender, message.phase) in streams.inboxes:
                await self._take(sender, message)
            case Ack() if sender in self.membership.up and message.phase < len(streams.outboxes):
                streams.acknowledged(sender, message, present=present)
            case Pulse() if (sender, message.phase) in streams.inboxes:
                await self._heard_pulse(sender, message)
            case Account() if present:
                self._told(sender, message)
            case _ if isinstance(message, ForOne) and self.adding is not None and present:
                await self._add(sender, message, self.adding)
            case _:
                self.desk.refuse(sender, f"unexpected {type(message).__name__}")

    async def _take(self, sender: str, chunk: Chunk) -> None:
        if await self.streams.take(sender, chunk):  # the broker can repeat those that came before
            self._lives(sender, beat=False)

    def _lives(self, sender: str, *, beat: bool) -> None:
        """Note that something of a neighbour's present life came; only of whom we hear, heartbeats come."""
        if sender in self.streams.senders and self.doubts.hear(sender, now=self.clock(), beat=beat):
            self.news.tell()

    async def _deliver(self, sender: str, message: memoryview) -> None:
        trailer, largest = self.streams.trailers[sender], self.streams.row_bytes
        try:
            if len(message) > SLOW:
                read = partial(read_row, message, trailer=trailer, largest=largest)
                head, row, said = await asyncio.to_thread(read)
            else:
                head, row, said = read_row(message, trailer=trailer, largest=largest)
            possible.playable(head.round, last=self.last)
        except DecodeError:
            self.desk.refuse(sender, "not a row")
            return
        verdict = self.mailbox.deliver(sender, head, row, said=said if self.line.identity else None)
        late = verdict == "late" and self.books.late(sender, Delivery(head, row))
        if verdict == "kept":
            self.doubts.pace.came(sender, head.round, now=self.clock())
        if verdict != "kept" and not late:
            self.desk.refuse(sender, verdict)
        if verdict == "equivocation":
            self._exclude(sender)
        self.news.tell()

    def _exclude(self, sender: str) -> None:
        """Have nothing to do any more with who has said two different things."""
        self.membership.exclude(sender)
        self.streams.close(sender)
        self.streams.drop(sender)

    async def _heard_pulse(self, sender: str, pulse: Pulse) -> None:
        if pulse.incarnation != self.streams.inboxes[sender, pulse.phase].incarnation:
            return
        possible.heartbeat(pulse, last=self.last)
        self.presence.lives(sender)
        self.whereabouts.hear(sender, pulse)
        if pulse.first is not None:
            self.books.revive(sender, pulse.first)
            self.membership.returning.discard(sender)
        if pulse.waiting and (pulse.round, pulse.step) < self.mailbox.exchange:
            self.doubts.waits(sender, now=self.clock())
        await self.streams.reach(sender, pulse)
        self.news.tell()

    def _told(self, sender: str, account: Account) -> None:
        if account.incarnation != self.membership.up[sender].incarnation:
            raise DecodeError("expected an account of the sender's present life, got one of another")
        possible.account(account, last=self.last)
        self.books.hear(sender, account, life=self.me.incarnation, key=self.me.key)
        self.news.tell()

    async def _add(self, sender: str, message: ForOne, adding: Adding) -> None:
        self.streams.progress[sender] = self.clock()
        try:
            answers = await adding.hear(sender, message)
        except DecodeError:
            self.desk.refuse(sender, f"unexpected {type(message).__name__}")
            if sender in adding.giving.proofs:
                self._exclude(sender)
                self.news.tell()
            return
        for peer, answer in answers:
            self.desk.post(f"in/{peer}", answer)
        self.news.tell()

    # ------------------------------------------------------------------ exchanges

    def open(self, exchange: tuple[int, int], order: Sequence[str]) -> None:
        """Begin to wait for the rows of an exchange."""
        self.mailbox.open(exchange, order)
        self.streams.grant()

    async def send(self, parts: Sequence[bytes | memoryview], *, phase: int) -> None:
        """Send a row to all who listen in this phase; returns when the one before is on its way."""
        streams = self.streams
        await self.durable()
        while streams.busy(phase):
            behind = [each for each in streams.outboxes[phase].lagging() if self.left_behind(each)]
            for listener in behind:
                streams.give_up(phase, listener)
            if not behind:
                await self.news.wait()
        streams.put(parts, phase=phase)

    async def tell(self) -> None:
        """Tell all partners what is applied of their rows and masks."""
        if self.books.kept:
            account = self.books.account(self.me.incarnation)
            await self.durable()
            await self.line.tell(account)

    def deadline(self, sender: str, *, since: float) -> float:
        """When to go on without a neighbour that one has waited for since then, on the link's clock."""
        progress = self.streams.progress.get(sender, since)
        return self.doubts.deadline(sender, since=since, progress=progress, peers=self.edges.peers)

    def left_behind(self, peer: str) -> bool:
        """Whether a neighbour is too slow to be waited for; where rows come one at a time, nobody is."""
        place, _ = self.whereabouts.places.get(peer, (0, 0))
        return not self.mailbox.large and self.doubts.left_behind(peer, place=place)

    def onward(self, *, apart: int, last: int) -> int:
        """The round to play after this one; the neighbours are told where it is not the next.

        Parameters
        ----------
        apart
            Rounds that neighbours may be ahead although they wait for us.
        last
            Of the run, which everybody plays.
        """
        places = self.whereabouts.reached(self.membership.present & self.streams.senders)
        here, _ = self.mailbox.exchange
        due = min(last, self.doubts.pace.next(places=places, apart=apart))
        if due > here + 1:
            self.begin(due)
            self.streams.grant()
        return due

    async def vanished(self, missed: Collection[str]) -> frozenset[str]:
        """Neighbours that are gone without a goodbye, or that were missed at last and now give no sign of life."""
        start = self.clock()

        def silent() -> set[str]:
            missing = self.membership.greeted & {*missed}
            return {peer for peer in missing if self.doubts.detector.silent(peer, since=start)}

        while silent() - self.doubts.detector.suspected(now=self.clock()) and self.clock() < start + self.patience:
            await self.changed(by=min(self.clock() + PULSE, start + self.patience))
        return self.membership.vanished | silent()

    # ------------------------------------------------------------------ heartbeats

    async def _beat(self, away: float) -> None:
        before = self.clock()
        while True:
            await asyncio.sleep(PULSE)
            if self.doubts.look(before=before, now=(before := self.clock())):
                self.news.tell()
            for place, pulse in self.streams.pulses(waiting=self.waiting, first=self.first):
                await self.line.publish(place, pulse)  # waits while there is no connection, rather than pile up
            self.presence.bury()
            if self.line.channel.away > away:  # others may have heard our will, whether or not we have
                away = self.line.channel.away
                await self.line.come_back()
            await self.presence.introduce()
            await self.presence.look()
            self.streams.sweep(patience=self.patience, suspected=self.doubts.suspected)

    def _pulse(self) -> None:
        """Tell all listeners without waiting for it."""
        for place, pulse in self.streams.pulses(waiting=self.waiting, first=self.first):
            self.desk.post(place, pulse)
