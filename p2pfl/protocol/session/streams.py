"""Models on their way: cut into chunks, sent again where they were lost, granted as memory allows."""

from __future__ import annotations

from collections.abc import Iterator

from p2pfl.errors import DecodeError
from p2pfl.protocol.entering import REACH
from p2pfl.protocol.mailbox import AHEAD
from p2pfl.protocol.session.effects import Publish
from p2pfl.protocol.session.shared import Shared
from p2pfl.protocol.wire.messages import Ack, Chunk, Hello, Pulse
from p2pfl.protocol.wire.rows import HEAD, Encoded
from p2pfl.protocol.wire.stream import Inbox, Outbox, largest_window
from p2pfl.protocol.wire.trailer import Trailer


class Streams:
    """One stream out for each phase of a schedule, one in for each neighbour that sends in it.

    A model so reaches only those who listen in that gossip step.

    Parameters
    ----------
    shared
        What all parts of the session know.
    chunk
        Bytes in a publish.

    Attributes
    ----------
    outboxes, inboxes
        By phase; by neighbour and phase.
    chunk
        Bytes of data in a publish.
    window
        Chunks under way on a stream.
    trailers
        By neighbour whose streams were opened: how its models end.
    progress
        By neighbour: when its last chunk or acknowledgement came.
    most_held
        Bytes of unfinished messages at most.
    """

    def __init__(self, shared: Shared, *, chunk: int) -> None:
        self.shared, edges, mailbox = shared, shared.edges, shared.mailbox
        me = shared.me
        self.chunk = size = max(256, chunk - HEAD)
        end = shared.codec.trailer(me)
        self.outboxes = [Outbox(me.incarnation, phase=phase, chunk=size, trailer=end) for phase in range(edges.period)]
        self.window = largest_window(len(edges.topology.hears(me.peer)) * edges.period, chunk=size)
        self.inboxes: dict[tuple[str, int], Inbox] = {}
        self.trailers: dict[str, Trailer] = {}
        self.progress: dict[str, float] = {}
        self.most_held = 0
        mailbox.large = shared.row_bytes > self.window * size
        mailbox.period = edges.period
        mailbox.most = AHEAD + edges.period * self.window
        self._recent: list[tuple[tuple[int, int], int, Encoded]] = []  # of the present round
        self._stuck: dict[tuple[int, str], float] = {}  # since when a listener has not had all that was sent

    # ------------------------------------------------------------------ who hears whom

    @property
    def places(self) -> list[str]:
        """Where neighbours publish what is for us."""
        edges = self.shared.edges
        return [f"{sender}/pub/{phase}" for phase in range(edges.period) for sender in edges.hears(phase)]

    @property
    def senders(self) -> set[str]:
        """Whose streams are open."""
        return {peer for peer, _ in self.inboxes}

    # ------------------------------------------------------------------ neighbours

    def open(self, hello: Hello) -> None:
        """Listen to a neighbour that lives, and speak to it."""
        peer = hello.peer
        self.trailers[peer] = self.shared.codec.trailer(hello)
        self.resume(peer)
        for outbox in self.outboxes:
            if peer in self.shared.edges.hears(outbox.phase):
                inbox = Inbox(
                    hello.incarnation, self.window, self.shared.row_bytes, phase=outbox.phase, widest=self.chunk
                )
                self.inboxes.setdefault((peer, outbox.phase), inbox)

    def narrow(self) -> None:
        """End the streams of edges that are none any more."""
        hears = [self.shared.edges.hears(outbox.phase) for outbox in self.outboxes]
        self.inboxes = {place: inbox for place, inbox in self.inboxes.items() if place[0] in hears[place[1]]}
        for outbox in self.outboxes:
            for listener in sorted(outbox.listeners - {*self.shared.edges.heard_by(outbox.phase)}):
                self.give_up(outbox.phase, listener)

    def resume(self, peer: str) -> None:
        """Go on with a neighbour that was lost: it still knows all that it knew."""
        self.progress[peer] = self.shared.now
        for outbox in self.outboxes:
            if peer in self.shared.edges.heard_by(outbox.phase):
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

    def _note(self, model: Encoded, *, phase: int) -> None:
        """Keep a model of the present round, to send it again to whoever comes late, if that is not much."""
        if self.shared.mailbox.large:
            return
        exchange = self.shared.mailbox.exchange
        self._recent = [each for each in self._recent if each[0][0] == exchange[0]]
        self._recent.append((exchange, phase, model))
        if len(self._recent) > REACH + 1:  # not all of the round can be said again
            self._recent.clear()

    def put(self, model: Encoded, *, phase: int) -> None:
        """Send a model."""
        self._note(model, phase=phase)  # not before it goes: whoever comes back while it waits would be told it twice
        outbox = self.outboxes[phase]
        outbox.put(model)
        self._pump(outbox)

    def again(self) -> None:
        """Send again what was noted, if all of the round was."""
        for outbox in self.outboxes:
            if self._recent and not self._recent[0][0][1]:
                outbox.again([model for _, phase, model in self._recent if phase == outbox.phase])
                self._pump(outbox)

    def busy(self, phase: int) -> bool:
        """Return whether a model would have to wait for the one before; a large one waits until its memory is free."""
        outbox = self.outboxes[phase]
        return bool(outbox.unsent) or (self.shared.mailbox.large and not outbox.idle)

    @property
    def idle(self) -> bool:
        """Return whether all that was sent has arrived."""
        return all(outbox.idle for outbox in self.outboxes)

    def give_up(self, phase: int, listener: str) -> None:
        """Wait no longer for a listener in one phase."""
        outbox = self.outboxes[phase]
        outbox.drop(listener)
        self._pump(outbox)

    def sweep(self, *, patience: float, suspected: frozenset[str]) -> None:
        """Wait no longer for listeners that have stood still for so many seconds, or are suspected."""
        now = self.shared.now
        lagging = {(outbox.phase, listener) for outbox in self.outboxes for listener in outbox.lagging()}
        self._stuck = {key: self._stuck.get(key, now) for key in lagging}
        for (phase, listener), since in self._stuck.items():
            still = now - max(since, self.progress.get(listener, since))
            if still > patience or listener in suspected:
                self.give_up(phase, listener)

    def acknowledged(self, listener: str, ack: Ack, *, present: bool) -> None:
        """Send what a listener lacks, and more if it grants it."""
        outbox = self.outboxes[ack.phase]
        if ack.incarnation != self.shared.me.incarnation:
            return  # of another's stream, and led here
        self.progress[listener] = self.shared.now
        if present and listener in self.shared.edges.heard_by(ack.phase):
            outbox.listen(listener)  # again, if it was given up: it lives
        for chunk in outbox.acknowledged(listener, ack):
            self.shared.publish(f"in/{listener}", chunk)
        self._pump(outbox)

    def pulses(self, *, receipt: str = "") -> None:
        """Publish how far the streams reach that each listener hears, and whether this peer waits itself."""
        pulses = [*self._pulses()]
        for number, pulse in enumerate(pulses, start=1):
            self.shared.do(Publish(f"pub/{pulse.phase}", pulse, receipt=receipt if number == len(pulses) else ""))

    def _pulses(self) -> Iterator[Pulse]:
        shared = self.shared
        round, step = shared.mailbox.exchange
        current, reached = (round + step) % len(self.outboxes), set[str]()
        for outbox in sorted(self.outboxes, key=lambda each: each.idle and each.phase != current):
            listeners = shared.edges.heard_by(outbox.phase)
            if not outbox.idle or outbox.phase == current or not reached.issuperset(listeners):
                reached.update(listeners)
                tail, head, life = outbox.tail, outbox.head, shared.me.incarnation
                stream = life, outbox.phase, tail, head, round, step
                yield Pulse(*stream, waiting=shared.waiting, first=shared.first, total=shared.total)

    def _pump(self, outbox: Outbox) -> None:
        for chunk in outbox.ready():
            self.shared.publish(f"pub/{outbox.phase}", chunk)

    # ------------------------------------------------------------------ receiving

    def take(self, sender: str, chunk: Chunk) -> tuple[bool, list[memoryview]]:
        """Take a chunk; return whether it is new, and the messages that it completes, see :meth:`settle`."""
        inbox = self.inboxes[sender, chunk.phase]
        new = inbox.awaits(chunk)
        try:
            messages = inbox.take(chunk)
        except DecodeError:
            self.shared.refuse(sender, "not a row")
            messages = inbox.discard(chunk)
        else:
            if new:
                self.progress[sender] = self.shared.now
        if new:
            self.most_held = max(self.most_held, sum(inbox.held for inbox in self.inboxes.values()))
        return new, messages

    def settle(self, sender: str, phase: int, *, completed: bool) -> None:
        """Tell a neighbour how far it may go on, once what its chunk completed is read."""
        inbox = self.inboxes.get((sender, phase))
        if inbox is None:
            return  # excluded
        mailbox = self.shared.mailbox
        if mailbox.may_send(sender):
            inbox.grant()
        if inbox.due or (completed and mailbox.large):  # a large model is let go as soon as all have it
            self.shared.publish(f"in/{sender}", inbox.ack())

    def reach(self, sender: str, pulse: Pulse) -> list[memoryview]:
        """Let go what a neighbour has given up; return what is complete with that, see :meth:`ask`."""
        inbox = self.inboxes[sender, pulse.phase]
        given_up = inbox.next < pulse.tail  # the acknowledgement tells the sender that we live
        messages = inbox.skip(pulse.tail)
        if not messages and (given_up or pulse.tail < pulse.head):
            self.ask(sender, pulse.phase, head=pulse.head)
        return messages

    def ask(self, sender: str, phase: int, *, head: int) -> None:
        """Ask for what a neighbour has sent below ``head`` and is missing here."""
        inbox = self.inboxes.get((sender, phase))
        if inbox is not None:
            self.shared.publish(f"in/{sender}", inbox.ack(head=head))

    def grant(self) -> None:
        """Give credit to those who may send now."""
        for (sender, _), inbox in self.inboxes.items():
            if self.shared.mailbox.may_send(sender):
                inbox.grant()
                if inbox.due:
                    self.shared.publish(f"in/{sender}", inbox.ack())
