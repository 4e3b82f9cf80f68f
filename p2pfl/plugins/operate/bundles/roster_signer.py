"""The operator's side of certificates: sign the requests of devices and observers, and revoke what was signed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509

from p2pfl.core.errors import InputError
from p2pfl.network.protocol.wire.message_codec import OPERATOR
from p2pfl.plugins.operate.bundles.authority import Authority
from p2pfl.plugins.operate.bundles.bundle_files import BROKER_FOLDER
from p2pfl.privacy.keys import Identity, Roster, SecretSource, fingerprint
from p2pfl.privacy.keys.key_requests import DeviceRequest, request, save

REVOKED_FILE = "revoked.pem"
"""File of the broker with the revoked certificates."""


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
        return Authority.open(self.out / "authority", name=self.name, now=self.now)

    @property
    def operator(self) -> Identity:
        """Key pair with which the operator signs changes of the swarm; made, with its certificate, if it is missing."""
        keys = self.out / "authority"
        if not (path := keys / f"{OPERATOR}.pem").exists():
            Identity.generate(SecretSource(), peer=OPERATOR).save(path)
        made, certificate = request(OPERATOR, keys=keys, to=keys / "request.toml"), keys / "certificate.pem"
        if not _certifies(certificate, made):
            save(certificate, self.authority.sign(made.read, peer=OPERATOR, now=self.now))
        return Identity.load(path)

    @property
    def rosters(self) -> list[Roster]:
        """Rosters that devices have, or had."""
        former = sorted((self.out / "authority" / "rosters").glob("*.toml"))
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
        fresh = [made for made in requests if not _certifies(self.folder(made.peer) / "certificate.pem", made)]
        if fresh and confirm is not None and not confirm(fresh):
            raise InputError("nothing was signed; compare the fingerprints, then collect the requests that are right")
        self._sign(fresh)
        return self._distribute(rosters)

    def revoke(self, names: Sequence[str], *, reason: str) -> CollectedRequests:
        """Revoke the keys and certificates of devices and observers; the broker and all bundles get the new lists.

        Raises
        ------
        InputError
            A name does not belong to the fleet or has no certificate, or the reason is not one line.
        StorageError
            A file cannot be written.
        """
        rosters = {kind: self._roster(kind) for kind in ("roster.toml", "observers.toml")}
        revoked = []
        for name in names:
            path = self.folder(name) / "certificate.pem"
            if name not in (*self.peers, *self.observers) or not path.exists():
                raise InputError(
                    f'"{name}" has no certificate in {self.out}; name a device or an observer that has one'
                )
            revoked.append(x509.load_pem_x509_certificate(path.read_bytes()))
            kind = "observers.toml" if name in self.observers else "roster.toml"
            if (key := rosters[kind].peers.get(name)) is not None:
                rosters[kind] = rosters[kind].revoke(key, reason=reason)
        if not rosters["roster.toml"].operator:  # of an earlier release; all devices get another roster anyway
            rosters["roster.toml"] = replace(rosters["roster.toml"], operator=self.operator.public)
        self.renew(revoked)
        distributed = self._distribute(rosters)
        for name in names:
            (self.folder(name) / "certificate.pem").unlink()
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

    def renew(self, revoked: Sequence[x509.Certificate] = ()) -> None:
        """Write the list of revoked certificates for the broker, with further ones."""
        path = self.out / "authority" / REVOKED_FILE
        before = path.read_bytes() if path.exists() else None
        data = self.authority.revocations(before, revoked, now=self.now)
        save(path, data)
        for folder in broker_folders(self.out):
            save(folder / REVOKED_FILE, data)

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
                certificate = home / peer / "certificate.pem"
                if theirs.peers[peer] not in theirs.revoked and certificate.exists():
                    save(self.folder(peer) / "certificate.pem", certificate.read_bytes())
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
            path = self.folder(made.peer) / "certificate.pem"
            if path.exists():
                self.renew([x509.load_pem_x509_certificate(path.read_bytes())])
            save(path, authority.sign(made.read, peer=made.peer, now=self.now))

    def _distribute(self, rosters: Mapping[str, Roster]) -> CollectedRequests:
        """Write the rosters, and give them to all bundles once every device is in them."""
        roster, observers = rosters["roster.toml"], rosters["observers.toml"]
        missing = [peer for peer in self.peers if peer not in roster.peers]
        roster.write(self.home / "roster.toml")
        listed = (self.home / "roster.toml").read_bytes()
        if not missing:
            save(self.out / "authority" / "rosters" / f"{roster.digest[:16]}.toml", listed)
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


def _certifies(path: Path, made: DeviceRequest) -> bool:
    """Return whether there is a certificate for the key of a request already."""
    if not path.exists():
        return False
    return x509.load_pem_x509_certificate(path.read_bytes()).public_key() == made.read.public_key()
