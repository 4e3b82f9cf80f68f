r"""Number of keys that more than one peer has, such as patients of two hospitals, and nothing else.

Two peers have a role. The mixer draws a secret scalar k and gives it to all but the judge. Each peer hashes its keys to
points of a curve and sends their multiples by k in two envelopes: the outer one for the mixer, which shuffles what all
have sent, the inner one for the judge, which thus sees no sender. The judge has its own keys multiplied by the mixer,
blinded by a scalar b of its own and shuffled, multiplies those of others by b, and counts equal points:

.. math:: b \, (k \, H(x)) = k \, (b \, H(x))

Only the judge sees these points, and it cannot test a guess without k; those who know k see no points. All peers learn
the number. Sets are padded with random points, to the power of two that the largest one needs.

This holds against peers that follow the protocol, read everything, and among which the judge does not collude. A peer
that enters a single key learns from the number whether another peer has it: this is what a number of duplicates says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import DataError, PrivacyError
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked
from p2pfl.privacy.commutative_powers import POINT_LENGTH, hash_to_point, multiply
from p2pfl.privacy.keys import Source

MAX_CLASS = 16
"""Largest logarithm of the number of keys of a peer; the work of all grows with it."""

BASE = (9).to_bytes(POINT_LENGTH, "little")
"""Base point of Curve25519."""

ITEM_LENGTH = 2 * POINT_LENGTH
"""Bytes of an inner envelope: a point of its sender, and what it covers."""

WORD_LENGTH = 4
"""Bytes in an integer of a total."""


def count_shared_keys(keys: Callable[[str], Sequence[str]], *, peers: Sequence[str], source: Source) -> Asked[int]:
    """Ask how often a key that a peer has is that of another one, too: a key of three peers counts twice.

    Parameters
    ----------
    keys
        ``keys(peer)`` returns its keys; private.
    peers
        Names of all peers; those that take no part in the first total do not count.
    source
        Source of secret bytes.

    Raises
    ------
    DataError
        A peer has too many keys.
    PrivacyError
        A peer does not follow the protocol.
    """
    names = tuple(sorted(peers))

    def stated(peer: str) -> Ints:
        answer = np.zeros(len(names) + MAX_CLASS + 1, np.int64)
        answer[names.index(peer)] = 1
        answer[len(names) + _size_class(len(set(keys(peer))), peer)] = 1
        return answer

    total = yield Question(stated, size=len(names) + MAX_CLASS + 1)
    present = tuple(name for name, there in zip(names, total.tolist(), strict=False) if there)
    if len(present) < 2:
        return 0
    classes = np.flatnonzero(total[len(names) :] > 0)
    if not len(classes):
        raise PrivacyError("the comparison of keys received no sizes; a peer does not follow the protocol")
    size = 2 ** int(classes.max())
    return (yield from _Comparison(keys, present, size, source).ask())


class _Comparison:
    """Comparison of the keys of some peers, padded to equal numbers."""

    def __init__(self, keys: Callable[[str], Sequence[str]], peers: tuple[str, ...], size: int, source: Source) -> None:
        self.keys, self.peers, self.size, self.source = keys, peers, size, source
        self.judge, self.mixer, *self.senders = peers
        self.secret = cache(self._secret)

    def ask(self) -> Asked[int]:
        """Return the number of keys that are those of an earlier peer, too."""
        count = len(self.peers)
        total = yield Question(self._publish, size=_words(POINT_LENGTH * (count + self.size)))
        published = _bytes(total)
        public = dict(zip(self.peers, _pieces(published[: count * POINT_LENGTH], POINT_LENGTH), strict=True))
        blinded = _pieces(published[count * POINT_LENGTH :], POINT_LENGTH)
        total = yield Question(
            lambda peer: self._distribute(peer, public, blinded),
            size=_words(POINT_LENGTH * (count + self.size)),
        )
        given = _bytes(total)
        wrapped = dict(zip(self.peers, _pieces(given[: count * POINT_LENGTH], POINT_LENGTH), strict=True))
        returned = _pieces(given[count * POINT_LENGTH :], POINT_LENGTH)
        block = ITEM_LENGTH * self.size
        total = yield Question(lambda peer: self._send(peer, public, wrapped), size=_words(block * len(self.senders)))
        sent = _pieces(_bytes(total), block)
        total = yield Question(lambda peer: self._mix(peer, public, sent), size=_words(block * (count - 1)))
        mixed = _pieces(_bytes(total), ITEM_LENGTH)
        total = yield Question(lambda peer: self._count(peer, returned, mixed), size=1)
        return int(total[0])

    def _publish(self, peer: str) -> Ints:
        """Return the public point of a peer, and the blinded points of the judge."""
        data = bytearray(POINT_LENGTH * (len(self.peers) + self.size))
        _put(data, self.peers.index(peer), *multiply(self.secret(peer, "own scalar", POINT_LENGTH), [BASE]))
        if peer == self.judge:
            blinded = multiply(self.secret(peer, "blind", POINT_LENGTH), self._points(peer))
            data[POINT_LENGTH * len(self.peers) :] = b"".join(blinded)
        return _integers(data)

    def _distribute(self, peer: str, public: dict[str, bytes], blinded: Sequence[bytes]) -> Ints:
        """Return what the mixer gives: its scalar, covered for each sender, and the multiples of the judge's points."""
        data = bytearray(POINT_LENGTH * (len(self.peers) + self.size))
        if peer == self.mixer:
            scalar = self.secret(peer, "scalar", POINT_LENGTH)
            for other in self.senders:
                cover = self._cover(peer, public[other], "scalar", POINT_LENGTH)
                _put(data, self.peers.index(other), _xor(scalar, cover))
            multiples = self._shuffled(peer, "order of the judge's", _multiplied(scalar, blinded))
            data[POINT_LENGTH * len(self.peers) :] = b"".join(multiples)
        return _integers(data)

    def _send(self, peer: str, public: dict[str, bytes], wrapped: dict[str, bytes]) -> Ints:
        """Return the envelopes of a sender, covered for the mixer."""
        block = ITEM_LENGTH * self.size
        data = bytearray(block * len(self.senders))
        if peer in self.senders:
            scalar = _xor(wrapped[peer], self._cover(peer, public[self.mixer], "scalar", POINT_LENGTH))
            items = b"".join(self._envelopes(peer, scalar, public[self.judge]))
            start = block * self.senders.index(peer)
            data[start : start + block] = _xor(items, self._cover(peer, public[self.mixer], "items", block))
        return _integers(data)

    def _mix(self, peer: str, public: dict[str, bytes], sent: Sequence[bytes]) -> Ints:
        """Return the envelopes of all but the judge, in an order that only the mixer knows."""
        if peer != self.mixer:
            return np.zeros(_words(ITEM_LENGTH * self.size * (len(self.peers) - 1)), np.int64)
        items = self._envelopes(peer, self.secret(peer, "scalar", POINT_LENGTH), public[self.judge])
        for other, covered in zip(self.senders, sent, strict=True):
            cover = self._cover(peer, public[other], "items", len(covered))
            items += _pieces(_xor(covered, cover), ITEM_LENGTH)
        return _integers(b"".join(self._shuffled(peer, "order of all", items)))

    def _count(self, peer: str, returned: Sequence[bytes], mixed: Sequence[bytes]) -> Ints:
        """Return the number of points that the judge has seen before."""
        if peer != self.judge:
            return np.zeros(1, np.int64)
        own = self.secret(peer, "own scalar", POINT_LENGTH)
        shared = _multiplied(own, [item[:POINT_LENGTH] for item in mixed])
        points = [_xor(item[POINT_LENGTH:], _stream(key, "item")) for item, key in zip(mixed, shared, strict=True)]
        every = [*returned, *_multiplied(self.secret(peer, "blind", POINT_LENGTH), points)]
        return np.array([len(every) - len(set(every))], np.int64)

    def _points(self, peer: str) -> list[bytes]:
        """Return the points of a peer's keys, and random ones, in an order that only it knows."""
        points = [hash_to_point(b"p2pfl shared key" + key.encode()) for key in sorted(set(self.keys(peer)))]
        noise = self.secret(peer, "padding", POINT_LENGTH * (self.size - len(points)))
        points += [hash_to_point(each) for each in _pieces(noise, POINT_LENGTH)]
        return self._shuffled(peer, "order of its own", points)

    def _envelopes(self, peer: str, scalar: bytes, judge: bytes) -> list[bytes]:
        """Return the multiples of a peer's points, each covered for the judge by a scalar of its own."""
        scalars = _pieces(self.secret(peer, "envelopes", POINT_LENGTH * self.size), POINT_LENGTH)
        return [
            point + _xor(multiple, _stream(key, "item"))
            for multiple, one in zip(multiply(scalar, self._points(peer)), scalars, strict=True)
            for point, key in [_multiplied(one, [BASE, judge])]
        ]

    def _cover(self, peer: str, other: bytes, what: str, length: int) -> bytes:
        """Return the bytes that cover what one of two peers sends to the other."""
        [shared] = _multiplied(self.secret(peer, "own scalar", POINT_LENGTH), [other])
        return _stream(shared, what, length)

    def _shuffled(self, peer: str, what: str, items: Sequence[bytes]) -> list[bytes]:
        order = np.argsort(np.frombuffer(self.secret(peer, what, 8 * len(items)), np.uint64))
        return [items[position] for position in order]

    def _secret(self, peer: str, what: str, size: int) -> bytes:
        """Return bytes that are drawn once, since a total may ask again for what a peer adds."""
        return self.source.bytes(size, purpose=f"shared keys, {what}", peer=peer)


