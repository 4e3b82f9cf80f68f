"""Descriptions from totals are those of pandas and numpy on the pooled data."""

import numpy as np
import pandas as pd
import pytest

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.data.data_description import Description as Meaning
from p2pfl.data.data_description import Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact.sketch import coarse, fine, live, sketches
from p2pfl.plugins.exact.statistics import described as wording
from p2pfl.plugins.exact.statistics.column_statistics import QUANTILES, Description, fraction, suppressed
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out, trained

CELL = 2.0**-7


def table(seed=0, samples=500):
    """Return columns of different kinds: ages, incomes over magnitudes, negative numbers with gaps, levels."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 95, samples)
    income = np.exp(rng.normal(8, 2, samples)) + 30.0 * age
    change = np.where(rng.random(samples) < 0.2, np.nan, rng.normal(-3, 4, samples))
    smokes = rng.integers(0, 2, samples)
    return np.column_stack([age, income, change, smokes]).astype(np.float32), (age + change * 0 > 50).astype(int)


@pytest.fixture(scope="module")
def described():
    """Return what peers under masks find, and the pooled table."""
    features, targets = table()
    graph = topology.ring(6)
    model = Description(features=4, classes=2, bins=12, least=1)
    federation = shared_out(features, targets, classes=2, peers=6, validation=0.2)
    privacy = Pairwise(mask_graph="complete")
    run = simulate(Exact(), ExactLearner(model, federation), graph, rounds=3, privacy=privacy, baselines=False)
    _, pooled = trained(model, federation, rounds=1)
    found = {name: tensor.numpy() for name, tensor in run.models["peer3"].items()}
    by_peer = pooled.pop("distinct")  # peers count within their own values
    assert (found["distinct"] >= by_peer).all()
    assert all(np.array_equal(found[name], value, equal_nan=True) for name, value in pooled.items())
    return found, pd.DataFrame(np.column_stack([features, targets == 0, targets == 1]).astype(np.float64))


def test_counts_means_and_deviations_are_those_of_pandas(described):
    found, frame = described
    oracle = frame.describe()
    assert found["samples"] == len(frame)
    assert found["present"].tolist() == oracle.loc["count"].tolist()
    assert np.allclose(found["mean"], oracle.loc["mean"], rtol=1e-14)
    assert np.allclose(found["deviation"], oracle.loc["std"], rtol=1e-14)
    assert found["whole"].tolist() == [1, 0, 0, 1, 1, 1]


def test_quantiles_are_those_of_pandas_to_the_width_of_a_cell(described):
    found, frame = described
    oracle = frame.quantile(QUANTILES).to_numpy().T
    width = np.abs(oracle) * CELL
    assert (np.abs(found["quantiles"] - oracle) <= width).all()
    assert found["quantiles"][0].tolist() == oracle[0].tolist()  # whole numbers up to 256 have cells of their own
    assert found["low"][0] == frame[0].min()
    assert found["high"][0] == frame[0].max()


def test_different_values_are_counted_at_each_peer():
    features, targets = table()
    model = Description(features=4, classes=2, least=1)
    federation = shared_out(features, targets, classes=2, peers=6)
    learner = ExactLearner(model, federation)
    run = simulate(Exact(), learner, topology.ring(6), rounds=1, baselines=False)
    found = run.models["peer0"]["distinct"]
    owned = [pd.DataFrame(features[federation.train[peer]]) for peer in federation.peers]
    assert found[:4].tolist() == sum(frame.nunique() for frame in owned).tolist()


def test_histograms_are_those_of_numpy(described):
    found, frame = described
    for column in frame:
        values, edges = frame[column].dropna(), found["edges"][column].copy()
        edges[[0, -1]] = -np.inf, np.inf
        assert np.array_equal(found["counts"][column], np.histogram(values, edges)[0])
        assert found["counts"][column].sum() == len(values)


def test_correlations_are_those_of_pandas_with_missing_values(described):
    found, frame = described
    assert np.allclose(found["correlation"], frame.corr(), atol=1e-7)
    there = frame.notna().to_numpy(int)
    assert np.array_equal(found["pairs"], there.T @ there)


def test_nothing_is_stated_of_fewer_samples_than_least():
    features = np.concatenate([np.zeros(90), np.full(6, 5.0), [7, 7, 9, 1000]])[:, None]
    rare = np.where(np.arange(100) < 97, np.nan, 1.0)[:, None]
    model = Description(features=2, classes=None, least=6, bins=5)
    _, found = trained(model, shared_out(np.hstack([features, rare]), features[:, 0], classes=None, peers=3), rounds=1)
    assert found["high"][0] == 5  # no six samples lie beyond
    assert np.isnan(found["mean"][1])
    assert np.isnan(found["quantiles"][1]).all()
    assert np.isnan(found["correlation"][0, 1])
    counts = found["counts"]
    assert np.nanmin(np.where(counts == 0, np.nan, counts)) >= 6


def test_a_level_of_few_samples_is_not_stated():
    target = (np.arange(80) < 3).astype(int)
    model = Description(features=1, classes=2)
    _, found = trained(model, shared_out(np.ones((80, 1)), target, classes=2, peers=2), rounds=1)
    assert np.isnan(found["mean"][1:]).all()
    assert np.isnan(found["counts"][1:]).all()
    assert np.isnan(found["correlation"][1, 2])


def test_the_sum_of_a_histogram_does_not_show_a_count_that_is_left_out():
    found = suppressed(np.array([0.0, 3, 40, 9, 60]), least=5, total=112)
    assert np.array_equal(found, [0, np.nan, 40, np.nan, 60], equal_nan=True)


def test_a_peer_with_few_samples_takes_no_part():
    features = np.arange(40.0)[:, None]
    federation = shared_out(features, features[:, 0], classes=None, peers=3)
    federation.train["peer1"] = federation.train["peer1"][:4]
    with pytest.raises(DataError, match=r"peer1 has 4 samples, fewer than model\.options\.least = 5"):
        simulate(
            Exact(),
            ExactLearner(Description(features=1, classes=None), federation),
            topology.ring(3),
            rounds=1,
            baselines=False,
        )


def test_values_of_all_magnitudes_are_refused_before_they_fill_messages():
    columns = [np.ldexp(np.float32(1), np.arange(-100, 100)).astype(np.float32)] * 50
    with pytest.raises(LearningError, match="10000 different magnitudes, but a total counts at most 8192; leave out"):
        live(coarse(columns))


def test_counts_that_cannot_be_are_refused():
    first = coarse([np.array([1, 2, 3], np.float32)])
    with pytest.raises(LearningError, match="a peer has added what it does not have"):
        live(first - 4)
    used = live(first)
    with pytest.raises(LearningError, match="a peer has added what it does not have"):
        fine([np.array([1, 2, 3, 100], np.float32)], used)


def test_a_sketch_has_the_ends_of_negative_numbers():
    column = np.array([-3, -3, -0.0, 0, 0.5, 256], np.float32)
    used = live(coarse([column]))
    [found] = sketches(used, fine([column], used), columns=1)
    assert found.counts.tolist() == [2, 2, 1, 1]
    assert ((found.low <= [-3, 0, 0.5, 256]) & (found.high > [-3, 0, 0.5, 256])).all()
    assert [found.value(rank, whole=True) for rank in (1, 3, 6)] == [-3, 0, 256]


def test_sums_of_products_fit_into_an_integer():
    for samples in (1, 1000, 2**20, 2**40):
        assert samples * 2 ** (2 * fraction(samples)) <= 2**62


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bins": 0}, "bins = 0 and least = 5 describe nothing"),
        ({"least": 0}, "least = 0 describe nothing"),
        ({"features": 200}, "takes at most 128 columns, not 202"),
        ({"event": True}, "needs a target that is a time"),
    ],
)
def test_options_that_describe_nothing_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        Description(**{"features": 3, "classes": 2} | options)


def test_mean_and_deviation_do_not_solve_for_the_cells_that_are_hidden():
    visits = np.repeat([0.0, 1, 2, 3], [24, 31, 3, 2])[:, None]  # one bin for each number
    model = Description(features=1, classes=None)
    _, found = trained(model, shared_out(visits, visits[:, 0], classes=None, peers=3), rounds=1)
    assert found["counts"][0, :2].tolist() == [24, 31]
    assert np.isnan(found["counts"][0, 2:4]).all()
    assert np.isnan(found["mean"][0])
    assert np.isnan(found["deviation"][0])


def test_a_quantile_has_enough_samples_at_and_beyond_it():
    for count in (20, 60, 81, 200):
        values = np.random.default_rng(count).normal(size=count)
        model = Description(features=1, classes=None, least=5)
        data = shared_out(values[:, None], values, classes=None, peers=3)
        _, found = trained(model, data, rounds=1)
        ranked = np.sort(values)
        for share, given in zip(QUANTILES, found["quantiles"][0], strict=True):
            place = share * (count - 1)
            enough = np.floor(place) + 1 >= 5 and count - np.ceil(place) >= 5
            assert np.isnan(given) != enough
            if enough:
                assert given == pytest.approx(np.quantile(ranked, share), abs=0.05)


def test_a_rare_level_does_not_follow_from_the_other_levels_or_from_their_correlations():
    blood = np.repeat([0, 1, 2], [30, 27, 3])
    features = np.column_stack([np.eye(3)[blood], np.arange(60.0)])
    meaning = Meaning(columns=(Field("blood", ("A", "0", "AB")), Field("age")), target="visits")
    model = Description(features=4, classes=None)
    _, found = trained(model, shared_out(features, np.arange(60.0), classes=None, peers=3), rounds=1)
    made = wording.described(found, model, meaning)
    assert made["columns"][0]["levels"] == {"A": 30, "0": None, "AB": None}
    known = {(a, b) for a in range(5) for b in range(5) if made["correlations"][a][b] is not None}
    assert known == {(a, b) for a in (0, 3, 4) for b in (0, 3, 4)}  # A, age and the target
