"""Folders for the devices of an experiment, its broker, and the operator's authority."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

import p2pfl
from p2pfl.deploy.bundles import names
from p2pfl.deploy.bundles.authority import Authority
from p2pfl.deploy.bundles.requests import Request
from p2pfl.deploy.bundles.requirements import Machine, requirements
from p2pfl.errors import InputError, StorageError
from p2pfl.experiment import Experiment, find, read
from p2pfl.experiment.outline import built, loaded
from p2pfl.files import replace as replace_file
from p2pfl.identity import Roster, fingerprint
from p2pfl.protocol.wire.sealing import rights
from p2pfl.transport.address import Address
from p2pfl.transport.hardened import configure

TEMPLATES = Path(__file__).with_name("templates")

SUMS = "SHA256SUMS"
"""File with the hashes of a bundle, as sha256sum reads it."""

_OWN = re.compile(r"([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_]\w*")
"""A ``module:function`` of the user's own."""


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
    def open(cls, source: str, *, out: Path) -> Fleet:
        """Read the experiment of a fleet.

        Raises
        ------
        InputError
            It cannot be used, or the name of the experiment or of a peer cannot be part of a script.
        """
        path = find(source)
        experiment = read(path)
        peers = (loaded(experiment) or built(experiment)).peers
        names.experiment(experiment.name)
        names.peers(peers)
        return cls(path, experiment, peers, out)

    # ------------------------------------------------------------------ bundles

    def write(self, *, broker: str, machine: Machine, wheel: Path, now: dt.datetime) -> list[str]:
        """Write the folder of the broker and a bundle for each device; keep keys, certificates and the roster.

        Parameters
        ----------
        broker
            URL at which devices reach the broker.
        machine
            Architecture of the devices.
        wheel
            Wheel of p2pfl.
        now
            The time.

        Returns
        -------
        list of str
            Hosts in the certificate of the broker.

        Raises
        ------
        InputError
            The URL, the wheel, a file beside the experiment or an earlier file cannot be used.
        StorageError
            A file cannot be written.
        """
        where = Address.parse(broker)
        if where.scheme != "mqtts":
            raise InputError(
                f"{where} is not an address for mosquitto with TLS; give one such as mqtts://hub.example:8883"
            )
        needed = requirements(self.experiment, machine=machine, wheel=wheel)
        fixed = {self._file, "broker.pem", "requirements.txt", wheel.name, *(path.name for path in TEMPLATES.iterdir())}
        beside = names.beside(self.source.parent, [*self._beside()], taken=fixed)
        authority = Authority.open(self.out / "authority", name=self.experiment.name, now=now)
        place = self.out / "broker"
        _put(place / "ca.pem", authority.certificate.public_bytes(Encoding.PEM))
        listen = "127.0.0.1" if where.here else "0.0.0.0"  # noqa: S104 (clients need a certificate)
        hosts = configure(
            place, rights=rights(self.experiment.name), peers=(), host=listen, public=[where.host], port=where.port
        )
        for peer in self.peers:
            self._bundle(peer, broker=str(where), machine=machine, wheel=wheel, needed=needed, beside=beside)
        return hosts

    @property
    def _file(self) -> str:
        """Name of the experiment file in each bundle."""
        return f"{self.experiment.name}.toml"

    def _bundle(
        self, peer: str, *, broker: str, machine: Machine, wheel: Path, needed: str, beside: Mapping[str, Path]
    ) -> None:
        """Write the bundle of one device."""
        folder, file = self.out / peer, self._file
        files = [file, "broker.pem", *sorted(beside)]
        marks = {
            "PEER": peer,
            "NAME": self.experiment.name,
            "FILE": file,
            "FILES": " ".join(files),
            "COPIED": " ".join(files),
            "MACHINE": machine,
            "VERSION": p2pfl.__version__,
        }
        made = {
            file: tomli_w.dumps(self._table(peer, broker=broker)).encode(),
            "broker.pem": (self.out / "broker" / "broker.pem").read_bytes(),
            "requirements.txt": needed.encode(),
            wheel.name: wheel.read_bytes(),
            **{name: path.read_bytes() for name, path in beside.items()},
            **{path.name: filled(path.read_text("utf-8"), marks).encode() for path in sorted(TEMPLATES.iterdir())},
        }
        for name, data in made.items():
            _put(folder / name, data, mode=0o755 if name == "install.sh" else 0o644)
        sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(made.items()))
        _put(folder / SUMS, sums.encode())
        read(folder / file)  # as the device will

    def _table(self, peer: str, *, broker: str) -> dict[str, Any]:
        """Return the experiment file for a device, with its own relative paths."""
        table = tomllib.loads(self.source.read_text("utf-8"))
        transport = {key: value for key, value in table.get("transport", {}).items() if key != "credentials"}
        ours = {"broker": broker, "ca": "broker.pem", "certificate": "certificate.pem", "key": f"keys/{peer}.key"}
        return table | {"transport": transport | ours, "trust": {"keys": "keys", "roster": "roster.toml"}}

    def _beside(self) -> Iterator[Path]:
        """Yield the files beside the experiment that it names: modules of the user's own, graphs, models; no data."""
        table = tomllib.loads(self.source.read_text("utf-8"))
        for section, key, text in _texts(table):
            if section in {"transport", "trust"} or (section, key) == ("data", "path"):
                continue
            own = _OWN.fullmatch(text)
            path = self.source.parent / (f"{own[1]}.py" if own else text)
            if path.is_file() and not Path(text).is_absolute() and ".." not in Path(text).parts:
                yield path

    # ------------------------------------------------------------------ requests

    def collect(self, files: Sequence[Path], *, now: dt.datetime) -> Collected:
        """Sign the requests of devices, and give all bundles the roster once every device is in it.

        Parameters
        ----------
        files
            The requests.
        now
            The time.

        Raises
        ------
        InputError
            A request cannot be used, is of nobody in the experiment, or has another key than an earlier one.
        StorageError
            A file cannot be written.
        """
        path = self.out / "roster.toml"
        roster = Roster.read(path) if path.exists() else Roster({})
        authority = Authority.open(self.out / "authority", name=self.experiment.name, now=now)
        requests = [Request.load(file) for file in files]
        for file, made in zip(files, requests, strict=True):
            roster = self._listed(roster, made, file=file)
        for made in requests:
            certificate = self.out / made.peer / "certificate.pem"
            if not _certifies(certificate, made):
                _put(certificate, authority.sign(made.read, peer=made.peer, now=now))
        roster.write(path)
        missing = [peer for peer in self.peers if peer not in roster.peers]
        for peer in self.peers if not missing else ():
            _put(self.out / peer / "roster.toml", path.read_bytes())
        listed = {peer: fingerprint(roster.peers[peer]) for peer in self.peers if peer in roster.peers}
        return Collected(listed, missing, None if missing else fingerprint(path.read_bytes()))

    def _listed(self, roster: Roster, made: Request, *, file: Path) -> Roster:
        """Return the roster with the key of a request."""
        if made.peer not in self.peers:
            raise InputError(
                f'{file} is of "{made.peer}", which is no peer of "{self.experiment.name}"; correct the name'
            )
        before = roster.peers.get(made.peer)
        if before is not None and before != made.public:
            raise InputError(
                f'{file} has the key {made.fingerprint} of "{made.peer}" and the roster lists {fingerprint(before)}; '
                "ask its owner which is right, and remove the old line from the roster if the device was replaced"
            )
        return replace(roster, peers={**roster.peers, made.peer: made.public})


