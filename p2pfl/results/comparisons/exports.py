"""Runs and comparisons as CSV, JSON and tables of a paper."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.core.texts import write_csv
from p2pfl.results.comparisons import comparison_tables, wording
from p2pfl.results.comparisons.comparison import Comparison, RunOutcome
from p2pfl.results.formats import size
from p2pfl.results.pages.features import regression_tables
from p2pfl.results.pages.gains import INTERVAL_HEAD, gain_table
from p2pfl.results.records import Record, columns_of
from p2pfl.results.run import Run
from p2pfl.results.run_files import explanation_of
from p2pfl.results.table_files import Paper


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
    lines = []
    for index, each in enumerate(comparison.settings):
        against = differences.get(index)
        reference = {} if against is None else comparison.settings[against.reference].values
        score, difference = each.score, None if against is None else against.difference
        lines.append(
            {key: each.values[key] for key in comparison.keys}
            | {comparison.metric: score and score.mean, "half_interval": score and score.half}
            | {"seeds": score.count if score else 0}
            | {name: getattr(each, name) for name in ("rounds", "bytes_sent", "gradients", "seconds", "failed")}
            | {f"reference {key}": reference.get(key) for key in comparison.keys}
            | {"difference": difference and difference.mean, "difference_half_interval": difference and difference.half}
            | {
                "pairs": difference and difference.count,
                "p": against and against.p,
                "p_holm": against and against.adjusted,
            }
        )
    return _csv([*lines[0]] if lines else [], [[*line.values()] for line in lines])


def comparison_paper(comparison: Comparison, *, name: str) -> Paper:
    """Return a table of the settings for a paper, with its title."""
    scores = comparison_tables.scores(comparison).without("seeds", "")
    rows = [
        [*row, size(each.bytes_sent), "" if each.gradients is None else f"{each.gradients:.0f}"]
        for each, row in zip(comparison.settings, scores.rows, strict=True)
    ]
    notes = [wording.bold(comparison), *wording.notes(comparison), *wording.warnings(comparison)]
    return Paper(name, [replace(scores, heads=[*scores.heads, "sent", "gradients"], rows=rows)], notes)


def run_paper(run: Run) -> Paper:
    """Return the coefficients of a run, or its scores by peer, for a paper.

    Raises
    ------
    InputError
        The run has not ended, has no coefficients and no score, or is that of one peer.
    """
    summary = run.summary
    explanation = explanation_of(summary)
    if explanation is not None and explanation.regression is not None:
        regression = explanation.regression
        return Paper(run.experiment.name, regression_tables(regression), regression.notes())
    if "per_peer" not in summary or summary["metric"] is None:
        raise InputError(
            "--tex and --docx write scores by peer, which this run does not have; use --csv for its records"
        )
    table = gain_table(summary, most=len(summary["per_peer"])).without("samples", INTERVAL_HEAD)
    notes = [f"{summary['metric']} after {summary['rounds']} rounds, seed {run.experiment.seed}"]
    return Paper(run.experiment.name, [table], notes)


def records_csv(records: Sequence[Record]) -> str:
    """Return one line per peer and round, with a column for each score."""
    columns = columns_of(records)
    return _csv([*columns], zip(*columns.values(), strict=True))


def _csv(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    write_csv(text, [header, *lines])
    return text.getvalue()
