"""Evaluation of rows on samples that they share: neither the order of samples nor the size of blocks changes scores."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner
from p2pfl.learning.evaluation import PADDED_SAMPLES, _common, _divide
from p2pfl.learning.losses import accuracy, each_sample
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.sparse_samples import SparseSamples

PEERS = tuple(f"peer{i}" for i in range(5))
ORDERS = {"consecutive": np.arange(40, 340), "reversed": np.arange(40, 340)[::-1], "single": np.array([59])}


def learner(test, *, model):
    torch.manual_seed(3)
    data = Dataset(torch.randn(400, 1, 2, 3), torch.randint(3, (400,)), 3)
    train = {peer: np.arange(8 * i, 8 * i + 8) for i, peer in enumerate(PEERS)}
    held = Federation(data, train, dict.fromkeys(PEERS, np.arange(0)), dict.fromkeys(PEERS, test))
    return TorchLearner(model, held, seed=7, batch=4, device="cpu")


@pytest.mark.parametrize("test", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("layers", [[nn.Linear(6, 3)], [nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)]], ids=len)
def test_models_have_the_scores_that_torch_finds_for_each(test, layers):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), *layers)
    made = learner(test, model=model)
    rows = torch.randn(len(PEERS), made.layout.size)
    found = made.evaluate(rows, peers=PEERS)
    features, targets = made.features[test.copy()], made.targets[test.copy()]
    for row, loss, share in zip(rows, found["loss"], found["accuracy"], strict=True):
        outputs = torch.func.functional_call(model, made.state_dict(row), (features,))
        assert loss.item() == pytest.approx(nn.functional.cross_entropy(outputs, targets).item(), rel=1e-5)
        assert share.item() == pytest.approx((outputs.argmax(1) == targets).double().mean().item(), abs=1e-12)


def test_consecutive_samples_that_all_rows_share_are_not_copied():
    made = learner(ORDERS["consecutive"], model=nn.Sequential(nn.Flatten(), nn.Linear(6, 3)))
    pieces = [made.features[index] for index, _ in _common(made.parts["test"].of(PEERS))]
    assert sum(map(len, pieces)) == 300
    assert all(piece.untyped_storage().data_ptr() == made.features.untyped_storage().data_ptr() for piece in pieces)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_number_of_rows_in_a_block_changes_no_score(rows):
    made = learner(ORDERS["reversed"], model=nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)))
    start = torch.randn(len(PEERS), made.layout.size)
    whole = made.evaluate(start, peers=PEERS)
    made.footprint = replace(made.footprint, row=1, sample=made.features[0].nbytes + 1, block=256 * rows)
    again = made.evaluate(start, peers=PEERS)
    assert all(torch.allclose(whole[name], again[name], rtol=1e-6) for name in whole)


def test_blocks_of_rows_of_different_lengths_are_padded_to_twice_their_samples_at_most():
    counts = (700, 3, 90, 40, 640, 1, 33, 300, 5, 80)
    names = tuple(f"peer{i}" for i in range(len(counts)))
    ends = np.cumsum(counts)
    test = {name: np.arange(end - count, end) for name, count, end in zip(names, counts, ends, strict=True)}
    data = Dataset(torch.randn(ends[-1], 6), torch.randint(3, (int(ends[-1]),)), 3)
    train = {name: np.arange(8) for name in names}
    torch.manual_seed(1)
    made = TorchLearner(nn.Linear(6, 3), Federation(data, train, dict.fromkeys(names, np.arange(0)), test))
    part = made.parts["test"].of(names)
    blocks = _divide(made, part)
    assert sorted(np.concatenate(blocks).tolist()) == list(range(len(names)))
    for block in blocks:
        longest = part.counts[block].max()
        assert longest <= PADDED_SAMPLES or part.counts[block].min() * 2 >= longest
    rows = torch.randn(len(names), made.layout.size)
    found = made.evaluate(rows, peers=names)["loss"]
    for row, name, loss in zip(rows, names, found, strict=True):
        alone = made.evaluate(row.unsqueeze(0), peers=(name,))["loss"]
        assert loss.item() == pytest.approx(alone.item(), rel=1e-5)


def test_of_several_classes_that_are_as_likely_the_first_is_predicted():
    outputs = torch.tensor([[[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]]])
    for target, expected in ((0, [1.0, 0.0]), (1, [0.0, 1.0]), (2, [0.0, 0.0])):
        assert each_sample(accuracy, outputs, torch.full((1, 2), target)).tolist() == [expected]


def many(*, layers=(12, 5, 3), rows=80):
    """Return a learner whose test samples are mostly zeros, rows, and the module of one row."""
    names = tuple(f"peer{i}" for i in range(rows))
    draws = torch.Generator().manual_seed(4)
    features = torch.rand(640, 3, 4, generator=draws) * (torch.rand(640, 3, 4, generator=draws) < 0.15)
    features[:, 1, 2] = 0
    data = Dataset(features, torch.randint(3, (640,), generator=draws), 3)
    test = np.random.default_rng(0).permutation(np.arange(40, 640))
    held = Federation(
        data, dict.fromkeys(names, np.arange(8)), dict.fromkeys(names, np.arange(0)), dict.fromkeys(names, test)
    )
    sizes = [each for pair in pairwise(layers) for each in (nn.Linear(*pair), nn.ReLU())][:-1]
    model = nn.Sequential(nn.Flatten(), *sizes)
    made = TorchLearner(model, held, seed=7, batch=4, device="cpu", dtype=torch.float64)
    return made, torch.randn(rows, made.layout.size, generator=draws, dtype=torch.float64), model.double(), names


@pytest.mark.parametrize("layers", [(12, 3), (12, 5, 3), (12, 40, 3)])
def test_features_that_are_zero_in_all_samples_of_a_batch_are_not_multiplied(layers, monkeypatch):
    made, rows, model, names = many(layers=layers)
    widths, outputs = [], Kernels.outputs

    def watched(self, parts, features, *, shared):
        widths.append(features.shape[1])
        return outputs(self, parts, features, shared=shared)

    monkeypatch.setattr(Kernels, "outputs", watched)
    scores = made.evaluate(rows, peers=names)
    assert len(widths) == 3
    assert widths == sorted(widths)
    assert widths[0] < 12
    test = made.parts["test"].of(names).samples
    for row, loss, share in zip(rows, scores["loss"], scores["accuracy"], strict=True):
        alone = torch.func.functional_call(model, made.state_dict(row), (made.features[test],))
        assert loss.item() == pytest.approx(nn.functional.cross_entropy(alone, made.targets[test]).item(), rel=1e-12)
        assert share.item() == (alone.argmax(1) == made.targets[test]).double().mean().item()


def test_products_of_zeros_with_weights_that_are_not_finite_count():
    made, rows, _, names = many()
    rows[7, 6] = torch.inf  # of a feature that no sample uses
    loss = made.evaluate(rows, peers=names)["loss"]
    assert loss.isnan().nonzero().flatten().tolist() == [7]


def test_many_rows_score_nan_on_a_common_part_without_samples():
    made, rows, _, names = many()
    none = made.on(replace(made.federation, test=dict.fromkeys(names, np.arange(0))))
    assert none.evaluate(rows, peers=names)["loss"].isnan().all()


def test_samples_without_zeros_stay_as_they_are():
    assert SparseSamples.sort(torch.rand(50, 3, 4) + 0.1, torch.arange(50), width=16) is None
    assert SparseSamples.sort(torch.zeros(50, 3, 4), torch.arange(50), width=16).used == [1] * 4
