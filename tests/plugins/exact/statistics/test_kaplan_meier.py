"""Survival curves as a model: those of lifelines, with the intervals and the test."""

import json

import numpy as np
import pytest
import tomli_w
from lifelines import KaplanMeierFitter
from lifelines.datasets import load_rossi
from lifelines.statistics import multivariate_logrank_test

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.cli import main
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact.statistics.kaplan_meier import KaplanMeier
from p2pfl.plugins.exact.statistics.private_kaplan_meier import PrivateKaplanMeier
from p2pfl.plugins.exact.statistics.survival_results import survival
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out, trained

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
    for place, group in enumerate(curves["groups"]):
        own = features[:, 1 + place] == 1
        oracle = KaplanMeierFitter().fit(times[own], events[own])
        table = oracle.event_table[oracle.event_table.observed > 0]
        assert group["samples"] == own.sum()
        assert group["times"] == [*table.index]
        assert group["died"] == [*table.observed]
        assert group["at_risk"] == [*table.at_risk]
        assert np.allclose(group["survival"], oracle.survival_function_.loc[table.index, "KM_estimate"], atol=1e-14)
        interval = oracle.confidence_interval_.loc[table.index].to_numpy()
        assert np.allclose(np.column_stack([group["low"], group["high"]]), interval, atol=1e-12)
    test = multivariate_logrank_test(times, features[:, 2], events)
    assert curves["statistic"] == pytest.approx(test.test_statistic, rel=1e-10)
    assert curves["p"] == pytest.approx(test.p_value, rel=1e-9)


def test_one_group_has_no_test_and_a_median_where_half_have_the_event(rossi):
    features, times, events = rossi
    [group] = found(rossi)["groups"]
    assert group["median"] is None
    assert found(rossi)["p"] is None
    everybody = (features, times, np.ones_like(events))
    [group] = found(everybody)["groups"]
    assert group["median"] == KaplanMeierFitter().fit(times, everybody[2]).median_survival_time_


def test_cells_of_single_samples_are_counted(rossi):
    _, times, _ = rossi
    week = np.bincount(times.astype(int), minlength=61)
    assert found(rossi)["sparse"] == ((week[:60] > 0) & (week[:60] < 3)).sum()
    assert found(rossi, width=20.0)["sparse"] == 0


def test_the_union_of_times_makes_the_curves_of_lifelines_for_any_times(rossi):
    features, times, events = rossi
    exact = (times + np.random.default_rng(0).random(len(times))).astype(np.float32).astype(float)
    model = KaplanMeier(features=3, classes=None, times="union", least=1, group="aid", fields=COLUMNS)
    federation = shared_out(features, np.where(events, exact, -exact), classes=None, peers=4)
    tensors = trained(model, federation, rounds=1)[1]
    assert np.array_equal(model.grid(tensors).times, np.unique(exact))
    for place, group in enumerate(survival(tensors, model)["groups"]):
        own = features[:, 1 + place] == 1
        oracle = KaplanMeierFitter().fit(exact[own], events[own])
        table = oracle.event_table[oracle.event_table.observed > 0]
        assert group["times"] == [*table.index]
        assert np.allclose(group["survival"], oracle.survival_function_.loc[table.index, "KM_estimate"], atol=1e-14)
        assert group["median"] == (None if np.isinf(oracle.median_survival_time_) else oracle.median_survival_time_)


def test_the_union_of_times_leaves_out_what_comes_after_the_horizon(rossi):
    _, times, events = rossi
    model = KaplanMeier(features=1, classes=None, times="union", horizon=30.0, least=1)
    federation = shared_out(np.ones((len(times), 1)), np.where(events, times, -times), classes=None, peers=4)
    tensors = trained(model, federation, rounds=1)[1]
    assert model.grid(tensors).times.max() == 30
    assert survival(tensors, model)["groups"][0]["events"] == (events & (times <= 30)).sum()


