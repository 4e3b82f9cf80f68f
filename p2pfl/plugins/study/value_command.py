"""``p2pfl value``: what the data of each peer are worth."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

import p2pfl
from p2pfl.cli import terminal
from p2pfl.cli.experiments import experiment_of, warn_of_exact
from p2pfl.cli.tables import shown
from p2pfl.plugins.study.study_commands import ValueOptions
from p2pfl.plugins.study.valuation import valuation
from p2pfl.plugins.study.valuation_page import sentences, valuation_page, values_table


def run(options: ValueOptions) -> int:
    """Print the values of an experiment."""
    experiment = experiment_of(options)
    resolved = p2pfl.plan(experiment, unaccounted=options.unaccounted)
    given = {key: getattr(options, key) for key in ("method", "draws", "metric", "unaccounted")}
    found = valuation(resolved, **given)
    warn_of_exact(resolved)
    results = asdict(found)
    names = ("peer", "samples", "value", "low", "high")
    rows = [names, *([each[name] for name in names] for each in results["values"])]

    def page() -> str:
        return valuation_page(experiment.name, results)

    return terminal.write(options, results, rows=rows, page=page, show=_show)


def _show(found: dict[str, Any]) -> None:
    console = terminal.console()
    console.print(shown(values_table(found)))
    console.print()
    for line in sentences(found):
        console.print(Text(line), soft_wrap=not console.is_terminal)
