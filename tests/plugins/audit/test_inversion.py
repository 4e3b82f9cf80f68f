import builds
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.experiment import plan, read
from p2pfl.experiment.parts.learner_parts import learner
from p2pfl.plugins.audit.attacks.inversion import analytic, first_linear, invert, psnr, ssim
from p2pfl.plugins.audit.audit import _one_step
from p2pfl.plugins.audit.pipeline import OPEN
from p2pfl.privacy import Settings


def inverted(chosen, *, model=None, data="digits", iterations=150, samples=2):
    table = {"topology": {"kind": "ring", "peers": 4}, "data": {"name": data}, "learning": {"device": "cpu"}}
    resolved = plan(read({**table, "model": model or {"hidden": [32]}}))
    experiment = _one_step(resolved.experiment)
    return invert(
        chosen,
        builds.observers(chosen, resolved.topology),
        **builds.where(resolved.topology, resolved.weights),
        federation=resolved.federation,
        train=lambda federation: learner(experiment, federation),
        samples=samples,
        iterations=iterations,
    )


def quality(found):
    return {(each.observer, each.attack): each for each in found.found}


@pytest.mark.slow
def test_without_noise_the_first_layer_gives_the_sample_away_to_rounding():
    found = inverted(Settings())
    broker = quality(found)["broker", "analytic"]
    assert broker.psnr > 90
    assert broker.ssim == pytest.approx(1.0)
    np.testing.assert_allclose(broker.pictures, found.truth, atol=1e-4)


@pytest.mark.slow
def test_without_noise_the_optimisation_finds_the_sample():
    each = quality(inverted(Settings(), iterations=300))[OPEN, "optimised"]
    assert each.psnr > 25
    assert each.recognised


@pytest.mark.slow
def test_masks_hide_the_sample_from_the_broker_and_not_from_all_others_together():
    found = quality(inverted(Settings(mask=1.0), iterations=20))
    assert not found["broker", "analytic"].recognised
    assert not found["broker", "optimised"].recognised
    assert found["broker and everyone else", "analytic"].psnr > 60


@pytest.mark.slow
def test_private_noise_hides_the_sample_from_everybody():
    found = quality(inverted(Settings(clip=1.0, noise=0.3), iterations=20))
    assert all(
        each.recognised == (observer == OPEN) for (observer, attack), each in found.items() if attack == "analytic"
    )


@pytest.mark.slow
def test_a_convolution_first_leaves_only_the_optimisation():
    found = quality(inverted(Settings(), model={"name": "cnn", "hidden": [8]}, iterations=200, samples=1))
    assert {attack for _, attack in found} == {"optimised"}
    assert found[OPEN, "optimised"].recognised


@pytest.mark.slow
def test_samples_that_are_no_pictures_come_back_as_well():
    found = inverted(Settings(), model={"name": "linear"}, data="wine", iterations=20)
    assert quality(found)["broker", "analytic"].psnr > 90
    assert quality(found)["broker", "analytic"].ssim is None


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
    assert ssim(picture, picture, span=1.0) == pytest.approx(1.0)
    flat, other = np.full((9, 9), 0.2), np.full((9, 9), 0.6)  # only the luminance term is left
    assert ssim(flat, other, span=1.0) == pytest.approx((2 * 0.2 * 0.6 + 1e-4) / (0.2**2 + 0.6**2 + 1e-4))
    assert ssim(noisy, picture, span=1.0) < ssim(picture + 0.01, picture, span=1.0) < 1.0
