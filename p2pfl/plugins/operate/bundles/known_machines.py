"""Machines of the devices of a fleet, which its folder remembers from one call of ``p2pfl deploy`` to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import tomli_w

from p2pfl.core.errors import InputError
from p2pfl.plugins.operate.bundles.bundle_files import MACHINES_FILE
from p2pfl.plugins.operate.bundles.packages import DeviceKind, device_kinds, named_kinds
from p2pfl.privacy.keys.key_requests import save


@dataclass(frozen=True)
class ChosenKind:
    """Kind of a device, and who chose it.

    Parameters
    ----------
    kind
        Kind of the device.
    source
        ``--machine``, the path of the list, or an empty text for the default.
    """

    kind: DeviceKind
    source: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({f'from {self.source}' if self.source else 'the default'})"


class _MachineTable(msgspec.Struct, forbid_unknown_fields=True):
    """Content of the file."""

    devices: dict[str, str] = {}
    others: str = ""


@dataclass(frozen=True)
class KnownMachines:
    """Machines of the devices of a fleet.

    Parameters
    ----------
    path
        File with them.
    devices
        Kind of each device.
    others
        Kind of all other devices, as the last call that named one gave it; ``None`` if none did.
    """

    path: Path
    devices: Mapping[str, DeviceKind]
    others: DeviceKind | None = None

    @classmethod
    def read(cls, out: Path) -> Self:
        """Return what the folder of a fleet remembers.

        Raises
        ------
        InputError
            The file cannot be used.
        """
        path = out / MACHINES_FILE
        try:
            table = msgspec.toml.decode(path.read_bytes(), type=_MachineTable)
            named = [*([table.others] if table.others else []), *(f"{n}={kind}" for n, kind in table.devices.items())]
            given = named_kinds(named, peers=table.devices)
        except FileNotFoundError:
            return cls(path, {})
        except (OSError, ValueError, InputError):
            raise InputError(
                f"{path} is not the list of machines that deploy has written; restore it from a backup, or remove it "
                "and name the machines with --machine"
            ) from None
        return cls(path, {peer: kind for peer, kind in given.items() if peer is not None}, given.get(None))

    def choose(self, named: Sequence[str], *, peers: Sequence[str]) -> dict[str, ChosenKind]:
        """Return the kind of each device: as given, else as remembered, else the default.

        Parameters
        ----------
        named
            As for :func:`~p2pfl.plugins.operate.bundles.packages.device_kinds`.
        peers
            Names of the devices.

        Raises
        ------
        InputError
            A text names no peer, architecture or Python, or two are for the same devices.

        Examples
        --------
        >>> known = KnownMachines(Path("fleet/machines.toml"), {"pi": DeviceKind("aarch64", "3.13")})
        >>> chosen = known.choose(["pc=x86_64"], peers=["pi", "pc", "hall"])
        >>> [f"{peer}: {each}" for peer, each in chosen.items()]
        ['pi: aarch64:3.13 (from fleet/machines.toml)', 'pc: x86_64 (from --machine)', 'hall: aarch64 (the default)']
        """
        given = named_kinds(named, peers=peers)
        remembered = {peer: self.devices.get(peer, self.others) for peer in peers}
        chosen = dict[str, ChosenKind]()
        for peer, kind in device_kinds(named, peers=peers).items():
            before = remembered[peer]
            if peer in given or None in given:
                chosen[peer] = ChosenKind(kind, "--machine")
            else:
                chosen[peer] = ChosenKind(kind) if before is None else ChosenKind(before, str(self.path))
        return chosen

    def save(self, named: Sequence[str], chosen: Mapping[str, ChosenKind]) -> None:
        """Remember the kinds of devices besides those of others."""
        devices = {**self.devices, **{peer: each.kind for peer, each in chosen.items()}}
        others = named_kinds(named, peers=chosen).get(None, self.others)
        table = {"others": str(others)} if others is not None else {}
        listed = {peer: str(kind) for peer, kind in sorted(devices.items())}
        save(self.path, tomli_w.dumps({**table, "devices": listed}).encode())
