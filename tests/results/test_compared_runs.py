"""Finished runs side by side in Python and in notebooks."""

import pytest

import p2pfl
from p2pfl.cli import tables, terminal
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.results.comparisons import wording
from p2pfl.results.comparisons.comparison import Comparison
from swarms import SMALL

HOSTILE = "<script>\x1b[31m"


@pytest.fixture(scope="module")
def runs():
    experiments = [
        read(SMALL, changes=[f"learning.rate={rate}", f"seed={seed}", "rounds=1"])
        for rate in (0.01, 0.1)
        for seed in (3, 4)
    ]
    return [p2pfl.simulate(experiment, baselines=False) for experiment in experiments]


def test_the_numbers_are_those_of_the_runs(runs):
    found = p2pfl.compare(runs)
    assert isinstance(found, Comparison)
    assert found.keys == ("learning.rate",)
    assert [each.values for each in found.settings] == [{"learning.rate": "0.01"}, {"learning.rate": "0.1"}]
    assert found.settings[1].by_seed == {run.experiment.seed: run.summary["together"] for run in runs[2:]}
    assert [(each.setting, each.reference) for each in found.differences] == [(1, 0)]


def test_a_metric_can_be_named(runs):
    assert p2pfl.compare(runs, metric="loss").metric == "loss"


def test_its_text_is_what_the_terminal_prints(runs, capsys):
    found = p2pfl.compare(runs)
    tables.comparison(found, console=terminal.console())
    assert str(found).split() == capsys.readouterr().out.split()
    assert repr(found) == str(found)
    first, *_ = str(found).splitlines()
    assert first.split() == ["rate", "seeds", "accuracy", "difference", "p"]


def test_columns_of_its_text_are_aligned(runs):
    head, first, second = str(p2pfl.compare(runs)).splitlines()[:3]
    end = head.index("seeds") + len("seeds")
    assert [line[:end].split()[-1] for line in (first, second)] == ["2", "2"]
    assert [line[: len("rate")].strip() for line in (first, second)] == ["0.01", "0.1"]


def test_a_notebook_shows_the_tables_of_the_report(runs):
    text = p2pfl.compare(runs)._repr_html_()
    assert text.startswith("<div")
    assert "has the best mean" in text
    assert "means over the seeds" in text
    assert wording.number(p2pfl.compare(runs).settings[1].score) in text


def test_hostile_names_are_text(runs):
    found = p2pfl.compare(runs)
    hostile = type(found)(
        metric=HOSTILE, keys=found.keys, settings=found.settings, differences=found.differences, chosen=found.chosen
    )
    assert "<script" not in hostile._repr_html_()
    assert "\x1b" not in str(hostile)


def test_the_same_run_twice_is_refused_by_its_place(runs):
    with pytest.raises(InputError, match=r"^run 1 and run 3 have the same settings"):
        p2pfl.compare([runs[0], runs[1], runs[0]])


def test_nothing_to_compare_is_refused():
    with pytest.raises(InputError, match="no run"):
        p2pfl.compare([])
