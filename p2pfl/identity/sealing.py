"""Rows that only neighbours can read.

Each peer has one sender key for each of its lives. It seals what it publishes, once for all who
listen, and hands the key to each neighbour over their own edge:

    wrapped = AES-256-GCM(edge key, nonce 0, sender key)                         48 bytes
    sealed  = AES-256-GCM(sender key, nonce stream || sequence, header, data)    data and 16 bytes

The broker and outsiders see headers, sizes and times. All neighbours hold the same key, so sealing alone does not tell
one of them from the sender. Beside the ciphertext, each neighbour finds a tag under a key of its own edge, see
:mod:`p2pfl.protocol.wire.tags`. The sender could still show different rows to different neighbours; against that, rows
are signed.

References
----------
NIST SP 800-38D (GCM). It takes less than half of ChaCha20-Poly1305's time on processors with instructions for it,
which is all of them but small boards, where it takes four times as long (``benchmarks/sealing.py``) and OpenSSL's
tables may tell whoever runs on the same board something of the key; masks do not depend on it. One algorithm for all
is one less thing to agree on.
"""

import struct
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from p2pfl.errors import DecodeError, InputError
from p2pfl.identity.exchange import KEY_BYTES
from p2pfl.identity.secrets import Source

TAG_BYTES = 16
"""By how much sealed data are longer."""

WRAPPED_BYTES = KEY_BYTES + TAG_BYTES
"""Length of a sender key that is wrapped for a neighbour."""

_WRAP = b"p2pfl/v1/sender-key"
_NONCE = struct.Struct("<IQ")


class SenderKey:
    """The key under which one peer seals what it publishes in one life.

    **Never seal two different data, or the same under two headers, with one pair of stream and
    sequence**: it would show their difference and let others forge. The key has no memory of
    what was sealed; this is the caller's duty. A stream's sequence numbers grow and never repeat, a
    new life draws a new key, and what is sent again is sealed to the same bytes.

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
    >>> from p2pfl.identity import SecretSource
    >>> key = SenderKey.draw(SecretSource(), peer="ada")
    >>> sealed = key.seal(b"a row", stream=0, sequence=7, header=b"from ada")
    >>> key.open(sealed, stream=0, sequence=7, header=b"from ada")
    b'a row'
    >>> key
    SenderKey(...)
    """

    def __init__(self, key: bytes) -> None:
        _check_key(key, "a sender key")
        self._key = bytes(key)
        self._cipher = AESGCM(self._key)

    @classmethod
    def draw(cls, source: Source, *, peer: str, round: int = 0) -> Self:
        """Draw the key of ``peer``; ``round`` is its incarnation, so that a seeded source gives each life its own."""
        return cls(source.bytes(KEY_BYTES, purpose="sender", peer=peer, round=round))

    def seal(self, data: bytes | bytearray | memoryview, *, stream: int, sequence: int, header: bytes) -> bytes:
        """Return ``data`` encrypted, and bound to their header and their place in the stream.

        Parameters
        ----------
        data
            What is hidden.
        stream, sequence
            The place, of 32 and 64 bits: a pair that is used for nothing else.
        header
            What travels in the clear beside it and must arrive unchanged.

        Returns
        -------
        bytes
            16 more than ``data``; the same for the same arguments.

        Raises
        ------
        InputError
            The stream or the sequence is negative or too large.
        """
        nonce = _nonce(stream, sequence)
        if nonce is None:
            raise InputError(
                f"expected a stream of 32 bits and a sequence of 64, got {stream} and {sequence}: "
                "draw a new sender key before the numbers are used up"
            )
        return self._cipher.encrypt(nonce, data, header)

    def open(self, data: bytes | bytearray | memoryview, *, stream: int, sequence: int, header: bytes) -> bytes:
        """Return what :meth:`seal` was given.

        Raises
        ------
        DecodeError
            The data, the header or the place is not what was sealed, or was sealed under another key.
        """
        nonce = _nonce(stream, sequence)
        try:
            if nonce is not None:
                return self._cipher.decrypt(nonce, data, header)
        except InvalidTag:
            pass
        raise DecodeError(
            f"expected data sealed by their sender at {sequence} of stream {stream}, got others: "
            "they were changed on the way, or the sender has another key by now"
        )

    def __repr__(self) -> str:
        return "SenderKey(...)"


def wrap(sender_key: SenderKey, edge_key: bytes) -> bytes:
    """Return a sender key as 48 bytes that only the other end of an edge can open.

    Parameters
    ----------
    sender_key
        The key to hand over.
    edge_key
        32 bytes for this one use, from :func:`p2pfl.identity.edge_key` with purpose ``aead``, the
        neighbour as receiver and the sender's incarnation as round: the nonce is zero, so that no
        other sender key may ever be wrapped under it.

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
    _check_key(edge_key, "an edge key")
    return AESGCM(edge_key).encrypt(bytes(12), sender_key._key, _WRAP)  # noqa: SLF001 (no other may see it)


def unwrap(wrapped: bytes, edge_key: bytes) -> SenderKey:
    """Return the sender key that a neighbour wrapped.

    Raises
    ------
    DecodeError
        These are not the 48 bytes that the neighbour wrapped under this edge key.
    InputError
        The edge key is not 32 bytes long.
    """
    _check_key(edge_key, "an edge key")
    try:
        if len(wrapped) == WRAPPED_BYTES:
            return SenderKey(AESGCM(edge_key).decrypt(bytes(12), wrapped, _WRAP))
    except InvalidTag:
        pass
    raise DecodeError(
        f"expected a sender key of {WRAPPED_BYTES} bytes wrapped for this peer, got {len(wrapped)} others: "
        "see that both ends have the same run and roster"
    )


def _nonce(stream: int, sequence: int) -> bytes | None:
    """The 96 bits of a place; none where it has no place in them."""
    if 0 <= stream < 2**32 and 0 <= sequence < 2**64:
        return _NONCE.pack(stream, sequence)
    return None


def _check_key(key: bytes, what: str) -> None:
    if len(key) != KEY_BYTES:
        raise InputError(f"expected {what} of {KEY_BYTES} bytes, got {len(key)}: pass the raw bytes of the key")
