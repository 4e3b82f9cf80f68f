"""Models in transit: cut into chunks, sent again after losses, with credit granted as memory allows."""

from __future__ import annotations

import math
from collections.abc import Iterator

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.incoming.mailbox import AHEAD
from p2pfl.network.protocol.interface.effects import Publish
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.entry_round import REACH
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.protocol.wire.message_memory import MessageMemory
from p2pfl.network.protocol.wire.messages import Ack, Announcement, Chunk, Pulse
from p2pfl.network.protocol.wire.reliable_stream import Inbox, Outbox, largest_window
from p2pfl.network.protocol.wire.trailer import Trailer
from p2pfl.network.protocol.wire.wire_rows import Encoded, ModelMessage


def arrive_singly(row_bytes: int, edges: Edges, *, chunk: int) -> bool:
    """Return whether models are so large that they arrive one at a time.

    Parameters
    ----------
    row_bytes
        Upper bound on the size of a model's message in bytes.
    edges
        Schedule of senders and receivers.
    chunk
        Size of a published payload in bytes.
    """
    size = _data(chunk)
    return row_bytes > size * _window(edges, size=size)


def _data(chunk: int) -> int:
    """Return the size of the data in a payload."""
    return max(256, chunk - HEAD)


def _window(edges: Edges, *, size: int) -> int:
    """Return the number of chunks in transit on each incoming stream."""
    return largest_window(len(edges.topology.senders(edges.me)) * edges.period, chunk=size)


