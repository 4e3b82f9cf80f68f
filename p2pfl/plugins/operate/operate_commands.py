"""The commands ``p2pfl deploy`` and ``p2pfl doctor``."""

from __future__ import annotations

from argparse import ArgumentParser

from p2pfl.cli import options
from p2pfl.cli.command import Command


def _deploy(command: ArgumentParser) -> None:
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


def _doctor(command: ArgumentParser) -> None:
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


DEPLOY = Command(
    "operate",
    "bundles that install the peers on devices, and their broker",
    _deploy,
    "p2pfl.plugins.operate.deploy_command:deploy",
)
DOCTOR = Command(
    "operate",
    "check this device, the broker and the other peers, and name the reason",
    _doctor,
    "p2pfl.plugins.operate.doctor_command:doctor",
)
