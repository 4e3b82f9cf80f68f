r"""Groups of samples that are too few for a total to show, found without a count that anybody sees.

A cell is a set of samples that a sum singles out: those with one level of a column, or with a time between two bounds.
It is small if it has some samples of all peers, but fewer than the least number L; or if the others of a peer, which
can subtract what it added itself, have a single one:

.. math:: 1 \le \sum_k n_k < L \quad\text{or}\quad \sum_{k \ne i} n_k = 1

For each of these sums, two peers, the masker and the judge, add secret numbers a and b, so that the total y shows
nothing. The sum is small if b is among :math:`y - a - 1, \dots, y - a - (L - 1)`, which asks for common elements of two
sets, one the judge's and one the masker's: both hash their values to points of a curve, each multiplies both sets by a
secret scalar, and equal products stand for equal values (Meadows, IEEE S&P 1986; Huberman, Franklin and Hogg, EC 1999).
The masker shuffles the products within a group of cells, so the judge finds out how many small cells a group has, and
neither which they are nor how many samples they have. All others find out whether any judge found one.

This holds against peers that follow the protocol, read everything and do not collude: a masker and a judge together
know the sum that they hid, and a masker or judge that lies can hide a small cell, or claim one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import PrivacyError
from p2pfl.learning.additive import Question, Questions
from p2pfl.privacy.commutative_powers import POINT_LENGTH, hash_to_point, multiply
from p2pfl.privacy.keys import Source

Samples = TypeVar("Samples")
"""Samples of a peer, of whatever type counts them."""

Bools = npt.NDArray[np.bool_]

WORD_BITS = 52
WORDS = -(-8 * POINT_LENGTH // WORD_BITS)
"""Integers of a total that carry a point."""

FEWEST_PEERS = 3
"""Peers of which one can be left out while two others hide the sum."""

LEAST_OF_OTHERS = 2
"""Least number of samples in a cell of all peers but one, so that nobody is alone in what that one can subtract."""

MAX_LEAST = 1000
"""Largest least number; the work of a masker grows with it."""


@dataclass(frozen=True)
class Cells:
    """Public names of groups of cells, and the group of each cell.

    Parameters
    ----------
    groups
        Names of the G groups, for a sentence: ``column "icd"``.
    group
        Group of each of the C cells, ``[C]``, in ascending order.
    """

    groups: tuple[str, ...]
    group: Ints

    def __len__(self) -> int:
        return len(self.group)

    @property
    def starts(self) -> Ints:
        """First cell of each group and the number of cells, ``[G + 1]``."""
        return np.searchsorted(self.group, np.arange(len(self.groups) + 1))

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Self:
        """Return groups by name and number of cells.

        Examples
        --------
        >>> Cells.of({"sex": 2, "age": 1}).group.tolist()
        [0, 0, 1]
        """
        return cls(tuple(sizes), np.repeat(np.arange(len(sizes)), np.array([*sizes.values()], np.int64)))


@dataclass(frozen=True)
class CellCheck(Generic[Samples]):
    """Peers of a run that look for small cells before anything else leaves them.

    Parameters
    ----------
    own
        Function that returns the samples of a peer, with features in their own units.
    peers
        Names of all peers; only those that take part in the first total of the check count.
    least
        ``least(peer)`` returns the least number of samples that this peer wants in a cell; the largest counts, and all
        peers see all of them.
    source
        Source of secret numbers; ``None`` where one process knows the samples of all peers and hides nothing.
    """

    own: Callable[[str], Samples]
    peers: Sequence[str]
    least: Callable[[str], int]
    source: Source | None

    def agree(self) -> Questions[AgreedCheck[Samples]]:
        """Ask for the least number of all peers.

        Raises
        ------
        PrivacyError
            A least number is below one or above ``MAX_LEAST``.
        """
        names = tuple(sorted(self.peers))
        stated = yield Question(
            lambda peer: _in_slot(names.index(peer), [1 + self.least(peer)], len(names)), size=len(names)
        )
        present = {name: number - 1 for name, number in zip(names, stated.tolist(), strict=True) if number}
        for name, number in present.items():
            if not 1 <= number <= MAX_LEAST:
                raise PrivacyError(f"{name} asks for at least {number} people in a cell; choose 1 to {MAX_LEAST}")
        return AgreedCheck(self.own, tuple(present), max(present.values(), default=1), self.source)


@dataclass(frozen=True)
class AgreedCheck(Generic[Samples]):
    """Check of small cells under the least number of all peers.

    Parameters
    ----------
    own, source
        As of :class:`CellCheck`.
    peers
        Names of the peers that take part, in ascending order.
    least
        Least number of samples in a cell.
    """

    own: Callable[[str], Samples]
    peers: tuple[str, ...]
    least: int
    source: Source | None

    def find(
        self, cells: Cells, count: Callable[[Samples], Ints], *, nobody: Ints | None = None
    ) -> Questions[tuple[int, ...]]:
        """Ask for the totals that show which groups have a small cell, and return the numbers of these groups.

        Parameters
        ----------
        cells
            The C cells of the G groups.
        count
            Function that returns the number of samples in each cell, ``[C]``; private.
        nobody
            Numbers that the first peer adds for nobody, ``[C]``: with 1, a cell without samples is small, too.
        """

        @cache
        def counted(peer: str) -> Ints:
            numbers = _checked_counts(count(self.own(peer)), peer, len(cells))
            return numbers if nobody is None or peer != self.peers[0] else numbers + nobody

        if self.least == 1 or not len(cells):
            return ()
        if self.source is None:
            return (yield from _in_one_process(cells, counted, least=self.least, peers=len(self.peers)))
        if len(self.peers) < FEWEST_PEERS:
            return (yield from _two_peers(cells, counted, least=self.least, source=self.source))
        return (yield from _Check(cells, counted, self.peers, self.least, self.source).ask())

    def any_of(self, holds: Callable[[Samples], Bools], *, size: int) -> Questions[Bools]:
        """Return whether each of some facts holds at any peer, and nothing of how many peers, ``[size]``."""

        def answer(peer: str) -> Ints:
            facts = holds(self.own(peer)).tolist()
            return np.array(facts, np.int64) if self.source is None else _verdict(facts, peer, self.source)

        total = yield Question(answer, size=size)
        return np.asarray(total != 0)


def _in_one_process(
    cells: Cells, count: Callable[[str], Ints], *, least: int, peers: int
) -> Questions[tuple[int, ...]]:
    """Return the groups that the check between peers finds, from counts in the open."""
    if peers == 2:  # as _two_peers
        few = yield Question(lambda peer: _few(count(peer), least).astype(np.int64), size=len(cells))
        return _groups(cells, few > 0)
    total = yield Question(count, size=len(cells))
    alone = yield Question(lambda peer: (total - count(peer) == 1).astype(np.int64), size=len(cells))
    return _groups(cells, _few(total, least) | ((alone > 0) if peers > 1 else False))


def _few(counts: Ints, least: int) -> Bools:
    return np.asarray((counts > 0) & (counts < least))


def _groups(cells: Cells, small: Bools) -> tuple[int, ...]:
    return tuple(np.unique(cells.group[small]).tolist())


def _two_peers(cells: Cells, count: Callable[[str], Ints], *, least: int, source: Source) -> Questions[tuple[int, ...]]:
    """Return the groups with a small cell of one or two peers, which know whether their own samples are few."""

    def small(peer: str) -> Ints:
        few = _few(count(peer), least)
        return _verdict([bool(few[start:end].any()) for start, end in pairwise(cells.starts.tolist())], peer, source)

    total = yield Question(small, size=len(cells.groups))
    return tuple(np.flatnonzero(total).tolist())


@dataclass(frozen=True)
class _Test:
    """Test of the sums of all peers but one, or of all.

    Parameters
    ----------
    number
        Number of the test.
    left_out
        Peer whose samples the sums lack.
    masker, judge
        Peers that hide the sums and compare them.
    least
        Least number of samples in a cell.
    """

    number: int
    left_out: str | None
    masker: str
    judge: str
    least: int


class _Check:
    """Check of all cells: a test of the sums over all peers, and for each peer one of the sums over the others."""

    def __init__(
        self, cells: Cells, count: Callable[[str], Ints], peers: tuple[str, ...], least: int, source: Source
    ) -> None:
        self.cells, self.peers, self.source = cells, peers, source
        circle = peers + peers[:2]
        self.tests = [
            _Test(0, None, peers[0], peers[1], least),
            *(
                _Test(place + 1, peer, circle[place + 1], circle[place + 2], LEAST_OF_OTHERS)
                for place, peer in enumerate(peers)
            ),
        ]
        self.count = count
        self._drawn: dict[tuple[str, str], bytes] = {}

    def ask(self) -> Questions[tuple[int, ...]]:
        """Return the groups with a small cell."""
        sums = yield Question(self._masked_counts, size=len(self.tests) * len(self.cells))
        offers = self._blocks([len(self.cells)] * len(self.tests))
        offered = yield Question(lambda peer: self._offer(peer, offers), size=offers[-1].stop)
        answers = self._blocks([len(self.cells) * test.least for test in self.tests])
        hidden = sums.reshape(len(self.tests), -1)
        answered = yield Question(
            lambda peer: self._answer(peer, hidden, [offered[block] for block in offers], answers),
            size=answers[-1].stop,
        )
        verdict = yield Question(
            lambda peer: self._judge(peer, [answered[block] for block in answers]), size=len(self.cells.groups)
        )
        return tuple(np.flatnonzero(verdict).tolist())

    def _blocks(self, points: Sequence[int]) -> list[slice]:
        """Return where the points of each test are in a total."""
        ends = np.cumsum([0, *points]) * WORDS
        return [slice(start, end) for start, end in pairwise(ends.tolist())]

    def _masked_counts(self, peer: str) -> Ints:
        """Return the counts of a peer for all tests but that without it, and its secret numbers, ``[T C]``."""
        counts = np.tile(self.count(peer), (len(self.tests), 1))  # [T, C]
        for test in self.tests:
            if test.left_out == peer:
                counts[test.number] = 0
            if peer in {test.masker, test.judge}:
                counts[test.number] += self._numbers(peer, test)
        return counts.ravel()

    def _offer(self, peer: str, blocks: Sequence[slice]) -> Ints:
        """Return the products of the judge's values by its scalar."""
        words = np.zeros(blocks[-1].stop, np.int64)
        for test in self.tests:
            if test.judge == peer:
                values = enumerate(self._numbers(peer, test).tolist())
                points = [_hashed(test.number, cell, number) for cell, number in values]
                words[blocks[test.number]] = _words(multiply(self._scalar(peer, test), points))
        return words

    def _answer(self, peer: str, sums: Ints, offered: Sequence[Ints], blocks: Sequence[slice]) -> Ints:
        """Return products by the masker's scalar, shuffled in each group: of the offer, and of its own values."""
        words = np.zeros(blocks[-1].stop, np.int64)
        for test in self.tests:
            if test.masker == peer:
                words[blocks[test.number]] = _words(self._products(peer, test, sums[test.number], offered[test.number]))
        return words

    def _products(self, peer: str, test: _Test, sums: Ints, offered: Ints) -> list[bytes]:
        scalar = self._scalar(peer, test)
        twice = multiply(scalar, _points(offered, peer))
        rest = (sums - self._numbers(peer, test)).tolist()
        once = [
            multiply(scalar, [_hashed(test.number, cell, number - few) for few in range(1, test.least)])
            for cell, number in enumerate(rest)
        ]
        points = list[bytes]()
        for group, (start, end) in enumerate(pairwise(self.cells.starts.tolist())):
            points += self._shuffled(peer, f"{test.number}, offered {group}", twice[start:end])
            points += self._shuffled(
                peer, f"{test.number}, own {group}", [each for few in once[start:end] for each in few]
            )
        return points

    def _judge(self, peer: str, answered: Sequence[Ints]) -> Ints:
        """Return a positive number for each group in which both sets of a test have an element in common, ``[G]``."""
        small = [False] * len(self.cells.groups)
        for test in self.tests:
            if test.judge == peer:
                points = iter(_points(answered[test.number], peer))
                for group, (start, end) in enumerate(pairwise(self.cells.starts.tolist())):
                    twice = {next(points) for _ in range(end - start)}
                    once = [next(points) for _ in range((end - start) * (test.least - 1))]
                    small[group] |= not twice.isdisjoint(multiply(self._scalar(peer, test), once))
        return _verdict(small, peer, self.source)

    def _numbers(self, peer: str, test: _Test) -> Ints:
        """Return the secret numbers of a peer for a test, ``[C]``: large, and no sum of all peers overflows."""
        drawn = np.frombuffer(self._secret(peer, f"numbers {test.number}", 8 * len(self.cells)), np.uint64)
        return (drawn >> np.uint64(2 + len(self.peers).bit_length())).astype(np.int64)

    def _scalar(self, peer: str, test: _Test) -> bytes:
        return self._secret(peer, f"scalar {test.number}", POINT_LENGTH)

    def _shuffled(self, peer: str, what: str, points: Sequence[bytes]) -> list[bytes]:
        keys = np.frombuffer(self._secret(peer, f"order of {what}", 8 * len(points)), np.uint64)
        return [points[position] for position in np.argsort(keys)]

    def _secret(self, peer: str, what: str, size: int) -> bytes:
        """Return bytes that are drawn once, since a total may ask again for what a peer adds."""
        if (peer, what) not in self._drawn:
            self._drawn[peer, what] = self.source.bytes(size, purpose=f"small cells, {what}", peer=peer)
        return self._drawn[peer, what]


