"""Arguments of the commands that show results, or use a model."""

from __future__ import annotations

from argparse import ArgumentParser

from p2pfl.cli import options
from p2pfl.cli.command import Command
from p2pfl.core.registry import registered


def _columns(command: ArgumentParser) -> None:
    command.add_argument("table", metavar="FILE", help="a CSV or Parquet file of one owner")
    command.add_argument("--target", required=True, metavar="COLUMN", help="the column to predict")
    options.as_json(command)


def _predict(command: ArgumentParser) -> None:
    options.model(command, table=True, arrays=True)
    options.accounting(command)
    command.add_argument("--out", metavar="FILE", help="write them there (default: standard output)")


def _evaluate(command: ArgumentParser) -> None:
    options.model(command, table=True)
    options.accounting(command)
    command.add_argument("--by", metavar="COLUMN", help="score each group of rows with one value there as well")
    command.add_argument(
        "--seed", type=int, default=0, help="seed of the bootstrap behind the intervals (default: %(default)s)"
    )
    options.as_json(command)


def _export(command: ArgumentParser) -> None:
    options.model(command)
    command.add_argument(
        "--to",
        required=True,
        choices=["torch", "onnx", *registered("p2pfl.exporters")],
        help="format: torch.export, ONNX; for trees XGBoost's JSON, or a Python module with a scikit-learn estimator",
    )
    command.add_argument("--out", metavar="FILE", help="default: MODEL with the ending of the format, such as .onnx")


def _card(command: ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", help="a run directory")
    command.add_argument(
        "--exact", action="store_true", help="print exact statistics of the training data, for data that are public"
    )
    command.add_argument("--out", metavar="FILE", help="write it there (default: standard output)")


def _report(command: ArgumentParser) -> None:
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


def _schema(command: ArgumentParser) -> None:
    del command  # it has none


COMMANDS = {
    "columns": Command(
        "plan",
        "propose the declaration of a table's columns for an experiment file",
        _columns,
        "p2pfl.cli.results.results_commands:columns",
    ),
    "predict": Command(
        "models",
        "predictions of a saved model for the rows of a table, as CSV",
        _predict,
        "p2pfl.cli.results.results_commands:predict",
    ),
    "evaluate": Command(
        "models",
        "scores of a saved model on a table, with 95 % intervals",
        _evaluate,
        "p2pfl.cli.results.results_commands:evaluate",
    ),
    "export": Command(
        "models",
        "write a saved model, with its preprocessing, for other software",
        _export,
        "p2pfl.cli.results.results_commands:export",
    ),
    "card": Command("models", "a model card of a run, as Markdown", _card, "p2pfl.cli.results.results_commands:card"),
    "report": Command(
        "results",
        "tables and pages of a run, or of several side by side",
        _report,
        "p2pfl.cli.results.results_commands:report",
    ),
    "schema": Command(
        "results",
        "the JSON Schema of the files of a run, for tools that read them",
        _schema,
        "p2pfl.cli.results.results_commands:schema",
    ),
}
