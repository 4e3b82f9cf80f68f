r"""Products of columns of two parties with nobody else, under encryption.

The right party holds Y ``[n, b]`` and encrypts each row of it, packed into a number, under a key of its own. The left
one holds X ``[n, a]`` and returns an encryption of :math:`X^T Y + M` with fresh noise M:

.. math:: z_L = -M \qquad z_R = X^T Y + M \qquad z_L + z_R = X^T Y \pmod{2^{64}}

M fills the whole range of numbers that can be encrypted, whatever the right party has packed into them, so what it
decrypts is uniform: it shows anything of X with probability :math:`2^{-36}` at most. The left party sees encryptions
alone. A certificate of the key and fresh n-th powers hide X also from a key that was made to show it. For the
element by element product of a column y with X, the left party encrypts X under its key, and the right one multiplies.
Rows are encrypted once for all products of a fit.

See :mod:`p2pfl.plugins.vertical.paillier`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError
from p2pfl.core.neighbourhood import Recipient
from p2pfl.learning.additive import Question, Questions
from p2pfl.plugins.vertical.paillier import MODULUS_BITS, ROOTS, SPARE_BITS, PrivateKey, PublicKey, Stream, stream
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.private_messages import PrivateMessage, ints_to_large, large_to_ints, send
from p2pfl.plugins.vertical.products import DealtProduct, Factors, Matrix, Products, SharedMatrix
from p2pfl.plugins.vertical.ring import Words, signed, words
from p2pfl.privacy.keys import KEY_BYTES, Source

MAX_ROWS = 20_000
"""Most common rows of two parties with nobody else: 10,000 take 20 s, and 4 minutes element by element."""

ROWS_AT_ONCE = 200
"""Rows of a message: seconds of work, also without gmpy2, while the other party waits."""

COLUMNS_AT_ONCE = 2
"""Columns of the left matrix in a message, each combined with all rows."""

SLOT_WORDS = 3
"""Words of 64 bits of a packed number: 126 bits of products, rows, and 40 bits more."""

OFFSET = np.uint64(1 << 23)
"""In the highest word of a slot, 2^151: more than the magnitude of any sum, so that no slot is negative."""

MAX_NOISE_WORD = np.uint64(2**64 - 2**24 - 1)
"""Largest highest word of the noise of a slot, so that no slot overflows; 2^-40 of uniform noise is larger."""


def products_of(roles: PartyRoles, source: Source, rows: int, *, purpose: str = "vertical products") -> Products:
    """Return products that a third peer deals, or under encryption if there is none.

    Parameters
    ----------
    roles, source, rows, purpose
        As of :class:`~p2pfl.plugins.vertical.products.Products`.

    Raises
    ------
    InputError
        There are too many rows to encrypt.
    """
    if roles.dealt:
        return Products(roles, source, rows, purpose=purpose)
    if rows > MAX_ROWS:
        raise InputError(
            f"two parties with nobody else encrypt each of {rows:,} rows, which is meant for {MAX_ROWS:,} at most; set "
            "data.options.helper to a third peer that conspires with neither"
        )
    return EncryptedProducts(roles, source, rows, purpose=purpose, bits=MODULUS_BITS)


@dataclass(eq=False)
class EncryptedProducts(Products):
    """Products of two parties of one fit, under a key of each that is drawn for it alone.

    Parameters
    ----------
    roles, source, rows, purpose
        As of :class:`~p2pfl.plugins.vertical.products.Products`.
    bits
        Bits of the keys.
    """

    bits: int = MODULUS_BITS
    _holders: dict[str, _Holder] = field(default_factory=dict, init=False, repr=False)
    _encrypted: dict[int, _MessageSequence] = field(
        default_factory=dict, init=False, repr=False
    )  # by number of the matrix

    def multiply(self, factors: Sequence[Factors]) -> Questions[list[DealtProduct]]:
        """Ask for some products of a left party with a right one, in shares.

        Parameters
        ----------
        factors
            Factors, all of the same two parties in the same order.
        """
        products = []
        for each in factors:
            held, other = (each.left, each.right) if each.elementwise else (each.right, each.left)
            holder = yield from self._holder(held.owner, other.owner)
            encrypted = yield from self._send(held, holder, other.owner)
            work = _Work(holder, other, held.columns, elementwise=each.elementwise, number=next(self._numbers))
            products.append((yield from self._return(work, encrypted)))
        return products

    def _secret(self, peer: str, use: str) -> Callable[[], bytes]:
        """Return the function of a peer that draws secret bytes once."""
        purpose = f"{self.purpose} {use}"
        return cache(lambda: self.source.bytes(KEY_BYTES, purpose=purpose, peer=peer))

    def _holder(self, owner: str, other: str) -> Questions[_Holder]:
        """Return a holder of a key, whose public part is sent to the other party before its first use."""
        if owner not in self._holders:
            secret = self._secret(owner, "key")
            private = cache(lambda: PrivateKey(stream(secret()), bits=self.bits))
            size = self.bits // 64
            message = yield from send(
                lambda: large_to_ints([private().public.modulus, *private().certificate()], size),
                size=(1 + ROOTS) * size,
                sender=owner,
                to=other,
            )
            public = cache(lambda: self._checked(ints_to_large(message.read(other), size)))
            self._holders[owner] = _Holder(owner, private, public, self.bits)
        return self._holders[owner]

    def _checked(self, received: Sequence[int]) -> PublicKey:
        """Return the key that another party has sent with its certificate."""
        key = PublicKey(received[0], bits=self.bits)
        key.check_certificate(received[1:])
        return key

    def _send(self, matrix: Matrix, holder: _Holder, to: str) -> Questions[_MessageSequence]:
        """Send encrypted rows of a matrix, unless that was done."""
        if matrix.number not in self._encrypted:
            packed = cache(lambda: holder.packed(matrix.entries()))
            per_row = holder.chunks(matrix.columns)

            def rows(some: range) -> Ints:
                key, numbers = holder.private(), packed()[some.start * per_row : some.stop * per_row]
                return large_to_ints([key.encrypt(each) for each in numbers], holder.words)

            self._encrypted[matrix.number] = yield from _transfer(
                rows, self.rows, ROWS_AT_ONCE, size=per_row * holder.words, sender=holder.owner, to=to
            )
        return self._encrypted[matrix.number]

    def _return(self, work: _Work, encrypted: _MessageSequence) -> Questions[DealtProduct]:
        """Send the encrypted product with noise back to the holder of the key; return the shares."""
        holder, other = work.holder, work.matrix.owner
        shape = (self.rows, work.columns) if work.elementwise else (work.matrix.columns, work.columns)
        per_row = holder.chunks(work.columns)
        secret = self._secret(other, f"noise {work.number}")
        randomness = self._secret(other, f"randomness {work.number}")
        drawn = cache(lambda: stream(randomness()))
        numbers = cache(lambda: holder.public().check(ints_to_large(encrypted.read(other), holder.words)))

        added = cache(lambda: holder.noise(shape[0] * per_row, stream(secret())))

        def rows(some: range) -> Ints:
            key, noise = holder.public(), added()[some.start * per_row : some.stop * per_row]
            both = zip(work.multiplied(numbers(), some, per_row), holder.messages(noise), strict=True)
            return large_to_ints(
                [key.hide(number, message, key.fresh(drawn())) for number, message in both], holder.words
            )

        def decrypted(values: Ints) -> Ints:
            key = holder.private()
            numbers = [
                key.decrypt(number) % key.public.modulus
                for number in key.public.check(ints_to_large(values, holder.words))
            ]
            packed = words(large_to_ints(numbers, holder.bits // 64)).reshape(len(numbers), -1)
            return signed(holder.first_words(packed, work.columns)).ravel()

        received = yield from _transfer(
            rows,
            shape[0],
            ROWS_AT_ONCE if work.elementwise else COLUMNS_AT_ONCE,
            size=per_row * holder.words,
            sender=other,
            to=holder.owner,
            convert=decrypted,
        )
        at = {
            other: lambda: np.uint64(0) - holder.first_words(added(), work.columns),
            holder.owner: lambda: words(received.read(holder.owner)).reshape(shape),
        }
        return DealtProduct(SharedMatrix(shape, at), None)


@dataclass(frozen=True)
class _MessageSequence:
    """Integers that one peer receives in several messages."""

    messages: tuple[PrivateMessage, ...]

    def read(self, peer: str) -> Ints:
        """Return the integers to the answer of a peer."""
        return np.concatenate([message.read(peer) for message in self.messages])


def _transfer(
    rows: Callable[[range], Ints],
    total: int,
    at_once: int,
    *,
    size: int,
    sender: str,
    to: str,
    convert: Callable[[Ints], Ints] = lambda values: values,
) -> Questions[_MessageSequence]:
    """Send rows in several messages, each of which the receiver converts at once: so nobody waits for long.

    Parameters
    ----------
    rows
        Function that returns the integers of some rows, called at the sender.
    total, at_once, size
        Number of rows, of rows in a message, and of integers of a row.
    sender, to
        Both peers.
    convert
        Function of the integers of a message, called at the receiver.
    """
    messages = []
    for low in range(0, total, at_once):
        some, message = range(low, min(total, low + at_once)), PrivateMessage(to)
        messages.append(message)
        yield Question(
            partial(_rows_of, rows, some),
            size=len(some) * size,
            to=Recipient(to, partial(_take, message, convert), among=(sender,)),
        )
    return _MessageSequence(tuple(messages))


def _rows_of(rows: Callable[[range], Ints], some: range, peer: str) -> Ints:
    del peer
    return rows(some)


def _take(message: PrivateMessage, convert: Callable[[Ints], Ints], values: Ints) -> None:
    message.take(convert(values))


@dataclass(frozen=True, eq=False)
class _Work:
    """A product: the matrix of the party without the key, and the key under which the other one is encrypted."""

    holder: _Holder
    matrix: Matrix
    columns: int
    elementwise: bool
    number: int

    def multiplied(self, encrypted: Sequence[Any], some: range, chunks: int) -> list[Any]:
        """Return the encrypted products of some rows of the result, chunk by chunk of each."""
        key, own = self.holder.public(), signed(self.matrix.entries())
        if self.elementwise:
            factors = np.repeat(own[some.start : some.stop, 0], chunks).tolist()
            numbers = encrypted[some.start * chunks : some.stop * chunks]
            return [pow(number, factor, key.square) for number, factor in zip(numbers, factors, strict=True)]
        parts = [encrypted[chunk::chunks] for chunk in range(chunks)]
        return [key.combine(part, np.ascontiguousarray(own[:, column])) for column in some for part in parts]


@dataclass(frozen=True, eq=False)
class _Holder:
    """Key of a party, and how rows are packed into numbers under it."""

    owner: str
    private: Callable[[], PrivateKey]
    public: Callable[[], PublicKey]
    bits: int

    @property
    def words(self) -> int:
        """Words of an encrypted number."""
        return 2 * self.bits // 64

    @property
    def slots(self) -> int:
        """Numbers that are packed into one, of which at least 64 bits are left."""
        return (self.bits - 64) // (64 * SLOT_WORDS)

    def chunks(self, columns: int) -> int:
        """Return how many numbers a row takes."""
        return -(-columns // self.slots)

    def packed(self, rows: Words) -> list[int]:
        """Return the rows ``[n, b]`` as whole numbers: each sum of its numbers times a power of 2^192."""
        numbers = signed(rows)
        above, below = (np.zeros((*rows.shape, SLOT_WORDS), np.uint64) for _ in range(2))
        above[..., 0] = np.where(numbers < 0, 0, rows)
        below[..., 0] = np.where(numbers < 0, np.uint64(0) - rows, 0)
        return [one - other for one, other in zip(self.joined(above), self.joined(below), strict=True)]

    def joined(self, slots: Words) -> list[int]:
        """Return words ``[n, b, 3]`` as numbers, chunk by chunk of each row."""
        numbers = []
        for row in slots.astype("<u8"):
            numbers += [
                int.from_bytes(row[low : low + self.slots].tobytes(), "little")
                for low in range(0, len(row), self.slots)
            ]
        return numbers

    def noise(self, count: int, draw: Stream) -> Words:
        """Return uniform numbers modulo n, but for those with which a slot could overflow, in words ``[count, k]``."""
        used = 64 * SLOT_WORDS * self.slots
        limit = int(self.public().modulus >> used) << used
        numbers = [draw(self.bits + SPARE_BITS) % limit for _ in range(count)]
        noise = words(large_to_ints(numbers, self.bits // 64)).reshape(count, -1)
        highest = noise[:, SLOT_WORDS - 1 : used // 64 : SLOT_WORDS]
        np.minimum(highest, MAX_NOISE_WORD, out=highest)
        return noise

    def messages(self, noise: Words) -> list[int]:
        """Return noise as numbers that are added to packed ones, of which no slot becomes negative."""
        added = noise.copy()
        added[:, SLOT_WORDS - 1 : SLOT_WORDS * self.slots : SLOT_WORDS] += OFFSET
        return ints_to_large(signed(added).ravel(), self.bits // 64)

    def first_words(self, numbers: Words, columns: int) -> Words:
        """Return the numbers that were packed into those ``[n, k]``, one a chunk of a row: ``[n, b]`` modulo 2^64."""
        slots = numbers[:, : SLOT_WORDS * self.slots].reshape(-1, self.chunks(columns) * self.slots, SLOT_WORDS)
        return np.ascontiguousarray(slots[:, :columns, 0])