def _size_class(count: int, peer: str) -> int:
    """Return the logarithm of the power of two to which a number of keys is padded."""
    size = max(0, count - 1).bit_length()
    if size > MAX_CLASS:
        raise DataError(f"{peer} has {count:,} keys, more than {2**MAX_CLASS:,}; leave out data.options.key_across")
    return size


def _multiplied(scalar: bytes, points: Sequence[bytes]) -> list[bytes]:
    try:
        return multiply(scalar, points)
    except ValueError:
        raise PrivacyError(
            "the comparison of keys received no points; a peer does not follow the protocol, so compare versions"
        ) from None


def _stream(key: bytes, what: str, length: int = POINT_LENGTH) -> bytes:
    return hashlib.shake_256(b"p2pfl shared keys " + what.encode() + key).digest(length)


def _xor(one: bytes, other: bytes) -> bytes:
    return (np.frombuffer(one, np.uint8) ^ np.frombuffer(other, np.uint8)).tobytes()


def _put(data: bytearray, position: int, point: bytes) -> None:
    data[position * POINT_LENGTH : (position + 1) * POINT_LENGTH] = point


def _pieces(data: bytes, length: int) -> list[bytes]:
    return [bytes(data[start : start + length]) for start in range(0, len(data), length)]


def _words(length: int) -> int:
    return length // WORD_LENGTH


def _integers(data: bytes | bytearray) -> Ints:
    """Return bytes as integers that a total carries."""
    return np.frombuffer(bytes(data), "<u4").astype(np.int64)


def _bytes(total: Ints) -> bytes:
    """Return the bytes in the integers of a total.

    Raises
    ------
    PrivacyError
        They are none, since somebody added what the protocol does not.
    """
    if ((total < 0) | (total >= 2**32)).any():
        raise PrivacyError(
            "the comparison of keys received no bytes; a peer does not follow the protocol, so compare versions"
        )
    return total.astype("<u4").tobytes()
