"""What must hold of keys: none hides two different plaintexts, in whichever incarnation of whichever peer.

A key is used for masks of releases, for masks of terms in sums, and to seal; each use is named by the key, what it is
for and, where one key seals many messages, the nonce. Both ends of an edge use its masks, with opposite signs, so a use
names the end, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from functools import cache, lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from p2pfl.network.protocol.ledgers.mask_slots import Mask, mask_key
from p2pfl.network.protocol.wire.envelope import PLACE, PRIVATE, SEALED, Envelope
from p2pfl.network.protocol.wire.messages import ForOne, Key, Message
from p2pfl.network.protocol.wire.wire_codec import parts
from p2pfl.privacy.keys import Identity, SenderKey, signing
from p2pfl.privacy.masks import Masks
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.secagg.protocol import Sender

Fail = Callable[[str], None]
"""Told of what must not be."""

REMEMBERED = 1024
"""Number of public keys whose signatures are remembered, and of signatures of each."""


class KeyWatch:
    """Remembers every use of a key in a world.

    Parameters
    ----------
    fail
        Told of the first key that hides two different plaintexts.

    Attributes
    ----------
    uses
        By digest of the key and name of the use, the digest of what it hides.
    """

    def __init__(self, fail: Fail) -> None:
        self.fail = fail
        self.uses: dict[tuple[bytes, str], bytes] = {}

    def used(self, key: bytes, use: str, hidden: bytes | memoryview) -> None:
        """Note what a key hides: the plaintext, or what a key and a nonce make of it and of nothing else."""
        name, digest = (_digest(key), use), _digest(hidden)
        if self.uses.setdefault(name, digest) != digest:
            self.fail(f"one key hides two different plaintexts as {use}")

    def released(self, peer: str, terms: Mapping[Mask, int], numbers: bytes | memoryview, *, masks: Masks) -> None:
        """Note the masks of a release."""
        for mask in terms:
            self.used(mask_key(mask, masks), f"mask of {peer}", numbers)

    def added(self, part: Sender, points: Ints) -> None:
        """Note the masks of a term that is given to a receiver."""
        hidden = points.tobytes()
        for name, key in part.mask_keys().items():
            self.used(key, f"mask of the term of {part.peer} with {name}", hidden)


class FastIdentity(Identity):
    """An identity that remembers its signatures, as peers sign the same announcement many times."""

    def __init__(self, private: bytes) -> None:
        super().__init__(private)
        self._signed: dict[tuple[bytes, str], bytes] = {}

    def sign(self, message: bytes, *, domain: str) -> bytes:
        """Return a signature of 64 bytes, for this message in this domain."""
        found = self._signed.get((message, domain))
        if found is None:
            found = self._signed[message, domain] = super().sign(message, domain=domain)
        return found


@cache
def remember_signatures() -> None:
    """Verify each signature once in this process, not once for each peer that receives it."""
    key_of = signing._key

    class FastKey:
        def __init__(self, key: Ed25519PublicKey) -> None:
            self.verify = lru_cache(REMEMBERED)(key.verify)  # which does not remember errors

    @lru_cache(REMEMBERED)
    def fast_key_of(public: bytes) -> FastKey | None:
        key = key_of(public)
        return None if key is None else FastKey(key)

    signing._key = fast_key_of  # type: ignore[assignment]


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


class WatchedEnvelope(Envelope):
    """An envelope that tells what it seals under which key, and what it takes for genuine and was never said."""

    keys: KeyWatch
    genuine: Callable[[str, bytes], bool]
    _last_key: bytes = b""

    @classmethod
    def of(cls, envelope: Envelope, keys: KeyWatch, *, genuine: Callable[[str, bytes], bool]) -> WatchedEnvelope:
        """Return the same, watched; ``genuine`` is told who is said to have said which payload."""
        watched = cls.__new__(cls)
        watched.__dict__.update(vars(envelope))
        watched.keys, watched.genuine = keys, genuine
        return watched

    def open(self, peer: str, payload: bytes | bytearray | memoryview) -> Message:
        """Read what a neighbour sealed."""
        message = super().open(peer, payload)
        if not self.genuine(peer, bytes(payload)):
            self.keys.fail(f"{self.me} took for {peer}'s what {peer} never said: {type(message).__name__}")
        return message

    def seal(self, message: Message, *, to: Collection[str] | None = None) -> bytes:
        """Seal a message to neighbours; its nonce is in the first bytes, and tags may differ where it is sent again."""
        payload = super().seal(message, to=to)
        found = parts(payload, prefix=PLACE)
        self.keys.used(_bytes(self.sender), f"seal {SEALED} {found.prefix[1:].hex()}", bytes(found.ciphertext))
        return payload

    def seal_for(self, peer: str, message: ForOne) -> bytes:
        """Seal a message for one neighbour; its nonce is in the first bytes."""
        payload = super().seal_for(peer, message)
        key, _ = self._alone[peer]
        self.keys.used(_bytes(key), f"seal {PRIVATE} {payload[1:9].hex()}", payload)
        return payload

    def handover(self, peer: str) -> Key:
        """Wrap the sender key for one neighbour, under the nonce 0."""
        key = super().handover(peer)
        self.keys.used(self._last_key, "seal of a sender key", key.wrapped)
        return key

    def _edge(self, secret: bytes, peer: str, *, incarnation: int, receiver: str, have: bool, has_key: bool) -> bytes:
        self._last_key = super()._edge(
            secret, peer, incarnation=incarnation, receiver=receiver, have=have, has_key=has_key
        )
        return self._last_key


def _bytes(key: SenderKey) -> bytes:
    return key._key
