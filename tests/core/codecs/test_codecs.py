import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cpu_device
from p2pfl.core.codecs import (
    QSGD,
    At,
    Half,
    Quantise,
    Whole,
    encode_rows,
    pack_bits,
    unpack_bits,
)
from p2pfl.core.draws import keys, subkeys
from p2pfl.core.errors import DecodeError, InputError
from p2pfl.core.sparse_codecs import RandomK, TopK

CODECS = {
    "float16": Half("float16"),
    "bfloat16": Half("bfloat16"),
    "top 10 %": TopK(0.1),
    "all": TopK(1.0),
    "top 10 % in 2 bits": TopK(0.1, bits=2),
    "all in 4 bits": TopK(1.0, bits=4),
    "random 10 %": RandomK(0.1, seed=3),
    "QSGD, 4 bits": QSGD(7, seed=3),
    "QSGD, 10 bits": QSGD(256, seed=3),
    "8 bits": Quantise(8),
    "4 bits": Quantise(4),
    "2 bits": Quantise(2),
}
EACH = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
PEERS = ("ada", "bob", "cyd")


def rows(length, *, seed=0, dtype=torch.float32, count=3):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, length))).to(dtype)


def at(*, peers=PEERS, round=2, step=1):
    return At(peers, round, step)


@pytest.mark.slow
@EACH
@given(st.integers(1, 3000), st.sampled_from([torch.float32, torch.float64]), st.integers(0, 100))
def test_what_is_read_from_the_bytes_is_what_the_sender_takes_it_for(codec, length, dtype, seed):
    left, short = encode_rows(codec, rows(length, seed=seed, dtype=dtype), at=at())
    assert left.dtype == dtype
    for index, peer in enumerate(PEERS):
        data = short.data(index)
        assert data.numel() == short.size
        other = encode_rows(codec, rows(length, seed=seed + 1, dtype=dtype, count=1), at=at(peers=("eve",)))[1]
        assert torch.equal(other.read(data, sender=peer), left[index])  # the receiver has a row of its own


SPECIAL = {
    "zeros": lambda stack: stack * 0,
    "one number": lambda stack: stack * (stack == stack.amax(-1, keepdim=True)),
    "ties": lambda stack: stack.round(),
    "signs": lambda stack: stack.sign(),
    "infinity": lambda stack: torch.where(stack == stack.amax(-1, keepdim=True), torch.inf, stack),
    "no number": lambda stack: torch.where(stack == stack.amax(-1, keepdim=True), torch.nan, stack),
    "large": lambda stack: stack.clamp(-1, 1) * torch.finfo(stack.dtype).max,
    "small": lambda stack: stack * torch.finfo(stack.dtype).tiny,
}


@pytest.mark.sampled(fast=40)
@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("special", SPECIAL)
def test_bytes_hold_what_a_simulation_takes_special_rows_for(codec, dtype, special):
    left, short = encode_rows(codec, SPECIAL[special](rows(1500, dtype=dtype)), at=at())
    for index, peer in enumerate(PEERS):
        data = short.data(index)
        assert data.numel() == short.size
        if bool(left[index].isfinite().all()):
            assert torch.equal(short.read(data, sender=peer), left[index])
        else:
            with pytest.raises(DecodeError, match="NaN or infinity"):
                short.read(data, sender=peer)


