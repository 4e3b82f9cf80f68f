"""Calibration error and area under the ROC curve by integer histograms, against scikit-learn and closed forms."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, roc_auc_score

from p2pfl.experiment import plan, read
from p2pfl.learning.histograms import CONFIDENCE_BINS, SCORE_BINS, histograms, length, score_histograms
from p2pfl.simulation import simulate

BINARY = {
    "topology": {"kind": "ring", "peers": 4},
    "data": {"name": "breast_cancer"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "dtype": "float64", "rate": 0.05, "consensus": True},
    "rounds": 2,
}


def samples(seed, *, classes, count=500):
    rng = np.random.default_rng(seed)
    targets = torch.from_numpy(rng.integers(0, classes, count))
    outputs = torch.from_numpy(rng.normal(size=(count, classes)))
    outputs[torch.arange(count), targets] += 0.7
    return outputs, targets


@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_that_of_scikit_learn_for_scores_in_bins(seed):
    outputs, targets = samples(seed, classes=2)
    chances = outputs.softmax(-1)[:, 1].numpy()
    found = score_histograms(histograms(outputs, targets).numpy())["auc"]
    assert found == pytest.approx(roc_auc_score(targets, np.floor(chances * SCORE_BINS)), abs=1e-12)
    assert found == pytest.approx(roc_auc_score(targets, chances), abs=2e-3)
    bound = score_histograms(histograms(outputs, targets).numpy())["auc_bound"]
    assert abs(found - roc_auc_score(targets, chances)) <= bound < 2e-3


@pytest.mark.parametrize("classes", [2, 3])
def test_the_brier_score_of_the_sum_over_peers_is_that_of_scikit_learn(classes):
    outputs, targets = samples(1, classes=classes)
    total = sum(histograms(outputs[part::4], targets[part::4]) for part in range(4)).numpy()
    chances = outputs.softmax(-1).numpy()
    if classes == 2:
        oracle = brier_score_loss(targets, chances[:, 1])
    else:
        oracle = brier_score_loss(targets, chances, labels=range(classes)) / 2
    assert score_histograms(total)["brier"] == pytest.approx(oracle, abs=1e-8)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_calibration_error_is_that_of_its_formula(classes):
    outputs, targets = samples(classes, classes=classes)
    confidence, likely = outputs.softmax(-1).max(-1)
    place = np.minimum((confidence.numpy() * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    right = (likely == targets).numpy()
    expected = sum(
        (place == b).mean() * abs(right[place == b].mean() - confidence.numpy()[place == b].mean())
        for b in range(CONFIDENCE_BINS)
        if (place == b).any()
    )
    assert score_histograms(histograms(outputs, targets).numpy())["calibration_error"] == pytest.approx(
        expected, abs=1e-6
    )


@given(st.lists(st.integers(0, 3), min_size=60, max_size=60), st.sampled_from([2, 4]))
def test_histograms_of_parts_add_up_to_those_of_all_samples(owners, classes):
    outputs, targets = samples(7, classes=classes, count=60)
    parts = [torch.tensor(owners) == peer for peer in range(4)]
    total = sum(histograms(outputs[part], targets[part]) for part in parts)
    assert torch.equal(total, histograms(outputs, targets))
    assert len(total) == length(classes)


def test_certain_outputs_fall_into_the_last_bin_and_one_class_alone_has_no_curve():
    outputs, targets = torch.tensor([[0.0, 900.0]]), torch.tensor([1])
    assert score_histograms(histograms(outputs, targets).numpy()) == {"calibration_error": 0.0, "brier": 0.0}
    assert score_histograms(np.zeros(length(2), np.int64)) == {}


@pytest.mark.parametrize("name", ["breast_cancer", "synthetic"])
def test_scores_of_the_sum_over_peers_are_those_of_all_test_data_together(name):
    resolved = plan(read(BINARY, changes=[f"data.name={name}"]))
    learner, peers = resolved.learner, resolved.topology.peers
    rows = learner.start(peers) + 0.1
    together = learner.on(resolved.federation.pooled())
    found = score_histograms(learner.tallies(rows, peers=peers).sum(0).numpy(), copies=len(peers))
    assert found == pytest.approx(score_histograms(together.tallies(rows[:1], peers=["pooled"])[0].numpy()), abs=1e-9)
    assert ("auc" in found) == (name == "breast_cancer")


def test_what_is_no_classifier_has_no_histograms():
    resolved = plan(read(BINARY, changes=["data.name=diabetes"]))
    peers = resolved.topology.peers
    assert resolved.learner.tallies(resolved.learner.start(peers), peers=peers).shape == (4, 0)


def test_a_test_part_that_all_peers_share_counts_once_in_the_hosmer_lemeshow_test_of_a_run():
    run = simulate(read(BINARY), baselines=False)
    learner = plan(read(BINARY)).learner
    pooled = learner.on(plan(read(BINARY)).federation.pooled())
    row = learner.layout.join({name: tensor.unsqueeze(0) for name, tensor in run.models["peer0"].items()})
    once = score_histograms(pooled.tallies(row, peers=["pooled"])[0].numpy())
    for name in ("hosmer_lemeshow", "hosmer_lemeshow_p", "auc"):
        assert run.summary["common"][name] == pytest.approx(once[name], rel=1e-9)
