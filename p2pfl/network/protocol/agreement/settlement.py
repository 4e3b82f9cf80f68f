"""Agreements of one peer on the reports of one attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from p2pfl.network.protocol.agreement.agreement import Agreement, Sign, empty_signature
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Contradicted,
    Doubt,
    Event,
    MemberRecord,
    MessageReceived,
    Propose,
    RecordStored,
    Send,
    StoreRecord,
    TickAt,
    TimePassed,
)
from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Committee,
    Message,
    Prepare,
    Release,
    Value,
)


@dataclass(frozen=True)
class Write:
    """Instruction to make the record of a release durable; a call of ``Settlement.finish_write`` follows."""

    release: Release
    record: MemberRecord


Effect = Write | Send | Contradicted | TickAt


@dataclass
class Settlement:
    """Agreements on the reports of an attempt at a round; :meth:`admit` adds one.

    Parameters
    ----------
    me
        Name of the peer.
    pause, sign, incarnation
        See :class:`~p2pfl.network.protocol.agreement.agreement.Agreement`.

    Examples
    --------
    With the vote of Ada for her report, and that of Bob, a majority of three has voted.

    >>> from p2pfl.network.protocol.wire.verdict_messages import Vote
    >>> hers = Release("ada", 0, 0, 0)
    >>> committee, bob = Committee(("ada", "bob", "eve"), owner="ada"), Settlement("bob")
    >>> bob.admit(hers, committee)
    >>> vote = Vote(hers, "ada", committee.first, b"complete")
    >>> [type(effect).__name__ for effect in bob.receives("ada", vote, now=0.0)]
    ['Write']
    >>> [type(effect).__name__ for effect in bob.finish_write(hers, now=0.0)]
    ['Send', 'Send', 'Write']
    >>> bob.finish_write(hers, now=0.0), bob.verdict(hers)
    ([], b'complete')
    """

    me: str
    pause: float = 1.0
    sign: Sign = field(default=empty_signature, repr=False)
    incarnation: int = 0
    _agreements: dict[Release, Agreement] = field(default_factory=dict)
    _doubted: set[Release] = field(default_factory=set)
    _early: dict[Release, dict[str, MessageReceived]] = field(
        default_factory=dict
    )  # requests, until this peer doubts too
    _requests: dict[tuple[Release, str], float] = field(default_factory=dict)  # time of the last one of a member
    _repeats: dict[tuple[Release, str], float] = field(default_factory=dict)  # the same of requests for ballot 0

    def admit(self, release: Release, committee: Committee, *, record: MemberRecord = BLANK) -> None:
        """Add an agreement, with the record that an earlier incarnation of the peer has kept of it."""
        if release not in self._agreements:
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

    # ------------------------------------------------------------------ events

    def releases(self, release: Release, value: Value, *, now: float) -> list[Effect]:
        """Vote for the peer's own report."""
        return self._do(release, Propose(value), now=now)

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
        if release in self._doubted or self._agreements[release].record.decided is not None:
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

    def committee(self, release: Release) -> Committee:
        """Return the committee of an admitted release."""
        return self._agreements[release].committee

    @property
    def latest(self) -> dict[Release, MemberRecord]:
        """Latest records, by release, durable or not."""
        return {release: agreement.record for release, agreement in self._agreements.items()}

    def verdict(self, release: Release) -> Value | None:
        """Return the durable verdict on a report; ``None`` before."""
        agreement = self._agreements.get(release)
        return None if agreement is None else agreement.value

    def _of(self, peer: str) -> list[Release]:
        return [release for release in self._agreements if release.peer == peer]

    def _do(self, release: Release, *events: Event, now: float) -> list[Effect]:
        """Pass events to the agreement on a release."""
        effects: list[Effect] = []
        for event in events:
            for effect in self._agreements[release].handle(event, now=now):
                match effect:
                    case StoreRecord(record):
                        effects.append(Write(release, record))
                    case _:
                        effects.append(effect)
        return effects
