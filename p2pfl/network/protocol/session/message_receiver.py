"""Checks of incoming messages: opened, bounded and found plausible before a session keeps any of their content."""

from __future__ import annotations

from p2pfl.core.errors import AuthenticityError, DecodeError, VersionError
from p2pfl.network.protocol.incoming import plausible
from p2pfl.network.protocol.interface.effects import SLOW, Parse, ProcessSum, TakeChange
from p2pfl.network.protocol.interface.events import Read, Received, SumRefused
from p2pfl.network.protocol.membership.refusals import NotReadable, OtherWireFormat
from p2pfl.network.protocol.session.decisions.commits import Commits
from p2pfl.network.protocol.session.neighbour_changes import Neighbours
from p2pfl.network.protocol.session.presence import Presence
from p2pfl.network.protocol.session.session_totals import Totals
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.session.streams import Streams
from p2pfl.network.protocol.wire.messages import (
    Account,
    Ack,
    Announcement,
    ChangeRelay,
    Chunk,
    Claim,
    ForOne,
    Key,
    Message,
    Plain,
    Pulse,
)
from p2pfl.network.protocol.wire.sum_messages import OfSums
from p2pfl.network.protocol.wire.total_messages import Again, OfTotals, Subtotal, Total
from p2pfl.network.protocol.wire.verdict_messages import OfVerdicts
from p2pfl.network.protocol.wire.wire_rows import Delivery, ModelMessage, Parsed, read_rows
from p2pfl.privacy.secagg.protocol import FIRST_NUMBER


