"""Regressions use all samples unless the file holds some out, and say how many."""

import pytest
import tomli_w

from p2pfl.cli import main, tables, terminal
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.simulation import simulate
from plugins.exact.hospital_cases import case, experiment_of

SMALL = {"topology": {"kind": "complete", "peers": 3}, "data": {"name": "wine"}, "privacy": {"mode": "pairwise"}}

OTHER = {key: value for key, value in SMALL.items() if key != "privacy"}


def shares(settings):
    """Return the numbers of training and test samples of the first peer."""
    sizes = plan(read(settings)).federation.sizes("peer0")
    return sizes.train, sizes.test


@pytest.mark.parametrize("model", ["glm", "pca", "description"])
def test_by_default_a_regression_or_statistic_holds_nothing_out(model):
    assert shares(SMALL | {"model": {"name": model}}) == (60, 0)


def test_other_models_hold_a_fifth_out_and_a_file_decides_otherwise():
    assert shares(OTHER | {"model": {"name": "linear"}}) == (48, 36)
    assert shares(SMALL | {"model": {"name": "glm"}, "data": {"name": "wine", "test": 0.5}}) == (30, 90)
    assert shares(SMALL | {"model": {"name": "boosting"}, "data": {"name": "wine", "test": 0}}) == (60, 0)


def test_a_model_that_is_judged_by_its_scores_needs_held_out_samples():
    with pytest.raises(ExperimentError, match=r"data\.test = 0 does not work with fedavg, .* set it above 0"):
        plan(read(OTHER | {"model": {"name": "linear"}, "data": {"name": "wine", "test": 0}}))


def test_a_run_without_held_out_samples_has_no_scores_and_no_gains():
    run = simulate(SMALL | {"model": {"name": "boosting"}, "rounds": 2, "data": {"name": "wine", "test": 0}})
    assert run.summary["metric"] is None
    assert run.summary["together"] is None
    assert run.metrics
    assert not any(record.scores for record in run.metrics)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["value", "sweep"])
def test_commands_that_compare_scores_ask_for_held_out_samples(data_dir, tmp_path, monkeypatch, capsys, command):
    settings = experiment_of(case(data_dir, "test-part", tmp_path), "birthwt.toml", model={"name": "glm"})
    (tmp_path / "birthwt.toml").write_text(tomli_w.dumps(settings))
    monkeypatch.chdir(tmp_path)
    more = ["--over", "rounds=30,40", "--seeds", "1"] if command == "sweep" else []
    assert main([command, "birthwt.toml", *more]) != 0
    assert "no samples are held out; set data.test above 0" in capsys.readouterr().err


@pytest.mark.parametrize(("keys", "said"), [({}, "n = 189, 0 held out"), ({"test": 0.2}, "n = 150, 39 held out")])
def test_the_table_says_how_many_samples_are_held_out(data_dir, tmp_path, capsys, keys, said):
    model = {"name": "glm", "options": {"least": 1}}  # of the patients that are left, few have some values
    settings = experiment_of(case(data_dir, "test-part", tmp_path), "birthwt.toml", model=model, **keys)
    run = simulate(settings, folder=tmp_path / "run", baselines=False)
    tables.summary(run.summary, tmp_path / "run", console=terminal.console())
    assert f"regression of {said}" in capsys.readouterr().out
    assert main(["coefficients", str(tmp_path / "run" / "peers" / "peer0.safetensors")]) == 0
    assert said in capsys.readouterr().out
