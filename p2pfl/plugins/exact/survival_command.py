"""``p2pfl survival``: Kaplan-Meier curves and the log-rank test over the data of all peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.experiments import experiment_of
from p2pfl.cli.tables import shown
from p2pfl.core.errors import InputError
from p2pfl.plugins.exact import simulated_totals
from p2pfl.plugins.exact.exact_commands import SurvivalOptions
from p2pfl.plugins.exact.pages.survival_page import group_table, sentences, survival_page
from p2pfl.plugins.exact.statistics.kaplan_meier import KaplanMeier, survival
from p2pfl.plugins.exact.statistics.private_kaplan_meier import PrivateKaplanMeier


def run(options: SurvivalOptions) -> int:
    """Print curves of an experiment, or those that peers have found."""
    given = {name: getattr(options, name) for name in ("horizon", "width", "group")}
    given["times"] = "union" if options.union else None
    if given["horizon"] is None and not options.union and not _complete(options):
        raise InputError(
            "the grid of times needs its end; give --horizon, after which all are censored, or --union, with which "
            "every peer learns the times of all samples"
        )
    name, model, tensors, meaning = simulated_totals.found(
        options, model=KaplanMeier.name, given=given, private=PrivateKaplanMeier.name
    )
    results = asdict(survival(tensors, model)) | {"time": meaning.target or "time", "horizon": _end(tensors, model)}

    def page() -> str:
        return survival_page(name, results, disclosed=model.shown({"times": model.times}))

    return terminal.write(options, results, rows=_rows(results), page=page, show=_show)


def _end(tensors: Mapping[str, Any], model: KaplanMeier) -> float:
    """Return the time at which curves end."""
    return model.horizon or float(max(tensors["times"], default=0.0))


def _complete(options: SurvivalOptions) -> bool:
    """Return whether the model has its grid without options of the command."""
    return options.experiment.endswith(".safetensors") or experiment_of(options).model.name == PrivateKaplanMeier.name


def _show(found: Mapping[str, Any]) -> None:
    console = terminal.console()
    console.print(shown(group_table(found)))
    console.print()
    for line in sentences(found):
        console.print(Text(line), soft_wrap=not console.is_terminal)


def _rows(found: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    keys = ("times", "at_risk", "died", "survival", "error", "low", "high")
    yield ["group", "time", "at_risk", "events", "survival", "std_error", "low", "high"]
    for group in found["groups"]:
        yield from ([group["name"], *row] for row in zip(*(group[key] for key in keys), strict=True))
