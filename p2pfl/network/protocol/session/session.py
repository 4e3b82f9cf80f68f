"""State machine of one live peer: events in, effects out."""

from __future__ import annotations

import math
from dataclasses import replace

from p2pfl.core.errors import PeerError
from p2pfl.network.protocol.incoming import plausible
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.incoming.mailbox import Mailbox, Newest
from p2pfl.network.protocol.interface import events, requests
from p2pfl.network.protocol.interface.effects import Collected, Effect, Fail, Play, Sent, WakeAt
from p2pfl.network.protocol.interface.events import Event
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.deciding.commits import Commits
from p2pfl.network.protocol.session.deciding.verdicts import Verdicts
from p2pfl.network.protocol.session.gathering import Gathering
from p2pfl.network.protocol.session.naming import Naming
from p2pfl.network.protocol.session.neighbours import Neighbours
from p2pfl.network.protocol.session.participating import Totals
from p2pfl.network.protocol.session.presence import Presence
from p2pfl.network.protocol.session.receiving import Receiving
from p2pfl.network.protocol.session.sending import Sending
from p2pfl.network.protocol.session.settling import Leaving, Settling
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.session.streams import Streams
from p2pfl.network.protocol.session.waiting import Waiting
from p2pfl.network.protocol.timing.pace import Pace
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.protocol.wire.rows import Encoded, digest_of
from p2pfl.network.protocol.wire.sealing import MessageCodec


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
    last
        Last round of the run.
    sums
        True if the run has secure sums, whose messages are passed to the shell.
    commits
        True if all members of a round keep its parameters, or none of them does.

    Attributes
    ----------
    streams, neighbours, naming, presence, totals, verdicts, commits
        Parts of the session, each with its own decisions.
    receiving, gathering, waiting, sending, settling, leaving
        Parts of the session, each with its own decisions.
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
        last: int = plausible.UNLIMITED,
        sums: bool = False,
        commits: bool = False,
    ) -> None:
        codec.bound(plausible.largest(row_bytes))
        ledgers = PeerLedgers(membership.me.peer) if ledgers is None else ledgers
        self.shared = shared = Shared(codec, membership, mailbox, edges, ledgers, row_bytes, patience, last)
        self.summing = False
        self.streams = streams = Streams(shared, chunk=chunk)
        self.neighbours = Neighbours(shared, streams)
        self.naming = Naming(shared)
        self.presence = Presence(shared, self.naming, self.neighbours)
        self.totals = Totals(shared, piece=streams.chunk)
        self.verdicts, self.commits = Verdicts(shared, self.neighbours), Commits(shared, self.neighbours)
        parts = self.neighbours, self.presence, self.totals
        committing = self.commits if commits else None
        self.receiving = Receiving(shared, streams, *parts, verdicts=self.verdicts, commits=committing, sums=sums)
        self.gathering = Gathering(shared, streams, self.presence)
        self.waiting = Waiting(shared, streams)
        self.sending = Sending(shared, streams, self.waiting)
        self.settling = Settling(shared, self.sending, self.waiting)
        self.leaving = Leaving(shared, streams, self.sending, self.presence)
        waits = self.waiting, self.totals, self.verdicts, self.commits, self.gathering, self.settling
        self._deciding = self.sending, *waits, self.leaving  # in the order in which they decide
        self._beat = math.inf  # time at which the next heartbeat is due
        self._looked = 0.0  # time of the last heartbeat
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
            self._take(event)
        except PeerError as error:
            shared.do(Fail(error))
        self._decide()
        effects, shared.effects = shared.effects, []
        return effects

    def _decide(self) -> None:
        """Answer each pending request that can be decided, and schedule the next wake-up."""
        due = min(self._beat, self.naming.due)
        for part in self._deciding:
            if part.active:
                part.decide()
                if part.active:
                    due = min(due, part.wake)
        now = self.shared.now
        if self._alarm <= now:
            self._alarm = math.inf
        if due < self._alarm:
            self._alarm = max(due, now)
            self.shared.do(WakeAt(self._alarm))

    # ------------------------------------------------------------------ state for other parts of the peer

    @property
    def blocked(self) -> bool:
        """True if the peer waits for neighbours."""
        waits = self.waiting.awaited is not None or self.totals.waits is not None
        return self.summing or waits or self.verdicts.active or self.commits.active

    @property
    def missing(self) -> list[str]:
        """Neighbours whose models, verdicts, or messages of a total, the peer waits for."""
        for part in (self.verdicts, self.commits):
            if part.active:
                return sorted(part.waits)
        return sorted(self.totals.lacking) if self.totals.active else self.mailbox.missing()

    @property
    def proofs(self) -> dict[str, Proof]:
        """Proofs against neighbours that have signed models or votes that contradict each other, by name."""
        return self.mailbox.proofs | self.verdicts.ballots.proofs | self.commits.ballots.proofs

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

    # ------------------------------------------------------------------ events

    def _take(self, event: Event) -> None:
        """Handle an arrival; pass other events on."""
        match event:
            case events.Received():
                self.receiving.receive(event)
            case events.Read():
                self.receiving.read(event)
            case events.Summed():
                self.receiving.summed(event)
            case _:
                self._carried_out(event)

    def _carried_out(self, event: events.Outcome | requests.Request) -> None:
        """Handle the outcome of an effect or the passage of time; pass requests on."""
        match event:
            case events.Tick():
                self._tick(event)
            case events.Connected():
                self._lost = True
            case events.Stored():
                self._stored()
            case events.Subscribed():
                self.naming.confirmed(event.receipt)
                self.totals.subscribed(event.receipt)
            case events.Published():
                self._published(event.receipt)
            case events.Flushed():
                self.leaving.flushed()
            case _:
                self._ask(event)

    def _stored(self) -> None:
        """Pass the outcome of a write to the part that waits for it."""
        part = self.shared.stores.popleft()
        if part == "sending":
            self.sending.stored()
        else:
            (self.verdicts if part == "verdicts" else self.commits).ballots.stored()

    def _ask(self, event: requests.Request) -> None:
        """Handle a request that the peer makes in each round; pass others on."""
        match event:
            case requests.Open():
                self.waiting.open(event.gossip_step, event.senders, since=event.since)
            case requests.Offer():
                self._offer(event)
            case requests.Expect():
                self.waiting.expect(event.sender, keep=event.keep)
            case requests.Reject():
                self.shared.refused[f"{event.sender}: {event.fault}"] += 1
                self.shared.ledgers.missed()
            case requests.Close():
                self.waiting.close()
            case requests.Collect() if isinstance(self.mailbox, Newest):
                self.shared.do(Collected(self.mailbox.collect()))
            case requests.Turn():
                self.shared.timeouts.pace.begin(event.round, now=self.shared.now)
            case requests.NextRound():
                self._continue(event)
            case _:
                self._agree(event)

    def _offer(self, event: requests.Offer) -> None:
        """Send a model; one on which the neighbours decide leaves with this peer's vote for it."""
        round, _ = self.mailbox.gossip_step
        vote = self.verdicts.release(round, digest_of(event.model)) if event.decided else None
        if vote is not None:
            event = replace(event, model=Encoded((*event.model, vote)))
        if vote is None and event.decided:
            self.shared.do(Sent())  # not at all: the others have begun to decide without it
        else:
            self.sending.offer(event)

    def _agree(self, event: requests.Request) -> None:
        """Handle a request that peers answer together; pass others on."""
        match event:
            case requests.Convene() | requests.Contribute():
                self.totals.ask(event)
            case requests.Decide():
                self.verdicts.ask(event)
            case requests.Disclose():
                self.verdicts.disclose(event)
            case requests.Try():
                self.commits.begin(event)
            case requests.ReportAttempt():
                self.commits.ask(event)
            case _:
                self._ask_once(event)

    def _ask_once(self, event: requests.Request) -> None:
        """Handle a request that the peer makes once in a run."""
        match event:
            case requests.Enter():
                self._enter(event)
            case requests.Gather():
                self.gathering.begin(quorum=event.quorum, within=event.within, together=event.together)
            case requests.Resume():
                self._resume(event)
            case requests.Begin():
                self._begin(event.first)
            case requests.Tolerate():
                self._tolerate(event.quantile)
            case requests.Finish() | requests.Compare() | requests.Stop():
                self.settling.begin(event)
            case requests.Leave():
                self.leaving.asked = event

    # ------------------------------------------------------------------ from the first to the last round

    def _enter(self, event: requests.Enter) -> None:
        self.shared.grace = event.grace
        me, streams = self.shared.me.peer, self.streams
        size = min(self.shared.row_bytes, streams.chunk + HEAD, event.limit)  # largest message that must pass
        self.naming.enter((f"{me}/in/+", *self.presence.places(), *self.neighbours.places()), size=size)

    def _resume(self, event: requests.Resume) -> None:
        """Resume from a checkpoint, without the ledger entries of incarnations that have ended since."""
        ledgers, progress = self.shared.ledgers, self.shared.progress
        ledgers.turn(event.page, event.rows, round=event.round, journal=event.journal)
        for peer in progress.places:
            ledgers.revive(peer, progress.entered[peer])

    def _begin(self, first: int) -> None:
        self.shared.membership.begun = True
        self.shared.first = first
        self.shared.mailbox.open((first, 0), ())
        self.verdicts.begin(first)
        self.streams.pulses()

    def _tolerate(self, quantile: float | None) -> None:
        timeouts = self.shared.timeouts
        if quantile is None:
            timeouts.trust()
        else:
            timeouts.allowed, timeouts.pace = True, Pace(quantile=quantile)

    def _continue(self, event: requests.NextRound) -> None:
        """Choose the round to play next, and notify the neighbours if it skips rounds."""
        places = self.shared.progress.reached(self.shared.membership.present & self.streams.senders)
        here, _ = self.shared.mailbox.gossip_step
        due = min(event.last, self.shared.timeouts.pace.next(places=places, apart=event.apart))
        if due > here + 1:
            self._begin(due)
            self.streams.grant()
        self.shared.do(Play(due))

    # ------------------------------------------------------------------ time

    def _tick(self, event: events.Tick) -> None:
        self.shared.grace = event.grace
        self.naming.tick()
        if self.shared.now < self._beat:
            return
        self._beat = math.inf  # set again once this heartbeat is published, so that none pile up
        now, timeouts = self.shared.now, self.shared.timeouts
        timeouts.look(before=self._looked, now=now)
        self._looked = now
        self.streams.pulses(receipt="heartbeat")

    def _published(self, receipt: str) -> None:
        if receipt == "heartbeat":
            self._beaten()
        self.leaving.confirmed(receipt)
        self.naming.confirmed(receipt)
        if receipt == "announced":
            self._looked = self.shared.now
            self._beat = self.shared.now + PULSE

    def _beaten(self) -> None:
        """Run the periodic tasks that follow each heartbeat."""
        self._beat = self.shared.now + PULSE
        self.presence.bury()
        if self._lost:  # others may have received the Last Will even if this peer has not
            self._lost = False
            self.presence.come_back()
        self.presence.introduce()
        self.streams.sweep(patience=self.shared.patience, suspected=self.shared.timeouts.suspected)
