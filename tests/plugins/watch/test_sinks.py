"""Functions of the user are called with each event, and harm nothing."""

import sys

import pytest

from growing import PEERS, began
from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.plugins.watch.watch_command import call_sinks
from p2pfl.results.records import Record


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user, which keeps what it was called with."""
    (tmp_path / "tracker.py").write_text(
        "seen = []\n"
        "def keep(event):\n    seen.append(event)\n"
        "def fail(event):\n    seen.append('failed')\n    raise ValueError('no such run')\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tracker", raising=False)
    import tracker  # noqa: PLC0415

    return tracker


def test_an_error_is_reported_once_and_stops_nobody(module, capsys):
    sinks = call_sinks(["tracker:fail", "tracker:keep"])
    for round in range(3):
        sinks(began("peer0", float(round)))
    said = "p2pfl: sink tracker:fail failed with ValueError: no such run; it is called again\n"
    assert capsys.readouterr().err == said
    assert module.seen == [each for round in range(3) for each in ("failed", began("peer0", float(round)))]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tracker", '--sink: "tracker" is not of the form "package.module:name"; name a function that way'),
        ("tracker:none", '--sink: "tracker:none" cannot be imported'),
        ("nowhere_at_all:f", '--sink: "nowhere_at_all:f" cannot be imported'),
        ("tracker:number", '--sink: "tracker:number" is an object of the type int; name a function'),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_name_that_is_no_function_is_an_error(name, said):
    with pytest.raises(InputError, match=said):
        call_sinks([name])


def test_the_events_of_a_run_that_has_ended_are_all_handed_over_once(growing, module):
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(2)
    assert main(["watch", str(growing.folder), "--once", "--sink", "tracker:keep"]) == 0
    assert len(module.seen) == 12
    assert sum(isinstance(event, Record) for event in module.seen) == 8
