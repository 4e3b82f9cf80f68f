"""Memory of messages: taken again when nothing refers to a message any more, and never before."""

import copy
import threading

import numpy as np
import pytest
import torch

from p2pfl.network.protocol.wire.message_memory import (
    MAX_FREE_BLOCKS,
    MAX_REUSED_BYTES,
    MIN_REUSED_BYTES,
    MessageMemory,
)
from p2pfl.network.protocol.wire.reliable_stream import Inbox, Outbox
from p2pfl.network.protocol.wire.wire_rows import encode_row, read_row

SIZE = 2 * MIN_REUSED_BYTES


def place(message):
    return message.ctypes.data


def tensor_of(message):
    return torch.frombuffer(message.data, dtype=torch.float32)[3:7].view(2, 2)


REFERENCES = {
    "the array": lambda message: message,
    "a part": lambda message: message[5:9],
    "an array of a part": lambda message: np.asarray(message[5:9])[1:].view(np.int8),
    "a view": lambda message: message.data[1:2].toreadonly(),
    "an array over a view": lambda message: np.frombuffer(message.data, np.uint8)[2:],
    "a tensor": tensor_of,
    "a tensor over an array": lambda message: torch.from_numpy(message[5:9])[1:],
    "an array of a tensor": lambda message: tensor_of(message).numpy()[1:],
}


@pytest.mark.parametrize("kind", REFERENCES)
def test_memory_is_taken_again_only_when_the_last_reference_to_a_message_is_gone(kind):
    memory = MessageMemory()
    message = memory.take(SIZE)
    first = place(message)
    kept = REFERENCES[kind](message)
    del message
    second = memory.take(SIZE)
    assert place(second) != first
    del kept
    assert place(memory.take(SIZE)) == first


def test_messages_whose_heads_differ_by_a_few_bytes_take_the_same_memory():
    memory = MessageMemory()
    message = memory.take(SIZE - 100)
    first = place(message)
    del message
    message = memory.take(SIZE - 36)
    assert place(message) == first
    assert len(message) == SIZE - 36


def test_a_message_of_another_size_takes_new_memory_and_gives_up_the_free_one():
    memory = MessageMemory()
    memory.take(SIZE)
    larger = memory.take(2 * SIZE)
    larger[:] = 1  # it is there as a whole
    assert not memory._free


def test_at_most_two_blocks_wait():
    memory = MessageMemory()
    messages = [memory.take(SIZE) for _ in range(MAX_FREE_BLOCKS + 2)]
    assert len({place(each) for each in messages}) == len(messages)
    messages.clear()
    assert len(memory._free) == MAX_FREE_BLOCKS


@pytest.mark.parametrize("size", [0, 1, MIN_REUSED_BYTES // 2, MAX_REUSED_BYTES + 1])
def test_memory_of_small_and_very_large_messages_is_not_kept(size):
    memory = MessageMemory()
    assert len(memory.take(size)) == size
    assert not memory._free


def test_another_thread_may_drop_the_last_reference():
    memory = MessageMemory()
    rows = [tensor_of(memory.take(SIZE))]
    thread = threading.Thread(target=rows.clear)
    thread.start()
    thread.join()
    assert len(memory._free) == 1


def test_a_copy_shares_no_memory():
    memory = MessageMemory()
    memory.take(SIZE)
    assert not copy.deepcopy(memory)._free


def test_models_of_a_stream_keep_their_numbers_while_later_ones_take_the_memory_of_those_that_are_gone():
    outbox, inbox = Outbox(1, chunk=2**18), Inbox(1, 100, 2**24)
    outbox.listen("bob")
    length, kept = SIZE // 4, {}

    def receive(number):
        row = torch.full((length,), float(number))
        outbox.put(encode_row(row, round=number, step=0))
        messages = []
        while not messages:
            for chunk in outbox.ready():
                messages += inbox.take(chunk)
            inbox.grant()
            outbox.acknowledge("bob", inbox.ack())
        (message,) = messages
        return read_row(message).row

    for number in range(12):
        kept[number] = receive(number)
        assert all(bool((row == each).all()) for each, row in kept.items())
        kept.pop(number - 1 - number % 2, None)
    places = {row.data_ptr() for row in kept.values()}
    assert len(places) == len(kept)
