import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import MANY
from model_messages import message_of
from p2pfl.core import numpy_tensors
from p2pfl.core.codecs import Zstd
from p2pfl.core.errors import DecodeError
from p2pfl.core.neighbourhood import Released
from p2pfl.network.protocol.wire import wire_rows
from p2pfl.network.protocol.wire.trailer import Checksum
from p2pfl.network.protocol.wire.wire_rows import DTYPES, Pieces, encode_row, read_row, row_bytes


class Unchecked(Checksum):
    """Lets everything pass, so that what it covers is looked at."""

    def check(self, digest, trailer):
        pass


def message(row, **fields):
    return message_of(encode_row(row, round=3, step=1, **fields))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_row_of_every_type_survives_the_wire(dtype):
    row = torch.arange(-500, 500).to(dtype)
    head, back, *_ = read_row(message(row, grid=20, mass=1.5))
    assert torch.equal(back, row)
    assert back.dtype == dtype
    assert (head.round, head.step, head.grid, head.mass) == (3, 1, 20, 1.5)


def test_bfloat16_is_read_without_torch_as_float32(monkeypatch):
    row = torch.tensor([1.0, -0.0, 3.0e38, 1e-40]).bfloat16()
    sent, hostile = message(row), message(torch.full((3,), torch.nan, dtype=torch.bfloat16))
    monkeypatch.setattr(wire_rows, "TORCH_INSTALLED", False)
    monkeypatch.setattr(wire_rows, "torch", numpy_tensors)
    monkeypatch.setitem(DTYPES, "bfloat16", numpy_tensors.bfloat16)
    head, read, _ = read_row(sent)
    assert (head.dtype, read.dtype, read.tolist()) == ("bfloat16", numpy_tensors.float32, row.tolist())
    with pytest.raises(DecodeError, match="NaN or infinity"):
        read_row(hostile)


def test_the_numbers_are_read_where_they_lie():
    sent = message(torch.ones(10))
    read_row(sent).row[0] = 7.0
    assert read_row(sent, trailer=Unchecked()).row[0] == 7.0


def test_an_empty_row_survives_the_wire():
    head, row, *_ = read_row(message(torch.empty(0)))
    assert head.length == 0
    assert row.shape == (0,)


@given(st.integers(1, 3000), st.integers(1, 4000))
@settings(MANY)
def test_pieces_put_together_are_the_message_whatever_their_size(length, size):
    parts = encode_row(torch.arange(length), round=0, step=0)
    cut = list(Pieces(parts, size=size))
    assert all(len(piece) == size for piece in cut[:-1])
    assert b"".join(cut) == b"".join(parts)
    assert torch.equal(read_row(message_of(parts, size=size)).row, torch.arange(length))


def test_a_row_on_the_wire_costs_less_than_its_bound():
    for dtype in DTYPES.values():
        assert len(message(torch.zeros(1000, dtype=dtype), grid=40, mass=math.pi).data) <= row_bytes(1000, dtype)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_that_are_not_finite_are_refused(number, dtype):
    row = torch.zeros(100, dtype=dtype)
    row[50] = number
    with pytest.raises(DecodeError, match="contains NaN or infinity"):
        read_row(message(row))


def test_large_finite_numbers_whose_sum_overflows_are_accepted():
    row = torch.full((100,), 3e38)
    assert torch.equal(read_row(message(row))[1], row)


@pytest.mark.parametrize("mass", [math.nan, math.inf])
def test_a_mass_that_is_not_finite_is_refused(mass):
    with pytest.raises(DecodeError, match="`float`"):
        read_row(message(torch.zeros(3), mass=mass))


@given(st.data())
@settings(MANY)
def test_a_row_with_any_changed_byte_is_refused(data):
    with pytest.raises(DecodeError):
        read_row(changed(encode_row(torch.arange(20), round=3, step=1), data))


def changed(parts, data):
    """A message of which one byte was changed before it was hashed on arrival, but not when it was sent."""
    sent = message_of(parts)
    buffer = bytearray(sent.data)
    place = data.draw(st.integers(0, len(buffer) - 1))
    buffer[place] ^= data.draw(st.integers(1, 255))
    return message_of([bytes(buffer)])._replace(trailer=sent.trailer)


@given(st.binary(min_size=1, max_size=300))
@settings(MANY)
def test_hostile_rows_raise_decode_error_and_nothing_else(data):
    with pytest.raises(DecodeError):
        read_row(message_of([data]), trailer=Unchecked())


def test_integers_travel_in_four_bytes_where_they_fit():
    stack = Released(torch.tensor([[2**31 - 1, -(2**31)], [2**31, 0]]), grid=0, dtype=torch.float32)
    assert stack.row(0).dtype == torch.int32
    assert stack.row(1).dtype == torch.int64
    assert Released(torch.tensor([[1.0]])).row(0).dtype == torch.float32


def test_a_squeezed_row_comes_back_and_takes_less():
    pytest.importorskip("zstandard")
    row = torch.arange(5000) % 7
    squeezed = message(row, zstd=Zstd())
    head, back, *_ = read_row(squeezed)
    assert head.zstd
    assert torch.equal(back, row)
    assert len(squeezed.data) < 1000 < len(message(row).data)


def test_a_row_that_does_not_squeeze_travels_as_it_is():
    pytest.importorskip("zstandard")
    row = torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    head, back, *_ = read_row(message(row[:3], zstd=Zstd()))
    assert not head.zstd
    assert torch.equal(back, row[:3])


def test_a_squeezed_row_of_more_than_the_largest_is_refused_before_it_is_expanded():
    pytest.importorskip("zstandard")
    squeezed = message(torch.zeros(10**6), zstd=Zstd())
    with pytest.raises(DecodeError, match="has 4000000 bytes, and 4000 are allowed"):
        read_row(squeezed, trailer=Checksum(), largest=4000)


@given(st.data())
@settings(MANY)
def test_a_squeezed_row_with_any_changed_byte_raises_decode_error_and_nothing_else(data):
    pytest.importorskip("zstandard")
    sent = changed(encode_row(torch.arange(200) % 5, round=3, step=1, zstd=Zstd()), data)
    with pytest.raises(DecodeError):
        read_row(sent, trailer=Checksum(), largest=1600)
    try:
        _, row, *_ = read_row(sent, trailer=Unchecked(), largest=1600)
    except DecodeError:
        return
    assert row.numel() * row.element_size() <= 1600 + len(sent.data)


def test_a_squeezed_row_of_numbers_that_are_not_finite_is_refused():
    pytest.importorskip("zstandard")
    with pytest.raises(DecodeError, match="contains NaN or infinity"):
        read_row(message(torch.full((1000,), math.inf), zstd=Zstd()))


def test_the_longest_head_lies_within_the_bytes_that_are_signed_as_they_are():
    row = torch.zeros(2**16, dtype=torch.bfloat16)
    prefix, _ = encode_row(row, round=2**31, step=2**15, grid=60, mass=math.pi, codec=127)
    assert len(prefix) <= 64
