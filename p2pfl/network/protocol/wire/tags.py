"""Prove to each neighbour by itself that a message is the sender's, although all of them can decrypt it.

A peer seals once for all neighbours under one key, so each of them could seal in its name. Beside the ciphertext there
is one tag for each neighbour that is to believe it, under a key that only the two ends of that edge know:

    digest = BLAKE3(prefix, ciphertext)
    tag    = BLAKE3(digest) keyed by the edge, the direction and both incarnations, 16 bytes

The tag of AES-GCM cannot stand for the ciphertext: whoever has the key can compute other ciphertexts with the same tag.
A model's trailer (:mod:`p2pfl.network.protocol.wire.trailer`) covers a whole model, so it does not show which chunk was
forged. It signs the plain row, because a ciphertext differs when a model is sent again.

The receiver computes its own tag and looks for it among them. A tag takes two microseconds, where an Ed25519 signature
takes 70 and its verification 150 (``benchmarks/sealing.py``).

References
----------
J. O'Connor, J.-P. Aumasson, S. Neves, Z. Wilcox-O'Hearn, "BLAKE3: one function, fast everywhere", 2020 (keyed mode).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import NamedTuple

import blake3

from p2pfl.core.errors import AuthenticityError

TAG_BYTES = 16
"""Length of a tag."""

MAX_TAGS = 2**12
"""Tags that one message may carry: neighbours of one peer."""

STATEMENT = b"s"
"""First byte of what the tag of a statement covers."""

_COUNT = 2


class SealedParts(NamedTuple):
    """A sealed message in its parts.

    Attributes
    ----------
    prefix
        The bytes that name its place, in the clear.
    tags
        One for each neighbour that is to believe it, 16 bytes each, in any order.
    ciphertext
        Of the message, with the tag of AES-GCM.
    """

    prefix: bytes
    tags: memoryview
    ciphertext: memoryview


def add_tags(prefix: bytes, ciphertext: bytes, *, keys: Iterable[bytes]) -> bytes:
    """Return a payload with one tag under each key.

    Parameters
    ----------
    prefix, ciphertext
        As in :class:`SealedParts`.
    keys
        32 bytes for each neighbour, from :func:`p2pfl.privacy.keys.edge_key` with purpose ``auth``.

    Examples
    --------
    >>> payload = add_tags(b"place", b"ciphertext", keys=[bytes(32), bytes([1] * 32)])
    >>> authentic(parts(payload, prefix=5), key=bytes([1] * 32))
    True
    >>> authentic(parts(payload, prefix=5), key=bytes([2] * 32))
    False
    """
    digest = _digest(prefix, ciphertext)
    tags = [_tag(digest, key) for key in keys]
    return b"".join((prefix, len(tags).to_bytes(_COUNT, "little"), *tags, ciphertext))


def parts(payload: bytes | bytearray | memoryview, *, prefix: int) -> SealedParts:
    """Split a payload whose prefix has so many bytes.

    Raises
    ------
    AuthenticityError
        The payload is too short for its tags, or carries more than ``MAX_TAGS``.
    """
    view = memoryview(payload)
    start = prefix + _COUNT
    count = int.from_bytes(view[prefix:start], "little")
    end = start + count * TAG_BYTES
    if count > MAX_TAGS or len(view) < end:
        raise AuthenticityError(
            f"a sealed message of {len(view)} bytes claims {count} tags; it must hold all of them, at most {MAX_TAGS}"
        )
    return SealedParts(bytes(view[:prefix]), view[start:end], view[end:])


def authentic(sealed: SealedParts, *, key: bytes) -> bool:
    """Return whether one of the tags is the one under this key."""
    return contains(sealed.tags, _tag(_digest(sealed.prefix, sealed.ciphertext), key))


def contains(tags: bytes | memoryview, tag: bytes) -> bool:
    """Return whether one of the tags is this one."""
    each = (tags[at : at + TAG_BYTES] for at in range(0, len(tags), TAG_BYTES))
    return any(hmac.compare_digest(tag, one) for one in each)


def tag_statement(statement: bytes, *, key: bytes) -> bytes:
    """Return the tag of what a peer states, for one neighbour that others pass it on to.

    Its first byte is that of no sealed payload, so neither tag can pass for the other.

    Examples
    --------
    >>> len(tag_statement(b"complete", key=bytes(32)))
    16
    """
    return _tag(_digest(STATEMENT, statement), key)


def _digest(prefix: bytes, ciphertext: bytes | memoryview) -> bytes:
    """Return the hash of a message; as all prefixes have one length, no other split has the same hash."""
    hashed = blake3.blake3(prefix)
    hashed.update(ciphertext)
    return hashed.digest()


def _tag(digest: bytes, key: bytes) -> bytes:
    return blake3.blake3(digest, key=key).digest(length=TAG_BYTES)
