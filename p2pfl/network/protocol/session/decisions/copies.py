"""Copies of other peers' releases: those that this peer has, and those that it fetches from members that have them.

A release is signed by its owner, so anybody can pass it on, and nobody can change it. A peer that lacks the copy that
counts requests it piece by piece from one holder after another.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.settlement import Fetch
from p2pfl.network.protocol.session.decisions.signed_statements import Statements
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.wire.verdict_messages import Ballot, Copy, Release, Value, Vote, Wanted
from p2pfl.network.protocol.wire.wire_rows import Delivery, Parsed, read_row

BURST = 8
"""Pieces that one request asks for."""

EACH = 2
"""Copies of one release that a peer keeps as they arrive: two that differ prove that the owner is Byzantine."""


@dataclass(frozen=True)
class Kept:
    """Copy of a release with its owner's vote; it never changes, so copies of a session share it."""

    vote: Vote
    model: Parsed

    def __deepcopy__(self, memo: object) -> Kept:
        return self

    @property
    def delivery(self) -> Delivery:
        """Model as a neighbour delivers it."""
        return Delivery(self.model.head, self.model.row)


@dataclass
class Transfer:
    """Copy that arrives in pieces.

    Attributes
    ----------
    value
        Verdict that names the copy.
    holder
        Member from which it comes.
    since
        Time of the last request or piece.
    received
        Bytes so far.
    pieces
        Pieces since the last request.
    moved
        True if a piece has arrived since the last timeout.
    """

    value: Value
    holder: str
    since: float
    received: bytearray = field(default_factory=bytearray)
    pieces: int = 0
    moved: bool = False


