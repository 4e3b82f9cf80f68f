r"""Ledger of flows: both ends of an edge apply what it moves, or neither does, so that the average survives churn.

In gossip step k the edge (i, j) moves :math:`F_{ij} = W_{ij} (y_j - y_i)` to i and its negative to j, with the rows
that both released. If only one end receives the other's row, the sum of all rows drifts by a masked difference. So each
end decides, for each gossip step, by what it holds and what the other end has stated:

- An end that has the other's row applies the flow, at once or late, and **holds** it until the other confirms.
- An end whose **window** of own released rows has moved past a gossip step without applying it **never** applies it.
- An end that applied, and receives *never*, takes the flow back: the end that can pay is the one that holds it.

There is no leader: *applied* gives way to *never*, and *never* is final. Every message carries a statement for each
partner: of the gossip steps before ``closed``, which are applied, which are pending, and by omission which are never.

*Crash.* A row goes back to its checkpoint, with what was applied in it. So only what the last checkpoint holds is
stated as applied; the rest is pending and confirms nothing. After a restart every gossip step that the journal knows as
opened (durable before anything is sent) and that the checkpoint does not hold is never: a peer that was away received
nothing. A peer that cannot be restarted calls :meth:`FlowLedger.note_checkpoint` after each gossip step and writes
nothing.

**Sum of the rows conserved.** Let a gossip step be in the row of i and not in that of j. Then i holds the flow, and i
will take it back or j will apply it:

1. i drops a held flow only on *applied* from j, which was in j's checkpoint then. It stays in j's row unless j receives
   *never* from i. i did not state that before (never is final, and i applied), and states it later only if it crashed
   back behind applying it. Then i lacks the flow, had never stated it as applied, and j still holds it.
2. j applies it within its window, or closes it, or crashes and closes it. Once closed it is never; j's statements
   repeat that until i has settled it in a checkpoint, and i takes it back on the first that arrives.

Hence at any time the sum of the rows is the sum of what was released into them plus flows that are held; and between
peers that are alive, have finished and have received each other's statements, it is that sum, to the last bit where
:func:`flow` gives integers. A peer that dies takes its row with it; the flows it was given or gave stay applied, and
:meth:`FlowLedger.list_unsettled` reports those that may be one-sided. ∎

A partner that returns reports from which gossip step its next incarnation sends again, and what was applied of those is
taken back, see :meth:`FlowLedger.revive`; so a confirmed flow is kept until its gossip step leaves the window.

*Memory.* K + 1 own rows for a window of K gossip steps, as many flows for each edge, and those not confirmed yet: those
since the partner's last checkpoint. ``room`` bounds these: if it is full, nothing is applied, which loses mixing weight
in that gossip step and no sample weight. K = 0 applies nothing late and still conserves. Only ``room=0``, for rows so
large that none can be held, conserves nothing: what should be taken back is counted in ``lost``. Numbers of gossip
steps are kept until :meth:`FlowLedger.prune`.

*Weights* must be the same at both ends of an edge. Sample weights, the homogeneous coordinate, flow with their rows.

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

from p2pfl.core.errors import PeerError
from p2pfl.network.protocol.wire.messages import FlowStatement

GossipStep = tuple[int, ...]
"""Attempt, round and step; it grows from each gossip step of a peer to the next."""

Row = npt.NDArray[Any]
"""Grid points or floats, ``[P]``."""

START: GossipStep = (0,)
END: GossipStep = (2**63 - 1,)


def flow(own: Row, theirs: Row, *, weight: float) -> Row:
    r"""Return what an edge moves to one end, :math:`W_{ij} (y_j - y_i)`, ``[P]``: the exact negative of the other's.

    Parameters
    ----------
    own, theirs
        The released rows of both ends, ``[P]``; grid points give grid points.
    weight
        Of the edge in that gossip step.

    Examples
    --------
    >>> flow(np.array([8, 1]), np.array([0, 2]), weight=0.5), flow(np.array([0, 2]), np.array([8, 1]), weight=0.5)
    (array([-4,  0]), array([4, 0]))
    """
    moved = theirs - own  # [P]; IEEE arithmetic and half-to-even rounding are odd functions
    if np.issubdtype(own.dtype, np.integer):
        return np.rint(weight * moved).astype(np.int64)
    moved *= weight  # in place, as new memory for a large row costs as much as the product
    return moved


@dataclass(frozen=True)
class FlowNotes:
    """State of one partner in a checkpoint: applied gossip steps, held flows, and the partner's last statement."""

    applied: frozenset[GossipStep] = frozenset()
    held: Mapping[GossipStep, Row | None] = field(default_factory=dict)
    settled: GossipStep = START
    known: GossipStep = START


