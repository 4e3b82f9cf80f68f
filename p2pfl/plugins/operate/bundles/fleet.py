"""Folders for the devices of an experiment, its broker, and the operator's authority."""

from __future__ import annotations

import datetime as dt
import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

import p2pfl
from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import replace as replace_file
from p2pfl.experiment import Experiment, find, read
from p2pfl.experiment.changed_run import SECTIONS
from p2pfl.experiment.file.own_code import references, unlisted_code
from p2pfl.experiment.file.reading import draft, flat_without_folders, plain
from p2pfl.experiment.parts.peer_graph import built
from p2pfl.network.protocol.wire.message_codec import OPERATOR, rights
from p2pfl.network.transport.address import Address
from p2pfl.network.transport.hardened import configure
from p2pfl.plugins.operate.bundles.authority import Authority, fleet_name
from p2pfl.plugins.operate.bundles.bundle_files import (
    AUTHORITY,
    HASH_FILE,
    NeighbouringFiles,
    check_experiment,
    check_observers,
    check_peers,
    content,
    is_plain,
    name_files,
    refuse_others,
)
from p2pfl.plugins.operate.bundles.known_machines import ChosenKind, KnownMachines
from p2pfl.plugins.operate.bundles.packages import (
    DeviceKind,
    locked_pythons,
    locked_requirements,
    torch_requirement,
    wheel_requirement,
)
from p2pfl.plugins.operate.bundles.roster_signer import RosterSigner
from p2pfl.plugins.operate.bundles.wheels import WHEELS, DownloadedWheels, copy_wheels, download_wheels

TEMPLATES = Path(__file__).with_name("templates")

BROKER_TEMPLATES = Path(__file__).with_name("broker")
"""Templates of what installs a broker."""

README = Path(__file__).with_name("observer") / "README.txt"
"""Template of what an observer reads."""

WRITTEN = ("broker", "ca", "certificate", "key", "credentials")
"""Keys of ``[transport]`` that each bundle has of its own, or that each device has."""

UNSEEN_SECTIONS = ("data", "model", "compression", "telemetry")
"""Sections that the experiment file of an observer lacks, because nothing that peers share depends on them."""


@dataclass(frozen=True)
class WrittenFleet:
    """Result of writing a fleet.

    Attributes
    ----------
    hosts
        Hosts in the certificate of the broker.
    contents
        Names of the files that were written into each bundle and each folder of an observer.
    left
        Files that the experiment names and that no bundle has, each with its key.
    machines
        Kind of each device, and where it comes from.
    """

    hosts: Sequence[str]
    contents: Mapping[Path, Sequence[str]]
    left: Mapping[str, str]
    machines: Mapping[str, ChosenKind]


@dataclass(frozen=True)
class BundlePackages:
    """Packages of a kind of device.

    Attributes
    ----------
    torch, requirements
        Texts of ``torch.txt`` and ``requirements.txt``.
    own
        Wheel of p2pfl.
    wheels
        Wheels of all other packages, if bundles have them.
    """

    torch: str
    requirements: str
    own: Path
    wheels: DownloadedWheels | None = None


