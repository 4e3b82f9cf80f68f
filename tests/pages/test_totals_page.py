"""The tests that docs/totals.md names for the acceptance list of totals are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "totals.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_every_line_names_a_test_or_a_benchmark():
    lines = [line for line in PAGE.split("| line | test |")[1].splitlines() if line.startswith("| ")][1:]
    assert len(lines) == len(NAMED) + 1
    assert all("`tests/" in line or "`python -m benchmarks.totals`" in line for line in lines)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_named_test_is_there(file, test):
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
