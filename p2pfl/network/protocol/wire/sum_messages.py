"""Messages of secure sums: participant sets, consents, keys and masked terms."""

from __future__ import annotations

from typing import Annotated

import msgspec

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import MAX_ENTRIES, Key32, Name, Signature64
from p2pfl.privacy.keys import Announced


class RollCall(msgspec.Struct, frozen=True, array_like=True, tag="roll"):
    """From the receiver of a sum: whose terms are in it (:mod:`p2pfl.privacy.secagg.protocol`).

    Attributes
    ----------
    round, step
        The gossip step.
    here
        Sorted; nobody where the sum is given up.
    signature
        Of the receiver, over :func:`sum_statement`.
    """

    round: bounds.Round
    step: bounds.Step
    here: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_ENTRIES)]
    signature: Signature64


class ParticipantsConfirmed(msgspec.Struct, frozen=True, array_like=True, tag="agreement"):
    """From a sender: it has received this roll, and no other; signed by it over :func:`sum_statement`."""

    round: bounds.Round
    step: bounds.Step
    signature: Signature64


class Agreements(msgspec.Struct, frozen=True, array_like=True, tag="agreements"):
    """From the receiver: the signatures of all who are on the roll, in its order."""

    round: bounds.Round
    step: bounds.Step
    signatures: Annotated[tuple[Signature64, ...], msgspec.Meta(max_length=MAX_ENTRIES)]


class Unmasking(msgspec.Struct, frozen=True, array_like=True, tag="unmasking"):
    """From a sender: the keys of its own mask, and of those that it shares with who is not on the roll."""

    round: bounds.Round
    step: bounds.Step
    own: Key32
    pairs: Annotated[dict[Name, Key32], msgspec.Meta(max_length=MAX_ENTRIES)] = {}


class Term(bounds.WithData, frozen=True, tag="term"):
    """A piece of a masked term of a sum.

    Attributes
    ----------
    round, step
        The gossip step.
    offset, total
        Offset of the piece in the term, and length of the term, in bytes.
    mass
        Of the row, in public; ``None`` where all rows count alike.
    data
        Numbers of the ring, little-endian.
    """

    round: bounds.Round
    step: bounds.Step
    offset: bounds.Size
    total: bounds.Size
    mass: bounds.Weight | None = None
    data: bounds.Data = bounds.NO_DATA


OfSums = Term | RollCall | ParticipantsConfirmed | Agreements | Unmasking
"""Message of a secure sum."""

_encoder = msgspec.msgpack.Encoder()
_spoken = msgspec.msgpack.Decoder(
    tuple[tuple[str, int, str, int], int, int, tuple[str, ...], tuple[bytes, ...]]
)  # of :func:`sum_statement`


def sum_statement(
    by: Announced,
    receiver: Announced,
    *,
    swarm: str,
    round: int,
    step: int,
    here: tuple[str, ...],
    keys: tuple[bytes, ...] = (),
) -> bytes:
    """Return the signed bytes of a participant set, or of a consent to it, for these incarnations only.

    A sender also signs the ``keys`` under which it has masked, and so the incarnations of those on the roll: if two
    senders mean different incarnations of a third, their masks do not cancel.
    """
    who = by.peer, by.incarnation, receiver.peer, receiver.incarnation
    return swarm.encode() + b"/" + _encoder.encode((who, round, step, here, keys))


def about_sum(statement: bytes) -> tuple[str | int, ...]:
    """Return the subject of a statement: swarm, signer and receiver with their incarnations, round and step.

    Raises
    ------
    DecodeError
        The bytes are no statement of :func:`sum_statement`.

    Examples
    --------
    >>> ada, bob = (Announced(name, 1, b"") for name in ("ada", "bob"))
    >>> about_sum(sum_statement(ada, bob, swarm="clinic", round=3, step=0, here=("ada",)))
    ('clinic', 'ada', 1, 'bob', 1, 3, 0)
    """
    swarm, _, rest = statement.partition(b"/")
    try:
        who, round, step, _here, _keys = _spoken.decode(rest)
    except (msgspec.DecodeError, RecursionError):
        raise DecodeError(f"the {len(statement)} bytes are no statement on a sum") from None
    return swarm.decode(errors="replace"), *who, round, step
