"""One live peer's decisions: events in, effects out."""

from __future__ import annotations

import math

from p2pfl.errors import PeerError
from p2pfl.protocol import plausible
from p2pfl.protocol.edges import Edges
from p2pfl.protocol.ledgers.books import Books
from p2pfl.protocol.mailbox import Mailbox, Newest
from p2pfl.protocol.membership import Membership
from p2pfl.protocol.pace import Pace
from p2pfl.protocol.session import events
from p2pfl.protocol.session.effects import Collected, Effect, Fail, Play, WakeAt
from p2pfl.protocol.session.events import Event
from p2pfl.protocol.session.gathering import Gathering
from p2pfl.protocol.session.naming import Naming
from p2pfl.protocol.session.neighbours import Neighbours
from p2pfl.protocol.session.presence import Presence
from p2pfl.protocol.session.receiving import Receiving
from p2pfl.protocol.session.sending import Sending
from p2pfl.protocol.session.settling import Leaving, Search, Settling
from p2pfl.protocol.session.shared import PULSE, Shared
from p2pfl.protocol.session.streams import Streams
from p2pfl.protocol.session.totals import Totals
from p2pfl.protocol.session.waiting import Waiting
from p2pfl.protocol.wire.rows import HEAD
from p2pfl.protocol.wire.sealing import Codec


