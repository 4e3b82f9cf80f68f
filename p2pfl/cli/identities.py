"""Identities of members: a peer's key pair on this device, and its line in a roster."""

from __future__ import annotations

import base64
import binascii
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from p2pfl.core.errors import InputError, PeerError, StorageError
from p2pfl.experiment import schema
from p2pfl.network.peer.storage.credentials import credentials
from p2pfl.privacy.keys import Identity, Roster, SecretSource, fingerprint, rotation


@dataclass(frozen=True)
class IdentityReport:
    """Result of a command.

    Attributes
    ----------
    peer, public
        Owner of the key, and its public half.
    file
        File of the private half, if it is on this device.
    statement
        By which the key before vouches for this one, after a rotation.
    message
        A sentence for people.
    """

    peer: str
    public: bytes
    file: Path | None
    message: str
    statement: bytes | None = None

    @property
    def line(self) -> str:
        """The peer's line in a roster.

        Examples
        --------
        >>> IdentityReport("ada", bytes(32), None, "").line[:24]
        'ada = "ed25519:AAAAAAAAA'
        """
        return f'{self.peer} = "{self._key}"'

    @property
    def _key(self) -> str:
        return f"ed25519:{base64.b64encode(self.public).decode()}"

    def results(self) -> dict[str, str | None]:
        """Return what ``--json`` prints."""
        return {
            "peer": self.peer,
            "key": self._key,
            "fingerprint": fingerprint(self.public),
            "file": None if self.file is None else str(self.file),
            "statement": None if self.statement is None else base64.b64encode(self.statement).decode(),
        }


def show_key(name: str, *, keys: Path, roster: Path | None) -> IdentityReport:
    """Make the identity of a peer if it has none, and put it into a roster.

    Raises
    ------
    InputError
        The name is none, a file cannot be used, or the roster has another key for that name.
    PeerError
        The roster revokes the key.
    StorageError
        A file cannot be written.
    """
    _check_name(name)
    identity = credentials(schema.TrustSettings(keys=str(keys)), peer=name).identity
    message = f"{name} has the key {identity.fingerprint} in {_file(keys, name)}"
    if roster is not None:
        listed = _read(roster, added=(name, identity.public))
        listed.write(roster)
        message += f"; {roster} lists it and has the digest {listed.fingerprint}"
    return IdentityReport(name, identity.public, _file(keys, name), message)


def rotate_key(name: str, *, keys: Path, roster: Path | None) -> IdentityReport:
    """Give a peer a new key, for which its present one vouches, and keep the old one beside it.

    The roster is written before the key is replaced: where it cannot be, nothing has changed.

    Raises
    ------
    InputError, StorageError
        As :func:`shown`; there is no key to rotate from.
    PeerError
        The roster has another key for that name.
    """
    _check_name(name)
    path = _file(keys, name)
    if not path.exists():
        raise InputError(f"{path} does not exist, so there is no key of {name} to rotate; make one without --rotate")
    old, new = Identity.load(path), Identity.generate(SecretSource(), peer=name)
    statement = rotation(old, new.public, peer=name)
    listed = None
    if roster is not None:
        before = _read(roster)
        if old.public in before.revoked and before.peers.get(name) == old.public:  # it vouches for nothing any more
            listed = replace(before, peers={**before.peers, name: new.public})
        else:
            listed = before.rotated(name, new.public, statement)
    kept = path.with_name(f"{path.name}.{old.fingerprint.replace(' ', '')}")
    fresh = path.with_name(f".{path.name}.part")
    try:
        fresh.unlink(missing_ok=True)  # of an attempt that was cut short; nobody has its public half
        if not kept.exists():
            old.save(kept)
        new.save(fresh)
        if roster is not None and listed is not None:
            listed.write(roster)
        fresh.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}); choose another folder") from None
    except StorageError:
        fresh.unlink(missing_ok=True)
        raise
    message = f"{name} has the new key {new.fingerprint} in {path}; the old one, {old.fingerprint}, is in {kept}"
    return IdentityReport(name, new.public, path, message, statement)


def accept_rotation(name: str, *, roster: Path, announcement: Path) -> IdentityReport:
    """Take the key that a peer has rotated to into a roster, on the word of its present one.

    Parameters
    ----------
    name, roster
        Owner of the key, and its file.
    said
        A file with the two lines that ``--rotate`` printed on that peer's device.

    Raises
    ------
    InputError
        A file cannot be read, does not say that, or the key that the roster has for that name has not signed it.
    StorageError
        The roster cannot be written.
    """
    _check_name(name)
    before = Roster.read(roster)
    try:
        table = tomllib.loads(announcement.read_text("utf-8"))
        public = base64.b64decode(table[name].removeprefix("ed25519:"), validate=True)
        statement = base64.b64decode(table["rotation"], validate=True)
    except OSError as error:
        raise InputError(
            f"{announcement} cannot be read ({error.strerror}); name the file with the output of --rotate"
        ) from None
    except (ValueError, KeyError, AttributeError, TypeError, binascii.Error):
        raise InputError(
            f"{announcement} lacks the two lines '{name} = \"ed25519:...\"' and 'rotation = \"...\"' that "
            "--rotate printed; copy both"
        ) from None
    try:
        after = before.rotated(name, public, statement)
    except PeerError as error:
        raise InputError(f"{announcement}: {error}") from None
    after.write(roster)
    return IdentityReport(
        name, public, None, f"{roster} lists the key {fingerprint(public)}, to which {name} has rotated"
    )


def revoke_key(name: str, *, roster: Path, reason: str) -> IdentityReport:
    """Have a roster refuse the present key of a peer from now on.

    Raises
    ------
    InputError
        There is no such roster, it does not list the peer, or the reason is not one line.
    StorageError
        It cannot be written.
    """
    before = Roster.read(roster)
    public = before.peers.get(name)
    if public is None:
        raise InputError(
            f"{name!a:.40} is not in {roster}, which lists {', '.join(before.peers) or 'nobody'}; name one of its peers"
        )
    before.revoke(public, reason=reason).write(roster)
    return IdentityReport(name, public, None, f"{roster} refuses {fingerprint(public)} of {name} from now on")


def _read(path: Path, *, added: tuple[str, bytes] | None = None) -> Roster:
    """Return a roster that contains one more peer."""
    roster = Roster.read(path) if added is None or path.exists() else Roster({})
    if added is None:
        return roster
    name, public = added
    listed = roster.peers.get(name)
    if listed is not None and listed != public and listed not in roster.revoked:
        raise InputError(
            f'{path} lists the key {fingerprint(listed)} for "{name}", and this device has {fingerprint(public)}; '
            "use --keys with the folder of the listed key and --rotate to change it, or --revoke it first"
        )
    roster = replace(roster, peers={**roster.peers, name: public})
    roster.check(name, public)  # not revoked
    return roster


def _file(keys: Path, name: str) -> Path:
    return keys / f"{name}.pem"


def _check_name(name: str) -> None:
    """Raise an error unless a name may become part of a path."""
    Roster({name: Identity.generate(SecretSource(), peer=name).public})
