"""A run directory says what it ran on."""

import json
import platform
from datetime import UTC, datetime
from importlib.metadata import version

import pytest

import p2pfl
from p2pfl.errors import InputError
from p2pfl.experiment import read
from p2pfl.report import Run
from p2pfl.simulation import simulate

EXPERIMENT = read(
    {"name": "test", "seed": 7, "rounds": 1, "data": {"name": "wine", "split": "shards"}, "topology": {"peers": 4}},
    changes=["learning.algorithm=dpsgd"],
)
BEGAN = datetime(2026, 11, 22, 13, 7, 42, 999, tzinfo=UTC)
FACTS = {"seed": 7, "algorithm": "dpsgd", "split": "shards", "began": "2026-11-22T13:07:42+00:00"}


def test_a_summary_names_seed_algorithm_split_beginning_and_versions(tmp_path):
    summary = simulate(EXPERIMENT, folder=tmp_path / "run", baselines=False, began=BEGAN).summary
    assert summary.items() >= FACTS.items()
    versions = summary["versions"]
    assert versions["p2pfl"] == p2pfl.__version__
    assert versions["python"] == platform.python_version()
    assert (versions["torch"], versions["numpy"]) == (version("torch"), version("numpy"))
    assert platform.machine() in versions["platform"]
    assert versions["cpus"] >= 1
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary


def test_a_simulation_in_python_began_when_it_was_called():
    before = datetime.now(UTC).replace(microsecond=0)
    assert before <= datetime.fromisoformat(simulate(EXPERIMENT, baselines=False).summary["began"]) <= datetime.now(UTC)


def test_a_run_that_was_interrupted_says_what_it_ran_on(tmp_path):
    began = Run(EXPERIMENT, folder=tmp_path / "run", began=BEGAN)
    assert Run.load(tmp_path / "run").provenance == began.provenance
    assert began.provenance.items() >= FACTS.items()


def test_a_resumed_run_keeps_its_beginning_and_names_the_versions_that_ended_it(tmp_path, monkeypatch):
    Run(EXPERIMENT, folder=tmp_path / "run", began=BEGAN)
    monkeypatch.setattr(p2pfl, "__version__", "9.9.9")
    run = Run.resume(tmp_path / "run", first={})
    run.finish({"rounds": 1})
    assert run.summary.items() >= FACTS.items()
    assert run.summary["versions"]["p2pfl"] == "9.9.9"


def test_a_directory_of_an_older_release_is_read_and_resumed(tmp_path):
    folder = Run(EXPERIMENT, folder=tmp_path / "run").folder
    assert not (folder / "provenance.json").exists()
    assert Run.load(folder).provenance == {}
    run = Run.resume(folder, first={})
    run.finish({})
    assert run.summary["seed"] == 7
    assert run.summary["began"] is None


def test_a_provenance_that_is_no_json_is_refused_with_its_file(tmp_path):
    folder = Run(EXPERIMENT, folder=tmp_path / "run", began=BEGAN).folder
    (folder / "provenance.json").write_text("{")
    with pytest.raises(
        InputError,
        match=r" the file is not the provenance of a run \(Input data was truncated\); delete it to read the rest",
    ):
        Run.load(folder)
