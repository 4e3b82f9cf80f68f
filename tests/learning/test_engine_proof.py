"""Proofs on the first batch of each peer, against engines that are wrong about one of them."""

import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner
from p2pfl.learning.steps.autograd import PlainEngine
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.perceptrons import Perceptrons
from p2pfl.learning.steps.torch_func import StackedEngine

PEERS = tuple(f"peer{number:02}" for number in range(70))
WRONG = PEERS[66]


class Own(nn.Module):
    """A perceptron in a class of the user's."""

    def __init__(self, drop=0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(drop), nn.Linear(5, 3))

    def forward(self, x):
        return self.layers(x)


def seeded(make, *arguments):
    """Return a function that makes a model with the same parameters each time."""

    def model():
        torch.manual_seed(0)
        return make(*(argument() for argument in arguments))

    return model


MODELS = {
    Perceptrons: seeded(nn.Sequential, lambda: nn.Linear(6, 5), nn.ReLU, lambda: nn.Linear(5, 3)),
    Kernels: seeded(nn.Sequential, lambda: nn.Linear(6, 5), nn.GELU, lambda: nn.Linear(5, 3)),
    StackedEngine: seeded(Own),
}


def made(model, **settings):
    """A learner of 70 peers with 10 to 23 samples each."""
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    data = Dataset(torch.randn(900, 6), torch.from_numpy(rng.integers(3, size=900)), classes=3)
    parts = {peer: rng.integers(900, size=10 + number % 14) for number, peer in enumerate(PEERS)}
    none = dict.fromkeys(PEERS, np.arange(0))
    return TorchLearner(
        model, Federation(data, parts, none, none), batch=16, seed=2, rate=0.5, device="cpu", **settings
    )


def wrong(monkeypatch, kind, *, in_gradient=True):
    """Let an engine double a gradient, or the loss, of the batches that contain the sample of one peer alone."""
    calls = {Perceptrons: "models", Kernels: "gradient", StackedEngine: "gradient"}
    right = getattr(kind, calls[kind])

    if kind is Perceptrons:

        def models(engine, rows, slopes):
            found = right(engine, rows, slopes)
            take = found.gradient

            def gradient(features, targets, weights):
                losses = take(features, targets, weights)
                marked = torch.from_numpy((features[:, :, 0] == 100).any(1))
                slopes[marked] *= 2
                return losses

            found.gradient = gradient
            return found

        monkeypatch.setattr(kind, "models", models)
        return

    def gradient(engine, parts, batch):
        losses, gradients = right(engine, parts, batch)
        marked = (batch.features[..., 0] == 100).any(1)
        factor = torch.where(marked, 2.0, 1.0)
        if in_gradient:
            return losses, [each * factor.view(-1, *[1] * (each.dim() - 1)) for each in gradients]
        return losses * factor, gradients

    monkeypatch.setattr(kind, "gradient", gradient)


def marked(learner):
    """Give one peer features that no other peer has."""
    learner.federation.train[WRONG][:] = 899
    for peer in PEERS:
        if peer != WRONG:
            own = learner.federation.train[peer]
            own[own == 899] = 0
    learner.features[899, 0] = 100
    return learner


@pytest.mark.parametrize("kind", MODELS)
def test_right_engines_are_kept(kind):
    learner = made(MODELS[kind]())
    found = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    assert isinstance(learner.perceptrons or learner.engine, kind)
    assert torch.equal(made(MODELS[kind]()).fit(learner.start(PEERS), peers=PEERS, round=0).rows, found)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("kind", MODELS)
def test_an_engine_that_is_wrong_about_one_peer_of_many_is_not_used(kind, monkeypatch):
    learner = marked(made(MODELS[kind]()))
    expected = [learner.fit(learner.start([peer]), peers=[peer], round=0).rows[0] for peer in (PEERS[0], WRONG)]
    learner = marked(made(MODELS[kind]()))
    wrong(monkeypatch, kind)
    with pytest.warns(UserWarning, match="differs from torch's own on the first batch of a peer"):
        found = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    assert isinstance(learner.engine, PlainEngine)
    assert learner.perceptrons is None
    for row, peer in zip(expected, (PEERS[0], WRONG), strict=True):
        torch.testing.assert_close(found[PEERS.index(peer)], row)


