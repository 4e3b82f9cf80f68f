"""The command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import p2pfl
from p2pfl.cli.setup import deploying, doctors

FASTEST = 1000
"""Of a replay."""

FEWEST_TRIALS = 1000
"""Of an audit: its standard error is then 0.06."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"p2pfl: {message}; see {self.prog} --help\n")
        raise SystemExit(2)

    def parse_known_args(  # type: ignore[override] # its overloads differ in the type of the namespace alone
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse arguments that are unknown, which the parser of a command would leave to the one above."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = _Parser(
        prog="p2pfl", description="Fully decentralised learning: peers gossip masked models over MQTT, no server."
    )
    top.add_argument("--version", action="version", version=f"p2pfl {p2pfl.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="spawn every peer as its own process on this machine")
    _experiment(run, optional=True)
    run.add_argument("--resume", nargs="?", const="", metavar="RUN", help="continue an interrupted run")
    _recording(run)
    _accounting(run)
    run.add_argument("--peers", type=_count, metavar="N", help="instead of topology.peers")
    run.add_argument(
        "--broker",
        action="append",
        metavar="URL",
        help="not the embedded one, such as mqtt://host:1883; again to fail over",
    )
    _output(run)

    simulate = commands.add_parser("simulate", help="run the same experiment with all peers simulated")
    _experiment(simulate, optional=True)
    simulate.add_argument("--resume", nargs="?", const="", metavar="RUN", help="continue an interrupted run")
    simulate.add_argument("--peers", type=_count, metavar="N", help="instead of topology.peers")
    simulate.add_argument("--no-baselines", action="store_true", help="do not train peers alone and on pooled data")
    simulate.add_argument(
        "--workers",
        type=_count,
        default=1,
        metavar="N",
        help="processes that share the peers (default: 1; under torchrun those that it started)",
    )
    simulate.add_argument(
        "--network",
        metavar="FILE",
        help="live peers in virtual time over this network, such as wan: predicts how long a run takes",
    )
    _accounting(simulate)
    _output(simulate)

    peer = commands.add_parser("peer", help="one peer on this device")
    _experiment(peer)
    peer.add_argument("--name", required=True, help="which of the experiment's peers this is")
    peer.add_argument(
        "--broker", action="append", metavar="URL", help="instead of transport.broker; again to fail over"
    )
    peer.add_argument("--resume", action="store_true", help="go on with the last run of this peer under --runs")
    peer.add_argument(
        "--no-baselines", action="store_true", help="do not train a model alone after the run, to see what it gained"
    )
    _recording(peer)
    _accounting(peer)
    _output(peer)

    _identity(commands)

    _broker(commands)

    topology = commands.add_parser("topology", help="degree, diameter, spectral gap, rounds to consensus")
    topology.add_argument("topology", metavar="NAME|FILE", help="a kind such as ring, or a graph file")
    topology.add_argument("--peers", type=_count, default=16, metavar="N", help="default: %(default)s")
    topology.add_argument("--degree", type=_count, default=4, metavar="K", help="default: %(default)s")
    topology.add_argument("--seed", type=int, default=0, help="of random kinds (default: %(default)s)")
    topology.add_argument(
        "--clusters", type=_count, default=4, metavar="N", help="of hierarchical, default: %(default)s"
    )
    topology.add_argument(
        "--every", type=_count, default=4, metavar="K", help="gossip steps from bridge to bridge, default: %(default)s"
    )
    topology.add_argument(
        "--period", type=_count, default=64, metavar="N", help="of epidemic schedules, default: %(default)s"
    )
    topology.add_argument("--plot", metavar="FILE", help="draw it")
    topology.add_argument("--json", action="store_true", help="machine-readable results on standard output")

    explain = commands.add_parser("explain", help="who has what, and what an experiment will cost, before it runs")
    _experiment(explain)
    explain.add_argument("--peers", type=_count, metavar="N", help="instead of topology.peers")
    explain.add_argument("--json", action="store_true", help="machine-readable results on standard output")

    _privacy(commands.add_parser("privacy", help="the guarantee by observer, and whether learning together can pay"))

    _audit(commands)

    for add in (_value, _describe, _using, _sweep, _report, _watch, deploying.arguments, doctors.arguments):
        add(commands)
    return top


def _describe(commands: argparse._SubParsersAction[_Parser]) -> None:
    describe = commands.add_parser(
        "describe", help="statistics of the data of all peers: counts, means, quantiles, histograms, correlations"
    )
    _statistics(describe)
    describe.add_argument("--least", type=_count, metavar="N", help="state nothing of fewer samples (default: 5)")
    describe.add_argument("--bins", type=_count, metavar="N", help="bins of a histogram (default: 20)")
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
    components.add_argument("--components", type=_count, metavar="N", help="how many (default: all)")
    components.add_argument(
        "--standardise", action="store_true", help="divide features by their deviations first, as units differ"
    )


def _value(commands: argparse._SubParsersAction[_Parser]) -> None:
    value = commands.add_parser("value", help="what the data of each peer are worth: Shapley, Banzhaf, leave one out")
    _experiment(value)
    value.add_argument("--peers", type=_count, metavar="N", help="instead of topology.peers")
    value.add_argument(
        "--method", choices=["shapley", "banzhaf", "loo"], default="shapley", help="default: %(default)s"
    )
    value.add_argument(
        "--draws",
        type=_count,
        default=200,
        metavar="N",
        help="permutations or coalitions that are drawn with more than ten peers (default: %(default)s)",
    )
    value.add_argument("--metric", metavar="NAME", help="score (default: that of the summary)")
    value.add_argument("--html", metavar="FILE", help="write a page with a chart that needs no other file")
    value.add_argument("--csv", metavar="FILE", help="write the values")
    value.add_argument("--json", action="store_true", help="machine-readable results on standard output")


def _statistics(command: argparse.ArgumentParser) -> None:
    command.add_argument("experiment", metavar="EXPERIMENT|MODEL", help="an experiment, or such a model of a run")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="again for more changes"
    )
    command.add_argument("--html", metavar="FILE", help="write a page with charts that needs no other file")
    command.add_argument("--csv", metavar="FILE", help="write the table")
    command.add_argument("--json", action="store_true", help="machine-readable results on standard output")


