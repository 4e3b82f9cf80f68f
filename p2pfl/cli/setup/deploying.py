"""``p2pfl deploy``: bundles that install the peers of an experiment on devices."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

from p2pfl.errors import InputError


def arguments(commands: Any) -> None:
    """Add the command to the command line."""
    deploy = commands.add_parser("deploy", help="bundles that install the peers on devices, and their broker")
    deploy.add_argument("experiment", metavar="EXPERIMENT", help="a TOML file")
    deploy.add_argument("--out", metavar="DIR", required=True, help="folder of the fleet, kept by the operator")
    deploy.add_argument("--broker", metavar="URL", help="at which devices reach the broker, mqtts://host:8883")
    deploy.add_argument("--wheel", metavar="FILE", help="the wheel of p2pfl to install")
    deploy.add_argument(
        "--machine",
        choices=["aarch64", "x86_64"],
        default="aarch64",
        help="architecture of the devices (default: %(default)s)",
    )
    deploy.add_argument(
        "--collect", nargs="+", metavar="FILE", help="sign the requests of devices, and write their roster"
    )
    deploy.add_argument("--json", action="store_true", help="machine-readable results on standard output")


def deploy(options: argparse.Namespace) -> int:
    """Write bundles, or sign requests."""
    from p2pfl.deploy.bundles.fleet import Fleet  # noqa: PLC0415 (--help must not wait for it)

    fleet = Fleet.open(options.experiment, out=Path(options.out))
    now = dt.datetime.now(dt.UTC)
    if options.collect is not None:
        return _collect(fleet, options, now=now)
    if options.broker is None or options.wheel is None:
        raise InputError("--broker and --wheel are missing; name the address of the broker, and the wheel of p2pfl")
    hosts = fleet.write(broker=options.broker, machine=options.machine, wheel=Path(options.wheel), now=now)
    found = {"bundles": [str(fleet.out / peer) for peer in fleet.peers], "broker": str(fleet.out / "broker")}
    if options.json:
        print(json.dumps(found | {"hosts": hosts}))
        return 0
    for folder in found["bundles"]:
        print(folder)
    print(
        f"start the broker with mosquitto -c {fleet.out / 'broker' / 'mosquitto.conf'} (its certificate is for "
        f"{', '.join(hosts)}); copy each bundle to its device and call install.sh there; {fleet.out / 'authority'} has "
        "the key of the operator, so keep it here",
        file=sys.stderr,
    )
    return 0


def _collect(fleet: Any, options: argparse.Namespace, *, now: dt.datetime) -> int:
    """Sign requests; print whose fingerprints to compare."""
    found = fleet.collect([Path(each) for each in options.collect], now=now)
    if options.json:
        print(json.dumps({"fingerprints": found.fingerprints, "missing": found.missing, "roster": found.roster}))
        return 0
    for peer, shown in found.fingerprints.items():
        print(f"{peer}  {shown}")
    if found.missing:
        print(f"there is no request of {', '.join(found.missing)} yet, so no device has a roster", file=sys.stderr)
    else:
        print(f"roster.toml  {found.roster}")
        print(
            "compare each fingerprint with what the owner of the device reads to you; then send roster.toml and "
            "certificate.pem of each bundle to its device, call install.sh there again, and compare the line of "
            "roster.toml that it prints",
            file=sys.stderr,
        )
    return 0
