"""Scores of whole sets against scikit-learn, and their intervals."""

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle

from p2pfl.learning import metrics
from p2pfl.learning.histograms import histograms, score_histograms


def said(seed, classes, *, ties=False, size=300):
    """Probabilities and targets that they say something about."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(classes, size=size)
    scores = rng.normal(size=(size, classes)) + 1.5 * np.eye(classes)[targets]
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    if ties:
        probabilities = (probabilities * 8 + 0.5).round() + 1
        probabilities /= probabilities.sum(1, keepdims=True)
    return probabilities, targets


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_scores_of_two_classes_are_those_of_scikit_learn(seed, ties):
    probabilities, targets = said(seed, 2, ties=ties)
    positive, likeliest = probabilities[:, 1], probabilities.argmax(1)
    expected = {
        "loss": oracle.log_loss(targets, probabilities),
        "accuracy": oracle.accuracy_score(targets, likeliest),
        "balanced_accuracy": oracle.balanced_accuracy_score(targets, likeliest),
        "auc": oracle.roc_auc_score(targets, positive),
        "brier": oracle.brier_score_loss(targets, positive),
        "average_precision": oracle.average_precision_score(targets, positive),
    }
    found = {name: metric(probabilities, targets) for name, metric in metrics.BINARY_METRICS.items()}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert {*found} == {*expected, "calibration_error", "calibration_slope", "calibration_intercept"}


@pytest.mark.parametrize("ties", [False, True])
def test_scores_of_many_classes_are_those_of_scikit_learn(ties):
    probabilities, targets = said(5, 4, ties=ties)
    expected = {
        "loss": oracle.log_loss(targets, probabilities),
        "accuracy": oracle.accuracy_score(targets, probabilities.argmax(1)),
        "balanced_accuracy": oracle.balanced_accuracy_score(targets, probabilities.argmax(1)),
        "auc": oracle.roc_auc_score(targets, probabilities, multi_class="ovr", average="macro"),
    }
    found = {name: metrics.CLASSIFICATION_METRICS[name](probabilities, targets) for name in expected}
    assert found == pytest.approx(expected, abs=1e-12)


def test_scores_of_numbers_are_those_of_scikit_learn():
    rng = np.random.default_rng(7)
    targets = rng.normal(size=200)
    predictions = targets + rng.normal(size=200)
    found = {name: metric(predictions, targets) for name, metric in metrics.REGRESSION_METRICS.items()}
    assert found == pytest.approx(
        {
            "loss": oracle.mean_squared_error(targets, predictions),
            "mean_absolute_error": oracle.mean_absolute_error(targets, predictions),
            "r2": oracle.r2_score(targets, predictions),
        },
        abs=1e-12,
    )


def test_the_calibration_error_weighs_the_gap_of_each_bin():
    positive = np.array([0.45, 0.45, 0.95, 0.95, 0.95, 1.0])
    targets = np.array([0, 1, 1, 1, 0, 1])
    probabilities = np.stack([1 - positive, positive], axis=1)
    unsure, sure = abs(0.5 - 0.55), abs(0.75 - (3 * 0.95 + 1) / 4)
    assert metrics.calibration_error(probabilities, targets) == pytest.approx((2 * unsure + 4 * sure) / 6)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_calibration_error_of_an_evaluation_is_that_of_the_common_model(classes):
    probabilities, targets = said(classes, classes)
    logits, labels = torch.from_numpy(np.log(probabilities)), torch.from_numpy(targets)
    common = score_histograms(histograms(logits, labels).numpy())["calibration_error"]
    assert metrics.calibration_error(probabilities, targets) == pytest.approx(common, abs=1e-6)


def test_the_calibration_error_of_many_classes_is_that_of_the_likeliest():
    probabilities, targets = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]), np.array([0, 2])
    assert metrics.calibration_error(probabilities, targets) == pytest.approx(abs(0.5 - 0.8))


def test_a_score_without_a_value_is_nan():
    probabilities, targets = np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0, 0])
    assert np.isnan(metrics.macro_auc(probabilities, targets))
    assert np.isnan(metrics.BINARY_METRICS["average_precision"](probabilities, targets))
    assert np.isnan(metrics.r2(np.array([1.0, 2.0]), np.array([3.0, 3.0])))
    found = metrics.intervals({"auc": metrics.macro_auc}, probabilities, targets, seed=0, draws=20)
    assert np.isnan(found["auc"]).all()


def test_a_certain_and_wrong_prediction_has_a_finite_loss():
    loss = metrics.log_loss(np.array([[1.0, 0.0]]), np.array([1]))
    assert loss == pytest.approx(-np.log(np.finfo(float).eps))


@pytest.mark.slow
def test_intervals_are_reproducible_and_those_of_the_bootstrap_by_hand():
    probabilities, targets = said(1, 2, size=80)
    found = metrics.intervals(metrics.BINARY_METRICS, probabilities, targets, seed=3, draws=50)
    assert found == metrics.intervals(metrics.BINARY_METRICS, probabilities, targets, seed=3, draws=50)
    assert found != metrics.intervals(metrics.BINARY_METRICS, probabilities, targets, seed=4, draws=50)
    rng = metrics.draw(3, "bootstrap")
    drawn = [rng.integers(80, size=80) for _ in range(50)]
    by_hand = [oracle.roc_auc_score(targets[chosen], probabilities[chosen, 1]) for chosen in drawn]
    assert found["auc"] == pytest.approx(tuple(np.quantile(by_hand, [0.025, 0.975])))


def test_scores_that_do_not_vary_have_no_interval():
    probabilities, targets = said(1, 3, size=40)
    one = metrics.intervals(metrics.CLASSIFICATION_METRICS, probabilities[:1], targets[:1], seed=0, draws=20)
    assert np.isnan([*one.values()]).all()
    right = np.eye(3)[targets]
    found = metrics.intervals(metrics.CLASSIFICATION_METRICS, right, targets, seed=0, draws=20)
    assert np.isnan(found["accuracy"]).all()


@pytest.mark.nightly
def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    truth, covered = 0.7, 0
    for seed in range(200):
        right = np.random.default_rng(seed).random(150) < truth
        probabilities = np.where(right[:, None], [[0.9, 0.1]], [[0.1, 0.9]])
        low, high = metrics.intervals(
            {"accuracy": metrics.accuracy}, probabilities, np.zeros(150, int), seed=0, draws=200
        )["accuracy"]
        covered += low <= truth <= high
    assert 0.9 < covered / 200 < 0.99
