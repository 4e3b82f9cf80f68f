"""Sources of secret bytes, the keys that two peers share, and encryption of what only neighbours can read.

The key schedule of one edge leads from the key pairs of its two ends to the 32 bytes of one use:

    ss      = X25519(own private key, other's public key)           the same number at both ends
    secret  = HKDF-Extract(salt=SHA256(run), ss)                    one for each edge and run
    epoch   = SHA256("p2pfl/v1/epoch/" incarnation and nonce of both ends)[:16]
    present = HKDF-Expand(secret, "p2pfl/v1/epoch/" epoch)          one for each two incarnations
    key     = HKDF-Expand(present, "p2pfl/v1/" purpose, names, round, attempt, receiver)

The key pair outlives a restart, so that a peer can correct its masks later. Each incarnation announces a fresh nonce:
a peer that resumes, or resumes twice from two copies of its run directory, never uses a key again.

Each peer has one sender key for each of its incarnations. It seals what it publishes, once for all
receivers, and sends the key to each neighbour over their own edge:

    wrapped = AES-256-GCM(edge key, nonce 0, sender key)                         48 bytes
    sealed  = AES-256-GCM(sender key, nonce stream || sequence, header, data)    data and 16 bytes

The broker and outsiders see headers, sizes and times. All neighbours hold the same key, so sealing alone does not
distinguish one of them from the sender. Beside the ciphertext, each neighbour finds a tag under a key of its own edge,
see :mod:`p2pfl.network.protocol.wire.wire_codec`. The sender could still send different models to different neighbours;
signatures prevent that.

References
----------
RFC 7748 (X25519), RFC 5869 (HKDF), NIST SP 800-38D (GCM). GCM takes less than half the time of ChaCha20-Poly1305 on
processors with instructions for it, which all but small boards have. There it takes four times as long
(``benchmarks/sealing.py``), and OpenSSL's tables may leak bits of the key to programs on the same board; masks do not
depend on it. With one algorithm for all, peers have one thing less to agree on.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from p2pfl.core.errors import DecodeError, InputError, PrivacyError

KEY_BYTES = 32
"""Length of every key in this module in bytes: private, public, shared, and of one use."""

NONCE_BYTES = 16
"""Length of the nonce that each incarnation announces, in bytes."""

EPOCH_BYTES = 16
"""Length of the name of an epoch in bytes."""

FIRST = 1
"""Incarnation of a peer that never restarts, as in a simulation."""


MAX_SHARED = 4096
"""Secrets that a key pair remembers."""


class ExchangeKey:
    """X25519 key pair of a peer for one run.

    Parameters
    ----------
    private
        32 secret bytes.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SecretSource
    >>> ada = ExchangeKey.from_source(SecretSource(), peer="ada")
    >>> bob = ExchangeKey.from_source(SecretSource(), peer="bob")
    >>> ada.shared(bob.public) == bob.shared(ada.public)
    True
    """

    def __init__(self, private: bytes) -> None:
        check_length(private, "a private key")
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()
        """Public key of 32 bytes; a roster proves its authenticity."""
        self._shared: dict[bytes, bytes] = {}

    @classmethod
    def from_source(cls, source: Source, *, peer: str) -> Self:
        """Draw the key pair of ``peer``."""
        return cls(source.bytes(KEY_BYTES, purpose="exchange", peer=peer))

    def shared(self, public: bytes) -> bytes:
        """Return the 32 bytes that only the two ends of an edge can compute.

        Raises
        ------
        InputError
            The public key is not 32 bytes long.
        PrivacyError
            The public key is a point of small order, for which anyone can compute the result.
        """
        known = self._shared.get(public)
        if known is not None:
            return known
        check_length(public, "a public key")
        if len(self._shared) >= MAX_SHARED:
            self._shared.clear()
        try:
            secret = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # the all-zero result of RFC 7748, section 6.1
            raise PrivacyError(
                f"the public key {public.hex()} is a weak point, for which anyone can compute the secret; "
                "exclude the peer that sent it"
            ) from None
        self._shared[public] = secret
        return secret


def edge_secret(own: ExchangeKey, other_public: bytes, *, run: str) -> bytes:
    r"""Return the secret of an edge in one run: :math:`\mathrm{HKDF\text{-}Extract}(\mathrm{SHA256}(run), ss)`.

    Parameters
    ----------
    own, other_public
        Key pair of one end and public key of the other; both ends get the same secret.
    run
        Name of the run and, if there is one, the digest of its roster, on which all peers agree.

    Returns
    -------
    bytes
        32 secret bytes.

    Raises
    ------
    InputError, PrivacyError
        :meth:`ExchangeKey.shared` does not accept the public key.
    """
    salt = hashlib.sha256(run.encode()).digest()
    return hmac.digest(salt, own.shared(other_public), "sha256")  # RFC 5869: extraction is one HMAC


class Announced(NamedTuple):
    """End of an epoch: the announcement of one incarnation of a peer.

    Attributes
    ----------
    peer, incarnation
        Name of the peer, and the number of its start.
    nonce
        16 bytes drawn by this incarnation; two copies of a run directory can reach the same number.
    """

    peer: str
    incarnation: int
    nonce: bytes

    @classmethod
    def draw(cls, source: Source, *, peer: str, incarnation: int) -> Self:
        """Draw the nonce of an incarnation."""
        return cls(peer, incarnation, source.bytes(NONCE_BYTES, purpose="nonce", peer=peer, round=incarnation))


def epoch_of(one: Announced, other: Announced) -> bytes:
    """Return the 16 bytes that name the epoch of an edge; the order of its ends does not matter.

    Examples
    --------
    >>> ada, bob = Announced("ada", 1, bytes(16)), Announced("bob", 1, bytes(16))
    >>> epoch_of(ada, bob) == epoch_of(bob, ada)
    True
    >>> epoch_of(ada, bob) == epoch_of(ada, bob._replace(incarnation=2))
    False
    """
    ends = "/".join(f"{end.peer}/{end.incarnation}/{end.nonce.hex()}" for end in sorted((one, other)))
    return hashlib.sha256(f"p2pfl/v1/epoch/{ends}".encode()).digest()[:EPOCH_BYTES]


def epoch_secret(secret: bytes, epoch: bytes) -> bytes:
    """Return the secret of an edge in one epoch, 32 bytes.

    Parameters
    ----------
    secret
        Secret of the edge, from :func:`edge_secret`.
    epoch
        Name of the epoch, from :func:`epoch_of`.
    """
    return HKDFExpand(SHA256(), KEY_BYTES, b"p2pfl/v1/epoch/" + epoch).derive(secret)


def edge_key(secret: bytes, *, purpose: str, a: str, b: str, round: int, attempt: int = 0, receiver: str = "") -> bytes:
    """Return the 32-byte key of one use of an edge; the order of its ends does not matter.

    Parameters
    ----------
    secret
        Secret of the edge in the present epoch, from :func:`epoch_secret`.
    purpose
        Purpose of the key, for instance ``mask``.
    a, b
        Names of the two ends.
    round, attempt
        Round number, and number of this use within it. A key must never be used twice.
    receiver
        Name of the receiver, if there is only one.

    Returns
    -------
    bytes
        The key.

    Raises
    ------
    InputError
        A name contains ``/``, or both ends are the same peer.

    Examples
    --------
    >>> edge_key(bytes(32), purpose="mask", a="ada", b="bob", round=3) == edge_key(
    ...     bytes(32), purpose="mask", a="bob", b="ada", round=3
    ... )
    True
    """
    if a == b or "/" in f"{purpose}{a}{b}{receiver}":  # the separator must stay unambiguous
        raise InputError(
            f'an edge key needs two different peers and names without "/", but the purpose is "{purpose}", the '
            f'ends are "{a}" and "{b}" and the receiver is "{receiver}"; rename them'
        )
    first, last = (a, b) if a < b else (b, a)
    info = f"p2pfl/v1/{purpose}/{first}/{last}/{round}/{attempt}/{receiver}\x01"
    return hmac.digest(secret, info.encode(), "sha256")  # RFC 5869: the first 32 bytes of an expansion are one HMAC


def check_length(key: bytes, what: str) -> None:
    """Raise :class:`InputError` for a key that has another length."""
    if len(key) != KEY_BYTES:
        raise InputError(f"{what} must have {KEY_BYTES} bytes, but it has {len(key)}; pass the raw bytes of the key")


class Source(Protocol):
    """Interface to the only source of secret bytes, which tests and simulations can replace."""

    @property
    def secret(self) -> bool:
        """True if nobody can compute the bytes again; only then does private noise guarantee anything."""
        ...

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` bytes that only ``peer`` knows."""
        ...