def test_too_many_times_for_a_union_are_refused():
    times = np.arange(5000.0) + 1
    federation = shared_out(np.ones((5000, 1)), times, classes=None, peers=3)
    with pytest.raises(LearningError, match="more than 4,096 different times, too many for their union; leave out"):
        simulate(
            Exact(),
            ExactLearner(KaplanMeier(features=1, classes=None, times="union", least=1), federation),
            topology.ring(3),
            rounds=1,
            baselines=False,
        )


@pytest.fixture
def trial(tmp_path):
    """Return the file of an experiment of three hospitals with times of their own."""
    for peer in range(3):
        rows = [f"{time}.{peer + 1},{event},50" for time, event in zip(range(1, 21), "yn" * 10, strict=True)]
        (tmp_path / f"peer{peer}.csv").write_text("\n".join(["day,died,age", *rows]))
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "day", "event": "died"}
    options["columns"] = {"day": "number", "died": ["n", "y"], "age": "number"}
    table = {"topology": {"kind": "ring", "peers": 3}, "data": {"name": "table", "options": options}}
    (tmp_path / "trial.toml").write_text(tomli_w.dumps(table))
    return tmp_path / "trial.toml"


def test_the_command_takes_the_union_of_times(trial, tmp_path, capsys):
    page = tmp_path / "trial.html"
    assert main(["survival", str(trial), "--union", "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"][0]["times"][:4] == pytest.approx([1.1, 1.2, 1.3, 3.1], abs=1e-6)
    assert "the time of every sample" in page.read_text()
    assert main(["survival", str(trial)]) == 2
    assert "or --union, with which every peer learns the times of all samples" in capsys.readouterr().err


def test_a_statistic_has_no_scores_and_names_the_command_that_prints_it(trial, tmp_path, capsys):
    folder = tmp_path / "runs"
    change = [
        "--set",
        "model.name=kaplan_meier",
        "--set",
        "model.options={ horizon = 30, least = 1 }",
        "--set",
        "rounds=1",
    ]
    change += ["--set", "privacy.mode=pairwise"]
    assert main(["simulate", str(trial), "--runs", str(folder), *change]) == 0
    [run] = folder.iterdir()
    said = capsys.readouterr().err
    assert f"p2pfl survival {run}/peers/peer0.safetensors prints the result" in " ".join(said.split())
    assert "None" not in said
    assert main(["card", str(run)]) == 0
    card = capsys.readouterr().out
    assert "which describes the data and predicts nothing" in card
    assert "p2pfl predict" not in card
    for command in (["predict"], ["evaluate"]):
        assert main([*command, str(run / "peers" / "peer0.safetensors"), "new.csv"]) == 2
        assert "is a model kaplan_meier, which predicts nothing; p2pfl survival prints it" in capsys.readouterr().err
    assert main(["export", str(run / "peers" / "peer0.safetensors"), "--to", "onnx"]) == 2
    assert "is a model kaplan_meier, which predicts nothing" in capsys.readouterr().err


def test_what_makes_no_curves_is_refused(rossi):
    with pytest.raises(ModelError, match=r"model\.options\.horizon is missing; set it to the end"):
        KaplanMeier(features=3, classes=None)
    with pytest.raises(ModelError, match='width has no effect with times = "union"'):
        KaplanMeier(features=3, classes=None, times="union", width=7.0)
    with pytest.raises(ModelError, match='times is "all"; set it to "grid"'):
        KaplanMeier(features=3, classes=None, times="all")
    with pytest.raises(ModelError, match="times has no effect with private_kaplan_meier"):
        PrivateKaplanMeier(features=3, classes=None, times="union")
    with pytest.raises(ModelError, match='group is "age", which is no column with levels; choose from aid'):
        found(rossi, group="age")
    with pytest.raises(ModelError, match="takes times until an event, not classes"):
        KaplanMeier(features=3, classes=2, horizon=3.0)
    with pytest.raises(DataError, match=r"fewer than model\.options\.least = 500"):
        found(rossi, least=500)