@dataclass(frozen=True)
class Collected:
    """Result of collecting the requests of a fleet.

    Attributes
    ----------
    fingerprints
        Of the key of each device in it.
    missing
        Devices that have sent no request.
    roster
        First 32 hexadecimal digits of the SHA-256 of the file, in groups of four; ``None`` while devices are missing.
    """

    fingerprints: Mapping[str, str]
    missing: Sequence[str]
    roster: str | None


def filled(text: str, marks: Mapping[str, str]) -> str:
    """Return a template with its marks replaced; ``@PREFIX@`` and ``@STATE@`` are left to the device.

    Examples
    --------
    >>> filled("peer @PEER@ in @STATE@", {"PEER": "ada"})
    'peer ada in @STATE@'
    """
    for mark, value in marks.items():
        text = text.replace(f"@{mark}@", value)
    return text


def _texts(table: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield each text in a table with its section and key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _texts(value, section or key)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text:
                yield section, key, text


def _certifies(path: Path, made: Request) -> bool:
    """Return whether there is a certificate for the key of a request already."""
    if not path.exists():
        return False
    return x509.load_pem_x509_certificate(path.read_bytes()).public_key() == made.read.public_key()


def _put(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file as a whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
        path.chmod(mode)
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}); choose another folder with --out") from None
