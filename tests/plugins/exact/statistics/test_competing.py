"""Competing risks: cumulative incidences are those of R's survfit, Gray's test is that of R's cmprsk."""

import csv

import numpy as np
import pytest
import tomli_w

from p2pfl.cli import main
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.plugins.exact.statistics.kaplan_meier import KaplanMeier
from p2pfl.plugins.exact.statistics.private_kaplan_meier import PrivateKaplanMeier
from p2pfl.plugins.exact.statistics.survival_results import survival
from p2pfl.plugins.exact.survival.competing import cumulative_incidence, gray_test
from plugins.exact.rscript import computed_by_r
from plugins.exact.tables import shared_out, trained

CLOSE = 1e-9
RELAPSE, DEATH = (0.172280125045940, 0.917465719657101), (0.384168215327772, 0.825237456778054)
"""Statistics and p-values of cuminc(time, kind, group)$Tests of R's package cmprsk 2.2-11."""

KINDS, GROUPS = ("none", "relapse", "death"), ("a", "b", "c")


@pytest.fixture(scope="module")
def trial():
    """Return times, kinds of events and groups of 120 samples, with many ties."""
    number = np.arange(120)
    times = number * 37 % 23 + 1 + (number % 3 == 2) * (number % 4)
    return times, number * 7 % 5 % 3, number % 3


def counted(trial):
    """Return events ``[K, G, C]`` and departures ``[G, C]`` by day."""
    times, kind, group = trial
    leaving = np.array([np.bincount(times[group == each], minlength=30) for each in range(3)])
    own = [
        [np.bincount(times[(group == each) & (kind == which)], minlength=30) for each in range(3)] for which in (1, 2)
    ]
    return np.array(own), leaving


def weighted_incidence(times, kind, weights, cause, days):
    """Return the cumulative incidence of weighted samples after each day."""
    alive, share, found = 1.0, 0.0, []
    for day in days:
        there = weights[times >= day].sum()
        share += alive * weights[(times == day) & (kind == cause)].sum() / there
        alive *= 1 - weights[(times == day) & (kind > 0)].sum() / there
        found.append(share)
    return np.array(found)


@pytest.mark.parametrize("cause", [1, 2])
def test_the_error_is_that_of_the_infinitesimal_jackknife(trial, cause):
    times, kind, _ = trial
    events, leaving = counted(trial)
    found = cumulative_incidence(events.sum(axis=1), leaving.sum(axis=0), cause - 1)
    days = np.unique(times)
    plain = weighted_incidence(times, kind, np.ones(120), cause, days)
    assert np.allclose(found.share[days], plain, rtol=CLOSE)
    influences = []
    for person in range(120):
        weights = np.ones(120)
        weights[person] += 1e-6
        more = weighted_incidence(times, kind, weights, cause, days)
        weights[person] -= 2e-6
        influences.append((more - weighted_incidence(times, kind, weights, cause, days)) / 2e-6)
    assert np.allclose(found.error[days], np.sqrt((np.array(influences) ** 2).sum(axis=0)), rtol=1e-7)


def test_grays_test_is_that_of_cmprsk(trial):
    events, leaving = counted(trial)
    assert gray_test(events, leaving, 0) == pytest.approx(RELAPSE, rel=1e-10)
    assert gray_test(events, leaving, 1) == pytest.approx(DEATH, rel=1e-10)


def model_of(trial, *, peers=3, **options):
    times, kind, group = trial
    fields = (Field("arm", GROUPS), Field("kind", KINDS))
    features = np.concatenate([np.eye(3)[group], np.eye(3)[kind]], axis=1)
    model = KaplanMeier(features=6, classes=None, horizon=30.0, fields=fields, cause="kind", **options)
    targets = np.where(kind > 0, times, -times).astype(float)
    return model, shared_out(features, targets, classes=None, peers=peers)


def results_of(trial, *, interval="log", **options):
    model, federation = model_of(trial, least=1, **options)
    return survival(trained(model, federation, rounds=1)[1], model, interval=interval)


