"""``p2pfl deploy``: bundles that install the peers of an experiment on devices."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pfl.cli.experiments import trusts_code
from p2pfl.core.errors import InputError
from p2pfl.plugins.operate.bundles.bundle_files import AUTHORITY
from p2pfl.plugins.operate.operate_commands import DeployOptions

if TYPE_CHECKING:
    from p2pfl.plugins.operate.bundles.fleet import Fleet, WrittenFleet
    from p2pfl.plugins.operate.bundles.roster_signer import CollectedRequests
    from p2pfl.privacy.keys.key_requests import DeviceRequest


def deploy(options: DeployOptions) -> int:
    """Write bundles, or sign requests."""
    # Other commands of this folder need not wait for these.
    from p2pfl.plugins.operate.bundles.fleet import Fleet  # noqa: PLC0415

    trusted = trusts_code(options.experiment, agreed=options.trust_code)
    fleet = Fleet.open(options.experiment, out=Path(options.out), trust_code=trusted)
    now = dt.datetime.now(dt.UTC)
    status = _do(fleet, options, now=now)
    for sentence in fleet.signer(now=now).expiring():
        print(f"warning: {sentence}", file=sys.stderr)
    return status


def _do(fleet: Fleet, options: DeployOptions, *, now: dt.datetime) -> int:
    """Do what the options ask for."""
    if options.collect is not None:
        return _collect(fleet, options.collect, options, now=now)
    if options.revoke is not None:
        return _revoke(fleet, options.revoke, options, now=now)
    if options.renew is not None:
        return _renew(fleet, options.renew, options, now=now)
    if options.apply:
        from p2pfl.plugins.operate.apply_command import apply  # noqa: PLC0415

        return apply(fleet, options, now=now)
    if options.after is not None or options.dry_run:
        raise InputError("--after and --dry-run work with --apply alone; add it, or leave them out")
    if not options.broker or options.wheel is None:
        raise InputError("--broker and --wheel are missing; name the address of the broker, and the wheel of p2pfl")
    written = fleet.write(
        brokers=options.broker,
        machines=options.machine,
        wheels=options.wheels,
        wheel=Path(options.wheel),
        now=now,
        observers=options.observer,
        added=[Path(each) for each in options.added],
    )
    _show_written(fleet, written, options)
    return 0


def _show_written(fleet: Fleet, written: WrittenFleet, options: DeployOptions) -> None:
    """Print what was written, and what to do with it."""
    paths: dict[str, Any] = {
        "bundles": [str(fleet.home / peer) for peer in fleet.peers],
        "observers": [str(fleet.home / "observers" / name) for name in fleet.observers],
        "broker": str(fleet.out / "broker"),
    }
    if options.json:
        contents = {str(folder): names for folder, names in written.contents.items()}
        machines = {peer: {"kind": str(each.kind), "source": each.source} for peer, each in written.machines.items()}
        others = {"hosts": written.hosts, "contents": contents, "left": written.left, "machines": machines}
        print(json.dumps(paths | others))
        return
    for folder, names in written.contents.items():
        plain = [name for name in names if not name.endswith(".whl") or "/" not in name]
        packed = [f"{len(names) - len(plain)} wheels"] if len(plain) < len(names) else []
        print(f"{folder}: {', '.join([*plain, *packed])}")
    for chosen in dict.fromkeys(written.machines.values()):
        print(f"{chosen}: {', '.join(peer for peer, each in written.machines.items() if each == chosen)}")
    for name, key in written.left.items():
        print(
            f"{name} ({key}) stays here, because it may be private; each device needs its own, or add --with "
            f"{fleet.source.parent / name} to give this one to all devices",
            file=sys.stderr,
        )
    print(
        f"copy {fleet.out / 'broker'} to its host and call install.sh there, or start it here with mosquitto -c "
        f"{fleet.out / 'broker' / 'mosquitto.conf'} (its certificate is for {', '.join(written.hosts)}); copy each "
        f"bundle to its device and call install.sh there; {fleet.out / AUTHORITY} has the key of the operator, so "
        "keep it here",
        file=sys.stderr,
    )


def _collect(fleet: Fleet, requests: list[str], options: DeployOptions, *, now: dt.datetime) -> int:
    """Sign requests; print whose fingerprints to compare."""
    if not options.yes and not sys.stdin.isatty():
        raise InputError("nobody can be asked here whether the fingerprints are right; compare them, and add --yes")
    confirm = None if options.yes else _confirmed
    collected = fleet.signer(now=now).collect([Path(each) for each in requests], confirm=confirm)
    if options.json:
        print(json.dumps(_results(collected)))
        return 0
    _show(collected)
    if collected.missing:
        print(f"there is no request of {', '.join(collected.missing)} yet, so no device has a roster", file=sys.stderr)
    else:
        print(
            "compare each fingerprint with what the owner of the device reads to you; then send roster.toml and "
            "certificate.pem of each bundle to its device, call install.sh there again, and compare the line of "
            "roster.toml that it prints",
            file=sys.stderr,
        )
    return 0


def _confirmed(requests: Sequence[DeviceRequest]) -> bool:
    """Show the requests that are to be signed, and return whether the operator agrees."""
    for made in requests:
        print(f"{made.peer}  {made.fingerprint}  certificate request {made.certificate_fingerprint}", file=sys.stderr)
    print("does the owner of each device read the same fingerprint to you? sign these requests [yes/no]:", end=" ")
    sys.stdout.flush()
    return _agrees()


def _revoke(fleet: Fleet, names: list[str], options: DeployOptions, *, now: dt.datetime) -> int:
    """Revoke keys and certificates; print what to do with the new lists."""
    signer = fleet.signer(now=now)
    if names == [AUTHORITY]:
        if not options.yes:
            _confirm_installed(signer.devices)
        return _show_changed(signer.end_former(), options)
    collected = signer.revoke(names, reason=options.reason)
    if options.json:
        print(json.dumps(_results(collected)))
        return 0
    _show(collected)
    print(
        f"copy {fleet.out / 'broker' / 'revoked.pem'} to the host of the broker and call install.sh there again, which "
        "starts mosquitto again and ends the connections of the revoked; send each remaining device its new "
        "roster.toml (and observers.toml), call install.sh there, and start the peers again",
        file=sys.stderr,
    )
    return 0


def _confirm_installed(devices: Sequence[str]) -> None:
    """Ask whether no device needs the former authority any more."""
    if not sys.stdin.isatty():
        raise InputError(
            "nobody can be asked here whether all devices have the bundles that --renew authority wrote, without which "
            "they are cut off; check each of them, and add --yes"
        )
    others = ", ".join(devices)
    print(f"do {others} have the bundles that --renew authority wrote? one without is cut off [yes/no]:", end=" ")
    sys.stdout.flush()
    if not _agrees():
        raise InputError("nothing was changed; install the bundles on all devices first")


def _agrees() -> bool:
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _renew(fleet: Fleet, names: list[str], options: DeployOptions, *, now: dt.datetime) -> int:
    """Replace certificates; print where to install them."""
    return _show_changed(fleet.signer(now=now).renew(names), options)


def _show_changed(changed: Sequence[Path], options: DeployOptions) -> int:
    """Print which files changed, and what to do with them."""
    if options.json:
        print(json.dumps({"changed": [str(path) for path in changed]}))
        return 0
    for path in changed:
        print(path)
    print(
        "copy the folder of each broker to its host and call install.sh there first; then copy each bundle to its "
        "device and call install.sh there, while its peer runs: it reads the files when it connects again",
        file=sys.stderr,
    )
    return 0


def _results(collected: CollectedRequests) -> dict[str, Any]:
    results = {"fingerprints": collected.fingerprints, "missing": collected.missing, "roster": collected.roster}
    return results if collected.observers is None else results | {"observers": collected.observers}


def _show(collected: CollectedRequests) -> None:
    for name, shown in collected.fingerprints.items():
        print(f"{name}  {shown}")
    for file, digest in (("roster.toml", collected.roster), ("observers.toml", collected.observers)):
        if digest is not None:
            print(f"{file}  {digest}")
