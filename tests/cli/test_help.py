"""``p2pfl --help`` fits a screen, and ``p2pfl help`` explains the rest, without importing what commands need."""

import subprocess
import sys

import pytest

from p2pfl.cli import command_catalogue
from p2pfl.cli.command import GROUPS
from p2pfl.cli.command_catalogue import COLUMNS, commands_by_group, overview
from p2pfl.core.imports import import_callable
from waiting import DEADLINE

LINES = 24
"""Lines of a terminal."""


STATISTICS = pytest.param(["help", "statistics"], marks=pytest.mark.plugin("exact"))
SWEEP = pytest.param(["help", "sweep"], marks=pytest.mark.plugin("study"))


@pytest.mark.parametrize("line", [["--help"], STATISTICS, SWEEP], ids=" ".join)
def test_help_waits_neither_for_torch_nor_for_what_other_commands_need(line):
    unneeded = {"torch", "numpy", "rich", "asyncio", "msgspec"}
    code = (
        "import sys; from p2pfl.cli import main\n"
        f"try: main({line!r})\nfinally: assert not {unneeded} & {{*sys.modules}}, {unneeded} & {{*sys.modules}}"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=DEADLINE)
    assert ("simulate" if line == ["--help"] else "sweep" if "sweep" in line else "survival") in printed.stdout


def test_help_fits_a_screen_and_names_every_command(p2pfl):
    result = p2pfl("--help")
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    words = result.out.replace(",", " ").split()
    assert {*command_catalogue.names()} <= {*words}


def test_help_without_a_name_is_the_same(p2pfl):
    assert p2pfl("help").out == p2pfl("--help").out == f"{overview()}\n"


@pytest.mark.plugin("exact", "evidence", "study", "vertical")
def test_every_command_but_help_is_in_one_group_with_a_sentence():
    groups = commands_by_group()
    assert [*groups] == [*GROUPS]
    names = [name for group in groups.values() for name in group]
    assert sorted([*names, "help"]) == sorted(command_catalogue.names())
    assert not {*groups} & {*names}, "a group of the name of a command could not be asked for"


@pytest.mark.parametrize("group", commands_by_group())
def test_a_group_explains_its_commands(p2pfl, group):
    result = p2pfl("help", group)
    assert result.status == 0
    assert max(map(len, result.out.splitlines())) <= COLUMNS
    for name in commands_by_group()[group]:
        [line] = [line for line in result.out.splitlines() if line.startswith(f"  {name} ")]
        assert command_catalogue.find(name).summary.split()[0] in line


@pytest.mark.parametrize("command", command_catalogue.names())
def test_every_command_explains_itself(p2pfl, command):
    result = p2pfl(command, "--help")
    assert result.status == 0
    assert result.out.startswith(f"usage: p2pfl {command}")
    assert p2pfl("help", command).out == result.out


@pytest.mark.parametrize("command", command_catalogue.names())
def test_every_command_has_its_function(command):
    assert callable(import_callable(command_catalogue.find(command).function))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("simulat", 'there is no command or group "simulat"; did you mean "simulate"?'),
        ("result", 'there is no command or group "result"; did you mean "results"?'),
        ("xyz", 'there is no command or group "xyz"; see p2pfl --help'),
    ],
)
def test_help_on_something_else_is_one_sentence(p2pfl, name, sentence):
    result = p2pfl("help", name)
    assert (result.status, result.out, result.err) == (2, "", f"p2pfl: {sentence}\n")
