"""Survival curves as a model: those of lifelines, with the intervals and the test."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.datasets import load_rossi
from lifelines.statistics import multivariate_logrank_test

from exact.tables import shared_out, trained
from p2pfl.data.description import Field
from p2pfl.errors import DataError, ModelError
from p2pfl.exact.statistics.kaplan_meier import KaplanMeier, survival

pytestmark = pytest.mark.filterwarnings("ignore:Starting with pandas version 4")  # inside lifelines

COLUMNS = (Field("age"), Field("aid", ("no", "yes")))


@pytest.fixture(scope="module")
def rossi():
    table = load_rossi()
    features = np.column_stack([table.age, table.fin == 0, table.fin == 1]).astype(float)
    return features, table.week.to_numpy(float), table.arrest.to_numpy() == 1


def found(rossi, **options):
    features, times, events = rossi
    model = KaplanMeier(features=3, classes=None, horizon=60.0, fields=COLUMNS, **options)
    federation = shared_out(features, np.where(events, times, -times), classes=None, peers=4)
    return survival(trained(model, federation, rounds=1)[1], model)


def test_curves_and_intervals_are_those_of_lifelines(rossi):
    features, times, events = rossi
    curves = found(rossi, group="aid")
    for place, group in enumerate(curves.groups):
        own = features[:, 1 + place] == 1
        oracle = KaplanMeierFitter().fit(times[own], events[own])
        table = oracle.event_table[oracle.event_table.observed > 0]
        assert group.samples == own.sum()
        assert group.times == tuple(table.index)
        assert group.died == tuple(table.observed)
        assert group.at_risk == tuple(table.at_risk)
        assert np.allclose(group.survival, oracle.survival_function_.loc[table.index, "KM_estimate"], atol=1e-14)
        interval = oracle.confidence_interval_.loc[table.index].to_numpy()
        assert np.allclose(np.column_stack([group.low, group.high]), interval, atol=1e-12)
    test = multivariate_logrank_test(times, features[:, 2], events)
    assert curves.statistic == pytest.approx(test.test_statistic, rel=1e-10)
    assert curves.p == pytest.approx(test.p_value, rel=1e-9)


def test_one_group_has_no_test_and_a_median_where_half_have_the_event(rossi):
    features, times, events = rossi
    [group] = found(rossi).groups
    assert group.median is None
    assert found(rossi).p is None
    everybody = (features, times, np.ones_like(events))
    [group] = found(everybody).groups
    assert group.median == KaplanMeierFitter().fit(times, everybody[2]).median_survival_time_


def test_cells_of_single_samples_are_counted(rossi):
    _, times, _ = rossi
    week = np.bincount(times.astype(int), minlength=61)
    assert found(rossi).sparse == ((week[:60] > 0) & (week[:60] < 3)).sum()
    assert found(rossi, width=20.0).sparse == 0


def test_what_makes_no_curves_is_refused(rossi):
    with pytest.raises(ModelError, match='group is "age", which is no column with levels; choose from aid'):
        found(rossi, group="age")
    with pytest.raises(ModelError, match="takes times until an event, not classes"):
        KaplanMeier(features=3, classes=2, horizon=3.0)
    with pytest.raises(DataError, match=r"fewer than model\.options\.least = 500"):
        found(rossi, least=500)
