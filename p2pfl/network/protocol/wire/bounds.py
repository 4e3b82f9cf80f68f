"""The largest value of every field that a peer decodes from the network.

Each field of a message names one of these types, so msgspec refuses a value outside of its bound before anything is
stored. ``tests/network/protocol/wire/test_bounds.py`` walks through all messages and holds that no field lacks a finite
bound. What is possible at a given moment is narrower, and depends on what is authenticated already:
:mod:`p2pfl.network.protocol.incoming.plausible` for heartbeats and rows,
:mod:`p2pfl.network.protocol.wire.reliable_stream` for credit,
:mod:`p2pfl.network.protocol.ledgers.mask_slots` for attempts.

====================  ============================  ===============================================================
Type                  Bound                         Why it cannot be exceeded
====================  ============================  ===============================================================
``Incarnation``       2^63 - 1                      nanoseconds since 1970; compared only among authentic announcements
``Phase``             2^32 - 2                      32 bits of a nonce, of which the last is for control messages
``Sequence``          2^48                          chunks: at 2^20 a second, 8 years
``Number``            2^48                          accounts
``Round``             2^32                          rounds of a run
``Step``              2^32                          gossip steps of a round
``Size``              2^40                          bytes of a message
``Attempt``           2^62                          resumptions; below the attempt that means "no more"
``Ballot``            2^32                          ballots on a release; members vote in none from this one on
``Coordinate``        2^63 - 1                      a part of a slot or gossip step; the largest means "no more"
``Weight``            +- 2^40                       sample weight of a row; use has a narrower bound
====================  ============================  ===============================================================

Everything together is bounded, too: what msgpack decodes has less than 64 KiB, and a payload is measured before it is
opened (:attr:`p2pfl.network.protocol.wire.message_codec.MessageCodec.largest`).
"""

from __future__ import annotations

from typing import Annotated, Self

import msgspec
from msgspec import Meta

Incarnation = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Phase = Annotated[int, Meta(ge=0, le=2**32 - 2)]
Sequence = Annotated[int, Meta(ge=0, le=2**48)]
Number = Annotated[int, Meta(ge=0, le=2**48)]
Round = Annotated[int, Meta(ge=0, le=2**32)]
Step = Annotated[int, Meta(ge=0, le=2**32)]
Size = Annotated[int, Meta(ge=0, le=2**40)]
Attempt = Annotated[int, Meta(ge=0, le=2**62)]
Ballot = Annotated[int, Meta(ge=0, le=2**32)]
Coordinate = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Weight = Annotated[float, Meta(ge=-(2.0**40), le=2.0**40)]

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,22}\Z", max_length=22)]
Fact = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=2**14)]
Key = Annotated[bytes, Meta(max_length=32)]
Key32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Signature = Annotated[bytes, Meta(max_length=64)]
Signature64 = Annotated[bytes, Meta(min_length=64, max_length=64)]
Wrapped = Annotated[bytes, Meta(max_length=64)]
Mark = Annotated[bytes, Meta(min_length=16, max_length=16)]
Data = Annotated[memoryview, Meta(max_length=0)]

NO_DATA = memoryview(b"")

MAX_ENTRIES = 4096
"""Entries of a list or map that has one for each peer, slot or gossip step."""

PARTICIPANTS = 1024
"""Participants of a total: as many names and marks fit into the head of a message."""

TAG_BYTES = 16
"""Length of the tag of a sealed message for one neighbour."""

MAX_TAGS = 2**12
"""Tags that one message may carry: neighbours of one peer."""

FACTS = 512
"""Entries of the facts in an announcement."""

HEAD = 512
"""Upper bound of the bytes of a model's head, with its length, its padding and the vote."""


class WithData(msgspec.Struct, frozen=True, array_like=True):
    """Message whose last field is its data, which follow the head as they are; within the head they are left out."""

    def __deepcopy__(self, memo: object) -> Self:
        return self
