"""The core and its tests work in a copy from which all plug-ins are deleted."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
LEFT_OUT = ".*", "__pycache__", "plugins"
ENTRY_POINTS = re.compile(r'\[project\.entry-points\."[^"]+"\]\n(?:.+\n)+')

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("without plug-ins")]  # one copy for all of them


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A folder with p2pfl, but without its plug-ins."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(ROOT / "p2pfl", folder / "p2pfl", ignore=shutil.ignore_patterns("plugins"))
    return folder


@pytest.fixture
def run(core, tmp_path):
    """A function that runs a module of Python there; it returns status, output and errors."""

    def run(*arguments, cwd=tmp_path):
        environment = os.environ | {"PYTHONPATH": str(core)}
        line = [sys.executable, "-m", *arguments]
        done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "digits", "--json", "--set", "rounds=1"],
        ["explain", "digits", "--json"],
        ["topology", "ring", "--peers", "5", "--json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_of_the_core_work_without_plug_ins(run, arguments):
    status, out, errors = run("p2pfl", *arguments)
    assert status == 0, errors
    assert out.startswith("{")


def test_an_exact_model_that_is_not_there_is_refused_in_a_sentence(run):
    status, out, errors = run("p2pfl", "simulate", "digits", "--set", "model.name=glm")
    assert (status, out) == (2, "")
    assert errors == ("p2pfl: model.name 'glm' is unknown; use linear, mlp, cnn or 'package.module:Class'\n")


@pytest.mark.fast
def test_tests_of_the_core_import_no_plug_in_when_they_are_collected():
    files = [file for file in TESTS.rglob("*.py") if TESTS / "plugins" not in file.parents]
    imported = {file: imports_of(file) for file in files}
    support, leaning = [*TESTS.joinpath("support").glob("*.py")], set()
    while more := {file.stem for file in support if needs_plugins(imported[file], leaning)} - leaning:
        leaning |= more
    tests = {file: names for file, names in imported.items() if file.parent.name != "support"}
    assert [file for file, names in tests.items() if needs_plugins(names, leaning)] == []


def imports_of(file):
    """Return the modules that a file imports when it is imported."""
    return re.findall(r"^(?:from|import) ([\w.]+)", file.read_text("utf-8"), re.MULTILINE)


def needs_plugins(modules, leaning):
    return any(f"{each}.".startswith(("p2pfl.plugins.", "plugins.")) or each in leaning for each in modules)


@pytest.mark.nightly
def test_tests_of_the_core_are_collected_and_pass_without_plug_ins(core, run):
    for name in ("tests", "benchmarks", "docs", "scripts", "micro", "topologies"):
        shutil.copytree(ROOT / name, core / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for file in ROOT.glob("*.*"):
        if file.is_file():
            shutil.copy(file, core)
    project = (core / "pyproject.toml").read_text("utf-8")
    (core / "pyproject.toml").write_text(ENTRY_POINTS.sub(drop_plugins, project))
    status, out, errors = run("pytest", "--collect-only", "-q", "-n", "0", cwd=core)
    assert status == 0, f"{out[-4000:]}{errors}"
    fast = "-m", "(fast or not slow) and not nightly"
    folders = [f"tests/{name}" for name in ("core", "topology", "data", "cli/planning", "network/protocol/session")]
    status, out, errors = run("pytest", "-q", "-n", "0", *fast, *folders, cwd=core)
    assert status == 0, f"{out[-4000:]}{errors}"


def drop_plugins(group):
    """Return a group of entry points unless it is that of plug-ins."""
    return "" if "p2pfl.plugins." in group[0] else group[0]
