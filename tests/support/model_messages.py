"""Models as they travel: cut by a real stream, and put together by one."""

import blake3

from p2pfl.network.protocol.wire.reliable_stream import Inbox, Outbox
from p2pfl.network.protocol.wire.trailer import CHECKSUM
from p2pfl.network.protocol.wire.wire_codec import digest_of, split

CREDIT = 10**6
"""Chunks, more than any test sends."""


def chunks_of(parts, *, size=1000, trailer=CHECKSUM, incarnation=1, sequence=0):
    """Return the chunks of a message; the first one has this sequence."""
    outbox = Outbox(incarnation, chunk=size, trailer=trailer)
    outbox.head = sequence
    outbox.listen("bob")
    outbox._limit["bob"] = sequence + CREDIT
    outbox.put(parts)
    return list(outbox.ready())


def put_together(chunks):
    """Return the message of chunks, in any order, that all belong to it."""
    inbox = Inbox(1, CREDIT, 2**30, granted=CREDIT)
    (message,) = [message for chunk in chunks for message in inbox.take(chunk)]
    return message


def message_of(parts, *, size=1000, trailer=CHECKSUM):
    """Return a message that has arrived as a whole."""
    return put_together(chunks_of(parts, size=size, trailer=trailer))


def digest_in(prefix, payload):
    """Return the digest that tags cover of any bytes in a place."""
    head, data = split(payload)
    return digest_of(prefix, head, blake3.blake3(data).digest())
