"""Arguments of the commands that run an experiment."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from p2pfl.cli import options
from p2pfl.cli.command import Command


def _run(command: ArgumentParser) -> None:
    options.experiment(command, optional=True)
    command.add_argument("--resume", nargs="?", const="", metavar="RUN", help="continue an interrupted run")
    options.accounting(command)
    options.peers(command)
    _baselines(command)
    command.add_argument(
        "--broker",
        action="append",
        metavar="URL",
        help="not the embedded one, such as mqtt://host:1883; again to fail over",
    )
    options.output(command)


def _simulate(command: ArgumentParser) -> None:
    options.experiment(command, optional=True)
    command.add_argument("--resume", nargs="?", const="", metavar="RUN", help="continue an interrupted run")
    options.peers(command)
    _baselines(command)
    command.add_argument(
        "--workers",
        type=options.count,
        default=1,
        metavar="N",
        help="processes that share the peers (default: 1; under torchrun those that it started)",
    )
    command.add_argument(
        "--network",
        metavar="FILE",
        help="live peers in virtual time over this network, such as wan: predicts how long a run takes",
    )
    options.accounting(command)
    options.output(command)


def _repeat(command: ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", help="the run directory of a simulation, or of a run of a sweep")
    command.add_argument("--check", action="store_true", help="end with status 1 if models, records or results differ")
    command.add_argument(
        "--trust-code", action="store_true", help="agree to run the code that the directory holds or names"
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=PATH",
        dest="changes",
        help="where a file is on this machine, such as data.options.path=own.csv; again for more",
    )
    options.accounting(command)
    options.output(command)


def _peer(command: ArgumentParser) -> None:
    options.experiment(command)
    command.add_argument("--name", required=True, help="which of the experiment's peers this is")
    command.add_argument(
        "--broker", action="append", metavar="URL", help="instead of transport.broker; again to fail over"
    )
    command.add_argument("--resume", action="store_true", help="go on with the last run of this peer under --runs")
    command.add_argument(
        "--no-baselines", action="store_true", help="do not train a model alone after the run, to see what it gained"
    )
    options.accounting(command)
    options.output(command)


def _baselines(command: ArgumentParser) -> None:
    """Add the option that leaves the comparison out."""
    command.add_argument("--no-baselines", action="store_true", help="do not train peers alone and on pooled data")


def run(given: Namespace) -> int:
    """Run ``p2pfl run``."""
    with options.forking(given, "p2pfl.network.peer.launch.preload"):
        from p2pfl.cli.running import running_commands  # noqa: PLC0415

        return running_commands.run(given)


def _help(command: ArgumentParser) -> None:
    command.add_argument("name", nargs="?", metavar="GROUP|COMMAND", help="what to explain (default: everything)")


COMMANDS = {
    "run": Command(
        "learn", "spawn every peer as its own process on this machine", _run, "p2pfl.cli.running.running_arguments:run"
    ),
    "simulate": Command(
        "learn",
        "run the same experiment with all peers simulated",
        _simulate,
        "p2pfl.cli.running.running_commands:simulate",
    ),
    "peer": Command("learn", "one peer on this device", _peer, "p2pfl.cli.running.running_commands:peer"),
    "repeat": Command(
        "learn",
        "run a simulation again from its directory, and compare to the bit",
        _repeat,
        "p2pfl.cli.running.running_commands:repeat",
    ),
    "help": Command(
        "", "what the commands of a group do, or the arguments of a command", _help, "p2pfl.cli.arguments:explain"
    ),
}