def test_a_wrong_loss_is_found_as_well(monkeypatch):
    learner = marked(made(Own()))
    wrong(monkeypatch, StackedEngine, in_gradient=False)
    with pytest.warns(UserWarning, match="differs from torch's own"):
        learner.gradient(learner.start(PEERS), peers=PEERS, round=0)


def test_dropout_by_key_is_proven_too(monkeypatch):
    learner = made(Own(drop=0.5))
    learner.fit(learner.start(PEERS), peers=PEERS, round=0)
    assert isinstance(learner.engine, StackedEngine)
    learner = made(Own(drop=0.5))
    monkeypatch.setattr(learner.engine, "gradient", lambda parts, _: (torch.zeros(len(parts[0])), list(parts)))
    with pytest.warns(UserWarning, match="differs from torch's own"):
        learner.fit(learner.start(PEERS), peers=PEERS, round=0)


def test_each_peer_is_proven_once():
    learner = made(MODELS[Kernels]())
    rows, done = learner.start(PEERS), []
    gradient = learner.engine.gradient
    learner.engine.gradient = lambda parts, batch: done.append(len(parts[0])) or gradient(parts, batch)
    asleep = torch.arange(len(PEERS)) >= 10
    learner.gradient(rows, peers=PEERS, round=0, active=~asleep)
    assert done == [10, 10, 10]  # two calls of the proof, and the gradient
    done.clear()
    learner.gradient(rows, peers=PEERS, round=1, active=~asleep)
    assert done == [10]
    done.clear()
    learner.gradient(rows, peers=PEERS, round=2)
    assert sum(done) == 2 * 60 + 70


def test_a_kink_is_no_difference():
    torch.manual_seed(0)
    learner = made(MODELS[Perceptrons]())
    with torch.no_grad():  # inputs of the ReLU are zero to rounding, with either sign, for all samples of all peers
        learner.features[:] = 1.0
        row = learner.start(PEERS[:1])[0]
        row[:30] = 0.1
        row[30:35] = -0.6
    learner.proof.initial = row
    learner.fit(learner.start(PEERS), peers=PEERS, round=0)
    assert learner.perceptrons is not None


def noisy(features, *, generator):
    return features + torch.randn(features.shape, generator=generator)


@pytest.mark.parametrize(
    "given",
    [
        {"max_norm": 0.01},
        {"augment": noisy},
        {"max_norm": 0.01, "augment": noisy, "warmup": 3, "schedule_by": "step", "schedule": "ConstantLR"},
    ],
    ids=["clipped", "augmented", "both, by step"],
)
def test_what_changes_samples_gradients_and_rates_by_intention_keeps_the_fast_engine(given):
    generator = torch.Generator().manual_seed(0)
    data = {
        f"peer{i}": (torch.randn(40, 6, generator=generator), torch.arange(40) % 2) for i in range(3)
    }  # gradients are longer than the bound
    learner = TorchLearner(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)), data, seed=0, **given)
    engine = learner.engine
    learner.fit(learner.start([*data]), peers=[*data], round=0)
    assert learner.engine is engine
    assert not isinstance(engine, PlainEngine)


class MixesLate(nn.Module):
    """Features less their mean over the batch, where the batch has a large sample; the trial has none."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x - torch.where(x.abs().max() >= 100, x.mean(0), 0.0))


def test_a_model_that_mixes_the_samples_of_some_batches_alone_is_not_padded():
    model = seeded(MixesLate)()
    learner = marked(made(model))
    assert isinstance(learner.engine, StackedEngine)
    expected = learner.fit(learner.start([WRONG]), peers=[WRONG], round=0).rows[0]
    with pytest.warns(UserWarning, match="differs from torch's own"):
        found = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    assert isinstance(learner.engine, PlainEngine)
    assert torch.equal(found[PEERS.index(WRONG)], expected)
