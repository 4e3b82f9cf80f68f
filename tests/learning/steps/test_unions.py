"""Rows that share samples train on groups of them, with the results of rows that train apart."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner
from p2pfl.learning.steps import sample_groups, training
from p2pfl.learning.steps.sample_groups import groups
from p2pfl.learning.steps.unions import Unions

PARTS = [np.arange(40 * part, 40 * part + 40) for part in range(3)]
OWN = {
    "one": PARTS[0],
    "two": np.concatenate(PARTS[:2]),
    "twice": np.sort(np.concatenate([PARTS[1], PARTS[1], PARTS[2]])),
    "all": np.concatenate(PARTS),
    "none": PARTS[0][:0],
}
MODELS = {
    "linear": nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(20, 3)),
    "mlp": nn.Sequential(nn.Flatten(), nn.Linear(20, 5), nn.Tanh(), nn.Linear(5, 3)),
    "cnn": nn.Sequential(
        nn.Conv2d(1, 2, 2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 2, 2), nn.Flatten(), nn.Linear(4, 3)
    ),
}


def learner(model, own, **more):
    torch.manual_seed(2)
    data = Dataset(torch.randn(120, 1, 4, 5), torch.randint(3, (120,)), 3)
    federation = Federation(data, own, own, own)
    settings = {"batch": None, "epochs": 4, "optimizer": "adam", "seed": 3, "dtype": torch.float64, "device": "cpu"}
    return TorchLearner(model, federation, **settings | more)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("model", MODELS)
def test_rows_that_share_samples_train_as_apart(model, monkeypatch):
    used = []
    gradient = Unions.gradient
    monkeypatch.setattr(Unions, "gradient", lambda *given: used.append(1) or gradient(*given))
    peers = (*OWN,)
    together = learner(MODELS[model], OWN, stragglers=0.5)
    fitted = together.fit(together.start(peers), peers=peers, round=1)
    assert len(used) == 2 + 4  # the proof calls twice
    assert len({*fitted.report.steps.tolist()}) > 2
    for place, peer in enumerate(peers):
        alone = learner(MODELS[model], {peer: OWN[peer]}, stragglers=0.5)
        found = alone.fit(alone.start([peer]), peers=(peer,), round=1)
        assert torch.allclose(fitted.rows[place], found.rows[0], rtol=0, atol=1e-11)
        assert fitted.report.loss[place] == pytest.approx(float(found.report.loss[0]), abs=1e-12)


def test_blocks_have_the_groups_of_their_rows(monkeypatch):
    monkeypatch.setattr(training, "MORE", 0)  # one row a block
    peers = (*OWN,)
    together = learner(MODELS["mlp"], OWN)
    rows = together.start(peers)
    small = together.fit(rows, peers=peers, round=0).rows
    monkeypatch.undo()
    assert torch.allclose(small, together.fit(rows, peers=peers, round=0).rows, rtol=0, atol=1e-12)


def test_small_batches_dropout_and_samples_of_one_row_have_no_groups(monkeypatch):
    monkeypatch.setattr(Unions, "__init__", None)
    monkeypatch.setattr(Unions, "gradient", None)
    apart = dict(zip(("x", "y", "z"), PARTS, strict=True))
    dropping = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(20, 3))
    for made in (learner(MODELS["mlp"], OWN, batch=8), learner(dropping, OWN), learner(MODELS["mlp"], apart)):
        peers = made.federation.peers
        made.fit(made.start(peers), peers=peers, round=0)


@given(st.lists(st.lists(st.integers(0, 6), max_size=9), min_size=1, max_size=5))
def test_a_row_is_the_union_of_its_groups(rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_groups, "LEAST", 0)
        patch.setattr(sample_groups, "SHARED", 0)
        found = groups([np.array(row, dtype=np.int64) for row in rows])
    if found is None:
        assert not any(rows)
        return
    held = [[] for _ in rows]
    for group in found:
        for row, times in zip(group.rows, group.times, strict=True):
            held[row] += [*group.positions] * times
    assert [sorted(own) for own in held] == [sorted(row) for row in rows]
    assert len({(*group.rows, *group.times) for group in found}) == len(found)
