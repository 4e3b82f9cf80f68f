"""Pages and tables of statistics: descriptions and principal components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from p2pfl.plugins.exact.statistics.group_comparison import group_notes, group_tables
from p2pfl.results.charts import Chart, Curve
from p2pfl.results.facts import Block, BlockGroup, FactTable, Figure, Note, Section, Styled
from p2pfl.results.pages.rendering import page
from p2pfl.results.plots import COLOURS, blank, chart_figure
from p2pfl.results.table_files import Paper

MAX_MATRIX = 24
"""Features up to which the page has the table of all correlations."""

MAX_PAIRS = 40
"""Correlations that the page lists, of more features."""

MAX_COMPONENTS = 30
"""Components that the page lists."""

MAX_LOADINGS = 4
"""Features that the page names of a component."""


def description_page(name: str, results: Mapping[str, Any], *, disclosed: str) -> str:
    """Return the page of a description.

    Parameters
    ----------
    name
        Name of the experiment.
    results
        Results of :func:`p2pfl.plugins.exact.statistics.described.described`.
    disclosed
        Facts that the totals have shown to each peer.
    """
    hidden = f"fewer than {results['least']} samples"
    numbers = [each for each in results["columns"] if each["kind"] == "number"]
    others = [each for each in results["columns"] if each["kind"] == "levels"]
    sections: list[Section] = [
        ("numbers", "Numbers", [number_table(numbers, private=results["private"])]),
        ("levels", "Levels", [level_table(others, hidden=hidden)]),
        ("distributions", "Distributions", _histograms(numbers, hidden=hidden)),
        ("correlations", "Correlations", [_correlations(results)]),
    ]
    if "groups" in results:
        notes = [Note(text, style="small") for text in group_notes(results)]
        sections.insert(0, ("groups", "Table 1", [*group_tables(results), *notes]))
    kept = "every number has private noise" if results["private"] else smallest_stated(results)
    kept = f"{kept[:1].upper()}{kept[1:]}."
    head = f"{results['samples']} samples of all peers, added up by exact totals. {kept}"
    warnings = [Note(f"{each[:1].upper()}{each[1:]}.", style="warning") for each in results["warnings"]]
    return statistics_page(f"Description of {name}", head, sections, disclosed, warnings)


def smallest_stated(results: Mapping[str, Any]) -> str:
    """Return the words on the least number of samples that a description states.

    Examples
    --------
    >>> smallest_stated({"least": 5, "columns": [{"missing": 2}, {"levels": {}}]})
    'nothing but missing values is stated of fewer than 5'
    """
    few = any(0 < column.get("missing", 0) < results["least"] for column in results["columns"])
    return f"nothing{' but missing values' if few else ''} is stated of fewer than {results['least']}"


def description_paper(name: str, results: Mapping[str, Any]) -> Paper:
    """Return the tables of a description for a paper: Table 1 alone if there are groups."""
    if "groups" in results:
        return Paper(f"Description of {name}", group_tables(results), group_notes(results))
    hidden = f"fewer than {results['least']}"
    numbers = [each for each in results["columns"] if each["kind"] == "number"]
    others = [each for each in results["columns"] if each["kind"] == "levels"]
    made = [number_table(numbers, private=results["private"]), level_table(others, hidden=hidden)]
    return Paper(f"Description of {name}", [table for table in made if table is not None])


def components_page(name: str, results: Mapping[str, Any], *, disclosed: str) -> str:
    """Return the page of principal components.

    Parameters
    ----------
    name, disclosed
        As of :func:`description_page`.
    results
        Results of :func:`p2pfl.plugins.exact.statistics.pca.projected`.
    """
    sections: list[Section] = [
        ("variance", "Variance", [_variance(results)]),
        ("components", "Components", [components_table(results)]),
    ]
    units = "features divided by their deviations" if results["standardised"] else "features in their own units"
    head = f"{results['samples']} samples of all peers, {len(results['names'])} {units}."
    return statistics_page(f"Principal components of {name}", head, sections, disclosed)


def statistics_page(
    title: str, head: str, sections: list[Section], disclosed: str, warnings: Sequence[Note] = ()
) -> str:
    """Return a page whose last section is what peers have learned."""
    disclosure: Section = ("disclosure", "What peers have learned", [f"Every peer has learned {disclosed}."])
    return page(title, [*sections, disclosure], head=[Note(head, style="small"), *warnings])


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


def _histograms(columns: Sequence[Mapping[str, Any]], *, hidden: str) -> list[Block | None]:
    drawn = [
        Figure(each["name"], _summary(each, hidden=hidden), partial(_bars, each["counts"], each["edges"]))
        for each in columns
        if any(each["counts"]) and each["edges"][0] != each["edges"][-1]
    ]
    note = Note(f"Samples by bin. A dashed line at the foot stands for {hidden}.", style="small")
    return [note, BlockGroup(drawn, "figures")] if drawn else []


def _summary(column: Mapping[str, Any], *, hidden: str) -> str:
    counts, edges = column["counts"], column["edges"]
    top = max(count or 0 for count in counts)
    summary = f"{len(counts)} bins from {edges[0]:.4g} to {edges[-1]:.4g}; at most {top} samples."
    return f"{summary} A dashed foot: {hidden}." if None in counts else summary


def _bars(counts: Sequence[int | None], edges: Sequence[float]) -> Any:
    """Draw counts as bars; one that is not stated is a dashed line at its foot."""
    picture = blank()
    axes = picture.subplots()
    axes.bar(range(len(counts)), [count or 0 for count in counts], width=0.96, align="edge", color=COLOURS[0])
    for number in (number for number, count in enumerate(counts) if count is None):
        axes.plot((number, 1 + number), (0, 0), color=COLOURS[1], linestyle=":", linewidth=3, clip_on=False)
    ticks = range(0, len(edges), max(1, (len(edges) - 1) // 4))
    labels = [f"{float(f'{edges[number]:.3g}'):g}" for number in ticks]
    axes.set_xticks([*ticks], labels, rotation=30 if len(ticks) > 5 else 0)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("samples")
    return picture


def _correlations(results: Mapping[str, Any]) -> FactTable | None:
    names, values = results["names"], results["correlations"]
    if not values:
        return None
    if len(names) <= MAX_MATRIX:
        caption = "Pearson's correlation of each pair, over the samples that have both values"
        return FactTable(
            caption, ["", *names], [[name, *map(_shaded, row)] for name, row in zip(names, values, strict=True)]
        )
    rows = [(one, two, f"{value:+.3f}") for one, two, value in strongest(names, values, most=MAX_PAIRS)]
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
        index
        for index, column in enumerate(columns)
        if column is None or columns.count(column) != 2 or columns.index(column) != index
    ]
    pairs = [
        (names[one], names[two], value)
        for number, one in enumerate(kept)
        for two in kept[:number]
        if (value := values[one][two]) is not None and (columns[one] is None or columns[one] != columns[two])
    ]
    return sorted(pairs, key=lambda pair: -abs(pair[2]))[:most]


def _variance(results: Mapping[str, Any]) -> Block | None:
    share = results["share"][:MAX_COMPONENTS]
    places = [float(index + 1) for index in range(len(share))]
    whole = list(accumulate(share))
    curves = [Curve("each", places, share, style=0), Curve("all so far", places, whole, style=1)]
    about = f"The first component has {share[0]:.1%} of the variance, the first {len(share)} have {whole[-1]:.1%}."
    chart = Chart("Share of the variance", about, "component", "share", curves, whole=True)
    return BlockGroup([chart_figure(chart)], "figures")


def components_table(results: Mapping[str, Any], *, most: int = MAX_COMPONENTS) -> FactTable:
    """Return the first components: largest loadings, variance and share of it."""
    columns = (results["components"][:most], results["variance"], results["share"], accumulate(results["share"]))
    rows = [
        (number, _largest(results["names"], loadings), f"{variance:.5g}", f"{share:.1%}", f"{whole:.1%}")
        for number, (loadings, variance, share, whole) in enumerate(zip(*columns, strict=False), start=1)
    ]
    heads = ("component", "largest loadings", "variance", "share", "in all")
    return FactTable("Largest loadings and variance", heads, rows, text=2)


def _largest(names: Sequence[str], loadings: Sequence[float]) -> str:
    """Return the features that a component is made of, the largest loadings first."""
    order = sorted(range(len(names)), key=lambda number: -abs(loadings[number]))[:MAX_LOADINGS]
    return ", ".join(f"{names[number]} {loadings[number]:+.2f}" for number in order)
