"""Draws as tensor operations, on torch's CPU device, equal those of numpy and the library of ciphers bit for bit."""

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import PrivacyError
from p2pfl.privacy import device_masks, normal_stream
from p2pfl.privacy.device_masks import key_words, keystream, mask_sums, normals, to_grid
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.topology import Topology, complete, exponential, one_peer_exponential, random_regular, ring

CPU = torch.device("cpu")
CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"))
SOURCE = SeededSource(7)


def encrypted(key, count, words):
    """Return words of a keystream under nonce 0 as the library of ciphers makes them."""
    start = count.to_bytes(4, "little") + bytes(12)
    data = Cipher(ChaCha20(key, start), mode=None).encryptor().update(bytes(8 * words))
    return np.frombuffer(data, "<i8")


@given(
    keys=st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=5),
    first=st.integers(0, 2**31 - 9),
    count=st.integers(1, 8),
)
def test_keystreams_of_many_keys_are_those_of_the_library_of_ciphers(keys, first, count):
    found = keystream(key_words(keys, CPU), torch.arange(first, first + count, dtype=torch.int32)).numpy()
    for row, key in zip(found, keys, strict=True):
        np.testing.assert_array_equal(row, encrypted(key, first, 8 * count))


@given(key=st.binary(min_size=32, max_size=32), start=st.integers(0, 40), count=st.integers(1, 700))
def test_normal_numbers_are_those_of_numpy_bit_for_bit(key, start, count):
    found = normals(key_words([key, bytes(32)], CPU), slice(8 * start, 8 * start + count)).numpy()
    for row, each in zip(found, (key, bytes(32)), strict=True):
        np.testing.assert_array_equal(
            row.view(np.int64), normal_stream.normals(each, 8 * start + count)[8 * start :].view(np.int64)
        )


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_a_million_normal_numbers_reach_the_tails_and_are_those_of_numpy(device):
    found = normals(key_words([bytes(range(32))], torch.device(device)), slice(0, 2**20)).cpu().numpy()
    assert np.abs(found).max() > 4.5
    np.testing.assert_array_equal(
        found[0].view(np.int64), normal_stream.normals(bytes(range(32)), 2**20).view(np.int64)
    )


@given(
    values=st.lists(st.floats(-(2.0**30), 2.0**30), min_size=1, max_size=20),
    scale=st.sampled_from([1.0, 2.0**20, 1e-3, 0.7]),
)
def test_points_of_the_grid_are_those_of_numpy(values, scale):
    expected = normal_stream.to_grid(np.array(values), scale=scale)
    np.testing.assert_array_equal(to_grid(torch.tensor(values, dtype=torch.float64), scale=scale).numpy(), expected)


def masks_of(topology, **how):
    secrets = swarm_secrets(topology, source=SOURCE, run="test")
    return Masks(secrets, deviation=how.pop("deviation", 10.0), topology=topology, **how)


@pytest.mark.sampled(fast=8)
@pytest.mark.parametrize(("wide", "size"), [(8, 7), (8, 33), (64, 200), (64, 8), (2**23, 1), (2**23, 33)])
@pytest.mark.parametrize(
    "topology",
    [ring(5), complete(4), exponential(6), one_peer_exponential(8), random_regular(10, degree=4, seed=0)],
    ids=["ring", "complete", "one-way", "schedule", "regular"],
)
def test_mask_sums_are_those_of_numpy_and_cancel(topology, size, wide, monkeypatch):
    monkeypatch.setattr(device_masks, "NUMBERS_PER_DRAW", wide)
    masks = masks_of(topology)
    for round, attempt in ((0, 0), (1, 2)):
        how = {"round": round, "size": size, "attempt": attempt}
        found = mask_sums(masks, topology.peers, device=CPU, **how)
        np.testing.assert_array_equal(found.numpy(), masks.sums(topology.peers, **how))
        assert not found.sum(0).any()


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_peers_of_one_process_have_the_masks_that_they_have_among_all(device):
    topology = random_regular(10, degree=4, seed=0)
    masks = masks_of(topology, deviation=3.0, bits=24)
    some = topology.peers[3:7]
    found = mask_sums(masks, some, round=3, size=50, device=torch.device(device))
    np.testing.assert_array_equal(found.cpu().numpy(), masks.sums(some, round=3, size=50))


def test_peers_without_edges_have_no_masks():
    found = mask_sums(masks_of(Topology(("ada", "bob"), ())), ("ada", "bob"), round=0, size=3, device=CPU)
    assert found.tolist() == [[0] * 3] * 2


def test_a_missing_secret_is_refused_on_a_device_as_well():
    masks = Masks({}, deviation=1.0, topology=ring(3))
    with pytest.raises(PrivacyError, match="the edge peer0-peer1 has no shared secret to mask round 4"):
        mask_sums(masks, ("peer0",), round=4, size=3, device=CPU)
