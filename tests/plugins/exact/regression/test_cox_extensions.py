"""Strata, start-stop data, baseline hazards, proportional hazards: those of R, and written out in numpy."""

import numpy as np
import pytest
import torch
from lifelines.datasets import load_lung, load_stanford_heart_transplants
from scipy.stats import chi2

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.learning import ExactLearner
from p2pfl.learning.exact_model import Part
from p2pfl.plugins.exact.survival.cox import Cox
from p2pfl.plugins.exact.survival.grid import Grid, UnionGrid
from p2pfl.simulation import simulate
from plugins.exact.tables import masked_as_pooled, shared_out, trained

pytestmark = pytest.mark.filterwarnings("ignore:Starting with pandas version 4")  # inside lifelines

CLOSE = 1e-9


def columns_of(frame, **levels):
    """Return features with one for each level, and their columns."""
    features, fields = [], []
    for name in sorted(frame):
        if name in levels:
            values = tuple(str(level) for level in levels[name])
            features += [frame[name].astype(str).to_numpy() == level for level in values]
            fields.append(Field(name, values))
        else:
            features.append(frame[name].to_numpy(float))
            fields.append(Field(name))
    return np.column_stack(features).astype(float), tuple(fields)


@pytest.fixture(scope="module")
def lung():
    """Return the 227 patients of R's data set lung whose ECOG score is known."""
    table = load_lung().dropna(subset=["ph.ecog"])
    return table.rename(columns={"ph.ecog": "ecog"})[["time", "status", "age", "sex", "ecog"]].astype(int)


@pytest.fixture(scope="module")
def heart():
    """Return R's data set heart: 103 patients in 172 rows, before and after a transplant."""
    table = load_stanford_heart_transplants()
    return table[["start", "stop", "event", "age", "year", "surgery", "transplant"]].astype(float)


def fit(frame, *, time, event, peers=3, masked=False, levels=None, **options):
    """Return the tensors of a model of the columns of a frame that are neither time nor event, and the model."""
    features, fields = columns_of(frame.drop(columns=[time, event]), **(levels or {}))
    times = frame[time].to_numpy(float)
    model = Cox(features=features.shape[1], classes=None, fields=fields, **options).alone
    federation = shared_out(
        features, np.where(frame[event] == 1, times, -times), classes=None, peers=peers, dtype=torch.float64
    )
    if masked:
        return masked_as_pooled(model, federation, topology.ring(peers), rounds=12), model
    return trained(model, federation, rounds=12)[1], model


def explained(tensors, model):
    return model.explained(tensors, fields=model.fields, classes=()).regression


class Oracle:
    """Cox regression of pooled rows, written out: Newton's method on risk sets, Efron's ties."""

    def __init__(self, x, start, stop, event, strata):
        self.x, self.start, self.stop, self.event, self.strata = x - x.mean(0), start, stop, event, strata
        self.beta = np.zeros(x.shape[1])
        for _ in range(20):
            *_, score, information = self.derived(self.beta)
            self.beta = self.beta + np.linalg.solve(information, score)
        self.value, _, self.information = self.derived(self.beta)

    def sets(self, beta):
        for stratum in np.unique(self.strata):
            for time in np.unique(self.stop[self.event & (self.strata == stratum)]):
                there = (self.strata == stratum) & (self.start < time) & (self.stop >= time)
                died = there & self.event & (self.stop == time)
                risk = np.exp(self.x @ beta) * there
                for place in range(died.sum()):
                    weight = risk * (1 - died * place / died.sum())
                    mean = weight @ self.x / weight.sum()
                    spread = (self.x.T * weight) @ self.x / weight.sum() - np.outer(mean, mean)
                    yield stratum, time, weight.sum(), mean, spread

    def derived(self, beta):
        value, score, information = (self.x @ beta)[self.event].sum(), self.x[self.event].sum(0), 0.0
        for _, _, total, mean, spread in self.sets(beta):
            value, score, information = value - np.log(total), score - mean, information + spread
        return value, score, information

    def zph(self, g):
        """Return the statistic of each feature and of all of them."""
        score = np.zeros(len(self.beta))
        plain, once, twice = np.zeros((3, len(score), len(score)))
        for time in np.unique(self.stop[self.event]):
            score = score + g(time) * self.x[self.event & (self.stop == time)].sum(0)
        for _, time, _, mean, spread in self.sets(self.beta):
            score = score - g(time) * mean
            plain, once, twice = plain + spread, once + g(time) * spread, twice + g(time) ** 2 * spread
        variance = twice - once @ np.linalg.solve(plain, once)
        return [*(score**2 / np.diag(variance)), score @ np.linalg.solve(variance, score)]


