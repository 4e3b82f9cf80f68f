import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import MANY
from model_messages import chunks_of, message_of, put_together
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.trailer import CHECKSUM, START, Signature
from p2pfl.network.protocol.wire.wire_rows import encode_row, head_of, read_row
from p2pfl.privacy.keys import Identity, SeededSource

ADA, EVE = (Identity.generate(SeededSource(7), peer=peer) for peer in ("ada", "eve"))
SIGNED = Signature.of("swarm", "ada", 7, public=ADA.public, identity=ADA)
TRAILERS = {"checksum": CHECKSUM, "signature": SIGNED}


def message(trailer, *, length=20, size=1000, **fields):
    parts = encode_row(torch.arange(length), **({"round": 3, "step": 1} | fields))
    return message_of(parts, size=size, trailer=trailer)


@pytest.fixture(params=TRAILERS.values(), ids=TRAILERS)
def trailer(request):
    return request.param


@pytest.mark.parametrize("length", [0, 1, 20, 1000])
def test_a_row_with_its_trailer_is_read(trailer, length):
    head, row, *_ = read_row(message(trailer, length=length), trailer=trailer)
    assert head.round == 3
    assert torch.equal(row, torch.arange(length))


@given(st.integers(1, 400))
def test_a_row_is_read_however_it_is_cut(size):
    for trailer in TRAILERS.values():
        assert torch.equal(read_row(message(trailer, size=size), trailer=trailer).row, torch.arange(20))


@given(st.sampled_from(sorted(TRAILERS)), st.integers(1, 400), st.integers(0, 10_000), st.integers(0, 7))
@settings(MANY)
def test_a_row_with_any_flipped_bit_is_refused(kind, size, place, bit):
    trailer = TRAILERS[kind]
    chunks = chunks_of(encode_row(torch.arange(20), round=3, step=1), size=size, trailer=trailer)
    place %= sum(len(chunk.data) for chunk in chunks)
    number, offset = divmod(place, size)
    data = bytearray(chunks[number].data)
    data[offset] ^= 1 << bit
    chunks[number] = msgspec.structs.replace(chunks[number], data=memoryview(data))
    with pytest.raises(DecodeError):
        read_row(put_together(chunks), trailer=trailer)


@given(st.sampled_from(sorted(TRAILERS)), st.data())
def test_a_row_whose_trailer_is_changed_is_refused(kind, data):
    sent = message(TRAILERS[kind])
    place, bit = data.draw(st.integers(0, 8 * len(sent.trailer) - 1)) // 8, data.draw(st.integers(0, 7))
    changed = bytearray(sent.trailer)
    changed[place] ^= 1 << bit
    for trailer in (bytes(changed), sent.trailer[:-1], sent.trailer + b"x", b""):
        with pytest.raises(DecodeError):
            read_row(sent._replace(trailer=trailer), trailer=TRAILERS[kind])


@pytest.mark.parametrize(
    "other",
    [
        Signature.of("swarm", "ada", 8, public=ADA.public),
        Signature.of("swarm", "bob", 7, public=ADA.public),
        Signature.of("other", "ada", 7, public=ADA.public),
        Signature.of("swarm", "ada", 7, public=EVE.public),
        Signature.of("swarm", "ada", 7, public=bytes(32)),
    ],
    ids=["another life", "another peer", "another swarm", "another key", "a weak key"],
)
def test_a_signature_is_worth_nothing_in_another_context_or_under_another_key(other):
    with pytest.raises(DecodeError, match="not that of the sender"):
        read_row(message(SIGNED), trailer=other)


def test_whoever_seals_in_anothers_name_cannot_sign_for_it():
    forged = Signature.of("swarm", "ada", 7, public=ADA.public, identity=EVE)
    with pytest.raises(DecodeError, match="not that of the sender"):
        read_row(message(forged), trailer=SIGNED)


def test_a_checksum_is_no_signature_nor_the_reverse():
    with pytest.raises(DecodeError):
        read_row(message(CHECKSUM), trailer=SIGNED)
    with pytest.raises(DecodeError):
        read_row(message(SIGNED), trailer=CHECKSUM)


def test_what_was_said_is_verified_without_the_row():
    head, _, said, *_ = read_row(message(SIGNED, length=1000, mass=0.5), trailer=SIGNED)
    assert said.by(ADA.public)
    assert not said.by(EVE.public)
    assert said.context == "swarm/ada/7/"
    assert head_of(said) == head
    assert len(said.statement) == len(said.context) + START + 32


def test_the_longest_head_lies_within_what_is_signed_as_it_is():
    row = torch.zeros(2**17, dtype=torch.bfloat16)  # bfloat16 is the longest name
    parts = encode_row(row, round=2**63 - 1, step=2**63 - 1, grid=60, mass=0.1)
    assert len(parts[0]) <= START
