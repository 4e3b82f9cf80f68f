"""Arguments of the commands that run an experiment."""

from __future__ import annotations

from typing import Any

from p2pfl.cli import options


def run(commands: Any) -> None:
    """Add ``p2pfl run``."""
    command = commands.add_parser("run", help="spawn every peer as its own process on this machine")
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


def simulate(commands: Any) -> None:
    """Add ``p2pfl simulate``."""
    command = commands.add_parser("simulate", help="run the same experiment with all peers simulated")
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


def repeat(commands: Any) -> None:
    """Add ``p2pfl repeat``."""
    command = commands.add_parser("repeat", help="run a simulation again from its directory, and compare to the bit")
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


def peer(commands: Any) -> None:
    """Add ``p2pfl peer``."""
    command = commands.add_parser("peer", help="one peer on this device")
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


def _baselines(command: Any) -> None:
    """Add the option that leaves the comparison out."""
    command.add_argument("--no-baselines", action="store_true", help="do not train peers alone and on pooled data")
