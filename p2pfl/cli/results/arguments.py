"""Arguments of the commands that make results, show them, or use a model."""

from __future__ import annotations

import argparse
from typing import Any

from p2pfl.cli import options
from p2pfl.core.registry import registered


def schema(commands: Any) -> None:
    """Add ``p2pfl schema``."""
    commands.add_parser("schema", help="the JSON Schema of the files of a run, for tools that read them")


def describe(commands: Any) -> None:
    """Add the commands for statistics of all data: ``describe``, ``survival`` and ``components``."""
    describe = commands.add_parser(
        "describe", help="statistics of the data of all peers: counts, means, quantiles, histograms, correlations"
    )
    _statistics(describe)
    describe.add_argument(
        "--least", type=options.count, metavar="N", help="state nothing of fewer samples (default: 5)"
    )
    describe.add_argument("--bins", type=options.count, metavar="N", help="bins of a histogram (default: 20)")
    describe.add_argument("--no-correlations", action="store_true", help="do not count pairs of columns")

    survival = commands.add_parser(
        "survival", help="Kaplan-Meier curves and the log-rank test over the data of all peers"
    )
    _statistics(survival)
    survival.add_argument("--horizon", type=float, metavar="TIME", help="end of the grid of times")
    survival.add_argument(
        "--union", action="store_true", help="the times of all samples as the grid, which every peer then learns"
    )
    survival.add_argument("--width", type=float, metavar="TIME", help="width of a cell of the grid (default: 1)")
    survival.add_argument("--group", metavar="COLUMN", help="a column with levels: a curve for each of them")

    components = commands.add_parser("components", help="principal components of the features of all peers")
    _statistics(components)
    components.add_argument("--components", type=options.count, metavar="N", help="how many (default: all)")
    components.add_argument(
        "--standardise", action="store_true", help="divide features by their deviations first, as units differ"
    )


def _statistics(command: argparse.ArgumentParser) -> None:
    command.add_argument("experiment", metavar="EXPERIMENT|MODEL", help="an experiment, or such a model of a run")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="again for more changes"
    )
    command.add_argument("--html", metavar="FILE", help="write a page with charts that needs no other file")
    command.add_argument("--csv", metavar="FILE", help="write the table")
    options.accounting(command)
    options.as_json(command)


def using(commands: Any) -> None:
    """Add the commands that use a table or a saved model."""
    columns = commands.add_parser("columns", help="propose the declaration of a table's columns for an experiment file")
    columns.add_argument("table", metavar="FILE", help="a CSV or Parquet file of one owner")
    columns.add_argument("--target", required=True, metavar="COLUMN", help="the column to predict")
    options.as_json(columns)

    predict = commands.add_parser("predict", help="predictions of a saved model for the rows of a table, as CSV")
    _model(predict, table=True, arrays=True)
    options.accounting(predict)
    predict.add_argument("--out", metavar="FILE", help="write them there (default: standard output)")

    evaluate = commands.add_parser("evaluate", help="scores of a saved model on a table, with 95 %% intervals")
    _model(evaluate, table=True)
    options.accounting(evaluate)
    evaluate.add_argument("--by", metavar="COLUMN", help="score each group of rows with one value there as well")
    evaluate.add_argument(
        "--seed", type=int, default=0, help="seed of the bootstrap behind the intervals (default: %(default)s)"
    )
    options.as_json(evaluate)

    found = commands.add_parser(
        "coefficients", help="coefficients of a saved regression, with standard errors and tests"
    )
    _model(found)
    options.as_json(found)

    export = commands.add_parser("export", help="write a saved model, with its preprocessing, for other software")
    _model(export)
    export.add_argument(
        "--to",
        required=True,
        choices=["torch", "onnx", *registered("p2pfl.exporters")],
        help="format: torch.export, ONNX; for trees XGBoost's JSON, or a Python module with a scikit-learn estimator",
    )
    export.add_argument("--out", metavar="FILE", help="default: MODEL with the ending of the format, such as .onnx")

    card = commands.add_parser("card", help="a model card of a run, as Markdown")
    card.add_argument("run", metavar="RUN", help="a run directory")
    card.add_argument(
        "--exact", action="store_true", help="print exact statistics of the training data, for data that are public"
    )
    card.add_argument("--out", metavar="FILE", help="write it there (default: standard output)")