def _using(commands: argparse._SubParsersAction[_Parser]) -> None:
    columns = commands.add_parser("columns", help="propose the declaration of a table's columns for an experiment file")
    columns.add_argument("table", metavar="FILE", help="a CSV or Parquet file of one owner")
    columns.add_argument("--target", required=True, metavar="COLUMN", help="the column to predict")
    columns.add_argument("--json", action="store_true", help="machine-readable results on standard output")

    predict = commands.add_parser("predict", help="predictions of a saved model for the rows of a table, as CSV")
    _model(predict, table=True, arrays=True)
    predict.add_argument("--out", metavar="FILE", help="write them there (default: standard output)")

    evaluate = commands.add_parser("evaluate", help="scores of a saved model on a table, with 95 %% intervals")
    _model(evaluate, table=True)
    evaluate.add_argument("--by", metavar="COLUMN", help="score each group of rows with one value there as well")
    evaluate.add_argument(
        "--seed", type=int, default=0, help="seed of the bootstrap behind the intervals (default: %(default)s)"
    )
    evaluate.add_argument("--json", action="store_true", help="machine-readable results on standard output")

    found = commands.add_parser(
        "coefficients", help="coefficients of a saved regression, with standard errors and tests"
    )
    _model(found)
    found.add_argument("--json", action="store_true", help="machine-readable results on standard output")

    export = commands.add_parser("export", help="write a saved model, with its preprocessing, for other software")
    _model(export)
    export.add_argument(
        "--to",
        required=True,
        choices=["torch", "onnx", "xgboost", "sklearn"],
        help="format: torch.export, ONNX; for trees XGBoost's JSON, or a Python module with a scikit-learn estimator",
    )
    export.add_argument("--out", metavar="FILE", help="default: MODEL with the ending .pt2, .onnx, .json or .py")

    card = commands.add_parser("card", help="a model card of a run, as Markdown")
    card.add_argument("run", metavar="RUN", help="a run directory")
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


