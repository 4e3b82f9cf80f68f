"""Releases and sums of an accelerator equal those of the CPU bit for bit, and it refuses the same rows."""

import math
from unittest import mock

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import cpu_device
from p2pfl.core.errors import LearningError, PrivacyError
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.rows import to_device
from p2pfl.privacy import device_masks, normal_stream, update
from p2pfl.privacy.device_masks import weighted_sums
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.privacy.release import private
from p2pfl.privacy.release_settings import Settings
from p2pfl.privacy.secagg.weighted_sums import portions
from p2pfl.privacy.update import fold_sums, root
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import complete, metropolis, ring

CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"))
SOURCE = SeededSource(7)
SWARM = ring(5)


def draw(size, *, seed=0, scale=1.0, dtype=torch.float32):
    return (scale * torch.randn(5, size, generator=torch.Generator().manual_seed(seed))).to(dtype)


def neighbourhoods(*, postponed=None, **chosen):
    """Return a neighbourhood and the same under protection."""
    settings, masks = Settings(**chosen), None
    if settings.mask:
        secrets = swarm_secrets(SWARM, source=SOURCE, run="test")
        masks = Masks(secrets, deviation=settings.mask, bits=settings.bits, topology=SWARM)
    net = StackedNeighbourhood([metropolis(SWARM)], round=3, seed=0)
    net.postponed = postponed
    return net, private(net, settings=settings, masks=masks, source=SOURCE, round=3)


def released(net, rows, since, masses=None):
    return run_without_loop(net.release(rows, since=Public(since), masses=masses))


def both(rows, since, masses=None, **chosen):
    """Return what the CPU releases twice in a round, what the device does, and how often the CPU waited for it."""
    expected = [released(net, rows, since, masses) for net in [neighbourhoods(**chosen)[1]] for _ in range(2)]
    with cpu_device.device() as device:
        bare, net = neighbourhoods(postponed=[], **chosen)
        there = [to_device(each, cpu_device.DEVICE) for each in (rows, since)]
        device.waits.clear()
        found = [released(net, *there, masses) for _ in range(2)]
        waits = device.waits.copy()
        bare.check()
        assert all(each.rows.device == cpu_device.DEVICE for each in found)
        return expected, [(each, each.rows.cpu()) for each in found], waits


@pytest.mark.slow
@given(
    size=st.integers(1, 70),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    masses=st.none() | st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.25]), min_size=5, max_size=5),
    wide=st.sampled_from([16, 2**23]),
    chosen=st.fixed_dictionaries(
        {
            "clip": st.sampled_from([0.1, 3.0, math.inf]),
            "noise": st.sampled_from([0.0, 0.7]),
            "mask": st.sampled_from([0.0, 2.0]),
            "bits": st.integers(4, 24),
            "participation": st.sampled_from([0.5, 1.0]),
        }
    ),
)
def test_a_device_releases_the_numbers_of_the_cpu_without_waits(*, size, dtype, masses, wide, chosen):
    weights = None if masses is None else torch.tensor(masses, dtype=torch.float64)[:, None]
    if Settings(**chosen).neutral:
        return
    # What is computed together is whole blocks, within which sums of squares have one order.
    with mock.patch.multiple(update, NUMBERS_PER_DRAW=wide, VALUES_PER_BLOCK=min(wide, update.VALUES_PER_BLOCK)):
        expected, found, waits = both(draw(size, dtype=dtype), draw(size, seed=1, dtype=dtype), weights, **chosen)
    assert not waits
    for one, (other, rows) in zip(expected, found, strict=True):
        assert rows.dtype == one.rows.dtype
        assert torch.equal(rows, one.rows)
        assert (other.grid, other.dtype) == (one.grid, one.dtype)
        assert (other.masses is None) == (one.masses is None)
        assert one.masses is None or torch.equal(other.masses, one.masses)