@dataclass(frozen=True)
class SecretSource:
    """Randomness of the operating system: fresh bytes on every call, for any purpose."""

    secret: ClassVar[bool] = True

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` fresh bytes."""
        del purpose, peer, round
        return secrets.token_bytes(size)


@dataclass(frozen=True)
class KeyedSource:
    """Bytes that follow from a key, so that processes that share it draw the same.

    Two runs that are given one key draw the same noise, and the difference of their results has none. So a key that a
    caller holds is no secret, unless the caller says that it is of one run.

    The bytes are SHAKE-256 of (key, purpose, peer, round).

    Parameters
    ----------
    key
        32 bytes of the operating system.
    secret
        True if the key was drawn for one run and is forgotten after it, so that the run may state epsilon.

    Raises
    ------
    ValueError
        The key has another length.

    Examples
    --------
    >>> ours, theirs = KeyedSource(bytes(32)), KeyedSource(bytes(32))
    >>> ours.bytes(4, purpose="noise", peer="ada") == theirs.bytes(4, purpose="noise", peer="ada")
    True
    >>> ours
    KeyedSource(secret=False)
    """

    key: bytes = field(repr=False)
    secret: bool = False

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"the key of a source has {len(self.key)} bytes, not {KEY_BYTES}; draw {KEY_BYTES}")

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return the ``size`` bytes of this purpose, peer and round."""
        return hashlib.shake_256(self.key + _name(purpose, peer, round)).digest(size)


@dataclass(frozen=True)
class SeededSource:
    """Reproducible bytes for simulations and tests, which anyone with the seed can compute.

    The bytes are SHAKE-256 of (seed, purpose, peer, round).

    Examples
    --------
    >>> SeededSource(7).bytes(4, purpose="noise", peer="ada").hex()
    '73778ce6'
    """

    seed: int = field(repr=False)
    secret: ClassVar[bool] = False

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return the ``size`` bytes of this purpose, peer and round."""
        return hashlib.shake_256(f"{self.seed}\x1f".encode() + _name(purpose, peer, round)).digest(size)


def _name(purpose: str, peer: str, round: int) -> bytes:
    """Return the name of a draw."""
    return f"{purpose}\x1f{peer}\x1f{round}".encode()


TAG_BYTES = 16
"""Number of bytes that sealing adds."""

WRAPPED_BYTES = KEY_BYTES + TAG_BYTES
"""Length of a sender key that is wrapped for a neighbour, in bytes."""

_WRAP = b"p2pfl/v1/sender-key"
_NONCE = struct.Struct("<IQ")


class SenderKey:
    """Key under which one peer seals what it publishes in one incarnation.

    **Never seal two different messages, or the same one under two headers, with one pair of stream and
    sequence**: that would reveal their difference and permit forgeries. The key does not remember
    what it sealed; this is the duty of the caller. The sequence numbers of a stream grow and never repeat, a
    new incarnation draws a new key, and a repeated message is sealed to the same bytes.

    Parameters
    ----------
    key
        32 secret bytes.

    Raises
    ------
    InputError
        The key is not 32 bytes long.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SecretSource
    >>> key = SenderKey.draw(SecretSource(), peer="ada")
    >>> sealed = key.seal(b"a row", stream=0, sequence=7, header=b"from ada")
    >>> key.open(sealed, stream=0, sequence=7, header=b"from ada")
    b'a row'
    >>> key
    SenderKey(...)
    """

    def __init__(self, key: bytes) -> None:
        check_length(key, "a sender key")
        self._key = bytes(key)
        self._cipher = AESGCM(self._key)

    @classmethod
    def draw(cls, source: Source, *, peer: str, round: int = 0) -> Self:
        """Draw the key of ``peer``; ``round`` is its incarnation, so that a seeded source gives each its own key."""
        return cls(source.bytes(KEY_BYTES, purpose="sender", peer=peer, round=round))

    def seal(self, data: bytes | bytearray | memoryview, *, stream: int, sequence: int, header: bytes) -> bytes:
        """Encrypt ``data`` and bind them to their header and their place in the stream.

        Parameters
        ----------
        data
            Bytes to encrypt.
        stream, sequence
            Place in the stream, of 32 and 64 bits: a pair that is used for nothing else.
        header
            Bytes that travel in the clear beside the data and must arrive unchanged.

        Returns
        -------
        bytes
            Ciphertext, 16 bytes longer than ``data``; the same for the same arguments.

        Raises
        ------
        InputError
            The stream or the sequence is negative or too large.
        """
        try:
            nonce = _NONCE.pack(stream, sequence)
        except struct.error:
            raise InputError(
                f"stream {stream} and sequence {sequence} do not fit in 32 and 64 bits; draw a new sender key "
                "before the numbers are used up"
            ) from None
        return self._cipher.encrypt(nonce, data, header)

    def open(self, data: bytes | bytearray | memoryview, *, stream: int, sequence: int, header: bytes) -> bytes:
        """Decrypt bytes that :meth:`seal` returned.

        Raises
        ------
        DecodeError
            The data, the header or the place differ from the sealed ones, or the key differs.
        """
        try:
            return self._cipher.decrypt(_NONCE.pack(stream, sequence), data, header)
        except (InvalidTag, struct.error):
            raise DecodeError(
                f"the data at {sequence} of stream {stream} are not those that their sender sealed; they were "
                "changed on the way, or the sender has another key by now"
            ) from None

    def __repr__(self) -> str:
        return "SenderKey(...)"


def wrap(sender_key: SenderKey, edge_key: bytes) -> bytes:
    """Encrypt a sender key to 48 bytes that only the other end of an edge can open.

    Parameters
    ----------
    sender_key
        Key to send.
    edge_key
        32 bytes for this one use, from :func:`p2pfl.privacy.keys.edge_key` with purpose ``aead``, the
        neighbour as receiver and the sender's incarnation as round. The nonce is zero, so no
        other sender key may ever be wrapped under it.

    Returns
    -------
    bytes
        The wrapped key.

    Raises
    ------
    InputError
        The edge key is not 32 bytes long.

    Examples
    --------
    >>> key = SenderKey(bytes(range(32)))
    >>> wrapped = wrap(key, bytes(32))
    >>> unwrap(wrapped, bytes(32)).open(key.seal(b"a row", stream=0, sequence=0, header=b""),
    ...     stream=0, sequence=0, header=b"")
    b'a row'
    """
    check_length(edge_key, "an edge key")
    return AESGCM(edge_key).encrypt(bytes(12), sender_key._key, _WRAP)  # noqa: SLF001 (no other module may see it)


def unwrap(wrapped: bytes, edge_key: bytes) -> SenderKey:
    """Decrypt the sender key that a neighbour wrapped.

    Returns
    -------
    SenderKey
        The key of the neighbour.

    Raises
    ------
    DecodeError
        The bytes are not the 48 that the neighbour wrapped under this edge key.
    InputError
        The edge key is not 32 bytes long.
    """
    check_length(edge_key, "an edge key")
    try:
        if len(wrapped) == WRAPPED_BYTES:
            return SenderKey(AESGCM(edge_key).decrypt(bytes(12), wrapped, _WRAP))
    except InvalidTag:
        pass
    raise DecodeError(
        f"{len(wrapped)} bytes are not a sender key of {WRAPPED_BYTES} bytes wrapped for this peer; check that "
        "both ends have the same run and roster"
    )
