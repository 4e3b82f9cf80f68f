"""The page of a description of the data of all peers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from p2pfl.results.facts import Block, BlockGroup, FactTable, Figure, Note, Section, Styled
from p2pfl.results.pages.rendering import page
from p2pfl.results.plots import COLOURS, blank

MOST_LEVELS = 12
"""Levels of a column that a figure shows."""

MOST_PAIRS = 24
"""Features up to which the page has the table of all correlations."""


def description_page(name: str, found: Mapping[str, Any], *, disclosed: str) -> str:
    """Return the page of a description.

    Parameters
    ----------
    name
        Name of the experiment.
    found
        Results of :meth:`p2pfl.plugins.exact.statistics.described.Described.results`.
    disclosed
        Facts that the totals have shown to each peer.
    """
    hidden = f"fewer than {found['least']} samples"
    numbers = [each for each in found["columns"] if each["kind"] == "number"]
    others = [each for each in found["columns"] if each["kind"] == "levels"]
    sections: list[Section] = [
        ("numbers", "Numbers", [number_table(numbers, private=found["private"])]),
        ("levels", "Levels", [level_table(others, hidden=hidden)]),
        ("distributions", "Distributions", _figures(found["columns"], hidden=hidden)),
        ("correlations", "Correlations", [_correlations(found)]),
        ("disclosure", "What peers have learned", [f"Every peer has learned {disclosed}."]),
    ]
    kept = "Every number has private noise." if found["private"] else f"Nothing is stated of {hidden}."
    head = Note(f"{found['samples']} samples of all peers, added up by exact totals. {kept}", style="small")
    warned = [Note(f"{each[:1].upper()}{each[1:]}.", style="warning") for each in found["warnings"]]
    return page(f"Description of {name}", sections, head=[head, *warned])


def cell(value: float | None) -> str:
    """Return a statistic with four digits; a dash where it is not stated.

    Examples
    --------
    >>> cell(38.6049), cell(189012.4), cell(3.2e-7), cell(None)
    ('38.6', '189012', '3.2e-07', '-')
    """
    if value is None:
        return "-"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def number_table(columns: Sequence[Mapping[str, Any]], *, private: bool) -> FactTable | None:
    """Return the statistics of columns of numbers; ``None`` if there are none."""
    if not columns:
        return None
    shares = list(columns[0]["quantiles"])
    heads = ("column", "values", "missing", "mean", "deviation", "low", *(f"{float(s):.0%}" for s in shares), "high")
    rows = [
        (
            each["name"],
            each["count"],
            each["missing"],
            cell(each["mean"]),
            cell(each["deviation"]),
            cell(each["low"]),
            *(cell(each["quantiles"][share]) for share in shares),
            cell(each["high"]),
        )
        for each in columns
    ]
    exact = "Quantiles and ends are exact to 1/128, whole numbers up to 256 to the last digit"
    return FactTable("Quantiles interpolate the histogram, and ends are bounds" if private else exact, heads, rows)


def level_table(columns: Sequence[Mapping[str, Any]], *, hidden: str) -> FactTable | None:
    """Return the samples of each level of the other columns; ``None`` if there are none."""
    rows = [
        (each["name"], level, hidden if count is None else count, "-" if count is None else f"{count / total:.1%}")
        for each in columns
        for level, count in each["levels"].items()
        for total in [max(1, each["count"])]
    ]
    return FactTable("Samples of each level", ("column", "level", "samples", "share"), rows, text=2) if rows else None


def _figures(columns: Sequence[Mapping[str, Any]], *, hidden: str) -> list[Block | None]:
    drawn = [figure for each in columns if (figure := _figure(each, hidden=hidden))]
    said = Note(f"Samples by bin or level. A dashed line at the foot stands for {hidden}.", style="small")
    return [said, BlockGroup(drawn, "figures")] if drawn else []


def _figure(column: Mapping[str, Any], *, hidden: str) -> Figure | None:
    """Return the histogram of a column, or the samples of its first levels; ``None`` if all are zero."""
    if column["kind"] == "number":
        counts, edges = column["counts"], column["edges"]
        known = counts and edges[0] != edges[-1]
        about = f"{len(counts)} bins from {edges[0]:.4g} to {edges[-1]:.4g}" if known else ""
        ticks = dict(enumerate(f"{float(f'{edge:.3g}'):g}" for edge in edges)) if known else {}
        step, align = max(1, (len(edges) - 1) // 4), "edge"
    else:
        counts = [*column["levels"].values()][:MOST_LEVELS]
        names = [*column["levels"]][:MOST_LEVELS]
        about = ", ".join(
            f"{name} {hidden if count is None else count}" for name, count in zip(names, counts, strict=True)
        )
        ticks, step, align = dict(enumerate(textwrap.shorten(name, 14, placeholder="…") for name in names)), 1, "center"
        more = len(column["levels"]) - len(names)
        about += f", and {more} more levels" if more else ""
    top = max((count or 0 for count in counts), default=0)
    if not top or not ticks:
        return None
    about = (
        f"{about}; at most {top} samples. A dashed foot: {hidden}."
        if None in counts
        else f"{about}; at most {top} samples."
    )
    shown = {place: ticks[place] for place in range(0, len(ticks), step)}
    return Figure(column["name"], about, partial(_bars, counts, shown, align=align))


def _bars(counts: Sequence[int | None], ticks: Mapping[int, str], *, align: str) -> Any:
    """Draw counts as bars; one that is not stated is a dashed line at its foot."""
    picture = blank()
    axes = picture.subplots()
    width = 0.96 if align == "edge" else 0.7
    axes.bar(range(len(counts)), [count or 0 for count in counts], width=width, align=align, color=COLOURS[0])
    foot = [
        (place, 1 + place) if align == "edge" else (place - 0.4, place + 0.4)
        for place, count in enumerate(counts)
        if count is None
    ]
    for low, high in foot:
        axes.plot((low, high), (0, 0), color=COLOURS[1], linestyle=":", linewidth=3, clip_on=False)
    axes.set_xticks([*ticks], [*ticks.values()], rotation=30 if len(ticks) > 5 else 0)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("samples")
    return picture


def _correlations(found: Mapping[str, Any]) -> FactTable | None:
    names, values = found["names"], found["correlations"]
    if not values:
        return None
    if len(names) <= MOST_PAIRS:
        caption = "Pearson's correlation of each pair, over the samples that have both values"
        return FactTable(
            caption, ["", *names], [[name, *map(_shaded, row)] for name, row in zip(names, values, strict=True)]
        )
    rows = [(one, two, f"{value:+.3f}") for one, two, value in strongest(names, values, most=40)]
    return FactTable("The strongest correlations", ("one", "other", "correlation"), rows, text=2)


def _shaded(value: float | None) -> str:
    if value is None:
        return "-"
    strength = min(4, int(abs(value) * 5))
    return Styled(f"{value:+.2f}", "" if not strength else f"m{strength}" if value > 0 else f"m{strength} minus")


def strongest(
    names: Sequence[str], values: Sequence[Sequence[float | None]], *, most: int
) -> list[tuple[str, str, float]]:
    """Return the pairs of largest correlation.

    Levels of one column, which exclude each other, are left out, and so is the first of two levels.
    """
    columns = [name.split(": ")[0] if ": " in name else None for name in names]
    kept = [
        place
        for place, column in enumerate(columns)
        if column is None or columns.count(column) != 2 or columns.index(column) != place
    ]
    found = [
        (names[one], names[two], value)
        for number, one in enumerate(kept)
        for two in kept[:number]
        if (value := values[one][two]) is not None and (columns[one] is None or columns[one] != columns[two])
    ]
    return sorted(found, key=lambda pair: -abs(pair[2]))[:most]
