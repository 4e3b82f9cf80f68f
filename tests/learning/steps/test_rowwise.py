"""Steps of single rows by numpy, against autograd and against those of a stack."""

import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.data import Dataset, Federation
from p2pfl.errors import LearningError
from p2pfl.learning import TorchLearner
from p2pfl.learning.losses import cross_entropy, squared_error
from p2pfl.learning.steps.batching import Batch
from p2pfl.learning.steps.plain import Plain
from p2pfl.learning.steps.rowwise import FEW, Rowwise, rowwise
from p2pfl.rows import Layout

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


@pytest.mark.parametrize("loss", [cross_entropy, squared_error])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_a_row_are_those_of_autograd(name, loss):
    torch.manual_seed(0)
    model = (MODELS[name]() if loss is cross_entropy else nn.Sequential(MODELS[name](), nn.Linear(3, 1))).double()
    layout = laid_out(model)
    plain = Plain(model, layout.names, loss=loss, dropouts={}, autocast=torch.enable_grad)
    rows, slope = torch.randn(1, layout.size).double(), torch.zeros(layout.size).double()
    row = rowwise(model, layout, loss=loss).row(rows[0], slope)
    for size in (5, 1, 7):
        features = torch.randn(size, 6).double()
        targets = torch.randint(3, (size,)) if loss is cross_entropy else torch.randn(size).double()
        batch = Batch(features[None], targets[None], None, None)
        expected, gradients = plain.gradient(list(layout.split(rows).values()), batch)
        assert row.gradient(features.numpy().copy(), targets.numpy()) == pytest.approx(expected.item(), abs=1e-12)
        joined = torch.cat([each.flatten() for each in gradients])
        torch.testing.assert_close(slope, joined, rtol=0, atol=1e-12)
        rows -= 0.01 * slope  # in place: the layers see the new row


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_have_no_such_engine(name):
    model = OTHERS[name]()
    layout = laid_out(model) if list(model.parameters()) else Layout((), ())
    assert rowwise(model, layout, loss=cross_entropy) is None


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


@pytest.mark.parametrize("changes", [
    {}, {"batch": None}, {"options": {"weight_decay": 0.1}}, {"options": {"momentum": 0.9}},
    {"optimizer": "adam", "rate": 0.01}, {"steps": 3},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("correction", [None, drift], ids=["bare", "corrected"])
def test_a_few_rows_train_one_after_another_as_in_a_stack(changes, correction, monkeypatch):
    few = learner(FEW, **changes)
    assert isinstance(few.few, Rowwise)
    stack = learner(FEW, **changes)
    monkeypatch.setattr(stack, "few", None)
    memories = [None, None]
    for _ in range(2):  # the second round continues with the state of the optimiser
        mine, theirs = (
            trained(each, memory=memory, correction=correction)
            for each, memory in zip((few, stack), memories, strict=True)
        )
        torch.testing.assert_close(mine.rows, theirs.rows, rtol=0, atol=1e-12)
        torch.testing.assert_close(mine.report.loss, theirs.report.loss, rtol=0, atol=1e-12)
        assert mine.report.steps.tolist() == theirs.report.steps.tolist()
        assert mine.memory.keys() == theirs.memory.keys()
        memories = [mine.memory, theirs.memory]


def test_rows_that_are_not_active_do_not_move():
    some = learner(2)
    rows = some.start(some.federation.peers)
    fitted = trained(some, rows=rows, active=torch.tensor([False, True]))
    assert torch.equal(fitted.rows[0], rows[0])
    assert not torch.equal(fitted.rows[1], rows[1])
    assert torch.equal(rows[0], rows[1])  # what is given is not changed


def test_a_gradient_at_one_batch_is_that_of_a_stack(monkeypatch):
    one, stack = learner(1), learner(1)
    monkeypatch.setattr(stack, "few", None)
    rows = one.start(("peer0",))
    for how in ({"step": 4}, {"whole": True}):
        mine, theirs = (each.gradient(rows, peers=("peer0",), round=1, **how) for each in (one, stack))
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


def test_a_row_that_diverges_is_told():
    with pytest.raises(LearningError, match="peer0"), np.errstate(all="raise"):
        trained(learner(1, rate=1e200))


def test_the_engine_depends_on_shapes_alone():
    def engine(peers, **changes):
        made = learner(peers, **changes)
        return made.few is not None and made.few.suits(peers, width=min(made.batch or 40, 40))

    assert engine(FEW)
    assert not engine(FEW + 1)
    assert not engine(1, units=5000, batch=40)  # 1,200,000 products
    assert engine(1, units=5000, batch=7)
    assert learner(1, optimizer="adam").few is not None
