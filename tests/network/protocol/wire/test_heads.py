"""Heads of rows are short enough to be shown to third parties."""

import msgspec
import pytest
import torch

from model_messages import message_of
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.trailer import CHECKSUM, START, Signature
from p2pfl.network.protocol.wire.wire_rows import encode_row, head_of, read_row
from p2pfl.privacy.keys import Identity, SeededSource

ADA = Identity.generate(SeededSource(7), peer="ada")


def test_the_longest_honest_head_can_be_shown():
    row = torch.ones(3, dtype=torch.int64)
    parts = encode_row(row, round=2**32, step=2**32, grid=40, mass=1 / 3)
    trailer = Signature.of("swarm", "ada", 7, public=ADA.public, identity=ADA)
    head, _, said, *_ = read_row(message_of(parts, trailer=trailer), trailer=trailer)
    assert head_of(said) == head


def test_a_head_too_long_to_be_shown_is_refused():
    head = msgspec.msgpack.encode([0, 0, "float32", 0, None, None, 0, False, "x" * START])
    prefix = len(head).to_bytes(4, "little") + head
    message = message_of([prefix + bytes(-len(prefix) % 64)])
    with pytest.raises(DecodeError, match="does not fit into"):
        read_row(message, trailer=CHECKSUM)
