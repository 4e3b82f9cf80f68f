"""Private noise reaches every grid point from every update, with the probability that the accountant assumes."""

import hashlib
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy.special import ndtr

from p2pfl.core.errors import InputError
from p2pfl.core.neighbourhood import Public
from p2pfl.privacy import noise
from p2pfl.privacy.accounting.spending import Cost, spent
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.noise import NoiseSampler
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, _quantiles, spans
from p2pfl.privacy.release import private
from p2pfl.privacy.release_settings import Settings, truncation
from p2pfl.topology import ring
from tests.privacy.test_release import Room

KEY = bytes(range(32))


def drawn(sampler, key, size):
    return np.concatenate([sampler.window([key], span)[0].copy() for span in spans(size, VALUES_PER_BLOCK)])


def reached(points, *, update, deviation, bits):
    """Whether the inverse of the normal distribution function of some 52-bit number takes an update to each point.

    This is the attack of Mironov (2012) on a release that adds such a number and rounds.
    """

    def rounded(numbers):
        words = (numbers.astype(np.uint64) << np.uint64(12)).copy()
        normal = np.empty(len(words))
        work = [np.empty(len(words)) for _ in range(3)]
        _quantiles(words, out=normal, work=work)
        return np.rint((normal * deviation + update) * 2.0**bits).astype(np.int64)

    low, high = np.zeros(len(points), np.int64), np.full(len(points), 2**52 - 1)
    for _ in range(53):
        middle = (low + high) // 2
        above = rounded(middle) >= points
        low, high = np.where(above, low, middle + 1), np.where(above, middle, high)
        low = np.minimum(low, high)
    near = [np.clip(low + shift, 0, 2**52 - 1) for shift in range(-4, 5)]
    return np.any([rounded(each) == points for each in near], axis=0)


async def test_no_released_number_proves_which_of_two_updates_it_hides():
    size, bits, deviation = 650, 40, 200.0
    update = torch.randn(1, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    update /= update.norm()
    net = private(
        Room(ring(3).peers[:1]),
        settings=Settings(clip=1.0, noise=deviation, bits=bits),
        masks=None,
        source=SeededSource(7),
        round=0,
    )
    released = (await net.release(update, since=Public(torch.zeros_like(update)))).rows[0].numpy()
    true = reached(released, update=update[0].numpy(), deviation=deviation, bits=bits)
    other = reached(released, update=np.zeros(size), deviation=deviation, bits=bits)
    assert (~true & ~other).any()  # points that the attacker takes to be impossible are released
    assert (other & ~true).any()  # and what they take for a proof names the wrong update


@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize("deviation", [0.02, 0.7, 130.0, 2.0**20, 1.37 * 2.0**31, 200 * 2.0**40])
def test_words_choose_each_cell_as_often_as_its_weight_says(deviation):
    table = noise.table_of(deviation)
    capacity = 1 << 51
    chosen = [0] * (2 * table.count + 1)
    for number, last in enumerate(table.last.tolist()):
        first, second = table.choices[2 * number : 2 * number + 2].tolist()
        share = last + 1 - number * capacity
        assert 0 < share <= capacity
        chosen[first] += share
        if share < capacity:
            chosen[second] += capacity - share
    assert sum(chosen) == 2**64
    assert chosen[-1] < 2**14  # a word that chooses no point is as rare
    with localcontext(prec=60):
        scales = [weight * each for weight, each in zip(chosen[:-1], table.exact[:-1], strict=True)]
        assert max(scales) - min(scales) < Decimal("1e-35")  # C, of every cell
        for cell in range(table.count):
            least = Decimal(cell << 44) / Decimal(table.deviation)
            for side in (table.count + cell, table.count - 1 - cell):
                assert table.exact[side] * (-least * least / 2).exp() <= 1 + Decimal("1e-50")
                further = Decimal((cell + 1) << 44) / Decimal(table.deviation)
                assert int(table.sure[side]) <= table.exact[side] * (-further * further / 2).exp() * 2**64
    assert table.count * 2.0**44 >= 14 * table.deviation
    assert table.deviation == deviation * 2.0**table.shift or table.shift == 62


@pytest.mark.parametrize("deviation", [0.7, 3.3, 40.0])
def test_noise_is_distributed_as_a_rounded_normal_number(deviation):
    size = 1 << 20
    counts = np.bincount(drawn(NoiseSampler(deviation), KEY, size) + 1000, minlength=2000)
    edges = (np.arange(-1000, 1001) - 0.5) / deviation
    expected = size * np.diff(ndtr(edges))
    kept = expected > 10
    statistic = ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    freedom = kept.sum() - 1
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)
    assert counts[~kept].sum() < 10 * expected[~kept].sum() + 10


