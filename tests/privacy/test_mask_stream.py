import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from p2pfl.privacy import normal_stream
from p2pfl.privacy.normal_stream import MAX_DEVIATIONS, VALUES_PER_BLOCK, Sampler, grid_normals, normals, to_grid

COUNTING = bytes(range(32))
GOLDEN = {
    bytes(32): (
        [0.15970987266654604, -0.9979907679364649, -1.2525361910928763, 0.7639424808671145],
        [167468, -1046469, -1313379, 801052],
        34391098,
        "452d1effe0d0b31a52eddbdd29fd7e59a4f8737bda897428b5e42e7feef68a83",
    ),
    COUNTING: (
        [-0.21609778664313523, -0.5642307359343502, 0.836295677066729, 0.17860435906309377],
        [-226595, -591639, 876920, 187280],
        -41024529,
        "30365240b0ba7cf1414ca37680cc0e367505c19d51c3edafbc81dafcd861333f",
    ),
}


def uniforms(words):
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def quantiles(words):
    out = np.empty(words.size)
    normal_stream._quantiles(words.copy(), out=out, work=np.empty((3, words.size)))
    return out


def oracle(key, size):
    keystream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return ndtri(uniforms(np.frombuffer(keystream, "<u8")))


@pytest.mark.parametrize("key", GOLDEN)
def test_the_stream_is_the_published_one(key):
    first, points, total, digest = GOLDEN[key]
    np.testing.assert_allclose(normals(key, 4), first, rtol=0, atol=1.2e-10)
    drawn = grid_normals(key, 1000, deviation=1.0)
    assert drawn[:4].tolist() == points
    assert drawn.sum() == total
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest() == digest


def test_every_bit_of_the_numbers_is_pinned():
    # Any change of the order of operations, any fused multiply-add, any other logarithm shows here first.
    digest = hashlib.sha256(normals(COUNTING, 200_000).astype("<f8").tobytes()).hexdigest()
    assert digest == "b93d0635d55cdae53ee26e1b954339fcfd1e5ef63dcd1690c5fcd23a92a0b53d"


def test_the_words_are_the_keystream_of_rfc_8439():
    words = np.frombuffer(bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28"), "<u8")
    np.testing.assert_allclose(normals(bytes(32), 2), ndtri(uniforms(words)), rtol=0, atol=1.2e-10)


def test_the_numbers_agree_with_scipy_across_blocks():
    size = 2 * VALUES_PER_BLOCK + 1001
    expected = oracle(COUNTING, size)
    np.testing.assert_allclose(normals(COUNTING, size), expected, rtol=0, atol=1.2e-10)
    moved = grid_normals(COUNTING, size, deviation=1.0) - np.rint(expected * 2**20)
    assert np.abs(moved).max() <= 1  # where the quantile lies halfway between two points, to 1.2e-10
    assert (moved != 0).mean() < 2 * 1.2e-10 * 2**20


def test_the_tails_agree_with_scipy_to_their_ends():
    near = np.unique(np.logspace(0, np.log10(0.08 * 2**52), 4000).astype(np.uint64)) - np.uint64(1)  # [0, 0.08 2^52)
    words = np.concatenate([near, np.uint64(2**52 - 1) - near]) << np.uint64(12)
    expected = ndtri(uniforms(words))
    found = quantiles(words)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1.2e-10)
    np.testing.assert_array_equal(found[: near.size], -found[near.size :])  # symmetric to the last bit
    assert np.abs(found).max() < MAX_DEVIATIONS
    assert np.isfinite(found).all()


def test_the_points_of_the_table_agree_with_scipy():
    p = np.concatenate([np.logspace(-53 * np.log10(2), np.log10(0.5), 40_000), [0.075, np.exp(-25.0), 0.5]])
    np.testing.assert_allclose(normal_stream.wichura(p), -ndtri(p), rtol=2e-15, atol=1e-16)


