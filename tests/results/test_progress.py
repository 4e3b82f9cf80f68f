"""The bar of the rounds of a run."""

import asyncio
import sys
from functools import partial
from types import ModuleType

import pytest
from rich.console import Console

import p2pfl
from p2pfl.results import progress as drawing
from p2pfl.results.progress import show_progress

SMALL = {"rounds": 3, "topology": {"kind": "complete", "peers": 2}, "data": {"name": "wine"}}


class Notebook(ModuleType):
    """Stand-in for ``IPython.display``: what a notebook shows under a cell."""

    def __init__(self):
        super().__init__("IPython.display")
        self.shown = []

    def HTML(self, text):  # noqa: N802 (as IPython has it)
        return text

    def display(self, text, *, display_id):
        assert display_id
        self.shown.append(text)
        return self

    def update(self, text):
        self.shown.append(text)


@pytest.fixture
def _in_terminal(monkeypatch):
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))


def test_without_a_wish_nothing_is_drawn_and_the_users_function_is_called_itself():
    with show_progress(print, rounds=3, wanted=False) as seen:
        assert seen is print


@pytest.mark.usefixtures("_in_terminal")
def test_a_simulation_draws_its_rounds_in_a_terminal(capsys):
    rounds = []
    run = p2pfl.simulate(SMALL, progress=True, observe=lambda records: rounds.append(records[0].round))
    said = capsys.readouterr()
    assert "3/3" in said.err
    assert f"loss {sum(each.scores['loss'] for each in run.metrics[-2:]) / 2:.3f}" in said.err
    assert said.out == ""
    assert rounds == [0, 1, 2]


@pytest.mark.usefixtures("_in_terminal")
def test_live_peers_draw_their_rounds_as_well(capsys):
    asyncio.run(p2pfl.live(SMALL, progress=True, baselines=False))
    assert "3/3" in capsys.readouterr().err


def test_a_log_has_only_the_last_state(capsys):
    p2pfl.simulate(SMALL, progress=True, baselines=False)
    assert capsys.readouterr().err.count("3/3") == 1


def test_a_notebook_shows_a_bar_under_the_cell(monkeypatch):
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setattr(drawing, "Console", partial(Console, force_jupyter=True))
    p2pfl.simulate(SMALL, progress=True, baselines=False)
    assert len(notebook.shown) == 4
    assert notebook.shown[0] == '<progress value="0" max="3" aria-label="rounds"></progress> round 0 of 3'
    assert notebook.shown[-1].startswith(
        '<progress value="3" max="3" aria-label="rounds"></progress> round 3 of 3: loss '
    )
