"""``p2pfl report``: tables, plots and files of one run or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from p2pfl.cli import tables, terminal
from p2pfl.cli.core_commands import ReportOptions
from p2pfl.core.errors import InputError
from p2pfl.results import Run, tensorboard
from p2pfl.results.comparisons import figures, wording
from p2pfl.results.comparisons.comparison import Comparison, RunOutcome
from p2pfl.results.comparisons.exports import comparison_csv, comparison_json, comparison_paper, records_csv, run_paper
from p2pfl.results.comparisons.outcomes import compare_runs, is_sweep, load_sweep
from p2pfl.results.pages.comparison_page import ComparedRun, comparison_page
from p2pfl.results.pages.run_page import run_page
from p2pfl.results.run_files import explanation_of


def show(options: ReportOptions) -> int:
    """Show one run, several side by side, or a sweep."""
    folders = [Path(folder) for folder in options.runs]
    if len(folders) == 1 and not is_sweep(folders[0]):
        return _one(Run.load(folders[0]), options)
    comparison, parts, name = _several(folders, options)
    if options.plot:
        figures.figure(comparison, [(part.setting, part.run) for part in parts], by=options.by, path=options.plot)
        terminal.note(f"p2pfl: drew {options.plot}. {figures.caption(comparison)}")
    _write(options.html, lambda: comparison_page(comparison, parts, name=name))
    _write(options.csv, lambda: comparison_csv(comparison))
    terminal.write_paper(options, lambda: comparison_paper(comparison, name=name))
    if options.tensorboard:
        tensorboard.write(_runs_by_name(comparison, parts), Path(options.tensorboard))
    return terminal.answer(
        options, comparison_json(comparison), lambda _: tables.comparison(comparison, console=terminal.console())
    )


def _one(run: Run, options: ReportOptions) -> int:
    if options.plot:
        run.plot(options.plot)
    terminal.write_paper(options, lambda: run_paper(run))
    _write(options.html, lambda: run_page(run))
    _write(options.csv, lambda: records_csv(run.metrics))
    if options.tensorboard:
        tensorboard.write({Path(options.runs[0]).resolve().name: run}, Path(options.tensorboard))
    return terminal.answer(options, run.summary, lambda _: _show_run(run))


def _show_run(run: Run) -> None:
    """Print the rounds of a run, and importances or coefficients of a model that has them."""
    tables.history(run)
    explanation = explanation_of(run.summary)
    if explanation is None:
        return
    terminal.console().print()
    if explanation.regression is not None:
        tables.regression(explanation.regression)
    elif explanation.importances:
        tables.importances(explanation.importances)


def _several(folders: list[Path], options: ReportOptions) -> tuple[Comparison, list[ComparedRun], str]:
    """Return the comparison of a sweep or of several runs, the runs, and a title."""
    if not any(is_sweep(folder) for folder in folders):
        runs = [Run.load(folder) for folder in folders]
        comparison, outcomes = compare_runs(runs, metric=options.metric)
        return (
            comparison,
            _parts(comparison, zip(runs, outcomes, strict=True)),
            f"{len(runs)} runs of {runs[0].experiment.name}",
        )
    if len(folders) > 1:
        raise InputError("a sweep is shown by itself; name one sweep, or several runs")
    [folder] = folders
    made = load_sweep(folder)
    if options.metric not in {None, made.metric}:
        raise InputError(f"the sweep compares {made.metric}; run it again with --metric {options.metric}")
    ended = [(Run.load(folder / each.folder), each) for each in made.outcomes if each.folder]
    return made.comparison, _parts(made.comparison, ended), f"Sweep of {made.name}"


def _parts(comparison: Comparison, runs: Iterable[tuple[Run, RunOutcome]]) -> list[ComparedRun]:
    """Return the runs with the places of their settings."""
    numbers = {tuple(each.values.items()): number for number, each in enumerate(comparison.settings)}
    return [ComparedRun(run, numbers[tuple(outcome.values.items())]) for run, outcome in runs]


def _runs_by_name(comparison: Comparison, parts: Iterable[ComparedRun]) -> dict[str, Run]:
    """Return the runs of a comparison by setting and seed."""
    settings = comparison.settings
    return {
        f"{wording.setting(settings[part.setting].values)}, seed {part.run.experiment.seed}": part.run for part in parts
    }


def _write(path: str | None, text: Callable[[], str]) -> None:
    if path:
        with terminal.output(path) as file:
            file.write(text())
