"""Medians, restricted means, numbers at risk and figures of survival curves: those of R on the pooled lung data."""

import csv
import json
import re

import docx
import numpy as np
import pytest
import tomli_w
from lifelines.datasets import load_lung

from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.data.data_description import Field
from p2pfl.plugins.exact.statistics.kaplan_meier import KaplanMeier
from p2pfl.plugins.exact.statistics.survival_results import round_times, survival
from p2pfl.plugins.exact.survival.curves import kaplan_meier, time_of_share
from p2pfl.plugins.exact.survival_page import sentences
from plugins.exact.rscript import computed_by_r
from plugins.exact.tables import shared_out, trained

CLOSE = 1e-12


@pytest.fixture(scope="module")
def lung():
    """Return days, deaths and sex of the 228 patients of the data set lung of R's package survival."""
    table = load_lung()
    return table.time.to_numpy(float), table.status.to_numpy() == 1, table.sex.to_numpy(int)


def results_of(lung, *, group="sex", peers=4, width=1.0, **options):
    days, died, sex = lung
    fields = (Field("sex", ("1", "2")),)
    model = KaplanMeier(features=2, classes=None, horizon=1022.0, width=width, group=group, fields=fields, least=1)
    features = np.column_stack([sex == 1, sex == 2]).astype(float)
    federation = shared_out(features, np.where(died, days, -days), classes=None, peers=peers)
    return survival(trained(model, federation, rounds=1)[1], model, **options)


def medians(results):
    return [[group[key] for key in ("median", "median_low", "median_high")] for group in results["groups"]]


def test_medians_and_their_intervals_are_those_that_r_publishes(lung):
    # print(survfit(Surv(time, status) ~ 1, lung)) and ~ sex of R's package survival 3.5-3
    assert medians(results_of(lung, group=None, interval="log")) == [[310, 285, 363]]
    assert medians(results_of(lung, interval="log")) == [[270, 212, 310], [426, 348, 550]]
    assert medians(results_of(lung, interval="log-log")) == [[270, 210, 306], [426, 345, 524]]
    assert medians(results_of(lung, interval="plain")) == [[270, 212, 306], [426, 345, 524]]


