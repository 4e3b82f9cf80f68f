"""A peer's link to its neighbours: carries out what the streams, the mailbox and the membership decide."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from p2pfl.errors import DecodeError, PeerError, TransportError
from p2pfl.peer.allowance import Allowance
from p2pfl.peer.books import Books
from p2pfl.peer.checkpoint import REACH
from p2pfl.peer.detector import Detector
from p2pfl.peer.line import Line
from p2pfl.peer.mailbox import AHEAD, Delivery, Mailbox
from p2pfl.peer.membership import Membership
from p2pfl.peer.pace import Pace
from p2pfl.topology import Schedule, Topology
from p2pfl.wire.envelope import Envelope
from p2pfl.wire.messages import (
    Account,
    Ack,
    Agreement,
    Agreements,
    Chunk,
    Claim,
    ForOne,
    Hello,
    Key,
    Message,
    Pulse,
    RollCall,
    Term,
    Unmasking,
)
from p2pfl.wire.rows import HEAD, read_row
from p2pfl.wire.stream import Inbox, Outbox, largest_window
from p2pfl.wire.trailer import Trailer

if TYPE_CHECKING:
    from p2pfl.peer.sums import Adding  # which waits by a link

PULSE = 1.0
"""Seconds between heartbeats."""

ECHO = 30.0
"""Seconds within which the broker must return our own message: more than the keepalive, by which a connection ends."""

TICK = 0.01
"""Seconds between two looks at a clock that stands still."""

PROOF = 2.0
"""Seconds within which a peer of the same name must answer a claim."""

SLOW = 2**20
"""Bytes of a row from which it is checked in a thread."""


class News:
    """Wakes everybody who waits for something to change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Something changed."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Until something changes."""
        await self._event.wait()


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
    topology
        Who hears whom; each phase of a schedule has streams of its own, so that a row reaches only
        those who listen in that exchange.
    row_bytes
        Upper bound of a row's message.
    chunk
        Bytes in a publish.
    patience
        Seconds without progress after which a listener is no longer waited for.

    Attributes
    ----------
    books
        What is applied of partners' rows and masks; they are told.
    durable
        Awaited before anything is said that must not be forgotten.
    first
        The first round that this life takes part in; ``None`` until it is known.
    entered, places
        By neighbour: the same of its present life, and where it is.
    adding
        What is added up in secret; nothing by default.
    chunk
        Bytes of data in a publish.
    suspected
        Neighbours that are silent for too long, as a :class:`~p2pfl.peer.detector.Detector` says.
    doubting
        Whether anybody may be suspected or left behind; not while all must hear all.
    pace
        Decides for how long slow neighbours are waited for.
    """

    def __init__(
        self,
        line: Line,
        *,
        membership: Membership,
        mailbox: Mailbox,
        topology: Topology | Schedule,
        row_bytes: int,
        chunk: int,
        patience: float,
    ) -> None:
        self.line = line
        line.admit = self._admit
        self._allowance = Allowance()
        self.books = Books(membership.me.peer)
        self.adding: Adding | None = None
        self.trailers: dict[str, Trailer] = {}  # by neighbour: how its rows end
        self.membership = membership
        self.mailbox = mailbox
        self.topology = topology
        self.row_bytes = row_bytes
        self.patience = patience
        self.me = membership.me
        self.news = News()
        self.refused: Counter[str] = Counter()
        self.most_held = 0
        self.waiting = False
        self.progress: dict[str, float] = {}  # by neighbour: when its last chunk or acknowledgement came
        self._keys: dict[str, bytes] = {}  # by neighbour: of its last life
        self.detector = Detector(period=PULSE)
        self.suspected: frozenset[str] = frozenset()
        self.doubting = False
        self.pace = Pace()
        self.patient: dict[str, float] = {}  # by neighbour: when it last said that it waits itself
        self.chunk = size = max(256, min(chunk, line.channel.limit) - HEAD)
        life, end = self.me.incarnation, line.trailer(self.me)
        self.outboxes = [Outbox(life, phase=phase, chunk=size, trailer=end) for phase in range(topology.period)]
        senders = len(topology.hears(self.me.peer))
        self.window = largest_window(senders * topology.period, chunk=size)
        self.inboxes: dict[tuple[str, int], Inbox] = {}
        mailbox.large = row_bytes > self.window * size
        mailbox.period = topology.period
        mailbox.most = AHEAD + topology.period * self.window
        self.durable: Callable[[], Awaitable[None]] = _nothing
        self.first: int | None = None
        self.entered: dict[str, int] = {}
        self.places: dict[str, tuple[int, int]] = {}
        self._recent: list[tuple[tuple[int, int], int, Sequence[bytes | memoryview]]] = []  # of the present round
        self._tasks: asyncio.TaskGroup | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._posts: set[asyncio.Task[None]] = set()  # that have not been published yet
        self._again: set[str] = set()  # who has come back, and has not said yet where it goes on
        self._echo = asyncio.Event()
        self._doubts: dict[str, tuple[float, Hello]] = {}  # by neighbour: its will, and when it came
        self._namesake: Hello | None = None
        self._said = False
        self._quarrel: PeerError | None = None

    # ------------------------------------------------------------------ time

    def clock(self) -> float:
        """Seconds in which we could hear: what neighbours do while we have no connection is not their fault."""
        return asyncio.get_running_loop().time() - self.line.channel.away

    async def changed(self, *, by: float) -> None:
        """Until something changes, or a time of the clock, which may stand still."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(by - self.clock(), TICK)):
                await self.news.wait()

    # ------------------------------------------------------------------ coming and going

    async def enter(self, tasks: asyncio.TaskGroup) -> None:
        """Subscribe, make sure the name is free, and only then say hello."""
        self._tasks = tasks
        me = self.me.peer
        hears = [
            f"{sender}/pub/{phase}"
            for phase in range(self.topology.period)
            for sender in self.topology.at(phase).hears(me)
        ]
        states = [f"{peer}/state" for peer in (me, *sorted(self.membership.neighbours))]
        if self.books.kept:
            states += [f"{peer}/account" for peer in sorted(self.membership.neighbours)]
        self._loops.append(tasks.create_task(self._read(), name="reader"))
        await self.line.listen(f"{me}/in/+", *states, *hears)
        await self._claim()
        await self.line.say("up")
        self._said = True
        if self._quarrel is not None:  # told after the hello, so that the other end can tell it, too
            raise self._quarrel
        self._loops.append(tasks.create_task(self._beat(), name="pulse"))

    async def _claim(self) -> None:
        """Ask whoever bears our name to speak up; the echo tells that retained messages have come."""
        size = min(self.row_bytes, self.outboxes[0].chunk + HEAD, self.line.channel.limit)  # of what is to pass
        deadline: float | None = None
        while not self._echo.is_set():
            if deadline is not None and self.clock() >= deadline:
                raise TransportError(
                    f"expected the broker to return our own message of {size} bytes within {ECHO:g} s, got nothing:"
                    " lower transport.chunk, or raise what it takes (message_size_limit of mosquitto)"
                )
            began = self.clock()
            await self.line.claim(size=size)
            deadline = deadline or self.clock() + ECHO
            with contextlib.suppress(TimeoutError):  # brokers acknowledge and then drop, or restart: claim again
                async with asyncio.timeout(min(PULSE + 2 * (self.clock() - began), ECHO / 4)):
                    await self._echo.wait()
        if self._namesake is not None and self._namesake.status == "up":
            await asyncio.sleep(PROOF)  # the reader raises if it answers

    async def gather(self, *, quorum: float, within: float) -> None:
        """Wait for the neighbours.

        Raises
        ------
        PeerError
            If fewer than the quorum came in time.
        """
        deadline = self.clock() + within
        while not self._gathered():
            if self.clock() < deadline:
                await self.changed(by=deadline)
            elif self.running or self.membership.complete(quorum=quorum):
                break
            else:
                why = "".join(f"; {sentence}" for sentence in self.membership.refused.values())
                raise PeerError(
                    f"expected neighbours {', '.join(sorted(self.membership.neighbours))} within {within:g} s, "
                    f"{', '.join(self.membership.absent)} did not come: start them, or lower transport.quorum{why}"
                )

    @property
    def running(self) -> bool:
        """Whether a neighbour goes on without us, or did."""
        return any(place > (self.entered[peer], 0) for peer, place in self.places.items())

    def _gathered(self) -> bool:
        """Whether all have come whom there is reason to wait for."""
        membership = self.membership
        if not self._acquainted() or membership.greeted > membership.present:
            return False
        told = {peer for peer, _ in self.inboxes} & membership.present <= self.places.keys()
        if self.running:  # who is not there now comes late, too
            return told
        resumed = any(membership.up[peer].rounds for peer in membership.present)
        return not membership.absent and (told or bool(self.me.rounds) or not resumed)

    def begin(self, first: int) -> None:
        """Take part from this round on."""
        self.membership.begun = True
        self.first = first
        self.mailbox.open((first, 0), ())
        self._pulse()

    def expects(self, peer: str, round: int) -> bool:
        """Whether a neighbour's rows of a round will come."""
        if peer in self.membership.returning:
            return True  # until it says where it goes on
        return peer in self.membership.present and self.entered.get(peer, round + 1) <= round

    def _acquainted(self) -> bool:
        """Whether all who are there can read us, and we them."""
        return self.line.envelope is None or self.line.envelope.settled(self.membership.present)

    async def leave(self) -> None:
        """Wait until what was sent has arrived, say goodbye, clear what was retained."""
        deadline = self.clock() + self.patience
        while not self._idle() and self.clock() < deadline:
            await self.changed(by=deadline)  # the heartbeat asks again
        if self._posts:  # a goodbye is the last word
            await asyncio.wait(self._posts)
        await self.line.say("left")

    def _idle(self) -> bool:
        """Whether nobody waits for anything of ours any more."""
        awaited = set() if self.adding is None else self.adding.giving.awaited & self.membership.present
        return not awaited and all(outbox.idle for outbox in self.outboxes)

    def close(self) -> None:
        """End the reader and the heartbeat."""
        for task in self._loops:
            task.cancel()

    # ------------------------------------------------------------------ sending

    async def send(self, parts: Sequence[bytes | memoryview], *, phase: int) -> None:
        """Send a row to all who listen in this phase; returns when the one before is on its way.

        A large row waits until the one before has arrived everywhere and its memory is free.
        """
        outbox, exchange = self.outboxes[phase], self.mailbox.exchange
        await self.durable()
        if not self.mailbox.large:
            self._recent = [each for each in self._recent if each[0][0] == exchange[0]]
            self._recent.append((exchange, phase, parts))
            if len(self._recent) > REACH + 1:  # not all of the round can be said again
                self._recent.clear()
        while self.busy(phase):
            behind = [each for each in outbox.lagging() if self.left_behind(each)]
            for listener in behind:
                outbox.drop(listener)
            if behind:
                self._pump(outbox)
            else:
                await self.news.wait()
        outbox.put(parts)
        self._pump(outbox)

    def busy(self, phase: int) -> bool:
        """Whether a row would have to wait for the one before."""
        outbox = self.outboxes[phase]
        return bool(outbox.unsent) or (self.mailbox.large and not outbox.idle)

    def _pump(self, outbox: Outbox) -> None:
        for chunk in outbox.ready():
            self._post(f"pub/{outbox.phase}", chunk)

    def post(self, place: str, message: Message) -> None:
        """Publish without waiting for it."""
        self._post(place, message)

    def _post(self, place: str, message: Message) -> None:
        if self._tasks is not None:
            task = self._tasks.create_task(self.line.publish(place, message))
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    # ------------------------------------------------------------------ receiving

    async def _read(self) -> None:
        async for sender, message, state in self.line.heard():
            try:
                if isinstance(message, DecodeError):
                    raise message
                await self._dispatch(sender, message, state=state)
            except DecodeError as error:
                if state and sender in self.membership.absent:  # told if nothing better comes
                    self.membership.refused[sender] = f'"{sender}": {error}'
                self._refuse(sender, "not a message")

    async def _dispatch(self, sender: str, message: Message, *, state: bool) -> None:
        if not isinstance(message, Hello | Claim | Key):  # which the broker can repeat
            self._lives(sender, beat=isinstance(message, Pulse))
        match message:
            case Hello() if state and message.peer == sender:
                self._hello(message)
            case Claim() if sender == self.me.peer:
                await self._claimed(message)
            case Key() if self.line.envelope is not None and sender in self.membership.greeted:
                self._met(sender, message, self.line.envelope)
            case Chunk() if (sender, message.phase) in self.inboxes:
                await self._chunk(sender, message)
            case Ack() if sender in self.membership.up and message.phase < len(self.outboxes):
                self._acknowledged(sender, message)
            case Pulse() if (sender, message.phase) in self.inboxes:
                await self._heard_pulse(sender, message)
            case Account() if sender in self.membership.present:
                self._told(sender, message)
            case Term() | RollCall() | Agreement() | Agreements() | Unmasking() if (
                self.adding is not None and sender in self.membership.present
            ):
                await self._add(sender, message, self.adding)
            case _:
                self._refuse(sender, f"unexpected {type(message).__name__}")

    async def _claimed(self, claim: Claim) -> None:
        if claim.incarnation == self.me.incarnation:
            self._echo.set()
        elif claim.incarnation > self.me.incarnation:
            await self.line.say("up", answers=claim.key)  # the newcomer reads it and leaves

    def _met(self, sender: str, key: Key, envelope: Envelope) -> None:
        if envelope.hear(sender, key):
            self._post(f"in/{sender}", envelope.handover(sender))
        if sender not in self.membership.proven:  # no earlier life could have wrapped it for us
            try:
                self._join(sender)
            except PeerError:
                if not self.membership.begun:
                    raise
                self._refuse(sender, "another experiment")  # too late to stop for
                return
        self.news.tell()

    def _lives(self, sender: str, *, beat: bool) -> None:
        """Note that something of a neighbour's present life came; only of whom we hear, heartbeats come."""
        if not any(peer == sender for peer, _ in self.inboxes):
            return
        self.detector.hear(sender, now=self.clock(), beat=beat)
        if sender in self.suspected:
            self.suspected -= {sender}
            self.news.tell()

    def _admit(self, sender: str) -> bool:
        """Whether a message is read at all: of each neighbour so many, and of all strangers together."""
        admitted = self._allowance.take(self._known(sender), now=asyncio.get_running_loop().time())
        if not admitted:
            self._refuse(sender, "too much")
        return admitted

    def _known(self, sender: str) -> str:
        """A name that no stranger can multiply."""
        return sender if sender in {self.me.peer, *self.membership.neighbours} else "stranger"

    def _refuse(self, sender: str, why: str) -> None:
        """Count what was not used."""
        self.refused[f"{self._known(sender)}: {why}"] += 1

    def _hello(self, hello: Hello) -> None:
        if not self.membership.trusts(hello):
            self._refuse(hello.peer, "not trusted")
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

    def _doubted(self, hello: Hello) -> bool:
        """Whether a peer that is said to be dead may not be: the broker says so of all when it ends in order."""
        known = self.membership.up.get(hello.peer)
        if hello.status == "up":
            if known is None or (hello.incarnation, hello.turn) > (known.incarnation, known.turn):
                self._doubts.pop(hello.peer, None)
            return False
        if hello.status == "left" or known is None:
            return False
        present = hello.peer in self.membership.present
        if not self.line.channel.grace or not present or hello.incarnation != known.incarnation:
            return False
        self._doubts.setdefault(hello.peer, (self.clock(), hello))
        return True

    def _bury(self) -> None:
        """Believe of those that have not come back that they are dead."""
        for peer, (since, will) in tuple(self._doubts.items()):
            if self.clock() - since >= self.line.channel.grace:
                del self._doubts[peer]
                if self.membership.hear(will):
                    self._follow(will, again=True)

    def _follow(self, hello: Hello, *, again: bool) -> None:
        """Do what follows from it that a neighbour came, went or, ``again`` in the same life, came back."""
        if hello.peer not in self.membership.greeted:
            self._part(hello.peer)
        elif again and hello.peer in self.trailers:
            self._back(hello.peer)
        else:
            self._greet(hello)
        self.news.tell()

    def _mourned(self, hello: Hello) -> None:
        """Say that we live, where the broker takes us for dead or noticed only now that an earlier life has ended."""
        if hello.incarnation <= self.me.incarnation and self._tasks is not None:
            ours = hello.incarnation == self.me.incarnation
            self._tasks.create_task(self.line.come_back() if ours else self.line.say("up"))

    def _greet(self, hello: Hello) -> None:
        """Begin with a neighbour that came, or came again."""
        if hello.peer in self.trailers:
            self._part(hello.peer)
            self._renew(hello.peer)
        if self.line.envelope is None:
            self._join(hello.peer)
        else:
            self.line.envelope.meet(hello)
            self._post(f"in/{hello.peer}", self.line.envelope.handover(hello.peer))

    def _renew(self, peer: str) -> None:
        """Make room for a neighbour's next life."""
        self.inboxes = {place: inbox for place, inbox in self.inboxes.items() if place[0] != peer}
        self.mailbox.forget(peer)
        self._again.add(peer)
        for known in (self.trailers, self.entered, self.places, self.progress, self.patient):
            known.pop(peer, None)
        self.detector.forget(peer)
        self.suspected -= {peer}

    def _part(self, peer: str) -> None:
        """Wait no longer for a neighbour that went."""
        for outbox in self.outboxes:
            outbox.drop(peer)
            self._pump(outbox)

    def _back(self, peer: str) -> None:
        """Go on with a neighbour that was lost: it still knows all that it knew."""
        self.progress[peer] = self.clock()
        for outbox in self.outboxes:
            if peer in self.topology.at(outbox.phase).heard_by(self.me.peer):
                outbox.listen(peer)

    def _exclude(self, peer: str) -> None:
        """Have nothing to do any more with a neighbour that contradicts itself."""
        self.membership.exclude(peer)
        self.inboxes = {place: inbox for place, inbox in self.inboxes.items() if place[0] != peer}
        self._part(peer)

    def _join(self, peer: str) -> None:
        """Open the streams to and from a neighbour that lives, and tell it how far it may go."""
        self.membership.prove(peer)
        hello = self.membership.up[peer]
        self.trailers[hello.peer] = self.line.trailer(hello)
        self.mailbox.know(hello.peer)
        anew = self._keys.get(hello.peer, hello.key) != hello.key
        self._keys[hello.peer] = hello.key
        self.books.begin(hello.peer, anew=anew)
        if not self.membership.begun:
            self.entered[hello.peer] = 0  # as far as is known
        self.progress[hello.peer] = self.clock()
        for outbox in self.outboxes:
            topology = self.topology.at(outbox.phase)
            if hello.peer in topology.heard_by(self.me.peer):
                outbox.listen(hello.peer)
            if hello.peer in topology.hears(self.me.peer):
                inbox = Inbox(hello.incarnation, self.window, self.row_bytes, phase=outbox.phase, widest=outbox.chunk)
                self.inboxes[hello.peer, outbox.phase] = inbox
        if not any(place[0] == peer for place in self.inboxes):
            self.entered[peer] = 0  # no pulse of it will tell
        self.grant()
        if self.membership.begun:
            self._catch_up()

    def _catch_up(self) -> None:
        """Say again what was said in this round, if it is not much, and where we are: somebody comes late."""
        for outbox in self.outboxes:
            if self._recent and not self._recent[0][0][1]:
                outbox.again([parts for _, phase, parts in self._recent if phase == outbox.phase])
                self._pump(outbox)
        self._pulse()

    async def _chunk(self, sender: str, chunk: Chunk) -> None:
        inbox = self.inboxes[sender, chunk.phase]
        before = inbox.next
        try:
            messages = inbox.take(chunk)
        except DecodeError:
            self._refuse(sender, "not a row")
            messages = inbox.discard(chunk)
        else:
            if inbox.next > before or inbox.held:
                self.progress[sender] = self.clock()
        self.most_held = max(self.most_held, sum(inbox.held for inbox in self.inboxes.values()))
        for message in messages:
            await self._deliver(sender, message)
        if (sender, chunk.phase) not in self.inboxes:
            return  # excluded
        if self.mailbox.may_send(sender):
            inbox.grant()
        if inbox.due or (messages and self.mailbox.large):  # a large row is let go as soon as all have it
            self._post(f"in/{sender}", inbox.ack())

    async def _deliver(self, sender: str, message: memoryview) -> None:
        trailer = self.trailers[sender]
        try:
            if len(message) > SLOW:
                read = partial(read_row, message, trailer=trailer, largest=self.row_bytes)
                head, row, said = await asyncio.to_thread(read)
            else:
                head, row, said = read_row(message, trailer=trailer, largest=self.row_bytes)
        except DecodeError:
            self._refuse(sender, "not a row")
            return
        verdict = self.mailbox.deliver(sender, head, row, said=said if self.line.identity else None)
        late = verdict == "late" and self.books.late(sender, Delivery(head, row))
        if verdict == "kept":
            self.pace.came(sender, head.round, now=self.clock())
        if verdict != "kept" and not late:
            self._refuse(sender, verdict)
        if verdict == "equivocation":
            self._exclude(sender)
        self.news.tell()

    async def tell(self) -> None:
        """Tell all partners what is applied of their rows and masks."""
        if self.books.kept:
            account = self.books.account(self.me.incarnation)
            await self.durable()
            await self.line.tell(account)

    def _told(self, sender: str, account: Account) -> None:
        if not self.line.told(self.membership.up[sender], account):
            raise DecodeError("expected an account in the sender's own words, got another")
        self.books.hear(sender, account)
        self.news.tell()

    async def _add(self, sender: str, message: ForOne, adding: Adding) -> None:
        self.progress[sender] = self.clock()
        try:
            answers = await adding.hear(sender, message)
        except DecodeError:
            self._refuse(sender, f"unexpected {type(message).__name__}")
            return
        for peer, answer in answers:
            self._post(f"in/{peer}", answer)
        self.news.tell()

    def _acknowledged(self, listener: str, ack: Ack) -> None:
        outbox = self.outboxes[ack.phase]
        if ack.incarnation != self.me.incarnation:
            return  # of another's stream, and led here
        self.progress[listener] = self.clock()
        if listener in self.membership.present and listener in self.topology.at(ack.phase).heard_by(self.me.peer):
            outbox.listen(listener)  # again, if it was given up: it lives
        for chunk in outbox.acknowledged(listener, ack):
            self._post(f"in/{listener}", chunk)
        self._pump(outbox)
        self.news.tell()

    async def _heard_pulse(self, sender: str, pulse: Pulse) -> None:
        inbox = self.inboxes[sender, pulse.phase]
        if pulse.incarnation != inbox.incarnation:
            return
        self._doubts.pop(sender, None)
        if self.membership.lives(sender):  # its hello, said once after it was lost, may be lost as well
            self._back(sender)
        if pulse.first is not None:
            if sender in self._again:
                self._again.discard(sender)
                self.books.revive(sender, pulse.first)
            self.entered[sender] = pulse.first
            self.places[sender] = max((pulse.round, pulse.step), self.places.get(sender, (0, 0)))
            self.membership.returning.discard(sender)
        if pulse.waiting and (pulse.round, pulse.step) < self.mailbox.exchange:
            self.patient[sender] = self.clock()
        given_up = inbox.next < pulse.tail  # the acknowledgement tells the sender that we live
        for message in inbox.skip(pulse.tail):
            await self._deliver(sender, message)
        if given_up or pulse.tail < pulse.head:
            self._post(f"in/{sender}", inbox.ack(head=pulse.head))
        self.news.tell()

    def grant(self) -> None:
        """Give credit to those who may send now."""
        for (sender, _), inbox in self.inboxes.items():
            if self.mailbox.may_send(sender):
                inbox.grant()
                if inbox.due:
                    self._post(f"in/{sender}", inbox.ack())

    # ------------------------------------------------------------------ exchanges

    def open(self, exchange: tuple[int, int], order: Sequence[str]) -> None:
        """Begin to wait for the rows of an exchange."""
        self.mailbox.open(exchange, order)
        self.grant()

    def deadline(self, sender: str, *, since: float) -> float:
        """When to go on without a neighbour that one has waited for since then, on the link's clock.

        A neighbour that waits itself is not slow: whoever it waits for is. One that is suspected is not waited for.
        """
        if sender in self.suspected:
            return since
        chain = since + self.patience * len(self.topology.peers)
        patient = min(chain, self.patient.get(sender, since))
        return max(since, patient, self.progress.get(sender, since)) + self.patience

    def left_behind(self, peer: str) -> bool:
        """Whether a neighbour is too slow to be waited for."""
        place, _ = self.places.get(peer, (0, 0))
        return self.doubting and not self.mailbox.large and self.pace.left_behind(peer, place=place)

    def onward(self, *, apart: int, last: int) -> int:
        """The round to play after this one; the neighbours are told where it is not the next.

        Parameters
        ----------
        apart
            Rounds that neighbours may be ahead although they wait for us.
        last
            Of the run, which everybody plays.
        """
        present = self.membership.present & self.places.keys()
        places = [self.places[peer][0] for peer in present if self.places[peer] > (self.entered[peer], 0)]
        here, _ = self.mailbox.exchange
        due = min(last, self.pace.next(places=places, apart=apart))
        if due > here + 1:
            self.begin(due)
            self.grant()
        return due

    # ------------------------------------------------------------------ heartbeats

    async def _beat(self) -> None:
        stuck: dict[tuple[int, str], float] = {}  # since when a listener has not had all that was sent
        away, before = self.line.channel.away, self.clock()
        while True:
            await asyncio.sleep(PULSE)
            self._suspect(before, before := self.clock())
            for place, pulse in self._pulses():
                await self.line.publish(place, pulse)  # waits while there is no connection, rather than pile up
            self._bury()
            if self.line.channel.away > away:  # others may have heard our will, whether or not we have
                away = self.line.channel.away
                await self.line.come_back()
            if self.line.envelope is not None:
                await self._introduce(self.line.envelope)
            now = self.clock()
            lagging = {(outbox.phase, listener) for outbox in self.outboxes for listener in outbox.lagging()}
            stuck = {key: stuck.get(key, now) for key in lagging}
            for (phase, listener), since in stuck.items():
                still = now - max(since, self.progress.get(listener, since))
                if still > self.patience or listener in self.suspected:
                    self.outboxes[phase].drop(listener)
                    self._pump(self.outboxes[phase])
                    self.news.tell()

    def trust(self) -> None:
        """From now on all must hear all: suspect nobody, and leave nobody behind."""
        self.doubting = False
        self.suspected = frozenset()

    def _suspect(self, before: float, now: float) -> None:
        """Look who is silent; while we stood still, or the broker took no heartbeat of ours, we heard nobody either."""
        self.detector.stand(max(0.0, now - before - 2 * PULSE), now=now)
        found = self.detector.suspected(now=now) if self.doubting else frozenset()
        if found != self.suspected:
            self.suspected = found
            self.news.tell()

    async def _introduce(self, envelope: Envelope) -> None:
        """Say again what a neighbour has not answered; of one that has not come, our hello may have been lost."""
        waiting = [peer for peer in sorted(self.membership.greeted) if envelope.meets(peer)]
        if waiting or (self.membership.absent and not self.membership.begun):
            await self.line.say("up")  # somebody may have missed, or overwritten, what the broker keeps
        for peer in waiting:
            self._post(f"in/{peer}", envelope.handover(peer))

    def _pulse(self) -> None:
        """Tell all listeners without waiting for it."""
        for place, pulse in self._pulses():
            self._post(place, pulse)

    def _pulses(self) -> Iterator[tuple[str, Pulse]]:
        """What tells all listeners how far the streams that they hear reach, and whether we wait ourselves."""
        round, step = self.mailbox.exchange
        current, reached = (round + step) % len(self.outboxes), set[str]()
        for outbox in sorted(self.outboxes, key=lambda each: each.idle and each.phase != current):
            listeners = self.topology.at(outbox.phase).heard_by(self.me.peer)
            if not outbox.idle or outbox.phase == current or not reached.issuperset(listeners):
                reached.update(listeners)
                pulse = Pulse(
                    self.me.incarnation,
                    outbox.phase,
                    outbox.tail,
                    outbox.head,
                    round,
                    step,
                    waiting=self.waiting,
                    first=self.first,
                )
                yield f"pub/{outbox.phase}", pulse