def _sweep(commands: argparse._SubParsersAction[_Parser]) -> None:
    sweep = commands.add_parser("sweep", help="one experiment under many settings and seeds, compared")
    sweep.add_argument("experiment", metavar="EXPERIMENT|STUDY", help="an experiment, or a file that describes a study")
    sweep.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="of all runs, again for more"
    )
    sweep.add_argument("--peers", type=_count, metavar="N", help="instead of topology.peers")
    sweep.add_argument(
        "--over", action="append", default=[], metavar="KEY=V1,V2", help="values to compare; again to combine keys"
    )
    sweep.add_argument(
        "--random", action="append", default=[], metavar="KEY=LOW..HIGH[:log|integer]", help="draw values from a range"
    )
    sweep.add_argument("--draws", type=_count, metavar="N", help="how often all --random keys are drawn (default: 1)")
    sweep.add_argument("--seeds", metavar="N|LIST", help="how many, or which, such as 0,3,7 (default: 5)")
    sweep.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="the reference (default: the first value of the first --over)",
    )
    sweep.add_argument("--metric", metavar="NAME", help="score to compare (default: that of the summary)")
    sweep.add_argument("--budget", metavar="COST", help="end every run at this cost, bytes=60MB or gradients=5000")
    sweep.add_argument(
        "--baselines", action="store_true", help="also train each peer alone and one model on all data, in every run"
    )
    sweep.add_argument("--jobs", type=_count, metavar="N", help="processes, of one thread each (default: all cores)")
    sweep.add_argument("--out", metavar="DIR", help="where runs are and go (default: NAME-sweep under --runs)")
    _output(sweep)


def _report(commands: argparse._SubParsersAction[_Parser]) -> None:
    report = commands.add_parser("report", help="tables and pages of a run, or of several side by side")
    report.add_argument("runs", metavar="RUN", nargs="+", help="run directories, or that of a sweep")
    report.add_argument("--html", metavar="FILE", help="write a page without scripts that needs no other file")
    report.add_argument("--csv", metavar="FILE", help="write rounds of a run, or settings of a comparison")
    report.add_argument(
        "--tensorboard", metavar="DIR", help="write event files for TensorBoard, a directory for each curve"
    )
    report.add_argument(
        "--tex", metavar="FILE", help="write the scores of a run, or the table of a comparison, for LaTeX with booktabs"
    )
    report.add_argument("--plot", metavar="FILE", help="draw score and distance over rounds of one run")
    report.add_argument("--metric", metavar="NAME", help="score to compare (default: that of the summaries)")
    report.add_argument("--json", action="store_true", help="machine-readable results on standard output")


def _watch(commands: argparse._SubParsersAction[_Parser]) -> None:
    watch = commands.add_parser(
        "watch", help="a local page of a run: where each peer is, for which peers it waits, how it learns"
    )
    watch.add_argument(
        "run", metavar="RUN|EXPERIMENT", help="a run directory; with --name, the experiment of a live swarm"
    )
    watch.add_argument("--name", help="look at the live swarm over the broker, as this observer")
    watch.add_argument(
        "--broker", action="append", metavar="URL", help="with --name: instead of transport.broker; again to fail over"
    )
    watch.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="with --name: change a key"
    )
    watch.add_argument("--port", type=int, default=0, help="port on 127.0.0.1, 0 for any free one (default: 0)")
    watch.add_argument("--token", metavar="FILE", help="file with the token of the address (default: a new one)")
    watch.add_argument("--replay", action="store_true", help="begin with the first event, and play")
    watch.add_argument("--speed", type=_speed, metavar="X", help="speed of the replay (default: 1)")
    watch.add_argument(
        "--sink",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="call this function of your own with each record and notice; again for more",
    )
    watch.add_argument("--once", action="store_true", help="print the state as text and end")
    watch.add_argument("--json", action="store_true", help="with --once: machine-readable state on standard output")


