"""Messages of secure sums: who is ready, and the participant set; their terms are totals to one peer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import MAX_ENTRIES, Mark, Name, Signature64
from p2pfl.privacy.keys import Announced


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """From a sender to the receiver of a sum: its term can be sent.

    Attributes
    ----------
    round, step
        The gossip step.
    mass
        Of the row, in public; ``None`` where all rows count alike.
    """

    round: bounds.Round
    step: bounds.Step
    mass: bounds.Weight | None = None


class RollCall(msgspec.Struct, frozen=True, array_like=True, tag="roll"):
    """From the receiver of a sum: whose terms are in it (:mod:`p2pfl.privacy.secagg.protocol`).

    Attributes
    ----------
    round, step
        The gossip step.
    here
        Sorted; nobody where the sum is given up, at whatever time.
    marks
        Their incarnations, in the same order (:func:`p2pfl.network.protocol.wire.messages.mark_of`).
    signature
        Of the receiver, over :func:`sum_statement`; zeros where the sum is given up, which contradicts no set.
    """

    round: bounds.Round
    step: bounds.Step
    here: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    marks: Annotated[tuple[Mark, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    signature: Signature64 = bytes(64)


OfSums = Ready | RollCall
"""Message of a secure sum."""

_encoder = msgspec.msgpack.Encoder()
_spoken = msgspec.msgpack.Decoder(
    tuple[tuple[str, int, str, int], int, int, tuple[str, ...], tuple[bytes, ...]]
)  # of :func:`sum_statement`


def sum_statement(receiver: Announced, *, swarm: str, call: RollCall) -> bytes:
    """Return the signed bytes of a participant set, for this incarnation of the receiver only."""
    who = receiver.peer, receiver.incarnation, receiver.peer, receiver.incarnation
    return swarm.encode() + b"/" + _encoder.encode((who, call.round, call.step, call.here, call.marks))


def about_sum(statement: bytes) -> tuple[str | int, ...]:
    """Return the subject of a statement: swarm, signer and receiver with their incarnations, round and step.

    Raises
    ------
    DecodeError
        The bytes are no statement of :func:`sum_statement`.

    Examples
    --------
    >>> call = RollCall(3, 0, ("ada",), (bytes(16),), bytes(64))
    >>> about_sum(sum_statement(Announced("bob", 1, b""), swarm="clinic", call=call))
    ('clinic', 'bob', 1, 'bob', 1, 3, 0)
    """
    swarm, _, rest = statement.partition(b"/")
    try:
        who, round, step, _here, _marks = _spoken.decode(rest)
    except (msgspec.DecodeError, RecursionError):
        raise DecodeError(f"the {len(statement)} bytes are no statement on a sum") from None
    return swarm.decode(errors="replace"), *who, round, step
