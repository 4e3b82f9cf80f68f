"""Record of what live peers encrypt: under which key and nonce, in which incarnation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from p2pfl.privacy.keys import exchange

Buffer = bytes | bytearray | memoryview

Note = Callable[[bytes, bytes, Buffer, Buffer | None], None]
"""Function that records a key, a nonce, a message and its header."""


@dataclass
class Encryptions:
    """Record of everything that was encrypted, by run.

    Attributes
    ----------
    messages
        Digests of the messages, with their headers, by run and by key and nonce.
    """

    messages: dict[int, dict[tuple[bytes, bytes], set[bytes]]] = field(default_factory=dict)

    def note(self, run: int, key: bytes, nonce: bytes, data: Buffer, header: Buffer | None) -> None:
        """Record one encryption of a run."""
        whole = hashlib.sha256(hashlib.sha256(header or b"").digest())
        whole.update(data)
        self.messages.setdefault(run, {}).setdefault((key, nonce), set()).add(whole.digest())

    def keys(self, run: int) -> set[bytes]:
        """Return all keys that a run used."""
        return {key for key, _ in self.messages.get(run, {})}

    def repeated(self) -> int:
        """Return the number of keys and nonces, over all runs together, under which two messages were encrypted."""
        together: dict[tuple[bytes, bytes], set[bytes]] = {}
        for found in self.messages.values():
            for place, messages in found.items():
                together.setdefault(place, set()).update(messages)
        return sum(len(messages) > 1 for messages in together.values())


class RecordingCipher:
    """AES-GCM that records what it encrypts.

    Parameters
    ----------
    key
        Key.
    note
        Called with the key, the nonce, the message and its header before each encryption.
    """

    def __init__(self, key: bytes, note: Note) -> None:
        self._key, self._cipher, self._note = bytes(key), AESGCM(key), note

    def encrypt(self, nonce: bytes, data: Buffer, associated_data: Buffer | None) -> bytes:
        """Encrypt, and record it."""
        self._note(self._key, bytes(nonce), data, associated_data)
        return self._cipher.encrypt(nonce, data, associated_data)

    def decrypt(self, nonce: bytes, data: Buffer, associated_data: Buffer | None) -> bytes:
        """Decrypt."""
        return self._cipher.decrypt(nonce, data, associated_data)


@contextmanager
def record_ciphers(note: Note) -> Iterator[None]:
    """Call a function before everything that the peers of this process encrypt.

    The record is taken at the cipher itself, whichever part of a peer calls it: a key that two parts share by mistake
    shows as well.
    """
    real = vars(exchange)["AESGCM"]
    setattr(exchange, "AESGCM", lambda key: RecordingCipher(key, note))  # noqa: B010 (mypy knows it as a class)
    try:
        yield
    finally:
        setattr(exchange, "AESGCM", real)  # noqa: B010 (as above)
