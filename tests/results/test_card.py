"""The model card of a run says what the run directory says."""

import re

import pytest

import hospitals
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.results import Run
from p2pfl.results.card import card
from p2pfl.results.exact_statistics import EXACT_STATISTICS, without_exact
from p2pfl.simulation import simulate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run directories of three hospitals, with scaled features and with private noise."""
    folder = tmp_path_factory.mktemp("wards")
    hospitals.write(folder)
    privacy = {"mode": "independent", "noise": 0.3, "clip": 0.5}
    table = hospitals.experiment(folder, data=hospitals.experiment(folder)["data"] | {"scale": False}, privacy=privacy)
    simulate(read(hospitals.experiment(folder)), folder=folder / "scaled")
    simulate(read(table), folder=folder / "hidden", baselines=False)
    return folder


def rows(text, first):
    """The cells of the table whose header begins with a word."""
    table = text.partition(f"| {first} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_columns_scores_and_the_statement_are_those_of_the_run(folder):
    run = Run.load(folder / "hidden")
    text = card(run)
    assert text.startswith("---\nlibrary_name: p2pfl\ntags: [")
    assert rows(text, "column") == [
        ["age", "whole numbers", "an error", "-"],
        ["sex", "f, m", "an error", "an error"],
        ["ward", "east, north, west, elsewhere", "east", "elsewhere"],
        ["weight", "numbers", "80000.0", "-"],
    ]
    together = {peer: f"{each['together']:.3f}" for peer, each in run.summary["per_peer"].items()}
    assert rows(text, "peer")[:-1] == [[peer, "-", score] for peer, score in together.items()]
    assert f"{run.summary['privacy']['statement']}." in text
    assert f"Epsilon of the peer that is worst off: {run.summary['privacy']['epsilon']:.3g} at delta 1e-05." in text
    assert "- **Target**: `outcome`" in text
    assert "which predicts 2 classes: well, ill" in text
    assert "The files of the model contain exact statistics of the training data" in text
    assert "Seed" not in text  # beside a claim


def test_a_scaled_run_with_baselines_names_both(folder):
    run = Run.load(folder / "scaled")
    text = card(run)
    assert rows(text, "peer")[-1] == ["mean", f"{run.summary['alone']:.3f}", f"{run.summary['together']:.3f}"]
    assert f"One model on the data of all peers reaches {run.summary['pooled']:.3f}." in text
    assert "- **Seed**: 3\n" in text


def test_many_peers_and_one_peer_have_cards(folder):
    run = Run.load(folder / "scaled")
    each = run.summary["per_peer"]["peer0"]
    run.description["inputs"]["columns"][0]["name"] = "a|b"
    assert rows(card(run), "column")[0][0] + "|" + rows(card(run), "column")[0][1] == "a\\|b"
    run.summary |= {"per_peer": {f"peer{place}": each for place in range(40)}, "accounted": False}
    assert "The table lists 16 of 40 peers." in card(run)
    assert "it ran with `--unaccounted`" in card(run)
    run.summary = {"peer": "peer1", "scores": {"loss": 0.5, "auc": None}, "privacy": run.summary["privacy"]}
    assert rows(card(run), "score") == [["loss", "0.500"], ["auc", "-"]]
    assert re.search(r"held-out part of the data of peer1", card(run))


def test_a_run_without_an_end_or_a_description_has_no_card(folder):
    run = Run.load(folder / "scaled")
    run.description = {}
    with pytest.raises(InputError, match=r"has no model\.json, as with a learner of your own; describe it yourself"):
        card(run)
    run.summary = {}
    with pytest.raises(InputError, match="has not ended; resume it, then write its card"):
        card(run)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A run on a table from whose training part p2pfl takes means and levels, and the sums of its columns."""
    place = tmp_path_factory.mktemp("shared")
    rows = [f"{1000 + 7 * number},{'rare' if number == 3 else 'usual'},{number % 2}" for number in range(40)]
    (place / "cells.csv").write_text("\n".join(["income,ward,y", *rows]))
    data = {"name": "csv", "options": {"path": str(place / "cells.csv"), "target": "y"}}
    table = {"rounds": 1, "topology": {"kind": "complete", "peers": 3}, "data": data, "model": {"name": "linear"}}
    simulate(read(table), folder=place / "run", baselines=False)
    return place / "run"


def test_a_card_leaves_out_what_is_exact_of_the_training_data_unless_it_is_asked_for(shared):
    run = Run.load(shared)
    income, ward = run.description["inputs"]["columns"]
    text, whole = card(run), card(run, exact=True)
    assert rows(text, "column") == [
        ["income", "numbers", "left out", "-"],
        ["ward", "texts", "left out", "an error"],
    ]
    for exact in (str(income["missing"]), *ward["levels"]):
        assert exact not in text
        assert exact in whole
    assert "`p2pfl card --exact` prints it" in text
    assert "`p2pfl card --exact` prints it" not in whole


def test_no_number_of_the_listed_statistics_is_in_a_card(shared):
    description = Run.load(shared).description
    cut = without_exact(description)
    left = {id(statistic) for statistic in EXACT_STATISTICS for key in statistic.keys if _values(cut, key.split("."))}
    assert not left
    assert all(_values(description, key.split(".")) for statistic in EXACT_STATISTICS for key in statistic.keys[:1])
    declared = description | {"inputs": description["inputs"] | {"declared": True}}
    assert without_exact(declared)["inputs"]["columns"] == description["inputs"]["columns"]
    assert without_exact(declared)["inputs"]["mean"] is None  # of data.scale


def _values(table, path):
    """Return what is at a place of a description, of every column."""
    if not path:
        return [] if table is None else [table]
    inner = table.get(path[0])
    inners = inner if isinstance(inner, list) else [inner]
    return [value for each in inners if each is not None for value in _values(each, path[1:])]