def km_before(start, stop, event):
    """Return the function of time that R's cox.zph takes by default."""
    times = np.unique(stop[event])
    died = np.array([(event & (stop == time)).sum() for time in times])
    there = np.array([((start < time) & (stop >= time)).sum() for time in times])
    curve = np.cumprod(1 - died / there)
    return lambda time: 1 - np.append(1.0, curve)[np.searchsorted(times, time)]


@pytest.mark.parametrize("transform", ["km", "identity"])
def test_strata_have_hazards_of_their_own(lung, transform):
    frame = lung.assign(status=lung.status)
    tensors, model = fit(
        frame, time="time", event="status", horizon=1022.0, strata="sex", levels={"sex": (1, 2)}, transform=transform
    )
    x, event = frame[["age", "ecog"]].to_numpy(float), frame.status.to_numpy() == 1
    time = frame.time.to_numpy(float)
    oracle = Oracle(x, np.full(len(x), -1.0), time, event, frame.sex.to_numpy())
    assert np.allclose(tensors["weight"][0, :2], oracle.beta, rtol=CLOSE)
    assert np.allclose(tensors["weight"][0, 2:], 0)
    assert np.allclose(tensors["covariance"], np.linalg.inv(oracle.information), rtol=CLOSE)
    assert tensors["likelihood"][0] == pytest.approx(oracle.value, rel=CLOSE)
    g = {"km": km_before(np.full(len(x), -1.0), time, event), "identity": lambda time: time}[transform]
    tests = explained(tensors, model).tests
    assert [test.name for test in tests] == ["age", "ecog", "all columns"]
    assert np.allclose([test.statistic for test in tests], oracle.zph(g), rtol=CLOSE)
    assert [test.freedom for test in tests] == [1, 1, 2]
    assert tests[0].p == pytest.approx(chi2.sf(tests[0].statistic, 1), rel=CLOSE)


def test_rows_that_enter_late_are_at_risk_from_then_on(heart):
    tensors, model = fit(heart, time="stop", event="event", times="union", least=1, entry="start")
    x = heart[["age", "surgery", "transplant", "year"]].to_numpy()
    start, stop, event = heart.start.to_numpy(), heart.stop.to_numpy(), heart.event.to_numpy() == 1
    oracle = Oracle(x, start, stop, event, np.zeros(len(x)))
    own = explained(tensors, model)
    assert np.allclose([each.estimate for each in own.coefficients], oracle.beta, rtol=CLOSE)
    assert np.allclose(
        [each.error**2 for each in own.coefficients], np.diag(np.linalg.inv(oracle.information)), rtol=CLOSE
    )
    assert np.allclose([test.statistic for test in own.tests], oracle.zph(km_before(start, stop, event)), rtol=CLOSE)


def test_cells_from_the_begin_on_have_those_at_risk_who_enter_at_0():
    for grid in (UnionGrid(times=np.array([0.0, 40.0]), horizon=90.0), Grid(width=40.0, horizon=80.0)):
        assert grid.entered(np.array([0.0, 1.0, 39.0, 41.0])).tolist() == [-1, 0, 0, 1]


def test_cells_in_which_all_others_enter_and_leave_compare_nobody(heart):
    late = heart.assign(start=heart.start + 1, stop=heart.stop + 2)
    x = late[["age", "start"]].to_numpy(float)
    fields = (Field("age"), Field("start"))
    model = Cox(features=2, classes=None, fields=fields, entry="start", horizon=1900.0, width=1900.0, least=1)
    learner = ExactLearner(
        model, shared_out(x, late["stop"].to_numpy(float), classes=None, peers=3, dtype=torch.float64)
    )
    with pytest.raises(LearningError, match="nobody is at risk in a cell of time in which others have the event"):
        simulate(Exact(), learner, topology.ring(3), rounds=3, baselines=False)


def test_late_entry_is_that_of_r_on_its_heart_data(heart):
    # coxph(Surv(start, stop, event) ~ age + surgery + transplant + year, heart) and cox.zph, survival 3.5-3
    tensors, model = fit(heart, time="stop", event="event", times="union", least=1, entry="start")
    own = explained(tensors, model)
    errors = [0.0137141152103185, 0.3672259961803245, 0.3137547983374911, 0.0704679795188561]
    estimates = [0.0271666409576767, -0.6372098899669667, -0.0102507724090833, -0.1463463456741958]
    assert [each.name for each in own.coefficients] == ["age", "surgery", "transplant", "year"]
    assert [each.estimate for each in own.coefficients] == pytest.approx(estimates, rel=1e-6)
    assert [each.error for each in own.coefficients] == pytest.approx(errors, rel=1e-7)
    assert own.facts["null_likelihood"] == pytest.approx(-298.121355672984, rel=1e-12)
    assert own.facts["likelihood"] == pytest.approx(-290.565616218490, rel=1e-12)
    # summary(f)$logtest
    ratio = [15.11147890898917, 4, 0.00447550038545844]
    assert [own.facts[key] for key in ("chi2", "chi2_freedom", "chi2_p")] == pytest.approx(ratio, rel=1e-9)
    statistics = [0.8668747109154, 0.0973950591162, 0.2029343881531, 1.7164144292076, 3.4731022988456]
    assert [test.statistic for test in own.tests] == pytest.approx(statistics, rel=1e-6)


