"""The commands of the tutorial for hospitals run one after the other, and print what the page says."""

import glob
import re
import runpy
import shlex
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGE = (TUTORIALS / "hospital.md").read_text("utf-8")
ELSEWHERE = ("p2pfl peer", "p2pfl audit")
"""Commands that need a broker or minutes; other tests run them."""


def test_the_commands_of_the_tutorial_run_and_print_what_it_says(p2pfl, place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = {}
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        if named := re.match(r"# (\S+\.(?:py|toml))\n", block):
            (place / named[1]).write_text(block)
        for command in block.splitlines() if language == "sh" else ():
            if command == "python make.py":
                runpy.run_path(str(TUTORIALS / "make" / "hospital.py"))
            elif not command.startswith(ELSEWHERE):
                words = [path for word in shlex.split(command)[1:] for path in glob.glob(word) or [word]]  # noqa: PTH207
                said[command] = p2pfl(*words)
                assert said[command].status == 0, (command, said[command].err)
    page = {line.strip() for line in PAGE.splitlines()}
    for command in ("p2pfl explain ward.toml", "p2pfl privacy ward.toml"):  # run has secret noise
        shown = PAGE.partition(f"```sh\n{command}\n```\n\n```text\n")[2].partition("```")[0].splitlines()
        printed = {line.strip() for line in (said[command].out + said[command].err).splitlines()}
        assert shown
        assert not {line.strip() for line in shown} - printed
    assert "60 samples" in said["p2pfl evaluate runs/ward-*/peers/peer0.safetensors new.csv --by scanner"].out
    assert "60 samples" in page
    assert len((place / "predictions.csv").read_text().splitlines()) == 61
    assert "(8, 1e-05)-differential privacy" in (place / "card.md").read_text()
    assert (place / "ward.pt2").stat().st_size > 1000
