"""The command ``p2pfl watch``."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from p2pfl.cli.command import Command

FASTEST = 1000
"""Largest speed of a replay."""


def _watch(command: ArgumentParser) -> None:
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
    command.add_argument("--speed", type=_speed, metavar="X", help="speed of the replay (default: 1)")
    command.add_argument(
        "--sink",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="call this function of your own with each record and notice; again for more",
    )
    command.add_argument("--once", action="store_true", help="print the state as text and end")
    command.add_argument("--json", action="store_true", help="with --once: machine-readable state on standard output")


def _speed(text: str) -> float:
    """Read the speed of a replay."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= FASTEST:
        raise ArgumentTypeError(f"{text} is not a speed above 0 and up to {FASTEST}; give one, for example 10")
    return speed


WATCH = Command(
    "results",
    "a local page of a run: where each peer is, for which peers it waits, how it learns",
    _watch,
    "p2pfl.plugins.watch.watch_command:run",
)
