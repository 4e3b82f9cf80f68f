"""``p2pfl value``: what the data of each peer are worth, as a table and a page."""

from __future__ import annotations

from dataclasses import asdict, astuple
from functools import partial
from typing import Any

from rich.text import Text

import p2pfl
from p2pfl.cli import terminal
from p2pfl.cli.experiments import experiment_of, warn_of_exact
from p2pfl.cli.tables import render
from p2pfl.plugins.study.study_commands import ValueOptions
from p2pfl.plugins.study.valuation import Valuation, valuation
from p2pfl.results.charts import Interval
from p2pfl.results.facts import FactTable, Figure, Note, Section, Styled
from p2pfl.results.pages.rendering import page
from p2pfl.results.plots import COLOURS, intervals
from p2pfl.results.table_files import Paper

METHOD_NAMES = {"shapley": "Shapley value", "banzhaf": "Banzhaf value", "loo": "Loss without the peer"}
"""Kinds of values in words."""


def run(options: ValueOptions) -> int:
    """Print the values of an experiment."""
    experiment = experiment_of(options)
    resolved = p2pfl.plan(experiment, unaccounted=options.unaccounted)
    arguments = {key: getattr(options, key) for key in ("method", "draws", "metric", "unaccounted")}
    result = valuation(resolved, **arguments)
    warn_of_exact(resolved)
    rows = [("peer", "samples", "value", "low", "high"), *map(astuple, result.values)]

    def show(_results: dict[str, Any]) -> None:
        console = terminal.console()
        console.print(render(values_table(result)))
        console.print()
        for line in sentences(result):
            console.print(Text(line), soft_wrap=not console.is_terminal)

    return terminal.write(
        options,
        asdict(result),
        rows=rows,
        page=lambda: valuation_page(experiment.name, result),
        paper=lambda: Paper(valuation_title(experiment.name), [values_table(result)], sentences(result)),
        show=show,
    )


def valuation_title(name: str) -> str:
    """Return the title of the values of an experiment."""
    return f"Value of the data of {name}"


def valuation_page(name: str, result: Valuation) -> str:
    """Return the page of the values of an experiment."""
    kind = METHOD_NAMES[result.method]
    sections: list[Section] = [
        ("values", kind, [_figure(result, kind)]),
        ("table", "Table", [values_table(result)]),
        ("meaning", "What it means", [" ".join(sentences(result))]),
    ]
    return page(valuation_title(name), sections, head=[Note(f"By {result.metric}.", style="small")])


def sentences(result: Valuation) -> list[str]:
    """Return the meaning of the values in words."""
    drawn = any(each.low is not None for each in result.values)
    coalitions = "drawn coalitions, with 95 % intervals of what the draws leave open" if drawn else "coalitions"
    sign = ", which counts negative" if result.everybody < 0 else ""
    models = (
        f"{result.coalitions} models of {coalitions}, scored on the test data of all peers by {result.metric}{sign}"
    )
    scores = f"{result.everybody:.4f} with everybody, {result.nobody:.4f} untrained."
    whole = ["The values add up to the difference."] if result.method == "shapley" else []
    return [f"{models}: {scores}", *whole, "Other seeds, models and test data give other values."]


def values_table(result: Valuation) -> FactTable:
    """Return the values, the largest first."""
    rows = [
        (
            each.peer,
            each.samples,
            Styled(f"{each.value:+.4f}", "" if each.value >= 0 else "bad"),
            "-" if each.low is None else f"{each.low:+.4f} to {each.high:+.4f}",
        )
        for each in sorted(result.values, key=lambda each: -each.value)
    ]
    kind = METHOD_NAMES[result.method]
    return FactTable(f"{kind} of each peer", ("peer", "samples", kind, "95 % interval"), rows)


def _figure(result: Valuation, kind: str) -> Figure:
    rows = sorted(result.values, key=lambda each: -each.value)
    entries = [
        Interval(
            f"{each.peer}: {each.value:+.4f}, {each.samples} samples",
            each.value,
            None if each.high is None else each.high - each.value,
            COLOURS[each.value < 0],
        )
        for each in rows
    ]
    about = f"{rows[0].peer} is worth most, {rows[-1].peer} least."
    return Figure(kind, about, partial(intervals, entries, x=f"rise of {result.metric}"))
