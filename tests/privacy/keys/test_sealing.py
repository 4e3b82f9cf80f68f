import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from p2pfl.core.errors import DecodeError, InputError
from p2pfl.privacy.keys import (
    TAG_BYTES,
    WRAPPED_BYTES,
    ExchangeKey,
    SecretSource,
    SeededSource,
    SenderKey,
    edge_key,
    edge_secret,
    unwrap,
    wrap,
)

# D. McGrew, J. Viega, "The Galois/Counter Mode of operation", 2004, test case 16
TEXT = bytes.fromhex(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
)
HEADER = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
SEALED = bytes.fromhex(
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
    "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b"
)
PLACE = {"stream": 0xBEBAFECA, "sequence": 0x88F8CADEADDBCEFA}  # the paper's nonce cafebabe facedbaddecaf888

KEY = SenderKey(bytes(range(32)))

streams, sequences = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def flipped(data, bit):
    """The bytes with one bit changed."""
    bit %= 8 * len(data)
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(sealed, *, key=KEY, **place):
    with pytest.raises(
        DecodeError,
        match=(
            "are not those that their sender sealed; they were changed on the way, or the sender has another key by now"
        ),
    ):
        key.open(sealed, **place)
    return True


def test_sealing_is_that_of_the_paper_on_gcm():
    key = SenderKey(bytes.fromhex("feffe9928665731c6d6a8f9467308308") * 2)
    assert key.seal(TEXT, header=HEADER, **PLACE) == SEALED
    assert key.open(SEALED, header=HEADER, **PLACE) == TEXT


@given(data=st.binary(max_size=300), header=st.binary(max_size=60), stream=streams, sequence=sequences)
def test_what_is_sealed_opens_and_is_sealed_to_the_same_bytes_again(data, header, stream, sequence):
    place = {"stream": stream, "sequence": sequence, "header": header}
    sealed = KEY.seal(data, **place)
    assert len(sealed) == len(data) + TAG_BYTES
    assert KEY.open(sealed, **place) == data
    assert KEY.seal(memoryview(bytearray(data)), **place) == sealed
    assert SenderKey(bytes(range(32))).open(memoryview(sealed), **place) == data


@given(data=st.binary(max_size=300), header=st.binary(min_size=1, max_size=60), bit=st.integers(0, 2**16))
def test_one_bit_changed_in_data_header_place_or_key_is_refused(data, header, bit):
    place = {"stream": 3, "sequence": 5, "header": header}
    sealed = KEY.seal(data, **place)
    assert refused(flipped(sealed, bit), **place)
    assert refused(sealed, **(place | {"header": flipped(header, bit)}))
    assert refused(sealed, **(place | {"stream": 3 ^ 1 << bit % 32}))
    assert refused(sealed, **(place | {"sequence": 5 ^ 1 << bit % 64}))
    assert refused(sealed, key=SenderKey(flipped(bytes(range(32)), bit)), **place)


@given(sealed=st.binary(max_size=100), stream=st.integers(-9, 2**70), sequence=st.integers(-9, 2**70))
def test_bytes_from_elsewhere_are_refused_whatever_place_they_claim(sealed, stream, sequence):
    assert refused(sealed, stream=stream, sequence=sequence, header=b"")


@given(first=st.tuples(streams, sequences), second=st.tuples(streams, sequences))
def test_every_place_has_its_own_key_stream(first, second):
    assume(first != second)
    data = bytes(32)
    sealed = [KEY.seal(data, stream=stream, sequence=sequence, header=b"") for stream, sequence in (first, second)]
    assert sealed[0] != sealed[1]


@pytest.mark.parametrize("place", [(-1, 0), (2**32, 0), (0, -1), (0, 2**64)])
def test_a_place_without_a_nonce_is_refused(place):
    with pytest.raises(
        InputError, match="do not fit in 32 and 64 bits; draw a new sender key before the numbers are used up"
    ):
        KEY.seal(b"", stream=place[0], sequence=place[1], header=b"")


