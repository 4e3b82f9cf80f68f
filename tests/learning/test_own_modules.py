"""Hooks, state and wrappers of a user's module: the learner computes what torch computes, or refuses the module."""

import random
import types
import warnings
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from p2pfl.core.errors import ModelError
from p2pfl.learning import TorchLearner
from p2pfl.learning.steps.autograd import PlainEngine
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.torch_func import StackedEngine

PEERS = ("ada", "bob")


def data(shape=(6,)):
    """Samples of two peers, of which the second has fewer than a batch."""
    random_numbers = torch.Generator().manual_seed(1)
    x = torch.randn(60, *shape, generator=random_numbers)
    return {"ada": (x[:40], torch.arange(40) % 2), "bob": (x[40:], torch.arange(20) % 2)}


def sequence():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def pictures():
    torch.manual_seed(0)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))


class Own(nn.Module):
    """A class of the user's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def first(model):
    """The first layer with weights."""
    return next(layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d))


def bound_forward(model):
    """Replace the forward of the first layer by a method of that layer."""
    first(model).forward = types.MethodType(lambda layer, x: 3 * type(layer).forward(layer, x), first(model))


def repeated():
    """One layer in two places."""
    torch.manual_seed(0)
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(6, 2))


def tied():
    """One parameter in two layers."""
    model = repeated()
    model[2] = nn.Linear(6, 6)
    model[2].weight = model[0].weight
    return model


CHANGES = {
    "nothing": lambda _: None,
    "a forward hook": lambda model: first(model).register_forward_hook(lambda *passed: 3 * passed[2]),
    "a hook before": lambda model: first(model).register_forward_pre_hook(lambda _, inputs: (3 * inputs[0],)),
    "a hook of the container": lambda model: model.register_forward_hook(lambda *passed: 3 * passed[2]),
    "a hook before the container": lambda model: model.register_forward_pre_hook(lambda _, inputs: (3 * inputs[0],)),
    "a backward hook": lambda model: list(model.modules())[-1].register_full_backward_hook(
        lambda _, inputs, __: tuple(None if one is None else 0 * one for one in inputs)
    ),
    "a hook before backward": lambda model: list(model.modules())[-1].register_full_backward_pre_hook(
        lambda _, outputs: tuple(2 * one for one in outputs)
    ),
    "weight normalisation": lambda model: parametrizations.weight_norm(first(model)),
    "a method of the layer": bound_forward,
}


def by_torch(model, given):
    """The loss and the gradient of a model on all samples of the training part of a peer."""
    x, y = given
    loss = nn.functional.cross_entropy(model(x), y)
    return loss.item(), torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


def training_part(learner, peer):
    """The samples of a peer's training part."""
    where = torch.from_numpy(learner.federation.train[peer])
    return learner.features[where], learner.targets[where]


@pytest.mark.sampled(fast=6)
@pytest.mark.parametrize("make", [sequence, pictures, Own, repeated, tied])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:Full backward hook is firing")
def test_what_is_attached_to_a_layer_trains_as_in_torch(make, change):
    model, same = make(), make()
    CHANGES[change](model)
    CHANGES[change](same)
    learner = TorchLearner(model, data(), rate=0.1, seed=3, device="cpu")
    rows = learner.start(PEERS)
    for count in (2, 1):
        gradients = learner.gradient(rows[:count], peers=PEERS[:count], round=0, whole=True)
        losses = learner.evaluate(rows[:count], peers=PEERS[:count], part="train")["loss"]
        for number, peer in enumerate(PEERS[:count]):
            loss, gradient = by_torch(same, training_part(learner, peer))
            torch.testing.assert_close(gradients[number], gradient)
            assert losses[number].item() == pytest.approx(loss, rel=1e-5)


