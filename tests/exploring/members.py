"""A member of a committee with its disk, for the explorer."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ballots import AGAIN, COUNTS
from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Believe,
    Certify,
    Doubt,
    Event,
    MemberRecord,
    MessageReceived,
    Propose,
    RecordStored,
    Send,
    StoreRecord,
    TimePassed,
)
from p2pfl.network.protocol.wire.verdict_messages import (
    Committee,
    Decision,
    Message,
    Place,
    Promise,
    Proposal,
    Value,
    Vote,
    majority,
)

NAMES = ("ada", "bob", "eve", "mia")
SUBJECT = Place(0, 0)
BELIEFS: frozenset[Value] = frozenset({COUNTS, AGAIN})
"""Outcomes that honest members believe at once: late belief looks like a late message."""

Sent = list[tuple[str, Any]]
CORES: dict[Hashable, int] = {}
FOLLOWED: dict[Hashable, Any] = {}


@dataclass(frozen=True)
class Member:
    """One member: the state machine while it runs, and what is on its disk.

    Parameters
    ----------
    name, committee
        Who it is, among which others.
    make
        Builds its state machine from a record.
    disk
        The durable record.
    ballots, crashes
        How many more times it may begin a ballot, and crash.
    machine
        ``None`` while it is down.
    pending
        The record that is on its way to the disk.
    restarts
        Whether it comes back after a crash.
    blocking
        Whether it takes nothing else while a write is in progress: a slow disk then looks like slow messages. If it
        crashes no more, its writes take no time, for the same reason.
    proposed
        What the owner proposes in the first ballot; whoever begins another one wants the other outcome.
    """

    name: str
    committee: Committee
    make: type[Agreement] = Agreement
    disk: MemberRecord = BLANK
    ballots: int = 1
    crashes: int = 1
    machine: Agreement | None = None
    pending: MemberRecord | None = None
    restarts: bool = True
    blocking: bool = False
    proposed: Value = COUNTS

    def started(self) -> Member:
        """Return the member with a new state machine."""
        machine = self.make(self.name, SUBJECT, self.committee, self.recovered)
        machine.wanted = AGAIN if self.proposed == COUNTS else COUNTS
        return replace(self, machine=machine, pending=None)

    @property
    def recovered(self) -> MemberRecord:
        """Record that it reads from its disk."""
        return self.disk

    @cached_property
    def core(self) -> int:
        """The number of its state, whatever may still happen to it."""
        machine = None if self.machine is None else frozen(self.machine)
        return CORES.setdefault((type(self), self.name, self.committee, self.disk, self.pending, machine), len(CORES))

    @property
    def key(self) -> Hashable:
        return self.core, self.ballots, self.crashes

    def moves(self) -> list[str]:
        if self.machine is None:
            return ["restart"] if self.restarts else []
        found = []
        if self.pending is not None:
            found.append("stores")
        if self.crashes:
            found.append("crashes")
        if self.busy:
            return found
        if self.name == self.committee.owner and self.machine.record == BLANK:
            found.append("proposes")
        if self.insists:
            found.append("insists")
        if self.ballots and self.machine.record.decided is None:
            found.append("times out")
        return found

    @property
    def insists(self) -> bool:
        """True if this member is the owner and the acceptances of a majority suffice for its proposal."""
        record, first = self.machine.record, self.committee.first
        if self.name != self.committee.owner or record.accepted is None or record.accepted.ballot != first:
            return False
        carried = majority(self.machine._acceptances, self.committee)
        return bool(carried) and record.voted is None and record.decided is None and record.promised == first

    @property
    def busy(self) -> bool:
        """True if the member handles nothing until a write is done."""
        return self.blocking and self.pending is not None

    def after(self, move: Hashable) -> list[tuple[Member, Sent]]:
        match move:
            case "crashes":
                down = replace(self, machine=None, pending=None, crashes=self.crashes - 1)
                landed = {self.pending, self.machine.record if self.machine.value else None} - {None}
                return [(down, []), *((replace(down, disk=each), []) for each in sorted(landed, key=repr))]
            case "restart":
                return [(self.started(), [])]
            case "stores":
                return [self.told(RecordStored())]
            case "proposes":
                return [self.told(Propose(self.proposed))]
            case "insists":
                return [self.told(Certify())]
        return [replace(self, ballots=self.ballots - 1).timed_out()]

    def timed_out(self) -> tuple[Member, Sent]:
        """Return what follows once it has waited long enough, whenever that is."""
        doubting, _ = self.told(Doubt())
        return doubting.told(TimePassed(), after=doubting.machine.due)

    def receives(self, sender: str, message: Message) -> tuple[Member, Sent] | None:
        return None if self.machine is None or self.busy else self.told(MessageReceived(sender, message))

    def told(self, event: Event, *, after: float = 0.0) -> tuple[Member, Sent]:
        """Return what follows an event after so many seconds."""
        other, sent = self.followed(event, after=after)
        while other.pending is not None and self.blocking and not self.crashes:
            other, more = other.followed(RecordStored())
            sent = sent + more
        follower = replace(self, machine=other.machine, disk=other.disk, pending=other.pending)
        follower.__dict__["core"] = other.core
        return follower, sent

    def followed(self, event: Event, *, after: float = 0.0) -> tuple[Member, Sent]:
        """Return the same for any member in this state; the present is always at 0, and each transition runs once."""
        known = FOLLOWED.get((self.core, event, after))
        if known is None:
            known = FOLLOWED[self.core, event, after] = self._followed(event, after)
        return known

    def _followed(self, event: Event, after: float) -> tuple[Member, Sent]:
        stored = isinstance(event, RecordStored)
        disk, pending = (self.pending, None) if stored else (self.disk, self.pending)
        machine = copied(self.machine)
        effects = machine.handle(event, now=after)
        if machine.questioned in BELIEFS:
            effects += machine.handle(Believe(machine.questioned), now=after)
        machine.due -= after
        machine._now = 0.0
        pending = next((each.record for each in effects if isinstance(each, StoreRecord)), pending)
        sent = [(to, each.message) for each in effects if isinstance(each, Send) for to in each.to]
        return replace(self, machine=machine, disk=disk, pending=pending), sent

    def waits(self, seconds: float) -> Member:
        """Return it so many seconds later."""
        known = FOLLOWED.get((self.core, "waits", seconds))
        if known is None:
            machine = copied(self.machine)
            machine.due -= seconds
            known = FOLLOWED[self.core, "waits", seconds] = replace(self, machine=machine)
        return known

    def again(self) -> Member:
        """Return it after a restart."""
        known = FOLLOWED.get((self.core, "again"))
        if known is None:
            known = FOLLOWED[self.core, "again"] = self.started()
        return known

    @cached_property
    def holds(self) -> set[str]:
        """The verdicts that it has acted on, or that are on its disk."""
        records = [self.disk] if self.machine is None else [self.disk, self.machine.record]
        return {each.decided.value for each in records if each.decided is not None}


def copied(machine: Agreement) -> Agreement:
    """Return a machine that goes on by itself; what it holds are values that never change."""
    other = copy.copy(machine)
    for name, value in vars(other).items():
        if isinstance(value, (list, dict)):
            setattr(other, name, value.copy())
    return other


def frozen(machine: Agreement) -> Hashable:
    """Return a value that is equal for equal machines."""
    parts = [
        tuple(each) if isinstance(each, list) else tuple(sorted(each.items())) if isinstance(each, dict) else each
        for name, each in vars(machine).items()
        if name not in ("sign", "committee", "subject")
    ]
    return type(machine), *parts


def votes_in(message: Message) -> list[Vote]:
    """Return the signed votes that a message carries."""
    match message:
        case Vote():
            return [message]
        case Promise(proof=proof):
            return list(proof)
        case Proposal(vote=vote, proof=proof):
            return [vote, *proof]
        case Decision(votes=votes):
            return list(votes)
    return []


def committee(size: int) -> Committee:
    """Return a committee whose owner is the first member."""
    return Committee(NAMES[:size])


def members(
    size: int,
    *,
    make: type[Agreement] = Agreement,
    kind: type[Member] = Member,
    group: Committee | None = None,
    ballots: Sequence[int] = (),
    crashes: Sequence[int] = (),
    blocking: bool = False,
    malicious: Collection[str] = (),
    proposed: Value = COUNTS,
) -> dict[str, Member]:
    """Return the honest members, which have just begun."""
    found, group = {}, committee(size) if group is None else group
    for place, name in enumerate(group.members):
        if name in malicious:
            continue
        limits = {"ballots": ballots[place] if ballots else 0, "crashes": crashes[place] if crashes else 0}
        found[name] = kind(name, group, make=make, blocking=blocking, proposed=proposed, **limits).started()
    return found


class Invariants:
    """Invariants of every state.

    Parameters
    ----------
    size
        Of the committee.
    malicious
        Members that sign whatever they like.
    progress
        Whether it is checked that the others come to a verdict.
    proposed
        What the owner proposes.
    """

    def __init__(
        self, size: int, *, malicious: Collection[str] = (), progress: bool = True, proposed: Value = COUNTS
    ) -> None:
        self._proposed = proposed
        self.majority = committee(size).majority
        self.malicious, self._progress = malicious, progress
        self._live: set[Hashable] = set()  # states of members that come to a verdict

    def actors(self, actors: tuple[Member, ...]) -> str:
        """Return what is wrong with the members."""
        held = set().union(*(actor.holds for actor in actors))
        if len(held) > 1:
            return "two verdicts are held"
        if not held <= BELIEFS:
            return "a verdict that no honest member believed"
        return self.progress(actors) if self._progress else ""

    def messages(self, said: tuple[Message, ...]) -> str:
        """Return what is wrong with what was signed."""
        signed: dict[Hashable, Any] = {}
        votes = [vote for message in said for vote in votes_in(message) if vote.member not in self.malicious]
        for vote in votes:
            if signed.setdefault((vote.member, vote.ballot, vote.final), vote.value) != vote.value:
                return f"{vote.member} signed two values in one ballot"
        if len({message.value for message in said if isinstance(message, Decision)}) > 1:
            return "two verdicts are signed"
        if self.malicious:
            return ""  # one may propose any outcome; what is decided is checked above
        if not any(vote.ballot.number == 0 for vote in votes) and any(vote.value == self._proposed for vote in votes):
            return "an outcome that was never proposed"
        return ""

    def progress(self, actors: tuple[Member, ...], *, ticks: int = 40) -> str:
        """Let those that run, and as many others as it takes for a majority, communicate without faults.

        All messages on their way are lost, and from now on all arrive. Return what is wrong if they come to no verdict.
        """
        running = [actor for actor in actors if actor.machine is not None]
        down = [actor for actor in actors if actor.machine is None]
        up = {each.name: each for each in running}
        up |= {each.name: each.again() for each in down[: max(0, self.majority - len(up))]}
        passed = {tuple(actor.core for actor in up.values())}
        if passed <= self._live:
            return ""
        for name in up:
            drain(up, name, Doubt())
            if up[name].pending is not None:
                drain(up, name, RecordStored())
        for _ in range(ticks):
            state = tuple(actor.core for actor in up.values())
            if state in self._live or all(actor.holds for actor in up.values()):
                self._live |= {*passed, state}
                return ""
            passed.add(state)
            waiting = {name: actor.machine.due for name, actor in up.items() if actor.machine.due < math.inf}
            if not waiting:
                return f"{', '.join(up)} wait for nothing and have no verdict"
            name = min(waiting, key=lambda each: (waiting[each], each))
            up |= {each: actor.waits(waiting[name]) for each, actor in up.items()}
            drain(up, name, TimePassed())
        return f"{', '.join(up)} communicate and have no verdict"


def drain(up: dict[str, Member], name: str, event: Event) -> None:
    """Tell a peer an event, and carry out all that follows from it."""
    todo: list[tuple[str, Event]] = [(name, event)]
    while todo:
        name, event = todo.pop()
        before = up[name]
        up[name], sent = before.followed(event)
        todo += [(to, MessageReceived(name, message)) for to, message in sent if to in up]
        if up[name].pending is not None and (before.pending is None or isinstance(event, RecordStored)):
            todo.append((name, RecordStored()))
