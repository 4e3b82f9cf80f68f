"""``p2pfl report``: tables, plots and files of one run or several."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from p2pfl.cli import comparisons, tables
from p2pfl.errors import InputError
from p2pfl.report import Run
from p2pfl.report.comparing.comparison import Comparison
from p2pfl.report.comparing.exports import comparison_csv, comparison_json, records_csv
from p2pfl.report.comparing.outcomes import between, is_sweep, load_sweep


def show(options: argparse.Namespace) -> int:
    """Show one run, several side by side, or a sweep."""
    folders = [Path(folder) for folder in options.runs]
    if len(folders) == 1 and not is_sweep(folders[0]):
        return _one(Run.load(folders[0]), options)
    if options.plot:
        raise InputError("--plot draws one run; use --html for several")
    found, _ = _several(folders, options)
    if options.csv:
        _write(options.csv, comparison_csv(found))
    if options.json:
        print(json.dumps(comparison_json(found), allow_nan=False))
    else:
        comparisons.show(found, console=Console(highlight=False))
    return 0


def _one(run: Run, options: argparse.Namespace) -> int:
    if options.plot:
        run.plot(options.plot)
    if options.csv:
        _write(options.csv, records_csv(run.metrics))
    if options.json:
        print(json.dumps(run.summary))
    else:
        tables.history(run)
    return 0


def _several(folders: list[Path], options: argparse.Namespace) -> tuple[Comparison, list[Run]]:
    """Return the comparison of a sweep or of several runs, and the runs."""
    if not any(is_sweep(folder) for folder in folders):
        runs = [Run.load(folder) for folder in folders]
        return between(runs, metric=options.metric), runs
    if len(folders) > 1:
        raise InputError("a sweep is shown by itself; name one sweep, or several runs")
    [folder] = folders
    made = load_sweep(folder)
    if options.metric not in {None, made.metric}:
        raise InputError(f"the sweep compares {made.metric}; run it again with --metric {options.metric}")
    return made.comparison, [Run.load(folder / each.folder) for each in made.outcomes if each.folder]


def _write(path: str, text: str) -> None:
    """Write a file that the user has named."""
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); choose another place") from None
