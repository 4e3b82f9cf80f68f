import numpy as np
import pytest
import torch

from p2pfl.data import federate
from p2pfl.data.sources import synthetic

PEERS = [f"peer{k:03d}" for k in range(300)]


def device(peer, **options):
    return synthetic(None, **options).load(peer=peer, peers=(peer,), seed=7)


def test_a_device_is_the_same_whoever_else_is_there():
    few = federate("synthetic", peers=PEERS[:2], seed=7)
    many = federate("synthetic", peers=PEERS[:9], seed=7, only=PEERS[1:2])
    for part in ("train", "test"):
        one, other = (getattr(swarm, part)[PEERS[1]] for swarm in (few, many))
        assert torch.equal(few.dataset.features[one], many.dataset.features[other])


@pytest.mark.slow
def test_sizes_are_fifty_and_a_lognormal():
    sizes = np.array([len(device(peer)[1]) for peer in PEERS])
    assert sizes.min() >= 50
    logs = np.log(sizes - 49.5)
    assert logs.mean() == pytest.approx(4, abs=4 * 2 / np.sqrt(300))
    assert logs.std() == pytest.approx(2, rel=0.15)


def test_a_tenth_of_each_device_is_its_own_test_part():
    swarm = federate("synthetic", peers=PEERS[:20], seed=7, test=0.5)
    for peer in swarm.peers:
        whole = len(swarm.train[peer]) + len(swarm.test[peer])
        assert len(swarm.test[peer]) == pytest.approx(whole / 10, abs=0.51)


@pytest.mark.slow
def test_inputs_have_the_variances_of_the_recipe():
    x = max((device(peer)[0] for peer in PEERS), key=len)
    assert len(x) > 5000
    assert x.var(0) == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.1)


@pytest.mark.slow
def test_means_differ_by_beta_across_devices():
    # The mean over 60 coordinates of v_k is N(0, beta^2 + 1/60).
    for beta in (0.0, 1.0, 3.0):
        centres = [device(peer, beta=beta)[0].mean() for peer in PEERS]
        assert np.std(centres) == pytest.approx(np.sqrt(beta**2 + 1 / 60), rel=0.15)


@pytest.mark.slow
def test_iid_devices_share_one_model_and_mean_zero():
    parts = [device(peer, iid=True) for peer in PEERS[:40]]
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    assert x.mean(0) == pytest.approx(np.zeros(60), abs=0.05)
    W = np.linalg.lstsq(x, np.eye(10)[y] - 0.1, rcond=None)[0]
    agree = [(own @ W).argmax(1) == targets for own, targets in parts]
    assert min(hits.mean() for hits in agree) > 0.4  # one linear model fits every device


def test_models_differ_between_devices_unless_iid():
    labels = [np.bincount(device(peer)[1], minlength=10).argmax() for peer in PEERS[:30]]
    assert len(set(labels)) > 4


def test_numbers_of_features_and_classes_are_options():
    swarm = federate("synthetic", peers=["ada"], seed=7, options={"features": 5, "classes": 3})
    assert (swarm.dataset.shape, swarm.dataset.classes) == ((5,), 3)
    assert int(swarm.dataset.targets.max()) < 3
