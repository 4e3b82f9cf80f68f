"""``p2pfl describe``: statistics of the data of all peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import shown
from p2pfl.plugins.exact import simulated_totals
from p2pfl.plugins.exact.exact_commands import DescribeOptions
from p2pfl.plugins.exact.pages.description_page import description_page, level_table, number_table, strongest
from p2pfl.plugins.exact.statistics.column_statistics import Description
from p2pfl.plugins.exact.statistics.described import described
from p2pfl.plugins.exact.statistics.private_description import PrivateDescription
from p2pfl.results.facts import FactTable

BARS = "▁▂▃▄▅▆▇█"
"""Heights of a histogram on a terminal."""

QUARTILES = ("25%", "50%", "75%")
"""Quantiles on a narrow terminal."""

NO_LIMIT = 10_000
"""Characters in which any table fits."""

MOST_PAIRS = 8
"""Correlations that the terminal lists."""

LEAST = 0.1
"""Smallest correlation that the terminal lists."""


def run(options: DescribeOptions) -> int:
    """Describe the data of an experiment, or print a description that peers have made."""
    given = {"least": options.least, "bins": options.bins, "correlations": False if options.no_correlations else None}
    name, model, tensors, meaning = simulated_totals.found(
        options, model=Description.name, given=given, private=PrivateDescription.name
    )
    results = described(tensors, model, meaning).results()

    def page() -> str:
        return description_page(name, results, disclosed=model.shows)

    return terminal.write(options, results, rows=_rows(results), page=page, show=_show)


def _show(found: Mapping[str, Any]) -> None:
    console = terminal.console()
    numbers = [each for each in found["columns"] if each["kind"] == "number"]
    others = [each for each in found["columns"] if each["kind"] == "levels"]
    tables = []
    if made := number_table(numbers, private=found["private"]):
        tables.append(_fitting(made, numbers, console))
    if made := level_table(others, hidden=f"< {found['least']}"):
        tables.append(shown(made))
    every = strongest(found["names"], found["correlations"], most=MOST_PAIRS) if found["correlations"] else []
    pairs = [pair for pair in every if abs(pair[2]) > LEAST]
    if pairs:
        rows = [(two, one, f"{value:+.3f}") for one, two, value in pairs]
        tables.append(shown(FactTable("", ("strongest correlations", "", "correlation"), rows, text=2)))
    for table in tables:
        console.print(table)
        console.print()
    for each in found["warnings"]:
        console.print(Text(f"warning: {each}"), soft_wrap=not console.is_terminal)
    kept = "with private noise" if found["private"] else f"nothing is stated of fewer than {found['least']}"
    said = f"{found['samples']} samples of all peers; {kept}"
    console.print(Text(said), soft_wrap=not console.is_terminal)


def _fitting(facts: FactTable, columns: Sequence[Mapping[str, Any]], console: Console) -> Table:
    """Return the table of columns of numbers that shows most and fits; if none fits, names take several lines."""
    bars = [_bars(each["counts"]) for each in columns]
    inner = facts.without(
        "low", "high", *(head for head in facts.heads if head.endswith("%") and head not in QUARTILES)
    )
    for each in (_drawn(facts, bars), _drawn(inner, bars), inner):
        table = shown(each)
        table.columns[0].no_wrap = True
        if Measurement.get(console, console.options.update(width=NO_LIMIT), table).maximum <= console.width:
            return table
    names = table.columns[0]
    names.no_wrap, names.overflow, names.min_width = False, "fold", len("column")
    return table


def _drawn(facts: FactTable, bars: Sequence[str]) -> FactTable:
    """Return a table with a column of histograms."""
    rows = [[*row, bar] for row, bar in zip(facts.rows, bars, strict=True)]
    return replace(facts, heads=[*facts.heads, "histogram"], rows=rows)


def _bars(counts: list[int | None]) -> str:
    top = max((count or 0 for count in counts), default=0)
    if not top:
        return ""
    return "".join(
        "·" if count is None else " " if not count else BARS[min(7, (8 * count - 1) // top)] for count in counts
    )


def _rows(found: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """Return a row for each column of numbers and each level; empty cells are not stated."""
    numbers = [each for each in found["columns"] if each["kind"] == "number"]
    shares = list(numbers[0]["quantiles"]) if numbers else []
    yield ["column", "level", "count", "missing", "mean", "std", "low", *shares, "high"]
    for each in found["columns"]:
        if each["kind"] == "levels":
            yield from ([each["name"], level, count] for level, count in each["levels"].items())
            continue
        values = [each["mean"], each["deviation"], each["low"], *each["quantiles"].values(), each["high"]]
        yield [each["name"], "", each["count"], each["missing"], *values]
