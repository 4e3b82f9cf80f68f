"""Rows of a table now and in earlier runs, in one numbering: who is still there, although cells were rewritten.

Totals of two runs can be subtracted in the columns that both used. So a row counts as still there if it has the same
cells in the columns of the earlier run, or in those that both runs used. That alone would let rewritten cells hide
somebody who was withdrawn: the totals over all other columns show them. So the rows that are left are linked again, by
the key column, without each single column, and without all columns in which many cells are gone. A choice of columns
counts if it tells most people apart, or if most rows were rewritten. Then no column may be left, and the rows are
linked by their order, which compares their number.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Ints
from p2pfl.experiment.account_entries import RunEntry
from p2pfl.results.spending.people import Cells, KnownRows, People, counted, row_texts, unpacked

Bools = npt.NDArray[np.bool_]


class KnownPart(NamedTuple):
    """People of a part of an earlier run, ``[K]``, by the same cells, and with linked rows."""

    name: str
    same: Bools
    linked: Bools


class _RunLinks(NamedTuple):
    """Places of the rows of a run in the common numbering, by the same cells, and with linked rows."""

    header: tuple[str, ...]
    used: Ints
    same: Ints
    linked: Ints


class RowComparison:
    """Rows of a table now and in earlier runs.

    Parameters
    ----------
    people
        Rows of the table now.
    header
        Columns by which the run tells rows apart.
    key
        Key of the account.
    known
        Rows that the account has.
    key_column
        Column that names people; empty if there is none.
    least
        Least number of people that two runs may differ in.
    one_table
        True if all runs used this table, so that rows of which none is left were rewritten; else they are of another.
    """

    def __init__(
        self,
        people: People,
        header: tuple[str, ...],
        key: bytes,
        known: KnownRows,
        *,
        key_column: str = "",
        least: int,
        one_table: bool = True,
    ) -> None:
        self.people, self.header, self.key_column, self.least = people, header, key_column, least
        self._one_table = one_table
        self._key, self._known, self._gone = key, known, dict[tuple[str, ...], int]()
        self._columns: dict[str, Cells] = {}
        self._links: list[_RunLinks] = []
        self._count = len(people.cells)
        for each in known.headers:
            self._gone[each] = self._count
            self._count += len(known.numbers(each))

    def own(self, rows: Ints) -> Bools:
        """Return the people of a part of this run, ``[K]``: the rows of the table, then those that have gone."""
        chosen = np.zeros(self._count, bool)
        chosen[rows] = True
        return chosen

    def known(self, runs: Sequence[RunEntry]) -> list[list[KnownPart]]:
        """Return the people of each part of some earlier runs."""
        for run in sorted(runs, key=lambda run: -len(_used(run))):
            self._link(run)
        return [self._parts(run) for run in runs]

    def _parts(self, run: RunEntry) -> list[KnownPart]:
        links = self._links_of(run)
        assert links is not None  # noqa: S101 (all runs are linked)
        parts = list[KnownPart]()
        for name, text in run.parts.items():
            rows = np.searchsorted(links.used, unpacked(text))
            parts.append(KnownPart(name, self.own(links.same[rows]), self.own(links.linked[rows])))
        return parts

    def _links_of(self, run: RunEntry) -> _RunLinks | None:
        """Return the links of a run with all rows of another one: rows that one run has are people of their own."""
        every = (each for each in self._links if each.header == run.header)
        return next((each for each in every if np.isin(_used(run), each.used).all()), None)

    def _link(self, run: RunEntry) -> None:
        """Find the places of the rows of a run in the common numbering."""
        if self._links_of(run) is not None:
            return
        header, used = run.header, _used(run)
        kept = [number for number, name in enumerate(header) if name in self.people.columns]
        names = [header[number] for number in kept]
        now = np.stack([self._now(name) for name in names], axis=1) if names else np.empty((len(self.people.cells), 0))
        old, every = self._known.cells(header)[used][:, kept], [*range(len(names))]
        links = _Links(old, now.astype(np.uint32), one_table=self._one_table)
        times = [time for _, time in self._known.numbers(header)]
        links.link(every, times=[times[number] for number in used.tolist()])
        links.link(every)
        links.link_if_telling([number for number in every if names[number] in self.header])
        gone = self._gone.get(header, 0) + used
        same = np.where(links.left, gone, links.partners)
        links.link_if_telling([number for number in every if names[number] == self.key_column])
        for left_out in every if links.left.any() else ():
            links.link_if_telling([number for number in every if number != left_out])
        links.link_if_telling([number for number in every if 2 * links.gone(number) < self.least], empty=True)
        self._links.append(_RunLinks(header, used, same, np.where(links.left, gone, links.partners)))

    def _now(self, name: str) -> Cells:
        """Return the digests of a column of the table now, ``[n]``."""
        if name not in self._columns:
            self._columns[name] = self.people.digests(self._key, [name])[:, 0]
        return self._columns[name]


class _Links:
    """Pairs of rows of an earlier run and of the table now; each row is in one pair at most.

    Parameters
    ----------
    old, now
        Digests of their cells in the same columns, ``[n, C]`` and ``[m, C]``.
    one_table
        Whether they are of one table.
    """

    def __init__(self, old: Cells, now: Cells, *, one_table: bool) -> None:
        self.old, self.now, self.one_table = old, now, one_table
        self.partners = np.full(len(old), -1, np.int64)
        self._free = np.ones(len(now), bool)
        self._exact = 0

    @property
    def left(self) -> Bools:
        """True for each row of the earlier run without a partner, ``[n]``."""
        return np.asarray(self.partners < 0)

    def link(self, columns: Sequence[int], *, times: Sequence[int] | None = None) -> None:
        """Link rows that are left and have the same cells in some columns, in their order.

        Parameters
        ----------
        columns
            Numbers of the columns.
        times
            How often the same row came before each row of the earlier run, which must be alike as well.
        """
        left, free = np.flatnonzero(self.left), np.flatnonzero(self._free)
        waiting = defaultdict[object, deque[int]](deque)
        now = row_texts(self.now[free][:, columns])
        for row, text in zip(free.tolist(), now if times is None else counted(now), strict=True):
            waiting[text].append(row)
        old = row_texts(self.old[left][:, columns])
        for number, text in zip(left.tolist(), old if times is None else zip(old, times, strict=True), strict=True):
            if waiting[text]:
                self.partners[number] = waiting[text].popleft()
        self._free[self.partners[~self.left]] = False
        if len(columns) == self.old.shape[1]:
            self._exact = int((~self.left).sum())

    def link_if_telling(self, columns: Sequence[int], *, empty: bool = False) -> None:
        """Link the rest by some columns that tell most people apart, or by any if most rows were rewritten."""
        if (columns or empty) and self.left.any():
            different = len(set(row_texts(self.old[:, columns])))
            rewritten = self.one_table and 2 * self._exact < len(self.old)
            if 2 * different >= len(self.old) or rewritten:
                self.link(columns)

    def gone(self, column: int) -> int:
        """Return how many cells of a column no row that is free has any more, of the rows that are left."""
        old = Counter(self.old[self.left, column].tolist())
        return (old - Counter(self.now[self._free, column].tolist())).total()


def _used(run: RunEntry) -> Ints:
    """Return the numbers of all rows of a run."""
    return np.unique(np.concatenate([*map(unpacked, run.parts.values()), np.empty(0, np.int64)]))
