"""Intervals of what peers gain by learning together, from both of their models on the same test samples."""

import html
import re

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from torch import nn

from markup import checked
from p2pfl.core.draws import draw
from p2pfl.data import gather
from p2pfl.experiment import read
from p2pfl.learning import ExactLearner, TorchLearner
from p2pfl.learning.metrics import affordable
from p2pfl.learning.set_scores import SET_SCORES
from p2pfl.results.comparisons import gain_intervals
from p2pfl.results.comparisons.gain_intervals import gain_interval
from p2pfl.results.pages.gains import METHOD_TEMPLATES, MISSING_REASONS, gains
from p2pfl.results.pages.rendering import fragment
from p2pfl.results.pages.run_page import run_page
from p2pfl.simulation import simulate
from swarms import SMALL

SEED = 5


def samples(count=200, *, classes=2):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(count, 3, generator=generator)
    noise = torch.randn(count, generator=generator)
    if classes is None:
        return features, features[:, 0] + noise
    return features, ((features[:, 0] + noise) > 0).long()


def models(learner):
    """Return a model that knows little, and one that has learned."""
    start = learner.start(["ada"])
    first = learner.fit(start, peers=["ada"], round=0).rows
    second = learner.fit(first, peers=["ada"], round=1).rows
    return first[0], second[0]


def found(learner, metric, **changes):
    alone, together = models(learner)
    recorded = float(learner.evaluate(together.unsqueeze(0), peers=["ada"])[metric][0])
    how = {"alone": alone, "together": together, "recorded": recorded, "seed": SEED, **changes}
    return gain_interval(learner, "ada", metric=metric, **how)


def outputs(learner):
    each = [learner.outputs(row, peer="ada") for row in models(learner)]
    return each[0][0], each[1][0], each[0][1]


def of_classes(metrics=None, **changes):
    torch.manual_seed(1)  # from some starts both models predict the same classes, and no gain has an interval
    return TorchLearner(nn.Linear(3, 2), {"ada": samples(**changes)}, seed=1, rate=0.05, metrics=metrics, device="cpu")


def expected(score, first, second, targets):
    """Return percentiles of the differences of a score on resampled samples, drawn by the key of the seed."""
    rng, count = draw(SEED, "bootstrap"), len(targets)
    differences = []
    for _ in range(1000):
        chosen = rng.integers(count, size=count)
        differences.append(score(targets[chosen], second[chosen]) - score(targets[chosen], first[chosen]))
    return np.quantile(differences, [0.025, 0.975])


def test_the_interval_of_a_mean_over_samples_is_that_of_the_paired_t_test():
    learner = of_classes()
    first, second, targets = outputs(learner)
    losses = [nn.functional.cross_entropy(each, targets, reduction="none").double().numpy() for each in (second, first)]
    low, high = stats.ttest_rel(*losses).confidence_interval(0.95)
    interval = found(learner, "loss")
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))
    assert interval.method == "paired t"


def test_a_share_of_samples_has_the_interval_of_newcombe():
    assert found(of_classes(), "accuracy").method == "newcombe"


@pytest.mark.slow
def test_the_interval_of_an_area_under_the_curve_resamples_both_models_together():
    learner = of_classes({"auc": SET_SCORES["auc"]}, count=400)
    first, second, targets = outputs(learner)
    low, high = expected(
        roc_auc_score, *(each.double().softmax(1)[:, 1].numpy() for each in (first, second)), targets.numpy()
    )
    interval = found(learner, "auc")
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))
    assert (interval.method, interval.draws) == ("bootstrap", 1000)