def test_parabolas_meet_at_the_ends_of_their_cells_and_fall_towards_the_middle():
    third, second, first = normal_stream.parabolas()
    ends = (
        np.arange(normal_stream.FIRST_CELL, normal_stream.FIRST_CELL + normal_stream.CELL_COUNT + 1)
        << normal_stream.CELL_SHIFT
    ).view(np.float64)
    width = np.diff(ends)
    reached = first + width * (second + width * third)
    np.testing.assert_allclose(reached[:-1], first[1:], rtol=4e-15)
    assert reached[-1] == pytest.approx(0.0, abs=1e-15)
    assert (second < 0).all()
    assert (second + 2 * third * width < 0).all()


def test_no_parabola_is_farther_from_the_quantiles_than_is_claimed():
    ends = (
        np.arange(normal_stream.FIRST_CELL, normal_stream.FIRST_CELL + normal_stream.CELL_COUNT + 1)
        << normal_stream.CELL_SHIFT
    ).view(np.float64)
    for share in (0.211324865, 0.5, 0.788675135):  # where a cubic is farthest from its parabola
        p = ends[:-1] + share * np.diff(ends)
        words = (p * 2.0**52).astype(np.uint64) << np.uint64(12)
        assert np.abs(quantiles(words) - ndtri(uniforms(words))).max() < 1.2e-10


@pytest.mark.parametrize("seam", [2.0**-2, 2.0**-3, 2.0**-20, 0.3])
def test_quantiles_rise_across_the_seams_of_cells_and_binades(seam):
    words = np.linspace(0.9 * seam, 1.1 * seam, 20_000) * 2.0**52
    assert (np.diff(quantiles(words.astype(np.uint64) << np.uint64(12))) > 0).all()


@given(size=st.integers(1, 4000), first=st.integers(1, 4000), key=st.binary(min_size=32, max_size=32))
def test_a_shorter_draw_is_the_beginning_of_a_longer_one(size, first, key):
    whole = normals(key, max(size, first))
    np.testing.assert_array_equal(normals(key, min(size, first)), whole[: min(size, first)])


@pytest.mark.parametrize("block", [64, 1 << 10, 1 << 13])
def test_the_size_of_a_block_changes_nothing(block, monkeypatch):
    whole = normals(COUNTING, 20_011)
    monkeypatch.setattr(normal_stream, "VALUES_PER_BLOCK", block)
    np.testing.assert_array_equal(normals(COUNTING, 20_011), whole)


def test_several_streams_at_once_are_each_as_alone():
    keys = [bytes([number] * 32) for number in range(5)]
    together = Sampler().window(keys, slice(0, 777))
    np.testing.assert_array_equal(together, np.stack([normals(key, 777) for key in keys]))


@pytest.mark.parametrize("deviation", [0.01, 1.0, 10.0, 12345.678])
@pytest.mark.parametrize("bits", [1, 20, 24])
def test_grid_points_are_the_rounded_multiples(deviation, bits):
    drawn = grid_normals(COUNTING, 5000, deviation=deviation, bits=bits)
    np.testing.assert_array_equal(drawn, np.rint(normals(COUNTING, 5000) * deviation * 2.0**bits))


@given(st.lists(st.floats(-(2.0**51), 2.0**51, exclude_min=True, exclude_max=True), min_size=1))
def test_the_grid_rounds_half_to_even_as_numpy_does(values):
    expected = np.rint(np.array(values)).astype(np.int64)
    np.testing.assert_array_equal(to_grid(np.array(values), scale=1.0), expected)


@pytest.mark.slow
def test_the_numbers_are_standard_normal_to_the_tail():
    size = 1_000_000
    z = normals(COUNTING, size)
    assert stats.kstest(z, "norm").pvalue > 0.01
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - moment) < 4 * np.sqrt(variance / size)
    for bound in (2.0, 3.0, 4.0, 4.5):
        expected = 2 * size * stats.norm.sf(bound)
        assert abs((np.abs(z) > bound).sum() - expected) < 4 * np.sqrt(expected)
    assert abs(np.mean(z[1:] * z[:-1])) < 4 / np.sqrt(size)


def test_different_keys_give_unrelated_numbers():
    a, b = normals(bytes(32), 100_000), normals(COUNTING, 100_000)
    assert abs(np.mean(a * b)) < 4 / np.sqrt(a.size)
