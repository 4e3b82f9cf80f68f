"""Sealing: encryption of models that only neighbours can read.

Each peer has one sender key for each of its incarnations. It seals what it publishes, once for all
receivers, and sends the key to each neighbour over their own edge:

    wrapped = AES-256-GCM(edge key, nonce 0, sender key)                         48 bytes
    sealed  = AES-256-GCM(sender key, nonce stream || sequence, header, data)    data and 16 bytes

The broker and outsiders see headers, sizes and times. All neighbours hold the same key, so sealing alone does not
distinguish one of them from the sender. Beside the ciphertext, each neighbour finds a tag under a key of its own edge,
see :mod:`p2pfl.network.protocol.wire.tags`. The sender could still send different models to different neighbours;
signatures prevent that.

References
----------
NIST SP 800-38D (GCM). It takes less than half the time of ChaCha20-Poly1305 on processors with instructions for it,
which all but small boards have. There it takes four times as long (``benchmarks/sealing.py``), and OpenSSL's tables
may leak bits of the key to programs on the same board; masks do not depend on it. With one algorithm for all, peers
have one thing less to agree on.
"""

import struct
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from p2pfl.core.errors import DecodeError, InputError
from p2pfl.privacy.keys.exchange import KEY_BYTES
from p2pfl.privacy.keys.secrets import Source

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
        _check_key(key, "a sender key")
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
    _check_key(edge_key, "an edge key")
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
    _check_key(edge_key, "an edge key")
    try:
        if len(wrapped) == WRAPPED_BYTES:
            return SenderKey(AESGCM(edge_key).decrypt(bytes(12), wrapped, _WRAP))
    except InvalidTag:
        pass
    raise DecodeError(
        f"{len(wrapped)} bytes are not a sender key of {WRAPPED_BYTES} bytes wrapped for this peer; check that "
        "both ends have the same run and roster"
    )


def _check_key(key: bytes, what: str) -> None:
    if len(key) != KEY_BYTES:
        raise InputError(f"{what} must have {KEY_BYTES} bytes, but it has {len(key)}; pass the raw bytes of the key")