def test_every_peer_and_incarnation_has_its_own_sender_key():
    source = SeededSource(7)
    drawn = [
        SenderKey.draw(source, peer="ada"),
        SenderKey.draw(source, peer="bob"),
        SenderKey.draw(source, peer="ada", round=1),
        SenderKey.draw(SeededSource(8), peer="ada"),
        SenderKey.draw(SecretSource(), peer="ada"),
    ]
    assert len({key.seal(b"", stream=0, sequence=0, header=b"") for key in drawn}) == len(drawn)
    assert SenderKey.draw(source, peer="ada").seal(b"", stream=0, sequence=0, header=b"") == drawn[0].seal(
        b"", stream=0, sequence=0, header=b""
    )


def test_a_sender_key_is_never_printed():
    key = SenderKey(b"\x41" * 32)
    assert repr(key) == str(key) == f"{key}" == "SenderKey(...)"


def test_one_sealed_row_reaches_every_neighbour_that_was_handed_the_key():
    source = SeededSource(7)
    exchange = {peer: ExchangeKey.from_source(source, peer=peer) for peer in ("ada", "bob", "eve")}
    sender = SenderKey.draw(source, peer="ada")
    sealed = sender.seal(b"a row", stream=0, sequence=4, header=b"head")
    for listener in ("bob", "eve"):
        keys = [
            edge_key(
                edge_secret(exchange[own], exchange[other].public, run="demo"),
                purpose="aead", a="ada", b=listener, round=1, receiver=listener,
            )
            for own, other in (("ada", listener), (listener, "ada"))
        ]  # fmt: skip
        opened = unwrap(wrap(sender, keys[0]), keys[1])
        assert opened.open(sealed, stream=0, sequence=4, header=b"head") == b"a row"


@given(bit=st.integers(0, 2**16))
def test_a_wrapped_key_opens_under_its_edge_key_and_unchanged_alone(bit):
    edge = bytes(range(100, 132))
    wrapped = wrap(KEY, edge)
    assert len(wrapped) == WRAPPED_BYTES
    assert wrapped == wrap(KEY, edge)
    for changed, key in ((flipped(wrapped, bit), edge), (wrapped, flipped(edge, bit)), (wrapped + b"x", edge)):
        with pytest.raises(
            DecodeError,
            match=(
                "bytes are not a sender key of 48 bytes wrapped for this peer; check that both ends have "
                "the same run and roster"
            ),
        ):
            unwrap(changed, key)


@given(wrapped=st.binary(max_size=60))
def test_hostile_bytes_are_no_wrapped_key(wrapped):
    with pytest.raises(DecodeError, match=f"^{len(wrapped)} bytes are not a sender key"):
        unwrap(wrapped, bytes(32))


def test_sealed_data_are_no_wrapped_key():
    edge = bytes(range(32))
    sealed = SenderKey(edge).seal(bytes(32), stream=0, sequence=0, header=b"")
    with pytest.raises(DecodeError):
        unwrap(sealed, edge)


def test_keys_of_the_wrong_length_are_refused():
    with pytest.raises(
        InputError, match="a sender key must have 32 bytes, but it has 31; pass the raw bytes of the key"
    ):
        SenderKey(bytes(31))
    with pytest.raises(
        InputError, match="an edge key must have 32 bytes, but it has 33; pass the raw bytes of the key"
    ):
        wrap(KEY, bytes(33))
    with pytest.raises(InputError, match="an edge key must have 32 bytes, but it has 0; pass the raw bytes of the key"):
        unwrap(bytes(48), b"")


def test_a_sender_key_follows_from_the_source_alone_and_not_from_names():
    def sealed():
        key = SenderKey.draw(SecretSource(), peer="ada", round=3)
        return key.seal(b"a row", stream=1, sequence=2, header=b"")

    assert sealed() != sealed()
