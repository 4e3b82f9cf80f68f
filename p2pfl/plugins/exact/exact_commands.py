"""The commands ``p2pfl describe``, ``survival``, ``components`` and ``coefficients``."""

from __future__ import annotations

import argparse
from typing import Annotated, Literal

from p2pfl.cli.command import Argument, Command, Option
from p2pfl.cli.options import AccountingOptions, ModelOptions, PageOptions, ReviewOptions, count


def cell_width(text: str) -> float | str:
    """Read a width of cells of time: a number, or ``auto``."""
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no width of a cell; give a number, or auto") from None


class StatisticsOptions(PageOptions, AccountingOptions, ReviewOptions):
    """Arguments of all commands that print statistics."""

    experiment: Annotated[str, Argument("an experiment, or such a model of a run", "EXPERIMENT|MODEL")]
    least: Annotated[int | None, Option("show nothing of fewer samples (default: 5)", "N", count)] = None
    plan: Annotated[
        bool, Option("count nothing, but show what peers would learn; with --html the page that an officer signs")
    ] = False


class DescribeOptions(StatisticsOptions):
    """Statistics of the data of all peers: counts, means, quantiles, histograms, correlations."""

    by: Annotated[str | None, Option("a column with levels, or the target: Table 1 by its levels", "COLUMN")] = None
    strata: Annotated[
        str | None,
        Option("with --by: odds ratios of Mantel-Haenszel over a column with levels, or peer for each peer", "COLUMN"),
    ] = None
    bins: Annotated[int | None, Option("bins of a histogram (default: 20)", "N", count)] = None
    no_correlations: Annotated[bool, Option("do not count pairs of columns")] = False


class SurvivalOptions(StatisticsOptions):
    """Kaplan-Meier curves and the log-rank test over the data of all peers, or what a model cox predicts."""

    horizon: Annotated[float | None, Option("end of the grid of times", "TIME")] = None
    union: Annotated[bool, Option("all times as the grid, which every peer then learns")] = False
    width: Annotated[
        float | str | None,
        Option("width of a cell of the grid, or auto for cells of people enough", "TIME", cell_width),
    ] = None
    group: Annotated[str | None, Option("a column with levels: a curve for each of them", "COLUMN")] = None
    cause: Annotated[
        str | None, Option("a column with kinds of events: the cumulative incidence of each", "COLUMN")
    ] = None
    interval: Annotated[
        Literal["log-log", "log", "plain"], Option("how 95 %% intervals are made; log is the default of R")
    ] = "log-log"
    rmean: Annotated[float | None, Option("the mean time without the event up to this time", "TIME")] = None
    unit: Annotated[str | None, Option("unit of the times, such as days", "TEXT")] = None
    plot: Annotated[str | None, Option("draw the curves: .svg, .pdf or .png", "FILE")] = None
    profiles: Annotated[
        str | None, Option("of a model cox: predict the survival of the rows of this table", "FILE")
    ] = None


class ComponentsOptions(StatisticsOptions):
    """Principal components of the features of all peers."""

    components: Annotated[int | None, Option("how many (default: all)", "N", count)] = None
    standardise: Annotated[bool, Option("divide features by their deviations first")] = False


class CoefficientsOptions(PageOptions, ModelOptions):
    """Coefficients of a saved regression, with standard errors and tests."""

    plot: Annotated[str | None, Option("draw a forest plot: .svg, .pdf or .png", "FILE")] = None
    against: Annotated[
        str | None, Option("likelihood ratio test against a model of fewer or more columns", "MODEL")
    ] = None


RUN = "p2pfl.plugins.exact.statistics_commands"

DESCRIBE = Command("statistics", DescribeOptions, f"{RUN}:describe")
SURVIVAL = Command("statistics", SurvivalOptions, "p2pfl.plugins.exact.survival_commands:estimate_survival")
COMPONENTS = Command("statistics", ComponentsOptions, f"{RUN}:find_components")
COEFFICIENTS = Command("models", CoefficientsOptions, f"{RUN}:print_coefficients")
