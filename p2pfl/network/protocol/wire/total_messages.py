"""Messages of totals: participant sets, subtotals, totals, and repeated or failed attempts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import PARTICIPANTS, Mark, Name

Members = Annotated[dict[Name, Mark], msgspec.Meta(max_length=PARTICIPANTS)]
"""By participant of a total, the incarnation that it takes part with (:func:`mark_of`)."""


class Here(msgspec.Struct, frozen=True, array_like=True, tag="here"):
    """From a peer to its parent in the spanning tree: who takes part in the totals of a round, of its subtree.

    Attributes
    ----------
    round, attempt
        As of :class:`Subtotal`.
    members
        The sender and all below it.
    """

    round: bounds.Round
    attempt: bounds.Attempt
    members: Members


class AgreedParticipants(msgspec.Struct, frozen=True, array_like=True, tag="participants"):
    """From the root, and from every peer to its children: who takes part in the totals of a round.

    Attributes
    ----------
    round, attempt
        As of :class:`Subtotal`.
    members
        All of them.
    root, key, signature
        Who signs this, with which public key, over :func:`participants_statement`.
    """

    round: bounds.Round
    attempt: bounds.Attempt
    members: Members
    root: Name
    key: bounds.Key = b""
    signature: bounds.Signature = b""


class Subtotal(bounds.WithData, frozen=True, tag="subtotal"):
    """From a peer to its parent: a piece of the sum of the masked contributions of its subtree.

    Attributes
    ----------
    round, attempt, number
        The slot of the total, see :class:`p2pfl.privacy.total_masks.TotalSlot`.
    offset, total
        Offset of the piece, and length of the whole, in bytes.
    data
        Integers of the ring, little-endian.
    """

    round: bounds.Round
    attempt: bounds.Attempt
    number: bounds.Number
    offset: bounds.Size
    total: bounds.Size
    data: bounds.Data = bounds.NO_DATA


class Total(bounds.WithData, frozen=True, tag="total"):
    """From the root, and from every peer to its children: a piece of the total.

    Attributes
    ----------
    round, attempt, number, offset, total, data
        As of :class:`Subtotal`.
    digest
        Of the last piece, the SHA-256 of slot and total; empty before.
    """

    round: bounds.Round
    attempt: bounds.Attempt
    number: bounds.Number
    offset: bounds.Size
    total: bounds.Size
    digest: bounds.Key = b""
    data: bounds.Data = bounds.NO_DATA


class Again(msgspec.Struct, frozen=True, array_like=True, tag="again"):
    """To the parent or a child: the pieces from ``offset`` on, in bytes, of its total or subtotal did not arrive.

    Attributes
    ----------
    round, attempt, number
        As of :class:`Subtotal`.
    """

    round: bounds.Round
    attempt: bounds.Attempt
    number: bounds.Number
    offset: bounds.Size


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """To all neighbours: an attempt at a round's totals has failed, because of these peers."""

    round: bounds.Round
    attempt: bounds.Attempt
    lost: Annotated[list[Name], msgspec.Meta(max_length=PARTICIPANTS)] = []


OfTotals = Here | AgreedParticipants | Subtotal | Total | Again | Abort
"""Message of a total."""

_encoder = msgspec.msgpack.Encoder()


def participants_statement(message: AgreedParticipants, *, swarm: str) -> bytes:
    """Return what the root signs of a participant set: swarm, slot, itself and all members."""
    fields = message.round, message.attempt, message.root, sorted(message.members.items())
    return swarm.encode() + b"/" + _encoder.encode(fields)