@pytest.mark.slow
def test_incidences_bands_and_tests_are_those_of_r(trial, tmp_path, against_r):
    times, kind, group = trial
    oracle = computed_by_r(
        """
        for (g in 0:2) {
            s <- survfit(Surv(time, factor(kind, 0:2)) ~ 1, d[d$group == g, ], conf.type = 'log')
            for (k in 2:3) { e <- s$n.event[, k] > 0
                show(s$time[e]); show(s$pstate[e, k]); show(s$std.err[e, k]); show(s$lower[e, k]); show(s$upper[e, k]) }
        }
        show(t(cuminc(d$time, d$kind, d$group)$Tests[, 1:2]))
        """,
        {"time": times, "kind": kind, "group": group},
        tmp_path,
        packages=("survival", "cmprsk"),
    )
    causes = results_of(trial, group="arm")["causes"]
    assert [cause["name"] for cause in causes] == ["relapse", "death"]
    rows = iter(oracle)
    for place in range(3):
        for cause in causes:
            curve = cause["groups"][place]
            assert curve["times"] == next(rows).tolist()
            for key in ("incidence", "error", "low", "high"):
                against_r("survfit of competing events: incidences, errors, intervals", curve[key], next(rows))
    tests = [value for cause in causes for value in (cause["statistic"], cause["p"])]
    against_r("cuminc: Gray's test, p", tests, next(rows))


def test_incidences_and_the_share_without_any_event_add_up(trial):
    found = results_of(trial)
    [curve] = found["groups"]
    whole = sum(cause["groups"][0]["incidence"][-1] for cause in found["causes"]) + curve["survival"][-1]
    assert whole == pytest.approx(1.0, rel=1e-12)
    assert [sum(cause["groups"][0]["died"]) for cause in found["causes"]] == [
        (trial[1] == 1).sum(),
        (trial[1] == 2).sum(),
    ]


def test_what_has_no_kinds_of_events_is_refused(trial):
    with pytest.raises(ModelError, match='cause is "age", which is no column with levels; choose from kind'):
        KaplanMeier(features=4, classes=None, horizon=9.0, cause="age", fields=(Field("age"), Field("kind", KINDS)))
    with pytest.raises(ModelError, match=r"model\.options\.cause belongs to kaplan_meier"):
        PrivateKaplanMeier(features=3, classes=None, horizon=9.0, cause="kind", fields=(Field("kind", KINDS),))
    times, kind, group = trial
    model, federation = model_of((times, kind, group), least=1)
    federation.dataset.targets[:] = federation.dataset.targets.abs()
    with pytest.raises(DataError, match=r'has events whose kind in "kind" is its first level, which is none; correct'):
        trained(model, federation, rounds=1)


@pytest.fixture(scope="module")
def experiment(trial, tmp_path_factory):
    """Return the file of an experiment whose event has two kinds."""
    folder = tmp_path_factory.mktemp("trial")
    rows = [[time, KINDS[kind], GROUPS[group], time % 7] for time, kind, group in zip(*trial, strict=True)]
    for peer in range(3):
        with (folder / f"peer{peer}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["day", "kind", "arm", "age"], *rows[peer::3]])
    columns = {"day": "number", "kind": [*KINDS], "arm": [*GROUPS], "age": "number"}
    options = {"path": str(folder / "{peer}.csv"), "target": "day", "event": "kind", "columns": columns}
    table = {"name": "trial", "topology": {"kind": "ring", "peers": 3}, "data": {"name": "table", "options": options}}
    (folder / "trial.toml").write_text(tomli_w.dumps(table))
    return folder / "trial.toml"


@pytest.mark.slow
def test_the_command_prints_and_draws_cumulative_incidences(experiment, tmp_path, capsys):
    files = [part for name in ("tex", "html", "csv") for part in (f"--{name}", str(tmp_path / f"t.{name}"))]
    command = ["survival", str(experiment), "--horizon", "30", "--least", "1", "--group", "arm", "--cause", "kind"]
    assert main([*command, *files, "--plot", str(tmp_path / "t.svg")]) == 0
    printed = capsys.readouterr().out
    assert "Cumulative incidence" in printed
    assert f"one cumulative incidence of relapse: chi2 = {RELAPSE[0]:.3f}, 2 df, p = {RELAPSE[1]:.4f}" in printed
    drawn = (tmp_path / "t.svg").read_text()
    assert all(f">{text}</text>" in drawn for text in ("relapse, arm = a", "death, arm = c", "cumulative incidence"))
    assert "relapse, arm = b &" in (tmp_path / "t.tex").read_text()
    assert (
        (tmp_path / "t.csv").read_text().startswith("group,cause,time,events,incidence,std_error,low,high\na,relapse,")
    )
    assert "with each kind of event" in (tmp_path / "t.html").read_text()


def test_a_model_does_not_take_kinds_of_events_for_features(experiment, capsys):
    change = ["--set", "model.name=cox", "--set", "model.options={ horizon = 30 }", "--set", "privacy.mode=pairwise"]
    assert main(["explain", str(experiment), *change, "--set", "rounds=9", "--json"]) == 2
    assert 'event = "kind" has several kinds of events, which cox would take for features' in capsys.readouterr().err
