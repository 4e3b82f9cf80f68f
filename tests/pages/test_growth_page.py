"""The page on growth: its exponents are the slopes of its own tables, of time and of memory."""

import re
from pathlib import Path

import pytest

from benchmarks.growth import exponent

PAGE = (Path(__file__).parents[2] / "docs" / "notes" / "growth.md").read_text("utf-8")

SIMULATED, LIVE = 0, 1


def number(cell):
    """Return the number in a cell."""
    return float(cell.replace(",", ""))


def table(of, kind):
    """Return the size, the seconds and the MiB of each line of a table."""
    begun = re.split(rf"^\| {of} \| s per round \|.*\n.*\n", PAGE, flags=re.MULTILINE)[1 + kind]
    cells = [line.strip("| ").split(" | ") for line in begun.partition("\n\n")[0].splitlines()]
    return [(number(line[0]), number(line[1]), number(line[3].rstrip(" |"))) for line in cells]


def degrees(kind):
    """Return the same of a table of degrees, whose columns are the sizes."""
    part = PAGE.split("## Live")[kind]
    lines = re.findall(r"^\| (?:degree|s per round|MiB|MiB per peer) \| (\d.*) \|$", part, re.MULTILINE)
    return list(zip(*([number(cell) for cell in line.split(" | ")] for line in lines), strict=True))


def slopes(points):
    """Return the exponents of the seconds, and of the memory above the smallest run."""
    least = min(memory for _, _, memory in points)
    return (
        exponent([(size, seconds) for size, seconds, _ in points]),
        exponent([(size, memory - least) for size, _, memory in points]),
    )


def listed(row):
    """Return both cells of a row in the table of exponents."""
    [cells] = re.findall(rf"^\| {row}[^|]* \| (\S+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    return cells


@pytest.mark.parametrize(
    ("row", "points"),
    [
        ("peers, simulated, 1,000 to 100,000", table("peers", SIMULATED)),
        ("parameters, simulated, 10⁶ to 10⁸", table("parameters", SIMULATED)),
        ("parameters, live, 10⁵ to 10⁷", table("parameters", LIVE)),
    ],
    ids=lambda given: given.partition(", 1")[0] if isinstance(given, str) else "",
)
def test_the_exponents_of_time_and_memory_are_the_slopes_of_the_figures(row, points):
    assert listed(row) == tuple(f"{slope:.2f}" for slope in slopes(points))


@pytest.mark.parametrize(
    ("row", "points", "memory"),
    [
        ("degree, simulated, 16 to 64", degrees(SIMULATED), "none"),
        ("peers, live on one machine, 16 to 32", table("peers", LIVE), "none per peer"),
        ("degree, live, 8 to 15", degrees(LIVE), "none"),
    ],
    ids=["degree", "live peers", "live degree"],
)
def test_memory_that_has_no_exponent_differs_by_less_than_a_tenth(row, points, memory):
    half = [found for _, _, found in points][len(points) // 2 :]
    assert listed(row) == (f"{slopes(points)[0]:.2f}", memory)
    assert max(half) < 1.1 * min(half)


@pytest.mark.parametrize(
    ("sentence", "row"),
    [
        (r"exponent (\d\.\d\d) over the larger half", "peers, simulated, 1,000 to 100,000"),
        (r"The exponent of time is (\d\.\d\d):", "parameters, simulated, 10⁶ to 10⁸"),
    ],
)
def test_the_exponents_of_time_in_sentences_are_those_of_the_table(sentence, row):
    assert re.findall(sentence, PAGE) == [listed(row)[0]]


def test_the_page_says_how_to_skip_a_table():
    assert "Give an option without values to skip its table" in " ".join(PAGE.split())
