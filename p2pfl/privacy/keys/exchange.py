"""Key exchange: the keys that two peers share.

The key schedule of one edge leads from the key pairs of its two ends to the 32 bytes of one use:

    ss      = X25519(own private key, other's public key)           the same number at both ends
    secret  = HKDF-Extract(salt=SHA256(run), ss)                    one for each edge and run
    epoch   = SHA256("p2pfl/v1/epoch/" incarnation and nonce of both ends)[:16]
    present = HKDF-Expand(secret, "p2pfl/v1/epoch/" epoch)          one for each two incarnations
    key     = HKDF-Expand(present, "p2pfl/v1/" purpose, names, round, attempt, receiver)

The key pair outlives a restart, so that a peer can correct its masks later. Each incarnation announces a fresh nonce:
a peer that resumes, or resumes twice from two copies of its run directory, never uses a key again.

References
----------
RFC 7748 (X25519), RFC 5869 (HKDF).
"""

import hashlib
import hmac
from typing import NamedTuple, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.privacy.keys.secrets import Source

KEY_BYTES = 32
"""Length of every key in this module in bytes: private, public, shared, and of one use."""

NONCE_BYTES = 16
"""Length of the nonce that each incarnation announces, in bytes."""

EPOCH_BYTES = 16
"""Length of the name of an epoch in bytes."""

FIRST = 1
"""Incarnation of a peer that never restarts, as in a simulation."""


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
        _check_length(private, "a private key")
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()
        """Public key of 32 bytes; a roster proves its authenticity."""

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
        _check_length(public, "a public key")
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # the all-zero result of RFC 7748, section 6.1
            raise PrivacyError(
                f"the public key {public.hex()} is a weak point, for which anyone can compute the secret; "
                "exclude the peer that sent it"
            ) from None


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


def _check_length(key: bytes, what: str) -> None:
    if len(key) != KEY_BYTES:
        raise InputError(f"{what} must have {KEY_BYTES} bytes, but it has {len(key)}; pass the raw bytes of the key")
