"""The operator's side of certificates: sign the requests of devices and observers, and revoke what was signed."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from p2pfl.core.errors import InputError
from p2pfl.network.protocol.wire.message_codec import OPERATOR
from p2pfl.network.transport.hardened import certify_again
from p2pfl.plugins.operate.bundles.authority import FORMER, Authority, common_names
from p2pfl.plugins.operate.bundles.bundle_files import AUTHORITY, BROKER_FOLDER, HASH_FILE
from p2pfl.privacy.keys import Identity, Roster, SecretSource, fingerprint
from p2pfl.privacy.keys.key_requests import DeviceRequest, request, save

REVOKED_FILE = "revoked.pem"
"""File of the broker with the revoked certificates."""

COPIES = "certificates"
"""Folder of the authority with copies of the certificates in the bundles."""

BROKER = "broker"
"""Name by which the operator renews the certificates of brokers."""

NOTICE_PERIOD = dt.timedelta(days=180)
"""Time before the end of a certificate in which each call of ``p2pfl deploy`` names it."""


@dataclass(frozen=True)
class CollectedRequests:
    """Result of collecting the requests of a fleet.

    Attributes
    ----------
    fingerprints
        Fingerprint of the key of each device and observer in it.
    missing
        Devices that have sent no request.
    roster, observers
        Fingerprint of each, as all commands show it; ``None`` while devices are missing, and where there are no
        observers.
    """

    fingerprints: Mapping[str, str]
    missing: Sequence[str]
    roster: str | None
    observers: str | None = None


@dataclass(frozen=True)
class RosterSigner:
    """Rosters and certificates of a fleet.

    Parameters
    ----------
    out
        Folder of the fleet.
    home
        Folder with the bundles and rosters of the experiment.
    name
        Name of the experiment.
    peers, observers
        Names of the devices, and of those who may look at them.
    now
        The time.
    """

    out: Path
    home: Path
    name: str
    peers: tuple[str, ...]
    observers: tuple[str, ...]
    now: dt.datetime

    @property
    def authority(self) -> Authority:
        """Authority of the operator."""
        return Authority.open(self.out / AUTHORITY, name=self.name, now=self.now)

    @property
    def operator(self) -> Identity:
        """Key pair with which the operator signs changes of the swarm; made, with its certificate, if it is missing."""
        keys = self.out / AUTHORITY
        if not (path := keys / f"{OPERATOR}.pem").exists():
            Identity.generate(SecretSource(), peer=OPERATOR).save(path)
        made, certificate = request(OPERATOR, keys=keys, to=keys / "operator.toml"), keys / "certificate.pem"
        if not _certifies(certificate, made):
            save(certificate, self.authority.sign(made.read, peer=OPERATOR, now=self.now))
        return Identity.load(path)

    @property
    def rosters(self) -> list[Roster]:
        """Rosters that devices have, or had."""
        former = sorted((self.out / AUTHORITY / "rosters").glob("*.toml"))
        return [Roster.read(path) for path in [self.home / "roster.toml", *former] if path.exists()]

    def folder(self, name: str) -> Path:
        """Return the bundle of a device or an observer."""
        return self.home / "observers" / name if name in self.observers else self.home / name

    def collect(
        self, files: Sequence[Path], *, confirm: Callable[[Sequence[DeviceRequest]], bool] | None = None
    ) -> CollectedRequests:
        """Sign requests, and give all bundles the rosters once every device is in them.

        Parameters
        ----------
        files
            The requests.
        confirm
            Called with the requests that have no certificate yet; nothing is signed unless it returns true.

        Raises
        ------
        InputError
            A request cannot be used, belongs to nobody in the experiment, has another key than an earlier one, or is
            not confirmed.
        StorageError
            A file cannot be written.
        """
        rosters = {kind: self._roster(kind) for kind in ("roster.toml", "observers.toml")}
        requests = [DeviceRequest.load(file) for file in files]
        for file, made in zip(files, requests, strict=True):
            kind = "observers.toml" if made.peer in self.observers else "roster.toml"
            rosters[kind] = self._add_request(rosters[kind], made, file=file)
        trusted = [each for each in (self.authority, self.authority.former) if each is not None]
        fresh = [made for made in requests if not _certifies(self._certificate(made.peer), made, trusted)]
        if fresh and confirm is not None and not confirm(fresh):
            raise InputError("nothing was signed; compare the fingerprints, then collect the requests that are right")
        self._sign(fresh)
        return self._distribute(rosters)

    def revoke(self, names: Sequence[str], *, reason: str) -> CollectedRequests:
        """Revoke the keys and certificates of devices and observers; the broker and all bundles get the new lists.

        Raises
        ------
        InputError
            A name does not belong to the fleet or has no certificate, its certificate is missing, or the reason is not
            one line.
        StorageError
            A file cannot be written.
        """
        rosters = {kind: self._roster(kind) for kind in ("roster.toml", "observers.toml")}
        revoked = []
        for name in names:
            kind = "observers.toml" if name in self.observers else "roster.toml"
            key = rosters[kind].peers.get(name)
            path = self._certificate(name)
            if not path.exists() and key is not None and key not in rosters[kind].revoked:
                raise InputError(
                    f"{path} is missing, and the broker refuses a certificate by its number; copy it back from the "
                    "device or from a backup, or replace the certificates of all others: call --renew authority, "
                    "install all other bundles, and call --revoke authority"
                )
            if name not in (*self.peers, *self.observers) or not path.exists():
                raise InputError(
                    f'"{name}" has no certificate in {self.out}; name a device or an observer that has one'
                )
            revoked += [_load(path), *self._superseded(name)]
            if key is not None:
                rosters[kind] = rosters[kind].revoke(key, reason=reason)
        if not rosters["roster.toml"].operator:  # of an earlier release; all devices get another roster anyway
            rosters["roster.toml"] = replace(rosters["roster.toml"], operator=self.operator.public)
        self.update_brokers(revoked)
        distributed = self._distribute(rosters)
        for name in names:
            path = self.folder(name) / "certificate.pem"
            for each in (self._copy(path), path):  # in this order, because a copy replaces what is missing
                each.unlink(missing_ok=True)
        return distributed

    def distribute(self, roster: Roster) -> None:
        """Give all bundles the roster to which the operator has changed the swarm.

        Raises
        ------
        StorageError
            A file cannot be written.
        """
        if roster.digest != self._roster("roster.toml").digest:
            self._distribute({"roster.toml": roster, "observers.toml": self._roster("observers.toml")})

    def renew(self, names: Sequence[str]) -> list[Path]:
        """Replace certificates while all those before stay valid, and return the files that changed.

        Parameters
        ----------
        names
            Devices and observers, ``broker`` for all brokers, and ``authority`` for another authority, which signs the
            certificates of all again. The former one stays trusted until :meth:`end_former`, and brokers show a
            certificate with which those that trust it alone accept the new one.

        Raises
        ------
        InputError
            A name has no certificate, or the authority before the present one is still trusted.
        StorageError
            A file cannot be written.
        """
        certificates = self._certificates()
        known = {name for each in certificates.values() for name in common_names(each.subject)} | {AUTHORITY, BROKER}
        for name in names:
            if name not in known:
                raise InputError(f'"{name}" has no certificate in {self.out}; name one of {", ".join(sorted(known))}')
        changed = list[Path]()
        if AUTHORITY in names:
            if not self._of_former():  # else an interrupted call goes on
                Authority.replace(self.out / AUTHORITY, name=self.name, now=self.now)
            changed += self._trust()
        if {AUTHORITY, BROKER} & {*names}:
            for folder in broker_folders(self.out):
                certify_again(folder, issuer=self.authority, now=self.now)
                changed.append(folder / "broker.pem")
        signed = dict[tuple[str, bytes], bytes]()  # one for each device, also if an interrupted call goes on
        for path, each in certificates.items():
            [name] = common_names(each.subject)
            key = each.public_key()
            if isinstance(key, ec.EllipticCurvePublicKey) and (AUTHORITY in names or name in names):
                identity = name, x509.SubjectKeyIdentifier.from_public_key(key).digest
                if identity not in signed:
                    signed[identity] = self.authority.certify(key, peer=name, now=self.now)
                self._supersede(name, each)
                self._save(path, signed[identity])
                changed.append(path)
        return changed

    def end_former(self) -> list[Path]:
        """End the trust in the former authority, and return the files that changed.

        Raises
        ------
        InputError
            There is no other one, or a certificate of the fleet is still of the former one.
        StorageError
            A file cannot be written.
        """
        folder = self.out / AUTHORITY / FORMER
        if self.authority.former is None and not (folder / "ca.key").exists():
            raise InputError(
                f"{self.out} has one authority, without which no device could log in; call --renew authority, and "
                "install the bundles, first"
            )
        if theirs := self._of_former():
            raise InputError(f"{theirs[0]} is still of the former authority; call --renew authority again")
        (folder / "ca.pem").unlink(missing_ok=True)
        brokers = [path / "broker.pem" for path in broker_folders(self.out)]
        for path in brokers:  # without what the former authority has signed for the present one
            save(path, _load(path).public_bytes(Encoding.PEM))
        changed = [*self._trust(), *brokers]
        (folder / "ca.key").unlink()  # last: while it is there, an interrupted call goes on
        return changed

    def _of_former(self) -> list[Path]:
        """Return the certificates in use that the former authority has signed."""
        former = self.authority.former
        brokers = {path / "broker.pem": _load(path / "broker.pem") for path in broker_folders(self.out)}
        return [path for path, each in {**self._certificates(), **brokers}.items() if former and former.issued(each)]

    def expiring(self) -> list[str]:
        """Return a sentence for each certificate of the fleet that ends soon."""
        others = [(common_names(each.subject)[0], each) for each in self._certificates().values()]
        brokers = [(BROKER, _load(path / "broker.pem")) for path in broker_folders(self.out)]
        ends = {name: each.not_valid_after_utc for name, each in [*others, *brokers]}
        ends[AUTHORITY] = self.authority.certificate.not_valid_after_utc
        return [
            f"the certificate of {name} {'ends' if end > self.now else 'ended'} on {end:%Y-%m-%d}; call p2pfl deploy "
            f"with --renew {name}"
            for name, end in sorted(ends.items())
            if end - self.now < NOTICE_PERIOD
        ]

    @property
    def devices(self) -> list[str]:
        """Names of the devices and observers that have certificates, in all experiments of the fleet."""
        names = {name for each in self._certificates().values() for name in common_names(each.subject)}
        return sorted(names - {OPERATOR})

    @property
    def trusted(self) -> bytes:
        """Certificates that devices trust, as PEM: of authorities, and of brokers that none of them has signed."""
        authority = self.authority
        brokers = [(folder / "broker.pem").read_bytes() for folder in broker_folders(self.out)]
        ours = authority.certificate.subject
        others = [each for each in brokers if x509.load_pem_x509_certificate(each).issuer != ours]
        return b"".join([authority.trusted, *others])

    def update_brokers(self, revoked: Sequence[x509.Certificate] = ()) -> None:
        """Write the authorities and the revoked certificates for brokers, with further ones."""
        authority = self.authority
        data = authority.revocations(self._revoked, revoked, now=self.now)
        save(self.out / AUTHORITY / REVOKED_FILE, data)
        for folder in broker_folders(self.out):
            save(folder / "ca.pem", authority.trusted)
            save(folder / REVOKED_FILE, data)

    def _trust(self) -> list[Path]:
        """Give brokers and all bundles of the fleet the authorities to trust."""
        self.update_brokers()
        data, changed = self.trusted, list[Path]()
        for path in sorted(self.out.rglob("broker.pem")):
            if BROKER_FOLDER.fullmatch(path.parent.name):
                continue
            save(path, data)
            changed.append(path)
            if (sums := path.with_name(HASH_FILE)).exists():
                was = [line for line in sums.read_text("utf-8").splitlines() if not line.endswith("  broker.pem")]
                lines = sorted([*was, f"{hashlib.sha256(data).hexdigest()}  broker.pem"], key=lambda line: line[64:])
                save(sums, "".join(f"{line}\n" for line in lines).encode())
        return changed

    def _certificates(self) -> dict[Path, x509.Certificate]:
        """Return the certificates of the operator, and of all experiments' devices and observers, that are in force.

        A roster must list the holder, and the certificate must not be revoked. The bundle may have been deleted.
        """
        copies = self.out / AUTHORITY / COPIES
        moved = {
            self.out / path.relative_to(copies).with_suffix("") / "certificate.pem" for path in copies.rglob("*.crt")
        }
        paths = sorted(path for path in {*self.out.rglob("certificate.pem"), *moved} if self._is_listed(path))
        certificates = {path: _load(self._restored(path)) for path in paths}
        revoked = self.authority.entries(self._revoked)
        return {path: each for path, each in certificates.items() if each.serial_number not in revoked}

    def _is_listed(self, path: Path) -> bool:
        """Return whether the holder of a certificate is the operator, or is in the roster of its experiment."""
        folder, home = path.parent, path.parent.parent
        kind = "roster.toml"
        if home.name == "observers":
            home, kind = home.parent, "observers.toml"
        listed = home / kind
        return folder == self.out / AUTHORITY or (listed.exists() and folder.name in Roster.read(listed).peers)

    @property
    def _revoked(self) -> bytes | None:
        path = self.out / AUTHORITY / REVOKED_FILE
        return path.read_bytes() if path.exists() else None

    def _certificate(self, name: str) -> Path:
        """Return the path of the certificate of a device or an observer, which may have none."""
        return self._restored(self.folder(name) / "certificate.pem")

    def _restored(self, path: Path) -> Path:
        """Return the path of a certificate, after its copy has replaced it if somebody moved it to its device."""
        copy = self._copy(path)
        if not path.exists() and copy.exists():
            save(path, copy.read_bytes())
        elif path.exists() and not copy.exists():  # an earlier release wrote it
            save(copy, path.read_bytes())
        return path

    def _save(self, path: Path, data: bytes) -> None:
        """Write a certificate, and a copy of it first, because the broker revokes certificates by their numbers."""
        save(self._copy(path), data)
        save(path, data)

    def _copy(self, path: Path) -> Path:
        folder = path.parent.relative_to(self.out)
        return self.out / AUTHORITY / COPIES / folder.parent / f"{folder.name}.crt"

    def _supersede(self, name: str, certificate: x509.Certificate) -> None:
        """Keep a certificate that stays valid beside the next one of its name, because it may have to be revoked."""
        path = self.out / AUTHORITY / "superseded" / f"{name}.pem"
        before, data = path.read_bytes() if path.exists() else b"", certificate.public_bytes(Encoding.PEM)
        if data not in before:
            save(path, before + data)

    def _superseded(self, name: str) -> list[x509.Certificate]:
        path = self.out / AUTHORITY / "superseded" / f"{name}.pem"
        return x509.load_pem_x509_certificates(path.read_bytes()) if path.exists() else []

    def adopt(self, homes: Sequence[Path]) -> None:
        """Take over the keys and certificates that devices have in other experiments of the fleet.

        A device has one identity, so it need not ask again.

        Parameters
        ----------
        homes
            Folders of the other experiments.
        """
        rosters = {kind: self._roster(kind) for kind in ("roster.toml", "observers.toml")}
        before = rosters["roster.toml"]
        for home in homes:
            theirs, ours = Roster.read(home / "roster.toml"), rosters["roster.toml"]
            for peer in {*self.peers} & {*theirs.peers} - {*ours.peers}:
                certificate = self._restored(home / peer / "certificate.pem")
                if theirs.peers[peer] not in theirs.revoked and certificate.exists():
                    self._save(self.folder(peer) / "certificate.pem", certificate.read_bytes())
                    rosters["roster.toml"] = ours = replace(ours, peers={**ours.peers, peer: theirs.peers[peer]})
        if rosters["roster.toml"] != before:
            self._distribute(rosters)

    def _roster(self, kind: str) -> Roster:
        path = self.home / kind
        if path.exists():
            return Roster.read(path)
        return Roster({}, operator=self.operator.public if kind == "roster.toml" else b"")

    def _add_request(self, roster: Roster, made: DeviceRequest, *, file: Path) -> Roster:
        """Return the roster with the key of a request."""
        if made.peer not in (*self.peers, *self.observers):
            raise InputError(f'{file} is of "{made.peer}", which is no peer of "{self.name}"; correct the name')
        before = roster.peers.get(made.peer)
        if before is not None and before != made.public and before not in roster.revoked:
            raise InputError(
                f'{file} has the key {made.fingerprint} of "{made.peer}" and the roster lists {fingerprint(before)}; '
                f"ask its owner which is right, and call deploy with --revoke {made.peer} if the device was replaced"
            )
        if made.public in roster.revoked:
            raise InputError(
                f'{file} has the key {made.fingerprint} of "{made.peer}", which is revoked; make new keys on the device'
            )
        return replace(roster, peers={**roster.peers, made.peer: made.public})

    def _sign(self, requests: Sequence[DeviceRequest]) -> None:
        """Sign requests, and revoke certificates of other keys that they replace."""
        authority = self.authority
        for made in requests:
            path = self._certificate(made.peer)
            if path.exists():
                self.update_brokers([_load(path), *self._superseded(made.peer)])
            self._save(path, authority.sign(made.read, peer=made.peer, now=self.now))

    def _distribute(self, rosters: Mapping[str, Roster]) -> CollectedRequests:
        """Write the rosters, and give them to all bundles once every device is in them."""
        roster, observers = rosters["roster.toml"], rosters["observers.toml"]
        missing = [peer for peer in self.peers if peer not in roster.peers]
        roster.write(self.home / "roster.toml")
        listed = (self.home / "roster.toml").read_bytes()
        if not missing:
            save(self.out / AUTHORITY / "rosters" / f"{roster.digest[:16]}.toml", listed)
        for name in (*self.peers, *self.observers) if not missing else ():
            save(self.folder(name) / "roster.toml", listed)
        seen = self._share(observers) if self.observers else None
        fingerprints = {
            name: fingerprint(each.peers[name])
            for each, names in ((roster, self.peers), (observers, self.observers))
            for name in names
            if name in each.peers and each.peers[name] not in each.revoked
        }
        return CollectedRequests(fingerprints, missing, None if missing else roster.fingerprint, seen)

    def _share(self, observers: Roster) -> str:
        """Give all devices the list of observers."""
        observers.write(self.home / "observers.toml")
        data = (self.home / "observers.toml").read_bytes()
        for peer in self.peers:
            save(self.home / peer / "observers.toml", data)
        return observers.fingerprint


def broker_folders(out: Path) -> list[Path]:
    """Return the folders of the brokers of a fleet."""
    return sorted(path for path in out.iterdir() if BROKER_FOLDER.fullmatch(path.name))


def _load(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise InputError(f"{path} is no certificate; restore it from a backup") from None


def _certifies(path: Path, made: DeviceRequest, trusted: Sequence[Authority] = ()) -> bool:
    """Return whether there is a certificate for the key of a request already, of one of the authorities if given."""
    if not path.exists():
        return False
    found = x509.load_pem_x509_certificate(path.read_bytes())
    issued = not trusted or any(each.issued(found) for each in trusted)
    return issued and found.public_key() == made.read.public_key()
