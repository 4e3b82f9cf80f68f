"""One peer's agreements on the releases of one round, and what follows once all of them are decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from p2pfl.protocol.agreement.agreement import Agreement, Sign, unsigned
from p2pfl.protocol.agreement.effects import (
    BLANK,
    Contradicted,
    Decided,
    Doubt,
    Event,
    Propose,
    Received,
    Record,
    Send,
    Store,
    Stored,
    Tick,
    WakeAt,
)
from p2pfl.protocol.agreement.messages import COUNTED, DROPPED, Committee, Decision, Message, Release, Vote

Departures = Literal["go_on", "wait", "stop"]
"""What survivors do once a release is dropped."""


@dataclass(frozen=True)
class Write:
    """Make the record of one release durable; ``Settlement.stored`` with the release follows."""

    release: Release
    record: Record


@dataclass(frozen=True)
class Fetch:
    """Ask a member for a copy of a release that it has voted for."""

    release: Release
    holder: str


@dataclass(frozen=True)
class Continue:
    """The round is settled: train, save and score.

    Attributes
    ----------
    counted
        Releases whose owners are gone, and that count; in the order of their names.
    """

    counted: tuple[Release, ...] = ()


@dataclass(frozen=True)
class Repair:
    """Remove what was exchanged with the owners of these releases, and their halves of masks under fresh masks."""

    dropped: tuple[Release, ...]


@dataclass(frozen=True)
class Restore:
    """Go back to the parameters from before the round, and play it again with all owners or not at all."""

    dropped: tuple[Release, ...]


Outcome = Continue | Repair | Restore
Effect = Write | Fetch | Send | Contradicted | WakeAt | Outcome


@dataclass
class Settlement:
    """The releases of one round in whose committees a peer is.

    Parameters
    ----------
    me
        Its name.
    committees
        By release.
    mixed
        The releases that the peer mixes, or that it substitutes the owner of: it needs the parameters themselves.
    departures
        What to do once a release is dropped.
    partners
        The peer's mask partners of the round.
    least
        How many living partners the peer needs for a repair.
    records
        Of an earlier incarnation.
    pause, sign
        As of :class:`~p2pfl.protocol.agreement.agreement.Agreement`.

    Examples
    --------
    Bob holds Ada's release; with her vote and his own, a majority of three has voted.

    >>> hers = Release("ada", 7, 0, 0)
    >>> committees = {hers: Committee(("ada", "bob", "eve"), owner="ada")}
    >>> bob = Settlement("bob", committees, mixed=[hers], departures="go_on", partners=["ada", "eve"], least=1)
    >>> vote = Vote(hers, "ada", committees[hers].first, COUNTED)
    >>> [type(effect).__name__ for effect in bob.holds(vote, now=0.0)]
    ['Write']
    >>> [type(effect).__name__ for effect in bob.stored(hers, now=0.0)]
    ['Send', 'Send', 'Write']
    >>> bob.stored(hers, now=0.0)
    [Continue(counted=())]
    """

    me: str
    committees: Mapping[Release, Committee]
    mixed: Collection[Release] = ()
    departures: Departures = "wait"
    partners: Collection[str] = ()
    least: int = 1
    records: Mapping[Release, Record] = field(default_factory=dict)
    pause: float = 1.0
    sign: Sign = field(default=unsigned, repr=False)
    outcome: Outcome | None = None
    """What follows; ``None`` until the round is settled."""
    _agreements: dict[Release, Agreement] = field(default_factory=dict)
    _held: set[Release] = field(default_factory=set)
    _doubted: set[Release] = field(default_factory=set)
    _kept_back: dict[Release, list[Received]] = field(default_factory=dict)  # until the release is here

    def __post_init__(self) -> None:
        for release, committee in sorted(self.committees.items(), key=lambda each: each[0]):
            record = self.records.get(release, BLANK)
            self._agreements[release] = Agreement(
                self.me, release, committee, DROPPED, record, pause=self.pause, sign=self.sign
            )

    # ------------------------------------------------------------------ events

    def releases(self, release: Release, *, now: float) -> list[Effect]:
        """Vote for the peer's own release; it leaves with the vote, once that is durable."""
        self._held.add(release)
        return self._do(release, Propose(COUNTED), now=now)

    def holds(self, vote: Vote, *, now: float) -> list[Effect]:
        """Take note that a release came with its owner's vote, from the owner or as a copy."""
        release = vote.subject
        if not isinstance(release, Release) or release not in self._agreements or release in self._held:
            return []
        self._held.add(release)
        waiting = self._kept_back.pop(release, [])
        return self._do(release, Propose(COUNTED), Received(vote.member, vote), *waiting, now=now)

    def receives(self, sender: str, message: Message, *, now: float) -> list[Effect]:
        """Take a message that the shell has authenticated, with the votes in it."""
        release = message.subject
        if not isinstance(release, Release) or release not in self._agreements:
            return []
        received = Received(sender, message)
        counts = isinstance(message, Vote | Decision) and message.value == COUNTED
        if counts and release in self.mixed and release not in self._held:
            return self._keep_back(release, received)
        return self._do(release, received, now=now)

    def doubts(self, peer: str, *, now: float) -> list[Effect]:
        """Take note that a peer is probably gone: its releases are to be decided without it."""
        effects: list[Effect] = []
        for release in self._of(peer):
            self._doubted.add(release)
            effects += self._do(release, Doubt(), now=now)
        return effects

    def stored(self, release: Release, *, now: float) -> list[Effect]:
        """Take note that the last record of a release is durable."""
        return self._do(release, Stored(), now=now)

    def tick(self, *, now: float) -> list[Effect]:
        """Take note of the time."""
        effects: list[Effect] = []
        for release in self._agreements:
            effects += self._do(release, Tick(), now=now)
        return effects

    # ------------------------------------------------------------------ decisions

    @property
    def open(self) -> tuple[Release, ...]:
        """The releases without a verdict here, or that count and are not here."""
        return tuple(
            release
            for release, agreement in self._agreements.items()
            if agreement.value is None or (agreement.value == COUNTED and self._lacks(release))
        )

    @property
    def missing(self) -> tuple[Fetch, ...]:
        """Whom to ask for releases that count and were lost in a crash."""
        found = []
        for release, agreement in self._agreements.items():
            decided = agreement.record.decided
            if agreement.value == COUNTED and decided is not None and self._lacks(release):
                found += [Fetch(release, vote.member) for vote in decided.votes if vote.member != self.me]
        return tuple(found)

    def _of(self, peer: str) -> list[Release]:
        return [release for release in self._agreements if release.peer == peer]

    def _lacks(self, release: Release) -> bool:
        return release in self.mixed and release not in self._held

    def _keep_back(self, release: Release, received: Received) -> list[Effect]:
        """Keep the last message of each member until the release is here, and ask for it; the owner sends it anyway."""
        kept = self._kept_back.setdefault(release, [])
        kept[:] = [each for each in kept if each.sender != received.sender] + [received]
        return [] if received.sender == release.peer else [Fetch(release, received.sender)]

    def _do(self, release: Release, *events: Event, now: float) -> list[Effect]:
        """Have the agreement on a release take events, and see whether the round is settled."""
        effects: list[Effect] = []
        for event in events:
            for effect in self._agreements[release].handle(event, now=now):
                match effect:
                    case Store(record):
                        effects.append(Write(release, record))
                    case Decided():
                        self._kept_back.pop(release, None)
                    case _:
                        effects.append(effect)
        if self.outcome is None and not self.open:
            self.outcome = self._outcome()
            effects.append(self.outcome)
        return effects

    def _outcome(self) -> Outcome:
        verdicts = {release: agreement.value for release, agreement in self._agreements.items()}
        dropped = tuple(release for release, verdict in verdicts.items() if verdict == DROPPED)
        if not dropped:
            return Continue(tuple(release for release in verdicts if release in self._doubted))
        living = {*self.partners} - {release.peer for release in dropped}
        mine = any(release.peer == self.me for release in dropped)
        enough = len(living) >= min(self.least, len({*self.partners}))
        return Repair(dropped) if self.departures == "go_on" and enough and not mine else Restore(dropped)
