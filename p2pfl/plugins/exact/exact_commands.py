"""The commands ``p2pfl describe``, ``survival``, ``components`` and ``coefficients``."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from p2pfl.cli import options
from p2pfl.cli.command import Command


def _describe(command: ArgumentParser) -> None:
    _statistics(command)
    command.add_argument("--least", type=options.count, metavar="N", help="state nothing of fewer samples (default: 5)")
    command.add_argument("--bins", type=options.count, metavar="N", help="bins of a histogram (default: 20)")
    command.add_argument("--no-correlations", action="store_true", help="do not count pairs of columns")


def _survival(command: ArgumentParser) -> None:
    _statistics(command)
    command.add_argument("--horizon", type=float, metavar="TIME", help="end of the grid of times")
    command.add_argument(
        "--union", action="store_true", help="the times of all samples as the grid, which every peer then learns"
    )
    command.add_argument("--width", type=float, metavar="TIME", help="width of a cell of the grid (default: 1)")
    command.add_argument("--group", metavar="COLUMN", help="a column with levels: a curve for each of them")


def _components(command: ArgumentParser) -> None:
    _statistics(command)
    command.add_argument("--components", type=options.count, metavar="N", help="how many (default: all)")
    command.add_argument(
        "--standardise", action="store_true", help="divide features by their deviations first, as units differ"
    )


def _statistics(command: ArgumentParser) -> None:
    command.add_argument("experiment", metavar="EXPERIMENT|MODEL", help="an experiment, or such a model of a run")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="again for more changes"
    )
    command.add_argument("--html", metavar="FILE", help="write a page with charts that needs no other file")
    command.add_argument("--csv", metavar="FILE", help="write the table")
    options.accounting(command)
    options.as_json(command)


def _coefficients(command: ArgumentParser) -> None:
    options.model(command)
    options.as_json(command)


def coefficients(given: Namespace) -> int:
    """Run ``p2pfl coefficients``."""
    from p2pfl.cli import tables  # noqa: PLC0415
    from p2pfl.cli.results import results_commands  # noqa: PLC0415
    from p2pfl.plugins.exact.saved_statistics import regression_of  # noqa: PLC0415

    found = regression_of(results_commands.predictor(given).saved)
    if given.json:
        print(json.dumps(found.results(), allow_nan=False))
    else:
        tables.regression(found)
    return 0


DESCRIBE = Command(
    "statistics",
    "statistics of the data of all peers: counts, means, quantiles, histograms, correlations",
    _describe,
    "p2pfl.plugins.exact.describe_command:run",
)
SURVIVAL = Command(
    "statistics",
    "Kaplan-Meier curves and the log-rank test over the data of all peers",
    _survival,
    "p2pfl.plugins.exact.survival_command:run",
)
COMPONENTS = Command(
    "statistics",
    "principal components of the features of all peers",
    _components,
    "p2pfl.plugins.exact.components_command:run",
)
COEFFICIENTS = Command(
    "models",
    "coefficients of a saved regression, with standard errors and tests",
    _coefficients,
    "p2pfl.plugins.exact.exact_commands:coefficients",
)
