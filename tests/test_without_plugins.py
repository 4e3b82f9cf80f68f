"""The core works in a copy of the package from which all plug-ins are deleted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "p2pfl"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("without plug-ins")]  # one copy for all of them


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A folder with p2pfl, but without its plug-ins."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(PACKAGE, folder / "p2pfl", ignore=shutil.ignore_patterns("plugins"))
    return folder


@pytest.fixture
def command(core, tmp_path):
    """A function that runs a command there; it returns status, output and errors."""

    def run(*arguments):
        environment = os.environ | {"PYTHONPATH": str(core)}
        line = [sys.executable, "-m", "p2pfl", *arguments]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
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
def test_commands_of_the_core_work_without_plug_ins(command, arguments):
    status, out, errors = command(*arguments)
    assert status == 0, errors
    assert out.startswith("{")


def test_an_exact_model_that_is_not_there_is_refused_in_a_sentence(command):
    status, out, errors = command("simulate", "digits", "--set", "model.name=glm")
    assert (status, out) == (2, "")
    assert errors == ("p2pfl: model.name 'glm' is unknown; use linear, mlp, cnn or 'package.module:Class'\n")
