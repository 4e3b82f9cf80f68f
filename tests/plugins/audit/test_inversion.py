from functools import partial

import builds
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from p2pfl.experiment import plan, read
from p2pfl.experiment.parts.learner_parts import learner
from p2pfl.learning import TorchLearner
from p2pfl.plugins.audit.attacks.inversion import analytic, first_linear, invert, psnr
from p2pfl.plugins.audit.audit import _one_step
from p2pfl.plugins.audit.pipeline import OPEN_OBSERVER
from p2pfl.privacy import Settings


def inverted(chosen, *, model=None, data="digits"):
    table = {"topology": {"kind": "ring", "peers": 4}, "data": {"name": data}, "learning": {"device": "cpu"}}
    resolved = plan(read({**table, "model": model or {"hidden": [32]}}))
    experiment = _one_step(resolved.experiment)
    found = invert(
        builds.target(chosen, resolved.topology, resolved.weights),
        builds.observers(chosen, resolved.topology),
        federation=resolved.federation,
        train=lambda federation: learner(experiment, federation),
        samples=2,
    )
    return {each.observer: each for each in found}


@pytest.mark.slow
@pytest.mark.parametrize("data", ["digits", "wine"])
def test_without_noise_the_first_layer_gives_the_sample_away_to_rounding(data):
    assert inverted(Settings(), data=data)["broker"].psnr > 90


@pytest.mark.slow
def test_masks_hide_the_sample_from_the_broker_and_not_from_all_others_together():
    found = inverted(Settings(mask=1.0))
    assert not found["broker"].recognised
    assert found["broker and everyone else"].psnr > 60


@pytest.mark.slow
def test_private_noise_hides_the_sample_from_everybody():
    found = inverted(Settings(clip=1.0, noise=0.3))
    assert all(each.recognised == (observer == OPEN_OBSERVER) for observer, each in found.items())


@pytest.mark.slow
def test_without_noise_a_search_finds_the_sample_behind_convolutions():
    broker = inverted(Settings(), model={"name": "cnn"})["broker"]
    assert broker.figures["attack"] == "search"
    assert broker.psnr > 40


@pytest.mark.nightly  # as from the direct attack, which the slow tests hold
def test_masks_and_private_noise_hide_the_sample_from_a_search_as_well():
    masked = inverted(Settings(mask=1.0), model={"name": "cnn"})
    assert not masked["broker"].recognised
    assert masked["broker and everyone else"].psnr > 40
    noisy = inverted(Settings(clip=1.0, noise=0.3), model={"name": "cnn"})
    assert all(each.recognised == (observer == OPEN_OBSERVER) for observer, each in noisy.items())


def test_a_large_model_of_convolutions_is_not_attacked():
    assert inverted(Settings(), model={"name": "cnn", "hidden": [128, 192]}) == {}


class Prototypes(nn.Module):
    """A model of distances to prototypes, of which torch has no second derivative."""

    def __init__(self):
        super().__init__()
        self.first, self.prototypes = nn.Conv2d(1, 2, 3), nn.Parameter(torch.eye(10, 72))

    def forward(self, x):
        return -torch.cdist(self.first(x).flatten(1), self.prototypes)


def test_a_model_without_second_derivatives_is_not_attacked():
    resolved = plan(read({"topology": {"kind": "ring", "peers": 4}, "learning": {"device": "cpu"}}))
    target = builds.target(Settings(), resolved.topology, resolved.weights)
    train = partial(TorchLearner, Prototypes(), device="cpu", steps=1)
    assert invert(target, [], federation=resolved.federation, train=train, samples=1) == ()


def test_the_first_linear_layer_is_found_by_its_names():
    for model, names in (({"hidden": [8]}, ("1.weight", "1.bias")), ({"name": "cnn", "hidden": [8]}, None)):
        resolved = plan(read({"model": model, "learning": {"device": "cpu"}}))
        assert first_linear(resolved.learner) == names
    frozen = plan(read({"model": {"hidden": [8], "frozen": ["1.bias"]}, "learning": {"device": "cpu"}}))
    assert first_linear(frozen.learner) is None


@given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 10**6))
def test_any_gradient_of_one_sample_gives_the_sample(units, features, seed):
    draw = torch.Generator().manual_seed(seed)
    x, delta = (torch.randn(size, generator=draw, dtype=torch.float64) for size in (features, units))
    back = analytic({"w": torch.outer(delta, x), "b": delta}, weight="w", bias="b")
    torch.testing.assert_close(back, x)


def test_quality_is_that_of_the_definitions():
    rng = np.random.default_rng(0)
    picture = rng.random((1, 20, 20))
    noisy = picture + 0.1 * rng.standard_normal(picture.shape)
    assert psnr(noisy, picture, span=1.0) == pytest.approx(20.0, abs=1.0)
    assert psnr(picture, picture, span=1.0) == 200.0
