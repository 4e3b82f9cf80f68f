"""Rows on their way: cut into chunks, sent again where they were lost, granted as memory allows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from p2pfl.errors import DecodeError
from p2pfl.peer.desk import Desk
from p2pfl.protocol.edges import Edges
from p2pfl.protocol.entering import REACH
from p2pfl.protocol.mailbox import AHEAD, Mailbox
from p2pfl.protocol.wire.messages import Ack, Chunk, Hello, Pulse
from p2pfl.protocol.wire.rows import HEAD
from p2pfl.protocol.wire.stream import Inbox, Outbox, largest_window
from p2pfl.protocol.wire.trailer import Trailer


class Streams:
    """One stream out for each phase of a schedule, one in for each neighbour heard in it.

    A row so reaches only those who listen in that exchange.

    Parameters
    ----------
    desk
        Says and counts.
    mailbox
        Tells who may send; it is told how much may wait.
    edges
        Whom we hear, and who hears us.
    row_bytes
        Upper bound of a row's message.
    chunk
        Bytes in a publish.
    deliver
        Takes what a neighbour has sent, once all of it is there.

    Attributes
    ----------
    outboxes, inboxes
        By phase; by neighbour and phase.
    chunk
        Bytes of data in a publish.
    window
        Chunks under way on a stream.
    trailers
        By neighbour whose streams were opened: how its rows end.
    progress
        By neighbour: when its last chunk or acknowledgement came.
    most_held
        Bytes of unfinished messages at most.
    """

    def __init__(
        self,
        desk: Desk,
        mailbox: Mailbox,
        *,
        edges: Edges,
        row_bytes: int,
        chunk: int,
        deliver: Callable[[str, memoryview], Awaitable[None]],
    ) -> None:
        self.desk, self.mailbox, self.edges, self.row_bytes = desk, mailbox, edges, row_bytes
        self.me, self.deliver = desk.me, deliver
        self.chunk = size = max(256, min(chunk, desk.line.channel.limit) - HEAD)
        life, end = self.me.incarnation, desk.line.trailer(self.me)
        self.outboxes = [Outbox(life, phase=phase, chunk=size, trailer=end) for phase in range(edges.period)]
        self.window = largest_window(len(edges.topology.hears(self.me.peer)) * edges.period, chunk=size)
        self.inboxes: dict[tuple[str, int], Inbox] = {}
        self.trailers: dict[str, Trailer] = {}
        self.progress: dict[str, float] = {}
        self.most_held = 0
        mailbox.large = row_bytes > self.window * size
        mailbox.period = edges.period
        mailbox.most = AHEAD + edges.period * self.window
        self._recent: list[tuple[tuple[int, int], int, Sequence[bytes | memoryview]]] = []  # of the present round
        self._stuck: dict[tuple[int, str], float] = {}  # since when a listener has not had all that was sent

    # ------------------------------------------------------------------ who hears whom

    @property
    def places(self) -> list[str]:
        """Where neighbours publish what is for us."""
        edges = self.edges
        return [f"{sender}/pub/{phase}" for phase in range(edges.period) for sender in edges.hears(phase)]

    @property
    def senders(self) -> set[str]:
        """Whose streams are open."""
        return {peer for peer, _ in self.inboxes}

    # ------------------------------------------------------------------ neighbours

    def open(self, hello: Hello) -> None:
        """Listen to a neighbour that lives, and speak to it."""
        peer = hello.peer
        self.trailers[peer] = self.desk.line.trailer(hello)
        self.resume(peer)
        for outbox in self.outboxes:
            if peer in self.edges.hears(outbox.phase):
                inbox = Inbox(hello.incarnation, self.window, self.row_bytes, phase=outbox.phase, widest=self.chunk)
                self.inboxes.setdefault((peer, outbox.phase), inbox)

    def narrow(self) -> None:
        """End the streams of edges that are none any more."""
        hears = [self.edges.hears(outbox.phase) for outbox in self.outboxes]
        self.inboxes = {place: inbox for place, inbox in self.inboxes.items() if place[0] in hears[place[1]]}
        for outbox in self.outboxes:
            for listener in sorted(outbox.listeners - {*self.edges.heard_by(outbox.phase)}):
                self.give_up(outbox.phase, listener)

    def resume(self, peer: str) -> None:
        """Go on with a neighbour that was lost: it still knows all that it knew."""
        self.progress[peer] = self.desk.clock()
        for outbox in self.outboxes:
            if peer in self.edges.heard_by(outbox.phase):
                outbox.listen(peer)

    def drop(self, peer: str) -> None:
        """Wait no longer for a neighbour as a listener."""
        for outbox in self.outboxes:
            self.give_up(outbox.phase, peer)

    def close(self, peer: str) -> None:
        """Take nothing more of a neighbour."""
        self.inboxes = {place: inbox for place, inbox in self.inboxes.items() if place[0] != peer}

    def forget(self, peer: str) -> None:
        """Make room for a neighbour's next life."""
        self.close(peer)
        self.trailers.pop(peer, None)
        self.progress.pop(peer, None)

    # ------------------------------------------------------------------ sending

    def _note(self, parts: Sequence[bytes | memoryview], *, phase: int) -> None:
        """Keep a row of the present round, to say it again to whoever comes late, if that is not much."""
        if self.mailbox.large:
            return
        exchange = self.mailbox.exchange
        self._recent = [each for each in self._recent if each[0][0] == exchange[0]]
        self._recent.append((exchange, phase, parts))
        if len(self._recent) > REACH + 1:  # not all of the round can be said again
            self._recent.clear()

    def put(self, parts: Sequence[bytes | memoryview], *, phase: int) -> None:
        """Let a row go."""
        self._note(parts, phase=phase)  # not before it goes: whoever comes back while it waits would be told it twice
        outbox = self.outboxes[phase]
        outbox.put(parts)
        self._pump(outbox)

    def again(self) -> None:
        """Say again what was noted, if all of the round was."""
        for outbox in self.outboxes:
            if self._recent and not self._recent[0][0][1]:
                outbox.again([parts for _, phase, parts in self._recent if phase == outbox.phase])
                self._pump(outbox)

    def busy(self, phase: int) -> bool:
        """Whether a row would have to wait for the one before; a large one waits until its memory is free."""
        outbox = self.outboxes[phase]
        return bool(outbox.unsent) or (self.mailbox.large and not outbox.idle)

    @property
    def idle(self) -> bool:
        """Whether all that was sent has arrived."""
        return all(outbox.idle for outbox in self.outboxes)

    def give_up(self, phase: int, listener: str) -> None:
        """Wait no longer for a listener in one phase."""
        outbox = self.outboxes[phase]
        outbox.drop(listener)
        self._pump(outbox)

    def sweep(self, *, patience: float, suspected: frozenset[str]) -> None:
        """Wait no longer for listeners that have stood still for so many seconds, or are suspected."""
        now = self.desk.clock()
        lagging = {(outbox.phase, listener) for outbox in self.outboxes for listener in outbox.lagging()}
        self._stuck = {key: self._stuck.get(key, now) for key in lagging}
        for (phase, listener), since in self._stuck.items():
            still = now - max(since, self.progress.get(listener, since))
            if still > patience or listener in suspected:
                self.give_up(phase, listener)
                self.desk.news.tell()

    def acknowledged(self, listener: str, ack: Ack, *, present: bool) -> None:
        """Send what a listener lacks, and more if it grants it."""
        outbox = self.outboxes[ack.phase]
        if ack.incarnation != self.me.incarnation:
            return  # of another's stream, and led here
        self.progress[listener] = self.desk.clock()
        if present and listener in self.edges.heard_by(ack.phase):
            outbox.listen(listener)  # again, if it was given up: it lives
        for chunk in outbox.acknowledged(listener, ack):
            self.desk.post(f"in/{listener}", chunk)
        self._pump(outbox)
        self.desk.news.tell()

    def pulses(self, *, waiting: bool, first: int | None) -> Iterator[tuple[str, Pulse]]:
        """What tells all listeners how far the streams that they hear reach, and whether we wait ourselves."""
        round, step = self.mailbox.exchange
        current, reached = (round + step) % len(self.outboxes), set[str]()
        for outbox in sorted(self.outboxes, key=lambda each: each.idle and each.phase != current):
            listeners = self.edges.heard_by(outbox.phase)
            if not outbox.idle or outbox.phase == current or not reached.issuperset(listeners):
                reached.update(listeners)
                tail, head = outbox.tail, outbox.head
                life = self.me.incarnation
                pulse = Pulse(life, outbox.phase, tail, head, round, step, waiting=waiting, first=first)
                yield f"pub/{outbox.phase}", pulse

    def _pump(self, outbox: Outbox) -> None:
        for chunk in outbox.ready():
            self.desk.post(f"pub/{outbox.phase}", chunk)

    # ------------------------------------------------------------------ receiving

    async def take(self, sender: str, chunk: Chunk) -> bool:
        """Take a chunk, deliver what it completes, and tell the sender how far it may go; return whether it is new."""
        inbox = self.inboxes[sender, chunk.phase]
        new = inbox.awaits(chunk)
        try:
            messages = inbox.take(chunk)
        except DecodeError:
            self.desk.refuse(sender, "not a row")
            messages = inbox.discard(chunk)
        else:
            if new:
                self.progress[sender] = self.desk.clock()
        self.most_held = max(self.most_held, sum(inbox.held for inbox in self.inboxes.values()))
        for message in messages:
            await self.deliver(sender, message)
        if (sender, chunk.phase) not in self.inboxes:
            return new  # excluded
        if self.mailbox.may_send(sender):
            inbox.grant()
        if inbox.due or (messages and self.mailbox.large):  # a large row is let go as soon as all have it
            self.desk.post(f"in/{sender}", inbox.ack())
        return new

    async def reach(self, sender: str, pulse: Pulse) -> None:
        """Ask for what a neighbour has sent and we lack, and let go what it has given up."""
        inbox = self.inboxes[sender, pulse.phase]
        given_up = inbox.next < pulse.tail  # the acknowledgement tells the sender that we live
        for message in inbox.skip(pulse.tail):
            await self.deliver(sender, message)
        if given_up or pulse.tail < pulse.head:
            self.desk.post(f"in/{sender}", inbox.ack(head=pulse.head))

    def grant(self) -> None:
        """Give credit to those who may send now."""
        for (sender, _), inbox in self.inboxes.items():
            if self.mailbox.may_send(sender):
                inbox.grant()
                if inbox.due:
                    self.desk.post(f"in/{sender}", inbox.ack())
