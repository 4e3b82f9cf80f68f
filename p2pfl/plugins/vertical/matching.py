"""Rows of several parties that belong to the same people, found from values of keys or their pseudonyms."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from p2pfl.core.encodings import Ints

ABSENT = -1
"""Position of a row that a party lacks."""


@dataclass(frozen=True, eq=False)
class Matches:
    """People of all parties.

    Parameters
    ----------
    rows
        For each of the people, the position of the row of each party, or :data:`ABSENT`, ``[P, N]``: first those of the
        first party in its order, then those of the second one that the first lacks, and so on.
    key
        Number of the key that found the last row of a person, ``[P]``; :data:`ABSENT` where a party lacks the person.
    """

    rows: Ints
    key: Ints

    @property
    def common(self) -> Ints:
        """Positions of the rows that all parties have, ``[M, N]``."""
        return np.asarray(self.rows[self.key != ABSENT])

    def by_key(self, keys: int) -> tuple[int, ...]:
        """Return how many people each of the keys has found in all tables."""
        return tuple(np.bincount(self.key[self.key != ABSENT], minlength=keys).tolist())


def match_rows(tokens: Sequence[Sequence[Sequence[Hashable | None]]]) -> Matches:
    """Return which rows of N parties belong to the same people: each row of a party to one row of another at most.

    Keys are tried in order. Rows with equal values belong together, unless that would give a person two rows of one
    party. Once all parties have a person, the person's rows take no part in later keys.

    Parameters
    ----------
    tokens
        ``tokens[party][key][row]``: what stands for a value, ``None`` for no value. A value that a party repeats is
        none.

    Examples
    --------
    >>> ada, bob = [["17", None], ["zoe", "bo"]], [[None, "17", None], ["bo", "zo", "cy"]]
    >>> matches = match_rows([ada, bob])
    >>> matches.common.tolist(), matches.by_key(2), matches.rows.tolist()
    ([[0, 1], [1, 0]], (1, 1), [[0, 1], [1, 0], [-1, 2]])
    """
    people = _People([len(party[0]) for party in tokens])
    for key in range(len(tokens[0])):
        for group in _groups([party[key] for party in tokens], people):
            first = group[0]
            for other in group[1:]:
                people.join(first, other, key)
    return people.matches()


def _groups(values: Sequence[Sequence[Hashable | None]], people: _People) -> list[list[tuple[int, int]]]:
    """Return the rows of different parties with equal values of a key, except those of people that all parties have."""
    rows: dict[Hashable, list[tuple[int, int]]] = {}
    for party, column in enumerate(values):
        for row, value in enumerate(column):
            if value is not None and not people.is_complete(party, row):
                rows.setdefault(value, []).append((party, row))
    return [group for group in rows.values() if 1 < len(group) == len({party for party, _ in group})]


class _People:
    """People who are known so far, each with a row of some parties."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._count = len(sizes)
        starts = accumulate(sizes, initial=0)
        self._person = [[*range(start, start + size)] for start, size in zip(starts, sizes, strict=False)]
        self._rows: dict[int, dict[int, int]] = {}  # of people with several rows: by party
        self._key: dict[int, int] = {}

    def is_complete(self, party: int, row: int) -> bool:
        """Return whether all parties have the person of a row."""
        return self._person[party][row] in self._key

    def join(self, one: tuple[int, int], other: tuple[int, int], key: int) -> None:
        """Make two rows those of one person, unless a party would have two rows of them."""
        kept, gone = (self._person[party][row] for party, row in (one, other))
        rows, moved = self._rows.get(kept, dict([one])), self._rows.get(gone, dict([other]))
        if kept == gone or rows.keys() & moved.keys():
            return
        rows.update(moved)
        self._rows[kept] = rows
        self._rows.pop(gone, None)
        for party, row in moved.items():
            self._person[party][row] = kept
        if len(rows) == self._count:
            self._key[kept] = key

    def matches(self) -> Matches:
        """Return everybody."""
        numbers = {person: number for number, person in enumerate(dict.fromkeys(chain(*self._person)))}
        rows = np.full((len(numbers), self._count), ABSENT)
        key = np.full(len(numbers), ABSENT)
        for party, people in enumerate(self._person):
            rows[[numbers[person] for person in people], party] = np.arange(len(people))
        key[[numbers[person] for person in self._key]] = [*self._key.values()]
        return Matches(rows, key)
