r"""Products of columns of two parties, hidden by random numbers that a third peer deals.

The left party holds X ``[n, a]``, the right one Y ``[n, b]``, and the dealer D has drawn a key with each:

.. math:: &D, L: \; R, S_L = \mathrm{PRG}(K_L) \qquad D, R: \; Q = \mathrm{PRG}(K_R) \\
          &L \to R: \; E = X + R \qquad R \to L: \; F = Y + Q \qquad D \to R: \; S_R = R^T Q - S_L \\
          &z_L = S_L - R^T F \qquad z_R = E^T Y + S_R \qquad z_L + z_R = X^T Y \pmod{2^{64}}

Shares z are kept, or opened to one peer. A mask R or Q hides one matrix from one receiver; E is sent once and serves
many Y, and S is fresh for each product.
The element by element product of a column y with X is the same with :math:`S_R = R \odot q - S_L`.

Each view depends on the viewer's own input and output alone, if the dealer conspires with neither. A column of ones
beside X makes the last row of the shares the sums of Y, which the right party subtracts: what is opened there is zero,
unless the dealer or the network made a mistake.

References
----------
Beaver, Efficient multiparty protocols using circuit randomization, 1991; Du and Zhan, Building decision tree classifier
on private data, 2002.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from typing import NamedTuple

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import PrivacyError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.private_messages import PrivateMessage, collect, send
from p2pfl.plugins.vertical.ring import Words, keystream, multiply, signed, words
from p2pfl.privacy.keys import KEY_BYTES, Source


@dataclass(frozen=True, eq=False)
class Matrix:
    """Private whole numbers of one party, one row for each common row.

    Parameters
    ----------
    owner, columns
        Name of the party, and number of columns a.
    entries
        Function that returns the numbers ``[n, a]``, called at the owner alone; the same however often it is called.
    number
        Number among the matrices of a fit, which names its random numbers.
    """

    owner: str
    columns: int
    entries: Callable[[], Words]
    number: int


@dataclass(frozen=True, eq=False)
class SharedMatrix:
    """Matrix that is the sum of shares of some peers.

    Parameters
    ----------
    shape
        ``[a, b]``.
    at
        Function of each holder that returns its share, called there alone.
    """

    shape: tuple[int, int]
    at: Mapping[str, Callable[[], Words]]

    def __add__(self, other: SharedMatrix) -> SharedMatrix:
        """Return the sum of two matrices of equal shape."""
        at = dict(self.at)
        for peer, share in other.at.items():
            mine = at.get(peer)
            at[peer] = share if mine is None else _added(mine, share)
        return SharedMatrix(self.shape, at)

    def part(self, rows: slice, columns: slice) -> SharedMatrix:
        """Return some rows and columns."""
        shape = len(range(self.shape[0])[rows]), len(range(self.shape[1])[columns])
        return SharedMatrix(shape, {peer: _cut(share, rows, columns) for peer, share in self.at.items()})


def _added(one: Callable[[], Words], other: Callable[[], Words]) -> Callable[[], Words]:
    return lambda: one() + other()


def _cut(share: Callable[[], Words], rows: slice, columns: slice) -> Callable[[], Words]:
    return lambda: share()[rows, columns]


class Factors(NamedTuple):
    """Factors of a product.

    Attributes
    ----------
    left, right
        X and Y.
    elementwise
        True for the products of each column of X with the one column of Y, row by row.
    """

    left: Matrix
    right: Matrix
    elementwise: bool = False


class DealtProduct(NamedTuple):
    """Product in shares.

    Attributes
    ----------
    product
        ``[a, b]``; ``[n, a]`` if element by element.
    check
        Numbers ``[1, b]`` that are zero unless the dealer or the network made a mistake; ``None`` if there are none.
    """

    product: SharedMatrix
    check: SharedMatrix | None


@dataclass(eq=False)
class Products:
    """Products of one fit, with the keys that are drawn for it alone and the matrices that it has sent.

    Parameters
    ----------
    roles
        Roles, from which the dealer of each product follows.
    source
        Source of secret bytes.
    rows
        n, number of common rows.
    purpose
        Name of the fit, if a round has several.
    """

    roles: PartyRoles
    source: Source
    rows: int
    purpose: str = "vertical products"
    _numbers: count[int] = field(default_factory=count, init=False, repr=False)
    _keys: dict[tuple[str, str], Callable[[str], bytes]] = field(default_factory=dict, init=False, repr=False)
    _sent: dict[tuple[int, str], PrivateMessage] = field(default_factory=dict, init=False, repr=False)

    def matrix(self, owner: str, columns: int, entries: Callable[[], Words]) -> Matrix:
        """Return a matrix of a party."""
        return Matrix(owner, columns, entries, next(self._numbers))

    def held(self, owner: str, shape: tuple[int, int], entries: Callable[[], Words]) -> SharedMatrix:
        """Return a matrix that one party holds in clear, to be added to shares."""
        return SharedMatrix(shape, {owner: cache(entries)})

    def multiply(self, factors: Sequence[Factors]) -> Questions[list[DealtProduct]]:
        """Ask for some products of a left party with a right one, in shares: three messages at most.

        Parameters
        ----------
        factors
            Factors, all of the same two parties in the same order.
        """
        left, right = factors[0].left.owner, factors[0].right.owner
        dealer = self.roles.dealer(left, right)
        key_left = yield from self._key(dealer, left)
        key_right = yield from self._key(dealer, right)
        yield from self._send_left([each.left for each in factors], right, key_left)
        deals = [_Deal(each, next(self._numbers), self.rows, key_left, key_right, dealer) for each in factors]
        hidden = {}
        for deal in {deal.factors.right.number: deal for deal in deals}.values():
            matrix = deal.factors.right
            hidden[matrix.number] = yield from send(deal.hidden, size=self.rows * matrix.columns, sender=right, to=left)
        dealt = yield from send(
            lambda: _joined([deal.dealt() for deal in deals]),
            size=sum(deal.size for deal in deals),
            sender=dealer,
            to=right,
        )
        ends = np.cumsum([deal.size for deal in deals]).tolist()
        return [
            deal.shares(
                self._sent[deal.factors.left.number, right],
                hidden[deal.factors.right.number],
                partial(_piece, dealt, right, slice(end - deal.size, end)),
            )
            for deal, end in zip(deals, ends, strict=True)
        ]

    def open(
        self, products: Sequence[SharedMatrix], *, to: str, checks: Sequence[SharedMatrix | None] = ()
    ) -> Questions[Callable[[], list[Ints]]]:
        """Open sums of shares to one peer, and return the function by which it reads them, each ``[a, b]``.

        Parameters
        ----------
        products
            Matrices in shares.
        to
            The peer.
        checks
            Matrices that must be zero.

        Raises
        ------
        PrivacyError
            One is not; raised where it is read.
        """
        zeros = [check for check in checks if check is not None]
        opened = [*products, *zeros]
        among = tuple(sorted({peer for each in opened for peer in each.at}))
        shapes, kept = [each.shape for each in opened], len(products)
        sizes = [rows * columns for rows, columns in shapes]

        def answer(peer: str) -> Ints:
            return _joined([each.at[peer]() if peer in each.at else np.zeros(each.shape, np.uint64) for each in opened])

        message = yield from collect(answer, size=sum(sizes), to=to, among=among)

        def read() -> list[Ints]:
            pieces = np.split(message.read(to), np.cumsum(sizes)[:-1])
            matrices = [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
            if any(each.any() for each in matrices[kept:]):
                raise PrivacyError(
                    "the dealt random numbers do not fit each other, so this fit is worthless; start the run again, "
                    "and choose another data.options.helper if it happens twice"
                )
            return matrices[:kept]

        return read

    def _key(self, dealer: str, party: str) -> Questions[Callable[[str], bytes]]:
        """Return the key that a dealer and a party draw together before its first use."""
        if (dealer, party) not in self._keys:
            read = yield from self._send_secret(dealer, party)
            back = yield from self._send_secret(party, dealer)  # a dealer that repeats its key repeats no mask
            self._keys[dealer, party] = cache(lambda peer: hashlib.sha256(read(peer) + back(peer)).digest())
        return self._keys[dealer, party]

    def _send_secret(self, sender: str, to: str) -> Questions[Callable[[str], bytes]]:
        """Send secret bytes, and return the function by which both peers read them."""
        drawn = cache(lambda: self.source.bytes(KEY_BYTES, purpose=f"{self.purpose} for {to}", peer=sender))
        message = yield from send(
            lambda: np.frombuffer(drawn(), "<i8").astype(np.int64), size=KEY_BYTES // 8, sender=sender, to=to
        )
        return lambda peer: drawn() if peer == sender else message.read(peer).astype("<i8").tobytes()

    def _send_left(self, matrices: Sequence[Matrix], to: str, key: Callable[[str], bytes]) -> Questions[None]:
        """Send masked matrices that a party has not yet received."""
        unique = {each.number: each for each in matrices if (each.number, to) not in self._sent}
        for number, matrix in unique.items():
            self._sent[number, to] = yield from send(
                partial(_masked, matrix, to, key, self.rows),
                size=self.rows * (matrix.columns + 1),
                sender=matrix.owner,
                to=to,
            )


@dataclass(frozen=True, eq=False)
class _Deal:
    """One product of two parties and a dealer."""

    factors: Factors
    number: int
    rows: int
    key_left: Callable[[str], bytes]
    key_right: Callable[[str], bytes]
    dealer: str

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the shares, without the row or column of ones."""
        left, right = self.factors.left, self.factors.right
        return (self.rows, left.columns) if self.factors.elementwise else (left.columns, right.columns)

    @property
    def size(self) -> int:
        """Number of integers that the dealer sends."""
        return self.shape[0] * self.shape[1] + (0 if self.factors.elementwise else self.shape[1])

    def _left_mask(self, peer: str) -> Words:
        """Return R, with a column for the ones."""
        return _mask_of(self.key_left(peer), self.factors.left, self.factors.right.owner, self.rows)

    def _left_share(self, peer: str) -> Words:
        """Return S of the left party."""
        extra = 0 if self.factors.elementwise else 1
        return keystream(self.key_left(peer), f"share {self.number}", (self.shape[0] + extra, self.shape[1]))

    def _right_mask(self, peer: str) -> Words:
        """Return Q, which hides one matrix from one receiver."""
        purpose = f"right {self.factors.right.number} for {self.factors.left.owner}"
        return keystream(self.key_right(peer), purpose, (self.rows, self.factors.right.columns))

    def _times(self, left: Words, right: Words) -> Words:
        """Return the product, of the kind that is asked for."""
        return left[:, :-1] * right if self.factors.elementwise else multiply(left, right)

    def hidden(self) -> Ints:
        """Return F, which the right party sends."""
        return _joined([self.factors.right.entries() + self._right_mask(self.factors.right.owner)])

    def dealt(self) -> Words:
        """Return S of the right party, which the dealer sends."""
        product = self._times(self._left_mask(self.dealer), self._right_mask(self.dealer))
        return product - self._left_share(self.dealer)

    def shares(self, sent: PrivateMessage, hidden: PrivateMessage, dealt: Callable[[], Ints]) -> DealtProduct:
        """Return the shares of both parties from E, F and S of the right party."""
        left, right = self.factors.left.owner, self.factors.right.owner
        columns = self.factors.right.columns

        @cache
        def at_left() -> Words:
            masked = words(hidden.read(left)).reshape(self.rows, columns)
            return self._left_share(left) - self._times(self._left_mask(left), masked)

        @cache
        def at_right() -> Words:
            masked = words(sent.read(right)).reshape(self.rows, -1)
            return self._times(masked, self.factors.right.entries()) + words(dealt()).reshape(-1, self.shape[1])

        at = {left: at_left, right: at_right}
        if self.factors.elementwise:
            return DealtProduct(SharedMatrix(self.shape, at), None)
        rows, every = self.shape[0], slice(None)
        whole = SharedMatrix((rows + 1, columns), at)
        sums = SharedMatrix((1, columns), {right: lambda: -self.factors.right.entries().sum(axis=0, keepdims=True)})
        return DealtProduct(whole.part(slice(rows), every), whole.part(slice(rows, None), every) + sums)


def _mask_of(key: bytes, matrix: Matrix, receiver: str, rows: int) -> Words:
    """Return R of a left factor, which is another one for each receiver, with a column for the ones."""
    return keystream(key, f"left {matrix.number} for {receiver}", (rows, matrix.columns + 1))


def _masked(matrix: Matrix, receiver: str, key: Callable[[str], bytes], rows: int) -> Ints:
    """Return E, which the left party sends, with the masked column of ones."""
    masked = _mask_of(key(matrix.owner), matrix, receiver, rows)
    masked[:, :-1] += matrix.entries()
    masked[:, -1] += np.uint64(1)
    return _joined([masked])


def _piece(message: PrivateMessage, peer: str, where: slice) -> Ints:
    return message.read(peer)[where]


def _joined(pieces: Sequence[Words]) -> Ints:
    """Return words as the integers of one message."""
    return signed(np.concatenate([piece.ravel() for piece in pieces]))
