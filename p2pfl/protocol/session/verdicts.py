"""Verdicts on the releases of a round, and keys of masks whose other half was dropped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from p2pfl.errors import DecodeError
from p2pfl.protocol.agreement.effects import BLANK, Contradicted, Record, Send, WakeAt
from p2pfl.protocol.agreement.messages import (
    COUNTED,
    DROPPED,
    Ballot,
    Committee,
    Prepare,
    Promise,
    Release,
    Vote,
)
from p2pfl.protocol.agreement.settlement import Effect, Settlement, Write
from p2pfl.protocol.agreement.translation import VerdictRecord, read, release_of, sent, sent_vote
from p2pfl.protocol.incoming.equivocation import Proof
from p2pfl.protocol.session.effects import Decided, Disclosed, Undecided
from p2pfl.protocol.session.events import Decide, Disclose
from p2pfl.protocol.session.neighbours import Neighbours
from p2pfl.protocol.session.shared import PULSE, Shared
from p2pfl.protocol.session.statements import Statements
from p2pfl.protocol.wire.rows import Parsed
from p2pfl.protocol.wire.trailer import Said
from p2pfl.protocol.wire.verdicts import BATCH, Halves, OfVerdicts, Votes

PLACE = "account"
"""Topic of votes and keys for all neighbours."""

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
    proofs: dict[str, Proof] = field(default_factory=dict)
    """By member that has signed statements that contradict each other, the proof."""
    _rounds: dict[int, Settlement] = field(default_factory=dict)
    _kept: dict[Release, Record] = field(default_factory=dict)  # of an earlier incarnation
    _now: int = 0  # latest round that this peer has begun, released in or decided
    _queue: list[Release] = field(default_factory=list)  # with records to store
    _writing: list[Release] | None = None
    _wake: float = math.inf
    _asked: Decide | None = None
    _needed: tuple[Release, ...] = ()
    _decided: int = -1  # latest round that this peer has begun to decide
    _since: float = 0.0
    _regular: dict[str, int] = field(default_factory=dict)  # peers that counted last, and their incarnations
    _masked: dict[int, frozenset[str]] = field(default_factory=dict)  # by round, mask partners of the own release
    _own: dict[int, dict[str, bytes]] = field(default_factory=dict)  # by round, the keys that this peer has published
    _halves: dict[tuple[int, str, int], dict[str, bytes]] = field(default_factory=dict)  # by round and incarnation
    _delivered: dict[tuple[int, str], Vote] = field(default_factory=dict)  # that came with releases
    _disclosing: Disclose | None = None
    _reported: float = 0.0
    _again: float = math.inf  # time to request votes that may be lost
    _statements: Statements = field(init=False)

    def __post_init__(self) -> None:
        self._statements = Statements(self.shared)

    # ------------------------------------------------------------------ records

    def restore(self, kept: Iterable[VerdictRecord]) -> None:
        """Continue with the records of an earlier incarnation of this peer."""
        self._kept = {each.release: each.read() for each in kept}
        voted = [release.round for release, record in self._kept.items() if record.voted or record.decided]
        self._now = max(voted, default=0)  # promises do not matter here, because anybody can ask for them

    def begin(self, first: int) -> None:
        """Note the first round that this peer plays, before it releases in it."""
        self._now = first

    def records(self) -> tuple[VerdictRecord, ...]:
        """Return the records to make durable, in order."""
        found = {release: record for release, record in self._kept.items() if release.round >= self._now - REACH}
        for settlement in self._rounds.values():
            found |= settlement.latest
        return tuple(VerdictRecord.of(release, record) for release, record in sorted(found.items()) if record != BLANK)

    def stored(self) -> None:
        """Continue with the releases whose records are durable."""
        written, self._writing = self._writing or [], None
        effects: list[Effect] = []
        for release in written:
            if release.round in self._rounds:
                effects += self._rounds[release.round].stored(release, now=self.shared.now)
        self._do(effects)
        self._write()

    # ------------------------------------------------------------------ requests of the peer

    def release(self, round: int) -> bytes | None:
        """Vote for the release that this peer is about to send.

        Return the signature of the vote, which leaves with the release; ``None`` if the release may not be sent.
        """
        self._begin(round)
        own = self._release(self.shared.me.peer, self.shared.me.incarnation, round)
        self._do(self._rounds[round].releases(own, now=self.shared.now))
        self._write()
        vote = self._rounds[round].leaves_with(own)
        return None if vote is None else sent_vote(vote).signature

    def ask(self, asked: Decide) -> None:
        """Begin to wait for the verdicts of a round."""
        shared = self.shared
        self._begin(asked.round)
        self._asked, self._since, self._decided = asked, shared.now, asked.round
        self._again = shared.now + PULSE
        self._masked[asked.round] = frozenset(asked.masked)
        held = {peer: self._life(peer, asked.round) for peer in asked.held}
        pairs = {(shared.me.peer, shared.me.incarnation), *asked.masked.items(), *held.items(), *self._regular.items()}
        self._needed = tuple(self._release(peer, incarnation, asked.round) for peer, incarnation in sorted(pairs))
        settlement, doubted = self._rounds[asked.round], set[str]()
        for release in self._needed:
            vote = self._delivered.get((asked.round, release.peer))
            if vote is not None and vote.subject == release and release.peer in held:
                self._do(settlement.holds(vote, now=shared.now))
            elif release.peer != shared.me.peer:
                doubted.add(release.peer)
        for peer in sorted(doubted):
            self._do(settlement.doubts(peer, now=shared.now))
        for release in filter(self._idle, settlement.admitted):
            self._do(settlement.answers(release, now=shared.now))
        self._write()

    def disclose(self, asked: Disclose) -> None:
        """Publish the keys of this peer's masks, and begin to wait for those of neighbours."""
        self._disclosing, self._since, self._reported = asked, self.shared.now, self.shared.now
        self._own[asked.round] = dict(asked.keys)
        self.shared.publish(PLACE, self._keys(asked.round, asked.keys))

    def vote_of(self, sender: str, model: Parsed) -> Vote | None:
        """Return a neighbour's vote for its release, which came with it; ``None`` if there is none, or not its own."""
        hello = self.shared.membership.up.get(sender)
        if not model.vote or hello is None:
            return None
        release = Release(sender, hello.incarnation, model.head.round, 0)
        vote = Vote(release, sender, Ballot(0, sender), COUNTED, model.vote, hello.incarnation)
        return vote if self._statements.signed(vote) else None

    def takes(self, vote: Vote | None) -> bool:
        """Return whether a release that arrived late may be applied: without its owner's vote, it never counts."""
        return vote is not None or self._asked is None

    def delivered(self, vote: Vote) -> None:
        """Note the owner's vote for a release that has arrived."""
        release = release_of(vote)
        if abs(release.round - self._now) <= REACH:
            self._delivered.setdefault((release.round, release.peer), vote)

    def arrived(self, vote: Vote) -> None:
        """Note the owner's vote for a release that arrived late and was applied."""
        self.delivered(vote)
        asked, release = self._asked, release_of(vote)
        if asked is not None and asked.round == release.round:
            self._release(*release[:3])
            self._needed = tuple(sorted({*self._needed, release}))
            self._do(self._rounds[release.round].holds(vote, now=self.shared.now))
            self._write()

    def _life(self, peer: str, round: int) -> int:
        """Return the incarnation of a neighbour that released in a round; its present one if nothing has arrived."""
        vote = self._delivered.get((round, peer))
        return self.shared.membership.up[peer].incarnation if vote is None else release_of(vote).incarnation

    def _keys(self, round: int, keys: Mapping[str, bytes], wanting: tuple[str, ...] = ()) -> Halves:
        return Halves(round, dict(keys), wanting, self.shared.me.incarnation)

    # ------------------------------------------------------------------ incoming messages

    def receive(self, sender: str, message: OfVerdicts) -> None:
        """Handle a message of another member.

        Raises
        ------
        DecodeError
            The message contains a statement that its member has not signed, or concerns a peer that this one has no
            part in.
        """
        if isinstance(message, Halves):
            self._receive_halves(sender, message)
            return
        for each in read(message, sender=sender):
            release = release_of(each)
            if self._welcome(release):
                settlement = self._rounds[release.round]
                if settlement.latest[release].decided is None:
                    self._statements.check(each, committee=settlement.committee(release))
                if isinstance(each, Prepare) and self._idle(release):
                    self._do(settlement.answers(release, now=self.shared.now))
                self._do(settlement.receives(sender, each, now=self.shared.now))
        self._write()

    def _idle(self, release: Release) -> bool:
        """Return whether this peer does not wait for a release: it has no part in the round, or decides without it."""
        first = self.shared.first
        if first is None or release.round < first or release.round < self._decided:
            return True
        return release.round == self._decided and release not in self._needed

    def _receive_halves(self, sender: str, message: Halves) -> None:
        around = {*self.shared.edges.topology.union.neighbours(sender)}
        if not {*message.keys} <= around or any(len(key) not in (0, 32) for key in message.keys.values()):
            raise DecodeError(f'expected keys of masks of "{sender}", got others')
        if abs(message.round - self._now) > REACH:
            return
        if message.incarnation not in (
            self._life(sender, message.round),
            self.shared.membership.up[sender].incarnation,
        ):
            raise DecodeError(f'expected keys of the incarnation of "{sender}" that released, got those of another one')
        known = self._halves.setdefault((message.round, sender, message.incarnation), {})
        known |= message.keys | known  # the first key counts
        own, masked = self._own.get(message.round, {}), self._masked.get(message.round)
        found = {peer: own[peer] for peer in message.wanting if peer in own}
        if masked is not None:
            found |= {peer: b"" for peer in message.wanting if peer not in masked and peer not in own}
        if found:
            self.shared.publish(f"in/{sender}", self._keys(message.round, found))

    def _welcome(self, release: Release) -> bool:
        """Return whether this peer votes on a release, and admit it."""
        shared, peer = self.shared, release.peer
        me = shared.me.peer
        if peer != me and peer not in shared.edges.topology.union.neighbours(me):
            raise DecodeError(f'"{me}" is not on the committee of "{peer}"')
        latest = shared.me if peer == me else shared.membership.up.get(peer)
        if latest is None or release.incarnation > latest.incarnation or abs(release.round - self._now) > REACH:
            return False
        settlement = self._settlement(release.round)
        if release in settlement.admitted:
            return True
        known = self._known(peer, release.round)
        strange = sum(each.peer == peer and each.incarnation not in known for each in settlement.admitted)
        if release.incarnation not in known and strange >= LIVES:
            return False
        self._release(*release[:3])
        return True

    def _known(self, peer: str, round: int) -> frozenset[int]:
        """Return the incarnations of a peer that can have released in a round, as far as this peer knows of them.

        Requests about others cannot use up the room for these. A peer that restarts knows of the last incarnations
        only, so it votes on some others as well.
        """
        if peer == self.shared.me.peer:
            return frozenset({self.shared.me.incarnation})
        known = {self.shared.membership.up[peer].incarnation, self._life(peer, round), self._regular.get(peer, -1)}
        return frozenset(known)

    # ------------------------------------------------------------------ decisions

    @property
    def waits(self) -> frozenset[str]:
        """Peers whose releases, or keys, this peer waits for."""
        if self._asked is not None:
            return frozenset(release.peer for release in self._undecided())
        return frozenset(sender for sender, _ in self._lacking())

    @property
    def active(self) -> bool:
        """True if the peer waits for verdicts or keys."""
        return self._asked is not None or self._disclosing is not None

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        deadline = self._since + self.shared.patience
        if self._asked is not None:
            slow = self._since + SLOW
            return min(self._wake, deadline, self._again, slow if self.shared.now < slow else deadline)
        return min(self._reported + PULSE, deadline)

    def decide(self) -> None:
        """Answer if all verdicts or keys are there, or the timeout has passed."""
        if self._asked is not None:
            self._tick()
            self._judge(self._asked)
        elif self._disclosing is not None:
            self._gather(self._disclosing)

    def _tick(self) -> None:
        """Begin the ballots that are due."""
        assert self._asked is not None  # noqa: S101 (set while this is called)
        settlement, now = self._rounds[self._asked.round], self.shared.now
        if now >= self._wake:
            self._wake = math.inf
            self._do(settlement.tick(now=now))
        if now >= self._again:
            self._request(settlement)
        if now >= self._since + SLOW:
            for release in self._undecided():
                self._do(settlement.doubts(release.peer, now=now))
        self._write()

    def _request(self, settlement: Settlement) -> None:
        """Request the votes on releases that this peer has and that are not decided, after pauses that double."""
        now = self.shared.now
        self._again = now + max(PULSE, now - self._since)
        for release in filter(settlement.held, self._undecided()):
            self.shared.publish(PLACE, sent(Prepare(release, Ballot(0, self.shared.me.peer))))

    def _judge(self, asked: Decide) -> None:
        undecided = self._undecided()
        if not undecided:
            self._asked = None
            verdicts = {release: self._rounds[asked.round].verdict(release) for release in self._needed}
            dropped = [release for release, verdict in verdicts.items() if verdict == DROPPED]
            counted = [release for release, verdict in verdicts.items() if verdict != DROPPED]
            me = self.shared.me.peer
            self._regular = {release.peer: release.incarnation for release in counted if release.peer != me}
            self._part(dropped)
            now = {release.peer for release in counted}
            self.shared.do(Decided(frozenset(release.peer for release in dropped) - now))
        elif self.shared.now >= self._since + self.shared.patience:
            self._asked = None
            self.shared.do(Undecided(frozenset(release.peer for release in undecided)))

    def _part(self, dropped: list[Release]) -> None:
        """Treat the owners of dropped releases as gone until they begin another incarnation."""
        membership = self.shared.membership
        for release in dropped:
            hello = membership.up.get(release.peer)
            if hello is not None and hello.incarnation == release.incarnation:
                membership.gone.add(release.peer)
                membership.lost.discard(release.peer)
                membership.returning.discard(release.peer)
                self.neighbours.part(release.peer)

    def _undecided(self) -> list[Release]:
        if self._asked is None:
            return []
        settlement = self._rounds[self._asked.round]
        return [release for release in self._needed if settlement.verdict(release) is None]

    def _lacking(self) -> list[tuple[str, str]]:
        asked = self._disclosing
        if asked is None:
            return []
        return sorted(pair for pair in asked.awaited if pair[1] not in self._received(asked.round, pair[0]))

    def _received(self, round: int, sender: str) -> Mapping[str, bytes]:
        """Return the keys of the masks in a neighbour's release of a round, as far as they have arrived."""
        return self._halves.get((round, sender, self._life(sender, round)), {})

    def _gather(self, asked: Disclose) -> None:
        lacking, now = self._lacking(), self.shared.now
        gone = {sender for sender, _ in lacking} - self.shared.membership.present
        if not lacking:
            self._disclosing = None
            keys = {(sender, peer): self._received(asked.round, sender)[peer] for sender, peer in asked.awaited}
            self.shared.do(Disclosed(keys))
        elif gone or now >= self._since + self.shared.patience:
            self._disclosing = None
            self.shared.do(Undecided(frozenset(gone or {sender for sender, _ in lacking})))
        elif now >= self._reported + PULSE:
            self._reported = now
            for sender in sorted({sender for sender, _ in lacking}):
                wanting = tuple(peer for each, peer in lacking if each == sender)
                self.shared.publish(f"in/{sender}", self._keys(asked.round, asked.keys, wanting))

    # ------------------------------------------------------------------ agreements

    def _begin(self, round: int) -> None:
        """Continue with a round, and forget what nobody asks about any more."""
        self._now = max(self._now, round)
        oldest = self._now - REACH
        self._settlement(round)
        self._rounds = {each: found for each, found in self._rounds.items() if each >= oldest}
        self._kept = {release: record for release, record in self._kept.items() if release.round >= oldest}
        self._halves = {place: keys for place, keys in self._halves.items() if place[0] >= oldest}
        self._delivered = {place: vote for place, vote in self._delivered.items() if place[0] >= oldest}
        self._own = {each: keys for each, keys in self._own.items() if each >= oldest}
        self._masked = {each: peers for each, peers in self._masked.items() if each >= oldest}

    def _settlement(self, round: int) -> Settlement:
        if round not in self._rounds:
            me = self.shared.me
            self._rounds[round] = Settlement(me.peer, {}, sign=self._statements.sign, incarnation=me.incarnation)
            for release in [each for each in self._kept if each.round == round]:
                self._release(*release[:3])
        return self._rounds[round]

    def _release(self, peer: str, incarnation: int, round: int) -> Release:
        """Return a release, whose agreement is open from now on."""
        release = Release(peer, incarnation, round, 0)
        settlement = self._settlement(round)
        if release not in settlement.admitted:
            members = tuple(sorted({peer, *self.shared.edges.topology.union.neighbours(peer)}))
            settlement.admit(release, Committee(members, owner=peer), record=self._kept.pop(release, BLANK))
        return release

    def _do(self, effects: list[Effect]) -> None:
        """Carry out what agreements decide: votes of the first ballot go to all neighbours in one message."""
        votes: dict[Release, Vote] = {}
        for effect in effects:
            match effect:
                case Write(release):
                    self._queue.append(release)
                case Send(_, Vote() as vote, prompt=False):  # to all; the owner's leaves with its release
                    if release_of(vote).peer != self.shared.me.peer:
                        votes[release_of(vote)] = vote
                case Send(to, message):
                    self.shared.publish(f"in/{to}", sent(message))
                case WakeAt(when):
                    self._wake = min(self._wake, when)
                case Contradicted(one, other) if one.member in self.shared.membership.up:
                    self._contradicted(one, other)
        self._publish(votes)

    def _contradicted(self, one: Vote, other: Vote | Promise) -> None:
        """Exclude a member that lied, and keep the proof; one that forgot is only not believed.

        Statements that arrive after a verdict have not been checked yet.
        """
        if not (self._statements.signed(one) and self._statements.signed(other)):
            self.shared.refuse(one.member, "not signed")
            return
        if one.incarnation != other.incarnation:
            self.shared.refuse(one.member, "forgot its vote")
            return
        first, second = (Said(self._statements.text(each.statement), each.signature) for each in (one, other))
        if self.shared.codec.identity is not None:
            self.proofs.setdefault(one.member, Proof(first, second, "vote"))
        self.neighbours.exclude(one.member)

    def _publish(self, votes: Mapping[Release, Vote]) -> None:
        many = [sent_vote(vote) for _, vote in sorted(votes.items())]
        for start in range(0, len(many), BATCH):
            self.shared.publish(PLACE, Votes(tuple(many[start : start + BATCH])))

    def _write(self) -> None:
        """Store all records that have changed, after the write in progress."""
        if self._queue and self._writing is None:
            self._writing, self._queue = self._queue, []
            self.shared.store("verdicts")