@pytest.mark.nightly  # as that of the area
def test_the_interval_of_f1_resamples_both_models_together():
    learner = of_classes({"f1": SET_SCORES["macro_f1"]}, count=300)
    first, second, targets = outputs(learner)

    def score(true, said):
        return f1_score(true, said, average="macro")

    low, high = expected(score, first.argmax(1).numpy(), second.argmax(1).numpy(), targets.numpy())
    interval = found(learner, "f1")
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.slow
def test_the_interval_of_the_coefficient_of_determination_resamples_both_models_together():
    learner = TorchLearner(nn.Linear(3, 1), {"ada": samples(classes=None)}, seed=1, rate=0.05, device="cpu")
    first, second, targets = outputs(learner)
    low, high = expected(
        r2_score, first[:, 0].double().numpy(), second[:, 0].double().numpy(), targets.double().numpy()
    )
    interval = found(learner, "r2")
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))


def test_models_from_exact_totals_have_intervals_as_well():
    data = gather({"ada": samples()}, seed=0)
    exact = pytest.importorskip("p2pfl.plugins.exact")
    learner = ExactLearner(exact.Boosting(features=3, classes=2, rounds=2), data)
    assert found(learner, "loss").method == "paired t"
    assert found(learner, "accuracy").method == "newcombe"


def test_more_peers_take_fewer_bootstrap_samples():
    learner = of_classes({"auc": SET_SCORES["auc"]})
    count = len(learner.federation.test["ada"])
    assert found(learner, "auc", peers=2000).draws == affordable(count * 2000) == 250


def test_a_score_of_another_model_than_the_recorded_one_has_no_interval():
    learner = of_classes({"auc": SET_SCORES["auc"]})
    assert found(learner, "loss", recorded=0.1) is None
    assert found(learner, "auc", recorded=0.1) is None


def test_few_samples_are_not_resampled():
    learner = of_classes({"auc": SET_SCORES["auc"]}, count=5 * (gain_intervals.MIN_BOOTSTRAP_SAMPLES - 1))
    assert len(learner.federation.test["ada"]) < gain_intervals.MIN_BOOTSTRAP_SAMPLES
    assert found(learner, "auc") is None


def whole(outputs, targets):
    del targets
    return outputs.mean()


whole.whole = True


def test_a_function_of_the_user_for_a_whole_set_has_no_interval():
    assert found(of_classes({"own": whole}), "own") is None


@pytest.mark.slow
@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize(("metric", "method"), [("auc", "bootstrap"), ("macro_f1", "bootstrap")])
def test_the_page_of_a_run_shows_intervals_of_other_scores_and_names_their_method(metric, method):
    changes = [f'learning.metrics={{{metric}="{metric}"}}', "topology.peers=2", "topology.kind=path", "data.test=0.4"]
    run = simulate(read(SMALL, changes=changes))
    text = run_page(run)
    checked(text)
    assert METHOD_TEMPLATES[method].format(1000) in text
    assert MISSING_REASONS not in text
    for each in run.summary["per_peer"].values():
        interval = each["interval"]
        assert interval["low"] < each["together"] - each["alone"] < interval["high"]
        assert f"{interval['low']:+.3f} to {interval['high']:+.3f}" in text


def test_the_page_says_why_gains_have_no_interval():
    run = simulate(read(SMALL, changes=["rounds=1"]))
    per_peer = {name: each | {"interval": None} for name, each in run.summary["per_peer"].items()}
    text = fragment(gains(run.summary | {"per_peer": per_peer}, run.metrics))
    assert MISSING_REASONS.strip() in text
    assert "95 %" not in text


def test_the_page_of_one_peer_shows_an_interval_for_each_score():
    summary = {
        "peer": "ada",
        "scores": {"loss": 0.3, "auc": 0.9},
        "alone": {"loss": 0.5, "auc": 0.8},
        "intervals": {"loss": {"low": -0.25, "high": -0.15, "method": "paired t", "draws": None}},
    }
    text = html.unescape(fragment(gains(summary, [])))
    assert re.search(r"(?s)loss.*-0\.250 to -0\.150.*auc", text)
    assert METHOD_TEMPLATES["paired t"] in text
    assert MISSING_REASONS.strip() in text