def test_strata_are_those_of_r_on_its_lung_data(lung):
    # coxph(Surv(time, status) ~ age + ph.ecog + strata(sex), lung), cox.zph and concordance
    frame, sexes = lung, {"sex": (1, 2)}
    tensors, model = fit(frame, time="time", event="status", horizon=1022.0, strata="sex", levels=sexes)
    own = explained(tensors, model)
    assert [each.estimate for each in own.coefficients] == pytest.approx([0.0105662546009495, 0.4624244343582905])
    assert [each.error for each in own.coefficients] == pytest.approx([0.00924137389309218, 0.11476109785480394])
    assert own.facts["likelihood"] == pytest.approx(-628.770939501205, rel=1e-12)
    statistics = [0.133470723863, 2.182400689480, 2.200478902080]
    assert [test.statistic for test in own.tests] == pytest.approx(statistics, rel=1e-7)
    features, _ = columns_of(frame.drop(columns=["time", "status"]), **sexes)
    part = Part(features, np.where(frame.status == 1, frame.time, -frame.time).astype(float))
    scores = model.tallied(tensors, model.tally(tensors, part))
    assert abs(scores["concordance"] - 0.605849182835) <= scores["concordance_bound"] < 0.03  # 32 bins


def test_entry_limits_the_pairs_that_concordance_compares(heart):
    tensors, model = fit(heart, time="stop", event="event", times="union", least=1, entry="start")
    features, _ = columns_of(heart.drop(columns=["stop", "event"]))
    targets = np.where(heart.event == 1, heart.stop, -heart.stop)
    scores = model.tallied(tensors, model.tally(tensors, Part(features, targets)))
    risks = model.predicted(tensors, Part(features, targets))[:, 0]
    start, stop, event = heart.start.to_numpy(), heart.stop.to_numpy(), heart.event.to_numpy() == 1
    right = pairs = 0.0
    for place in np.flatnonzero(event):
        others = (start < stop[place]) & ((stop > stop[place]) | (stop == stop[place]) & ~event)
        pairs += others.sum()
        right += (risks[others] < risks[place]).sum() + 0.5 * (risks[others] == risks[place]).sum()
    assert abs(scores["concordance"] - right / pairs) <= scores["concordance_bound"] < 0.02
    learner, _ = trained(model, shared_out(features, targets, classes=None, peers=2, dtype=torch.float64), rounds=1)
    row = learner._row(tensors)[None]
    assert float(learner.evaluate(row, peers=["all"])["concordance"][0]) == scores["concordance"]


@pytest.mark.slow
def test_peers_under_masks_end_with_the_model_of_pooled_data(heart):
    frame = heart.assign(surgery=heart.surgery.astype(int))
    options = {"time": "stop", "event": "event", "horizon": 1800.0, "width": 30.0, "entry": "start"}
    fit(frame, strata="surgery", levels={"surgery": (0, 1)}, peers=5, masked=True, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strata": "age"}, 'strata: there is no column with levels "age"; choose from site'),
        ({"entry": "site"}, 'entry: there is no column of numbers "site"; choose from age'),
        ({"transform": "log"}, 'transform is "log"; choose from km, identity, rank'),
    ],
)
def test_what_makes_no_strata_and_no_entry_is_refused(options, message):
    with pytest.raises(ModelError, match=message):
        Cox(features=3, classes=None, horizon=9.0, fields=(Field("age"), Field("site", ("n", "s"))), **options)


def test_rows_that_end_before_they_begin_are_refused(heart):
    with pytest.raises(DataError, match=r"has rows whose time is not after that of model\.options\.entry"):
        fit(heart.assign(start=heart.stop), time="stop", event="event", times="union", least=1, entry="start")


def test_whoever_has_the_event_in_the_cell_of_their_entry_is_at_risk_in_it():
    fields = (Field("age"), Field("from"))
    model = Cox(features=2, classes=None, horizon=50.0, width=10.0, entry="from", fields=fields).alone
    part = Part(np.array([[1.0, 22.0], [2.0, 0.0], [3.0, 12.0], [4.0, 31.0]]), np.array([25.0, 29.0, -15.0, 45.0]))
    cell, event, entered = model._cells(part, model.grid({}))
    assert cell.tolist() == [2, 2, 1, 4]
    assert event.tolist() == [True, True, False, True]
    assert entered.tolist() == [1, -1, 1, 3]
