import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.draws import draw
from p2pfl.plugins.audit.statistical_tests import auc, auc_error, separation, tpr

SCORES = st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=40).filter(
    lambda pairs: 0 < sum(truth for _, truth in pairs) < len(pairs)
)


def arrays(pairs):
    return np.array([float(score) for score, _ in pairs]), np.array([truth for _, truth in pairs])


@given(SCORES)
def test_the_area_is_the_share_of_pairs_in_order(pairs):
    scores, truth = arrays(pairs)
    order = np.sign(scores[truth][:, None] - scores[~truth][None])
    assert auc(scores, truth) == pytest.approx((order.mean() + 1) / 2)
    assert auc(-scores, truth) == pytest.approx(1 - auc(scores, truth))
    assert auc(np.exp(scores), truth) == auc(scores, truth)


@given(SCORES, st.sampled_from([0.0, 0.01, 0.3, 0.7]))
def test_no_more_false_ones_than_allowed_are_above_the_threshold(pairs, fpr):
    scores, truth = arrays(pairs)
    found = tpr(scores, truth, fpr=fpr)
    best = max(
        (scores[truth] > threshold).mean()
        for threshold in [*scores, -math.inf]
        if (scores[~truth] > threshold).mean() <= fpr
    )
    assert found == pytest.approx(best)


@pytest.mark.parametrize("mu", [0.0, 0.3, 2.0])
def test_the_measured_mu_and_its_error_are_those_of_many_repetitions(mu):
    found = []
    for round in range(200):
        rng = draw(1, "scores", round=round)
        truth = rng.random(400) < 0.5
        found.append(separation(3.0 * (rng.standard_normal(400) + mu * truth) - 7.0, truth))
    mus = [each.mu for each in found]
    assert np.mean(mus) == pytest.approx(mu, abs=0.03)
    assert np.std(mus) == pytest.approx(found[0].error, rel=0.15)
    assert sum(each.lower(tests=1) > mu for each in found) <= 2


def test_scores_without_any_spread_separate_infinitely_or_not_at_all():
    truth = np.array([True, False, True, False])
    assert separation(truth.astype(float), truth).lower(tests=8) == math.inf
    assert separation(np.zeros(4), truth).mu == 0.0


def test_the_error_of_an_area_is_that_of_many_repetitions():
    truth = np.arange(300) < 100
    scores = draw(1, "areas").standard_normal((400, 300)) + truth
    areas = [auc(row, truth) for row in scores]
    assert auc_error(float(np.mean(areas)), positive=100, negative=200) == pytest.approx(np.std(areas), rel=0.15)
