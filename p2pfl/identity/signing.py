"""Who a peer is: an Ed25519 key pair that outlives its runs.

A signature is over more than the message, so that one made for one use never passes in another:

    signature = Ed25519(private, "p2pfl/v1/" domain 0x00 message)

A domain is a word without the zero byte, so that it ends where it seems to. Whoever signs several
fields makes their lengths unambiguous in the message.

References
----------
RFC 8032 (Ed25519), RFC 8410 (its keys as PKCS #8).
"""

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from p2pfl.errors import InputError, StorageError
from p2pfl.identity.exchange import KEY_BYTES
from p2pfl.identity.secrets import Source

SIGNATURE_BYTES = 64
"""Length of a signature."""

_DOMAIN = re.compile(r"[a-z]+(-[a-z]+)*")

_LARGEST_FILE = 4096  # bytes; a key as PEM has 119

# Points of small order, without their sign bit: a signature of everything is easily made for them.
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
    """A peer's Ed25519 key pair.

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
    >>> from p2pfl.identity import SeededSource
    >>> ada = Identity.generate(SeededSource(7), peer="ada")
    >>> verify(ada.public, b"hello", ada.sign(b"hello", domain="header"), domain="header")
    True
    >>> ada.fingerprint
    '8b34 17d2 06e0 e8a9 81e0 faca 585c 9bb2'
    """

    def __init__(self, private: bytes) -> None:
        if len(private) != KEY_BYTES:
            raise InputError(
                f"expected a private key of {KEY_BYTES} bytes, got {len(private)}: pass the raw bytes of the key"
            )
        self._private = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()
        """32 bytes for everybody to see, which a roster binds to the peer's name."""

    @classmethod
    def generate(cls, source: Source, *, peer: str) -> Self:
        """Draw the key pair of ``peer``."""
        return cls(source.bytes(KEY_BYTES, purpose="identity", peer=peer))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InputError
            The file is missing, is open to others, or is not an Ed25519 key as PEM without a password.
        """
        pem = _read_private(Path(path))
        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: there is a password
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(
                f"{path}: expected an Ed25519 private key as PEM without a password, got something else: "
                "name the file of the peer's identity"
            )
        return cls(key.private_bytes_raw())

    def save(self, path: str | Path) -> None:
        """Write the private key as PEM (PKCS #8) into a new file that only its owner can read.

        Raises
        ------
        InputError
            There is a file of that name: an identity is never overwritten.
        StorageError
            The file cannot be written; nothing is left behind.
        """
        pem = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = Path(path)
        try:  # created with its mode and only if new, in one step: no moment in which others could read or plant it
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InputError(
                f"{path}: expected no file of that name, got one: choose another, or load the identity that is there"
            ) from None
        except OSError as error:
            raise StorageError(f"expected to write {path}, got: {error.strerror}: choose another folder") from None
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                file.write(pem)
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StorageError(f"expected to write {path}, got: {error.strerror}: free some space") from None

    @property
    def fingerprint(self) -> str:
        """The public key for people to compare, as :func:`fingerprint`."""
        return fingerprint(self.public)

    def sign(self, message: bytes, *, domain: str) -> bytes:
        """Return 64 bytes that only this identity can make, for this message in this domain.

        Raises
        ------
        InputError
            The domain is not lower-case words joined by hyphens.
        """
        return self._private.sign(_framed(message, domain))

    def __repr__(self) -> str:
        return f"Identity({self.fingerprint})"


def verify(public: bytes, message: bytes, signature: bytes, *, domain: str) -> bool:
    """Whether the owner of ``public`` signed this message in this domain.

    Of any bytes whatever the answer is yes or no, never an error. Under a weak key, for which
    everybody can sign, nothing is signed.

    Raises
    ------
    InputError
        The domain is not lower-case words joined by hyphens.

    Examples
    --------
    >>> verify(bytes(32), b"hello", bytes(64), domain="header")
    False
    """
    framed = _framed(message, domain)
    if not usable(public) or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, framed)
    except (InvalidSignature, ValueError):
        return False
    return True


def usable(public: bytes) -> bool:
    """Whether these are 32 bytes that do not stand for a point of small order.

    Examples
    --------
    >>> usable(bytes(32))
    False
    """
    return len(public) == KEY_BYTES and bytes([*public[:-1], public[-1] & 0x7F]) not in _WEAK


def fingerprint(public: bytes) -> str:
    """Return the first 32 hexadecimal digits of SHA-256, in groups of four.

    128 bits are more than anybody can match with a key of their own; programs compare whole keys.

    Examples
    --------
    >>> fingerprint(bytes(32))
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digits = hashlib.sha256(public).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, 32, 4))


def _framed(message: bytes, domain: str) -> bytes:
    if not _DOMAIN.fullmatch(domain):
        raise InputError(f"expected a domain of lower-case words joined by hyphens, got {domain!a}: rename it")
    return b"p2pfl/v1/" + domain.encode() + b"\0" + message


def _read_private(path: Path) -> bytes:
    """The bytes of a file that nobody but its owner can read."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)  # of what is open, not of what bears its name by now
            pem = file.read(_LARGEST_FILE)
    except OSError as error:
        raise InputError(
            f"{path}: expected the file of an identity, got: {error.strerror}: name one that this user can read"
        ) from None
    if mode & 0o077:
        raise InputError(
            f"{path}: expected a private key that only its owner can use, got mode {mode:04o}: run chmod 600 {path}, "
            "and make a new identity if others may have read it"
        )
    return pem
