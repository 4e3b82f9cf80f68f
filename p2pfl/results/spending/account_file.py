"""Account on disk: lines that are sealed one after the other, and a key beside them that also counts them.

The seal of a line is a keyed digest of the seal before it and of the line, so no line can be changed, moved or left out
by whoever lacks the key. The file of the key says how many sealed lines there are and which seal is the last, so a file
that was cut off, or an older copy of it, does not fit; only a copy of both does. Lines without a seal are costs that
release 0.1 wrote; they count, and nothing proves that they are complete.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from p2pfl.core import files
from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import OWNER_ONLY
from p2pfl.experiment.account_entries import AccountEntry, RunEntry, contents, entries, whole_lines
from p2pfl.privacy.keys import Identity, SecretSource, Source, verify

DOMAIN = "account"
"""Domain of the signatures of an owner."""

KEY_BYTES = 32
"""Length of the key of an account."""

NONCE_BYTES = 12
"""Length of the nonce before an enciphered text."""

SEAL, SIGNATURE = b',"seal":"', b',"signature":"'


class AccountKey(msgspec.Struct, frozen=True):
    """Content of the file of the key: the key, the number of sealed lines, and the seal of the last one, in hex."""

    key: str
    lines: int = 0
    seal: str = ""


@dataclass(frozen=True)
class _Place:
    """Place up to which a file has been read: bytes, lines, sealed lines, and the last seal."""

    start: int = 0
    lines: int = 0
    sealed: int = 0
    seal: str = ""


class AccountFile:
    """File of entries; several runs may write at once, one after the other.

    Parameters
    ----------
    path
        Path of the file, which the first entry creates.
    source
        Source of the key.
    """

    def __init__(self, path: Path, *, source: Source | None = None) -> None:
        self.path, self.key_path = path, path.with_name(f"{path.name}.key")
        self._source = source or SecretSource()
        self._place = _Place()

    @property
    def sealed(self) -> int:
        """Number of sealed lines that have been read."""
        return self._place.sealed

    @property
    def lines(self) -> int:
        """Number of lines that have been read."""
        return self._place.lines

    @property
    def seal(self) -> str:
        """Seal of the last line that has been read, in hex; it stands for all lines before it."""
        return self._place.seal

    def key(self) -> bytes:
        """Return the key, which is drawn if there is none and no line needs it.

        Raises
        ------
        StorageError
            The key cannot be written.
        """
        known = self._known_key()
        if known is None:
            known = AccountKey(self._source.bytes(KEY_BYTES, purpose="account", peer="").hex())
            files.replace(self.key_path, msgspec.json.encode(known), mode=OWNER_ONLY)
        return bytes.fromhex(known.key)

    def hide(self, data: bytes) -> str:
        """Return bytes enciphered with the key, as text."""
        nonce = self._source.bytes(NONCE_BYTES, purpose="account", peer="")
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, data, None)).decode()

    def reveal(self, text: str) -> bytes:
        """Return what :meth:`hide` has enciphered.

        Raises
        ------
        InputError
            Another key has enciphered it.
        """
        data = base64.b64decode(text)
        try:
            return self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], None)
        except InvalidTag:
            raise InputError(f"{self.key_path} is not the key of {self.path}; restore both from one backup") from None

    @property
    def _cipher(self) -> ChaCha20Poly1305:
        key = hashlib.blake2b(key=self.key(), digest_size=KEY_BYTES, person=b"p2pfl rows").digest()
        return ChaCha20Poly1305(key)

    def read(self) -> list[AccountEntry]:
        """Return the entries that were appended since the last call; those that cannot be read stay unread.

        Raises
        ------
        InputError
            The file cannot be read, a line is no entry, or lines were changed or are missing.
        """
        known = self._known_key()  # before the lines, of which there may be more by then
        position = self._place
        data = contents(self.path, start=position.start)
        lines, read_entries = whole_lines(data), list[AccountEntry]()
        for line, entry in zip(lines, entries(self.path, lines, after=position.lines), strict=True):
            position = self._checked(line, entry, position, known)
            read_entries.append(entry)
        if known is not None and position.sealed < known.lines:
            raise InputError(
                f"{self.path} has {position.sealed} sealed lines, and {self.key_path.name} counts {known.lines}: lines "
                "were removed, or an older copy was put back; restore the newest copy of both files"
            )
        torn = len(data.splitlines()[-1]) if len(lines) < len(data.splitlines()) else 0
        self._place = replace(position, start=position.start + len(data) - torn)
        return read_entries

    def append(
        self,
        made: Callable[[], Sequence[AccountEntry]],
        *,
        signer: Identity | None = None,
    ) -> None:
        """Append entries; they are on disk when this returns.

        Parameters
        ----------
        made
            Function that returns the entries. It is called while no other run can write, reads the lines of others by
            :meth:`read`, and raises if nothing may be written.
        signer
            Identity of the owner, who signs the lines.

        Raises
        ------
        StorageError
            An entry cannot be written, so nothing may be sent.
        """
        try:
            while not self._appended(made, signer):
                pass  # another run, which was refused, has removed the empty file meanwhile
        except OSError as error:
            raise StorageError(
                f"the privacy budget {self.path} cannot be written ({error.strerror}), and nothing is sent "
                "without it; free some space, or choose another place with privacy.budget"
            ) from None

    def _appended(self, made: Callable[[], Sequence[AccountEntry]], signer: Identity | None) -> bool:
        """Append entries, and return whether the file was still there when no other run could write any more."""
        self.path.touch(mode=OWNER_ONLY)
        with self.path.open("ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_nlink:
                return False
            try:
                if entries := made():
                    self._write(file, entries, signer)
            finally:
                if not os.fstat(file.fileno()).st_size:
                    self.path.unlink()
        return True

    def _write(self, file: FileIO, entries: Sequence[AccountEntry], signer: Identity | None) -> None:
        """Write entries after the lines that have been read, or nothing; then count them beside the key."""
        key, position = self.key(), self._place
        data = b"" if not position.start or contents(self.path, start=position.start - 1)[:1] == b"\n" else b"\n"
        for entry in entries:
            body = msgspec.json.encode(entry)
            position = replace(position, sealed=position.sealed + 1, seal=_seal(key, position.seal, body))
            data += body[:-1] + SEAL + position.seal.encode() + b'"'
            if signer is not None:
                data += SIGNATURE + signer.sign(bytes.fromhex(position.seal), domain=DOMAIN).hex().encode() + b'"'
            data += b"}\n"
        file.truncate(position.start)  # without a line that a crash has cut off
        try:
            while data:  # a nearly full disk takes a part, and refuses the rest
                data = data[file.write(data) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(position.start)
            raise
        known = AccountKey(key.hex(), position.sealed, position.seal)
        files.replace(self.key_path, msgspec.json.encode(known), mode=OWNER_ONLY)

    def _checked(self, line: bytes, entry: AccountEntry, position: _Place, known: AccountKey | None) -> _Place:
        """Return the place after a line, which has the right seal, or none and is an old cost."""
        body, sealed, rest = line.partition(SEAL)
        if not sealed and not isinstance(entry, RunEntry):
            return replace(position, lines=position.lines + 1)
        where = f"{self.path}, line {position.lines + 1}"
        if known is None:
            raise InputError(f"{where}: the key of its seal, {self.key_path}, is missing; restore it from a backup")
        seal, _, signature = rest.removesuffix(b"}").partition(SIGNATURE)
        seal, signature = seal.removesuffix(b'"'), signature.removesuffix(b'"')
        if not hmac.compare_digest(seal, _seal(bytes.fromhex(known.key), position.seal, body + b"}").encode()):
            raise InputError(
                f"{where}: the line does not fit its seal, so it or one before it was changed; restore the file from a "
                "backup, and find out who wrote to it"
            )
        signer = entry.signer if isinstance(entry, RunEntry) else None
        if signer is not None and not _signed(signer, bytes.fromhex(seal.decode()), signature):
            raise InputError(f"{where}: the owner's signature is wrong; restore the file from a backup")
        after = _Place(position.start, position.lines + 1, position.sealed + 1, seal.decode())
        if after.sealed == known.lines and after.seal != known.seal:
            raise InputError(f"{where}: {self.key_path.name} has another seal; restore the newest copy of both files")
        return after

    def _known_key(self) -> AccountKey | None:
        """Return the content of the file of the key; ``None`` if there is none.

        Raises
        ------
        InputError
            The file cannot be read.
        """
        try:
            return msgspec.json.decode(self.key_path.read_bytes(), type=AccountKey)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"{self.key_path} cannot be read ({error}); restore it from a backup") from None


def _seal(key: bytes, former: str, body: bytes) -> str:
    return hmac.new(key, former.encode() + body, hashlib.sha256).hexdigest()


def _signed(signer: str, seal: bytes, signature: bytes) -> bool:
    try:
        return verify(bytes.fromhex(signer), seal, bytes.fromhex(signature.decode()), domain=DOMAIN)
    except ValueError:  # they are no hexadecimal digits
        return False