def _broker(commands: argparse._SubParsersAction[_Parser]) -> None:
    commands.add_parser("schema", help="the JSON Schema of the files of a run, for tools that read them")

    broker = commands.add_parser("broker", help="the embedded broker on its own, or a configuration for mosquitto")
    broker.add_argument(
        "experiment", nargs="?", metavar="EXPERIMENT", help="with --config: whose peers may join, by passwords"
    )
    broker.add_argument(
        "--config",
        metavar="DIR",
        help="start nothing, but write mosquitto.conf and all it needs outside of a trusted network",
    )
    broker.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    broker.add_argument(
        "--public",
        action="append",
        default=[],
        metavar="HOST",
        help="with --config: by what peers reach it, in its certificate; again for more",
    )
    broker.add_argument(
        "--observer",
        action="append",
        default=[],
        metavar="NAME",
        help="with --config: may look at the swarm; again for more",
    )
    broker.add_argument("--port", type=int, help="port, 0 for any free one (default: 1883, with --config 8883)")
    broker.add_argument(
        "--kind", choices=["auto", "mosquitto", "iotcore"], default="auto", help="auto is the first that is installed"
    )


def _identity(commands: argparse._SubParsersAction[_Parser]) -> None:
    identity = commands.add_parser("identity", help="make a peer's key and list it in a roster of who may take part")
    identity.add_argument("name", metavar="NAME", help="of the peer")
    identity.add_argument("--keys", metavar="DIR", help="where NAME.pem is or goes, as trust.keys")
    identity.add_argument("--roster", metavar="FILE", help="list it there, as trust.roster; made if it is missing")
    change = identity.add_mutually_exclusive_group()
    change.add_argument("--rotate", action="store_true", help="a new key, for which the present one vouches")
    change.add_argument(
        "--accept", metavar="FILE", help="list the key that --rotate, which printed FILE elsewhere, has vouched for"
    )
    change.add_argument(
        "--request", metavar="FILE", help="write a request of this device for the operator of a fleet (p2pfl deploy)"
    )
    change.add_argument("--revoke", metavar="REASON", help="have the roster refuse the present key from now on")
    identity.add_argument("--json", action="store_true", help="machine-readable results on standard output")


def _privacy(command: argparse.ArgumentParser) -> None:
    _experiment(command)
    command.add_argument("--peers", type=_count, metavar="N", help="instead of topology.peers")
    command.add_argument("--name", metavar="PEER", help="the one peer whose data are here (default: those of all are)")
    command.add_argument("--no-baselines", action="store_true", help="do not compare with peers that learn alone")
    command.add_argument("--plot", metavar="FILE", help="draw epsilon over rounds")
    command.add_argument("--json", action="store_true", help="machine-readable results on standard output")


def _audit(commands: Any) -> None:
    audit = commands.add_parser("audit", help="attack what peers release and hold it against the guarantee")
    _experiment(audit)
    audit.add_argument(
        "--peers", type=_count, metavar="N", help="instead of topology.peers (default: as many, but at most 128)"
    )
    audit.add_argument(
        "--trials", type=_trials, default=20_000, metavar="N", help="games of each player (default: %(default)s)"
    )
    audit.add_argument("--out", metavar="DIR", help="where the page goes (default: a new directory under --runs)")
    _output(audit)


def _recording(command: argparse.ArgumentParser) -> None:
    about = "write down what peers receive and draw, secrets included, to play it again with scripts/worlds"
    command.add_argument("--record", action="store_true", help=about)


def _accounting(command: argparse.ArgumentParser) -> None:
    about = "run although the account beside the data cannot count this run, which has no price"
    command.add_argument("--unaccounted", action="store_true", help=about)


def _experiment(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    about = "a TOML file, or the name of a shipped experiment"
    command.add_argument("experiment", metavar="EXPERIMENT", nargs="?" if optional else None, help=about)
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="such as learning.rate=0.05"
    )


def _output(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--runs", default="runs", metavar="DIR", help="where run directories go (default: %(default)s)"
    )
    command.add_argument("--json", action="store_true", help="machine-readable results on standard output")


def _trials(text: str) -> int:
    if _count(text) < FEWEST_TRIALS:
        raise argparse.ArgumentTypeError(f"{text} is too few trials to measure anything; take at least {FEWEST_TRIALS}")
    return int(text)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= FASTEST:
        raise argparse.ArgumentTypeError(f"{text} is not a speed above 0 and up to {FASTEST}; give one, for example 10")
    return speed


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1; give one, for example 4")
    return int(text)
