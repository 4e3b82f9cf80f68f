"""Survival analysis from totals: Cox regression of statsmodels, Kaplan-Meier and log-rank test of lifelines."""

import csv

import numpy as np
import pytest
import statsmodels.api as sm
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.datasets import load_rossi
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import concordance_index

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.experiment import plan, read
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.learning.metrics import concordance
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact.regression.fits import coefficients
from p2pfl.plugins.exact.survival.concordance import risk_bins
from p2pfl.plugins.exact.survival.cox import Cox
from p2pfl.plugins.exact.survival.curves import kaplan_meier, log_rank
from p2pfl.plugins.exact.survival.grid import Grid
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out, trained
from swarms import live

pytestmark = pytest.mark.filterwarnings("ignore:Starting with pandas version 4")  # inside lifelines

CLOSE = 1e-10


@pytest.fixture(scope="module")
def rossi():
    """Return features, times, and whether each released prisoner was arrested within 52 weeks."""
    table = load_rossi()
    names = ["fin", "age", "race", "wexp", "mar", "paro", "prio"]
    return table[names].to_numpy(np.float64), table["week"].to_numpy(float), table["arrest"].to_numpy() == 1


def fitted(features, times, events, *, graph=None, **options):
    graph = graph or topology.ring(6)
    model = Cox(features=features.shape[1], classes=None, horizon=60.0, **options).alone
    federation = shared_out(features, np.where(events, times, -times), classes=None, peers=len(graph.peers))
    run = simulate(
        Exact(),
        ExactLearner(model, federation),
        graph,
        rounds=30,
        privacy=Pairwise(mask_graph="complete"),
        baselines=False,
    )
    _, pooled = trained(model, federation, rounds=30)
    found = {name: tensor.numpy() for name, tensor in next(iter(run.models.values())).items()}
    assert all(np.array_equal(found[name], value) for name, value in pooled.items())
    return found, run


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_cox_regression_is_that_of_statsmodels(rossi, ties):
    features, times, events = rossi
    found, _ = fitted(features, times, events, ties=ties)
    oracle = sm.PHReg(times, features, status=events.astype(int), ties=ties).fit(disp=0, tol=1e-14)
    own = coefficients(found["weight"][0], found["covariance"], [str(number) for number in range(7)])
    assert np.abs(found["weight"][0] - oracle.params).max() < CLOSE
    assert np.abs(np.array([each.error for each in own]) - oracle.bse).max() < CLOSE
    assert np.allclose([each.p for each in own], oracle.pvalues, rtol=1e-8)
    assert np.allclose([[each.low, each.high] for each in own], oracle.conf_int(), rtol=1e-8)
    assert found["likelihood"] == pytest.approx(oracle.llf, rel=CLOSE)


