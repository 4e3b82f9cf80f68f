"""What the README and the pages it was taken apart into say works."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from p2pfl.cli.command_catalogue import parse
from p2pfl.experiment import read

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [
    README,
    *(ROOT / "docs" / f"{page}.md" for page in ("install", "usage", "python", "experiment-file", "churn", "forecast")),
]
LINKED = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
LONGEST = 110
"""Lines of the README."""


def blocks(page):
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


COMMANDS = sorted(
    {
        line.partition("  ")[0]
        for page in PAGES
        for language, block in blocks(page)
        if language == "sh"
        for line in block.splitlines()
        if line.startswith("p2pfl ")
    }
)


def test_the_readme_is_short():
    assert len(README.read_text("utf-8").splitlines()) <= LONGEST


def test_the_python_of_the_readme_runs():
    [block] = [block for language, block in blocks(README) if language == "python"]
    names = {}
    exec(compile(block, "README.md", "exec"), names)  # noqa: S102 (that is what the README asks for)
    assert names["run"].summary["together"] > names["run"].summary["alone"]


@pytest.mark.slow
def test_every_block_of_python_runs_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "clinic", raising=False)  # of another test
    names = {}
    for language, block in blocks(ROOT / "docs" / "python.md"):
        file = re.match(r"# (\w+\.(?:py|toml))\n", block)
        if file:  # the reader is to save it
            (tmp_path / file[1]).write_text(block, "utf-8")
        elif language == "python":
            exec(compile(block, "python.md", "exec"), names)  # noqa: S102 (that is what the page asks for)
    assert len(names["swarm"].models) == 4
    assert names["swarm"].summary["together"] > names["swarm"].summary["alone"]
    assert len(names["found"].settings) == 2
    assert names["run"].summary["together"] > names["run"].summary["alone"]
    assert set(names["model"]) == {f"layers.{layer}.{part}" for layer in (0, 1, 3) for part in ("weight", "bias")}
    for state in names["consensus"]:
        assert state.rows.squeeze().tolist() == pytest.approx([3 * (1 - 0.5**5)] * 10, abs=0.01)


@pytest.mark.plugin("watch")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command):
    parse(shlex.split(command, comments=True)[1:])


@pytest.mark.parametrize("command", [command for command in COMMANDS if "--set" in command])
def test_every_setting_of_a_command_exists(command):
    options = parse(shlex.split(command, comments=True)[1:])
    read(getattr(options, "experiment", "digits"), changes=options.changes)  # p2pfl next has that of a run


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text("utf-8")):
        place, _, anchor = target.partition("#")
        file = page.parent / place if place else page
        assert file.is_file(), target
        if anchor:
            assert anchor in anchors(file), target
