"""``p2pfl value``: what the data of each peer are worth, as a table and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

import p2pfl
from p2pfl.cli import terminal
from p2pfl.cli.experiments import experiment_of, warn_of_exact
from p2pfl.cli.tables import render
from p2pfl.core.errors import InputError, RunError
from p2pfl.plugins.study.credits import (
    Credits,
    credits_of,
    differences,
    read_credits,
    sign_credits,
    write_credits,
)
from p2pfl.plugins.study.study_commands import ValueOptions
from p2pfl.plugins.study.valuation import Valuation, valuation
from p2pfl.privacy.keys import Identity
from p2pfl.results.charts import Interval
from p2pfl.results.facts import FactTable, Figure, Note, Section, Styled
from p2pfl.results.pages.rendering import page
from p2pfl.results.plots import COLOURS, intervals
from p2pfl.results.table_files import Paper

METHOD_NAMES = {"shapley": "Shapley value", "banzhaf": "Banzhaf value", "loo": "Loss without the peer"}
"""Kinds of values in words."""


def run(options: ValueOptions) -> int:
    """Print the values of an experiment, and the credits that follow from them.

    Raises
    ------
    InputError
        Options do not go together, or a file of credits cannot be read.
    RunError
        Credits computed again are others.
    """
    stated = _stated(options)
    experiment = experiment_of(options)
    resolved = p2pfl.plan(experiment, unaccounted=options.unaccounted)
    method: str = options.method
    draws, metric = options.draws, options.metric
    if stated is not None:
        method, draws, metric = stated.method, stated.draws, stated.metric
    total = options.credits if stated is None else stated.total
    unaccounted, alone = options.unaccounted, total is not None
    result = valuation(resolved, method=method, draws=draws, metric=metric, alone=alone, unaccounted=unaccounted)
    warn_of_exact(resolved)
    credits = None if total is None else credits_of(resolved, result, total=total, draws=draws)
    if credits is not None and options.key is not None and options.out is not None:
        credits = sign_credits(credits, Identity.load(options.key))
        write_credits(credits, Path(options.out))
    tables = [values_table(result) if credits is None else credits_table(result, credits)]
    lines = [*sentences(result), *([] if credits is None else credit_sentences(credits))]
    header = ("peer", "samples", "value", "low", "high", "alone")
    rows = [header, *map(astuple, result.values)]
    if credits is not None:
        rows = [(*row, each) for row, each in zip(rows, ["credits", *_shares(credits).values()], strict=True)]

    def show(_results: dict[str, Any]) -> None:
        console = terminal.console()
        console.print(render(tables[0]))
        console.print()
        for line in lines:
            console.print(Text(line), soft_wrap=not console.is_terminal)

    status = terminal.write(
        options,
        asdict(result) | ({} if credits is None else {"credits": msgspec.to_builtins(credits)}),
        rows=rows,
        page=lambda: valuation_page(experiment.name, result, tables, lines),
        paper=lambda: Paper(valuation_title(experiment.name), tables, lines),
        show=show,
    )
    if stated is not None and credits is not None and (phrases := differences(stated, credits)):
        raise RunError(f"{options.check} is not what these data give: {'; '.join(phrases)}")
    return status


def _stated(options: ValueOptions) -> Credits | None:
    """Return the credits to compute again, after a check that the options go together."""
    if options.check is not None:
        if options.credits is not None or options.key is not None or options.out is not None:
            raise InputError("--check takes everything from the file; leave out --credits, --key and --out")
        return read_credits(Path(options.check))
    if (options.key is None) != (options.out is None) or (options.key is not None and options.credits is None):
        raise InputError("signed credits need --credits, --key and --out; give all three, or --credits alone")
    return None


def valuation_title(name: str) -> str:
    """Return the title of the values of an experiment."""
    return f"Value of the data of {name}"


def valuation_page(name: str, result: Valuation, tables: Sequence[FactTable], lines: Sequence[str]) -> str:
    """Return the page of the values of an experiment."""
    kind = METHOD_NAMES[result.method]
    sections: list[Section] = [
        ("values", kind, [_figure(result, kind)]),
        ("table", "Table", [*tables]),
        ("meaning", "What it means", [" ".join(lines)]),
    ]
    return page(valuation_title(name), sections, head=[Note(f"By {result.metric}.", style="small")])


def sentences(result: Valuation) -> list[str]:
    """Return the meaning of the values in words."""
    if result.exact:
        subsets = f"all {result.coalitions} subsets of the parties, from the products of their columns"
        return [f"Shares of {result.metric}, {result.everybody:.4f} in all, over {subsets}: nothing is trained again."]
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


def credits_table(result: Valuation, credits: Credits) -> FactTable:
    """Return the credits, the most first, with the score that each peer has alone and with all."""
    intervals = any(each.low is not None for each in credits.credits)
    sizes = {each.peer: each.samples for each in result.values}
    columns = ("peer", "samples", METHOD_NAMES[result.method], "credits", *(["95 % interval"] * intervals), "alone")
    rows = [
        (
            each.peer,
            sizes[each.peer],
            Styled(f"{each.value:+.4f}", "" if each.value >= 0 else "bad"),
            each.credits,
            *([f"{each.low:.0f} to {each.high:.0f}"] if each.low is not None and each.high is not None else []),
            Styled(f"{each.alone:.4f}", "bad" if each.peer in credits.losing else ""),
        )
        for each in sorted(credits.credits, key=lambda each: (-each.credits, each.peer))
    ]
    return FactTable(f"{credits.total:,} credits", columns, rows)


def credit_sentences(credits: Credits) -> list[str]:
    """Return the meaning of credits in words, and who should look at them again."""
    lines = [f"Credits are whole shares of the positive values; together all peers score {credits.together:.4f}."]
    if credits.losing:
        verb = "scores" if len(credits.losing) == 1 else "score"
        lines.append(f"{', '.join(credits.losing)} {verb} higher alone, and would lose by taking part.")
    lines += [
        f"{each.one} and {each.other} have {each.rows} rows in common; copies raise what peers get together."
        for each in credits.copies
    ]
    return lines


def _shares(credits: Credits) -> dict[str, int]:
    """Return the credits by peer, in the order of the values."""
    return {each.peer: each.credits for each in credits.credits}


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
