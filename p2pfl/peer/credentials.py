"""Who a peer of this device is, and whom it trusts: read before it joins, kept after it has met the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from p2pfl.errors import StorageError
from p2pfl.experiment import schema
from p2pfl.identity import FirstUse, Identity, Roster, SecretSource, Trust


@dataclass(frozen=True)
class Credentials:
    """A peer's identity and trust.

    Attributes
    ----------
    identity
        Its key pair.
    trust
        What decides whose key is whose.
    known
        The file in which first uses are remembered, if any.
    """

    identity: Identity
    trust: Trust
    known: Path | None = None

    def keep(self) -> None:
        """Remember the keys that were trusted on first use for the next run."""
        if self.known is not None and isinstance(self.trust, FirstUse):
            others = Roster.read(self.known).peers if self.known.exists() else {}  # peers of this device share the file
            Roster({**self.trust.seen, **others}).write(self.known)


def credentials(settings: schema.Trust, *, peer: str, folder: Path | None = None) -> Credentials:
    """Read, or make, what ``[trust]`` names.

    Parameters
    ----------
    settings
        The section.
    peer
        Whose.
    folder
        For what it makes where no other is named, so that the run can be resumed.

    Raises
    ------
    InputError
        A file is there but cannot be used.
    StorageError
        A new identity cannot be written.
    """
    known, identity = None, None
    if settings.keys is not None:
        folder = Path(settings.keys)
    if folder is not None:
        path, known = folder / f"{peer}.pem", folder / "known.toml"
        if path.exists():
            identity = Identity.load(path)
        else:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(f"expected to make the folder {folder}, got: {error.strerror}") from None
            identity = Identity.generate(SecretSource(), peer=peer)
            identity.save(path)
    identity = identity or Identity.generate(SecretSource(), peer=peer)
    if settings.roster is not None:
        roster = Roster.read(settings.roster)
        roster.check(peer, identity.public)
        return Credentials(identity, roster)
    seen = Roster.read(known).peers if known is not None and known.exists() else {}
    return Credentials(identity, FirstUse(seen), known)