def test_kernels_take_bare_layers_of_torch_alone():
    class Double(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    held = sequence()
    held[1].register_parameter("unused", nn.Parameter(torch.ones(2)))
    for model in (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), Double(8, 2)), held):
        assert isinstance(TorchLearner(model, data(), device="cpu").engine, StackedEngine)
    assert isinstance(TorchLearner(sequence(), data(), device="cpu").engine, Kernels)
    handle = nn.modules.module.register_module_forward_hook(lambda *passed: passed[2])
    try:
        assert isinstance(TorchLearner(sequence(), data(), device="cpu").engine, StackedEngine)
    finally:
        handle.remove()


class Centred(nn.Module):
    """Features less their mean over the batch, so that samples of padding would count."""

    def forward(self, x):
        return x - x.mean(0)


def test_a_model_that_mixes_the_samples_of_a_batch_is_not_padded():
    learner = TorchLearner(nn.Sequential(Centred(), nn.Linear(6, 2)), data(), batch=None, seed=3, device="cpu")
    assert isinstance(learner.engine, PlainEngine)
    both = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    for number, peer in enumerate(PEERS):
        assert torch.equal(both[number], learner.fit(learner.start([peer]), peers=[peer], round=0).rows[0])


class Averages(nn.Module):
    """Features less a moving average of their mean, kept in a buffer and changed in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.kept.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x - self.kept


class Replaces(Averages):
    """The same, with another tensor in each call."""

    def forward(self, x):
        if self.training:
            self.kept = 0.9 * self.kept + 0.1 * x.detach().mean(0)
        return x - self.kept


class Attribute(nn.Module):
    """The same, kept in an attribute."""

    kept = 0.0

    def forward(self, x):
        if self.training:
            self.kept = 0.9 * self.kept + 0.1 * float(x.detach().mean())
        return x - self.kept


class Listed(nn.Module):
    """The same, kept in a list."""

    def __init__(self):
        super().__init__()
        self.kept = [0.0]

    def forward(self, x):
        self.kept[0] = 0.9 * self.kept[0] + 0.1 * float(x.detach().mean())
        return x - self.kept[0]


class Hidden(nn.Module):
    """The same, kept where no attribute of the layer changes."""

    kept: ClassVar[list[float]] = [0.0]

    def forward(self, x):
        self.kept[0] = 0.9 * self.kept[0] + 0.1 * float(x.detach().mean())
        return x - self.kept[0]


class Overwrites(nn.Module):
    """An operation in place on what the gradient of another needs."""

    def forward(self, x):
        x = x.sigmoid()
        x[:, 0].mul_(2.0)
        return x


class Counts(nn.Module):
    """A counter that changes no result yet."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x if self.calls < 100 else 2 * x


def test_an_operation_in_place_that_autograd_refuses_is_one_sentence():
    model = nn.Sequential(nn.Linear(6, 6), Overwrites(), nn.Linear(6, 2))
    with pytest.raises(ModelError, match=r"fails in a first step of training .*inplace operation.*; fix its forward"):
        TorchLearner(model, data(), device="cpu")


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (Averages, "buffer '0.kept' of Averages changes"),
        (Replaces, "buffer '0.kept' of Replaces changes"),
        (Attribute, "attribute '0.kept' of Attribute changes"),
        (Counts, "attribute '0.calls' of Counts changes"),
        (Listed, "attribute '0.kept' of Listed changes"),
        (Hidden, "two calls of the model with the same samples differ"),
    ],
)
def test_state_that_peers_would_share_is_refused(layer, named):
    with pytest.raises(ModelError, match=named):
        TorchLearner(nn.Sequential(layer(), nn.Linear(6, 2)), data(), device="cpu")


@pytest.mark.parametrize("change", [parametrizations.spectral_norm, spectral_norm])
def test_spectral_norms_are_refused_because_they_keep_state(change):
    model = sequence()
    change(model[0])
    with pytest.raises(ModelError, match=r"buffer '0\..*u' of .* changes when the model is called"):
        TorchLearner(model, data(), device="cpu")


class Draws(nn.Module):
    """A factor from a generator that has no key, during training."""

    def __init__(self, draw):
        super().__init__()
        self.draw, self.layer = draw, nn.Linear(6, 2)

    def forward(self, x):
        return self.layer(x) * (1 + self.draw()) if self.training else self.layer(x)


