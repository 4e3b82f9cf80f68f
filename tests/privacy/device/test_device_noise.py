"""Private noise as tensor operations equals that of the CPU, number by number, and the CPU approves of it."""

import math
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from p2pfl.core.errors import RunError
from p2pfl.privacy import noise as cpu_noise
from p2pfl.privacy.device import device_noise
from p2pfl.privacy.device.device_noise import DeviceNoise, undecided
from p2pfl.privacy.noise import NoiseSampler
from p2pfl.privacy.normal_stream import BLOCK, spans

CPU = torch.device("cpu")
CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"))
KEYS = [bytes([number]) * 32 for number in range(40)]


def of_the_cpu(deviation, keys, *, size):
    """Return what a peer draws block by block under each key."""
    sampler = NoiseSampler(deviation)
    blocks = [[sampler.window([key], each)[0].copy() for each in spans(size, BLOCK)] for key in keys]
    return np.stack([np.concatenate(each) for each in blocks])


def drawn_by(drawn, keys, *, size, device="cpu"):
    points = torch.zeros(len(keys), size, dtype=torch.int64, device=device)
    drawn.add_to(points, keys)
    return points


@given(
    keys=st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=4, unique=True),
    size=st.integers(1, 3000),
    deviation=st.sampled_from([0.3, 1.0, 2.0**13 + 0.7, 1e6, 2.0**40, 2.0**47.9]),
    wide=st.sampled_from([64, 2**23]),
)
def test_noise_is_that_of_the_cpu(keys, size, deviation, wide):
    drawn = DeviceNoise(deviation, CPU)
    with mock.patch.object(device_noise, "WIDE", wide):
        found = drawn_by(drawn, keys, size=size)
    drawn.check()
    np.testing.assert_array_equal(found.numpy(), of_the_cpu(deviation, keys, size=size))


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("deviation", [0.9, 2.0**20, 3.1e13])
def test_many_numbers_some_of_which_are_drawn_many_times_are_those_of_the_cpu(deviation, device):
    drawn = DeviceNoise(deviation, torch.device(device))
    found = drawn_by(drawn, KEYS, size=10_000, device=device)
    drawn.check()
    np.testing.assert_array_equal(found.cpu().numpy(), of_the_cpu(deviation, KEYS, size=10_000))


@pytest.mark.slow
@pytest.mark.parametrize("size", [BLOCK, BLOCK + 1, 3 * BLOCK + 1001])
@pytest.mark.parametrize("wide", [2 * BLOCK, 2**23])
def test_long_rows_are_drawn_in_the_blocks_of_the_cpu(size, wide, monkeypatch):
    monkeypatch.setattr(device_noise, "WIDE", wide)
    drawn = DeviceNoise(2.0**20, CPU)
    found = drawn_by(drawn, KEYS[:2], size=size)
    drawn.check()
    np.testing.assert_array_equal(found.numpy(), of_the_cpu(2.0**20, KEYS[:2], size=size))


def test_all_decisions_of_the_device_are_those_of_exact_arithmetic(monkeypatch):
    monkeypatch.setattr(device_noise, "CLOSEST", 1000)
    drawn = DeviceNoise(2.0**20, CPU, close=2.0)
    drawn_by(drawn, KEYS[:2], size=5000)
    with mock.patch.object(device_noise, "_is_wrong", wraps=device_noise._is_wrong) as decided:
        drawn.check()
    assert decided.call_count > 20


def test_a_decision_that_exact_arithmetic_does_not_confirm_is_an_error(monkeypatch):
    monkeypatch.setattr(device_noise, "CLOSEST", 1000)
    known = device_noise.DeviceTable.accepted
    monkeypatch.setattr(device_noise.DeviceTable, "accepted", lambda *given: (~known(*given)[0], known(*given)[1]))
    drawn = DeviceNoise(2.0**20, CPU, close=2.0)
    drawn_by(drawn, KEYS[:2], size=1000)
    with pytest.raises(RunError, match="private noise could not be drawn on the device"):
        drawn.check()


def test_more_close_decisions_than_are_checked_are_an_error():
    drawn = DeviceNoise(2.0**20, CPU, close=2.0)
    drawn_by(drawn, KEYS[:2], size=5000)
    with pytest.raises(RunError, match="private noise could not be drawn on the device"):
        drawn.check()


@pytest.mark.parametrize("rooms", [(1,) * 9, (400,)], ids=["too little room", "too few attempts"])
def test_numbers_for_which_there_is_no_room_are_an_error(rooms, monkeypatch):
    monkeypatch.setattr(device_noise, "rooms_of", lambda *_: rooms)
    drawn = DeviceNoise(2.0**20, CPU)
    drawn_by(drawn, KEYS, size=10_000)
    with pytest.raises(RunError, match="private noise could not be drawn on the device"):
        drawn.check()


def test_room_suffices_but_for_the_stated_probability():
    share = undecided(cpu_noise.table_of(2.0**20))
    assert 1 / 300 < share < 1 / 100
    for width in (1, 10, 2410, BLOCK):
        mean = width * share
        for room in device_noise.rooms_of(width, share):
            assert room == width or stats.poisson.logsf(room, mean) < math.log(device_noise.RARE)
            mean *= share
        assert mean <= device_noise.RARE


@pytest.mark.parametrize("deviation", [0.4, 2.0**20, 2.0**47.5])
def test_the_share_of_undecided_numbers_is_that_of_the_table(deviation):
    table = cpu_noise.table_of(deviation)
    random = np.random.default_rng(0)
    first, second = random.integers(0, 2**64, (2, 200_000), np.uint64)
    drawn = cpu_noise.FinePoints(np.empty(len(first), np.int64), np.empty(len(first), np.int64), second)
    found = table.propose(first, drawn, work=list(np.empty((2, len(first)), np.uint64)))
    assert len(found) == pytest.approx(200_000 * undecided(table), abs=5 * math.sqrt(200_000 * undecided(table)))
