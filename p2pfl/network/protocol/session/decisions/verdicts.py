"""Verdicts on the releases of a round, and keys of masks whose other half was dropped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.agreement_effects import VerdictRecord
from p2pfl.network.protocol.agreement.proofs import contradict
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.interface.effects import Decided, Undecided
from p2pfl.network.protocol.interface.requests import Decide, Disclose
from p2pfl.network.protocol.session.decisions.ballots import Ballots
from p2pfl.network.protocol.session.decisions.copies import Copies
from p2pfl.network.protocol.session.decisions.mask_keys import MaskKeys
from p2pfl.network.protocol.session.decisions.signed_statements import PLACE
from p2pfl.network.protocol.session.neighbour_changes import Neighbours
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Agreed,
    Ballot,
    Contradiction,
    Copy,
    Halves,
    OfVerdicts,
    Prepare,
    Release,
    Value,
    Vote,
    Wanted,
    messages_of,
)
from p2pfl.network.protocol.wire.wire_rows import Parsed

SLOW = 3 * PULSE
"""Seconds after which this peer begins a ballot on a release that it holds, because votes may be lost."""

REACH = 2
"""Rounds before and after the current one of which messages are accepted."""

LIVES = 4
"""Incarnations of one peer that this peer does not know, and on whose releases of one round it still votes."""


@dataclass
class Verdicts:
    """Agreements on the releases of this peer and its neighbours, by round.

    The graph is complete, so that all peers are on each committee, and on the same ones.
    """

    shared: Shared
    neighbours: Neighbours
    _now: int = 0  # latest round that this peer has begun, released in or decided
    _asked: Decide | None = None
    _needed: tuple[Release, ...] = ()
    _decided: int = -1  # latest round that this peer has begun to decide
    _since: float = 0.0
    _regular: dict[str, int] = field(default_factory=dict)  # peers that counted last, and their incarnations
    _taking: dict[str, int] = field(default_factory=dict)  # peers that may release next, and their incarnations
    _again: float = math.inf  # time to request votes that may be lost
    _applied: dict[Release, Value] = field(default_factory=dict)  # copies that this peer has mixed
    _listed: set[tuple[Release, Value]] = field(default_factory=set)  # copies whose mask partners are needed
    ballots: Ballots = field(init=False)
    copies: Copies = field(init=False)
    keys: MaskKeys = field(init=False)

    def __post_init__(self) -> None:
        self.ballots = Ballots(self.shared, self.neighbours, "verdicts")
        self.copies = Copies(self.shared, self.ballots.statements, piece=self.neighbours.streams.chunk)
        self.keys = MaskKeys(self.shared, self.copies)

    # ------------------------------------------------------------------ records

    def restore(self, kept: Iterable[VerdictRecord]) -> None:
        """Continue with the records of an earlier incarnation of this peer."""
        self._now = self.ballots.restore(kept)

    def begin(self, first: int) -> None:
        """Note the first round that this peer plays, before it releases in it."""
        self._now = first
        membership = self.shared.membership
        self._taking |= {peer: membership.up[peer].incarnation for peer in membership.present}

    def records(self) -> tuple[VerdictRecord, ...]:
        """Return the records to make durable, in order."""
        return self.ballots.records(oldest=self._now - REACH)

    # ------------------------------------------------------------------ requests of the peer

    def release(self, round: int, digest: bytes) -> bytes | None:
        """Vote for the release that this peer is about to send.

        Return the signature of the vote, which leaves with the release; ``None`` if the release may not be sent.
        """
        self._begin(round)
        own = self._release(self.shared.me.peer, self.shared.me.incarnation, round)
        self.ballots.do(self.ballots.open[round, 0].releases(own, digest, now=self.shared.now))
        self.ballots.write()
        vote = self.ballots.open[round, 0].leaves_with(own)
        return None if vote is None else vote.signature

    def ask(self, asked: Decide) -> None:
        """Begin to wait for the verdicts of a round."""
        shared = self.shared
        self._begin(asked.round)
        self._asked, self._since, self._decided = asked, shared.now, asked.round
        self._again = shared.now + PULSE
        shared.active.add("verdicts")
        shared.ledgers.flows.decide(shared.mailbox.gossip_step)
        self.keys.begin(asked.round, asked.masked)
        arrived = {peer: self.copies.incarnation(peer, asked.round) for peer in asked.held}
        pairs = {
            (shared.me.peer, shared.me.incarnation),
            *asked.masked.items(),
            *arrived.items(),
            *self._regular.items(),
        }
        self._needed = tuple(self._release(peer, incarnation, asked.round) for peer, incarnation in sorted(pairs))
        self._listed.clear()
        settlement, doubted = self.ballots.open[asked.round, 0], set[str]()
        for release in self._needed:
            vote = self.copies.first(release.peer, asked.round)
            if vote is not None and vote.subject == release and release.peer in arrived:
                self._applied[release] = vote.value
                self.ballots.do(settlement.holds(vote, now=shared.now))
            elif release.peer != shared.me.peer:
                doubted.add(release.peer)
        for peer in sorted(doubted):
            self.ballots.do(settlement.doubts(peer, now=shared.now))
        for release in filter(self._idle, settlement.admitted):
            self.ballots.do(settlement.answers(release, now=shared.now))
        self.ballots.write()

    def disclose(self, asked: Disclose) -> None:
        """Publish the keys of this peer's masks, and begin to wait for those of neighbours."""
        self.shared.active.add("verdicts")
        self.keys.disclose(asked)

    def takes(self, vote: Vote | None) -> bool:
        """Return whether a release that arrived late may be applied: without its owner's vote, it never counts."""
        return vote is not None or self._asked is None

    def deliver(self, sender: str, model: Parsed) -> Vote | None:
        """Keep a release that has arrived, and return its owner's vote; ``None`` if there is none, or not its own."""
        announcement = self.shared.membership.up.get(sender)
        peers = self.shared.edges.topology.peers
        if (
            not model.vote
            or announcement is None
            or not {*model.partners} <= {*range(len(peers))} - {peers.index(sender)}
        ):
            return None
        vote = self.copies.vote_of(Release(sender, announcement.incarnation, model.head.round, 0), model)
        if vote is not None and abs(model.head.round - self._now) <= REACH:
            first = self.copies.keep(vote, model)
            if contradict(first, vote):
                self.ballots.exclude_contradictor(first, vote)
        return vote

    def note_late_release(self, vote: Vote) -> None:
        """Note that a release arrived late and was applied."""
        asked, release = self._asked, vote.subject
        if asked is not None and asked.round == release.round:
            self._release(*release[:3])
            self._needed = tuple(sorted({*self._needed, release}))
            self._applied[release] = vote.value
            self.ballots.do(self.ballots.open[release.round, 0].holds(vote, now=self.shared.now))
            self.ballots.write()

    # ------------------------------------------------------------------ incoming messages

    def receive(self, sender: str, message: OfVerdicts) -> None:
        """Handle a message of another member.

        Raises
        ------
        DecodeError
            The message contains a statement that its member has not signed, or concerns a peer that this one has no
            part in.
        """
        match message:
            case Halves():
                self.keys.receive(sender, message, near=abs(message.round - self._now) <= REACH)
            case Contradiction(one, other):
                self.ballots.accuse(one, other)
            case Wanted():
                self.copies.serve(sender, message)
            case Copy():
                kept = self.copies.receive(sender, message)
                if kept is not None and (message.round, 0) in self.ballots.open:
                    self.ballots.do(self.ballots.open[message.round, 0].holds(kept.vote, now=self.shared.now))
                    self.ballots.write()
            case _:
                self._receive_statements(sender, message)

    def _receive_statements(self, sender: str, message: Agreed) -> None:
        for each in messages_of(message, sender=sender):
            release = each.subject
            if self._welcome(release):
                settlement = self.ballots.open[release.round, 0]
                if settlement.latest[release].decided is None:
                    self.ballots.statements.check(each, committee=settlement.committee(release))
                if isinstance(each, Prepare) and self._idle(release):
                    self.ballots.do(settlement.answers(release, now=self.shared.now))
                self.ballots.do(settlement.receives(sender, each, now=self.shared.now))
        self.ballots.write()

    def _idle(self, release: Release) -> bool:
        """Return whether this peer does not wait for a release: it has no part in the round, or decides without it."""
        first = self.shared.first
        if first is None or release.round < first or release.round < self._decided:
            return True
        return release.round == self._decided and release not in self._needed

    def _welcome(self, release: Release) -> bool:
        """Return whether this peer votes on a release, and admit it."""
        shared, peer = self.shared, release.peer
        me = shared.me.peer
        if peer != me and peer not in shared.edges.topology.union.neighbours(me):
            raise DecodeError(f'"{me}" is not on the committee of "{peer}"')
        latest = shared.me if peer == me else shared.membership.up.get(peer)
        if (
            release.attempt
            or latest is None
            or release.incarnation > latest.incarnation
            or abs(release.round - self._now) > REACH
        ):
            return False
        settlement = self._settlement(release.round)
        if release in settlement.admitted:
            return True
        incarnations = self._known_incarnations(peer, release.round)
        strange = sum(each.peer == peer and each.incarnation not in incarnations for each in settlement.admitted)
        if release.incarnation not in incarnations and strange >= LIVES:
            return False
        self._release(*release[:3])
        return True

    def _known_incarnations(self, peer: str, round: int) -> frozenset[int]:
        """Return the incarnations of a peer that can have released in a round, as far as this peer knows of them.

        Requests about others cannot use up the room for these. A peer that restarts knows of the last incarnations
        only, so it votes on some others as well.
        """
        if peer == self.shared.me.peer:
            return frozenset({self.shared.me.incarnation})
        incarnations = {
            self.shared.membership.up[peer].incarnation,
            self.copies.incarnation(peer, round),
            self._regular.get(peer, -1),
        }
        return frozenset(incarnations)

    # ------------------------------------------------------------------ decisions

    @property
    def waits(self) -> frozenset[str]:
        """Peers whose releases, or keys, this peer waits for."""
        if self._asked is not None:
            return frozenset(release.peer for release in self._undecided_releases())
        return self.keys.waits

    @property
    def departed(self) -> frozenset[str]:
        """Peers that are gone and may have released in the next round before: they were there, or counted last.

        Those that were restarted since, or excluded, are not among them.
        """
        membership = self.shared.membership
        away = self._taking.keys() - membership.present - membership.excluded
        return frozenset(peer for peer in away if membership.up[peer].incarnation == self._taking[peer])

    @property
    def active(self) -> bool:
        """True if the peer waits for verdicts or keys."""
        return self._asked is not None or self.keys.active

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        deadline = self._since + self.shared.patience
        if self._asked is not None:
            slow = self._since + SLOW
            slow = slow if self.shared.now < slow else deadline
            return min(self.ballots.wake, deadline, self._again, slow, self.copies.wake)
        return self.keys.wake

    def decide(self) -> None:
        """Answer if all verdicts or keys are there, or the timeout has passed."""
        if self._asked is not None:
            self._tick()
            self._judge(self._asked)
        elif self.keys.active:
            self.keys.decide()

    def _tick(self) -> None:
        """Begin the ballots that are due."""
        assert self._asked is not None  # noqa: S101 (set while this is called)
        settlement, now = self.ballots.open[self._asked.round, 0], self.shared.now
        if now >= self.ballots.wake:
            self.ballots.wake = math.inf
            self.ballots.do(settlement.tick(now=now))
        if now >= self._again:
            self._request(settlement)
        if now >= self._since + SLOW:
            for release in self._undecided_releases():
                self.ballots.do(settlement.doubts(release.peer, now=now))
        self._fetch(settlement)
        self.ballots.write()

    def _fetch(self, settlement: Settlement) -> None:
        """Take the copies that are missing from those that have arrived, and request the others."""
        missing = []
        for wanted in settlement.missing:
            kept = self.copies.get(wanted.release, wanted.value)
            if kept is None:
                missing.append(wanted)
            else:
                self.ballots.do(settlement.holds(kept.vote, now=self.shared.now))
        self.copies.fetch(missing)

    def _request(self, settlement: Settlement) -> None:
        """Request the votes on releases that this peer has and that are not decided, after pauses that double."""
        now = self.shared.now
        self._again = now + max(PULSE, now - self._since)
        for release in filter(settlement.has_release, self._undecided_releases()):
            self.shared.publish(PLACE, Prepare(release, Ballot(0, self.shared.me.peer)))

    def _judge(self, asked: Decide) -> None:
        self._widen(asked.round)
        undecided = self._undecided_releases()
        if not undecided:
            self._asked = None
            self._answer(asked.round)
        elif self.shared.now >= self._since + self.shared.patience:
            self._asked = None
            self.shared.do(Undecided(frozenset(release.peer for release in undecided)))

    def _widen(self, round: int) -> None:
        """Wait for the releases of all with which a release that may count is masked: without them, its masks stay.

        They need not be partners of this peer, which may never have met them.
        """
        settlement, peers = self.ballots.open[round, 0], self.shared.edges.topology.peers
        for release in self._needed:
            verdict = settlement.verdict(release)
            value = self._applied.get(release) if verdict is None else verdict
            kept = None if value is None else self.copies.get(release, value)
            if kept is not None and value is not None and (release, value) not in self._listed:
                self._listed.add((release, value))
                partners = kept.model.partners.items()
                self._need(Release(peers[index], each, round, 0) for index, each in partners)

    def _need(self, releases: Iterable[Release]) -> None:
        """Wait for the verdicts on releases that this peer did not expect, and doubt them."""
        new = {*releases} - {*self._needed}
        self._needed = tuple(sorted({*self._needed, *(self._release(*release[:3]) for release in new)}))
        for release in sorted(new):
            self.ballots.do(self.ballots.open[release.round, 0].doubts(release.peer, now=self.shared.now))
        self.ballots.write()

    def _answer(self, round: int) -> None:
        """Answer with the verdicts of a round, after all releases that count are applied as they count."""
        verdicts = {release: self.ballots.open[round, 0].verdict(release) for release in self._needed}
        others = {release: value for release, value in verdicts.items() if release.peer != self.shared.me.peer}
        count = {release: value for release, value in others.items() if value}
        lacking = {release.peer for release, value in count.items() if not self._adopt(release, value)}
        if lacking:
            self.shared.do(Undecided(frozenset(lacking)))
            return
        self._regular = {release.peer: release.incarnation for release in count}
        self._taking = dict(self._regular)
        dropped = [release for release, verdict in verdicts.items() if verdict == DROPPED]
        self._part(dropped)
        now = {release.peer for release, verdict in verdicts.items() if verdict != DROPPED}
        self.shared.do(Decided(frozenset(release.peer for release in dropped) - now))

    def _adopt(self, release: Release, value: Value) -> bool:
        """Apply the copy of a release that counts, in place of another one; return whether it is applied."""
        ledgers, step = self.shared.ledgers, self.shared.mailbox.gossip_step
        if self._applied.get(release) == value and not ledgers.lacks(release.peer, step):
            return True
        kept = self.copies.get(release, value)
        return kept is not None and ledgers.replace(release.peer, kept.delivery)

    def _part(self, dropped: list[Release]) -> None:
        """Treat the owners of dropped releases as gone until they begin another incarnation."""
        membership = self.shared.membership
        for release in dropped:
            announcement = membership.up.get(release.peer)
            if announcement is not None and announcement.incarnation == release.incarnation:
                self.neighbours.leave_out(release.peer)

    def _undecided_releases(self) -> list[Release]:
        if self._asked is None:
            return []
        settlement = self.ballots.open[self._asked.round, 0]
        return [release for release in self._needed if settlement.verdict(release) is None]

    # ------------------------------------------------------------------ agreements

    def _begin(self, round: int) -> None:
        """Continue with a round, and forget what nobody asks about any more."""
        self._now = max(self._now, round)
        oldest = self._now - REACH
        self._settlement(round)
        self.ballots.forget(oldest)
        self.copies.forget(oldest)
        self.keys.forget(oldest)
        self._applied = {release: value for release, value in self._applied.items() if release.round >= oldest}

    def _settlement(self, round: int) -> Settlement:
        settlement = self.ballots.settlement((round, 0))
        for release in self.ballots.waiting_releases((round, 0)):
            self._release(*release[:3])
        return settlement

    def _release(self, peer: str, incarnation: int, round: int) -> Release:
        """Return a release, whose agreement is open from now on."""
        release = Release(peer, incarnation, round, 0)
        self.ballots.admit(release, self.shared.edges.topology.union.neighbours(peer))
        return release
