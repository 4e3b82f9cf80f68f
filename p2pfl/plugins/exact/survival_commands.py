"""``p2pfl survival``: survival curves of all peers, and the survival that a Cox regression predicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.text import Text

from p2pfl.cli import tables, terminal
from p2pfl.cli.experiments import experiment_of
from p2pfl.core.errors import InputError
from p2pfl.plugins.exact.exact_commands import SurvivalOptions
from p2pfl.plugins.exact.statistics.survival_results import survival
from p2pfl.plugins.exact.statistics_commands import computed, print_plan, tensors_of
from p2pfl.plugins.exact.survival.cox import Cox
from p2pfl.plugins.exact.survival.predicted_survival import predicted_survival
from p2pfl.plugins.exact.survival_page import (
    draw_survival,
    group_table,
    predicted_page,
    profile_table,
    sentences,
    share_table,
    survival_page,
    survival_paper,
    survival_rows,
    time_tables,
)
from p2pfl.results.facts import FactTable
from p2pfl.results.models.model_file import SavedModel, load
from p2pfl.results.models.predictor import Predictor, cells_of


def estimate_survival(options: SurvivalOptions) -> int:
    """Print curves of an experiment, those that peers have found, or those that a Cox regression predicts."""
    saved = load(options.experiment) if options.experiment.endswith(".safetensors") else None
    if saved is not None and isinstance(saved.exact, Cox):
        return _predict(options, saved, saved.exact)
    if options.profiles is not None:
        raise InputError("--profiles belongs to a saved model cox; leave it out")
    given = {"horizon": options.horizon, "width": options.width, "group": options.group}
    given |= {"cause": options.cause, "least": options.least}
    if options.union:
        given |= {"times": "union", "least": options.least or 1}
    if options.horizon is None and not options.union and not _has_grid(options):
        raise InputError(
            "the grid of times needs its end; give --horizon, after which all are censored, or --union, with which "
            "every peer learns the times of all samples"
        )
    if options.plan:
        return print_plan(options, "kaplan_meier", given)
    name, model, tensors, meaning = computed(options, "kaplan_meier", given)
    results = survival(tensors, model, interval=options.interval, rmean=options.rmean)
    results |= {"horizon": model.horizon or float(max(tensors["times"], default=0.0))}
    _name_time(options, results, meaning.target)
    return terminal.write(
        options,
        results,
        rows=survival_rows(results),
        page=lambda: survival_page(name, results, disclosed=model.shown({"times": model.times, "cause": model.cause})),
        paper=lambda: survival_paper(name, results),
        show=_show_survival,
    )


def _predict(options: SurvivalOptions, saved: SavedModel, model: Cox) -> int:
    """Print the survival that a regression predicts for the rows of a table, or for the mean of each stratum."""
    unused: dict[str, object] = {"--horizon": options.horizon, "--width": options.width, "--group": options.group}
    unused |= {
        "--cause": options.cause,
        "--rmean": options.rmean,
        "--union": options.union or None,
        "--set": options.changes or None,
        "--plan": options.plan or None,
    }
    if named := ", ".join(option for option, value in unused.items() if value is not None):
        raise InputError(f"{saved.path} is a model cox, so {named} has no effect; leave it out")
    tensors = tensors_of(saved)
    profiles, names = _profiles(options, saved, model, tensors)
    results = predicted_survival(tensors, model, profiles, names, interval=options.interval)
    results |= {"horizon": max((each["times"][-1] for each in results["groups"] if each["times"]), default=0.0)}
    _name_time(options, results, saved.about.outputs.target)
    name = Path(options.experiment).stem
    return terminal.write(
        options,
        results,
        rows=survival_rows(results),
        page=lambda: predicted_page(name, results, disclosed=model.shown({"times": model.times})),
        paper=lambda: survival_paper(name, results),
        show=_show_predicted,
    )


def _profiles(
    options: SurvivalOptions, saved: SavedModel, model: Cox, tensors: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, list[str]]:
    """Return features ``[n, F]`` and a name for each of the rows of a table, or for the mean of each stratum."""
    if options.profiles is not None:
        cells = cells_of(options.profiles, unaccounted=options.unaccounted)
        if model.strata is not None and model.strata not in cells.names:
            raise InputError(
                f'{options.profiles} has no column "{model.strata}", whose levels have hazards of their own; add it'
            )
        predictor = Predictor(saved)
        columns = torch.from_numpy(predictor.columns(cells, unaccounted=options.unaccounted))
        features = predictor.module.inputs(columns).double().numpy()
        return features, [f"row {number + 1}" for number in range(len(features))]
    strata = model.roles.strata
    features = np.tile(tensors["means"], (len(model.roles.levels), 1))
    if strata is None:
        return features, ["mean sample"]
    features[:, strata] = np.eye(len(features))
    return features, [f"mean sample, {model.strata} = {level}" for level in model.roles.levels]


def _name_time(options: SurvivalOptions, results: dict[str, Any], target: str | None) -> None:
    """Name the time and its unit in results, and draw the figure that the options name."""
    time = target or "time"
    results["time"] = f"{time}, {options.unit}" if options.unit not in {None, time} else time
    if options.plot:
        draw_survival(results, path=options.plot)


def _has_grid(options: SurvivalOptions) -> bool:
    """Return whether the model has its grid without options of the command."""
    return options.experiment.endswith(".safetensors") or experiment_of(options).model.name == "private_kaplan_meier"


def _show_survival(results: Mapping[str, Any]) -> None:
    _print(group_table(results), *time_tables(results))
    console = terminal.console()
    for line in sentences(results):
        console.print(Text(line), soft_wrap=not console.is_terminal)


def _show_predicted(results: Mapping[str, Any]) -> None:
    _print(profile_table(results), share_table(results))


def _print(first: FactTable, *others: FactTable) -> None:
    console = terminal.console()
    console.print(tables.render(first))
    console.print()
    for table in others:
        console.print(table.caption)
        console.print(tables.render(table))
        console.print()
