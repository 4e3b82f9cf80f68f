"""The page of a description of the data of all peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.results.pages.bars import histogram, levels, matrix
from p2pfl.results.pages.markup import Markup, join, tag
from p2pfl.results.pages.parts import page, table

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
    sections = [
        ("numbers", "Numbers", _numbers(numbers, private=found["private"])),
        ("levels", "Levels", _levels(others, hidden=hidden)),
        ("distributions", "Distributions", _figures(found["columns"], hidden=hidden)),
        ("correlations", "Correlations", _correlations(found)),
        ("disclosure", "What peers have learned", tag("p", f"Every peer has learned {disclosed}.")),
    ]
    kept = "Every number has private noise." if found["private"] else f"Nothing is stated of {hidden}."
    head = tag("p", f"{found['samples']} samples of all peers, added up by exact totals. {kept}", class_="small")
    warned = [tag("p", f"Warning: {each}.") for each in found["warnings"]]
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


def _numbers(columns: Sequence[Mapping[str, Any]], *, private: bool) -> Markup | None:
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
    return table("Quantiles interpolate the histogram, and ends are bounds" if private else exact, heads, rows)


def _levels(columns: Sequence[Mapping[str, Any]], *, hidden: str) -> Markup | None:
    rows = [
        (each["name"], level, hidden if count is None else count, "-" if count is None else f"{count / total:.1%}")
        for each in columns
        for level, count in each["levels"].items()
        for total in [max(1, each["count"])]
    ]
    return table("Samples of each level", ("column", "level", "samples", "share"), rows, text=2) if rows else None


def _figures(columns: Sequence[Mapping[str, Any]], *, hidden: str) -> Markup | None:
    drawn = []
    for place, each in enumerate(columns):
        given = {"title": each["name"], "name": f"column{place}", "hidden": hidden}
        if each["kind"] == "number":
            drawn.append(histogram(each["edges"], each["counts"], **given))
        else:
            drawn.append(levels(list(each["levels"].items()), **given))
    kept = [each for each in drawn if each is not None]
    said = tag("p", f"Samples by bin or level. A dashed line at the foot stands for {hidden}.", class_="small")
    return join([said, tag("div", kept, class_="figures")]) if kept else None


def _correlations(found: Mapping[str, Any]) -> Markup | None:
    names, values = found["names"], found["correlations"]
    if not values:
        return None
    if len(names) <= MOST_PAIRS:
        return matrix(
            names, values, caption="Pearson's correlation of each pair, over the samples that have both values"
        )
    rows = [(one, two, f"{value:+.3f}") for one, two, value in strongest(names, values, most=40)]
    return table("The strongest correlations", ("one", "other", "correlation"), rows, text=2)


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
