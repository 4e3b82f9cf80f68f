"""Runs and comparisons as CSV, JSON and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from p2pfl.report.comparing import wording
from p2pfl.report.comparing.comparison import Comparison, Difference, RunOutcome
from p2pfl.report.comparing.intervals import Estimate
from p2pfl.report.records import Record, columns_of
from p2pfl.texts import printable


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values, with its sentences."""
    table: dict[str, Any] = msgspec.to_builtins(comparison, str_keys=True)
    return table | {"notes": [*wording.notes(comparison)], "warnings": [*wording.warnings(comparison)]}


def outcomes_csv(outcomes: Sequence[RunOutcome], *, metric: str) -> str:
    """Return one line per run.

    Examples
    --------
    >>> runs = [RunOutcome(values={"rate": "0.1"}, seed=3, score=0.5, rounds=2, bytes_sent=80, folder="cells/a")]
    >>> print(outcomes_csv(runs, metric="accuracy"), end="")
    rate,seed,accuracy,rounds,bytes_sent,gradients,seconds,folder,failure
    0.1,3,0.5,2,80,,0.0,cells/a,
    """
    keys = list(outcomes[0].values) if outcomes else []
    names = ("rounds", "bytes_sent", "gradients", "seconds", "folder", "failure")
    lines = [
        [*(each.values[key] for key in keys), each.seed, each.score, *(getattr(each, name) for name in names)]
        for each in outcomes
    ]
    return _csv([*keys, "seed", metric, *names], lines)


def comparison_csv(comparison: Comparison) -> str:
    """Return one line per setting, with its difference to its reference."""
    differences = {each.setting: each for each in comparison.differences}
    names = ("rounds", "bytes_sent", "gradients", "seconds", "failed")
    header = [
        *comparison.keys,
        comparison.metric,
        "half_interval",
        "seeds",
        *names,
        *(f"reference {key}" for key in comparison.keys),
        *("difference", "difference_half_interval", "pairs", "p", "p_holm"),
    ]
    lines = []
    for place, each in enumerate(comparison.settings):
        score = each.score
        found = [None, None, 0] if score is None else [score.mean, score.half, score.count]
        lines.append(
            [
                *(each.values[key] for key in comparison.keys),
                *found,
                *(getattr(each, name) for name in names),
                *_compared(comparison, differences.get(place)),
            ]
        )
    return _csv(header, lines)


def comparison_tex(comparison: Comparison) -> str:
    """Return a table of the settings for LaTeX with the package booktabs."""
    differences = {each.setting: each for each in comparison.differences}
    names = [*wording.heads(comparison.keys), comparison.metric, "difference", "$p$", "bytes", "gradients"]
    lines = []
    for place, each in enumerate(comparison.settings):
        found = differences.get(place)
        mean = _estimate(each.score)
        cells = [
            *(_tex(value) for value in each.values.values()),
            rf"\textbf{{{mean}}}" if each.best else mean,
            "" if found is None else _estimate(found.difference, sign=True),
            "" if found is None else wording.probability(found.adjusted).replace("< 0.001", "$<$ 0.001"),
            f"{each.bytes_sent:.3g}",
            "" if each.gradients is None else f"{each.gradients:.0f}",
        ]
        lines.append(" & ".join(cells) + r" \\")
    heads = " & ".join(name if name == "$p$" else _tex(name) for name in names) + r" \\"
    form = "l" * len(comparison.keys) + "r" * (len(names) - len(comparison.keys))
    notes = [f"% {printable(sentence)}" for sentence in (*wording.notes(comparison), *wording.warnings(comparison))]
    body = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", heads, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*notes, *body]) + "\n"


def _estimate(found: Estimate | None, *, sign: bool = False) -> str:
    text = wording.number(found, sign=sign).replace("±", r"\pm")
    return f"${text}$" if text else ""


SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
"""Characters that mean something else in LaTeX."""


def _tex(text: str) -> str:
    r"""Return a text for LaTeX.

    Examples
    --------
    >>> print(_tex("gradient_tracking 5%"))
    gradient\_tracking 5\%
    """
    return "".join(SPECIAL.get(character, character) for character in printable(text))


def _compared(comparison: Comparison, each: Difference | None) -> list[Any]:
    if each is None:
        return [None] * (len(comparison.keys) + 5)
    reference = comparison.settings[each.reference].values
    found = each.difference
    return [
        *(reference[key] for key in comparison.keys),
        *(found.mean, found.half, found.count, each.p, each.adjusted),
    ]


def records_csv(records: Sequence[Record]) -> str:
    """Return one line per peer and round, with a column for each score."""
    columns = columns_of(records)
    return _csv([*columns], zip(*columns.values(), strict=True))


def _csv(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue()
