"""State machine of one live peer: events in, effects out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from p2pfl.core.errors import PeerError
from p2pfl.network.protocol.agreement.agreement_effects import VerdictRecord
from p2pfl.network.protocol.incoming import plausible
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.incoming.mailbox import Mailbox, Newest
from p2pfl.network.protocol.interface import events, requests
from p2pfl.network.protocol.interface.effects import Collected, Effect, Fail, Play, WakeAt
from p2pfl.network.protocol.interface.events import Event
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.decisions.commits import Commits
from p2pfl.network.protocol.session.decisions.withholders import Withheld
from p2pfl.network.protocol.session.message_receiver import MessageReceiver
from p2pfl.network.protocol.session.model_sender import ModelSender
from p2pfl.network.protocol.session.model_wait import ModelWait
from p2pfl.network.protocol.session.name_claim import NameClaim
from p2pfl.network.protocol.session.neighbour_changes import Neighbours
from p2pfl.network.protocol.session.presence import Presence
from p2pfl.network.protocol.session.run_end import AccountSettlement, Departure
from p2pfl.network.protocol.session.session_totals import Totals
from p2pfl.network.protocol.session.shared import PULSE, Shared, Waiter
from p2pfl.network.protocol.session.start_wait import StartWait
from p2pfl.network.protocol.session.streams import Streams
from p2pfl.network.protocol.timing.pace import Pace
from p2pfl.network.protocol.timing.timeouts import RARE_PULSE
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.protocol.wire.message_codec import MessageCodec

T = TypeVar("T")


class _Part(Protocol):
    """Part of a session that can wait for something."""

    @property
    def active(self) -> bool:
        """True while the part waits."""
        ...

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        ...

    def decide(self) -> None:
        """Answer what the part waits for if that can be decided."""
        ...


class Session:
    """State and decisions of one incarnation of a peer in a run.

    A session uses no clock, event loop, disk or broker. Equal sessions make equal decisions, and ``copy.deepcopy``
    creates an independent session.

    Parameters
    ----------
    codec
        Codec that opens incoming messages, with the announcement and the keys of this peer.
    membership, mailbox, edges, ledgers
        Present peers, received models, schedule of senders and receivers, and ledgers of each neighbour.
    row_bytes
        Upper bound on the size of a model's message in bytes.
    chunk
        Size of a published payload in bytes.
    patience
        Seconds without progress after which this peer stops waiting for a neighbour.
    outage
        Seconds to wait for a neighbour that computes its part of a total, as its heartbeats show.
    last
        Last round of the run.
    longest_pause
        Seconds of the longest pause between two rounds.
    sums
        True if the run has secure sums, whose messages are passed to the shell.
    commits
        True if all members of a round keep its parameters or none of them does; false if all that arrives counts.

    Attributes
    ----------
    streams, neighbours, naming, presence, receiving, waiting, sending, gathering, settling, leaving
        Parts that every session has, each with its own decisions.
    commits
        Agreements on attempts at a round; ``None`` if all that arrives counts.
    summing
        True if the peer waits for a secure sum.
    """

    def __init__(
        self,
        codec: MessageCodec,
        *,
        membership: Membership,
        mailbox: Mailbox,
        edges: Edges,
        ledgers: PeerLedgers | None = None,
        row_bytes: int,
        chunk: int,
        patience: float,
        outage: float = 0.0,
        last: int = plausible.UNLIMITED,
        longest_pause: float = 0.0,
        sums: bool = False,
        commits: bool = False,
    ) -> None:
        codec.bound(plausible.largest(row_bytes))
        ledgers = PeerLedgers(membership.me.peer) if ledgers is None else ledgers
        self.shared = shared = Shared(codec, membership, mailbox, edges, ledgers, row_bytes, patience, last)
        shared.timeouts.longest_pause = longest_pause
        self.summing = False
        self.streams = streams = Streams(shared, chunk=chunk)
        self.neighbours = Neighbours(shared, streams)
        self.naming = NameClaim(shared)
        self.presence = Presence(shared, self.naming, self.neighbours)
        self.totals = Totals(shared, piece=streams.chunk, outage=outage)
        self.commits = Commits(shared, self.neighbours) if commits else None
        self.receiving = MessageReceiver(
            shared,
            streams,
            self.neighbours,
            self.presence,
            self.totals,
            commits=self.commits,
            sums=sums,
        )
        self.gathering = StartWait(shared, streams, self.presence)
        self.waiting = ModelWait(shared, streams)
        self.sending = ModelSender(shared, streams, self.waiting)
        self.settling = AccountSettlement(shared, self.sending, self.waiting)
        self.leaving = Departure(shared, streams, self.sending, self.presence)
        self._parts: dict[Waiter, _Part] = {  # in the order in which they decide
            "sending": self.sending,
            "waiting": self.waiting,
            "totals": self.totals,
            **({} if self.commits is None else {"commits": self.commits}),
            "gathering": self.gathering,
            "settling": self.settling,
            "leaving": self.leaving,
        }
        self._beat = math.inf  # time at which the next heartbeat is due
        self._looked = 0.0  # time of the last heartbeat
        self._quiet = math.inf  # time from which heartbeats are rare, in a pause
        self._lost = False  # True after a lost connection, until this peer has announced its return
        self._alarm = math.inf  # time at which the shell wakes the session

    def handle(self, event: Event, *, now: float) -> list[Effect]:
        """Handle an event; return the effects to carry out, in order.

        Parameters
        ----------
        event
            Arrival, outcome of an effect, or request of the peer.
        now
            Seconds on the clock of this peer, which stands still while there is no connection.
        """
        shared = self.shared
        shared.now, shared.waiting = now, self.blocked
        try:
            self._HANDLERS[type(event)](self, event)
        except PeerError as error:
            shared.do(Fail(error))
        self._decide()
        effects, shared.effects = shared.effects, []
        return effects

    def _decide(self) -> None:
        """Let the parts that wait decide, and schedule the next wake-up."""
        due, active = self.naming.due, self.shared.active
        for name in [name for name in self._parts if name in active]:
            part = self._parts[name]
            if part.active:
                part.decide()
            if part.active:
                due = min(due, part.wake)
            else:
                active.discard(name)
        now = self.shared.now
        if self.gathering.news:
            self.gathering.news = False
            self._hurry()
        due = min(due, self._beat)
        if self._alarm <= now:
            self._alarm = math.inf
        if due < self._alarm:
            self._alarm = max(due, now)
            self.shared.do(WakeAt(self._alarm))

    def _hurry(self) -> None:
        """Send the next heartbeat within a period."""
        if self._beat < math.inf:  # else it is being published, or this peer is not announced yet
            self._beat = min(self._beat, self.shared.now + PULSE)

    # ------------------------------------------------------------------ state for other parts of the peer

    @property
    def blocked(self) -> bool:
        """True if the peer waits for neighbours."""
        return self.summing or not self.shared.active.isdisjoint(_BLOCKING)

    @property
    def missing(self) -> list[str]:
        """Neighbours whose models, reports, or messages of a total, the peer waits for."""
        if self.commits is not None and self.commits.active:
            return sorted(self.commits.waits)
        return sorted(self.totals.lacking) if self.totals.active else self.mailbox.missing()

    @property
    def proofs(self) -> dict[str, Proof]:
        """Proofs against neighbours that have signed models or votes that contradict each other, by name."""
        return self.mailbox.proofs | ({} if self.commits is None else self.commits.ballots.proofs)

    def take_withheld(self) -> list[Withheld]:
        """Return the members of committees that have withheld their acceptance from this peer, since the last call."""
        return [] if self.commits is None else self.commits.ballots.withholders.take()

    @property
    def records(self) -> tuple[VerdictRecord, ...]:
        """Records of the agreements to make durable, in order."""
        return () if self.commits is None else self.commits.records()

    @property
    def edges(self) -> Edges:
        """Schedule of senders and receivers."""
        return self.shared.edges

    @property
    def membership(self) -> Membership:
        """Peers that are present."""
        return self.shared.membership

    @property
    def mailbox(self) -> Mailbox:
        """Received models."""
        return self.shared.mailbox

    @property
    def ledgers(self) -> PeerLedgers:
        """Ledgers of what was sent to and received from each neighbour."""
        return self.shared.ledgers

    @property
    def pauses(self) -> bool:
        """True if present neighbours state that they pause, and none that it does not."""
        there = self.membership.present & self.streams.senders
        return bool(there) and there <= self.shared.timeouts.pauses.keys()

    def has_begun(self, round: int) -> bool:
        """Return whether a present neighbour has begun a round, or has ended its pause before it."""
        there, timeouts = self.membership.present, self.shared.timeouts
        moved = self.shared.progress.moved_rounds(there - timeouts.pauses.keys())
        return not there.isdisjoint(timeouts.resumed) or any(reached >= round for reached in moved)

    # ------------------------------------------------------------------ outcomes of effects

    def _finish_write(self, _: events.Stored) -> None:
        """Pass the outcome of a write to the part that waits for it."""
        part = self.shared.stores.popleft()
        if part == "sending":
            self.sending.finish_write()
        else:
            _require(self.commits).ballots.finish_writes()

    def _confirm_subscription(self, event: events.Subscribed) -> None:
        self.naming.confirm(event.receipt)
        self.totals.confirm_subscription(event.receipt)

    def _reconnect(self, _: events.Connected) -> None:
        self._lost = True
        self.gathering.note_change()

    # ------------------------------------------------------------------ requests of each round

    def _reject(self, event: requests.Reject) -> None:
        self.shared.refused[f"{event.sender}: {event.fault}"] += 1
        self.shared.ledgers.note_missed_model()

    def _collect(self, _: requests.Collect) -> None:
        if isinstance(self.mailbox, Newest):
            self.shared.do(Collected(self.mailbox.collect()))

    def _turn(self, event: requests.Turn) -> None:
        self.shared.timeouts.pace.begin(event.round, now=self.shared.now)

    def _pause(self, event: requests.Pause) -> None:
        """Begin, prolong or end the pause before a round; let the neighbours know at once that it begins or ends."""
        shared, paused = self.shared, self.shared.pause is not None
        if event.seconds <= 0:
            shared.pause, self._quiet = None, math.inf
            shared.timeouts.begin(now=shared.now)
            self._hurry()
        else:
            if not paused:
                shared.timeouts.resumed.clear()
                self._quiet = shared.now + shared.patience
            shared.pause = shared.now + event.seconds
        if paused != (event.seconds > 0):
            self.streams.pulses()

    # ------------------------------------------------------------------ from the first to the last round

    def _enter(self, event: requests.Enter) -> None:
        self.shared.grace = event.grace
        me, streams = self.shared.me.peer, self.streams
        size = min(self.shared.row_bytes, streams.chunk + HEAD, event.limit)  # largest message that must pass
        self.naming.enter((f"{me}/in/+", *self.presence.places(), *self.neighbours.places()), size=size)

    def _resume(self, event: requests.Resume) -> None:
        """Resume from a checkpoint, without the ledger entries of incarnations that have ended since."""
        ledgers, progress = self.shared.ledgers, self.shared.progress
        ledgers.turn(event.page, event.rows, round=event.round, late=event.late)
        for peer in progress.places:
            ledgers.revive(peer, progress.entered[peer])

    def _begin(self, event: requests.Begin) -> None:
        self._begin_at(event.first)

    def _begin_at(self, first: int) -> None:
        self.shared.membership.begun = True
        self.shared.first = first
        self.shared.mailbox.open((first, 0), ())
        self.streams.grant()
        self.streams.pulses()

    def _tolerate(self, event: requests.Tolerate) -> None:
        timeouts = self.shared.timeouts
        if event.quantile is None:
            timeouts.trust()
        else:
            timeouts.allowed, timeouts.pace = True, Pace(quantile=event.quantile)

    def _continue(self, event: requests.NextRound) -> None:
        """Choose the round to play next, and notify the neighbours if it skips rounds."""
        rounds = self.shared.progress.reached_rounds(self.shared.membership.present & self.streams.senders)
        here, _ = self.shared.mailbox.gossip_step
        due = min(event.last, self.shared.timeouts.pace.next(rounds=rounds, apart=event.apart))
        if due > here + 1:
            self._begin_at(due)
        self.shared.do(Play(due))

    # ------------------------------------------------------------------ time

    def _tick(self, event: events.Tick) -> None:
        self.shared.grace, self.shared.work = event.grace, event.work
        self.naming.tick()
        if self.shared.now < self._beat:
            return
        self._beat = math.inf  # set again once this heartbeat is published, so that none pile up
        now, timeouts = self.shared.now, self.shared.timeouts
        timeouts.look(before=self._looked, now=now)
        self._looked = now
        self.streams.pulses(receipt="heartbeat")

    def _confirm_publication(self, event: events.Published) -> None:
        receipt = event.receipt
        if receipt == "heartbeat":
            self._finish_heartbeat()
        self.leaving.confirm(receipt)
        self.naming.confirm(receipt)
        if receipt == "announced":
            self._looked = self.shared.now
            self._beat = self.shared.now + PULSE

    def _finish_heartbeat(self) -> None:
        """Run the periodic tasks that follow each heartbeat."""
        rare = self.shared.now >= self._quiet and self.streams.idle and not self.shared.active
        self._beat = self.shared.now + (RARE_PULSE if rare else self.gathering.beat())
        self.presence.bury()
        if self._lost:  # others may have received the Last Will even if this peer has not
            self._lost = False
            self.presence.come_back()
        if self.gathering.introduces():
            self.presence.introduce()
        self.streams.sweep(patience=self.shared.patience, suspected=self.shared.timeouts.suspected)

    # ------------------------------------------------------------------ dispatch

    _HANDLERS: ClassVar[Mapping[type[Event], Callable[[Session, Any], None]]] = {
        events.Received: lambda self, event: self.receiving.receive(event),
        events.Read: lambda self, event: self.receiving.read(event),
        events.SumRefused: lambda self, event: self.receiving.refuse_sum(event),
        events.Tick: _tick,
        events.Connected: _reconnect,
        events.Stored: _finish_write,
        events.Subscribed: _confirm_subscription,
        events.Published: _confirm_publication,
        events.Flushed: lambda self, _: self.leaving.send_goodbye(),
        requests.Enter: _enter,
        requests.Gather: lambda self, event: self.gathering.begin(event),
        requests.Resume: _resume,
        requests.Begin: _begin,
        requests.Tolerate: _tolerate,
        requests.Turn: _turn,
        requests.Pause: _pause,
        requests.Open: lambda self, event: self.waiting.open(event.gossip_step, event.senders, since=event.since),
        requests.Offer: lambda self, event: self.sending.offer(event),
        requests.Expect: lambda self, event: self.waiting.expect(event.sender, keep=event.keep),
        requests.Reject: _reject,
        requests.Close: lambda self, _: self.waiting.close(),
        requests.Collect: _collect,
        requests.NextRound: _continue,
        requests.Convene: lambda self, event: self.totals.ask(event),
        requests.Contribute: lambda self, event: self.totals.ask(event),
        requests.Try: lambda self, event: _require(self.commits).begin(event),
        requests.ReportAttempt: lambda self, event: _require(self.commits).ask(event),
        requests.Join: lambda self, _: _require(self.commits).admissions.ask(),
        requests.Finish: lambda self, event: self.settling.begin(event),
        requests.Stop: lambda self, event: self.settling.begin(event),
        requests.Leave: lambda self, event: self.leaving.begin(event),
    }
    """Handler of each kind of event."""


_BLOCKING: frozenset[Waiter] = frozenset({"waiting", "totals", "commits"})
"""Parts that wait for neighbours while a round is played."""


def _require(part: T | None) -> T:
    """Return a part that the plan needs."""
    assert part is not None, "the session was made for a plan without this part"  # noqa: S101 (a mistake of ours)
    return part
