"""The page of the documentation: its commands run, its recipe works, and it names all metrics."""

import glob
import re
import shlex
import sys
import types
from pathlib import Path

import pytest

from growing import PEERS, Growing, at, began
from p2pfl.cli import main
from p2pfl.cli.command_catalogue import parse
from p2pfl.plugins.watch.feed import Feed
from p2pfl.plugins.watch.prometheus import exposition

PAGE = (Path(__file__).parents[3] / "docs" / "watch.md").read_text("utf-8")
RECIPES = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^p2pfl (.*)$", PAGE, re.MULTILINE)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with a run that has ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    growing = Growing(tmp_path / "runs" / "digits-20261123-120000")
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(2)
    (growing.folder / "summary.json").write_text('{"schema": 1}')
    return tmp_path


def words(command):
    return [path for word in shlex.split(command) for path in glob.glob(word) or [word]]  # noqa: PTH207


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command, place):
    assert place.is_dir()
    options = parse(words(command))
    assert options.command in {"run", "watch", "peer", "identity"}


def test_the_commands_that_end_print_the_state(place, capsys):
    assert place.is_dir()
    printed = []
    for command in COMMANDS:
        if "--once" in command and "--sink" not in command:
            assert main(words(command)) == 0
            printed.append(capsys.readouterr().out)
    assert printed[0].startswith("4 peers learn in round 3 of 10")
    assert '"stage": "ended"' in printed[1]


class Tracker:
    """The module of MLflow, as far as the recipe uses it."""

    def __init__(self):
        self.logged, self.settings = [], []

    def set_tracking_uri(self, place):
        self.settings.append(place)

    def log_metrics(self, values, *, step):
        self.logged.append(values | {"round": step})


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_logs_each_round_of_each_peer(recipe, place, monkeypatch):
    tracker = Tracker()
    module = types.SimpleNamespace(set_tracking_uri=tracker.set_tracking_uri, log_metrics=tracker.log_metrics)
    monkeypatch.setitem(sys.modules, recipe.removesuffix("_sink"), module)
    monkeypatch.delitem(sys.modules, recipe, raising=False)
    (place / f"{recipe}.py").write_text(RECIPES[recipe])
    [command] = [each for each in COMMANDS if recipe in each]
    assert main(words(command)) == 0
    assert tracker.settings
    assert len(tracker.logged) == 8
    assert tracker.logged[-1] == {"round": 2, "peer3/loss": pytest.approx(0.4), "peer3/accuracy": pytest.approx(0.6)}


def test_the_page_names_every_metric(place):
    with Feed(place / "runs" / "digits-20261123-120000", now=lambda: at(9.0)) as feed:
        feed.refresh()
        feed.swarm.peers["peer0"].epsilon = 1.0
        for _ in range(3):
            feed.swarm.peers["peer0"].add_duration(2.0)
        feed.swarm.late["peer0"] = 1.0
        feed.swarm.peers["peer0"].late["peer1"] = 1
        text = exposition(feed.swarm, now=9.0, stage=feed.stage)
    assert set(re.findall(r"`(p2pfl_\w+)`", PAGE)) == set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def test_the_pictures_are_there():
    pictures = re.findall(r"!\[[^]]+\]\((\S+)\)", PAGE)
    assert pictures == ["watch.png", "watch-phone.png"]
    for name in pictures:
        assert (Path(__file__).parents[3] / "docs" / name).read_bytes().startswith(b"\x89PNG")
