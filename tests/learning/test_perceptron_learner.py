"""Perceptrons by numpy alone, against the models of torch."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.core.draws import draw
from p2pfl.core.errors import ModelError
from p2pfl.data import gather
from p2pfl.learning import TorchLearner, build
from p2pfl.learning.perceptron_learner import PerceptronLearner, draw_initial

PEERS = ("ada", "bob")
CLASSES = {
    peer: (torch.randn(40, 5, generator=torch.Generator().manual_seed(seed)), torch.arange(40) % 3)
    for seed, peer in enumerate(PEERS)
}


@pytest.mark.parametrize("widths", [(64, 10), (30, 2), (7, 5, 3, 1), (784, 20, 10)])
@pytest.mark.parametrize("seed", [7, 2**62 + 12345])
def test_initial_values_are_those_of_torch_to_a_unit_in_the_last_place(widths, seed):
    torch.manual_seed(seed)
    layers = [nn.Linear(*each) for each in pairwise(widths)]
    expected = torch.cat([each.detach().flatten() for layer in layers for each in layer.parameters()])
    np.testing.assert_allclose(draw_initial(widths, seed=seed), expected.numpy(), rtol=2e-7, atol=2e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_training_and_scores_are_those_of_torch(dtype, hidden):
    federation = gather(CLASSES, seed=3, dtype=dtype)
    name, options = ("mlp", {"hidden": hidden}) if hidden else ("linear", {})
    model = build(name, shape=(5,), classes=3, seed=3, options=options)
    settings = {"seed": 3, "rate": 0.5, "batch": 8, "epochs": 2, "max_norm": 0.5, "dtype": dtype}
    theirs = TorchLearner(model, federation, device="cpu", **settings)
    ours = PerceptronLearner([5, *hidden, 3], federation, **settings)
    start = ours.start(PEERS)
    assert ours.layout == theirs.layout
    torch.testing.assert_close(start, theirs.start(PEERS), rtol=2e-7, atol=2e-8)
    one, other = (each.fit(start, peers=PEERS, round=1) for each in (ours, theirs))
    torch.testing.assert_close(one.rows, other.rows, rtol=1e-5, atol=1e-6)
    slopes = [each.gradient(start, peers=PEERS, round=1) for each in (ours, theirs)]
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-6)
    for mine, its in zip(*(each.evaluate(one.rows, peers=PEERS).values() for each in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-6, atol=1e-6)
    counts = [each.tallies(one.rows, peers=PEERS).double() for each in (ours, theirs)]  # one is a sum of points
    torch.testing.assert_close(*counts, rtol=1e-6, atol=2.0)
    assert ours.state_dict(start[0]).keys() == theirs.state_dict(start[0]).keys()


def test_a_loss_without_a_gradient_by_numpy_is_refused():
    federation = gather({peer: (x, (y > 0).float()[:, None]) for peer, (x, y) in CLASSES.items()}, seed=3)
    with pytest.raises(ModelError, match="needs torch"):
        PerceptronLearner([5, 1], federation, seed=3, loss="binary_cross_entropy")


@pytest.mark.parametrize("content", [None, b"no tensors"])
def test_a_file_that_holds_no_tensors_is_refused_by_its_name(tmp_path, content):
    file = tmp_path / "start.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ModelError, match=r"start\.safetensors is no file of safetensors"):
        PerceptronLearner([5, 3], gather(CLASSES, seed=3), seed=3, pretrained=str(file))


def test_the_start_follows_the_seed_of_the_experiment():
    learner = PerceptronLearner([5, 3], gather(CLASSES, seed=3), seed=9)
    expected = draw_initial([5, 3], seed=int(draw(9, "start").integers(2**63)))
    assert learner.start(["ada"])[0].tolist() == expected.tolist()