class Streams:
    """Outgoing stream of each phase of a schedule, and incoming streams of the neighbours that send in it.

    A model therefore reaches only the peers that listen in its gossip step.

    Parameters
    ----------
    shared
        State that all parts of the session use.
    chunk
        Size of a published payload in bytes.

    Attributes
    ----------
    outboxes, inboxes
        Outgoing streams by phase; incoming streams by neighbour and phase.
    chunk
        Size of the data in a published payload in bytes.
    window
        Number of chunks in transit on a stream.
    trailers
        Trailer that ends a neighbour's models, by neighbour whose streams were opened.
    progress
        Time of the last chunk or acknowledgement, by neighbour.
    refused
        Streams, by neighbour and phase, of which a message was refused whose gossip step nobody has given up yet.
    most_held
        Largest size of unfinished messages in bytes.
    """

    def __init__(self, shared: Shared, *, chunk: int) -> None:
        self.shared, edges, mailbox = shared, shared.edges, shared.mailbox
        me = shared.me
        self.chunk = size = _data(chunk)
        end = shared.codec.trailer(me)
        self.outboxes = [Outbox(me.incarnation, phase=phase, chunk=size, trailer=end) for phase in range(edges.period)]
        self.window = _window(edges, size=size)
        self.inboxes: dict[tuple[str, int], Inbox] = {}
        self.trailers: dict[str, Trailer] = {}
        self.progress: dict[str, float] = {}
        self.refused: set[tuple[str, int]] = set()
        self.memory = MessageMemory()
        self.most_held = 0
        mailbox.large = arrive_singly(shared.row_bytes, edges, chunk=chunk)
        mailbox.period = edges.period
        mailbox.most = AHEAD + edges.period * self.window
        self._recent: list[tuple[tuple[int, int], int, Encoded]] = []  # of the current round
        self._stuck: dict[tuple[int, str], float] = {}  # time since which a listener lacks something that was sent

    # ------------------------------------------------------------------ topics and senders

    @property
    def places(self) -> list[str]:
        """Places where neighbours publish models for this peer."""
        edges = self.shared.edges
        return [f"{sender}/pub/{phase}" for phase in range(edges.period) for sender in edges.senders_in(phase)]

    @property
    def senders(self) -> set[str]:
        """Neighbours whose streams are open."""
        return {peer for peer, _ in self.inboxes}

    # ------------------------------------------------------------------ neighbours

    def open(self, announcement: Announcement) -> None:
        """Open the streams from and to a live neighbour."""
        peer = announcement.peer
        self.trailers[peer] = self.shared.codec.trailer(announcement)
        self.resume(peer)
        for outbox in self.outboxes:
            if peer in self.shared.edges.senders_in(outbox.phase):
                inbox = Inbox(
                    announcement.incarnation,
                    self.window,
                    self.shared.row_bytes,
                    phase=outbox.phase,
                    widest=self.chunk,
                    memory=self.memory,
                )
                self.inboxes.setdefault((peer, outbox.phase), inbox)

    def resume(self, peer: str) -> None:
        """Continue with a neighbour that was lost and has kept its state."""
        self.progress[peer] = self.shared.now
        for outbox in self.outboxes:
            if peer in self.shared.edges.receivers_in(outbox.phase):
                outbox.listen(peer)

    def drop(self, peer: str) -> None:
        """Stop waiting for a neighbour as a listener."""
        for outbox in self.outboxes:
            self.give_up(outbox.phase, peer)

    def close(self, peer: str) -> None:
        """Close the streams from a neighbour."""
        self.inboxes = {key: inbox for key, inbox in self.inboxes.items() if key[0] != peer}
        self.refused = {key for key in self.refused if key[0] != peer}

    def forget(self, peer: str) -> None:
        """Discard the state of a neighbour, so that its next incarnation can begin."""
        self.close(peer)
        self.trailers.pop(peer, None)
        self.progress.pop(peer, None)

    # ------------------------------------------------------------------ sending

    def _note(self, model: Encoded, *, phase: int) -> None:
        """Keep a model of the current round, if models are few and small, to resend it to peers that join late."""
        if self.shared.mailbox.large:
            return
        gossip_step = self.shared.mailbox.gossip_step
        self._recent = [each for each in self._recent if each[0][0] == gossip_step[0]]
        self._recent.append((gossip_step, phase, model))
        if len(self._recent) > REACH + 1:  # too many to send all of the round again
            self._recent.clear()

    def put(self, model: Encoded, *, phase: int) -> None:
        """Send a model in a phase."""
        self._note(model, phase=phase)  # not earlier, or a peer that returns meanwhile gets it twice
        outbox = self.outboxes[phase]
        outbox.put(model)
        self._pump(outbox)

    def again(self) -> None:
        """Send the kept models again if they are complete for the round."""
        for outbox in self.outboxes:
            if self._recent and not self._recent[0][0][1]:
                outbox.again([model for _, phase, model in self._recent if phase == outbox.phase])
                self._pump(outbox)

    def busy(self, phase: int) -> bool:
        """Return whether a model must wait for the previous one; a large one waits until its memory is free."""
        outbox = self.outboxes[phase]
        return bool(outbox.unsent) or (self.shared.mailbox.large and not outbox.idle)

    @property
    def idle(self) -> bool:
        """True if all sent models have arrived."""
        return all(outbox.idle for outbox in self.outboxes)

    def give_up(self, phase: int, listener: str) -> None:
        """Stop waiting for a listener in one phase."""
        outbox = self.outboxes[phase]
        outbox.drop(listener)
        self._pump(outbox)

    def sweep(self, *, patience: float, suspected: frozenset[str]) -> None:
        """Stop waiting for listeners that are suspected, or made no progress for more than ``patience`` seconds."""
        now = self.shared.now
        lagging = [(outbox.phase, listener) for outbox in self.outboxes for listener in outbox.lagging_listeners()]
        self._stuck = {key: self._stuck.get(key, now) for key in lagging}
        for (phase, listener), since in self._stuck.items():
            still = now - max(since, self.progress.get(listener, since))
            if still > patience or listener in suspected:
                self.give_up(phase, listener)

    def acknowledge(self, listener: str, ack: Ack, *, present: bool) -> None:
        """Send the chunks that a listener lacks, and more if it grants credit."""
        outbox = self.outboxes[ack.phase]
        if ack.incarnation != self.shared.me.incarnation:
            return  # belongs to another stream, and was redirected here
        self.progress[listener] = self.shared.now
        if present and listener in self.shared.edges.receivers_in(ack.phase):
            outbox.listen(listener)  # again, if it was given up: it is alive
        for chunk in outbox.acknowledge(listener, ack):
            self.shared.publish(f"in/{listener}", chunk)
        self._pump(outbox)

    def pulses(self, *, receipt: str = "") -> None:
        """Publish the positions of the streams that each listener receives, and whether this peer itself waits."""
        pulses = [*self._pulses()]
        for number, pulse in enumerate(pulses, start=1):
            self.shared.do(Publish(f"pub/{pulse.phase}", pulse, receipt=receipt if number == len(pulses) else ""))

    def _pulses(self) -> Iterator[Pulse]:
        shared = self.shared
        round, step = shared.mailbox.gossip_step
        current, reached = (round + step) % len(self.outboxes), set[str]()
        for outbox in sorted(self.outboxes, key=lambda each: each.idle and each.phase != current):
            listeners = shared.edges.receivers_in(outbox.phase)
            if not outbox.idle or outbox.phase == current or not reached.issuperset(listeners):
                reached.update(listeners)
                tail, head, incarnation = outbox.tail, outbox.head, shared.me.incarnation
                stream = incarnation, outbox.phase, tail, head, round, step
                pause = 0 if shared.pause is None else max(1, math.ceil(shared.pause - shared.now))
                yield Pulse(*stream, shared.waiting, shared.first, shared.total, shared.work, pause)

    def _pump(self, outbox: Outbox) -> None:
        for chunk in outbox.ready():
            self.shared.publish(f"pub/{outbox.phase}", chunk)

    # ------------------------------------------------------------------ receiving

    def take(self, sender: str, chunk: Chunk) -> tuple[bool, list[ModelMessage]]:
        """Add a chunk; return whether it is new, and the messages that it completes, see :meth:`settle`."""
        inbox = self.inboxes[sender, chunk.phase]
        new = inbox.awaits(chunk)
        try:
            messages = inbox.take(chunk)
        except DecodeError:
            if chunk.offset + len(chunk.data) >= chunk.total:  # its last chunk
                self.refuse(sender, chunk.phase)
            messages = inbox.discard(chunk)
        else:
            if new:
                self.progress[sender] = self.shared.now
        if new and inbox.incomplete:
            self.most_held = max(self.most_held, sum(each.held for each in self.inboxes.values()))
        return new, messages

    def refuse(self, sender: str, phase: int) -> None:
        """Count a message of a stream that is no model, and note that the model it stands for never arrives."""
        self.shared.refuse(sender, "not a row")
        self.refused.add((sender, phase))

    def lacks(self, sender: str, gossip_step: tuple[int, int]) -> bool:
        """Return, once, whether a message was refused that stands for the next model of a neighbour in this phase.

        Models of a stream arrive in their order, so the refused one is that of this gossip step, or an earlier one.
        """
        key = sender, sum(gossip_step) % len(self.outboxes)
        if key not in self.refused:
            return False
        self.refused.remove(key)
        return True

    def settle(self, sender: str, phase: int, *, completed: bool) -> None:
        """Grant a neighbour credit once the messages that its chunk completed are read."""
        inbox = self.inboxes.get((sender, phase))
        if inbox is None:
            return  # excluded
        mailbox = self.shared.mailbox
        if mailbox.may_send(sender):
            inbox.grant()
        if inbox.due or (completed and mailbox.large):  # its sender frees a large model as soon as all have it
            self.shared.publish(f"in/{sender}", inbox.ack())

    def reach(self, sender: str, pulse: Pulse) -> list[ModelMessage]:
        """Skip the chunks that a neighbour has given up; return the messages that this completes, see :meth:`ask`."""
        inbox = self.inboxes[sender, pulse.phase]
        inbox.reported = max(inbox.reported, (pulse.round, pulse.head))
        given_up = inbox.next < pulse.tail  # the acknowledgement shows the sender that this peer is alive
        messages = inbox.skip(pulse.tail)
        if not messages and (given_up or pulse.tail < pulse.head):
            self.ask(sender, pulse.phase, head=pulse.head)
        return messages

    def has_passed(self, sender: str, gossip_step: tuple[int, int]) -> bool:
        """Return whether a neighbour continued without this peer, so that its model of a gossip step will never arrive.

        A neighbour that waits for this peer is at most one round ahead. One that is further has stopped sending to this
        peer; what it sent before has arrived or was given up, if the stream is received up to its head.
        """
        round, step = gossip_step
        inbox = self.inboxes.get((sender, (round + step) % len(self.outboxes)))
        if inbox is None:
            return False
        reached, head = inbox.reported
        return reached > round + len(self.outboxes) and inbox.next >= head

    def ask(self, sender: str, phase: int, *, head: int) -> None:
        """Request the chunks below ``head`` that a neighbour has sent and this peer lacks."""
        inbox = self.inboxes.get((sender, phase))
        if inbox is not None:
            self.shared.publish(f"in/{sender}", inbox.ack(head=head))

    def grant(self) -> None:
        """Grant credit to the neighbours that may send now."""
        for (sender, _), inbox in self.inboxes.items():
            if self.shared.mailbox.may_send(sender):
                inbox.grant()
                if inbox.due:
                    self.shared.publish(f"in/{sender}", inbox.ack())
