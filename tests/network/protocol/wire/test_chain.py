"""One hash of each piece serves its tag and the signature of the model: what a malicious sender or neighbour gains."""

import random

import msgspec
import pytest
import torch

from model_messages import chunks_of, message_of, put_together
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.wire.messages import Chunk
from p2pfl.network.protocol.wire.reliable_stream import Inbox, Outbox
from p2pfl.network.protocol.wire.trailer import Signature
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.protocol.wire.wire_rows import encode_row, read_row
from p2pfl.privacy.keys import Identity, SeededSource

ADA = Identity.generate(SeededSource(7), peer="ada")
SIGNED = Signature.of("swarm", "ada", 1, public=ADA.public, identity=ADA)
SIZE = 100


def sent(value=1.0, *, size=SIZE, sequence=0, length=200):
    parts = encode_row(torch.full((length,), value), round=3, step=1)
    return chunks_of(parts, size=size, trailer=SIGNED, sequence=sequence)


def read(chunks):
    return read_row(put_together(chunks), trailer=SIGNED)


def signed_in(chunks):
    """The statement of a row, which the receiver may show to others."""
    return read(chunks).statement


def renumbered(chunks, order):
    """The chunks of a message in another order of the stream."""
    return [msgspec.structs.replace(chunks[place], sequence=number) for number, place in enumerate(order)]


def test_chunks_that_arrive_in_any_order_are_the_same_model():
    chunks = sent()
    random.Random(1).shuffle(chunks)
    assert torch.equal(read(chunks).row, torch.full((200,), 1.0))


@pytest.mark.parametrize("place", [0, 1, 5, -1])
def test_a_piece_of_another_model_of_the_same_sender_is_refused(place):
    mixed, other = sent(1.0), sent(2.0)
    mixed[place] = msgspec.structs.replace(other[place], trailer=mixed[place].trailer)
    with pytest.raises(DecodeError, match="not that of the sender"):
        read(mixed)


def test_pieces_in_another_order_of_the_stream_are_refused():
    chunks = sent()
    order = [0, 2, 1, *range(3, len(chunks))]
    with pytest.raises(DecodeError, match="do not follow one another"):
        read(renumbered(chunks, order))


def test_pieces_that_overlap_are_refused_although_their_sender_has_signed_them():
    """Else the order in which they arrive would decide what two receivers read under one statement."""
    row = encode_row(torch.ones(200), round=3, step=1)
    whole = b"".join(row)
    first = msgspec.structs.replace(sent()[0], data=memoryview(whole[:500]))
    for start in (400, 300, 64):
        last = Chunk(1, 0, 1, 0, start, len(whole), data=memoryview(whole[start : start + len(whole) - 500]))
        lasting = Chunk(1, 0, 2, 0, start, len(whole), data=memoryview(whole[start:]))
        for chunks in ([first, last], [first, lasting], [lasting, first]):
            inbox = Inbox(1, 10, 2**20, granted=10)
            numbered = [msgspec.structs.replace(chunk, sequence=number) for number, chunk in enumerate(chunks)]
            for message in [each for chunk in numbered for each in inbox.take(chunk)]:
                assert message.chain == b""
                forged = message._replace(trailer=SIGNED.end(SIGNED.statement(whole[:64], b"")))
                with pytest.raises(DecodeError, match="do not follow one another"):
                    read_row(forged, trailer=SIGNED)


def test_a_truncated_model_is_refused_although_its_pieces_are_genuine():
    chunks = sent()
    total = sum(len(chunk.data) for chunk in chunks[:-1])
    short = [msgspec.structs.replace(chunk, total=total) for chunk in chunks[:-1]]
    short[-1] = msgspec.structs.replace(short[-1], trailer=chunks[-1].trailer)
    with pytest.raises(DecodeError, match="does not hold"):
        read(short)


def test_a_model_cut_to_another_size_has_the_same_numbers_and_another_statement():
    one, other = signed_in(sent(size=100)), signed_in(sent(size=128))
    assert one.start == other.start
    assert one.statement != other.statement


def test_an_honest_peer_that_sends_a_model_again_signs_the_same_statement():
    """At another place of its stream, as after a neighbour came late: two statements would prove a lie."""
    outbox = Outbox(1, chunk=SIZE, trailer=SIGNED)
    outbox.listen("bob")
    outbox._limit["bob"] = 1000
    row = encode_row(torch.ones(200), round=3, step=1)
    outbox.put(row)
    once = list(outbox.ready())
    outbox.again([row])
    again = [msgspec.structs.replace(chunk, sequence=chunk.sequence - len(once)) for chunk in outbox.ready()]
    again = [msgspec.structs.replace(chunk, first=0) for chunk in again]
    assert signed_in(once) == signed_in(again)


def test_two_models_for_one_gossip_step_are_proven_by_their_statements():
    one, other = signed_in(sent(1.0)), signed_in(sent(1.5))
    assert Proof(one, other).holds(ADA.public)


def test_two_rows_that_differ_in_the_cut_of_one_byte_have_two_chains():
    """The chain covers where each piece ends, so no two lists of pieces have the same."""
    row = encode_row(torch.zeros(200), round=3, step=1)  # so that all pieces of one size are alike
    chains = {message_of(row, size=size).chain for size in range(64, 200)}
    assert len(chains) == 136


def test_a_message_complete_before_its_first_chunks_are_given_up_is_still_read():
    inbox, chunks = Inbox(1, 100, 2**20, granted=100), sent(sequence=1)
    assert all(inbox.take(chunk) == [] for chunk in chunks)  # chunk 0, of an earlier message, is lost
    (message,) = inbox.skip(3)
    assert torch.equal(read_row(message, trailer=SIGNED).row, torch.full((200,), 1.0))


def test_chunks_that_wait_for_earlier_ones_keep_no_memory_of_a_message_that_was_given_up():
    inbox = Inbox(1, 100, 2**16, granted=100)
    for sequence in range(3, 60, 3):
        inbox.take(Chunk(1, 0, sequence, sequence, 0, 2**16, data=memoryview(b"x")))
        with pytest.raises(DecodeError):
            inbox.take(wrong := Chunk(1, 0, sequence + 1, sequence, 5, 2**15, data=memoryview(b"x")))
        inbox.discard(wrong)
    assert inbox.reserved == 0
    assert all(piece is None or not hasattr(piece.chain, "buffer") for piece in inbox._later.values())


def test_the_digest_of_a_chunk_is_that_of_its_data_even_after_a_change():
    (chunk,) = chunks_of([b"a" * 70])
    changed = msgspec.structs.replace(chunk, data=memoryview(b"b" * 70))
    assert changed.digest != chunk.digest
    assert len(encode(chunk)) == len(encode(changed))
