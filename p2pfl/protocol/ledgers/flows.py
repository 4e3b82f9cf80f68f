r"""Mass that survives churn: what an edge moves, both of its ends apply or none.

In exchange k the edge (i, j) moves :math:`F_{ij} = W_{ij} (y_j - y_i)` to i and its negative to j, with the rows that
both released. If only one end hears the other, the sum of all rows drifts by a masked difference. So each end
decides, for each exchange, by what it holds and what it is told:

- An end that has the other's row applies the flow, at once or late, and **holds** it until the other confirms.
- An end that let the exchange fall out of its **window** of own released rows without applying it will **never** do so.
- An end that applied, and hears *never*, takes the flow back: the one that can pay is the one that holds it.

There is no leader: *applied* gives way to *never*, and *never* is final. Every message carries a statement for each
partner: of the exchanges before ``closed``, which are applied, which are pending, and by silence which are never.

*Crash.* A row goes back to its checkpoint, with what was applied in it. So only what the last checkpoint holds is
stated as applied; the rest is pending and confirms nothing. After a restart every exchange that the journal knows as
opened (durable before anything is sent) and that the checkpoint does not hold is never: who was away heard nothing.
A peer that cannot be restarted calls :meth:`FlowLedger.saved` after each exchange and writes nothing.

**Sum of the rows conserved.** Let an exchange be in the row of i and not in that of j. Then i holds the flow, and i
will take it back or j will apply it:

1. i drops a held flow only on *applied* from j, which was in j's checkpoint then. It stays in j's row unless j hears
   *never* from i. i did not say so before (never is final, and i applied), and says so later only if it crashed back
   behind applying it. Then it is i that lacks the flow, had never stated it as applied, and j still holds it.
2. j applies it within its window, or closes it, or crashes and closes it. Once closed it is never; j's statements say
   so until i has settled it in a checkpoint, and i takes it back on the first that arrives.

Hence at any time the sum of the rows is the sum of what was released into them plus flows that are held; and between
peers that live, have finished and heard each other's statements, it is that sum, to the last bit where :func:`flow`
gives integers. A peer that dies takes its row with it; the flows it was given or gave stay applied, and
:meth:`FlowLedger.unsettled` reports those that may be one-sided. ∎

A partner that comes back is asked which exchanges its next life says again, and what was applied of those is taken
back, see :meth:`FlowLedger.revive`; so a flow that was confirmed is kept until its exchange leaves the window.

*Memory.* K + 1 own rows for a window of K exchanges, as many flows for each edge, and those not confirmed yet: those
since the partner's last checkpoint. ``room`` bounds these: where it is full nothing is applied, which loses weight in
that exchange and no mass. K = 0 applies nothing late and still conserves. Only ``room=0``, for rows so large that none
can be held, conserves nothing: what should be taken back is counted in ``lost``. Numbers of exchanges are kept until
:meth:`FlowLedger.prune`.

*Weights* must be the same at both ends of an edge. Masses, the homogeneous coordinate, flow with their rows.

References
----------
Conservation by antisymmetric flows that both ends agree on: P. Jesus, C. Baquero, P. S. Almeida, "Fault-tolerant
aggregation by flow updating", DAIS 2009. Theirs repeats cumulated flows, which costs a row an edge in every message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.errors import PeerError

Exchange = tuple[int, ...]
"""Grows from each exchange of a peer to its next: attempt, round, step."""

Row = npt.NDArray[Any]
"""Grid points or floats, ``[P]``."""

START: Exchange = (0,)
END: Exchange = (2**63 - 1,)


def flow(own: Row, theirs: Row, *, weight: float) -> Row:
    r"""Return what an edge moves to one end, :math:`W_{ij} (y_j - y_i)`, ``[P]``: the exact negative of the other's.

    Parameters
    ----------
    own, theirs
        The released rows of both ends, ``[P]``; grid points give grid points.
    weight
        Of the edge in that exchange.

    Examples
    --------
    >>> flow(np.array([8, 1]), np.array([0, 2]), weight=0.5), flow(np.array([0, 2]), np.array([8, 1]), weight=0.5)
    (array([-4,  0]), array([4, 0]))
    """
    moved = weight * (theirs - own)  # [P]; IEEE arithmetic and half-to-even rounding are odd functions
    return np.rint(moved).astype(np.int64) if np.issubdtype(own.dtype, np.integer) else moved


@dataclass(frozen=True)
class Statement:
    """What a peer says to one partner, in every header.

    Attributes
    ----------
    since, closed
        Of the exchanges from ``since`` to before ``closed``, those in neither set will never be applied.
    applied
        From ``since`` on, in the row and in its checkpoint.
    pending
        Likewise in the row, but a crash would lose it.
    settled
        Of exchanges before this one the sender needs to hear nothing any more.
    """

    since: Exchange
    closed: Exchange
    applied: frozenset[Exchange]
    pending: frozenset[Exchange]
    settled: Exchange

    def excludes(self, exchange: Exchange) -> bool:
        """Whether the sender will never apply it."""
        return self.since <= exchange < self.closed and exchange not in self.applied | self.pending


@dataclass(frozen=True)
class Notes:
    """Of one partner, in a checkpoint: what is applied, which flows are held, and what the partner said last."""

    applied: frozenset[Exchange] = frozenset()
    held: Mapping[Exchange, Row | None] = field(default_factory=dict)
    settled: Exchange = START
    known: Exchange = START


@dataclass(frozen=True)
class Checkpoint:
    """What is saved with the row, and restored with it; numbered, so that an older one is known as such."""

    notes: Mapping[str, Notes]
    number: int = 0


@dataclass(frozen=True)
class Journal:
    """What must be durable before anything of an exchange is sent, and when a checkpoint is complete.

    Attributes
    ----------
    closed
        After every exchange that was opened.
    stated
        By partner, what may have been stated as applied.
    number
        Of the checkpoint that holds it.
    """

    closed: Exchange
    stated: Mapping[str, frozenset[Exchange]]
    number: int


@dataclass
class _Ends:
    """An edge as one end sees it."""

    applied: set[Exchange] = field(default_factory=set)
    held: dict[Exchange, Row | None] = field(default_factory=dict)
    news: Statement | None = None
    known: Exchange = START  # to be settled at the partner
    saved: Notes = field(default_factory=Notes)
    spare: dict[Exchange, Row | None] = field(default_factory=dict)  # confirmed, and still in the window
    refused: set[Exchange] = field(default_factory=set)  # in which the partner's row was dropped


@dataclass(frozen=True)
class _Own:
    """An exchange in the window."""

    row: Row
    weights: Mapping[str, float]


class FlowLedger:
    """The flows of one peer, decided without a clock: which to apply late, which to take back.

    What :meth:`deliver` and :meth:`hear` return is to be added to the row at once, in the middle of training too: it is
    a function of released rows, so it moves ``since`` alike.

    Parameters
    ----------
    partners
        The other ends of its gossip edges, in whichever exchange.
    window
        K, how many exchanges back a row is still applied.
    room
        Flows held for each partner; 0 holds none and conserves nothing.
    journal, checkpoint
        After a restart, the newest journal and the checkpoint that the row comes from.

    Examples
    --------
    Bob hears Ada, she does not hear him. He takes back what he applied when she says so.

    >>> ada, bob = FlowLedger(["bob"], window=0, room=4), FlowLedger(["ada"], window=0, room=4)
    >>> y = {"ada": np.array([8]), "bob": np.array([0])}
    >>> ada.open((0, 0, 0), y["ada"], weights={"bob": 0.5})
    >>> bob.open((0, 0, 0), y["bob"], weights={"ada": 0.5})
    >>> bob.deliver("ada", (0, 0, 0), y["ada"])
    array([4])
    >>> ada.open((0, 1, 0), y["ada"], weights={"bob": 0.5})
    >>> bob.hear("ada", ada.statement("bob"))
    {(0, 0, 0): array([-4])}
    """

    def __init__(
        self,
        partners: Collection[str],
        *,
        window: int,
        room: int,
        journal: Journal | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.window = window
        self.room = room
        self.lost: list[tuple[str, Exchange]] = []
        """Flows that one end has and the other has not, beyond repair."""
        self._own: dict[Exchange, _Own] = {}
        self._final: set[Exchange] = set()  # of which all peers have agreed whose rows count
        self._next = START if journal is None else journal.closed
        self._closed = self._next  # what was open before a restart is never
        self._ends = {partner: _Ends() for partner in sorted(partners)}
        for partner, note in ({} if checkpoint is None else checkpoint.notes).items():
            self._ends[partner] = _Ends(set(note.applied), dict(note.held), None, note.known, note)
        self._number = max(0 if saved is None else saved.number for saved in (journal, checkpoint))
        if journal is not None and journal.number > (0 if checkpoint is None else checkpoint.number):
            for partner, stated in journal.stated.items():  # the partner may have dropped its copy
                gone = stated - self._end(partner).applied
                self.lost += [(partner, exchange) for exchange in sorted(gone)]

    def open(self, exchange: Exchange, row: Row, *, weights: Mapping[str, float]) -> None:
        """Begin an exchange. Make the journal durable before the row is sent.

        Parameters
        ----------
        exchange
            Greater than all before.
        row
            As released, ``[P]``; kept for the window, not copied.
        weights
            Of the edges in this exchange, by partner; the same at both ends.

        Raises
        ------
        PeerError
            The exchange was opened before: after a restart it needs a new attempt.
        """
        if exchange < self._next:
            raise PeerError(
                f"Expected an exchange from {self._next} on, got {exchange}; count the attempt up after a restart."
            )
        self._own[exchange] = _Own(row, dict(weights))
        self._next = (*exchange[:-1], exchange[-1] + 1)
        while len(self._own) > self.window + 1:
            del self._own[min(self._own)]
        self._closed = max(self._closed, min(self._own))

    def own(self, exchange: Exchange) -> Row | None:
        """Our own row of an exchange, as long as it is in the window, ``[P]``."""
        kept = self._own.get(exchange)
        return None if kept is None else kept.row

    def finish(self) -> None:
        """End the run: what is not applied is never; statements settle the rest."""
        self._own.clear()
        self._next = self._closed = END

    def deliver(self, partner: str, exchange: Exchange, row: Row) -> Row | None:
        """Return the flow of a row that came, early enough or late, ``[P]``; None if it is not to be applied.

        A row that comes twice, outside the window, or where there is no room to hold its flow, moves nothing.
        """
        ends, own = self._end(partner), self._own.get(exchange)
        if own is None or exchange in ends.applied | ends.refused | self._final or partner not in own.weights:
            return None
        refused = ends.news is not None and ends.news.excludes(exchange)
        if refused or (self.room and len(ends.held) >= self.room):
            return None
        moved = flow(own.row, row, weight=own.weights[partner])  # [P]
        ends.applied.add(exchange)
        confirmed = ends.news is not None and exchange in ends.news.applied
        (ends.spare if confirmed else ends.held)[exchange] = moved if self.room else None
        return moved

    def hear(self, partner: str, statement: Statement) -> dict[Exchange, Row]:
        """Learn what a partner stated; return what is taken back of which exchange, each ``[P]``.

        Old, doubled and overtaken statements do no harm: each was true, and what it says of never stays true.
        """
        ends, back = self._end(partner), dict[Exchange, Row]()
        ends.news = statement
        ends.known = max(ends.known, statement.settled)
        for exchange in sorted(ends.held):
            if exchange in statement.applied:
                ends.spare[exchange] = ends.held.pop(exchange)
        for exchange in sorted(ends.held.keys() | ends.spare.keys()):
            if statement.excludes(exchange):
                self._retract(partner, exchange, back)
        return back

    def revive(self, partner: str, since: Exchange) -> dict[Exchange, Row]:
        """Listen to the next life of a partner, whose row went back behind ``since``; return what is taken back.

        The new life says its rows from there again, and they need not be those of the old one: it may hear more or
        fewer of the others than that did. What cannot be taken back any more is counted in ``lost``.
        """
        ends, back = self._end(partner), dict[Exchange, Row]()
        ends.news = None  # what the old life said of itself
        for exchange in sorted(each for each in ends.applied if each >= since):
            self._retract(partner, exchange, back)
        return back

    def refuse(self, partner: str, exchange: Exchange) -> Row | None:
        """Never apply the row of a partner in an exchange; return what is taken back, ``[P]``, if it was applied."""
        ends, back = self._end(partner), dict[Exchange, Row]()
        ends.refused.add(exchange)
        if exchange in ends.applied:
            self._retract(partner, exchange, back)
        return back.get(exchange)

    def final(self, exchange: Exchange) -> None:
        """Never take back what is applied in an exchange, and apply nothing more: all peers have agreed on it."""
        self._final.add(exchange)
        for ends in self._ends.values():
            ends.held.pop(exchange, None)
            ends.spare.pop(exchange, None)

    def applied(self, exchange: Exchange) -> dict[str, float]:
        """Return the weights of an exchange, by partner whose row is applied in it."""
        own = self._own.get(exchange)
        weights = {} if own is None else own.weights
        return {partner: weights[partner] for partner, ends in self._ends.items() if exchange in ends.applied}

    def _retract(self, partner: str, exchange: Exchange, back: dict[Exchange, Row]) -> None:
        ends = self._end(partner)
        moved = ends.held.pop(exchange, None)
        moved = ends.spare.pop(exchange, None) if moved is None else moved
        if moved is None:
            self.lost.append((partner, exchange))
            return
        ends.applied.discard(exchange)
        back[exchange] = -moved

    def statement(self, partner: str) -> Statement:
        """Return the statement for a partner's next message, once the journal is durable."""
        ends = self._end(partner)
        kept = {exchange for exchange in ends.applied if exchange >= ends.known}
        safe = kept & ends.saved.applied
        return Statement(ends.known, self._closed, frozenset(safe), frozenset(kept - safe), ends.saved.settled)

    def checkpoint(self) -> Checkpoint:
        """Return what to save with the model, atomically; call :meth:`saved` once it is durable."""
        return Checkpoint({partner: self._notes(ends) for partner, ends in self._ends.items()}, self._number + 1)

    def saved(self, checkpoint: Checkpoint) -> None:
        """Note that a checkpoint is durable: what it holds may be stated as applied, once the journal says so."""
        for partner, note in checkpoint.notes.items():
            self._end(partner).saved = note
        self._number = checkpoint.number

    def prune(self) -> None:
        """Forget the numbers of exchanges that no partner needs to hear of and no row can come of any more."""
        self._final &= self._own.keys()
        for ends in self._ends.values():
            oldest = min([ends.known, *self._own])
            ends.spare = {exchange: row for exchange, row in ends.spare.items() if exchange in self._own}
            ends.applied = {exchange for exchange in ends.applied if exchange >= oldest}
            ends.refused = {exchange for exchange in ends.refused if exchange >= oldest}

    def journal(self) -> Journal:
        """Return what to make durable."""
        return Journal(self._next, {partner: ends.saved.applied for partner, ends in self._ends.items()}, self._number)

    def meet(self, partner: str) -> None:
        """Have another end, of whose edges nothing has been applied yet."""
        self._ends.setdefault(partner, _Ends())

    @property
    def partners(self) -> frozenset[str]:
        """The other ends."""
        return frozenset(self._ends)

    @property
    def oldest(self) -> Exchange:
        """The first exchange in the window or of a flow that is held."""
        return min([END, *self._own, *(exchange for ends in self._ends.values() for exchange in ends.held)])

    @property
    def finished(self) -> frozenset[str]:
        """The partners that said that they will apply nothing more."""
        return frozenset(partner for partner, ends in self._ends.items() if ends.news and ends.news.closed == END)

    def unsettled(self) -> list[tuple[str, Exchange]]:
        """Return the gossip steps that are applied here and not known to be applied there."""
        return [(partner, exchange) for partner, ends in self._ends.items() for exchange in sorted(ends.held)]

    def _notes(self, ends: _Ends) -> Notes:
        settled = min([self._closed, *ends.held])
        return Notes(frozenset(ends.applied), dict(ends.held), settled, ends.known)

    def _end(self, partner: str) -> _Ends:
        if partner not in self._ends:
            raise PeerError(f'Expected a gossip partner, got "{partner}"; check the topology and the roster.')
        return self._ends[partner]
