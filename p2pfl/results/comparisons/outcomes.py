"""Results and costs of runs, read from their directories and from that of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.experiment import flat
from p2pfl.results.comparisons.comparison import Comparison, RunOutcome, compare
from p2pfl.results.formats import format_value
from p2pfl.results.notices.kinds import SCHEMA
from p2pfl.results.run import Run
from p2pfl.results.run_files import check_schema

SWEEP_FILE = "sweep.json"
"""In the directory of a sweep."""

NO_SCORE = "the run has no score, because no samples are held out; set data.test above 0"
"""Reason why a run cannot be compared."""

INCIDENTAL_KEYS = ("name", "seed")
"""Keys of an experiment in which runs of one setting may differ."""

INCIDENTAL_SECTIONS = ("transport.", "trust.")
"""Sections likewise."""


class SweepFile(msgspec.Struct, frozen=True, kw_only=True):
    """``sweep.json``.

    Attributes
    ----------
    schema
    name
        Experiment.
    study
        As its file states it.
    metric
    against
        Values of the reference, by key; empty for the best mean.
    budget
        Cost at which every run ends.
    outcomes
    """

    schema: Literal[1] = SCHEMA
    name: str
    study: dict[str, Any]
    metric: str
    against: dict[str, str]
    budget: str | None
    outcomes: tuple[RunOutcome, ...]

    @property
    def comparison(self) -> Comparison:
        """The settings side by side."""
        return compare(self.outcomes, metric=self.metric, against=self.against, budget=self.budget)


def is_sweep(folder: Path) -> bool:
    """Return whether a directory is that of a sweep."""
    return (folder / SWEEP_FILE).is_file()


def load_sweep(folder: Path) -> SweepFile:
    """Read the directory of a sweep.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    path = folder / SWEEP_FILE
    try:
        table = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        check_schema(table, path)
        return msgspec.convert(table, SweepFile, strict=False)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is not the result of a sweep ({error}); run the sweep again") from None


def outcome(run: Run, values: Mapping[str, str], *, metric: str | None = None, folder: str = "") -> RunOutcome:
    """Return the score and the costs of a run.

    Parameters
    ----------
    run
        The run; without a summary it has no score.
    values
        Settings that differ between the runs.
    metric
        Name of the score; that of the summary by default.
    folder
        Run directory, as it is to be shown.
    """
    summary, seed = run.summary, run.experiment.seed
    if "together" not in summary:
        reason = "it is the run of a single peer" if "scores" in summary else "the run is not finished"
        return RunOutcome(values=dict(values), seed=seed, folder=folder, failure=reason)
    score = summary["together"] if metric in {None, summary["metric"]} else _last_mean(run, str(metric))
    named = metric or summary["metric"]
    missing = f"the run has no score {named}, or it is not a number" if named else NO_SCORE
    return RunOutcome(
        values=dict(values),
        seed=seed,
        score=score,
        rounds=summary["rounds"],
        bytes_sent=summary["bytes_sent"],
        gradients=summary.get("gradients"),
        seconds=summary["wall_s"],
        folder=folder,
        failure=missing if score is None else None,
    )


def _last_mean(run: Run, metric: str) -> float | None:
    """Return the mean of a score over the last records of honest peers."""
    last = {record.peer: record for record in run.honest}
    values = [record.scores.get(metric, math.nan) for record in last.values()]
    mean = math.fsum(values) / len(values) if values else math.nan
    return mean if math.isfinite(mean) else None


def compare_runs(runs: Sequence[Run], *, metric: str | None = None) -> tuple[Comparison, list[RunOutcome]]:
    """Compare runs by the keys of the experiment file in which they differ; the first run names the reference.

    Returns
    -------
    tuple of Comparison and list of RunOutcome
        The comparison, and what each run gave.

    Raises
    ------
    InputError
        The runs have different scores, or two have the same settings and seed.
    """
    tables = [flat(run.experiment) for run in runs]
    keys = [
        key
        for key in dict.fromkeys(key for table in tables for key in table)
        if key not in INCIDENTAL_KEYS
        and not key.startswith(INCIDENTAL_SECTIONS)
        and len({repr(table.get(key)) for table in tables}) > 1
    ]
    metric = metric or common_metric(runs)
    outcomes = [
        outcome(run, {key: format_value(table.get(key)) for key in keys}, metric=metric, folder=str(run.folder or ""))
        for run, table in zip(runs, tables, strict=True)
    ]
    _check_distinct(outcomes)
    return compare(outcomes, metric=metric, against=outcomes[0].values), outcomes


def _check_distinct(outcomes: Sequence[RunOutcome]) -> None:
    """Refuse two runs of one setting and seed: no comparison can hold both."""
    seen: dict[tuple[tuple[tuple[str, str], ...], int], str] = {}
    for number, each in enumerate(outcomes, start=1):
        setting = tuple(each.values.items()), each.seed
        name = each.folder or f"run {number}"
        if setting in seen:
            raise InputError(
                f"{seen[setting]} and {name} have the same settings and the seed {each.seed}, so they are one "
                "run twice; leave out one of them"
            )
        seen[setting] = name


def common_metric(runs: Sequence[Run]) -> str:
    """Return the score that all runs have.

    Raises
    ------
    InputError
        They have several, or none.
    """
    names = sorted({str(run.summary["metric"]) for run in runs if run.summary.get("metric")})
    if len(names) != 1:
        scores = f"different scores ({', '.join(names)})" if names else "no score"
        raise InputError(f"the runs have {scores}; compare runs that have one in common, or name it with --metric")
    return names[0]
