"""The two ends of a stream over a link that loses, repeats and reorders, without a network."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.messages import Ack, Chunk
from p2pfl.network.protocol.wire.reliable_stream import INITIAL, MAX_CHUNKS, Inbox, Outbox, largest_window
from p2pfl.network.protocol.wire.wire_rows import encode_row, read_row, row_bytes

LARGEST = row_bytes(5000, torch.int64)


def pair(window=8, chunk=1000):
    outbox = Outbox(1, chunk=chunk)
    outbox.listen("bob")
    return outbox, Inbox(1, window, LARGEST)


def carry(outbox, inbox, *, link, rounds=10_000):
    """Move chunks through ``link`` (a function of a list of chunks) until all has arrived."""
    received = []
    resent = []
    for _ in range(rounds):
        for chunk in link([*outbox.ready(), *resent]):
            received += [read_row(message)[1] for message in inbox.take(chunk)]
        inbox.grant()
        resent = outbox.acknowledge("bob", inbox.ack(head=outbox.head))
        if outbox.idle:
            return received
    raise AssertionError("expected the stream to finish")


def test_all_rows_arrive_in_order_over_a_perfect_link():
    outbox, inbox = pair()
    for length in (10, 3000, 1, 5000):
        outbox.put(encode_row(torch.arange(length), round=0, step=0))
    received = carry(outbox, inbox, link=list)
    assert [len(row) for row in received] == [10, 3000, 1, 5000]


@given(st.integers(0, 2**32), st.integers(2, 9), st.lists(st.integers(1, 5000), min_size=1, max_size=6))
def test_every_row_arrives_once_and_in_order_whatever_is_lost_repeated_or_reordered(seed, window, lengths):
    chance = random.Random(seed)
    outbox, inbox = pair(window=window)
    for index, length in enumerate(lengths):
        outbox.put(encode_row(torch.full((length,), index), round=0, step=0))

    def link(chunks):
        kept = [chunk for chunk in chunks for _ in range(chance.choice([0, 1, 1, 2]))]
        chance.shuffle(kept)
        return kept

    received = carry(outbox, inbox, link=link)
    assert [(int(row[0]), len(row)) for row in received] == list(enumerate(lengths))


def test_a_sender_stops_at_its_credit():
    outbox, _ = pair(chunk=100)
    outbox.put(encode_row(torch.arange(5000), round=0, step=0))
    assert len(list(outbox.ready())) == INITIAL
    assert not list(outbox.ready())


def test_the_slowest_listener_sets_the_pace_and_a_dropped_one_does_not():
    outbox, inbox = pair(chunk=100)
    outbox.listen("eve")
    outbox.put(encode_row(torch.arange(100), round=0, step=0))
    for chunk in outbox.ready():
        inbox.take(chunk)
    inbox.grant()
    outbox.acknowledge("bob", inbox.ack())
    assert not list(outbox.ready())
    assert outbox.lagging_listeners() == ["eve"]
    outbox.drop("eve")
    assert list(outbox.ready())


def test_a_retransmission_is_the_same_bytes():
    outbox, inbox = pair()
    outbox.put(encode_row(torch.arange(10), round=0, step=0))
    (sent,) = outbox.ready()
    (again,) = outbox.acknowledge("bob", inbox.ack(head=1))
    assert bytes(again.data) == bytes(sent.data)
    assert again.sequence == sent.sequence


def test_what_every_listener_has_is_held_no_longer():
    outbox, inbox = pair()
    outbox.put(encode_row(torch.arange(10), round=0, step=0))
    for chunk in outbox.ready():
        inbox.take(chunk)
    assert not outbox.idle
    outbox.acknowledge("bob", inbox.ack())
    assert outbox.idle


def test_a_listener_skips_what_the_sender_no_longer_holds():
    outbox, inbox = pair(window=4, chunk=100)
    outbox.put(encode_row(torch.arange(50), round=0, step=0))
    list(outbox.ready())
    outbox.drop("bob")
    outbox.listen("bob")  # it came back; what was under way is gone
    inbox.skip(outbox.tail)
    outbox.put(encode_row(torch.arange(7), round=1, step=0))
    received = carry(outbox, inbox, link=list)
    assert len(received[-1]) == 7


def test_a_row_that_overtook_another_waits_for_it():
    outbox, inbox = pair()
    for length in (5, 6):
        outbox.put(encode_row(torch.arange(length), round=0, step=0))
    first, second = outbox.ready()
    assert inbox.take(second) == []
    assert [len(read_row(message)[1]) for message in inbox.take(first)] == [5, 6]


def test_chunks_of_another_life_are_ignored():
    _, inbox = pair()
    assert inbox.take(Chunk(2, 0, 0, 0, 0, 3, data=memoryview(b"abc"))) == []
    assert inbox.next == 0


def test_a_message_larger_than_any_row_is_refused_before_memory_is_taken():
    _, inbox = pair()
    with pytest.raises(DecodeError, match="are allowed"):
        inbox.take(Chunk(1, 0, 0, 0, 0, LARGEST + 1, data=memoryview(b"abc")))
    assert inbox.reserved == 0


def test_unfinished_messages_never_hold_more_than_two_rows_of_memory():
    inbox = Inbox(1, 100, LARGEST)
    inbox.grant()
    for sequence in (0, 1):
        inbox.take(Chunk(1, 0, sequence, sequence, 0, LARGEST, data=memoryview(b"abc")))
    with pytest.raises(DecodeError, match="too many messages of the stream are incomplete"):
        inbox.take(Chunk(1, 0, 2, 2, 0, LARGEST, data=memoryview(b"abc")))
    assert inbox.reserved <= 2 * LARGEST


def test_all_windows_together_stay_below_a_brokers_queue():
    for listeners in (1, 3, 30, 100):
        assert listeners * largest_window(listeners, chunk=256 * 1024) <= max(400, 2 * listeners)
        assert listeners * largest_window(listeners, chunk=256 * 1024) * 256 * 1024 <= max(2**24, listeners * 2**19)


def test_a_message_that_came_before_its_turn_is_complete_once_what_is_before_it_is_given_up():
    outbox, inbox = Outbox(1, chunk=100), Inbox(1, window=8, largest=1000)
    outbox.listen("bob")
    outbox.acknowledge("bob", inbox.ack())
    for letter in b"ab":
        outbox.put([bytes([letter]) * 60])
    first, second = outbox.ready()
    assert inbox.take(second) == []
    assert [bytes(message.data) for message in inbox.skip(second.sequence)] == [b"b" * 60]
    assert inbox.next == second.sequence + 1
    assert inbox.take(first) == []
    assert inbox.skip(second.sequence) == []


def test_more_credit_than_anybody_gives_is_not_taken_so_that_few_chunks_are_held():
    outbox = Outbox(1, chunk=100)
    outbox.listen("eve")
    for _ in range(2 * MAX_CHUNKS):
        outbox.put([bytes(50)])
        for acknowledged in (Ack(1, 0, 0, 2**48), Ack(1, 0, 0, MAX_CHUNKS), Ack(1, 0, 2**48, 2**48)):
            outbox.acknowledge("eve", acknowledged)
        list(outbox.ready())
    assert len(outbox._held) == MAX_CHUNKS


def test_a_chunk_is_awaited_once_and_within_the_credit():
    inbox = Inbox(1, window=4, largest=1000)
    chunk = Chunk(1, 0, 1, 0, 50, 100, data=memoryview(bytes(50)))
    assert inbox.awaits(chunk)
    inbox.take(chunk)
    assert not inbox.awaits(chunk)
    for other in (
        Chunk(2, 0, 0, 0, 0, 100, data=memoryview(b"x")),
        Chunk(1, 0, INITIAL, 2, 0, 100, data=memoryview(b"x")),
    ):
        assert not inbox.awaits(other)