def _checked_counts(counts: Ints, peer: str, size: int) -> Ints:
    if counts.shape != (size,) or counts.min(initial=0) < 0:
        raise PrivacyError(f"the counts of {peer} are no {size} numbers of samples; return one for each cell")
    return counts.astype(np.int64)


def _hashed(test: int, cell: int, number: int) -> bytes:
    named = (each.to_bytes(8, "big", signed=True) for each in (test, cell, number))
    return hash_to_point(b"p2pfl small cells" + b"".join(named))


def _verdict(small: Sequence[bool], peer: str, source: Source) -> Ints:
    """Return a secret positive number for each group that is small, so that the sum does not count who says so."""
    drawn = np.frombuffer(source.bytes(8 * len(small), purpose="small cells, verdict", peer=peer), np.uint64)
    numbers = (drawn >> np.uint64(24)).astype(np.int64) + 1
    return np.where(np.array(small, dtype=bool), numbers, 0)


def _in_slot(slot: int, values: Sequence[int] | Ints, slots: int) -> Ints:
    """Return values in their slot, and zeros in the others, so that the total has what each peer publishes."""
    table = np.zeros((slots, len(values)), np.int64)
    table[slot] = values
    return table.ravel()


def _words(points: Sequence[bytes]) -> Ints:
    """Return points as integers that a total carries, ``[WORDS n]``."""
    mask = 2**WORD_BITS - 1
    numbers = (int.from_bytes(point, "little") for point in points)
    return np.array([number >> WORD_BITS * word & mask for number in numbers for word in range(WORDS)], np.int64)


def _points(words: Ints, peer: str) -> list[bytes]:
    """Return the points in integers of a total.

    Raises
    ------
    PrivacyError
        They are none, since somebody added what the protocol does not.
    """
    numbers = [
        sum(int(word) << WORD_BITS * place for place, word in enumerate(each)) for each in words.reshape(-1, WORDS)
    ]
    if not all(0 < number < 2 ** (8 * POINT_LENGTH) for number in numbers):
        raise PrivacyError(
            f"{peer} received no points in the check of small cells; a peer does not follow the protocol"
        )
    return [number.to_bytes(POINT_LENGTH, "little") for number in numbers]
