"""Modules of the user that draw from a generator, or change their state, for some later samples only."""

import random
import threading

import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.data import gather
from p2pfl.learning import TorchLearner
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.privacy.keys import SeededSource

LARGE = 2.0
"""Feature of the one sample that makes a module draw; no sample of the trial and of the first batch has it."""


class DrawsLate(nn.Module):
    """A linear layer that calls a function for large samples, in training."""

    def __init__(self, drawn):
        super().__init__()
        self.drawn, self.layer = drawn, nn.Linear(2, 2)
        nn.init.eye_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, x):
        return self.layer(x) * (1.0 + self.drawn() if self.training and x.abs().max() >= LARGE else 1.0)


def data():
    features = torch.linspace(-1.0, 1.0, 40).reshape(20, 2)
    targets = torch.arange(20) % 2
    features[-1] = LARGE
    return {"ada": (features, targets)}


def learner(drawn, **how):
    return TorchLearner(DrawsLate(drawn), data(), batch=2, rate=0.1, seed=1, device="cpu", **how)


def fitted(made):
    return made.fit(made.start(["ada"]), peers=["ada"], round=0).rows


@pytest.fixture(autouse=True)
def _seeded():
    """Two draws differ enough to be seen, in every run of the tests."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 -- as users do
    random.seed(0)


DRAWN = {
    "torch's": lambda: torch.rand(2),
    "numpy's": lambda: 1.0 * np.random.random(),  # noqa: NPY002 -- as users do
    "Python's": random.random,
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_module_that_draws_for_a_later_sample_is_refused(name):
    made = learner(DRAWN[name])
    with pytest.raises(ModelError, match=rf"the model draws from {name} global generator; .* learning\.augment"):
        fitted(made)


class InEvaluation(DrawsLate):
    """The same in evaluation alone."""

    def forward(self, x):
        large = not self.training and x.abs().max() >= LARGE
        return self.layer(x) * (1.0 + self.drawn() if large else 1.0)


@pytest.mark.parametrize("name", DRAWN)
def test_a_module_that_draws_for_a_later_sample_in_evaluation_is_refused(name):
    made = TorchLearner(InEvaluation(DRAWN[name]), data(), batch=2, rate=0.1, seed=1, device="cpu")
    start, told = made.start(["ada"]), f"the model draws from {name} global generator"
    fitted(made)
    for scored in (
        lambda: made.evaluate(start, peers=["ada"], part="train"),
        lambda: made.outputs(start[0], peer="ada", part="train"),
    ):
        with pytest.raises(ModelError, match=told):
            scored()


@pytest.mark.parametrize("name", DRAWN)
def test_a_module_that_draws_for_a_later_sample_is_refused_under_dp_sgd(name):
    how = {"noise": 1.0, "clip": 1.0, "source": SeededSource(3), "normals": lambda _, size: np.zeros(size)}
    federation = gather(data(), seed=1)
    made = ExamplePrivateLearner(DrawsLate(DRAWN[name]), federation, batch=14, epochs=3, seed=1, device="cpu", **how)
    with pytest.raises(ModelError, match=f"the model draws from {name} global generator"):
        fitted(made)


class KeepsLate(DrawsLate):
    """A linear layer that changes an attribute for large samples."""

    def __init__(self, kept, change):
        super().__init__(None)
        self.kept, self.change = kept, change

    def forward(self, x):
        return self.layer(x) * (self.change(self.kept) if x.abs().max() >= LARGE else 1.0)


def appended(calls):
    calls.append(1.0)
    return len(calls)


KEPT = {
    "list": ([], appended),
    "dictionary": ({"calls": []}, lambda kept: appended(kept["calls"])),
    "generator of numpy": (np.random.default_rng(3), lambda kept: 1.0 + kept.random()),
    "generator of Python": (random.Random(3), lambda kept: 1.0 + kept.random()),
    "generator of torch": (torch.Generator(), lambda kept: 1.0 + torch.rand(2, generator=kept)),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_module_that_changes_an_attribute_for_a_later_sample_is_refused(name):
    made = TorchLearner(KeepsLate(*KEPT[name]), data(), batch=2, rate=0.1, seed=1, device="cpu")
    with pytest.raises(ModelError, match="attribute 'kept' of KeepsLate changes when the model is called"):
        fitted(made)


def test_a_module_that_keeps_what_follows_from_shapes_trains():
    def cached(kept):
        return kept.setdefault(len(kept), 2.0) and 2.0

    made = TorchLearner(KeepsLate({}, cached), data(), batch=2, rate=0.1, seed=1, device="cpu")
    same = TorchLearner(KeepsLate({}, lambda _: 2.0), data(), batch=2, rate=0.1, seed=1, device="cpu")
    assert torch.equal(fitted(made), fitted(same))


def test_gradients_of_a_module_that_draws_are_refused():
    made = learner(DRAWN["torch's"])
    with pytest.raises(ModelError, match="draws from torch's global generator"):
        made.gradient(made.start(["ada"]), peers=["ada"], round=0, whole=True)


def test_a_function_that_changes_samples_is_named_beside_the_model():
    def noise(features, *, generator):
        del generator
        return features + torch.rand(2) if features.abs().max() >= LARGE else features

    with pytest.raises(ModelError, match=r"the model or \S*noise draws from torch's global generator"):
        fitted(learner(lambda: 0.0, augment=noise))


def test_draws_of_another_thread_stop_no_training_and_are_not_rewound():
    drawn = []

    def elsewhere():
        thread = threading.Thread(target=lambda: drawn.append(torch.rand(()).item()))
        thread.start()
        thread.join()
        return 0.0

    assert torch.equal(fitted(learner(elsewhere)), fitted(learner(lambda: 0.0)))
    assert len({*drawn}) == len(drawn) == 2