@dataclass
class _Ends:
    """State of an edge at one end."""

    applied: set[GossipStep] = field(default_factory=set)
    held: dict[GossipStep, Row | None] = field(default_factory=dict)
    news: FlowStatement | None = None
    known: GossipStep = START  # to be settled at the partner
    saved: FlowNotes = field(default_factory=FlowNotes)
    spare: dict[GossipStep, Row | None] = field(default_factory=dict)  # confirmed, and still in the window


@dataclass(frozen=True)
class _Own:
    """Gossip step in the window."""

    row: Row
    weights: Mapping[str, float]


class FlowLedger:
    """Flows of one peer: which to apply late, and which to take back.

    The caller adds what :meth:`deliver` and :meth:`receive` return to the row at once, also during training: it is a
    function of released rows, so it moves ``since`` alike.

    Parameters
    ----------
    partners
        Other ends of its gossip edges, in any gossip step.
    window
        K, the number of gossip steps back for which a row is still applied.
    room
        Flows held for each partner; 0 holds none and conserves nothing.
    closed
        After a restart, a gossip step after all that were opened before; it is durable before anything is sent.
    checkpoint
        State by partner in the checkpoint from which the row comes.

    Examples
    --------
    Bob receives the row of Ada, and Ada does not receive Bob's. Bob takes back what was applied once Ada states that.

    >>> ada, bob = FlowLedger(["bob"], window=0, room=4), FlowLedger(["ada"], window=0, room=4)
    >>> y = {"ada": np.array([8]), "bob": np.array([0])}
    >>> ada.open((0, 0, 0), y["ada"], weights={"bob": 0.5})
    >>> bob.open((0, 0, 0), y["bob"], weights={"ada": 0.5})
    >>> bob.deliver("ada", (0, 0, 0), y["ada"])
    array([4])
    >>> ada.open((0, 1, 0), y["ada"], weights={"bob": 0.5})
    >>> bob.receive("ada", ada.statement("bob"))
    {(0, 0, 0): array([-4])}
    """

    def __init__(
        self,
        partners: Collection[str],
        *,
        window: int,
        room: int,
        closed: GossipStep = START,
        checkpoint: Mapping[str, FlowNotes] | None = None,
    ) -> None:
        self.window = window
        self.room = room
        self.lost: list[tuple[str, GossipStep]] = []
        """Flows that one end has and the other has not, beyond repair."""
        self._own: dict[GossipStep, _Own] = {}
        self._next = self._closed = closed  # what was open before a restart is never
        self._ends = {partner: _Ends() for partner in sorted(partners)}
        for partner, note in (checkpoint or {}).items():
            self._ends[partner] = _Ends(set(note.applied), dict(note.held), None, note.known, note)

    def open(self, gossip_step: GossipStep, row: Row, *, weights: Mapping[str, float]) -> None:
        """Begin a gossip step.

        Parameters
        ----------
        gossip_step
            Greater than all before.
        row
            As released, ``[P]``; kept for the window, not copied.
        weights
            Of the edges in this gossip step, by partner; the same at both ends.

        Raises
        ------
        PeerError
            The gossip step was opened before: after a restart it needs a new attempt.
        """
        if gossip_step < self._next:
            raise PeerError(
                f"Expected a gossip step from {self._next} on, got {gossip_step}; count the attempt up after a restart."
            )
        self._own[gossip_step] = _Own(row, dict(weights))
        self._next = (*gossip_step[:-1], gossip_step[-1] + 1)
        while len(self._own) > self.window + 1:
            del self._own[min(self._own)]
        self._closed = max(self._closed, min(self._own))

    def own(self, gossip_step: GossipStep) -> Row | None:
        """Return the own row of a gossip step while it is in the window, ``[P]``."""
        kept = self._own.get(gossip_step)
        return None if kept is None else kept.row

    def finish(self) -> None:
        """End the run: what is not applied is never; statements settle the rest."""
        self._own.clear()
        self._next = self._closed = END

    def deliver(self, partner: str, gossip_step: GossipStep, row: Row) -> Row | None:
        """Return the flow of a row that arrived in time or late, ``[P]``; ``None`` if it is not applied.

        A row that arrives twice, outside the window, or when there is no room to hold its flow, moves nothing.
        """
        ends, own = self._end(partner), self._own.get(gossip_step)
        if own is None or gossip_step in ends.applied or partner not in own.weights:
            return None
        refused = ends.news is not None and ends.news.excludes(gossip_step)
        if refused or (self.room and len(ends.held) >= self.room):
            return None
        moved = flow(own.row, row, weight=own.weights[partner])  # [P]
        ends.applied.add(gossip_step)
        confirmed = ends.news is not None and gossip_step in ends.news.applied
        (ends.spare if confirmed else ends.held)[gossip_step] = moved if self.room else None
        return moved

    def receive(self, partner: str, statement: FlowStatement) -> dict[GossipStep, Row]:
        """Apply a partner's statement; return the flows that are taken back, by gossip step, each ``[P]``.

        Old, repeated and reordered statements do no harm: each was true, and *never* stays true.
        """
        ends, back = self._end(partner), dict[GossipStep, Row]()
        ends.news = statement
        ends.known = max(ends.known, statement.settled)
        for gossip_step in sorted(ends.held):
            if gossip_step in statement.applied:
                ends.spare[gossip_step] = ends.held.pop(gossip_step)
        for gossip_step in sorted(ends.held.keys() | ends.spare.keys()):
            if statement.excludes(gossip_step):
                self._retract(partner, gossip_step, back)
        return back

    def revive(self, partner: str, since: GossipStep) -> dict[GossipStep, Row]:
        """Accept the next incarnation of a partner, whose row went back behind ``since``; return the flows taken back.

        The new incarnation sends its rows from there again, and they may differ from those of the old one, because it
        may receive more or fewer rows of others. Flows that cannot be taken back any more are counted in ``lost``.
        """
        ends, back = self._end(partner), dict[GossipStep, Row]()
        ends.news = None  # a statement of the old incarnation
        for gossip_step in sorted(each for each in ends.applied if each >= since):
            self._retract(partner, gossip_step, back)
        return back

    def applied_weights(self, gossip_step: GossipStep) -> dict[str, float]:
        """Return the weights of a gossip step, by partner whose row is applied in it."""
        own = self._own.get(gossip_step)
        weights = {} if own is None else own.weights
        return {partner: weights[partner] for partner, ends in self._ends.items() if gossip_step in ends.applied}

    def _retract(self, partner: str, gossip_step: GossipStep, back: dict[GossipStep, Row]) -> None:
        ends = self._end(partner)
        moved = ends.held.pop(gossip_step, None)
        moved = ends.spare.pop(gossip_step, None) if moved is None else moved
        if moved is None:
            self.lost.append((partner, gossip_step))
            return
        ends.applied.discard(gossip_step)
        back[gossip_step] = -moved

    def statement(self, partner: str) -> FlowStatement:
        """Return the statement for a partner's next message."""
        ends = self._end(partner)
        kept = {gossip_step for gossip_step in ends.applied if gossip_step >= ends.known}
        safe = kept & ends.saved.applied
        pending = tuple(sorted(kept - safe))
        return FlowStatement(ends.known, self._closed, tuple(sorted(safe)), pending, ends.saved.settled)

    def checkpoint(self) -> dict[str, FlowNotes]:
        """Return what to save with the model, atomically; call :meth:`note_checkpoint` once it is durable."""
        return {partner: self._notes(ends) for partner, ends in self._ends.items()}

    def note_checkpoint(self, checkpoint: Mapping[str, FlowNotes]) -> None:
        """Note that a checkpoint is durable: what it holds may be stated as applied."""
        for partner, note in checkpoint.items():
            self._end(partner).saved = note

    def prune(self) -> None:
        """Discard the numbers of gossip steps that no partner needs, and of which no row can arrive any more."""
        for ends in self._ends.values():
            oldest = min([ends.known, *self._own])
            ends.spare = {gossip_step: row for gossip_step, row in ends.spare.items() if gossip_step in self._own}
            ends.applied = {gossip_step for gossip_step in ends.applied if gossip_step >= oldest}

    @property
    def partners(self) -> frozenset[str]:
        """The other ends."""
        return frozenset(self._ends)

    @property
    def oldest(self) -> GossipStep:
        """The first gossip step in the window or of a flow that is held."""
        return min([END, *self._own, *(gossip_step for ends in self._ends.values() for gossip_step in ends.held)])

    @property
    def finished(self) -> frozenset[str]:
        """Partners that have stated that they will apply nothing more."""
        return frozenset(partner for partner, ends in self._ends.items() if ends.news and ends.news.closed == END)

    def list_unsettled(self) -> list[tuple[str, GossipStep]]:
        """Return the gossip steps that are applied here and not known to be applied there."""
        return [(partner, gossip_step) for partner, ends in self._ends.items() for gossip_step in sorted(ends.held)]

    def _notes(self, ends: _Ends) -> FlowNotes:
        settled = min([self._closed, *ends.held])
        return FlowNotes(frozenset(ends.applied), dict(ends.held), settled, ends.known)

    def _end(self, partner: str) -> _Ends:
        if partner not in self._ends:
            raise PeerError(f'Expected a gossip partner, got "{partner}"; check the topology and the roster.')
        return self._ends[partner]
