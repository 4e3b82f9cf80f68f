"""Settlements in progress: their durable records, the messages that they send, and proofs of contradictions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Contradicted,
    Effect,
    MemberRecord,
    Send,
    StoreRecord,
    TickAt,
    VerdictRecord,
)
from p2pfl.network.protocol.agreement.proofs import contradict
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.session.decisions.signed_statements import PLACE, Statements
from p2pfl.network.protocol.session.decisions.withholders import Withholders
from p2pfl.network.protocol.session.neighbour_changes import Neighbours
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.wire.trailer import SignedStatement
from p2pfl.network.protocol.wire.verdict_messages import (
    Agreed,
    Contradiction,
    Place,
    Prepare,
    Promise,
    Reports,
    Statement,
    draw_committee,
)


@dataclass
class Ballots:
    """Settlements of one peer, by round and attempt.

    Parameters
    ----------
    shared, neighbours
        State that the parts of the session share, and what follows from an exclusion.

    Attributes
    ----------
    proofs
        By member that has signed statements that contradict each other, the proof.
    open
        Settlements, by round and attempt.
    wake
        Time at which one has to decide.
    withholders
        Members that have withheld their acceptance from this peer.
    """

    shared: Shared
    neighbours: Neighbours
    proofs: dict[str, Proof] = field(default_factory=dict)
    open: dict[Place, Settlement] = field(default_factory=dict)
    wake: float = math.inf
    withholders: Withholders = field(default_factory=Withholders)
    statements: Statements = field(init=False)
    _kept: dict[Place, MemberRecord] = field(default_factory=dict)  # of an earlier incarnation
    _queue: list[Place] = field(default_factory=list)  # with records to store
    _writing: list[Place] | None = None

    def __post_init__(self) -> None:
        self.statements = Statements(self.shared)

    # ------------------------------------------------------------------ settlements

    def begin(self, place: Place, members: tuple[str, ...]) -> Settlement:
        """Open the settlement of an attempt, with the record of an earlier incarnation if there is one."""
        me, committee = self.shared.me, draw_committee(members, place, swarm=self.shared.codec.swarm)
        self.open[place] = Settlement(
            me.peer,
            place,
            members,
            committee,
            self._kept.pop(place, BLANK),
            sign=self.statements.sign,
            tag=partial(self.statements.tag, to=[each for each in committee.members if each != me.peer]),
            proves=self.statements.proves,
            incarnation=me.incarnation,
            withholders=frozenset(self.withholders.last),
            passed=self.withholders.passed[committee.owner],
        )
        return self.open[place]

    def keep(self, places: Iterable[Place], *, oldest: int) -> None:
        """Discard all settlements but some, and what is of rounds before the oldest one."""
        kept = {*places}
        self.open = {place: each for place, each in self.open.items() if place in kept and place.round >= oldest}
        self._kept = {place: record for place, record in self._kept.items() if place.round >= oldest}

    # ------------------------------------------------------------------ records

    def restore(self, kept: Iterable[VerdictRecord]) -> None:
        """Continue with the records of an earlier incarnation."""
        self._kept = {each.subject: each.record for each in kept}

    def records(self, *, oldest: int) -> tuple[VerdictRecord, ...]:
        """Return the records to make durable, in order."""
        records = {place: record for place, record in self._kept.items() if place.round >= oldest}
        records |= {place: each.agreement.record for place, each in self.open.items()}
        return tuple(VerdictRecord(place, record) for place, record in sorted(records.items()) if record != BLANK)

    def write(self) -> None:
        """Store all records that have changed, after the write in progress."""
        if self._queue and self._writing is None:
            self._writing, self._queue = self._queue, []
            self.shared.store("commits")

    def finish_writes(self) -> None:
        """Continue with the settlements whose records are durable."""
        written, self._writing = self._writing or [], None
        for place in written:
            if place in self.open:
                self.do(place, self.open[place].finish_write(now=self.shared.now))
        self.write()

    # ------------------------------------------------------------------ messages

    def do(self, place: Place, effects: list[Effect]) -> None:
        """Carry out what a settlement decides."""
        members = {*self.open[place].members}
        for effect in effects:
            match effect:
                case StoreRecord():
                    self._queue.append(place)
                case Send(to, message) if {*to} | {self.shared.me.peer} == members and len(to) > 1:
                    self.shared.publish(PLACE, message)
                case Send(to, message):
                    for each in to:
                        self.shared.publish(f"in/{each}", message)
                case TickAt(when):
                    self.wake = min(self.wake, when)
                case Contradicted(one, other) if one.member in self.shared.membership.up:
                    self.exclude_contradictor(one, other)

    def answer(self, sender: str, message: Agreed) -> None:
        """Answer a request about an attempt on which this peer has a decision from before it restarted."""
        match message:
            case Prepare():
                asks = True
            case Reports(reports=reports):
                asks = any(each.member == sender for each in reports)
            case _:
                asks = False
        decision = self._kept.get(message.subject, BLANK).decided
        if asks and decision is not None:
            self.shared.publish(f"in/{sender}", decision)

    # ------------------------------------------------------------------ contradictions

    def exclude_contradictor(self, one: Statement, other: Statement) -> None:
        """Exclude a Byzantine member, and keep the proof; one that forgot is only not believed.

        Statements that arrive after a decision have not been checked yet.
        """
        if not (self.statements.has_signed(one) and self.statements.has_signed(other)):
            self.shared.refuse(one.member, "not signed")
            return
        if one.incarnation != other.incarnation:
            self.shared.refuse(one.member, "forgot its vote")
            return
        first, second = (SignedStatement(self.statements.text(each.statement), each.signature) for each in (one, other))
        if self.shared.codec.identity is not None:
            self.proofs.setdefault(one.member, Proof(first, second, "vote"))
        told = one.member in self.shared.membership.excluded
        if not told and not isinstance(one, Promise) and not isinstance(other, Promise):
            self.shared.publish(PLACE, Contradiction(one, other))
        self.neighbours.exclude(one.member)

    def accuse(self, one: Statement, other: Statement) -> None:
        """Exclude a member if the two statements that another one shows prove that it is Byzantine.

        Raises
        ------
        DecodeError
            They do not.
        """
        if one.member not in self.shared.membership.up or not contradict(one, other):
            raise DecodeError("expected two votes of a member that contradict each other, got others")
        if one.incarnation != other.incarnation:
            raise DecodeError(f'expected votes of one incarnation of "{one.member}", got those of two')
        self.exclude_contradictor(one, other)
