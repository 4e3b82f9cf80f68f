"""What the README says works."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from msgspec.structs import fields

from p2pfl.cli.arguments import parser
from p2pfl.experiment import read
from p2pfl.experiment.schema import Experiment
from test_rooms import ROOMS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
MAP = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line for language, block in BLOCKS if language == "sh" for line in block.splitlines() if line.startswith("p2pfl ")
]


def test_every_block_of_python_runs_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "clinic", raising=False)  # of another test
    names = {}
    for language, block in BLOCKS:
        file = re.match(r"# (\w+\.(?:py|toml))\n", block)
        if file:  # the reader is to save it
            (tmp_path / file[1]).write_text(block, "utf-8")
        elif language == "python":
            exec(compile(block, "README.md", "exec"), names)  # noqa: S102 (that is what the README asks for)
    assert len(names["states"]) == 4
    assert names["run"].summary["together"] > names["run"].summary["alone"]
    assert set(names["model"]) == {f"layers.{layer}.{part}" for layer in (0, 1, 3) for part in ("weight", "bias")}
    for state in names["consensus"]:
        assert state.rows.squeeze().tolist() == pytest.approx([3 * (1 - 0.5**5)] * 10, abs=0.01)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command):
    parser().parse_args(shlex.split(command, comments=True)[1:])


@pytest.mark.parametrize("command", [command for command in COMMANDS if "--set" in command])
def test_every_setting_of_a_command_exists(command):
    options = parser().parse_args(shlex.split(command, comments=True)[1:])
    read(options.experiment, changes=options.changes)


def test_the_table_of_the_experiment_file_lists_every_key():
    rows = dict(re.findall(r"^\| (?:`\[(\w+)\]`)? ?\| (.*) \|$", TEXT, re.MULTILINE))
    sections = {section.name: fields(section.type) for section in fields(Experiment) if section.name in rows}
    sections[""] = [key for key in fields(Experiment) if key.name not in rows]
    for section, keys in sections.items():
        for key in keys:
            assert f"`{key.name}`" in rows[section], f"expected {section}.{key.name} in the table"


def test_the_map_of_rooms_is_the_one_that_holds():
    rooms = {}
    for room, told in re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", MAP, re.MULTILINE):
        if told.startswith("all above"):
            rooms[room] = {*rooms} - {*told.removeprefix("all above but ").split(", ")}
        else:
            rooms[room] = {*told.split(", ")} - {"-"}
    assert rooms == ROOMS


def test_every_link_leads_somewhere():
    headings = {"#" + heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)}
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT):
        place, _, anchor = target.partition("#")
        assert target in headings if not place else (ROOT / place).is_file(), target
        if place and anchor:
            page = (ROOT / place).read_text("utf-8")
            titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
            assert anchor in {title.lower().replace(" ", "-").replace("`", "") for title in titles}, target
