"""The page on growth: its exponents are the slopes of its own tables."""

import re
from pathlib import Path

import pytest

from benchmarks.growth import exponent

PAGE = (Path(__file__).parents[2] / "docs" / "growth.md").read_text("utf-8")


def slope(first):
    """Return the exponent of the seconds in the table that begins with these cells."""
    table = f"| {first} |" + PAGE.partition(f"| {first} |")[2].partition("\n\n")[0]
    points = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \|", table, re.MULTILINE)
    return exponent([(float(size.replace(",", "")), float(seconds)) for size, seconds in points])


@pytest.mark.parametrize(
    ("first", "sentence", "row"),
    [
        ("10 | 0.004", r"exponent (\d\.\d\d) over the larger half", "peers, simulated, 1,000 to 100,000"),
        ("985 | 0.006", r"The exponent of time is (\d\.\d\d):", "parameters, simulated, 10⁶ to 10⁸"),
    ],
)
def test_the_exponents_of_time_in_sentences_and_tables_are_the_slopes_of_the_figures(first, sentence, row):
    [said] = re.findall(sentence, PAGE)
    [listed] = re.findall(rf"^\| {row} \| (\d\.\d\d) \|", PAGE, re.MULTILINE)
    assert said == listed == f"{slope(first):.2f}"