class MessageReceiver:
    """Handler of incoming messages; it refuses those that are not authentic, exceed a rate limit, or are impossible.

    Parameters
    ----------
    shared, streams, neighbours, presence, totals, commits
        Parts of the session that the messages concern; ``None`` for those that the plan does not need.
    sums
        True if the run has secure sums, whose messages are passed to the shell.
    """

    def __init__(
        self,
        shared: Shared,
        streams: Streams,
        neighbours: Neighbours,
        presence: Presence,
        totals: Totals,
        *,
        commits: Commits | None,
        sums: bool,
    ) -> None:
        self.shared, self.streams, self.neighbours, self.presence = shared, streams, neighbours, presence
        self.totals, self.commits, self.sums = totals, commits, sums

    def receive(self, event: Received) -> None:
        """Open a payload within the limits on size and rate, and handle its message."""
        codec, data = self.shared.codec, event.data
        address = codec.address(event.topic)
        sender, state = address.sender, address.state
        if not data and address.place in {"state", "account"}:
            return  # cleared after a goodbye, or from p2pfl doctor, which tries its rights there
        if len(data) > codec.largest:
            self._refuse(sender, _long(data, most=codec.largest), state=state)
            return
        sealed = codec.is_sealed(data)
        if not sealed and not self.shared.admit(sender, authentic=False):
            return
        try:
            message = codec.open(sender, data)
        except DecodeError as error:
            self._refuse(sender, error, state=state)
            return
        if not sealed or self.shared.admit(sender, authentic=True):
            self._handle(sender, message, state=state)

    def _handle(self, sender: str, message: Message, *, state: bool) -> None:
        """Handle an authentic message."""
        try:
            self._dispatch(sender, message, state=state)
        except DecodeError as error:
            self._refuse(sender, error, state=state)

    def _refuse(self, sender: str, error: DecodeError, *, state: bool) -> None:
        if state and sender in self.shared.membership.absent:  # reported if no readable announcement arrives
            self.shared.membership.refused[sender] = (
                OtherWireFormat(sender, theirs=error.theirs, ours=error.ours)
                if isinstance(error, VersionError)
                else NotReadable(sender, str(error))
            )
        self.shared.refuse(sender, self._reason(sender, error))

    def _reason(self, sender: str, error: DecodeError) -> str:
        """Return why a payload is refused; a peer that is still being introduced also gets what others can open."""
        envelope = self.shared.codec.envelope
        if not isinstance(error, AuthenticityError):
            return "not a message"
        return "not authentic" if envelope is None or envelope.reads(sender) else "before its key"

    def _dispatch(self, sender: str, message: Message, *, state: bool) -> None:
        shared, streams = self.shared, self.streams
        if not isinstance(message, Plain | Chunk):  # the broker can replay plain messages and chunks
            self._alive(sender, beat=isinstance(message, Pulse))
        match message:
            case Announcement() if state and message.peer == sender:
                self.presence.receive_announcement(message)
            case Claim() if sender == shared.me.peer:
                self.presence.answer_claim(message)
            case Key() if shared.codec.envelope is not None and sender in shared.membership.greeted:
                self.presence.meet(sender, message)
            case Chunk() if (sender, message.phase) in streams.inboxes:
                self._chunk(sender, message)
            case Ack() if sender in shared.membership.up and message.phase < len(streams.outboxes):
                streams.acknowledge(sender, message, present=sender in shared.membership.present)
            case Pulse() if (sender, message.phase) in streams.inboxes:
                self._pulse(sender, message)
            case Account() if sender in shared.membership.present:
                self._account(sender, message)
            case _ if isinstance(message, OfTotals | ForOne | OfVerdicts) and self._has_met(sender):
                self._receive_part(sender, message)
            case _:
                shared.refuse(sender, f"unexpected {type(message).__name__}")

    def _has_met(self, sender: str) -> bool:
        """Return whether a neighbour has shown that it lives and is not excluded; it may have gone since."""
        return sender in self.shared.membership.proven - self.shared.membership.excluded

    def _receive_part(self, sender: str, message: OfTotals | ForOne | OfVerdicts) -> None:
        """Handle a message of a total or of verdicts, or pass one of a secure sum to the shell."""
        if isinstance(message, OfVerdicts) and self.commits is not None:  # also of a peer that was dropped
            self.commits.receive(sender, message)
        elif sender not in self.shared.membership.present:
            self.shared.refuse(sender, f"unexpected {type(message).__name__}")
        elif isinstance(message, ChangeRelay):
            self.shared.do(TakeChange(sender, message))
        elif isinstance(message, OfTotals) and not _is_of_sum(message):
            self.totals.receive(sender, message)
        elif isinstance(message, OfSums | Subtotal | Total | Again) and self.sums:
            self.shared.do(ProcessSum(sender, message))
        else:
            self.shared.refuse(sender, f"unexpected {type(message).__name__}")

    def _alive(self, sender: str, *, beat: bool) -> None:
        """Note a message of a neighbour's current incarnation; only senders publish heartbeats to this peer."""
        if self.totals.waits is not None:
            self.totals.alive(sender)
        if sender in self.streams.senders:
            self.shared.timeouts.receive(sender, now=self.shared.now, beat=beat)

    def _chunk(self, sender: str, chunk: Chunk) -> None:
        if self.shared.ledgers.behind(sender):  # its models would pass for those of its earlier incarnation
            return  # it sends them again once a heartbeat reports its first round
        new, messages = self.streams.take(sender, chunk)
        if new:  # the broker can replay older chunks
            self._alive(sender, beat=False)
        if messages:
            self._parse(sender, chunk.phase, messages, head=None)
        else:
            self.streams.settle(sender, chunk.phase, completed=False)

    def _pulse(self, sender: str, pulse: Pulse) -> None:
        shared = self.shared
        if pulse.incarnation != self.streams.inboxes[sender, pulse.phase].incarnation:
            return
        plausible.heartbeat(pulse, last=shared.last)
        self.presence.alive(sender)
        shared.progress.receive(sender, pulse)
        shared.timeouts.receive_pause(sender, pulse.pause, now=shared.now, gathers=pulse.first is None)
        self.totals.note_heartbeat(sender, pulse)
        if pulse.total is not None:
            self.totals.compare(sender, pulse.total)
        if pulse.first is not None:
            shared.ledgers.revive(sender, pulse.first)
            shared.membership.returning.discard(sender)
        reported = self.commits is not None and self.commits.active  # so nobody waits for this peer's models
        here, mine = (pulse.round, pulse.step), shared.mailbox.gossip_step
        if pulse.waiting and (pulse.round <= mine[0] if reported else here < mine):
            shared.timeouts.waits(sender, now=shared.now)
        messages = self.streams.reach(sender, pulse)
        if messages:
            self._parse(sender, pulse.phase, messages, head=pulse.head)

    def _account(self, sender: str, account: Account) -> None:
        shared = self.shared
        if account.incarnation != shared.membership.up[sender].incarnation:
            raise DecodeError("expected an account of the sender's current incarnation, got one of another")
        shared.ledgers.receive(sender, account, incarnation=shared.me.incarnation)

    # ------------------------------------------------------------------ models

    def _parse(self, sender: str, phase: int, messages: list[ModelMessage], *, head: int | None) -> None:
        """Read models here, or let the shell read them if that takes long."""
        trailer, largest = self.streams.trailers[sender], self.shared.row_bytes
        if any(len(message.data) > SLOW for message in messages):
            self.shared.do(Parse(sender, phase, tuple(messages), trailer, largest, head))
        else:
            self.read(Read(sender, phase, read_rows(messages, trailer=trailer, largest=largest), head))

    def read(self, read: Read) -> None:
        """Keep models that were read, and grant their sender credit."""
        for model in read.models:
            self._model(read.sender, model, phase=read.phase)
        if read.head is None:
            self.streams.settle(read.sender, read.phase, completed=True)
        else:
            self.streams.ask(read.sender, read.phase, head=read.head)

    def _model(self, sender: str, model: Parsed | None, *, phase: int) -> None:
        shared = self.shared
        if model is None or model.head.round > shared.last:  # nobody plays such a round
            self.streams.refuse(sender, phase)
            return
        head, row, signed = model.head, model.row, model.statement
        verdict = shared.mailbox.deliver(sender, head, row, signed=signed if shared.codec.identity else None)
        if verdict == "kept" and (head.round, head.step) == shared.mailbox.gossip_step:
            shared.mailbox.arrived[sender] = shared.now
        late = verdict == "late" and shared.ledgers.late(sender, Delivery(head, row))
        if verdict == "kept" and shared.timeouts.pace.quantile < 1:
            shared.timeouts.pace.came(sender, head.round, now=shared.now)
        if verdict != "kept" and not late:
            shared.refuse(sender, verdict)
        if verdict == "equivocation":
            self.neighbours.exclude(sender)

    def refuse_sum(self, event: SumRefused) -> None:
        """Count a message of a secure sum that was not used, and exclude a sender that signed two participant sets."""
        self.shared.refuse(event.sender, f"unexpected {event.kind}")
        if event.equivocated:
            self.neighbours.exclude(event.sender)


def _is_of_sum(message: OfTotals) -> bool:
    """Return whether a message belongs to a secure sum, which is a total to one peer."""
    return isinstance(message, Subtotal | Total | Again) and message.number >= FIRST_NUMBER


def _long(data: bytes | memoryview, *, most: int) -> DecodeError:
    return DecodeError(f"expected a payload of at most {most} bytes, got {len(data)}")
