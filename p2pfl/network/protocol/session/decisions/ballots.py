"""Agreements in progress: their durable records, the messages that they send, and proofs of contradictions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Contradicted,
    MemberRecord,
    Send,
    TickAt,
    VerdictRecord,
)
from p2pfl.network.protocol.agreement.proofs import contradict
from p2pfl.network.protocol.agreement.settlement import Effect, Settlement, Write
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.session.decisions.signed_statements import PLACE, Statements
from p2pfl.network.protocol.session.neighbour_changes import Neighbours
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.wire.trailer import SignedStatement
from p2pfl.network.protocol.wire.verdict_messages import BATCH, Committee, Contradiction, Promise, Release, Vote, Votes

Place = tuple[int, int]
"""Round and attempt."""


@dataclass
class Ballots:
    """Agreements of one peer, by round and attempt.

    Parameters
    ----------
    shared, neighbours
        State that the parts of the session share, and what follows from an exclusion.

    Attributes
    ----------
    batched
        True while votes wait for :meth:`flush`, so that one message contains many of them.
    proofs
        By member that has signed statements that contradict each other, the proof.
    open
        Agreements, by round and attempt.
    wake
        Time at which a ballot is due.
    """

    shared: Shared
    neighbours: Neighbours
    batched: bool = False
    proofs: dict[str, Proof] = field(default_factory=dict)
    open: dict[Place, Settlement] = field(default_factory=dict)
    wake: float = math.inf
    statements: Statements = field(init=False)
    _kept: dict[Release, MemberRecord] = field(default_factory=dict)  # of an earlier incarnation
    _queue: list[Release] = field(default_factory=list)  # with records to store
    _writing: list[Release] | None = None
    _votes: dict[Release, Vote] = field(default_factory=dict)  # that wait for ``flush``

    def __post_init__(self) -> None:
        self.statements = Statements(self.shared)

    # ------------------------------------------------------------------ agreements

    def settlement(self, attempt: Place) -> Settlement:
        """Return the agreements of an attempt, which are open from now on."""
        if attempt not in self.open:
            me = self.shared.me
            self.open[attempt] = Settlement(me.peer, sign=self.statements.sign, incarnation=me.incarnation)
        return self.open[attempt]

    def admit(self, release: Release, members: Iterable[str]) -> None:
        """Open the agreement on a release, with the record of an earlier incarnation if there is one."""
        settlement = self.settlement(release[2:])
        if release not in settlement.admitted:
            committee = Committee(tuple(sorted({release.peer, *members})), owner=release.peer)
            settlement.admit(release, committee, record=self._kept.pop(release, BLANK))

    def forget(self, oldest: int) -> None:
        """Discard what is of rounds before the oldest one."""
        self.open = {attempt: settlement for attempt, settlement in self.open.items() if attempt[0] >= oldest}
        self._kept = {release: record for release, record in self._kept.items() if release.round >= oldest}

    # ------------------------------------------------------------------ records

    def restore(self, kept: Iterable[VerdictRecord]) -> int:
        """Continue with the records of an earlier incarnation; return the last round in which it has voted."""
        self._kept = {each.release: each.record for each in kept}
        voted = [release.round for release, record in self._kept.items() if record.voted or record.decided]
        return max(voted, default=0)  # promises do not matter here, because anybody can ask for them

    def records(self, *, oldest: int) -> tuple[VerdictRecord, ...]:
        """Return the records to make durable, in order."""
        records = {release: record for release, record in self._kept.items() if release.round >= oldest}
        for settlement in self.open.values():
            records |= settlement.latest
        return tuple(VerdictRecord(release, record) for release, record in sorted(records.items()) if record != BLANK)

    def write(self) -> None:
        """Store all records that have changed, after the write in progress."""
        if self._queue and self._writing is None:
            self._writing, self._queue = self._queue, []
            self.shared.store("commits")

    def finish_writes(self) -> None:
        """Continue with the releases whose records are durable."""
        written, self._writing = self._writing or [], None
        effects: list[Effect] = []
        for release in written:
            if release[2:] in self.open:
                effects += self.open[release[2:]].finish_write(release, now=self.shared.now)
        self.do(effects)
        self.write()

    # ------------------------------------------------------------------ messages

    def do(self, effects: list[Effect]) -> None:
        """Carry out what agreements decide: votes of the first ballot go to all members in one message."""
        for effect in effects:
            match effect:
                case Write(release):
                    self._queue.append(release)
                case Send(_, Vote() as vote, prompt=False):  # to all
                    self._votes[vote.subject] = vote
                case Send(to, message):
                    self.shared.publish(f"in/{to}", Votes((message,)) if isinstance(message, Vote) else message)
                case TickAt(when):
                    self.wake = min(self.wake, when)
                case Contradicted(one, other) if one.member in self.shared.membership.up:
                    self.exclude_contradictor(one, other)
        if not self.batched:
            self.flush()

    @property
    def unsent(self) -> bool:
        """True if votes wait for :meth:`flush`."""
        return bool(self._votes)

    @property
    def writing(self) -> bool:
        """True if records are not durable yet, and votes in them wait for that."""
        return bool(self._queue) or self._writing is not None

    def holds(self, release: Release) -> bool:
        """Return whether the vote on a release waits for :meth:`flush`."""
        return release in self._votes

    def flush(self) -> None:
        """Publish the votes that wait."""
        votes, self._votes = self._votes, {}
        self.publish(votes)

    def publish(self, votes: Mapping[Release, Vote]) -> None:
        """Publish votes to all neighbours."""
        many = [vote for _, vote in sorted(votes.items())]
        for start in range(0, len(many), BATCH):
            self.shared.publish(PLACE, Votes(tuple(many[start : start + BATCH])))

    # ------------------------------------------------------------------ contradictions

    def exclude_contradictor(self, one: Vote, other: Vote | Promise) -> None:
        """Exclude a Byzantine member, and keep the proof; one that forgot is only not believed.

        Statements that arrive after a verdict have not been checked yet.
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
        if isinstance(other, Vote) and one.member not in self.shared.membership.excluded:
            self.shared.publish(PLACE, Contradiction(one, other))
        self.neighbours.exclude(one.member)

    def accuse(self, one: Vote, other: Vote) -> None:
        """Exclude a member if the two votes that another one shows prove that it is Byzantine.

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
