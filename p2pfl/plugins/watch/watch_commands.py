"""The command ``p2pfl watch``."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Annotated

from p2pfl.cli.command import Argument, Command, Option
from p2pfl.cli.options import ExperimentOptions, JsonOptions

MAX_SPEED = 1000
"""Largest speed of a replay."""


def _speed(text: str) -> float:
    """Read the speed of a replay."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= MAX_SPEED:
        raise ArgumentTypeError(f"{text} is not a speed above 0 and up to {MAX_SPEED}; give one, for example 10")
    return speed


class WatchOptions(JsonOptions, ExperimentOptions):
    """A local page of a run: where each peer is, for which peers it waits, how it learns."""

    experiment: Annotated[
        str, Argument("a run directory; with --name, the experiment of a live swarm", "RUN|EXPERIMENT")
    ]
    json: Annotated[bool, Option("with --once: machine-readable state on standard output")] = False
    name: Annotated[str | None, Option("look at the live swarm over the broker, as this observer")] = None
    broker: Annotated[list[str], Option("with --name: instead of transport.broker; again to fail over", "URL")]
    port: Annotated[int, Option("port on 127.0.0.1, 0 for any free one")] = 0
    token: Annotated[str | None, Option("file with the token of the address (default: a new one)", "FILE")] = None
    replay: Annotated[bool, Option("play from the first event")] = False
    speed: Annotated[float | None, Option("speed of the replay (default: 1)", "X", _speed)] = None
    sink: Annotated[
        list[str],
        Option(
            "call this function, or an installed one, with each record and notice (repeatable)",
            "MODULE:FUNCTION",
        ),
    ]
    once: Annotated[bool, Option("print the state as text and end")] = False


WATCH = Command("results", WatchOptions, "p2pfl.plugins.watch.watch_command:run")
