"""Identities: Ed25519 key pairs that outlive runs.

A signature covers more than the message, so that a signature for one use is never valid for another:

    signature = Ed25519(private, "p2pfl/v1/" domain 0x00 message)

A domain is a word without the zero byte, so its end is unambiguous. Code that signs several fields makes their
lengths unambiguous in the message.

References
----------
RFC 8032 (Ed25519), RFC 8410 (its keys as PKCS #8).
"""

import hashlib
import os
import re
import stat
from functools import lru_cache
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from p2pfl.core.errors import InputError, StorageError
from p2pfl.privacy.keys.exchange import KEY_BYTES, Source, check_length

SIGNATURE_BYTES = 64
"""Length of a signature in bytes."""

PASSPHRASE, PASSPHRASE_FILE = "P2PFL_KEY_PASSPHRASE", "P2PFL_KEY_PASSPHRASE_FILE"
"""Environment variables with the passphrase of private keys, or with the name of a file whose first line it is."""

_DOMAIN = re.compile(r"[a-z]+(-[a-z]+)*")

_LARGEST_FILE = 4096  # bytes; a key as PEM has 119

# Points of small order, without their sign bit: anyone can sign any message for them.
_WEAK = frozenset(
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


class Identity:
    """Ed25519 key pair of a peer.

    Parameters
    ----------
    private
        32 secret bytes, the seed of RFC 8032.

    Raises
    ------
    InputError
        The private key is not 32 bytes long.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> ada = Identity.generate(SeededSource(7), peer="ada")
    >>> verify(ada.public, b"hello", ada.sign(b"hello", domain="header"), domain="header")
    True
    >>> ada.fingerprint
    '8b34 17d2 06e0 e8a9 81e0 faca 585c 9bb2'
    """

    def __init__(self, private: bytes) -> None:
        check_length(private, "a private key")
        self._private = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()
        """Public key of 32 bytes, which a roster binds to the name of the peer."""

    @classmethod
    def generate(cls, source: Source, *, peer: str) -> Self:
        """Draw the key pair of ``peer``."""
        return cls(source.bytes(KEY_BYTES, purpose="identity", peer=peer))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a private key that :meth:`save` wrote.

        Raises
        ------
        InputError
            The file is missing, other users can read it, it is not an Ed25519 key as PEM, or :func:`passphrase` is not
            that of the key.
        """
        pem = _read_private(Path(path))
        password = passphrase() if b"ENCRYPTED" in pem else None
        if b"ENCRYPTED" in pem and password is None:
            raise InputError(
                f"{path}: the key has a passphrase; set {PASSPHRASE_FILE} to its file, or {PASSPHRASE} to it"
            )
        try:
            key = load_pem_private_key(pem, password=password)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            if password is not None:
                raise InputError(
                    f"{path}: the passphrase does not open the key; correct {PASSPHRASE_FILE} or {PASSPHRASE}"
                ) from None
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(
                f"{path}: the file is not an Ed25519 private key as PEM; name the file of the peer's identity"
            )
        return cls(key.private_bytes_raw())

    def save(self, path: str | Path) -> None:
        """Write the private key as PEM (PKCS #8) into a new file that only its owner can read.

        It is encrypted if there is a :func:`passphrase`.

        Raises
        ------
        InputError
            A file of that name exists: an identity is never overwritten.
        StorageError
            The file cannot be written; no partial file remains.
        """
        password = passphrase()
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        pem = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        path = Path(path)
        try:  # one step creates the file with its mode, and only if new: other users can never read or plant it
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InputError(
                f"{path}: the file exists already; choose another name, or load the identity in it"
            ) from None
        except OSError as error:
            raise StorageError(f"{path} cannot be written ({error.strerror}); choose another folder") from None
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                file.write(pem)
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StorageError(f"{path} cannot be written ({error.strerror}); free some space") from None

    @property
    def fingerprint(self) -> str:
        """Public key in a form for people to compare, as :func:`fingerprint`."""
        return fingerprint(self.public)

    def sign(self, message: bytes, *, domain: str) -> bytes:
        """Return a signature of 64 bytes, for this message in this domain.

        Raises
        ------
        InputError
            The domain is not lower-case words joined by hyphens.
        """
        return self._private.sign(_prefix(domain) + message)

    def __repr__(self) -> str:
        return f"Identity({self.fingerprint})"


def passphrase() -> bytes | None:
    """Return the passphrase of private keys from a file or the environment; ``None`` if neither is set.

    It is never part of a command, whose arguments other users of the machine can read.

    Raises
    ------
    InputError
        The file is missing, other users can read it, or its first line is empty.
    """
    file = os.environ.get(PASSPHRASE_FILE)
    if file is None:
        return os.environ.get(PASSPHRASE, "").encode() or None
    lines = _read_private(Path(file)).splitlines()
    if not lines or not lines[0]:
        raise InputError(f"{file}: the first line is empty; write the passphrase of the key there")
    return lines[0]


def verify(public: bytes, message: bytes, signature: bytes, *, domain: str) -> bool:
    """Return whether the owner of ``public`` signed this message in this domain.

    Any bytes give true or false, never an error. Under a weak key, for which anyone can sign, no signature is valid.

    Raises
    ------
    InputError
        The domain is not lower-case words joined by hyphens.

    Examples
    --------
    >>> verify(bytes(32), b"hello", bytes(64), domain="header")
    False
    """
    framed = _prefix(domain) + message
    key = _key(public)
    if key is None or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        key.verify(signature, framed)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=4096)
def _key(public: bytes) -> Ed25519PublicKey | None:
    """Return a public key, which peers verify with again in every gossip step; ``None`` if it is weak or no key."""
    try:
        return Ed25519PublicKey.from_public_bytes(public) if usable(public) else None
    except ValueError:
        return None


def usable(public: bytes) -> bool:
    """Return whether a public key has 32 bytes and is not a point of small order.

    Examples
    --------
    >>> usable(bytes(32))
    False
    """
    return len(public) == KEY_BYTES and bytes([*public[:-1], public[-1] & 0x7F]) not in _WEAK


def fingerprint(public: bytes) -> str:
    """Return the first 32 hexadecimal digits of SHA-256, in groups of four.

    No one can find a key of their own that matches these 128 bits; programs compare whole keys.

    Examples
    --------
    >>> fingerprint(bytes(32))
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    return group_digits(hashlib.sha256(public).hexdigest())


def group_digits(digest: str) -> str:
    """Return the first 32 digits of a digest in groups of four, as people compare them.

    Examples
    --------
    >>> group_digits("0123456789abcdef" * 4)
    '0123 4567 89ab cdef 0123 4567 89ab cdef'
    """
    return " ".join(digest[start : start + 4] for start in range(0, len(digest[:32]), 4))


@lru_cache(maxsize=64)
def _prefix(domain: str) -> bytes:
    if not _DOMAIN.fullmatch(domain):
        raise InputError(f"the domain {domain!a} is not lower-case words joined by hyphens; rename it")
    return b"p2pfl/v1/" + domain.encode() + b"\0"


def _read_private(path: Path) -> bytes:
    """Return the bytes of a file that only its owner can read."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(
                os.fstat(file.fileno()).st_mode
            )  # mode of the open file, as another may have its name by now
            pem = file.read(_LARGEST_FILE)
    except OSError as error:
        raise InputError(
            f"{path}: the identity cannot be read ({error.strerror}); name a file that this user can read"
        ) from None
    if mode & 0o077:
        raise InputError(
            f"{path}: other users can read this private key (mode {mode:04o}); run chmod 600 {path}, and make a "
            "new identity if they may have done so"
        )
    return pem
