"""A run directory that somebody else sent: commands that read it import nothing that it names."""

import shutil
import sys
import tomllib

import pytest
import tomli_w

from p2pfl.experiment import check, write
from p2pfl.simulation import simulate
from wine_files import wine_file

pytestmark = pytest.mark.slow

TRAP = 'import pathlib\npathlib.Path("imported").touch()\nraise SystemExit("code of a stranger")\n'
KEYS = (
    "topology.kind",
    "gossip.weights",
    "privacy.mode",
    "compression.name",
    "robustness.rule",
    "learning.algorithm",
    "learning.loss",
    "learning.schedule",
    "learning.augment",
    "learning.learner",
    "data.name",
    "data.split",
    "model.name",
    "model.options.loss",
)
"""Keys that can name code."""
COMMANDS = {
    "report": ("report", "RUN"),
    "report as a page": ("report", "RUN", "--html", "page.html"),
    "report as figures": ("report", "RUN", "--plot", "plot.svg", "--csv", "rounds.csv"),
    "card": ("card", "RUN"),
    "watch": ("watch", "--once", "RUN"),
    "watch as JSON": ("watch", "--once", "--json", "RUN"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    table = tomllib.loads(wine_file("small")) | {"rounds": 1}
    simulate(check(table), folder=folder, baselines=False)
    return folder


@pytest.fixture
def received(finished, place):
    """Return a function that copies the run, with code for some keys, and without its summary if it was killed."""

    def copy(*keys, killed=False):
        (place / "trap.py").write_text(TRAP)
        folder = shutil.copytree(finished, place / "runs" / "small")
        table = tomllib.loads((folder / "experiment.toml").read_text())
        for key in keys:
            *sections, name = key.split(".")
            section = table
            for each in sections:
                section = section.setdefault(each, {})
            section[name] = "trap:Trap"
        (folder / "experiment.toml").write_text(write(check(table)) if not keys else tomli_w.dumps(table))
        if killed:
            (folder / "summary.json").unlink()
        return folder

    return copy


def check_nothing_is_imported(p2pfl, place, folder, command):
    """Check that a command imports nothing that the run names, and return its exit status and its errors."""
    sys.path.insert(0, str(place))
    done = p2pfl(*(str(folder) if word == "RUN" else word for word in COMMANDS[command]))
    assert "code of a stranger" not in done.err
    assert not (place / "imported").exists()
    return done.status, done.err


@pytest.mark.parametrize("killed", [False, True], ids=["finished", "killed"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_reads_a_run_imports_nothing_of_all_that_it_names(p2pfl, place, received, command, killed):
    status, errors = check_nothing_is_imported(p2pfl, place, received(*KEYS, killed=killed), command)
    assert killed or status == 0, errors


@pytest.mark.sampled(fast=0, all=19)
@pytest.mark.parametrize("killed", [False, True], ids=["finished", "killed"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_reads_a_run_imports_nothing_that_it_names(p2pfl, place, received, command, key, killed):  # noqa: PLR0917 (fixtures)
    status, errors = check_nothing_is_imported(p2pfl, place, received(key, killed=killed), command)
    assert killed or status == 0, errors


@pytest.mark.fast
@pytest.mark.plugin("watch")
def test_a_run_is_watched_without_the_present_folder_on_the_path(p2pfl, place, received):
    sys.path[:] = [each for each in sys.path if each != str(place)]
    assert p2pfl("watch", "--once", received()).status == 0
    assert str(place) not in sys.path


def test_whoever_trusts_a_run_watches_its_own_topology(p2pfl, place, received):
    sys.path.insert(0, str(place))
    p2pfl("watch", "--once", "--trust-code", received("topology.kind"))
    assert (place / "imported").exists()
