"""What docs/notes/security-findings.md names is there: a fix, a test and the attack for every finding."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "notes" / "security-findings.md").read_text("utf-8")
ROWS = {row[0]: row[1:] for row in (line.strip("| ").split(" | ") for line in PAGE.splitlines() if line[:3] > "| -")}
REVIEWS = {"": {"C": 2, "H": 4, "M": 10, "L": 8}, "3.": {"H": 2, "M": 8, "L": 6}}
FINDINGS = [
    f"{review}{kind}{number}"
    for review, kinds in REVIEWS.items()
    for kind, most in kinds.items()
    for number in range(1, most + 1)
]


@cache
def those_in(file):
    return {
        node.name
        for node in ast.parse((ROOT / file).read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def there(named):
    """Whether a test, or a module that is run, exists."""
    if module := re.fullmatch(r"`python -m ([\w.]+)`", named):
        return (ROOT / module[1].replace(".", "/")).with_suffix(".py").is_file()
    file, _, test = named.strip("`").partition("::")
    return test in those_in(file)


def test_every_finding_has_a_line():
    assert [finding for finding in ROWS if re.fullmatch(r"(3\.)?[CHML]\d+", finding)] == FINDINGS


@pytest.mark.parametrize("finding", FINDINGS)
def test_what_closes_a_finding_is_there(finding):
    _, fix, test, attack = ROWS[finding]
    assert (ROOT / fix.strip("`")).is_file()
    assert there(test)
    assert attack == "*the same*" or there(attack)
