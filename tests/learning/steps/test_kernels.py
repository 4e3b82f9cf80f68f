"""Hand-written gradients against autograd."""

import pytest
import torch
from torch import nn

from p2pfl.core.rows import Layout
from p2pfl.learning.dropout import key_dropout
from p2pfl.learning.losses import cross_entropy, squared_error
from p2pfl.learning.steps.autograd import PlainEngine
from p2pfl.learning.steps.batching import Batch, Footprint
from p2pfl.learning.steps.kernels import compile_kernels

MODELS = {
    "linear": ((6,), lambda: nn.Linear(6, 3)),
    "no bias": ((6,), lambda: nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))),
    "activations": (
        (2, 3),
        lambda: nn.Sequential(
            nn.Flatten(), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Identity(), nn.Linear(5, 5), nn.GELU(),
            nn.Sequential(nn.Linear(5, 4), nn.Sigmoid()), nn.Linear(4, 4), nn.GELU("tanh"), nn.Linear(4, 3), nn.Tanh(),
        ),
    ),
    "dropout": (
        (6,), lambda: nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 5), nn.Dropout(0.5), nn.ReLU(), nn.Linear(5, 3))
    ),
    "convolution": (
        (2, 9, 8),
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, (2, 3), padding=1),
            nn.Sigmoid(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(30, 3),
        ),
    ),
    "pooling": (
        (1, 11, 10),
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=(1, 0)), nn.MaxPool2d(3), nn.Tanh(), nn.Conv2d(3, 4, 2, bias=False),
            nn.MaxPool2d((2, 1)), nn.Flatten(), nn.Linear(4, 3),
        ),
    ),
    "strides and padding": (
        (1, 6, 7),
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 1), nn.Conv2d(2, 3, (3, 2), stride=(2, 3), padding=(3, 1)), nn.MaxPool2d((1, 2)), nn.ReLU(),
            nn.Conv2d(3, 2, (1, 4), padding=(0, 4)), nn.Tanh(), nn.MaxPool2d((3, 1)), nn.MaxPool2d((1, 3)), nn.ReLU(),
            nn.Flatten(), nn.Linear(4, 3),
        ),
    ),
    "pooling first": ((2, 5, 7), lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3))),
}  # fmt: skip


def both(make, shape, loss):
    """The kernels of a model, and autograd on the same."""
    torch.manual_seed(0)
    model = make().double()
    dropouts = key_dropout(model)
    names = tuple(name for name, _ in model.named_parameters())
    kernels = compile_kernels(model, names, torch.zeros(1, *shape).double(), loss=loss, footprint=Footprint(1, 1, 1))
    model.train()
    plain = PlainEngine(model, names, loss=loss, dropouts=dropouts, autocast=torch.enable_grad)
    layout = Layout(names, tuple(tuple(p.shape) for p in model.parameters()))
    return kernels, plain, layout, bool(dropouts)


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("loss", [cross_entropy, squared_error])
def test_gradients_by_hand_are_those_of_autograd(name, loss):
    shape, make = MODELS[name]
    if loss is squared_error:
        inner = make

        def make():
            return nn.Sequential(inner(), nn.Linear(3, 1))

    kernels, plain, layout, drops = both(make, shape, loss)
    rows = torch.randn(4, layout.size, dtype=torch.float64)
    parts = [part.contiguous() for part in layout.split(rows).values()]
    for lengths in ([5, 5, 5, 5], [7, 4, 3, 1], [5, 5]):  # scratch memory serves other shapes, then these again
        count, width = len(lengths), max(lengths)
        features = torch.randn(count, width, *shape, dtype=torch.float64)
        targets = torch.randint(3, (count, width)) if loss is cross_entropy else torch.randn(count, width).double()
        real = torch.arange(width) < torch.tensor(lengths)[:, None]
        weights = None if real.all() else real.double() / real.sum(1, keepdim=True)
        keys = torch.arange(count) if drops else None
        mine = [part[:count] for part in parts]
        losses, gradients = kernels.gradient(mine, Batch(features, targets, weights, keys))
        for k, length in enumerate(lengths):
            one = Batch(features[k, None, :length], targets[k, None, :length], None, keys[k, None] if drops else None)
            expected, slopes = plain.gradient([part[k, None].clone() for part in parts], one)
            torch.testing.assert_close(losses[k], expected[0], rtol=0, atol=1e-12)
            for gradient, slope in zip(gradients, slopes, strict=True):
                torch.testing.assert_close(gradient[k], slope[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_module_whether_rows_share_features_or_not(name):
    shape, make = MODELS[name]
    kernels, plain, layout, _ = both(make, shape, cross_entropy)
    plain.model.eval()
    rows = torch.randn(3, layout.size, dtype=torch.float64)
    parts = [part.contiguous() for part in layout.split(rows).values()]
    features = torch.randn(3, 6, *shape, dtype=torch.float64)
    with torch.no_grad():
        for each, shared in ((features, False), (features[0], True)):
            expected = plain.outputs(parts, each, shared=shared)
            torch.testing.assert_close(kernels.outputs(parts, each, shared=shared), expected, rtol=0, atol=1e-12)


def test_among_equal_numbers_the_first_takes_the_gradient_as_in_torch():
    kernels, plain, layout, _ = both(
        lambda: nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(1, 2)),
        (1, 3, 3),
        cross_entropy,
    )
    features = torch.tensor([[0.0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.float64).view(1, 1, 1, 3, 3)
    batch = Batch(features, torch.zeros(1, 1, dtype=torch.int64), None, None)
    parts = [part.contiguous() for part in layout.split(torch.ones(1, layout.size).double()).values()]
    for mine, theirs in zip(kernels.gradient(parts, batch)[1], plain.gradient(parts, batch)[1], strict=True):
        torch.testing.assert_close(mine, theirs)


def test_what_the_kernels_do_not_know_is_left_to_vmap():
    unknown = [
        ((6,), nn.Sequential(nn.Linear(6, 3), nn.Softplus())),
        ((6,), nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3))),
        ((4, 6), nn.Sequential(nn.Linear(6, 3), nn.Flatten())),
        ((2, 4, 4), nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, 3))),
        ((2, 4, 4), nn.Sequential(nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(18, 3))),
        ((2, 2, 2), nn.Sequential(nn.MaxPool2d(1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))),  # a view, not a copy
    ]
    for shape, model in unknown:
        names = tuple(name for name, _ in model.named_parameters())
        assert (
            compile_kernels(model, names, torch.zeros(1, *shape), loss=cross_entropy, footprint=Footprint(1, 1, 1))
            is None
        )
    twice = nn.Linear(6, 6)
    model = nn.Sequential(twice, nn.Tanh(), twice)
    assert (
        compile_kernels(
            model, ("0.weight", "0.bias"), torch.zeros(1, 6), loss=cross_entropy, footprint=Footprint(1, 1, 1)
        )
        is None
    )
