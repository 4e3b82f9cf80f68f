"""The test of Hosmer and Lemeshow, slope and intercept of calibration are those of statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from statsmodels.stats.diagnostic_gen import test_chisquare_binning as chisquare_binning

from p2pfl.learning import metrics
from p2pfl.learning.histograms import histograms, score_histograms
from p2pfl.learning.probability_calibration import hosmer_lemeshow, hosmer_lemeshow_ungrouped, intercept, slope

RNG = np.random.default_rng(0)
LEVELS = RNG.permutation(np.linspace(0.0453, 0.8912, 10).repeat(60))  # sixty samples of each probability
TARGETS = (RNG.random(600) < LEVELS**1.3).astype(int)
LOGITS = np.log(LEVELS / (1 - LEVELS))
PROBABILITIES = np.column_stack([1 - LEVELS, LEVELS])


def oracle():
    counts, expected = np.column_stack([1 - TARGETS, TARGETS]), PROBABILITIES
    return chisquare_binning(counts, expected, sort_var=LEVELS, bins=10, df=10)


def test_the_test_of_hosmer_and_lemeshow_is_that_of_statsmodels():
    found = hosmer_lemeshow_ungrouped(LEVELS, TARGETS == 1)
    assert found.groups == 10
    assert found.statistic == pytest.approx(oracle().statistic, rel=1e-10)
    assert found.p == pytest.approx(oracle().pvalue, rel=1e-10)


def test_the_test_from_integer_histograms_of_several_peers_is_that_of_statsmodels():
    logits = torch.from_numpy(np.column_stack([np.zeros(600), LOGITS]))
    total = sum(histograms(logits[part::7], torch.from_numpy(TARGETS[part::7])) for part in range(7))
    found = score_histograms(total.numpy())
    assert found["hosmer_lemeshow"] == pytest.approx(oracle().statistic, rel=1e-7)  # probabilities have 30 bits
    assert found["hosmer_lemeshow_p"] == pytest.approx(oracle().pvalue, rel=1e-7)


def test_samples_of_one_probability_stay_in_one_group():
    samples = np.array([30, 0, 5, 65])
    found = hosmer_lemeshow(samples, np.array([10, 0, 1, 60]), np.array([9.0, 0.0, 2.0, 58.0]))
    assert found.groups == 2  # the third cell ends no tenth, so it joins the fourth
    expected = 1 / 9 + 1 / 21 + 1 / 60 + 1 / 10
    assert found.statistic == pytest.approx(expected, rel=1e-12)


def test_one_probability_for_all_samples_has_no_test():
    assert hosmer_lemeshow_ungrouped(np.full(20, 0.3), np.arange(20) < 7) is None
    assert "hosmer_lemeshow" not in score_histograms(histograms(torch.zeros(20, 2), torch.zeros(20).long()).numpy())


def test_slope_and_intercept_are_those_of_statsmodels():
    design = sm.add_constant(LOGITS, prepend=False)
    wanted = sm.GLM(TARGETS, design, family=sm.families.Binomial()).fit(tol=1e-15)
    assert slope(PROBABILITIES, TARGETS) == pytest.approx(wanted.params[0], rel=1e-10)
    wanted = sm.GLM(TARGETS, np.ones(600), family=sm.families.Binomial(), offset=LOGITS).fit(tol=1e-15)
    assert intercept(PROBABILITIES, TARGETS) == pytest.approx(wanted.params[0], rel=1e-9)


def test_separated_classes_have_no_slope_and_one_class_has_no_intercept():
    apart = np.column_stack([1 - LEVELS, LEVELS])
    assert np.isnan(slope(apart, (LEVELS > 0.5).astype(int)))
    assert np.isnan(intercept(apart, np.zeros(600, int)))
    assert np.isnan(metrics.BINARY_METRICS["calibration_slope"](np.full((4, 2), 0.5), np.array([0, 1, 0, 1])))
