import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import MANY
from p2pfl.core.errors import DecodeError, VersionError
from p2pfl.network.protocol.wire.messages import Ack, Announcement, Chunk, Claim, Pulse
from p2pfl.network.protocol.wire.wire_codec import VERSION, decode, encode

MESSAGES = [
    Announcement("ada", 7, "up", {"seed": "1"}, bytes(32)),
    Claim(3),
    Pulse(1, 0, 2, 9, 4, 1, waiting=True),
    Ack(1, 0, 5, 9, [6, 8]),
    Chunk(1, 0, 5, 4, 10, 100, data=memoryview(b"abc")),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_wire(message):
    assert decode(bytes(encode(message))) == message


def test_the_data_of_a_chunk_is_a_view_into_the_payload():
    payload = bytes(encode(MESSAGES[-1]))
    data = decode(payload).data
    assert data.obj is payload


def test_an_unknown_version_is_refused_with_the_remedy():
    payload = bytearray(encode(Claim(3)))
    payload[0] = VERSION + 1
    with pytest.raises(VersionError) as caught:
        decode(payload)
    assert (caught.value.theirs, caught.value.ours) == (VERSION + 1, VERSION)
    assert f"has version {VERSION + 1} of the wire format, and this peer reads version {VERSION}" in str(caught.value)


@pytest.mark.parametrize("first", [1, 2, 3], ids=["plain", "sealed", "private"])
def test_what_a_peer_of_the_version_before_publishes_is_refused_with_the_remedy(first):
    """Its sealed payloads began with 2 and 3, and had no tags."""
    for plain in (True, False):
        with pytest.raises(VersionError) as caught:
            decode(bytes([first]) + bytes(100), plain=plain)
        assert (caught.value.theirs, caught.value.ours) == (first, VERSION)


def test_fields_that_later_versions_append_are_ignored():
    head = msgspec.msgpack.encode(["claim", 3, b"key", "something new"])
    payload = bytes([VERSION, len(head), 0]) + head
    assert decode(payload) == Claim(3, b"key")


@settings(MANY)
@given(st.binary(max_size=200), st.booleans())
def test_hostile_bytes_raise_decode_error_and_nothing_else(data, versioned):
    payload = bytes([VERSION, len(data), 0]) + data if versioned else data
    with contextlib.suppress(DecodeError):
        decode(payload)


@settings(MANY)
@given(st.sampled_from(MESSAGES), st.data())
def test_a_message_with_changed_bytes_decodes_to_a_message_or_raises_decode_error(message, data):
    payload = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        decode(payload[: data.draw(st.integers(0, len(payload)))])


def test_a_claim_may_be_followed_by_bytes_that_say_nothing_and_nothing_else_may():
    claim = Claim(7, b"k" * 32)
    assert decode(encode(claim).ljust(1000, b"\0")) == claim
    with pytest.raises(DecodeError, match="follow the end of a Announcement"):
        decode(encode(Announcement("ada", 1, "up")) + b"\0")


def test_of_what_should_have_been_sealed_only_the_kind_is_looked_at():
    """Whatever follows the kind, well made or not: nothing unsealed reaches a decoder beyond it."""
    for tag in ("ack", "pulse", "account", "chunk", "term", "roll", "agreement", "agreements", "unmasking"):
        for rest in ((), (1, 0, 2, 3, ()), ({"deep": [[[]]]},)):
            head = msgspec.msgpack.encode((tag, *rest))
            payload = bytes([VERSION]) + len(head).to_bytes(2, "little") + head
            with pytest.raises(DecodeError, match=f"Invalid value '{tag}'"):
                decode(payload, plain=True)
    assert decode(encode(Claim(7)), plain=True) == Claim(7)