@pytest.mark.parametrize(
    ("draw", "named"),
    [
        (random.random, "draws from Python's global generator"),
        (lambda: 1.0 * np.random.random(), "draws from numpy's global generator"),  # noqa: NPY002 -- as users do
        (lambda: torch.rand(()), "draws from torch's global generator"),
        (lambda: np.random.default_rng().random(), "two calls of the model with the same samples differ"),
    ],
)
def test_random_numbers_without_a_key_are_refused(draw, named):
    model = Draws(draw)
    states = torch.random.get_rng_state().tolist(), random.getstate()
    with pytest.raises(ModelError, match=named) as refused:
        TorchLearner(model, data(), device="cpu")
    assert "learning.augment" in str(refused.value)
    assert states == (torch.random.get_rng_state().tolist(), random.getstate())


@pytest.mark.slow
def test_compiled_models_keep_their_names():
    inner = sequence()
    inner[0] = torch.compile(inner[0], backend="eager")
    learner = TorchLearner(torch.compile(inner, backend="eager"), data(), device="cpu")
    assert isinstance(learner.engine, Kernels)
    sequence().load_state_dict(learner.state_dict(learner.start(PEERS)[0]))


def pruned():
    model = sequence()
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model


def old_weight_norm():
    model = sequence()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        weight_norm(model[0])
    return model


def closed():
    """A forward that is a closure over the layer, not a method of it."""
    model = sequence()
    inside = model.forward
    model.forward = lambda x: inside(3 * x)
    return model


def captured():
    """A hook that uses a layer of the original model."""
    model = sequence()
    other = model[2]
    model[0].register_forward_hook(lambda *passed: passed[2] + other.bias.sum())
    return model


def tensor_hook():
    model = sequence()
    model[0].weight.register_hook(lambda gradient: 0 * gradient)
    return model


def dropped():
    """A hook on a layer that is replaced."""
    model = nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.1))
    model[1].register_forward_hook(lambda *passed: 2 * passed[2])
    return model


class Listed(nn.Module):
    """Layers in a list, which torch does not see."""

    def __init__(self):
        super().__init__()
        self.layers, self.last = [nn.Linear(6, 6)], nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.layers[0](x))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (pruned, "cannot be copied"),
        (old_weight_norm, "cannot be copied"),
        (closed, "another forward than that of its class"),
        (captured, "none of its parameters"),
        (Listed, "none of its parameters"),
        (tensor_hook, "parameter '0.weight' has a hook"),
        (dropped, "a hook on a layer that p2pfl replaces"),
        (lambda: nn.DataParallel(sequence()), "give the module inside of it"),
        (lambda: torch.jit.trace(sequence(), torch.zeros(1, 6)), "scripted by torch.jit"),
        (lambda: nn.Sequential(nn.EmbeddingBag(5, 2, sparse=True)), "sparse gradients"),
    ],
)
def test_modules_that_would_lose_something_are_refused(make, named):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = make()
    with pytest.raises(ModelError, match=named):
        TorchLearner(model, data(), device="cpu")


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_targets_with_an_axis_of_their_own_train_as_in_torch(outputs, dtype):
    generator = torch.Generator().manual_seed(0)
    data = {f"peer{i}": [torch.randn(30, size, generator=generator) for size in (5, outputs)] for i in range(3)}
    learner = TorchLearner(nn.Linear(5, outputs), data, rate=0.1, batch=None, seed=0, dtype=dtype)
    start = learner.start([*data])
    found = learner.gradient(start, peers=[*data], round=0, whole=True)
    assert torch.isfinite(found).all()
    model = nn.Linear(5, outputs).to(dtype)
    nn.utils.vector_to_parameters(start[0], model.parameters())
    features, targets = training_part(learner, "peer0")
    nn.functional.mse_loss(model(features), targets).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert torch.allclose(found[0], expected, rtol=1e-4, atol=1e-6)
