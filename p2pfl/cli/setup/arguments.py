"""Arguments of the commands that set up peers and a broker."""

from __future__ import annotations

from typing import Any

from p2pfl.cli import options


def identity(commands: Any) -> None:
    """Add ``p2pfl identity``."""
    command = commands.add_parser("identity", help="make a peer's key and list it in a roster of who may take part")
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


def broker(commands: Any) -> None:
    """Add ``p2pfl broker``."""
    command = commands.add_parser("broker", help="the embedded broker on its own, or a configuration for mosquitto")
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


def deploy(commands: Any) -> None:
    """Add ``p2pfl deploy``."""
    command = commands.add_parser("deploy", help="bundles that install the peers on devices, and their broker")
    command.add_argument("experiment", metavar="EXPERIMENT", help="a TOML file")
    command.add_argument("--out", metavar="DIR", required=True, help="folder of the fleet, kept by the operator")
    command.add_argument("--broker", metavar="URL", help="at which devices reach the broker, mqtts://host:8883")
    command.add_argument("--wheel", metavar="FILE", help="the wheel of p2pfl to install")
    command.add_argument(
        "--machine",
        choices=["aarch64", "x86_64"],
        default="aarch64",
        help="architecture of the devices (default: %(default)s)",
    )
    command.add_argument(
        "--with",
        action="append",
        default=[],
        metavar="FILE",
        dest="added",
        help="a file beside the experiment that all bundles get, besides modules, graphs and models; again for more",
    )
    command.add_argument(
        "--collect", nargs="+", metavar="FILE", help="sign the requests of devices, and write their roster"
    )
    command.add_argument(
        "--yes", action="store_true", help="sign without asking, once you have compared the fingerprints"
    )
    command.add_argument(
        "--observer", action="append", default=[], metavar="NAME", help="who may watch the swarm; again for more"
    )
    command.add_argument(
        "--revoke", nargs="+", metavar="NAME", help="revoke the keys and certificates of devices or observers"
    )
    command.add_argument("--reason", default="revoked by the operator", help="why, for --revoke (one line)")
    options.as_json(command)


def doctor(commands: Any) -> None:
    """Add ``p2pfl doctor``."""
    command = commands.add_parser(
        "doctor", help="check this device, the broker and the other peers, and name the reason"
    )
    command.add_argument(
        "experiment", metavar="EXPERIMENT", nargs="?", help="a TOML file, or the name of a shipped experiment"
    )
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="such as transport.version=5"
    )
    command.add_argument("--as", metavar="PEER", dest="peer", help="the peer of this device")
    command.add_argument("--broker", action="append", metavar="URL", help="instead of transport.broker; again for more")
    command.add_argument(
        "--runs", default="runs", metavar="DIR", help="where run directories go (default: %(default)s)"
    )
    options.as_json(command)
