"""Runs and comparisons as CSV, JSON and LaTeX."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.core.texts import printable, write_csv
from p2pfl.results.comparing import wording
from p2pfl.results.comparing.comparison import Comparison, Difference, RunOutcome
from p2pfl.results.comparing.intervals import Estimate
from p2pfl.results.formats import number
from p2pfl.results.records import Record, columns_of
from p2pfl.results.run import Run


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
    names = [*wording.heads(comparison.keys), comparison.metric, "difference", "$p$", "MB sent", "gradients"]
    lines = []
    for place, each in enumerate(comparison.settings):
        found = differences.get(place)
        mean = _estimate(each.score)
        cells = [
            *(_tex(value) for value in each.values.values()),
            rf"$\mathbf{{{mean.strip('$')}}}$" if each.leading and mean else mean,
            "" if found is None else _estimate(found.difference, sign=True),
            "" if found is None else wording.probability(found.adjusted).replace("< 0.001", "$<$ 0.001"),
            _megabytes(each.bytes_sent),
            "" if each.gradients is None else f"{each.gradients:.0f}",
        ]
        lines.append(" & ".join(cells) + r" \\")
    notes = [wording.bold(comparison), *wording.notes(comparison), *wording.warnings(comparison)]
    return _tabular(names, lines, text=len(comparison.keys), notes=notes)


def run_tex(run: Run) -> str:
    """Return the scores of a run by peer for LaTeX with the package booktabs.

    Raises
    ------
    InputError
        The run has not ended, has no score, or is that of one peer.
    """
    summary = run.summary
    if "per_peer" not in summary or summary["metric"] is None:
        raise InputError("--tex writes scores by peer, which this run does not have; use --csv for its records")
    rows = [
        [_tex(name), *map(_score, (each["alone"], each["together"])), _score(_gain(each), sign=True)]
        for name, each in summary["per_peer"].items()
    ]
    lines = [" & ".join(cells) + r" \\" for cells in rows]
    total = [_score(summary[key]) for key in ("alone", "together")]
    lines.append(r"\midrule")
    lines.append(rf"mean & {' & '.join(total)} & {_score(_gain(summary), sign=True)} \\")
    if summary["pooled"] is not None:
        lines.append(rf"one model on all data & & {_score(summary['pooled'])} & \\")
    notes = [f"{summary['metric']} after {summary['rounds']} rounds, seed {run.experiment.seed}"]
    return _tabular(["peer", "alone", "together", "gain"], lines, text=1, notes=notes)


def _gain(scores: Mapping[str, Any]) -> float | None:
    alone, together = scores["alone"], scores["together"]
    return None if alone is None or together is None else together - alone


def _score(value: float | None, *, sign: bool = False) -> str:
    if value is None or math.isnan(value):
        return ""
    return f"${'+' if sign and value > 0 else ''}{number(value)}$"


def _tabular(names: Sequence[str], lines: Sequence[str], *, text: int, notes: Iterable[str]) -> str:
    """Return a table whose first columns are text, with comments above it."""
    heads = " & ".join(name if name == "$p$" else _tex(name) for name in names) + r" \\"
    form = "l" * text + "r" * (len(names) - text)
    body = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", heads, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*(f"% {printable(sentence)}" for sentence in notes), *body]) + "\n"


def _megabytes(count: float) -> str:
    """Return a number of bytes in megabytes, with three digits or all before the point.

    Examples
    --------
    >>> _megabytes(43_170_000), _megabytes(9_640), _megabytes(1_234_500_000)
    ('43.2', '0.00964', '1234')
    """
    mega = count / 1e6
    return f"{mega:.0f}" if mega >= 1000 else f"{mega:.3g}"


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
    write_csv(text, [header, *lines])
    return text.getvalue()
