"""Bins from totals: the same for any split, exact for whole numbers, near the quantiles for others."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import LearningError
from p2pfl.learning.exact_model import Own, Part
from p2pfl.plugins.exact.bins import sketched
from p2pfl.plugins.exact.sketch import number_at, ordered


def part(features):
    features = np.asarray(features, np.float32)
    return Part(features, np.zeros(len(features), np.int64))


def binned(parts, max_bins):
    """Return the bins on which peers with these features agree."""
    owns = {str(number): Own(each, each) for number, each in enumerate(parts)}
    asking = sketched(owns.__getitem__, features=parts[0].features.shape[1], max_bins=max_bins)
    question = next(asking)
    while True:
        total = sum(question.answer(peer) for peer in owns)
        assert total.shape == (question.size,)
        try:
            question = asking.send(total)
        except StopIteration as stop:
            return stop.value


floats = st.floats(width=32, allow_nan=True, allow_infinity=False)


@given(st.lists(floats, min_size=1, max_size=60), st.integers(1, 5), st.integers(2, 12))
def test_bins_do_not_depend_on_who_holds_which_sample(values, peers, max_bins):
    values = np.array(values, np.float32)[:, None]
    whole = binned([part(values)], max_bins)
    spread = binned([part(values[number::peers]) for number in range(peers)], max_bins)
    assert np.array_equal(whole.cuts, spread.cuts)
    assert np.array_equal(whole.counts, spread.counts)
    assert np.array_equal(whole.missing, spread.missing)
    assert (whole.codes(values) < whole.sizes[:, None]).all()
    known = np.sort(whole.cuts[0, : whole.counts[0]])
    assert np.isfinite(known).all()
    assert (np.diff(known) > 0).all()


@given(st.lists(floats.filter(lambda value: not math.isnan(value)), min_size=1, max_size=50))
def test_integers_of_floats_have_their_order(values):
    values = np.array(values, np.float32)
    order = np.argsort(ordered(values), kind="stable")
    assert (np.diff(values[order]) >= 0).all()
    assert np.array_equal(number_at(ordered(values).astype(np.int64)), values)


def test_the_two_zeros_are_one_number():
    assert ordered(np.array([-0.0], np.float32)) == ordered(np.array([0.0], np.float32))


def test_each_whole_number_up_to_256_has_a_bin_of_its_own():
    found = binned([part(np.arange(-100, 101)[:, None])], 255)
    assert np.array_equal(found.codes(np.arange(-100, 101, dtype=np.float32)[:, None])[0], np.arange(201))


def test_a_cut_lies_in_the_middle_of_a_gap():
    found = binned([part([[0.0], [1.0], [1.0]])], 4)
    assert found.cuts[0, : found.counts[0]].tolist() == [pytest.approx(0.5)]


def test_missing_values_have_the_last_bin():
    found = binned([part([[1.0, 0.0], [np.nan, 0.0], [2.0, 0.0]])], 4)
    assert found.missing.tolist() == [True, False]
    assert found.sizes.tolist() == [3, 1]
    assert found.codes(np.array([[np.nan, 5.0]], np.float32)).ravel().tolist() == [2, 0]


def test_bins_are_quantiles_to_within_the_samples_of_a_cell():
    values = np.random.default_rng(3).normal(size=20_000).astype(np.float32)
    found = binned([part(values[:, None])], 16)
    counts = np.bincount(found.codes(values[:, None])[0], minlength=16)
    cells = np.unique(ordered(values) >> 16, return_counts=True)[1]
    assert np.abs(np.cumsum(counts) - len(values) * np.arange(1, 17) / 16).max() <= cells.max()


def test_a_peer_without_samples_adds_nothing():
    values = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    whole, other = binned([part(values)], 8), binned([part(values), part(values[:0])], 8)
    assert np.array_equal(whole.cuts, other.cuts)


@pytest.mark.parametrize("lie", ["hides the exponent of another peer", "adds a negative number"])
@pytest.mark.parametrize("second", [False, True])
def test_totals_that_cannot_be_end_the_run_with_a_sentence(lie, second):
    own = part(np.array([[1.5], [1.5], [-3.0]]))
    asking = sketched({"ada": Own(own, own)}.__getitem__, features=1, max_bins=4)
    question = next(asking)
    if second:
        question = asking.send(question.answer("ada"))
    total = question.answer("ada")
    used = np.flatnonzero(total)
    total[used[-1] if lie.startswith("hides") or second else 0] -= total[used[-1]] + (lie.startswith("adds"))
    if second and lie.startswith("hides"):
        total[used[0]] = -1
    with pytest.raises(LearningError, match="a peer has added what it does not have"):
        asking.send(total).answer("ada")


def test_a_peer_that_uses_every_magnitude_of_every_feature_makes_no_giant_total():
    owns = {"ada": Own(part(np.ones((2, 300))), part(np.ones((2, 300))))}
    asking = sketched(owns.__getitem__, features=300, max_bins=12)
    question = next(asking)
    with pytest.raises(LearningError, match="153600 different magnitudes, but a total counts at most 19200; leave out"):
        asking.send(np.ones(question.size, np.int64))