class Session:
    """What one incarnation of a peer knows of a run, and decides in it.

    It knows neither a clock nor a loop, a disk or a broker. Equal sessions decide alike, and ``copy.deepcopy`` makes
    one that goes on by itself.

    Parameters
    ----------
    codec
        Opens what came; it has the announcement and the keys of this peer.
    membership, mailbox, edges, books
        Who is there, models that came, who sends to whom when, and what was exchanged with whom.
    row_bytes
        Upper bound of a model's message.
    chunk
        Bytes in a publish.
    patience
        Seconds without progress after which a neighbour is not waited for any more.
    last
        The last round that anybody plays.
    sums
        Whether there are secure sums, whose messages are handed on.

    Attributes
    ----------
    streams, neighbours, naming, presence, totals, receiving, gathering, waiting, sending, settling, search, leaving
        Each decides on its own part.
    summing
        Whether the peer waits for a secure sum.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        membership: Membership,
        mailbox: Mailbox,
        edges: Edges,
        books: Books | None = None,
        row_bytes: int,
        chunk: int,
        patience: float,
        last: int = plausible.UNLIMITED,
        sums: bool = False,
    ) -> None:
        codec.bound(plausible.largest(row_bytes))
        books = Books(membership.me.peer) if books is None else books
        self.shared = shared = Shared(codec, membership, mailbox, edges, books, row_bytes, patience, last)
        self.summing = False
        self.streams = streams = Streams(shared, chunk=chunk)
        self.neighbours = Neighbours(shared, streams)
        self.naming = Naming(shared)
        self.presence = Presence(shared, self.naming, self.neighbours)
        self.totals = Totals(shared, piece=streams.chunk)
        self.receiving = Receiving(shared, streams, self.neighbours, self.presence, self.totals, sums=sums)
        self.gathering = Gathering(shared, streams, self.presence)
        self.waiting = Waiting(shared, streams)
        self.sending = Sending(shared, streams, self.waiting)
        self.settling = Settling(shared, self.sending, self.waiting)
        self.search = Search(shared)
        self.leaving = Leaving(shared, streams, self.sending, self.presence)
        self._beat = math.inf  # when the next heartbeat is due
        self._looked = 0.0  # when the last one was
        self._lost = False  # whether the connection was lost, and others do not know that this peer is back
        self._alarm = math.inf  # when the shell wakes the session

    def handle(self, event: Event, *, now: float) -> list[Effect]:
        """Take an event; return what is to be done, in order.

        Parameters
        ----------
        event
            What came, what was carried out, or what the peer asks for.
        now
            Seconds by the clock of this peer, which stands still while there is no connection.
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
        """Answer who waits for something, if it is there or will not come, and have the session woken in time."""
        due = min(self._beat, self.naming.due)
        waits = self.waiting, self.totals, self.gathering, self.settling, self.search
        for part in (self.sending, *waits, self.leaving):
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

    # ------------------------------------------------------------------ what other parts of the peer read

    @property
    def blocked(self) -> bool:
        """Whether the peer waits for neighbours."""
        return self.summing or self.waiting.awaited is not None or self.totals.waits is not None

    @property
    def missing(self) -> list[str]:
        """Neighbours whose models, or messages of a total, the peer waits for."""
        return sorted(self.totals.lacking) if self.totals.active else self.mailbox.missing()

    @property
    def edges(self) -> Edges:
        """Who sends to whom, when."""
        return self.shared.edges

    @property
    def membership(self) -> Membership:
        """Who is there."""
        return self.shared.membership

    @property
    def mailbox(self) -> Mailbox:
        """Models that came."""
        return self.shared.mailbox

    @property
    def books(self) -> Books:
        """What was exchanged with whom."""
        return self.shared.books

    @books.setter
    def books(self, books: Books) -> None:
        self.shared.books = books

    # ------------------------------------------------------------------ events

    def _take(self, event: Event) -> None:
        """Take what came."""
        match event:
            case events.Received():
                self.receiving.receive(event)
            case events.Heard():
                self.receiving.hear(event.sender, event.message, state=event.state)
            case events.Read():
                self.receiving.read(event)
            case events.Summed():
                self.receiving.summed(event)
            case _:
                self._carried_out(event)

    def _carried_out(self, event: events.Outcome | events.Request) -> None:
        """Take note of what was carried out, and of the time."""
        match event:
            case events.Tick():
                self._tick(event)
            case events.Connected():
                self._lost = True
            case events.Stored():
                self.sending.stored()
            case events.Subscribed():
                self.naming.confirmed(event.receipt)
                self.totals.subscribed(event.receipt)
            case events.Published():
                self._published(event.receipt)
            case events.Flushed():
                self.leaving.flushed()
            case _:
                self._ask(event)

    def _ask(self, event: events.Request) -> None:
        """Do what the peer asks for in each round."""
        match event:
            case events.Open():
                self.waiting.open(event.exchange, event.senders, since=event.since)
            case events.Offer():
                self.sending.offer(event)
            case events.Expect():
                self.waiting.expect(event.sender, keep=event.keep)
            case events.Reject():
                self.shared.refused[f"{event.sender}: {event.fault}"] += 1
                self.shared.books.missed()
            case events.Close():
                self.waiting.close()
            case events.Convene() | events.Contribute():
                self.totals.ask(event)
            case events.Collect() if isinstance(self.mailbox, Newest):
                self.shared.do(Collected(self.mailbox.collect()))
            case events.Turn():
                self.shared.timeouts.pace.begin(event.round, now=self.shared.now)
            case events.Continue():
                self._continue(event)
            case _:
                self._ask_once(event)

    def _ask_once(self, event: events.Request) -> None:
        """Do what the peer asks for once in a run."""
        match event:
            case events.Enter():
                self._enter(event)
            case events.Gather():
                self.gathering.begin(quorum=event.quorum, within=event.within)
            case events.Resume():
                self._resume(event)
            case events.Begin():
                self._begin(event.first)
            case events.Tolerate():
                self._tolerate(event.quantile)
            case events.Finish() | events.Compare() | events.Stop():
                self.settling.begin(event)
            case events.Missed():
                self.search.begin(event.peers)
            case events.Leave():
                self.leaving.asked = event

    # ------------------------------------------------------------------ from the first to the last round

    def _enter(self, event: events.Enter) -> None:
        self.shared.grace = event.grace
        me, streams = self.shared.me.peer, self.streams
        size = min(self.shared.row_bytes, streams.chunk + HEAD, event.limit)  # of what is to pass
        self.naming.enter((f"{me}/in/+", *self.presence.places(), *self.neighbours.places()), size=size)

    def _resume(self, event: events.Resume) -> None:
        """Go on from a checkpoint, without what was exchanged with incarnations that have ended since."""
        books, progress = self.shared.books, self.shared.progress
        books.turn(event.page, event.rows, round=event.round, journal=event.journal)
        for peer in progress.places:
            books.revive(peer, progress.entered[peer])

    def _begin(self, first: int) -> None:
        self.shared.membership.begun = True
        self.shared.first = first
        self.shared.mailbox.open((first, 0), ())
        self.presence.heal()
        self.streams.pulses()

    def _tolerate(self, quantile: float | None) -> None:
        timeouts = self.shared.timeouts
        if quantile is None:
            timeouts.trust()
        else:
            timeouts.allowed, timeouts.pace = True, Pace(quantile=quantile)

    def _continue(self, event: events.Continue) -> None:
        """Choose the next round; the neighbours are told where it is not the next."""
        places = self.shared.progress.reached(self.shared.membership.present & self.streams.senders)
        here, _ = self.shared.mailbox.exchange
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
        self._beat = math.inf  # the next follows once this one is published, so that none pile up
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
        """Do what is done once with each heartbeat."""
        self._beat = self.shared.now + PULSE
        self.presence.bury()
        if self._lost:  # others may have heard the Last Will, whether or not we have
            self._lost = False
            self.presence.come_back()
        self.presence.introduce()
        self.presence.look()
        self.streams.sweep(patience=self.shared.patience, suspected=self.shared.timeouts.suspected)
