"""The tables of a comparison as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from p2pfl.core.texts import printable
from p2pfl.results.comparing import wording
from p2pfl.results.comparing.comparison import Comparison
from p2pfl.results.formats import size


def keys(comparison: Comparison) -> list[str]:
    """Return the heads of the first columns, which say what a setting is."""
    return wording.heads(comparison.keys) or [""]


def scores(comparison: Comparison) -> list[list[str]]:
    """Return the scores and differences: the heads, and the cells of each setting."""
    differences = {each.setting: each for each in comparison.differences}
    rows = [[*keys(comparison), "seeds", comparison.metric, "difference", "p", ""]]
    for place, each in enumerate(comparison.settings):
        found = differences.get(place)
        compared = ["", "", ""]
        if found is not None:
            difference = wording.number(found.difference, sign=True)
            compared = [difference, wording.probability(found.adjusted), wording.verdict(comparison, found)]
        seeds = f"{len(each.by_seed)}" + (f" of {len(each.by_seed) + each.failed}" if each.failed else "")
        rows.append([*_values(comparison, place), seeds, wording.number(each.score), *compared])
    return rows


def costs(comparison: Comparison) -> list[list[str]]:
    """Return what a run of each setting costs in the mean: the heads, and the cells of each setting."""
    rows = [[*keys(comparison), "rounds", "sent", "gradients", "time"]]
    for place, each in enumerate(comparison.settings):
        gradients = "" if each.gradients is None else f"{each.gradients:,.0f}"
        cost = f"{each.rounds:g}", size(each.bytes_sent), gradients, f"{each.seconds:.1f} s"
        rows.append([*_values(comparison, place), *cost])
    return rows


def text(comparison: Comparison) -> str:
    """Return both tables, and what one must know to read them."""
    left = len(keys(comparison))
    said = [*wording.notes(comparison), *(f"WARNING: {each}" for each in wording.warnings(comparison))]
    tables = ["\n".join(_aligned(rows, left=left)) for rows in (scores(comparison), costs(comparison))]
    return printable("\n\n".join([*tables, "\n".join(said)]).rstrip(), keep="\n")


def _values(comparison: Comparison, place: int) -> list[str]:
    values = comparison.settings[place].values
    return [*values.values()] or [wording.setting(values)]


def _aligned(rows: Sequence[Sequence[str]], *, left: int) -> Iterator[str]:
    """Yield lines whose numbers are aligned to the right; the first columns, and one without a head, are text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = [place < left or not head for place, head in enumerate(rows[0])]
    for row in rows:
        cells = zip(row, widths, words, strict=True)
        yield "  ".join(cell.ljust(width) if word else cell.rjust(width) for cell, width, word in cells).rstrip()
