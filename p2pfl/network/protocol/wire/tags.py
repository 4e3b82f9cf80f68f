"""Prove to each neighbour by itself that a message is the sender's, although all of them can decrypt it.

A peer seals once for all neighbours under one key, so each of them could seal in its name. Beside the ciphertext there
is one tag for each neighbour that is to believe it, under a key that only the two ends of that edge know:

    digest = BLAKE3(prefix, message without its data, BLAKE3(data))
    tag    = BLAKE3(digest) keyed by the edge, the direction and both incarnations, 16 bytes

The tag of AES-GCM cannot stand for the message: whoever has the key can compute other ciphertexts with the same tag.
A model's trailer (:mod:`p2pfl.network.protocol.wire.trailer`) covers a whole model, so it does not show which chunk was
forged. Both cover the same hash of the plain data, as a ciphertext differs when a model is sent again.

The receiver decrypts, computes its own tag and looks for it among them before it decodes anything: what an outsider
sends fails in AES-GCM. A tag takes two microseconds, where an Ed25519 signature takes 70 and its verification 150
(``benchmarks/sealing.py``).

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


def add_tags(prefix: bytes, digest: bytes, ciphertext: bytes, *, keys: Iterable[bytes]) -> bytes:
    """Return a payload with one tag under each key.

    Parameters
    ----------
    prefix, ciphertext
        As in :class:`SealedParts`.
    digest
        Digest of the sealed message, from :func:`digest_of`.
    keys
        32 bytes for each neighbour, from :func:`p2pfl.privacy.keys.edge_key` with purpose ``auth``.

    Examples
    --------
    >>> digest = digest_of(b"place", b"head", blake3.blake3(b"data").digest())
    >>> payload = add_tags(b"place", digest, b"ciphertext", keys=[bytes(32), bytes([1] * 32)])
    >>> authentic(parts(payload, prefix=5), digest, key=bytes([1] * 32))
    True
    >>> authentic(parts(payload, prefix=5), digest, key=bytes([2] * 32))
    False
    """
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


def authentic(sealed: SealedParts, digest: bytes, *, key: bytes) -> bool:
    """Return whether one of the tags is the one of this digest under this key."""
    return contains(sealed.tags, _tag(digest, key))


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
    return _tag(blake3.blake3(STATEMENT + statement).digest(), key)


def digest_of(prefix: bytes, head: bytes | memoryview, data: bytes) -> bytes:
    """Return the hash of a message.

    All prefixes have one length, and a head states its own, so no other message has the same.

    Parameters
    ----------
    prefix
        The bytes that name its place.
    head, data
        The message without its data, and the hash of its data.
    """
    return blake3.blake3(b"".join((prefix, head, data))).digest()


def _tag(digest: bytes, key: bytes) -> bytes:
    return blake3.blake3(digest, key=key).digest(length=TAG_BYTES)
