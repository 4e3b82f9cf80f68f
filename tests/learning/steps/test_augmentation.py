"""Random changes of samples by key."""

# ruff: noqa: ARG005 -- functions of users have the parameter

import asyncio
import copy
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

import p2pfl
from p2pfl.core.draws import keys
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.data import batches
from p2pfl.data.samples import tensors
from p2pfl.learning import TorchLearner
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.learning.steps.augmentation import Augmentation, step_keys
from p2pfl.privacy.keys import SeededSource

PEERS = ("ada", "bob", "cy")


def noise(features, *, generator):
    return features + torch.randn(features.shape, generator=generator).to(features)


def noise_of_each(sample, *, generator):
    return sample + torch.randn(sample.shape, generator=generator).to(sample)


noise_of_each.each = True


class Own(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(drop), nn.Linear(5, 3))

    def forward(self, x):
        return self.layers(x)


def sequence():
    return Own().layers


def data():
    own = torch.Generator().manual_seed(1)
    return {
        peer: (torch.randn(size, 6, generator=own), torch.arange(size) % 3)
        for peer, size in zip(PEERS, (50, 23, 9), strict=True)
    }


def learner(model, **settings):
    return TorchLearner(
        model, data(), seed=2, batch=8, epochs=2, rate=0.3, dtype=torch.float64, device="cpu", **settings
    )


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("augment", [noise, noise_of_each])
@pytest.mark.parametrize("make", [sequence, Own, lambda: Own(0.3)], ids=["kernels", "vmap", "dropout"])
def test_peers_draw_the_same_alone_and_together(make, augment):
    made = learner(make(), augment=augment)
    rows = made.start(PEERS)
    both = made.fit(rows, peers=PEERS, round=3).rows
    for number, peer in enumerate(PEERS):
        alone = learner(make(), augment=augment).fit(rows[:1], peers=[peer], round=3).rows
        torch.testing.assert_close(both[number], alone[0], rtol=0, atol=1e-12)
    plain = learner(make()).fit(rows, peers=PEERS, round=3).rows
    assert not torch.allclose(both, plain, atol=1e-3)


def test_batches_are_changed_by_seed_peer_round_and_step_and_scores_are_not():
    seen = []

    def noted(features, *, generator):
        seen.append(torch.rand(1, generator=generator).item())
        return features

    made = learner(sequence(), augment=noted)
    rows = made.start(PEERS)
    seen.clear()
    for round in (0, 1):
        made.fit(rows, peers=PEERS, round=round)
    other = copy.copy(made)
    other.seed = 3
    other.fit(rows, peers=PEERS, round=0)
    assert len(set(seen)) == len(seen) == 3 * 2 * (5 + 3 + 1)  # fits, epochs, and batches of the three peers
    seen.clear()
    made.evaluate(rows, peers=PEERS)
    assert not seen