@pytest.mark.slow
def test_cox_regression_is_that_of_lifelines_as_far_as_it_goes(rossi):
    features, times, events = rossi
    found, run = fitted(features, times, events, graph=topology.path(5))
    oracle = CoxPHFitter().fit(load_rossi(), "week", "arrest")
    assert np.abs(found["weight"][0] - oracle.params_.to_numpy()).max() < 1e-7
    expected = concordance_index(times, -features @ found["weight"][0], events)
    assert run.metrics[-1].scores["concordance"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_the_union_of_times_takes_times_as_they_are(rossi):
    features, times, events = rossi
    exact = (times + np.random.default_rng(0).random(len(times))).astype(np.float32).astype(float)
    model = Cox(features=7, classes=None, times="union", least=1).alone
    federation = shared_out(features, np.where(events, exact, -exact), classes=None, peers=6)
    learner = ExactLearner(model, federation)
    privacy = Pairwise(mask_graph="complete")
    run = simulate(Exact(), learner, topology.ring(6), rounds=30, privacy=privacy, baselines=False)
    found = {name: tensor.numpy() for name, tensor in run.models["peer0"].items()}
    oracle = sm.PHReg(exact, features, status=events.astype(int), ties="efron").fit(disp=0, tol=1e-14)
    assert np.abs(found["weight"][0] - oracle.params).max() < CLOSE
    _, pooled = trained(model, federation, rounds=30)
    assert all(np.array_equal(found[name], value) for name, value in pooled.items())
    assert learner.tallies(learner._row(found)[None], peers=["peer0"]).shape == (1, 2 * risk_bins(433) * 433)


def test_with_a_ridge_the_score_of_statsmodels_is_the_penalty(rossi):
    features, times, events = rossi
    found, _ = fitted(features, times, events, ridge=3.0)
    oracle = sm.PHReg(times, features, status=events.astype(int), ties="efron")
    beta = found["weight"][0]
    assert np.abs(oracle.score(beta) - 3.0 * beta).max() < 1e-8


@pytest.mark.parametrize("peers", [1, 6])
def test_kaplan_meier_and_the_log_rank_test_are_those_of_lifelines(rossi, peers):
    features, times, events = rossi
    targets = np.where(events, times, -times)
    grid = Grid(width=1.0, horizon=60.0)
    died, left = np.zeros((2, 2, grid.cells), np.int64)
    for number in range(peers):
        cell, event = grid.placed(targets[number::peers])
        group = features[number::peers, 0].astype(np.int64)
        np.add.at(left, (group, cell), 1)
        np.add.at(died, (group[event], cell[event]), 1)
    curve = kaplan_meier(died.sum(0), left.sum(0))
    oracle = KaplanMeierFitter().fit(times, events)
    weeks = np.unique(times).astype(int)
    assert np.abs(curve.survival[weeks] - oracle.survival_function_.loc[weeks, "KM_estimate"].to_numpy()).max() < 1e-14
    spread = (curve.error[weeks] / curve.survival[weeks]) ** 2
    assert np.allclose(spread, oracle._cumulative_sq_.loc[weeks].to_numpy().ravel(), rtol=1e-10)
    test = multivariate_logrank_test(times, features[:, 0], events)
    statistic, p = log_rank(died, left)
    assert statistic == pytest.approx(test.test_statistic, rel=CLOSE)
    assert p == pytest.approx(test.p_value, rel=CLOSE)


def test_whoever_stays_beyond_the_horizon_is_censored_there():
    cell, event = Grid(width=2.0, horizon=4.0).placed(np.array([1.0, -3.0, 4.0, 5.0, -0.0]))
    assert cell.tolist() == [0, 1, 1, 2, 0]
    assert event.tolist() == [True, False, True, False, False]


@pytest.mark.slow
async def test_the_concordance_of_all_test_data_is_that_of_lifelines_within_the_stated_bound(rossi, tmp_path):
    features, times, events = rossi
    rows = np.column_stack([features, times, events]).tolist()
    names = ["fin", "age", "race", "wexp", "mar", "paro", "prio", "week", "arrest"]
    for peer in range(4):
        with (tmp_path / f"peer{peer}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([names, *([int(cell) for cell in row] for row in rows[peer::4])])
    columns = dict.fromkeys(names, "number")
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "week", "event": "arrest", "columns": columns}
    experiment = {
        "rounds": 30,
        "topology": {"kind": "ring", "peers": 4},
        "data": {"name": "table", "test": 0.2, "options": options},
        "model": {"name": "cox", "options": {"horizon": 52, "least": 1}},
        "learning": {"consensus": True},
        "privacy": {"mode": "pairwise", "mask_graph": "complete"},
    }
    run = simulate(read(experiment), baselines=False)
    found = run.summary["common"]
    resolved = plan(read(experiment))
    data, held = resolved.federation, np.concatenate([*resolved.federation.test.values()])
    targets = data.dataset.targets.numpy()[held]
    risks = data.dataset.features.double().numpy()[held] @ run.models["peer0"]["weight"][0].numpy()
    oracle = concordance_index(np.minimum(np.abs(targets), 52), -risks, ~np.signbit(targets))
    assert abs(found["concordance"] - oracle) <= found["concordance_bound"] < 0.01
    assert found["loss"] == 1 - found["concordance"]
    for end in (await live(read(experiment), MemoryTransport(), source=SeededSource(3))).values():
        assert end.peer.ended.common == found


def test_concordance_counts_ties_half():
    assert concordance(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == 0.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": 2}, "takes times until an event, not classes"),
        ({"classes": None, "ties": "exact"}, 'ties is "exact"; set it to "efron" or "breslow"'),
        ({"classes": None, "width": 0.0}, "make no grid of times"),
    ],
)
def test_invalid_options_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        Cox(**({"features": 2, "horizon": 9.0} | options))


@pytest.mark.parametrize("order", [lambda times: -times, lambda times: times < 15], ids=["by time", "two groups"])
def test_a_feature_that_orders_all_events_is_refused(order):
    times = np.arange(1.0, 31)
    said = r"extreme in .x1. among those at risk, .* set model\.options\.ridge"
    with pytest.raises(LearningError, match=said):
        fitted(np.column_stack([times % 3, order(times)]), times, times < 15, graph=topology.ring(3))


def test_the_likelihood_of_a_penalised_fit_is_not_that_of_the_penalty(rossi):
    features, times, events = rossi
    found, _ = fitted(features, times, events, ridge=50.0, graph=topology.ring(3))
    model = sm.PHReg(times, features, status=events.astype(int), ties="efron")
    assert found["likelihood"][0] == pytest.approx(model.loglike(found["weight"][0]), rel=1e-12)
    assert found["objective"][0] == pytest.approx(
        found["likelihood"][0] - 25 * (found["weight"][0] ** 2).sum(), rel=1e-12
    )


@pytest.mark.parametrize("ridge", [-1.0, float("nan"), float("inf")])
def test_a_penalty_that_is_no_number_is_refused(ridge):
    with pytest.raises(ModelError, match="set it to a finite value of at least 0"):
        Cox(features=1, classes=None, horizon=3.0, ridge=ridge)
