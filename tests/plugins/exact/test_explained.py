"""Importances and coefficients: in the summary, on the page, in the terminal, and for whoever watches."""

import json
import re

import pytest

from markup import checked
from p2pfl.cli import main
from p2pfl.experiment import read
from p2pfl.plugins.exact.statistics_commands import regression_of
from p2pfl.results.models import Predictor
from p2pfl.results.pages.features import MAX_IMPORTANCES, features
from p2pfl.results.pages.rendering import fragment
from p2pfl.results.pages.run_page import run_page
from p2pfl.results.run import Run
from p2pfl.simulation import simulate

TABLE = {"topology": {"kind": "ring", "peers": 4}, "privacy": {"mode": "pairwise"}}
TREES = TABLE | {"rounds": 5, "data": {"name": "breast_cancer"}, "model": {"name": "boosting"}}
GLM = TABLE | {"rounds": 30, "data": {"name": "diabetes"}, "model": {"name": "glm"}}


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    return simulate(read(TREES), folder=tmp_path_factory.mktemp("trees") / "run", baselines=False)


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    return simulate(read(GLM), folder=tmp_path_factory.mktemp("regression") / "run", baselines=False)


def rows_of(text, caption):
    found = text.partition(f"<caption>{caption}<")[2].partition("</table>")[0]
    return [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", found)]


@pytest.mark.slow
def test_the_summary_has_the_importances_of_trees_and_the_page_shows_them(trees):
    found = trees.summary["explained"]["importances"]
    assert sum(each["importance"] for each in found) == pytest.approx(1.0)
    assert trees.summary["explained"]["regression"] is None
    text = run_page(Run.load(trees.folder))
    checked(text)
    head, *rows = rows_of(text, "Importance by feature")
    assert head == ["feature", "importance", "total gain", "splits"]
    assert [row[0] for row in rows[:MAX_IMPORTANCES]] == [each["name"] for each in found[:MAX_IMPORTANCES]]
    assert rows[0][3] == str(found[0]["weight"])
    section = text.partition('aria-labelledby="features"')[2].partition("</section>")[0]
    assert ("more, in summary.json" in section) == (len(found) > MAX_IMPORTANCES)


@pytest.mark.slow
def test_the_summary_has_the_coefficients_of_a_regression_as_the_command_prints_them(regression):
    found = regression.summary["explained"]["regression"]
    saved = regression_of(Predictor.load(regression.folder / "peers" / "peer0.safetensors").saved)
    assert found["coefficients"] == [vars(each) for each in saved.coefficients]
    assert found["facts"] == dict(saved.facts)
    text = run_page(Run.load(regression.folder))
    checked(text)
    head, *rows = rows_of(text, "Coefficients")
    assert head == ["feature", "estimate", "std. error", "t", "p", "95 % interval"]
    assert [row[0] for row in rows] == [each["name"] for each in found["coefficients"]]
    assert rows[2][1] == f"{found['coefficients'][2]['estimate']:.5g}"


@pytest.mark.slow
def test_the_report_of_a_regression_begins_with_its_coefficients(tmp_path):
    run = simulate(read(GLM, changes=["data.test=0.3"]), folder=tmp_path / "run")
    text = run_page(Run.load(run.folder))
    assert text.index('id="features"') < text.index('id="gain"')


def test_a_ridge_has_no_tests_and_says_why():
    run = simulate(read(GLM, changes=["model.options.ridge=2.0"]), baselines=False)
    found = run.summary["explained"]["regression"]
    assert found["errors"] == "posterior"
    assert all(each["z"] is None and each["error"] > 0 for each in found["coefficients"])
    text = fragment(features(run.summary))
    assert rows_of(text, "Coefficients")[0] == ["feature", "estimate", "std. error", "95 % interval"]
    assert "there are no tests" in text


def test_a_model_without_importances_or_coefficients_has_no_section():
    run = simulate(read(TABLE | {"data": {"name": "digits"}, "rounds": 1}), baselines=False)
    assert run.summary["explained"] is None
    assert features(run.summary) == []
    assert features({}) == []


def test_a_regression_that_goes_on_has_no_coefficients_yet():
    run = simulate(
        read(GLM, changes=["rounds=1", "data.name=breast_cancer", "model.options.ridge=1.0"]), baselines=False
    )
    assert run.summary["explained"] is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trees", "regression"])
def test_a_report_prints_them(kind, request, capsys):
    run = request.getfixturevalue(kind)
    assert main(["report", str(run.folder)]) == 0
    said = capsys.readouterr().out
    explained = run.summary["explained"]
    if kind == "trees":
        assert re.search(r"feature +importance +total gain +splits", said)
        first = explained["importances"][0]
        assert re.search(rf"{first['name']} +{first['importance']:.4f}", said)
    else:
        first = explained["regression"]["coefficients"][2]
        assert re.search(rf"{first['name']} +{first['estimate']:.5g}".replace(".", r"\."), said)
        assert "deviance" in said
    assert main(["report", str(run.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["explained"] == explained


def test_names_of_features_are_text():
    one = {"name": "<b>", "importance": 1.0, "total_gain": 2.0, "weight": 3}
    text = fragment(features({"explained": {"importances": [one], "regression": None}}))
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
