"""Identity of a peer of this device and the keys that it trusts: read before it joins, kept once it has met others."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from p2pfl.core.errors import InputError, StorageError
from p2pfl.experiment import schema
from p2pfl.privacy.keys import FirstUse, Identity, Roster, SecretSource, Trust


@dataclass(frozen=True)
class Credentials:
    """A peer's identity and trust.

    Attributes
    ----------
    identity
        Its key pair.
    trust
        Source of trust in keys.
    known
        The file in which first uses are remembered, if any.
    written
        Whose keys are known to be in that file.
    """

    identity: Identity
    trust: Trust
    known: Path | None = None
    written: set[str] = field(default_factory=set)

    def keep(self) -> None:
        """Write the keys that were trusted on first use, if any is new: they are on disk when this returns.

        Raises
        ------
        PeerError
            If another peer of this device was shown another key under the same name.
        StorageError
            If the file cannot be written, so that nothing may be sent.
        """
        if self.known is None or not isinstance(self.trust, FirstUse) or self.trust.seen.keys() <= self.written:
            return
        seen = dict(self.trust.seen)
        with _lock(self.known):  # peers of this device share the file
            others = Roster.read(self.known).peers if self.known.exists() else {}
            known = FirstUse(others)
            for peer, key in seen.items():
                known.remember(peer, key)
            Roster(known.seen).write(self.known)
        self.written.update(seen)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Keep other processes of this device from changing a file meanwhile."""
    try:
        lock = path.with_name(f".{path.name}.lock").open("wb")
    except OSError as error:
        raise StorageError(
            f"the keys that were trusted on first use cannot be written to {path} ({error.strerror}); make the folder "
            "writable, or choose another with trust.keys"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def credentials(
    settings: schema.TrustSettings, *, peer: str, folder: Path | None = None, again: bool = False
) -> Credentials:
    """Read, or make, what ``[trust]`` names.

    Parameters
    ----------
    settings
        The section.
    peer
        Whose.
    folder
        For what it makes where no other is named, so that the run can be resumed.
    again
        True if it has taken part in the run before, with a key.

    Raises
    ------
    InputError
        A file is there but cannot be used, or a key that others know is missing.
    StorageError
        A new identity cannot be written.
    """
    roster_file, identity = None, None
    roster = None if settings.roster is None else Roster.read(settings.roster)
    if settings.keys is not None:
        folder = Path(settings.keys)
    if folder is not None:
        path, roster_file = folder / f"{peer}.pem", folder / "known.toml"
        if path.exists():
            identity = Identity.load(path)
        elif again or roster is not None:
            raise InputError(
                f"{path} does not exist, and the others accept no other key; bring it back, or correct trust.keys, as "
                "a new key needs another roster or a new run"
            )
        else:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(
                    f"the folder {folder} cannot be made ({error.strerror}); choose another with --keys"
                ) from None
            identity = Identity.generate(SecretSource(), peer=peer)
            identity.save(path)
    identity = identity or Identity.generate(SecretSource(), peer=peer)
    if roster is not None:
        roster.check(peer, identity.public)
        return Credentials(identity, roster)
    seen = Roster.read(roster_file).peers if roster_file is not None and roster_file.exists() else {}
    return Credentials(identity, FirstUse(seen), roster_file, {*seen})
