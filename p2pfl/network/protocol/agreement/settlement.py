"""Agreements of one peer on the releases of one round."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from p2pfl.network.protocol.agreement.agreement import Agreement, Sign, empty_signature
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Contradicted,
    Doubt,
    Event,
    MemberRecord,
    MessageReceived,
    Noted,
    Propose,
    RecordStored,
    Send,
    StoreRecord,
    TickAt,
    TimePassed,
    ValueDecided,
)
from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Committee,
    Message,
    Prepare,
    Proposal,
    Release,
    Value,
    Vote,
)


@dataclass(frozen=True)
class Write:
    """Instruction to make the record of a release durable; a call of ``Settlement.finish_write`` follows."""

    release: Release
    record: MemberRecord


@dataclass(frozen=True)
class Fetch:
    """Copy of a release that a peer lacks, and members that have it because they have voted for it.

    Attributes
    ----------
    release, value
        Release, and the verdict that names its copy.
    holders
        Names of the members.
    """

    release: Release
    value: Value
    holders: tuple[str, ...]


Effect = Write | Send | Contradicted | TickAt


@dataclass
class Settlement:
    """Agreements on the releases of one round for which a peer is on the committee; :meth:`admit` adds one.

    Parameters
    ----------
    me
        Name of the peer.
    pause, sign, incarnation
        See :class:`~p2pfl.network.protocol.agreement.agreement.Agreement`.

    Examples
    --------
    Bob holds Ada's release; with her vote and his own, a majority of three has voted.

    >>> hers = Release("ada", 7, 0, 0)
    >>> committee, bob = Committee(("ada", "bob", "eve"), owner="ada"), Settlement("bob")
    >>> bob.admit(hers, committee)
    >>> vote = Vote(hers, "ada", committee.first, b"digest")
    >>> [type(effect).__name__ for effect in bob.holds(vote, now=0.0)]
    ['Write']
    >>> [type(effect).__name__ for effect in bob.finish_write(hers, now=0.0)]
    ['Send', 'Send', 'Write']
    >>> bob.finish_write(hers, now=0.0), bob.verdict(hers)
    ([], b'digest')
    """

    me: str
    pause: float = 1.0
    sign: Sign = field(default=empty_signature, repr=False)
    incarnation: int = 0
    _mixed: set[Release] = field(default_factory=set)  # of which the peer needs the parameters themselves
    _agreements: dict[Release, Agreement] = field(default_factory=dict)
    _held: dict[Release, set[Value]] = field(default_factory=dict)  # verdicts that name the copies of this peer
    _doubted: set[Release] = field(default_factory=set)
    _free: set[Release] = field(default_factory=set)  # of which this peer answers requests without a doubt of its own
    _kept_back: dict[Release, list[MessageReceived]] = field(default_factory=dict)  # until the release arrives
    _early: dict[Release, dict[str, MessageReceived]] = field(
        default_factory=dict
    )  # requests, until this peer doubts too
    _requests: dict[tuple[Release, str], float] = field(default_factory=dict)  # time of the last one of a member
    _repeats: dict[tuple[Release, str], float] = field(default_factory=dict)  # the same of requests for ballot 0

    def admit(
        self, release: Release, committee: Committee, *, record: MemberRecord = BLANK, mixed: bool = True
    ) -> None:
        """Add an agreement; if ``mixed`` is true, the peer mixes the release, or stands in for its owner with it."""
        if release in self._agreements:
            return
        self._agreements[release] = Agreement(
            self.me,
            release,
            committee,
            DROPPED,
            record,
            pause=self.pause,
            sign=self.sign,
            incarnation=self.incarnation,
        )
        if mixed and release.peer != self.me:
            self._mixed.add(release)

    # ------------------------------------------------------------------ events

    def releases(self, release: Release, value: Value, *, now: float) -> list[Effect]:
        """Vote for the peer's own release, which is sent with the vote once that is durable."""
        self._held[release] = {value}
        return self._do(release, Propose(value), now=now)

    def leaves_with(self, release: Release) -> Vote | None:
        """Return the vote in the first ballot with which the peer's own release leaves; ``None`` if it must not leave.

        If another ballot came first, the release may be dropped already, and its masks may be public.
        """
        agreement = self._agreements[release]
        voted, decided = agreement.record.voted, agreement.record.decided
        counted = decided is None or decided.value != DROPPED
        return voted if voted is not None and voted.ballot == agreement.committee.first and counted else None

    def holds(self, vote: Vote, *, now: float) -> list[Effect]:
        """Handle the arrival of a release with its owner's vote, from the owner or as a copy."""
        release = vote.subject
        if release not in self._agreements:
            return []
        values = self._held.setdefault(release, set())
        if vote.value in values:
            return []
        values.add(vote.value)
        kept = self._kept_back.pop(release, [])
        waiting = [each for each in kept if _value(each.message) == vote.value]
        if len(waiting) < len(kept):
            self._kept_back[release] = [each for each in kept if each not in waiting]
        return self._do(release, Propose(vote.value), MessageReceived(vote.member, vote), *waiting, now=now)

    def receives(self, sender: str, message: Message, *, now: float) -> list[Effect]:
        """Handle a message; the shell has authenticated it and the votes in it."""
        release = message.subject
        if release not in self._agreements:
            return []
        received = MessageReceived(sender, message)
        if isinstance(message, Prepare) and not message.ballot.number:
            return self._repeat(release, received, now=now)
        if isinstance(message, Prepare) and not self._welcome(sender, message, release, now=now):
            return []
        if isinstance(message, Vote | Proposal) and self._lacks(release, message.value):
            noted = [Noted(message)] if isinstance(message, Vote) and message.final and message.member == sender else []
            self._keep_back(release, received)
            return self._do(release, *noted, now=now)
        return self._do(release, received, now=now)

    def _repeat(self, release: Release, received: MessageReceived, *, now: float) -> list[Effect]:
        """Answer a request for ballot 0, which asks for no promise: repeat the verdict, or else the vote."""
        sender = received.sender
        if now < self._repeats.get((release, sender), -math.inf) + self.pause / 2:
            return []
        self._repeats[release, sender] = now
        agreement = self._agreements[release]
        if agreement.record.decided is not None:
            return self._do(release, received, now=now)
        return [] if agreement.sent is None else [Send(sender, agreement.sent)]

    def _welcome(self, sender: str, message: Prepare, release: Release, *, now: float) -> bool:
        """Return whether to answer a request now: once the release is in doubt here too, and not too often."""
        if now < self._requests.get((release, sender), -math.inf) + self.pause / 2:
            return False
        self._requests[release, sender] = now
        if release in self._doubted | self._free or self._agreements[release].record.decided is not None:
            return True
        self._early.setdefault(release, {})[sender] = MessageReceived(sender, message)
        return False

    def doubts(self, peer: str, *, now: float) -> list[Effect]:
        """Begin to decide the releases of a peer without it, because it is probably gone."""
        effects: list[Effect] = []
        for release in self._of(peer):
            self._doubted.add(release)
            effects += self._do(release, Doubt(), *self._early.pop(release, {}).values(), now=now)
        return effects

    def answers(self, release: Release, *, now: float) -> list[Effect]:
        """Answer requests on a release from now on, because this peer does not wait for the release itself."""
        self._free.add(release)
        return self._do(release, *self._early.pop(release, {}).values(), now=now)

    def finish_write(self, release: Release, *, now: float) -> list[Effect]:
        """Handle the confirmation that the last record of a release is durable."""
        return self._do(release, RecordStored(), now=now)

    def tick(self, *, now: float) -> list[Effect]:
        """Handle the passage of time."""
        effects: list[Effect] = []
        for release in self._agreements:
            effects += self._do(release, TimePassed(), now=now)
        return effects

    # ------------------------------------------------------------------ decisions

    @property
    def admitted(self) -> tuple[Release, ...]:
        """Releases with an agreement."""
        return tuple(self._agreements)

    def has_release(self, release: Release) -> bool:
        """Return whether the peer has a release: it made it, or the release has arrived."""
        return release in self._held

    def committee(self, release: Release) -> Committee:
        """Return the committee of an admitted release."""
        return self._agreements[release].committee

    @property
    def latest(self) -> dict[Release, MemberRecord]:
        """Latest records, by release, durable or not."""
        return {release: agreement.record for release, agreement in self._agreements.items()}

    def verdict(self, release: Release) -> Value | None:
        """Return the durable verdict on a release; ``None`` before, and while the peer lacks a release that counts."""
        agreement = self._agreements.get(release)
        value = None if agreement is None else agreement.value
        return None if value is None or self._lacks(release, value) else value

    @property
    def missing(self) -> tuple[Fetch, ...]:
        """Copies that this peer lacks, of releases that count, or of which others propose that they count."""
        fetches = []
        for release, agreement in self._agreements.items():
            decided = agreement.record.decided
            if decided is not None and self._lacks(release, decided.value):
                fetches.append(self._fetch(release, decided.value, [vote.member for vote in decided.votes]))
            elif decided is None:
                kept = [each for each in self._kept_back.get(release, ()) if isinstance(each.message, Proposal)]
                wanted = {value for each in kept if (value := _value(each.message)) is not None}
                fetches += [
                    self._fetch(release, value, [each.sender for each in kept if _value(each.message) == value])
                    for value in sorted(wanted, key=repr)
                ]
        return tuple(each for each in fetches if each.holders)

    def _fetch(self, release: Release, value: Value, holders: Collection[str]) -> Fetch:
        return Fetch(release, value, tuple(sorted({*holders} - {self.me, release.peer})))

    def _of(self, peer: str) -> list[Release]:
        return [release for release in self._agreements if release.peer == peer]

    def _lacks(self, release: Release, value: Value) -> bool:
        """Return whether this peer mixes the copy of a release that a verdict names, and does not have it."""
        return value != DROPPED and release in self._mixed and value not in self._held.get(release, ())

    def _keep_back(self, release: Release, received: MessageReceived) -> None:
        """Hold the members' last messages until the copy of the release that they count arrives."""
        kept = self._kept_back.setdefault(release, [])
        kept[:] = [each for each in kept if _kind(each) != _kind(received)] + [received]

    def _do(self, release: Release, *events: Event, now: float) -> list[Effect]:
        """Pass events to the agreement on a release."""
        effects: list[Effect] = []
        for event in events:
            for effect in self._agreements[release].handle(event, now=now):
                match effect:
                    case StoreRecord(record):
                        effects.append(Write(release, record))
                    case ValueDecided():
                        self._kept_back.pop(release, None)
                    case _:
                        effects.append(effect)
        return effects


def _value(message: Message) -> Value | None:
    """Return the value that a vote or a proposal is for."""
    return message.value if isinstance(message, Vote | Proposal) else None


def _kind(received: MessageReceived) -> tuple[str, type[Message], bool]:
    """Return what a later message takes the place of: its sender, and what it states."""
    message = received.message
    return received.sender, type(message), isinstance(message, Vote) and message.final
