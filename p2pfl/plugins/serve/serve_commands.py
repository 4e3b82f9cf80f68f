"""The command ``p2pfl serve``."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Annotated

from p2pfl.cli.command import Argument, Command, Option
from p2pfl.cli.options import ModelOptions

MAX_PORT = 65_535


def _port(text: str) -> int:
    """Read a port."""
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_PORT:
        raise ArgumentTypeError(f"{text:.20} is not a port from 0 to {MAX_PORT}; give one, for example 8800")
    return int(text)


class ServeOptions(ModelOptions):
    """Answer requests with the newest model of a peer, over HTTP and MQTT, while it learns."""

    model: Annotated[
        str,
        Argument("a model, a run directory, or a folder of them", "MODEL|RUN"),
    ]
    name: Annotated[str | None, Option("which of the peers of a run directory (default: the only one)", "PEER")] = None
    host: Annotated[str, Option("address to listen on")] = "127.0.0.1"
    port: Annotated[int, Option("port, 0 for any free one", "N", _port)] = 8800
    broker: Annotated[list[str], Option("also answer over this broker; again to fail over", "URL")]
    ca: Annotated[str | None, Option("with --broker: the authority that signed its certificate", "FILE")] = None
    topic: Annotated[
        str | None, Option("with --broker: before all topics (default: p2pfl-serve/ and PEER or MODEL|RUN)", "PREFIX")
    ] = None
    discovery: Annotated[str | None, Option("with --broker: list the model in Home Assistant under this", "PREFIX")] = (
        None
    )
    store: Annotated[
        str | None,
        Option("with --broker: add the rows of a topic to a SQLite table", "FILE=TOPIC"),
    ] = None


SERVE = Command("models", ServeOptions, "p2pfl.plugins.serve.serve_command:run")
