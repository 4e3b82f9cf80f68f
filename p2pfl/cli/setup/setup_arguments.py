"""Arguments of the commands that set up peers and a broker."""

from __future__ import annotations

from argparse import ArgumentParser

from p2pfl.cli import options
from p2pfl.cli.command import Command


def _identity(command: ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="of the peer")
    command.add_argument("--keys", metavar="DIR", help="where NAME.pem is or goes, as trust.keys")
    command.add_argument("--roster", metavar="FILE", help="list it there, as trust.roster; made if it is missing")
    change = command.add_mutually_exclusive_group()
    change.add_argument("--rotate", action="store_true", help="a new key, for which the present one vouches")
    change.add_argument(
        "--accept", metavar="FILE", help="list the key that --rotate, which printed FILE elsewhere, has vouched for"
    )
    change.add_argument(
        "--request", metavar="FILE", help="write a request of this device for the operator of a fleet (p2pfl deploy)"
    )
    change.add_argument("--revoke", metavar="REASON", help="have the roster refuse the present key from now on")
    options.as_json(command)


def _broker(command: ArgumentParser) -> None:
    command.add_argument(
        "experiment", nargs="?", metavar="EXPERIMENT", help="with --config: whose peers may join, by passwords"
    )
    command.add_argument(
        "--config",
        metavar="DIR",
        help="start nothing, but write mosquitto.conf and all it needs outside of a trusted network",
    )
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    command.add_argument(
        "--public",
        action="append",
        default=[],
        metavar="HOST",
        help="with --config: by what peers reach it, in its certificate; again for more",
    )
    command.add_argument(
        "--observer",
        action="append",
        default=[],
        metavar="NAME",
        help="with --config: may look at the swarm; again for more",
    )
    command.add_argument("--port", type=int, help="port, 0 for any free one (default: 1883, with --config 8883)")
    command.add_argument(
        "--kind", choices=["auto", "mosquitto", "iotcore"], default="auto", help="auto is the first that is installed"
    )


COMMANDS = {
    "identity": Command(
        "operate",
        "make a peer's key and list it in a roster of who may take part",
        _identity,
        "p2pfl.cli.setup.setup_commands:identity",
    ),
    "broker": Command(
        "operate",
        "the embedded broker on its own, or a configuration for mosquitto",
        _broker,
        "p2pfl.cli.setup.setup_commands:broker",
    ),
}