@dataclass(frozen=True)
class Fleet:
    """An experiment whose peers are devices.

    Parameters
    ----------
    source
        Its file.
    experiment
        Content of the file.
    peers
        Names of all devices.
    out
        Folder of the fleet.
    """

    source: Path
    experiment: Experiment
    peers: tuple[str, ...]
    out: Path

    @classmethod
    def open(cls, source: str, *, out: Path, trust_code: bool = False) -> Fleet:
        """Read the experiment of a fleet.

        Parameters
        ----------
        source
            The experiment.
        out
            Folder of the fleet.
        trust_code
            Whether the code that the experiment names may run, here and on the devices.

        Raises
        ------
        InputError
            It cannot be used, or the name of the experiment or of a peer cannot be part of a script.
        """
        path = find(source)
        experiment = read(path, trust_code=trust_code)
        peers = built(experiment).peers
        check_experiment(experiment.name)
        check_peers(peers)
        return cls(path, experiment, peers, out)

    def write(
        self,
        *,
        brokers: Sequence[str],
        wheel: Path,
        now: dt.datetime,
        machines: Sequence[str] = (),
        observers: Sequence[str] = (),
        added: Sequence[Path] = (),
        wheels: bool = False,
    ) -> WrittenFleet:
        """Write the folder of the broker and a bundle for each device; keep keys, certificates and rosters.

        Parameters
        ----------
        brokers
            URLs at which devices reach the broker; the first that answers serves, the others are for when it fails.
        wheel
            Wheel of p2pfl.
        now
            The time.
        machines
            Kinds of devices, as ``--machine`` names them; those of an earlier call stay where none is given.
        observers
            Names of further observers.
        added
            Files beside the experiment that bundles have besides modules, graphs, weights and models.
        wheels
            Whether bundles have the wheels of all packages, which pip downloads here.

        Returns
        -------
        WrittenFleet
            What was written.

        Raises
        ------
        InputError
            The URL, the wheel, a file beside the experiment or an earlier file cannot be used, a bundle has a file
            that does not belong into it, or a package has no wheel for a device.
        StorageError
            A file cannot be written.
        """
        addresses = [Address.parse(each) for each in brokers]
        for where in addresses:
            if where.scheme != "mqtts":
                raise InputError(
                    f"{where} is not an address for mosquitto with TLS; give one such as mqtts://hub.example:8883"
                )
        known_observers = {path.name for path in self._find("observers/*") if path.is_dir()}
        known_peers = {path.parent.name for path in self._find(f"*/{HASH_FILE}")}
        check_observers(sorted({*observers, *known_observers}), peers={*self.peers, *known_peers})
        if observers and self.experiment.telemetry.share == "none":
            raise InputError(
                'the peers share nothing that an observer could see; set telemetry.share to "health" or "scores"'
            )
        self._check_home()
        known = KnownMachines.read(self.out)
        chosen = known.choose(machines, peers=self.peers)
        fixed = {self._file, "broker.pem", "requirements.txt", "torch.txt", wheel.name}
        fixed |= {path.name for path in TEMPLATES.iterdir()}
        carried = self._files_beside(added)
        beside = name_files(self.source.parent, carried, taken=fixed)
        graphs = name_files(self.source.parent, self._files.graphs(), taken=fixed)
        for peer in self.peers:
            refuse_others(self.home / peer, {*fixed, *beside, *_written_files(self.home / peer)})
        for name in {*self.observers, *observers}:
            refuse_others(self.home / "observers" / name, {self._file, "broker.pem", README.name, *graphs})
        kinds = {peer: each.kind for peer, each in chosen.items()}
        packages = {kind: self._packages(kind, own=wheel, wheels=wheels) for kind in {*kinds.values()}}
        known.save(machines, chosen)
        for name in observers:
            _put(self.home / "observers" / name / README.name, b"")
        authority = Authority.open(self.out / AUTHORITY, name=self.experiment.name, now=now)
        signer = self.signer(now=now)
        hosts = self._write_brokers(addresses, authority, signer)
        trusted = signer.trusted
        contents = {
            self.home / peer: self._bundle(
                peer,
                brokers=addresses,
                kind=kinds[peer],
                packages=packages[kinds[peer]],
                beside={"broker.pem": trusted, **{inner: content(path) for inner, path in beside.items()}},
            )
            for peer in self.peers
        }
        for name in self.observers:
            files = {"broker.pem": trusted, **{inner: path.read_bytes() for inner, path in graphs.items()}}
            contents[self.home / "observers" / name] = self._observer(name, brokers=addresses, beside=files)
        signer.adopt(self._other_homes())
        return WrittenFleet(hosts, contents, self._files.find_left(carried), chosen)

    def _observer(self, name: str, *, brokers: Sequence[Address], beside: Mapping[str, bytes]) -> list[str]:
        """Write the folder of one observer: nothing with which they could train, and no data."""
        folder = self.home / "observers" / name
        marks = {"PEER": name, "NAME": self.experiment.name, "FILE": self._file, "VERSION": p2pfl.__version__}
        coded = {key for key, each in plain(self.experiment).items() if references({key: each})} - {"topology"}
        unseen = {*UNSEEN_SECTIONS, *coded}
        table = {key: each for key, each in self._table(name, brokers=brokers).items() if key not in unseen}
        table.get("privacy", {}).pop("budget", None)
        made = {
            self._file: tomli_w.dumps(table).encode(),
            README.name: fill_template(README.read_text("utf-8"), marks).encode(),
            **beside,
        }
        for inner, data in made.items():
            _put(folder / inner, data)
        read(folder / self._file, trust_code=True)  # as the observer will
        return sorted(made)

    @property
    def _files(self) -> NeighbouringFiles:
        """Files beside the experiment."""
        return NeighbouringFiles(self.source.parent, tomllib.loads(self.source.read_text("utf-8")))

    def _files_beside(self, added: Sequence[Path] = ()) -> list[Path]:
        """Return the files beside the experiment that each bundle has."""
        return self._files.carried_files(added=added)

    @property
    def _file(self) -> str:
        """Name of the experiment file in each bundle."""
        return f"{self.experiment.name}.toml"

    def _packages(self, kind: DeviceKind, *, own: Path, wheels: bool) -> BundlePackages:
        """Return the requirements of a kind of device, with their wheels if bundles have these."""
        torch = torch_requirement(self.experiment, machine=kind.machine)
        locked = locked_requirements(self.experiment, machine=kind.machine)
        requirements = locked + wheel_requirement(own)
        if wheels:
            downloaded = download_wheels(kind, torch=torch, requirements=locked, folder=self.out / WHEELS)
            return BundlePackages(downloaded.torch, requirements, own, downloaded)
        if torch and not {*kind.pythons} <= {*locked_pythons(kind.machine)}:
            raise InputError(
                f"the lock of {kind.machine} has no torch for Python {kind.python}; add --wheels, which takes the one "
                "that pip finds here"
            )
        return BundlePackages(torch, requirements, own)

    def _bundle(
        self,
        peer: str,
        *,
        brokers: Sequence[Address],
        kind: DeviceKind,
        packages: BundlePackages,
        beside: Mapping[str, bytes],
    ) -> list[str]:
        """Write the bundle of one device, and remove what an earlier call has written and this one does not."""
        folder, file = self.home / peer, self._file
        digests = {} if packages.wheels is None else packages.wheels.digests
        files = [file, *sorted(beside)]
        marks = {
            "PEER": peer,
            "NAME": self.experiment.name,
            "FILE": file,
            "FILES": " ".join(files),
            "MACHINE": kind.machine,
            "LOWEST": kind.pythons[0],
            "HIGHEST": kind.pythons[-1],
            "PYTHONS": " to ".join(dict.fromkeys((kind.pythons[0], kind.pythons[-1]))),
            "VERSION": p2pfl.__version__,
            "TRUST": " --trust-code" if unlisted_code(plain(self.experiment)) else "",
        }
        made = {
            file: tomli_w.dumps(self._table(peer, brokers=brokers)).encode(),
            "requirements.txt": packages.requirements.encode(),
            "torch.txt": packages.torch.encode(),
            packages.own.name: packages.own.read_bytes(),
            **beside,
            **{
                path.name: fill_template(path.read_text("utf-8"), marks).encode()
                for path in sorted(TEMPLATES.iterdir())
            },
        }
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in made.items()}
        hashes |= {f"{WHEELS}/{name}": digest for name, digest in digests.items()}
        for name in {*_written_files(folder)} - {*hashes}:
            (folder / name).unlink(missing_ok=True)
        for name, data in made.items():
            _put(folder / name, data, mode=0o755 if name == "install.sh" else 0o644)
        if packages.wheels is not None:
            copy_wheels(packages.wheels, folder / WHEELS)
        elif (folder / WHEELS).is_dir():
            (folder / WHEELS).rmdir()
        sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(hashes.items()))
        _put(folder / HASH_FILE, sums.encode())
        if self.observers:
            listed = self.home / "observers.toml"
            _put(folder / "observers.toml", listed.read_bytes() if listed.exists() else b"[peers]\n")
        read(folder / file, trust_code=True)  # as the device will
        return sorted(hashes)

    def _table(self, peer: str, *, brokers: Sequence[Address]) -> dict[str, Any]:
        """Return the experiment file for a device, with its own relative paths."""
        table = tomllib.loads(self.source.read_text("utf-8"))
        transport = {key: value for key, value in table.get("transport", {}).items() if key != "credentials"}
        urls = [str(each) for each in brokers]
        broker = urls if len(urls) > 1 else urls[0]
        ours = {"broker": broker, "ca": "broker.pem", "certificate": "certificate.pem", "key": f"keys/{peer}.key"}
        mine = {"transport": transport | ours, "trust": {"keys": "keys", "roster": "roster.toml"}}
        if self.observers:
            mine["telemetry"] = table.get("telemetry", {}) | {"observers": "observers.toml"}
        return table | mine

    def edited(self) -> list[str]:
        """Return the keys in which the experiment differs from the bundles, besides those that a change takes."""
        files = [path for peer in self.peers if (path := self.home / peer / self._file).is_file()]
        ours, theirs = (
            flat_without_folders(each) for each in (self.experiment, *map(draft, files[:1] or [self.source]))
        )
        others = (
            "rounds",
            *(f"{section}." for section in SECTIONS),
            "trust.",
            *(f"transport.{key}" for key in WRITTEN),
        )
        keys = {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
        return sorted(key for key in keys if not key.startswith(others) and key != "telemetry.observers")

    @property
    def home(self) -> Path:
        """Folder with the bundles: that of the fleet, and for a further experiment one of its name in it."""
        first = fleet_name(self.out / AUTHORITY)
        return self.out if first in {None, self.experiment.name} else self.out / self.experiment.name

    def _check_home(self) -> None:
        """Refuse an experiment with the name of another folder of the fleet."""
        if self.home != self.out:
            check_peers([self.experiment.name])
            if (self.home / HASH_FILE).exists():
                raise InputError(f"{self.home} is the bundle of a device; rename the experiment")

    def _other_homes(self) -> list[Path]:
        """Return the folders with bundles of other experiments of the fleet."""
        folders = [self.out, *sorted(path for path in self.out.iterdir() if not (path / HASH_FILE).exists())]
        return [path for path in folders if path != self.home and (path / "roster.toml").is_file()]

    def _find(self, pattern: str) -> list[Path]:
        """Return the paths of a pattern in the folders of all experiments of the fleet."""
        return [*self.out.glob(pattern), *self.out.glob(f"*/{pattern}")]

    def _write_brokers(self, addresses: Sequence[Address], authority: Authority, signer: RosterSigner) -> list[str]:
        """Write a folder for each broker; return the hosts in their certificates."""
        folders = [self.out / f"broker{number if number > 1 else ''}" for number in range(1, len(addresses) + 1)]
        for folder in folders:
            for path in sorted(BROKER_TEMPLATES.iterdir()):
                text = fill_template(path.read_text("utf-8"), {"NAME": fleet_name(self.out / AUTHORITY) or ""})
                _put(folder / path.name, text.encode(), mode=0o755 if path.suffix == ".sh" else 0o644)
        signer.update_brokers()
        hosts = list[str]()
        for folder, where in zip(folders, addresses, strict=True):
            hosts += configure(
                folder,
                rights=rights(self.experiment.name, prefix=self.experiment.transport.prefix),
                peers=(),
                certified=(*self.peers, *self.observers, OPERATOR),
                host="127.0.0.1" if where.here else "0.0.0.0",  # noqa: S104 (clients need a certificate)
                public=[where.host],
                port=where.port,
                issuer=authority,
            )
        return [*dict.fromkeys(hosts)]

    def signer(self, *, now: dt.datetime) -> RosterSigner:
        """Return the rosters and certificates of the fleet."""
        return RosterSigner(self.out, self.home, self.experiment.name, self.peers, self.observers, now)

    @property
    def observers(self) -> tuple[str, ...]:
        """Names of those who may look at the devices."""
        folder = self.home / "observers"
        return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()


def fill_template(text: str, marks: Mapping[str, str]) -> str:
    """Return a template with its marks replaced; ``@PREFIX@``, ``@STATE@`` and ``@USER@`` are left to the device.

    Examples
    --------
    >>> fill_template("peer @PEER@ in @STATE@", {"PEER": "ada"})
    'peer ada in @STATE@'
    """
    for mark, value in marks.items():
        text = text.replace(f"@{mark}@", value)
    return text


def _written_files(folder: Path) -> list[str]:
    """Return the names of the files that an earlier call has written into a bundle."""
    sums = folder / HASH_FILE
    lines = sums.read_text("utf-8").splitlines() if sums.is_file() else []
    names = [line.partition("  ")[2] for line in lines]
    return [name for name in names if is_plain(name.replace("+", "-"))]  # torch-2.13.0+cpu


def _put(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file as a whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
        path.chmod(mode)
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}); choose another folder with --out") from None