def test_the_restricted_mean_and_its_error_are_those_that_r_publishes(lung):
    one, two = results_of(lung, rmean=365.0)["groups"]
    assert one["mean"] == pytest.approx(241.495085192, rel=1e-11)
    assert two["mean"] == pytest.approx(297.465409532, rel=1e-11)
    assert one["mean_error"] == pytest.approx(10.3582264911, rel=1e-11)
    assert two["mean_error"] == pytest.approx(10.7913239788, rel=1e-11)
    assert results_of(lung)["statistic"] == pytest.approx(10.3267419549, rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("interval", ["log-log", "log", "plain"])
def test_curves_bands_and_means_are_those_of_r(lung, interval, tmp_path, against_r):
    days, died, sex = lung
    found = results_of(lung, interval=interval, rmean=500.0)
    oracle = computed_by_r(
        f"""
        f <- survfit(Surv(time, status) ~ sex, d, conf.type = '{interval}')
        t <- summary(f, rmean = 500)$table
        show(t[, 'rmean']); show(t[, 'se(rmean)']); show(t[, 'median']); show(t[, '0.95LCL']); show(t[, '0.95UCL'])
        for (k in 1:2) {{ s <- summary(f[k]); show(s$surv); show(s$std.err); show(s$lower); show(s$upper) }}
        show(summary(f, times = seq(0, 1000, 200))$n.risk)
        """,
        {"time": days, "status": died.astype(int), "sex": sex},
        tmp_path,
    )
    for row, key in zip(oracle, ("mean", "mean_error", "median", "median_low", "median_high"), strict=False):
        against_r("survfit: medians, restricted means, errors", [group[key] for group in found["groups"]], row)
    for place, group in enumerate(found["groups"]):
        for row, key in zip(oracle[5 + 4 * place :], ("survival", "error", "low", "high"), strict=False):
            known = ~np.isnan(row)
            against_r("survfit: survival, errors, intervals", np.array(group[key])[known], row[known])
            assert known.sum() >= len(row) - 1  # R leaves out the interval of a share of zero
    counts = [group["remaining"] for group in found["groups"]]
    assert oracle[-1].tolist() == [*counts[0], *counts[1][: len(oracle[-1]) - len(counts[0])]]


def test_the_restricted_mean_is_the_integral_of_the_curve(lung):
    days, died, _ = lung
    counts = [np.bincount(each.astype(int), minlength=1023) for each in (days[died], days)]
    curve = kaplan_meier(*counts)
    mean, _ = curve.mean_until(600.0, np.arange(1023.0))
    assert mean == pytest.approx(curve.survival[:600].sum(), rel=CLOSE)  # the curve is constant from day to day


def test_a_curve_that_rests_at_one_half_has_the_middle_as_its_median():
    times = np.array([2.0, 4.0, 8.0])
    assert time_of_share(times, np.array([0.75, 0.5, 0.25]), 0.5, end=9.0) == 6.0
    assert time_of_share(times[:2], np.array([0.75, 0.5]), 0.5, end=9.0) == 6.5  # until the last departure
    assert time_of_share(times, np.array([0.9, 0.8, 0.7]), 0.5, end=9.0) is None


def test_those_at_risk_are_counted_at_round_times_that_begin_cells(lung):
    days, _, sex = lung
    found = results_of(lung)
    assert found["risk_times"] == [0, 200, 400, 600, 800, 1000]
    for place, group in enumerate(found["groups"]):
        own = days[sex == place + 1]
        assert group["remaining"] == [(own >= time).sum() for time in found["risk_times"]]
    assert round_times(0.9) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert all(time % 30 == 0 for time in round_times(1022.0, 30.0))


@pytest.mark.parametrize(("width", "coarse"), [(1.0, False), (30.0, False), (365.0, True)])
def test_wide_cells_are_named_since_medians_are_their_ends(lung, width, coarse):
    found = results_of(lung, width=width) | {"horizon": 1022.0}
    sentence = "an event counts at the last time of its cell, and cells are up to 364 wide"
    assert (sentence in str(sentences(found))) == coarse


def test_a_mean_beyond_the_times_and_unknown_intervals_are_refused(lung):
    with pytest.raises(InputError, match=r"--rmean 2000 is not within the times, which end at 1022; choose"):
        results_of(lung, rmean=2000.0)
    with pytest.raises(InputError, match='--interval is "exact"; choose from log-log, log, plain'):
        results_of(lung, interval="exact")


@pytest.fixture(scope="module")
def trial(lung, tmp_path_factory):
    """Return the file of an experiment of three hospitals that have the lung data."""
    folder = tmp_path_factory.mktemp("lung")
    rows = [[int(day), int(died), sex, 1] for day, died, sex in zip(*lung, strict=True)]
    for peer in range(3):
        with (folder / f"peer{peer}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["time", "status", "sex", "one"], *rows[peer::3]])
    options = {"path": str(folder / "{peer}.csv"), "target": "time", "event": "status"}
    options["columns"] = {"time": "number", "status": [0, 1], "sex": [1, 2], "one": "number"}
    table = {"name": "lung", "topology": {"kind": "ring", "peers": 3}, "data": {"name": "table", "options": options}}
    (folder / "lung.toml").write_text(tomli_w.dumps(table))
    return folder / "lung.toml"


def survive(trial, *more):
    return main(
        [
            "survival",
            str(trial),
            "--horizon",
            "1022",
            "--group",
            "sex",
            "--unit",
            "days",
            "--least",
            "1",
            *map(str, more),
        ]
    )


def test_the_command_prints_the_groups_with_names_units_and_numbers_at_risk(trial, capsys):
    assert survive(trial, "--interval", "log", "--rmean", 365) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "sex = 1 138 112 270 212 to 310 241.5 10.36" in words
    assert "time, days 0 200 400 600 800 1000 sex = 1 138 78 31 13 6 2 sex = 2 90 66 26 11 2 0" in words
    assert "chi2 = 10.327, 1 df, p = 0.0013" in words


@pytest.mark.slow
def test_the_command_writes_figures_for_a_journal_and_tables_for_latex(trial, tmp_path, capsys):
    tex, page, table = (tmp_path / name for name in ("km.tex", "km.html", "km.csv"))
    assert survive(trial, "--plot", tmp_path / "km.svg", "--tex", tex, "--html", page, "--csv", table, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["group"] == "sex"
    drawn = (tmp_path / "km.svg").read_text()
    for text in ("sex = 1", "sex = 2", "number at risk", "time, days", "survival probability", "log-rank p = 0.0013"):
        assert f">{text}</text>" in drawn
        assert text in page.read_text()
    assert len(re.findall(">78</text>", drawn)) == 1
    assert r"sex = 1 & $138$ & $112$ & $270$ & 210 to 306" in tex.read_text()
    assert table.read_text().startswith("group,time,at_risk,events,survival,std_error,low,high\n1,11.0,138,3,")
    assert survive(trial, "--plot", tmp_path / "km.pdf", "--docx", tmp_path / "km.docx") == 0
    document = docx.Document(tmp_path / "km.docx")
    shown = [[[cell.text for cell in row.cells] for row in table.rows] for table in document.tables]
    assert [len(table) for table in shown] == [3, 3, 3]
    assert shown[0][1] == ["sex = 1", "138", "112", "270", "210 to 306"]
    assert any("chi2 = 10.327" in paragraph.text for paragraph in document.paragraphs)
    assert (tmp_path / "km.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "km.pdf").stat().st_mode & 0o777 == 0o600
    assert survive(trial, "--plot", tmp_path / "km.doc") == 2
    assert "does not have the suffix of a picture" in capsys.readouterr().err


@pytest.mark.parametrize("width", [1.0, 30.0])
def test_shares_are_those_of_the_samples_at_the_last_day_of_each_cell(lung, width):
    days, died, sex = lung
    everybody = (days, np.ones_like(died), sex)
    found = results_of(everybody, group=None, width=width)
    [group] = found["groups"]
    assert group["survival"] == pytest.approx([(days > day).mean() for day in group["times"]], rel=CLOSE)
    assert {(day + 1) % width for day in group["times"][:-1]} == {0.0}
    assert group["times"][-1] == 1022
    assert group["remaining"] == [(days >= time).sum() for time in found["risk_times"]]
