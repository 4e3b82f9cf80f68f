"""Messages of the agreement on releases: votes, ballots, decisions, and keys of masks whose other half never came."""

from __future__ import annotations

from typing import Annotated

import msgspec

from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import MANY, Name, Signature64

BATCH = 200
"""Votes in one message; as many fit into its head."""

PROVEN = 140
"""Promises and votes in one proposal, each; as many fit into its head."""


class WireVote(msgspec.Struct, frozen=True, array_like=True):
    """Signed vote of a member on a release, see :class:`p2pfl.network.protocol.agreement.ballot_messages.Vote`.

    Attributes
    ----------
    peer, incarnation, round
        Release on which the member votes.
    member
        Name of the voter.
    number, proposer
        Ballot of the vote.
    counted
        True if the vote is that the release counts.
    signature
        Signature of the voter.
    voter
        Incarnation of the voter.
    final
        False if the voter accepts a proposal; true if its vote decides.
    digest
        Digest of the copy of the release that counts; empty if it is dropped.
    attempt
        Attempt at the round.
    """

    peer: Name
    incarnation: bounds.Incarnation
    round: bounds.Round
    member: Name
    number: bounds.Ballot
    proposer: Name
    counted: bool
    signature: Signature64
    voter: bounds.Incarnation = 0
    final: bool = True
    digest: bounds.Key = b""
    attempt: bounds.Attempt = 0


class Votes(msgspec.Struct, frozen=True, array_like=True, tag="votes"):
    """Votes of the sender, on all releases of a round that it holds."""

    votes: Annotated[tuple[WireVote, ...], msgspec.Meta(max_length=BATCH)]


class PrepareMessage(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Request of the sender for promises to vote in no ballot on a release below this one of its own.

    Attributes
    ----------
    peer, incarnation, round, attempt
        As of :class:`WireVote`.
    number
        Number of the ballot, whose proposer is the sender.
    """

    peer: Name
    incarnation: bounds.Incarnation
    round: bounds.Round
    number: bounds.Ballot
    attempt: bounds.Attempt = 0


class LastVote(msgspec.Struct, frozen=True, array_like=True):
    """Highest ballot in which a member has voted.

    Attributes
    ----------
    number, proposer, counted, digest
        As of :class:`WireVote`.
    """

    number: bounds.Ballot
    proposer: Name
    counted: bool
    digest: bounds.Key = b""


class Promised(msgspec.Struct, frozen=True, array_like=True):
    """Signed promise of a member to vote in no lower ballot on a release.

    Attributes
    ----------
    peer, incarnation, round, member, number, proposer, signature, voter, attempt
        As of :class:`WireVote`.
    last
        Last vote of the member; ``None`` if it has not voted.
    """

    peer: Name
    incarnation: bounds.Incarnation
    round: bounds.Round
    member: Name
    number: bounds.Ballot
    proposer: Name
    signature: Signature64
    voter: bounds.Incarnation = 0
    last: LastVote | None = None
    attempt: bounds.Attempt = 0


class PromiseMessage(msgspec.Struct, frozen=True, array_like=True, tag="promise"):
    """Promise of the sender, with the proof of the vote that it reports; empty without a vote."""

    promise: Promised
    proof: Annotated[tuple[WireVote, ...], msgspec.Meta(max_length=PROVEN)] = ()


class ProposalMessage(msgspec.Struct, frozen=True, array_like=True, tag="proposal"):
    """Value that the sender proposes in a ballot of its own, with the proof that it was free to choose it.

    Attributes
    ----------
    vote
        Acceptance of the sender.
    promises
        Promises of a majority.
    proof
        Proof of the highest vote that the promises report.
    """

    vote: WireVote
    promises: Annotated[tuple[Promised, ...], msgspec.Meta(max_length=PROVEN)]
    proof: Annotated[tuple[WireVote, ...], msgspec.Meta(max_length=PROVEN)] = ()


class DecisionMessage(msgspec.Struct, frozen=True, array_like=True, tag="decision"):
    """Votes of a majority in one ballot, which prove a decision to anybody that knows the voters' keys."""

    votes: Annotated[tuple[WireVote, ...], msgspec.Meta(max_length=BATCH)]


class Halves(msgspec.Struct, frozen=True, array_like=True, tag="halves"):
    """Keys of the masks that the sender shares with peers whose releases of a round were dropped.

    Attributes
    ----------
    round
        Round of the releases.
    keys
        By dropped peer, the key of the mask in the sender's release; empty if the release has no such mask.
    wanting
        Dropped peers for which the sender lacks the receiver's key.
    incarnation
        Incarnation of the sender that released in the round; with the round it names the release that has the masks.
    """

    round: bounds.Round
    keys: Annotated[dict[Name, bounds.Key], msgspec.Meta(max_length=MANY)] = {}
    wanting: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MANY)] = ()
    incarnation: bounds.Incarnation = 0


class Contradiction(msgspec.Struct, frozen=True, array_like=True, tag="contradiction"):
    """Two votes of one member that contradict each other, so that all exclude it; each peer checks both signatures."""

    one: WireVote
    other: WireVote


class Wanted(msgspec.Struct, frozen=True, array_like=True, tag="wanted"):
    """Request for the copy of a release that counts, from a byte on.

    Attributes
    ----------
    peer, incarnation, round, digest
        Release and digest of its copy, as of :class:`WireVote`.
    offset
        Number of bytes that the sender has.
    """

    peer: Name
    incarnation: bounds.Incarnation
    round: bounds.Round
    digest: bounds.Key
    offset: bounds.Size = 0


class Copy(bounds.WithData, frozen=True, tag="copy"):
    """Piece of a copy of another peer's release, as its owner has signed it.

    Attributes
    ----------
    peer, incarnation, round, digest, offset
        As of :class:`Wanted`; the first byte of the piece.
    total
        Bytes of the copy.
    data
        Piece: a view into the copy when it is sent, into the payload when it has arrived.
    """

    peer: Name
    incarnation: bounds.Incarnation
    round: bounds.Round
    digest: bounds.Key
    offset: bounds.Size
    total: bounds.Size
    data: bounds.Data = bounds.NO_DATA


OfVerdicts = (
    Votes | PrepareMessage | PromiseMessage | ProposalMessage | DecisionMessage | Halves | Contradiction | Wanted | Copy
)
"""Messages about which releases of a round count."""