@pytest.mark.slow
def test_long_rows_are_released_alike():
    size = 3 * normal_stream.VALUES_PER_BLOCK + 17
    expected, found, _ = both(draw(size), draw(size, seed=1), clip=0.5, noise=0.1, mask=1.0)
    for one, (_, rows) in zip(expected, found, strict=True):
        assert torch.equal(rows, one.rows)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_cuda_releases_the_numbers_of_the_cpu_without_waits():
    chosen = {"clip": 0.5, "noise": 0.1, "mask": 1.0}
    rows, since = draw(3014), draw(3014, seed=1)
    expected = released(neighbourhoods(**chosen)[1], rows, since)
    bare, net = neighbourhoods(postponed=[], **chosen)
    there = rows.cuda(), since.cuda()
    with cpu_device.waiting_forbidden():
        found = released(net, *there)
    bare.check()
    assert torch.equal(found.rows.cpu(), expected.rows)


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("chosen", [{"clip": 1.0}, {"clip": 1.0, "noise": 0.1}, {"noise": 0.1}, {"mask": 1.0}])
def test_a_row_that_is_not_finite_is_refused_when_the_round_ends_or_at_once(bad, chosen):
    rows = torch.zeros(5, 10)
    rows[1, 4] = bad
    with cpu_device.device():
        there = [to_device(each, cpu_device.DEVICE) for each in (rows, torch.zeros(5, 10))]
        bare, net = neighbourhoods(postponed=[], **chosen)
        released(net, *there)
        with pytest.raises(LearningError, match="the model of peer1 contains NaN or infinity before its release"):
            bare.check()
        with pytest.raises(LearningError, match="the model of peer1 contains NaN or infinity before its release"):
            released(neighbourhoods(**chosen)[1], *there)


@pytest.mark.parametrize("part", ["rows", "since"])
def test_a_value_beyond_the_grid_is_refused_with_the_sentence_of_the_cpu(part):
    values = {"rows": torch.zeros(5, 10), "since": torch.zeros(5, 10)}
    values[part][2, 7] = 2.0**40
    with pytest.raises(PrivacyError, match="a released value of peer2 is") as expected:
        released(neighbourhoods(mask=1.0)[1], **values)
    with cpu_device.device():
        there = {name: to_device(value, cpu_device.DEVICE) for name, value in values.items()}
        with pytest.raises(PrivacyError) as found:
            released(neighbourhoods(mask=1.0)[1], **there)
    assert str(found.value) == str(expected.value)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=70),
    zeros=st.integers(0, 70),
)
def test_sums_are_folded_alike_by_numpy_and_torch_and_zeros_at_the_end_change_nothing(values, zeros):
    expected = fold_sums(np.array(values))
    assert expected == pytest.approx(math.fsum(values), rel=1e-12, abs=1e-8)
    assert fold_sums(torch.tensor([values + [0.0] * zeros], dtype=torch.float64)).item() == expected


@given(values=st.lists(st.floats(2.0**-1022, 1e308), min_size=1, max_size=20))
def test_roots_are_those_of_numpy_to_a_unit_in_the_last_place_and_alike_in_torch(values):
    found, exact = root(np.array(values)), np.sqrt(values)
    assert (np.abs(found - exact) <= np.spacing(exact)).all()
    np.testing.assert_array_equal(root(torch.tensor(values, dtype=torch.float64)).numpy(), found)


@pytest.mark.parametrize("scale", [2.0**-500, 1.0, 3.0, 2.0**501])
def test_many_roots_are_alike(scale):
    values = scale * np.random.default_rng(0).uniform(0.5, 4.0, 10_000)
    assert (np.abs(root(values) - np.sqrt(values)) <= np.spacing(np.sqrt(values))).all()
    np.testing.assert_array_equal(root(torch.from_numpy(values)).numpy(), root(values))


@given(
    seed=st.integers(0, 2**32 - 1),
    receivers=st.integers(1, 9),
    senders=st.integers(1, 9),
    size=st.integers(1, 40),
    wide=st.sampled_from([1, 16, 2**23]),
)
def test_sums_of_weighted_rows_are_those_of_numpy(seed, receivers, senders, size, wide):
    drawn = np.random.default_rng(seed)
    weights = scipy.sparse.csr_array(drawn.random((receivers, senders)) * (drawn.random((receivers, senders)) < 0.5))
    points = np.rint(drawn.normal(size=(senders, size)) * 2.0 ** drawn.integers(0, 47))
    with mock.patch.object(device_masks, "NUMBERS_PER_DRAW", wide):
        found = weighted_sums(weights, torch.from_numpy(points))
    np.testing.assert_array_equal(found.numpy(), portions(weights, points))


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_sums_on_the_complete_graph_are_those_of_numpy(device):
    weights = metropolis(complete(8)).matrix
    points = np.rint(np.random.default_rng(0).normal(size=(8, 1000)) * 2.0**40)
    found = weighted_sums(weights, torch.from_numpy(points).to(device))
    np.testing.assert_array_equal(found.cpu().numpy(), portions(weights, points))
