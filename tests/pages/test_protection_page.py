"""The figures of the four hospitals in docs/notes/protection.md are what the shipped experiment gives."""

import re
from pathlib import Path

import pytest

from benchmarks import privacy
from p2pfl.experiment import read

DOCS = Path(__file__).parents[2] / "docs"
NOTE = (DOCS / "notes" / "protection.md").read_text("utf-8").partition("## Four hospitals")[2]
TABLE = {
    name: cells.split(" | ")
    for name, cells in re.findall(r"^\| ([^|]+) \| ([^|]+(?: \| [^|]+){6}) \|$", NOTE, re.MULTILINE)
    if name != "what is promised" and not name.startswith("-")
}


def test_the_note_has_a_line_for_each_promise():
    assert list(TABLE) == list(privacy.HOSPITALS)


@pytest.mark.slow
def test_the_note_has_the_scores_of_the_shipped_promise_over_ten_seeds():
    *scores, gainers = privacy.reached([read("hospitals", changes=[f"seed={seed}"]) for seed in range(10)])
    *printed, counted = TABLE["epsilon 8"][:4]
    for now, then in zip(scores, printed, strict=True):  # one patient of 114 less on one seed of ten is no news
        assert [*map(float, now.split(" +- "))] == pytest.approx([*map(float, then.split(" +- "))], abs=0.005)
    assert int(gainers.split()[0]) == pytest.approx(int(counted.split()[0]), abs=2)


def test_one_seed_has_no_spread(monkeypatch, capsys):
    monkeypatch.setattr(privacy, "STEPS", 2)
    privacy.decor(1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(privacy.PUBLISHED)
    assert re.fullmatch(r"\s*curator, complete\s+\d+\.\d{4}\s+\.0064\s+\.0092 \+- \.0018", lines[1])
    assert privacy.spread_of([0.5, 0.75]) == "0.625 +- 0.177"