def test_it_is_what_a_loop_of_torch_computes():
    made, model = learner(sequence(), augment=noise), sequence().double()
    rows = made.fit(made.start(["ada"]), peers=["ada"], round=0).rows
    part, drawn = made.federation.train["ada"], keys(2, "augment", ("ada",), 0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    for step, chosen in enumerate(batches(len(part), seed=2, peer="ada", round=0, batch=8, epochs=2, steps=None)):
        index = torch.from_numpy(part[chosen])
        generator = torch.Generator().manual_seed(step_keys(drawn, step)[0])
        optimiser.zero_grad()
        nn.functional.cross_entropy(
            model(noise(made.features[index], generator=generator)), made.targets[index]
        ).backward()
        optimiser.step()
    torch.testing.assert_close(rows[0], torch.cat([each.detach().flatten() for each in model.parameters()]))


@pytest.mark.parametrize(
    ("augment", "named"),
    [
        (lambda x, *, generator: x + torch.rand(x.shape), "draws from torch's global generator"),
        (lambda x, *, generator: x + np.random.rand(), "draws from numpy's global generator"),  # noqa: NPY002
        (lambda x, *, generator: x + np.random.default_rng().random(), "two results for one generator"),
        (lambda x, *, generator: x[:, :2], r"\(1, 2\) for features .*\(1, 6\)"),
        (lambda x, *, generator: x.numpy(), "returns a ndarray"),
        (lambda x: x, "unexpected keyword argument 'generator'"),
        ("noise", "augment is a str"),
    ],
)  # fmt: skip
def test_functions_that_do_something_else_are_refused(augment, named):
    with pytest.raises(ModelError, match=named):
        learner(sequence(), augment=augment)


def test_an_error_of_the_function_in_a_round_names_it():
    calls = []

    def fails(features, *, generator):
        calls.append(generator)
        if len(calls) > 5:
            raise ValueError("too dark")
        return features

    made = learner(sequence(), augment=fails)
    with pytest.raises(LearningError, match=r"fails for features .*too dark.*; fix the function"):
        made.fit(made.start(PEERS), peers=PEERS, round=0)


def test_under_dp_sgd_a_sample_is_changed_by_itself():
    pytest.importorskip("dp_accounting")
    federation = learner(sequence()).federation
    made = ExamplePrivateLearner(
        sequence(), federation, seed=2, batch=8, noise=1e-9, clip=100.0, source=SeededSource(7), device="cpu",
        normals=lambda _, size: np.zeros(size), augment=noise, dtype=torch.float64,
    )  # fmt: skip
    part = federation.train["ada"]
    parts = [each.clone() for each in made.layout.split(made.start(["ada"])).values()]

    def total(chosen):
        return made.clip_gradients(parts, chosen, made.seeds("ada", chosen, round=1, step=2))[1]

    apart = sum(total(part[place : place + 1]) for place in (3, 5, 9))
    torch.testing.assert_close(total(part[[3, 5, 9]]), apart)
    plain = made.clip_gradients(parts, part[[3]], made.seeds("ada", part[[3]], round=1, step=3))[1]
    assert not torch.allclose(total(part[[3]]), plain, atol=1e-3)


@pytest.fixture
def pictures(monkeypatch):
    """The module that docs/own-models.md shows."""
    page = (Path(__file__).parents[3] / "docs" / "own-models.md").read_text()
    code = next(block.partition("```")[0] for block in page.split("```python\n") if block.startswith("# pictures.py"))
    module = ModuleType("pictures")
    exec(code, vars(module))  # noqa: S102 -- the example of the page
    monkeypatch.setitem(sys.modules, "pictures", module)
    return module


def test_the_example_of_the_page_shifts_pictures(pictures):
    picture = torch.arange(64.0).view(1, 1, 8, 8).repeat(40, 1, 1, 1)
    found = Augmentation(pictures.crops).change(picture, key=1)
    assert found.shape == picture.shape
    assert not torch.allclose(found, picture, atol=1)


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_live_equals_simulated():
    experiment = p2pfl.read({
        "rounds": 2, "topology": {"kind": "ring", "peers": 3}, "data": {"name": "digits"}, "model": {"name": "cnn"},
        "learning": {"augment": "pictures:crops", "dtype": "float64", "epochs": 1}, "privacy": {"mode": "none"},
    })  # fmt: skip
    simulated = p2pfl.simulate(experiment, baselines=False)
    live = asyncio.run(p2pfl.live(experiment))
    for peer, model in simulated.models.items():
        for name, value in model.items():
            torch.testing.assert_close(live.models[peer][name], value, rtol=0, atol=1e-9)


class Pictures(torch.utils.data.Dataset):
    """A Dataset with or without a random transform."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 12

    def __getitem__(self, number):
        return self.transform(torch.full((2,), float(number))), number % 2


def test_a_random_transform_of_a_dataset_is_said_to_be_frozen():
    with pytest.warns(UserWarning, match=r"differ when they are read twice.*move it to learning\.augment"):
        tensors(Pictures(lambda x: x + torch.rand(2)), giver="clinic:own returns")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensors(Pictures(lambda x: x / 0), giver="clinic:own returns")
    with pytest.raises(DataError):
        tensors(Pictures(lambda x: None), giver="clinic:own returns")