def test_low_bits_of_fine_noise_are_uniform_and_tails_are_those_of_a_normal_number():
    size, deviation = 1 << 20, 1.37 * 2.0**40
    points = drawn(NoiseSampler(deviation), KEY, size)
    low = np.bincount(points & 255, minlength=256)
    assert abs(((low - size / 256) ** 2 / (size / 256)).sum() - 255) < 5 * math.sqrt(510)
    for reach in (1.0, 2.0, 3.0, 4.0):
        expected = 2 * size * ndtr(-reach)
        assert abs((np.abs(points) > reach * deviation).sum() - expected) < 5 * math.sqrt(expected)


def words(key, *, purpose, count, attempt=0, at=0):
    nonce = bytes(4) + bytes([purpose]) + attempt.to_bytes(3, "little") + at.to_bytes(8, "little")
    stream = Cipher(ChaCha20(key, nonce), mode=None).encryptor().update(bytes(8 * count))
    return [int.from_bytes(stream[8 * k : 8 * k + 8], "little") for k in range(count)]


def derived(key, size, deviation):  # noqa: C901 (one definition, read from top to bottom)
    """The numbers of a first block, one by one and in rational and decimal arithmetic, from the module's docstring."""
    exponent = math.frexp(deviation)[1]
    shift, fine = 52 - exponent, deviation * 2.0 ** (52 - exponent)
    with localcontext(prec=60):
        unit = Decimal(2**44) / Decimal(fine)
        count = math.ceil(14 * fine / 2**44)
        heights = [(-((j * unit) ** 2) / 2).exp() for j in range(count)]
        scale = (2**64 - 2 * count) // (2 * sum(heights))
        side = [math.ceil(scale * height) for height in heights]
        weights = [*reversed(side), *side]
        weights.append(2**64 - sum(weights))
        left = weights + [0] * (8192 - len(weights))
        bins = {}
        small = [k for k, weight in enumerate(left) if weight < 2**51]
        large = [k for k, weight in enumerate(left) if weight > 2**51]
        while small:
            low = small.pop()
            bins[low] = (left[low], low, large[-1])
            left[large[-1]] -= 2**51 - left[low]
            if left[large[-1]] <= 2**51:
                emptied = large.pop()
                if left[emptied] < 2**51:
                    small.append(emptied)

        def proposal(first, second):
            share, one, other = bins.get(first >> 51, (2**51, first >> 51, None))
            cell = one if first % 2**51 < share else other
            return cell, (cell - count) * 2**44 + second % 2**44

        def chance(cell, point):
            z = (point + Decimal("0.5")) / Decimal(fine)
            return 0 if cell == 2 * count else scale / weights[cell] * (-z * z / 2).exp()

        def sure(cell):
            if cell == 2 * count:
                return 0
            j = max(cell - count, count - 1 - cell)
            return int(scale / weights[cell] * (-(((j + 1) * unit) ** 2) / 2).exp() * 2**20)

        seconds = words(key, purpose=1, count=size)
        firsts = words(key, purpose=0, count=size)
        now = {k: (*proposal(firsts[k], seconds[k]), seconds[k]) for k in range(size)}
        found, attempt = {}, 0
        while now:
            found |= {k: point for k, (cell, point, second) in now.items() if second >> 44 < sure(cell)}
            now = {k: each for k, each in now.items() if k not in found}
            more = words(key, purpose=2, count=3 * len(now), attempt=attempt)
            left_over = {}
            for place, (k, (cell, point, second)) in enumerate(now.items()):
                extra, first, following = more[3 * place : 3 * place + 3]
                if Decimal(((second >> 44) << 64) + extra) / 2**84 < chance(cell, point):
                    found[k] = point
                else:
                    left_over[k] = (*proposal(first, following), following)
            now, attempt = left_over, attempt + 1
    return [(found[k] + (1 << shift - 1)) >> shift for k in range(size)]


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("deviation", [0.9, 1.37 * 2.0**20, 2.0**47])
def test_the_sampler_gives_what_its_definition_gives_number_by_number(deviation):
    assert drawn(NoiseSampler(deviation), KEY, 3000).tolist() == derived(KEY, 3000, deviation)


