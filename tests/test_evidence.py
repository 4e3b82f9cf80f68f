"""Every paragraph of docs/protection.md is linked to what holds it, and gains no sentence without."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from evidence import HELD

ROOT = Path(__file__).parent.parent


def paragraphs():
    """First words and number of sentences of each paragraph and item; tables are linked cell by cell elsewhere."""
    page = (ROOT / "docs" / "protection.md").read_text("utf-8")
    page = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    parts = [part for block in re.split(r"\n\n+", page) for part in re.split(r"\n(?=- |\d\. )", block)]
    for part in parts:
        words = part.split()
        if words and not words[0].startswith(("#", "|", "![")):
            yield " ".join(words[:5]), len(re.findall(r"[.:?](?= |$)", " ".join(words)))


@cache
def those_in(file):
    return {node.name for node in ast.parse((ROOT / "tests" / file).read_text("utf-8")).body if hasattr(node, "name")}


def test_every_paragraph_of_the_page_is_linked_to_what_holds_it():
    assert list(paragraphs()) == list(HELD)


@pytest.mark.parametrize("paragraph", HELD, ids=lambda paragraph: paragraph[0])
def test_what_holds_a_paragraph_is_there(paragraph):
    for line in HELD[paragraph].strip().splitlines():
        named = line.strip()
        if named in {"cited", "advice"}:
            continue
        if module := re.fullmatch(r"python -m benchmarks\.(\w+)", named):
            assert (ROOT / "benchmarks" / f"{module[1]}.py").is_file()
            continue
        file, _, test = named.partition("::")
        assert test in those_in(file)