def _model(command: argparse.ArgumentParser, *, table: bool = False, arrays: bool = False) -> None:
    command.add_argument("model", metavar="MODEL", help="peers/NAME.safetensors of a run directory")
    if table:
        more = ", or a .npy file of pictures or tokens" if arrays else ""
        command.add_argument(
            "table", metavar="TABLE", help=f"a CSV or Parquet file with the columns of the training{more}"
        )
    command.add_argument(
        "--trust-model", metavar="MODULE:CLASS", help="import this class of your own, if the file names it as its model"
    )


def sweep(commands: Any) -> None:
    """Add ``p2pfl sweep``."""
    command = commands.add_parser("sweep", help="one experiment under many settings and seeds, compared")
    command.add_argument(
        "experiment", metavar="EXPERIMENT|STUDY", help="an experiment, or a file that describes a study"
    )
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="of all runs, again for more"
    )
    options.peers(command)
    command.add_argument(
        "--over", action="append", default=[], metavar="KEY=V1,V2", help="values to compare; again to combine keys"
    )
    command.add_argument(
        "--random", action="append", default=[], metavar="KEY=LOW..HIGH[:log|integer]", help="draw values from a range"
    )
    command.add_argument(
        "--draws", type=options.count, metavar="N", help="how often all --random keys are drawn (default: 1)"
    )
    command.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="KEY=V ...",
        help="leave out a combination, such as 'learning.algorithm=d2 topology.kind=star'; again for more",
    )
    command.add_argument("--seeds", metavar="N|LIST", help="how many, or which, such as 0,3,7 (default: 5)")
    command.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="the reference (default: the first value of the first --over)",
    )
    command.add_argument("--metric", metavar="NAME", help="score to compare (default: that of the summary)")
    command.add_argument("--budget", metavar="COST", help="end every run at this cost, bytes=60MB or gradients=5000")
    command.add_argument(
        "--baselines", action="store_true", help="also train each peer alone and one model on all data, in every run"
    )
    command.add_argument(
        "--jobs", type=options.count, metavar="N", help="processes, of one thread each (default: all cores)"
    )
    command.add_argument("--out", metavar="DIR", help="where runs are and go (default: NAME-sweep under --runs)")
    options.output(command)


def report(commands: Any) -> None:
    """Add ``p2pfl report``."""
    command = commands.add_parser("report", help="tables and pages of a run, or of several side by side")
    command.add_argument("runs", metavar="RUN", nargs="+", help="run directories, or that of a sweep")
    command.add_argument("--html", metavar="FILE", help="write a page without scripts that needs no other file")
    command.add_argument("--csv", metavar="FILE", help="write rounds of a run, or settings of a comparison")
    command.add_argument(
        "--tensorboard", metavar="DIR", help="write event files for TensorBoard, a directory for each curve"
    )
    command.add_argument(
        "--tex", metavar="FILE", help="write the scores of a run, or the table of a comparison, for LaTeX with booktabs"
    )
    command.add_argument(
        "--plot",
        metavar="FILE",
        help="draw score and distance of one run, or the mean score of each setting of several",
    )
    command.add_argument(
        "--by", choices=["round", "bytes"], default="round", help="with --plot of several: the horizontal axis"
    )
    command.add_argument("--metric", metavar="NAME", help="score to compare (default: that of the summaries)")
    options.as_json(command)


def watch(commands: Any) -> None:
    """Add ``p2pfl watch``."""
    command = commands.add_parser(
        "watch", help="a local page of a run: where each peer is, for which peers it waits, how it learns"
    )
    command.add_argument(
        "run", metavar="RUN|EXPERIMENT", help="a run directory; with --name, the experiment of a live swarm"
    )
    command.add_argument("--name", help="look at the live swarm over the broker, as this observer")
    command.add_argument(
        "--broker", action="append", metavar="URL", help="with --name: instead of transport.broker; again to fail over"
    )
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="with --name: change a key"
    )
    command.add_argument("--port", type=int, default=0, help="port on 127.0.0.1, 0 for any free one (default: 0)")
    command.add_argument("--token", metavar="FILE", help="file with the token of the address (default: a new one)")
    command.add_argument("--replay", action="store_true", help="begin with the first event, and play")
    command.add_argument("--speed", type=options.speed, metavar="X", help="speed of the replay (default: 1)")
    command.add_argument(
        "--sink",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="call this function of your own with each record and notice; again for more",
    )
    command.add_argument("--once", action="store_true", help="print the state as text and end")
    command.add_argument("--json", action="store_true", help="with --once: machine-readable state on standard output")
