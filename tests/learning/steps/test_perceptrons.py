"""Steps of perceptrons by numpy, against autograd and against those of kernels."""

import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.core.errors import LearningError
from p2pfl.core.rows import Layout
from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner
from p2pfl.learning.losses import cross_entropy, squared_error
from p2pfl.learning.steps.autograd import PlainEngine
from p2pfl.learning.steps.batching import Batch, Footprint
from p2pfl.learning.steps.kernels import compile_kernels, perceptrons
from p2pfl.learning.steps.perceptrons import Perceptrons

MODELS = {
    "linear": lambda: nn.Linear(6, 3),
    "no bias": lambda: nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False)),
    "rectified": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Identity(), nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Tanh()),
        nn.Linear(4, 3), nn.ReLU(),
    ),
    "both": lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.ReLU(), nn.Tanh(), nn.Linear(5, 3)),
}  # fmt: skip

OTHERS = {
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)),
    "an activation first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(6, 3)),
    "sigmoid": lambda: nn.Sequential(nn.Linear(6, 3), nn.Sigmoid()),
    "normalised": lambda: nn.Sequential(nn.Linear(6, 3), nn.LayerNorm(3)),
    "no layer": nn.Sequential,
}


def laid_out(model):
    return Layout(*zip(*((name, tuple(each.shape)) for name, each in model.named_parameters()), strict=True))


def engine_of(model, layout, *, loss=cross_entropy):
    dtype = next(model.parameters(), torch.zeros(0).double()).dtype
    kernels = compile_kernels(
        model, layout.names, torch.zeros(1, 6, dtype=dtype), loss=loss, footprint=Footprint(1, 1, 1)
    )
    return perceptrons(model, layout, kernels=kernels, loss=loss)


@pytest.mark.parametrize("loss", [cross_entropy, squared_error])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_rows_are_those_of_autograd(name, loss):
    torch.manual_seed(0)
    model = (MODELS[name]() if loss is cross_entropy else nn.Sequential(MODELS[name](), nn.Linear(3, 1))).double()
    layout = laid_out(model)
    plain = PlainEngine(model, layout.names, loss=loss, dropouts={}, autocast=torch.enable_grad)
    rows, slopes = torch.randn(4, layout.size).double(), torch.zeros(4, layout.size).double()
    engine = engine_of(model, layout, loss=loss)
    for sizes in ([5, 5, 5, 5], [7, 4, 3, 1], [5, 5], [1]):  # with padding, and with fewer and fewer rows
        count, width = len(sizes), max(sizes)
        models = engine.models(rows[:count], slopes[:count])
        features = torch.randn(count, width, 6).double()
        targets = torch.randint(3, (count, width)) if loss is cross_entropy else torch.randn(count, width).double()
        real = torch.arange(width) < torch.tensor(sizes)[:, None]
        weights = None if real.all() else (real.double() / real.sum(1, keepdim=True)).numpy()
        losses = models.gradient(features.numpy(), targets.numpy(), weights)
        for k, size in enumerate(sizes):
            batch = Batch(features[k, None, :size], targets[k, None, :size], None, None)
            expected, gradients = plain.gradient(list(layout.split(rows[k, None]).values()), batch)
            assert losses[k] == pytest.approx(expected.item(), rel=1e-12)
            joined = torch.cat([each.flatten() for each in gradients])
            torch.testing.assert_close(slopes[k], joined, rtol=1e-12, atol=1e-12)
        rows -= 0.01 * slopes  # in place: the layers see the new rows


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_have_no_such_engine(name):
    model = OTHERS[name]()
    layout = laid_out(model) if list(model.parameters()) else Layout((), ())
    assert engine_of(model, layout) is None


def learner(peers, *, samples=40, units=5, **changes):
    rng = np.random.default_rng(1)
    count = samples * peers
    features = torch.from_numpy(rng.normal(size=(count, 6)))
    data = Dataset(features, torch.from_numpy(rng.integers(3, size=count)), classes=3)
    parts = {f"peer{k}": np.arange(k * samples, (k + 1) * samples - 7 * k) for k in range(peers)}
    federation = Federation(data, train=parts, validation=dict.fromkeys(parts, np.arange(0)), test=parts)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, units), nn.ReLU(), nn.Linear(units, 3))
    settings = {"rate": 0.3, "batch": 7, "epochs": 2, "seed": 5, "dtype": torch.float64, "device": "cpu"}
    return TorchLearner(model, federation, **(settings | changes))


def trained(learner, *, rows=None, **how):
    peers = learner.federation.peers
    rows = learner.start(peers) if rows is None else rows
    return learner.fit(rows, peers=peers, round=3, **how)


def drift(rows, where):
    """A correction that depends on the row and on its number."""
    return 0.1 * rows + 0.01 * where.unsqueeze(1)


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("changes", [
    {}, {"batch": None}, {"options": {"weight_decay": 0.1}}, {"options": {"momentum": 0.9}},
    {"optimizer": "adam", "rate": 0.01}, {"steps": 3},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("correction", [None, drift], ids=["bare", "corrected"])
def test_rows_train_as_by_kernels(changes, correction, monkeypatch):
    mine, theirs = learner(5, **changes), learner(5, **changes)
    assert isinstance(mine.perceptrons, Perceptrons)
    monkeypatch.setattr(theirs, "perceptrons", None)
    memories = [None, None]
    for _ in range(2):  # the second round continues with the state of the optimiser
        one, other = (
            trained(each, memory=memory, correction=correction)
            for each, memory in zip((mine, theirs), memories, strict=True)
        )
        torch.testing.assert_close(one.rows, other.rows, rtol=0, atol=1e-12)
        torch.testing.assert_close(one.report.loss, other.report.loss, rtol=0, atol=1e-12)
        assert one.report.steps.tolist() == other.report.steps.tolist()
        assert one.memory.keys() == other.memory.keys()
        for name, value in one.memory.items():
            torch.testing.assert_close(value, other.memory[name], rtol=0, atol=1e-12)
        memories = [one.memory, other.memory]


def test_rows_that_are_not_active_do_not_move():
    some = learner(2)
    rows = some.start(some.federation.peers)
    fitted = trained(some, rows=rows, active=torch.tensor([False, True]))
    assert torch.equal(fitted.rows[0], rows[0])
    assert not torch.equal(fitted.rows[1], rows[1])
    assert torch.equal(rows[0], rows[1])  # what is given is not changed


def test_gradients_at_one_batch_are_those_of_kernels(monkeypatch):
    mine, theirs = learner(3), learner(3)
    monkeypatch.setattr(theirs, "perceptrons", None)
    peers = mine.federation.peers
    rows = mine.start(peers)
    for how in ({"step": 4}, {"whole": True}):
        one, other = (each.gradient(rows, peers=peers, round=1, **how) for each in (mine, theirs))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_row_that_diverges_is_told():
    with pytest.raises(LearningError, match="peer0"), np.errstate(all="raise"):
        trained(learner(1, rate=1e200))


def test_which_engine_takes_the_steps_follows_from_shapes_alone():
    def suits(**changes):
        made = learner(1, **changes)
        return made.perceptrons is not None and made.perceptrons.suits(min(made.batch or 40, 40))

    assert suits()
    assert suits(optimizer="adam")
    assert suits(units=20_000, batch=7)
    assert not suits(units=20_000, batch=10)  # 1,200,000 products
