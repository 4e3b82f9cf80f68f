"""The commands ``p2pfl sweep`` and ``p2pfl value``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from p2pfl.cli import options
from p2pfl.cli.command import Command


def _sweep(command: ArgumentParser) -> None:
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


def _value(command: ArgumentParser) -> None:
    options.experiment(command)
    options.peers(command)
    command.add_argument(
        "--method", choices=["shapley", "banzhaf", "loo"], default="shapley", help="default: %(default)s"
    )
    command.add_argument(
        "--draws",
        type=options.count,
        default=200,
        metavar="N",
        help="permutations or coalitions that are drawn with more than ten peers (default: %(default)s)",
    )
    command.add_argument("--metric", metavar="NAME", help="score (default: that of the summary)")
    command.add_argument("--html", metavar="FILE", help="write a page with a chart that needs no other file")
    command.add_argument("--csv", metavar="FILE", help="write the values")
    options.accounting(command)
    options.as_json(command)


def sweep(given: Namespace) -> int:
    """Run ``p2pfl sweep``."""
    with options.forking(given, "p2pfl.plugins.study.sweep_preload"):
        from p2pfl.plugins.study import sweep_command  # noqa: PLC0415

        return sweep_command.run(given)


SWEEP = Command(
    "study",
    "one experiment under many settings and seeds, compared",
    _sweep,
    "p2pfl.plugins.study.study_commands:sweep",
)
VALUE = Command(
    "study",
    "what the data of each peer are worth: Shapley, Banzhaf, leave one out",
    _value,
    "p2pfl.plugins.study.value_command:run",
)
