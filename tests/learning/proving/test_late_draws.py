"""Modules of the user that draw from a global generator for some later samples only."""

import random
import threading

import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.errors import ModelError
from p2pfl.learning import TorchLearner

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