def test_of_equal_magnitudes_the_first_ones_are_kept():
    stack = torch.tensor([[1.0, -2.0, 2.0, 2.0, -3.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    left = encode_rows(TopK(0.6), stack, at=at(peers=PEERS[:2]))[0]
    assert left.tolist() == [[0.0, -2.0, 2.0, 0.0, -3.0], [0.0] * 5]


@pytest.mark.sampled(fast=30)
@EACH
@pytest.mark.parametrize("special", [*SPECIAL, None])
def test_a_device_gives_the_same_numbers_and_bytes_and_nothing_waits_for_it(codec, special):
    stack = rows(1500)
    stack = stack if special is None else SPECIAL[special](stack)
    wanted, bytes_wanted = encode_rows(codec, stack, at=at())
    with cpu_device.device() as device:
        there = stack.to(cpu_device.DEVICE, non_blocking=True)
        left, short = encode_rows(codec, there, at=at())
        assert left.device == cpu_device.DEVICE
        assert not device.waits
        here = left.cpu()
        data = [short.data(index) for index in range(3)]
    assert torch.equal(here.nan_to_num(7e7), wanted.nan_to_num(7e7))
    for index in range(3):
        assert torch.equal(data[index], bytes_wanted.data(index))


@pytest.mark.parametrize("codec", [Quantise(4), QSGD(7, seed=3), TopK(0.1), TopK(0.1, bits=2)], ids=str)
def test_blocks_of_rows_change_nothing(codec, monkeypatch):
    stack = rows(2000)
    wanted = encode_rows(codec, stack, at=at())[0]
    monkeypatch.setattr("p2pfl.core.rows.NUMBERS_PER_BLOCK", 2000)
    assert torch.equal(encode_rows(codec, stack, at=at())[0], wanted)


def quantised(row, bits):
    top = 2 ** (bits - 1) - 1
    found = np.zeros_like(row)
    for start in range(0, len(row), 1024):
        part = row[start : start + 1024]
        scale = np.float32(np.abs(part).max() / top)
        found[start : start + 1024] = np.clip(np.round(part / (scale or 1)), -top, top) * scale
    return found


def lots(seed, peer, length):
    """Return what the hashes of a peer say, from 0 to 1."""
    bits = subkeys(keys(seed, "qsgd 1", (peer,), 2), np.arange(length))
    return (bits >> 11) / 2**53 + 0.5


def rounded_at_random(row, levels, peer):
    size, length = np.linalg.norm(row.astype(np.float64)), len(row)
    tau = 1 + min(length / levels**2, math.sqrt(length) / levels)
    xi = lots(3, peer, length)
    return np.minimum(np.floor(levels * np.abs(row) / size + xi), levels) * np.sign(row) * size / (levels * tau)


@given(st.integers(1, 3000), st.integers(0, 100))
def test_levels_are_those_of_loops_in_numpy(length, seed):
    stack = rows(length, seed=seed, dtype=torch.float64)
    for bits in (2, 4, 8):
        left = encode_rows(Quantise(bits), stack, at=at())[0]
        assert np.array_equal(left.numpy(), [quantised(row, bits) for row in stack.numpy()])
    left = encode_rows(QSGD(7, seed=3), stack, at=at())[0]
    wanted = [rounded_at_random(row, 7, peer) for row, peer in zip(stack.numpy(), PEERS, strict=True)]
    assert left.numpy() == pytest.approx(np.array(wanted), rel=1e-12)


class Signs:
    """Codec of a user: one bit for each number, packed by p2pfl."""

    number = 90

    def parts(self, length, dtype):
        return (1, dtype), Whole(length, largest=1)

    def encode(self, stack, *, at):
        del at
        return stack.abs().mean(-1, keepdim=True), stack > 0

    def decode(self, codes, *, length, dtype, at):
        del length, at
        size, up = codes
        return (2 * up.to(dtype) - 1) * size


def test_a_codec_of_ones_own_leaves_packing_to_p2pfl():
    left, short = encode_rows(Signs(), rows(1000), at=at())
    assert short.size == 4 + 125
    for index, peer in enumerate(PEERS):
        assert torch.equal(short.read(short.data(index), sender=peer), left[index])


@EACH
def test_each_row_is_coded_by_itself(codec):
    stack = rows(2000)
    left = encode_rows(codec, stack, at=at())[0]
    for index, peer in enumerate(PEERS):
        assert torch.equal(encode_rows(codec, stack[index : index + 1], at=at(peers=(peer,)))[0][0], left[index])


@EACH
def test_a_row_of_zeros_stays_one(codec):
    assert torch.equal(encode_rows(codec, torch.zeros(3, 50), at=at())[0], torch.zeros(3, 50))


@EACH
@given(st.integers(0, 10**6))
def test_what_is_lost_is_no_more_than_the_row(codec, seed):
    stack = rows(2000, seed=seed)
    left = encode_rows(codec, stack, at=at())[0]
    assert bool(((left - stack).norm(dim=-1) <= stack.norm(dim=-1)).all())


def test_qsgd_is_right_in_the_mean_and_its_lots_are_uniform():
    found = np.concatenate([lots(3, peer, 20_000) for peer in PEERS])
    assert 0 <= found.min() < found.max() < 1
    assert np.histogram(found, bins=10, range=(0, 1))[0] == pytest.approx(np.full(10, 6000), abs=300)
    stack = torch.full((3, 20_000), 0.3)
    left = encode_rows(QSGD(1, seed=3), stack, at=at())[0] * QSGD(1).tau(20_000)
    assert left.mean(-1).tolist() == pytest.approx([0.3] * 3, rel=0.25)


@EACH
@given(st.data())
def test_hostile_bytes_give_finite_numbers_or_a_decode_error(codec, data):
    short = encode_rows(codec, rows(20, count=1), at=at(peers=("ada",)))[1]
    hostile = data.draw(st.binary(min_size=short.size, max_size=short.size) | st.binary(max_size=100))
    try:
        row = short.read(torch.tensor(list(hostile), dtype=torch.uint8), sender="bob")
    except DecodeError:
        return
    assert row.shape == (20,)
    assert bool(row.isfinite().all())


def test_bytes_of_another_type_are_refused():
    short = encode_rows(Quantise(8), rows(20, count=1), at=at(peers=("ada",)))[1]
    with pytest.raises(DecodeError, match=r"a row has 24 bytes, but 24 numbers of torch\.int8 arrived"):
        short.read(torch.zeros(24, dtype=torch.int8), sender="bob")


def test_places_that_repeat_or_lie_outside_are_refused():
    short = encode_rows(TopK(0.1), rows(20, count=1), at=at(peers=("ada",)))[1]
    data = short.data(0)
    for places, sentence in (
        ([3, 3], "the whole numbers of a row do not increase"),
        ([4, 3], "the whole numbers of a row do not increase"),
        ([3, 20], "a whole number of a row is 20, above the largest, 19"),
    ):
        data[:2] = pack_bits(torch.tensor([places]), bits=5)[0]
        with pytest.raises(DecodeError, match=sentence):
            short.read(data, sender="ada")


def test_a_level_that_no_sender_has_is_refused():
    short = encode_rows(Quantise(2), rows(20, count=1), at=at(peers=("ada",)))[1]
    data = short.data(0)
    data[-1] = 255
    with pytest.raises(DecodeError, match="a whole number of a row is 3, above the largest, 2"):
        short.read(data, sender="ada")


def test_top_k_keeps_the_largest_as_a_loop_finds_them():
    stack = rows(100)
    expected = torch.zeros_like(stack)
    for index, row in enumerate(stack):
        for place in sorted(range(100), key=lambda place: -abs(float(row[place])))[:10]:
            expected[index, place] = row[place]
    assert torch.equal(encode_rows(TopK(0.1), stack, at=at())[0], expected)


def test_random_k_keeps_other_places_for_every_peer_round_and_step():
    ones = torch.ones(1, 1000)
    keys = [at(peers=("ada",)), at(peers=("bob",)), at(peers=("ada",), round=3), at(peers=("ada",), step=2)]
    found = [encode_rows(RandomK(0.1, seed=1), ones, at=key)[0] for key in keys]
    assert all(float(row.sum()) == 100 for row in found)
    assert len({tuple(row[0].tolist()) for row in found}) == 4


def test_qsgd_is_the_formula_of_the_paper():
    stack, s, length = rows(300, dtype=torch.float64), 16, 300
    left = encode_rows(QSGD(s, seed=5), stack, at=at())[0]
    tau = 1 + min(length / s**2, math.sqrt(length) / s)
    for index, peer in enumerate(PEERS):
        xi = lots(5, peer, length)
        norm = math.sqrt(sum(float(x) ** 2 for x in stack[index]))
        for place, x in enumerate(stack[index].tolist()):
            expected = math.copysign(norm / (s * tau) * math.floor(s * abs(x) / norm + xi[place]), x)
            assert float(left[index, place]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_qsgd_is_right_on_average_up_to_its_shrinking():
    row = rows(50, count=1, dtype=torch.float64)
    codec = QSGD(4, seed=0)
    mean = torch.stack([encode_rows(codec, row, at=At(("ada",), round, 0))[0] for round in range(4000)]).mean(0)
    tau = 1 + min(50 / 16, math.sqrt(50) / 4)
    assert torch.allclose(mean * tau, row, atol=0.15)  # four deviations of the mean


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantised_numbers_lie_within_half_a_level(bits):
    stack = rows(5000)
    left = encode_rows(Quantise(bits), stack, at=at())[0]
    for start in range(0, 5000, 1024):
        block = slice(start, start + 1024)
        level = stack[:, block].abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
        assert bool(((left - stack)[:, block].abs() <= level * 0.5001).all())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_few_bits_of_the_largest_numbers_are_the_middles_of_their_range(bits):
    stack = rows(30_000)
    kept = encode_rows(TopK(0.1), stack, at=at())[0].numpy()
    left = encode_rows(TopK(0.1, bits=bits), stack, at=at())[0].numpy()
    levels = 2 ** (bits - 1)
    for row, found in zip(kept, left, strict=True):
        values, codes = row[row != 0], found[row != 0]
        assert len(values) == 3000
        assert not found[row == 0].any()
        for start in range(0, len(values), 1024):
            part, got = values[start : start + 1024], codes[start : start + 1024]
            low, high = np.abs(part).min(), np.abs(part).max()
            level = np.minimum((np.abs(part) - low) * levels / (high - low) // 1, levels - 1)
            middle = low + (level + 0.5) * (high - low) / levels
            middle = np.where(level == 0, np.minimum(middle, 2 * low), middle)
            assert np.allclose(got, np.sign(part) * middle, rtol=1e-5)


@given(st.integers(1, 3000), st.integers(0, 100), st.floats(0.01, 1), st.integers(2, 8))
def test_no_number_in_few_bits_is_worse_than_none(length, seed, share, bits):
    stack = rows(length, seed=seed, dtype=torch.float64) ** 5  # some are much larger than most
    left = encode_rows(TopK(share, bits=bits), stack, at=at())[0]
    assert bool(((left - stack).abs() <= stack.abs() * (1 + 1e-6)).all())


@pytest.mark.parametrize(
    ("codec", "size"),
    [
        (Half("float16"), 2000),
        (TopK(0.1), 100 * 4 + 125),  # places of ten bits
        (TopK(0.1, bits=2), 125 + 2 * 4 + 25),  # and the range of the magnitudes
        (RandomK(0.1), 400),
        (QSGD(7), 504),
        (QSGD(127), 1004),
        (Quantise(8), 1004),
        (Quantise(4), 504),
    ],
    ids=str,
)
def test_a_row_of_a_thousand_numbers_has_so_many_bytes(codec, size):
    assert encode_rows(codec, rows(1000), at=at())[1].size == size


@given(st.integers(1, 16), st.integers(1, 50), st.data())
def test_numbers_come_out_of_their_bits_as_they_went_in(bits, count, data):
    codes = torch.tensor([data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=count, max_size=count))])
    tight = pack_bits(codes, bits=bits)
    assert tight.shape == (1, -(-count * bits // 8))
    assert torch.equal(unpack_bits(tight, bits=bits, count=count), codes)


@given(st.integers(0, 2**20))
def test_bits_suffice(largest):
    assert largest < 2 ** Whole(1, largest).bits


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Half("float8"), '"float8" is not a two-byte float; choose "float16" or "bfloat16"'),
        (lambda: Quantise(16), "bits is 16, not from 2 to 8; choose 8 or 4"),
        (lambda: QSGD(0), "levels is 0, not from 1 to 32767; 7 take 4 bits per number, 127 take 8"),
        (lambda: TopK(0.0), "is not above 0 and at most 1; 0.01 keeps one number in a hundred"),
        (lambda: TopK(0.1, bits=1), "bits is 1, not from 2 to 8; choose 2 or 4, or leave it out"),
        (lambda: RandomK(1.5), "is not above 0 and at most 1; 0.01 keeps one number in a hundred"),
    ],
)
def test_a_codec_that_cannot_be_is_refused_in_one_sentence(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
