"""A run directory says what it ran on."""

import json
import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version

import pytest

import p2pfl
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.results import Run
from p2pfl.results.provenance import commit_of
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


def git(folder, *arguments):
    identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, "-C", folder, *arguments], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")
def test_a_run_names_the_commit_of_the_folder_of_own_modules(tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "own_loss_of_a_commit.py").write_text("def f(outputs, targets): pass\n")
    git(own, "init", "-q")
    git(own, "add", ".")
    git(own, "commit", "-qm", "first")
    monkeypatch.syspath_prepend(own)
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook of another repository
    experiment = read({"learning": {"loss": "own_loss_of_a_commit:f"}})
    clean = Run(experiment, folder=tmp_path / "clean", began=BEGAN)
    assert re.fullmatch("[0-9a-f]{12}", clean.provenance["commit"])
    assert clean.provenance["code"]["files"] == ["own_loss_of_a_commit.py"]
    (own / "own_loss_of_a_commit.py").write_text("def f(outputs, targets): return 1\n")
    changed = Run(experiment, folder=tmp_path / "changed", began=BEGAN)
    assert changed.provenance["commit"] == clean.provenance["commit"]
    assert changed.provenance["code"]["digest"] != clean.provenance["code"]["digest"]
    assert (tmp_path / "clean" / "modules" / "own_loss_of_a_commit.py").read_text().endswith("pass\n")
    assert Run.resume(tmp_path / "clean", first={}).provenance["commit"] == clean.provenance["commit"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")
def test_a_commit_is_read_without_git_so_that_no_program_runs_and_nothing_is_written(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "code.py").write_text("def f(): pass\n")
    (own / ".gitattributes").write_text("*.py filter=trap\n")
    git(own, "init", "-q")
    git(own, "add", ".")
    git(own, "commit", "-qm", "first")
    commit = subprocess.run(["git", "-C", own, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    for key in ("filter.trap.clean", "core.fsmonitor"):
        git(own, "config", key, f"touch {tmp_path}/ran")
    os.utime(own / "code.py", (1, 1))  # git would filter the file again, and write its index
    before = (own / ".git" / "index").read_bytes()
    assert commit_of(own) == commit[:12]
    git(own, "-c", "filter.trap.clean=cat", "-c", "core.fsmonitor=false", "worktree", "add", "-q", tmp_path / "tree")
    git(own, "pack-refs", "--all")
    assert [commit_of(own), commit_of(tmp_path / "tree")] == [commit[:12]] * 2
    assert not (tmp_path / "ran").exists()
    assert (own / ".git" / "index").read_bytes() == before


@pytest.mark.parametrize("head", ["", "ref: ../../elsewhere", "ref: refs/heads/none", "x" * 40, "\udcff"])
def test_what_is_no_commit_is_none(tmp_path, head):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(head.encode("utf-8", "surrogateescape"))
    assert commit_of(tmp_path) is None


def test_a_run_without_own_modules_or_a_repository_names_neither(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run(EXPERIMENT, folder=tmp_path / "run", began=BEGAN)
    assert (run.provenance["commit"], run.provenance["code"]) == (None, None)
    assert not (tmp_path / "run" / "modules").exists()
    assert commit_of(tmp_path / "nowhere") is None


def test_versions_name_the_processor_and_how_torch_uses_it(tmp_path):
    versions = simulate(EXPERIMENT, folder=tmp_path / "run", baselines=False).summary["versions"]
    assert versions["threads"] == 1
    assert versions["kernels"]
    assert versions["cpu"]
    assert versions["gpu"] is None