def test_the_noise_of_a_key_is_golden():
    points = drawn(NoiseSampler(2.0**20), KEY, 100_000)
    assert points[:4].tolist() == [-361306, -777072, 757378, 67176]
    assert (
        hashlib.sha256(points.astype("<i8").tobytes()).hexdigest()
        == "39c828e4a38148dbd69f0ac4df3cf597402a37dfeb5a7a45acc416a78a722bfd"
    )


def test_decisions_that_are_close_agree_with_those_in_doubles():
    every = NoiseSampler(1.37 * 2.0**20, close=math.inf)  # all that 20 bits leave open
    assert np.array_equal(
        drawn(every, KEY, VALUES_PER_BLOCK), drawn(NoiseSampler(1.37 * 2.0**20), KEY, VALUES_PER_BLOCK)
    )


def test_a_row_is_drawn_alike_alone_and_among_others():
    sampler, keys = NoiseSampler(1e6), [bytes([number]) * 32 for number in range(20)]
    stacked = sampler.window(keys, slice(0, 3000)).copy()
    alone = np.stack([sampler.window([key], slice(0, 3000))[0].copy() for key in keys])
    assert np.array_equal(stacked, alone)


def test_a_later_block_continues_the_streams():
    points = drawn(NoiseSampler(1e6), KEY, 2 * VALUES_PER_BLOCK)
    assert np.array_equal(
        NoiseSampler(1e6).window([KEY], slice(VALUES_PER_BLOCK, 2 * VALUES_PER_BLOCK))[0], points[VALUES_PER_BLOCK:]
    )
    assert not np.array_equal(points[:VALUES_PER_BLOCK], points[VALUES_PER_BLOCK:])


def test_the_cut_of_the_noise_takes_its_share_of_delta():
    assert truncation(2.0) == pytest.approx(2**33 * ndtr(-12.0), rel=1e-9)
    near = [mu for mu in np.arange(4.0, 8.0, 0.01) if truncation(mu) < 1e-5][-1]
    assert spent({Cost(near): 1}, delta=1e-5) > spent({Cost(near): 1}, delta=1e-5 * (1 + 1e-6))
    assert spent({Cost(near): 1}, delta=2e-5) < math.inf
    assert spent({Cost(near + 0.5): 1}, delta=1e-5) == math.inf
    many = math.ceil(1e-5 / truncation(5.0)) + 1
    assert spent({Cost(5.0): many}, delta=1e-5) == math.inf


def test_noise_finer_than_the_sampler_resolves_is_refused_with_the_bits_that_fit():
    with pytest.raises(InputError, match=r"set privacy\.bits to 38 or less"):
        Settings(noise=600.0, bits=40)
    Settings(noise=600.0, bits=38)