@dataclass
class Copies:
    """Copies that a peer keeps for itself and for others.

    Parameters
    ----------
    shared, statements
        State that the parts of the session share, and the check of signatures.
    piece
        Bytes of a piece.
    """

    shared: Shared
    statements: Statements
    piece: int
    _kept: dict[Release, dict[Value, Kept]] = field(default_factory=dict)
    _first: dict[tuple[int, str], Vote] = field(default_factory=dict)  # by round and owner, of the first one to arrive
    _transfers: dict[Release, Transfer] = field(default_factory=dict)
    _missing: frozenset[Release] = frozenset()  # of which a copy is still requested again
    _answered: dict[tuple[Release, str], tuple[int, float]] = field(default_factory=dict)  # last offset, and when

    def vote_of(self, release: Release, model: Parsed) -> Vote | None:
        """Return the owner's vote that came with a release; ``None`` if there is none, or not the owner's."""
        owner, value = release.peer, model.digest
        if not model.vote or model.head.round != release.round:
            return None
        vote = Vote(release, owner, Ballot(0, owner), value, model.vote, release.incarnation)
        return vote if self.statements.has_signed(vote) else None

    def keep(self, vote: Vote, model: Parsed) -> Vote:
        """Keep a copy that has arrived from its owner; return the owner's vote for the first one of the round."""
        release = vote.subject
        copies = self._kept.setdefault(release, {})
        if len(copies) < EACH:
            copies.setdefault(vote.value, Kept(vote, model))
        return self._first.setdefault((release.round, release.peer), vote)

    def first(self, peer: str, round: int) -> Vote | None:
        """Return the vote for the release of a round that has arrived first from a neighbour."""
        return self._first.get((round, peer))

    def incarnation(self, peer: str, round: int) -> int:
        """Return the incarnation of a neighbour that released in a round; its present one if nothing has arrived."""
        vote = self.first(peer, round)
        return self.shared.membership.up[peer].incarnation if vote is None else vote.subject.incarnation

    def get(self, release: Release, value: Value) -> Kept | None:
        """Return the copy that a verdict names, if this peer has it."""
        return self._kept.get(release, {}).get(value)

    def forget(self, oldest: int) -> None:
        """Discard what is of rounds before the oldest one, and the copies of that one, which take most memory."""
        self._first = {key: vote for key, vote in self._first.items() if key[0] >= oldest}
        self._kept = {release: copies for release, copies in self._kept.items() if release.round > oldest}
        self._transfers = {release: each for release, each in self._transfers.items() if release.round >= oldest}
        self._answered = {key: each for key, each in self._answered.items() if key[0].round >= oldest}

    # ------------------------------------------------------------------ fetching

    @property
    def wake(self) -> float:
        """Time at which the next request times out; a copy that is no longer missing is not requested again."""
        running = (self._transfers[release] for release in self._missing & self._transfers.keys())
        return min((each.since + PULSE for each in running), default=math.inf)

    def fetch(self, missing: Collection[Fetch]) -> None:
        """Request the copies that are missing, and no other copy again."""
        self._missing = frozenset(wanted.release for wanted in missing)
        for wanted in missing:
            self._fetch(wanted)

    def _fetch(self, wanted: Fetch) -> None:
        """Request a copy, and after a timeout request it again: from the next holder if nothing has arrived."""
        now, transfer = self.shared.now, self._transfers.get(wanted.release)
        if transfer is None or transfer.value != wanted.value:
            transfer = Transfer(wanted.value, wanted.holders[0], now)
        elif now < transfer.since + PULSE:
            return
        elif not transfer.moved:
            later = [each for each in wanted.holders if each > transfer.holder]
            transfer = Transfer(wanted.value, (later or wanted.holders)[0], now)
        self._transfers[wanted.release] = transfer
        self._request(wanted.release, transfer)

    def _request(self, release: Release, transfer: Transfer) -> None:
        transfer.since, transfer.pieces, transfer.moved = self.shared.now, 0, False
        peer, incarnation, round, _ = release
        wanted = Wanted(peer, incarnation, round, transfer.value, len(transfer.received))
        self.shared.publish(f"in/{transfer.holder}", wanted)

    def receive(self, sender: str, copy: Copy) -> Kept | None:
        """Add a piece; return the copy once it is complete.

        Raises
        ------
        DecodeError
            The piece is not the next one of a copy that was requested from its sender, or completes another message
            than the owner has signed.
        """
        release = Release(copy.peer, copy.incarnation, copy.round, 0)
        transfer = self._transfers.get(release)
        if transfer is None or (transfer.holder, transfer.value) != (sender, copy.digest):
            raise DecodeError(f'expected a piece of a copy that "{sender}" was asked for, got another')
        end = copy.offset + len(copy.data)
        if copy.offset != len(transfer.received) or not copy.offset < end <= copy.total <= self.shared.row_bytes:
            raise DecodeError(
                f"expected the piece from byte {len(transfer.received)} on, got one from {copy.offset} on"
            )
        transfer.received += copy.data
        transfer.since, transfer.pieces, transfer.moved = self.shared.now, transfer.pieces + 1, True
        if end == copy.total:
            return self._complete(release, transfer)
        if transfer.pieces == BURST:
            self._request(release, transfer)
        return None

    def _complete(self, release: Release, transfer: Transfer) -> Kept:
        message = bytes(transfer.received)
        transfer.received, transfer.moved = bytearray(), False  # if it is no copy, the next holder is asked
        announcement = self.shared.membership.up[release.peer]
        trailer = self.shared.codec.trailer(replace(announcement, incarnation=release.incarnation))
        model = read_row(message, trailer=trailer, largest=self.shared.row_bytes)
        vote = self.vote_of(release, model)
        if vote is None or vote.value != transfer.value:
            raise DecodeError(f'expected the model that "{release.peer}" has signed and that counts, got another')
        del self._transfers[release]
        kept = self._kept.setdefault(release, {})[vote.value] = Kept(vote, model)
        return kept

    # ------------------------------------------------------------------ passing on

    def serve(self, sender: str, wanted: Wanted) -> None:
        """Send the next pieces of a copy to a member that lacks it."""
        release = Release(wanted.peer, wanted.incarnation, wanted.round, 0)
        kept, now = self.get(release, wanted.digest), self.shared.now
        offset, when = self._answered.get((release, sender), (-1, -math.inf))
        if kept is None or (offset == wanted.offset and now < when + PULSE / 2):
            return
        self._answered[release, sender] = wanted.offset, now
        message = kept.model.message
        release_key = wanted.peer, wanted.incarnation, wanted.round, wanted.digest
        for start in range(wanted.offset, min(len(message), wanted.offset + BURST * self.piece), self.piece):
            piece = message[start : start + self.piece]
            self.shared.publish(f"in/{sender}", Copy(*release_key, start, len(message), piece))
