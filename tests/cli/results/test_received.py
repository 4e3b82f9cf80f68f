"""A run directory that somebody else sent: commands that read it import nothing that it names."""

import sys

import pytest

pytestmark = pytest.mark.slow

TRAP = 'import pathlib\npathlib.Path("imported").touch()\nraise SystemExit("code of a stranger")\n'


@pytest.fixture
def received(p2pfl, place):
    """A finished run whose experiment file names code for every key that can have some."""
    (place / "trap.py").write_text(TRAP)
    assert p2pfl("simulate", "small.toml", "--no-baselines", "--set", "rounds=1").status == 0
    [folder] = (place / "runs").iterdir()
    path = folder / "experiment.toml"
    text = path.read_text()
    for old in ('mode = "none"', 'algorithm = "fedavg"', 'rule = "none"'):
        assert old in text
        text = text.replace(old, f'{old.split(" ")[0]} = "trap:Trap"')
    assert '[compression]\nname = "none"' in text
    path.write_text(text.replace('[compression]\nname = "none"', '[compression]\nname = "trap:Trap"'))
    return folder


@pytest.mark.parametrize("command", [["report"], ["card"], ["watch", "--once"]], ids=["report", "card", "watch"])
def test_a_command_that_reads_a_run_imports_nothing_that_it_names(p2pfl, place, received, command, monkeypatch):
    monkeypatch.syspath_prepend(str(place))
    done = p2pfl(*command, received)
    assert done.status == 0, done.err
    assert not (place / "imported").exists()


@pytest.mark.fast
def test_a_run_is_watched_without_the_present_folder_on_the_path(p2pfl, place, received):
    sys.path[:] = [each for each in sys.path if each != str(place)]
    assert p2pfl("watch", "--once", received).status == 0
    assert str(place) not in sys.path
