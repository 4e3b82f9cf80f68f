"""Sets of samples that the columns of a design single out, and levels that are merged because few samples have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, product
from typing import Self

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Field, FloatArray, feature_names
from p2pfl.learning.exact_model import Asked, Own, Owns, Part
from p2pfl.learning.small_cells import AgreedCheck, Bools, CellCheck, Cells
from p2pfl.plugins.exact.columns import located

PAIRS = tuple(combinations(np.arange(-1.0, 10.0).tolist(), 2))
"""Codes of two values in a column of numbers, of which each follows from the sum over the other."""

LEFT_OUT = -1
"""Position of a feature that is left out, as few samples have one of its values."""

CLOSE = 1e-5
"""Distance, as a share, within which a feature that was scaled and scaled back has a value."""


@dataclass(frozen=True)
class Singled:
    """Samples that a sum over a feature singles out.

    Parameters
    ----------
    name
        Name in a sentence.
    places
        Positions of the feature, or of the levels that are merged.
    value
        Value of the feature; any but zero if ``None``.
    also
        Sets that they are in as well.
    """

    name: str
    places: tuple[int, ...]
    value: float | None
    also: tuple[Singled, ...] = ()

    def among(self, features: FloatArray) -> Bools:
        """Return which samples these are, ``[n]``."""
        chosen = features[:, self.places].sum(axis=1)
        wanted = 0.0 if self.value is None else self.value
        close = np.abs(chosen - wanted) <= CLOSE * max(1.0, abs(wanted))
        there = ~close if self.value is None else close
        return np.asarray(np.logical_and.reduce([there, *(each.among(features) for each in self.also)]))


@dataclass(frozen=True, eq=False)
class Design:
    """Columns of a design, with the levels that are merged.

    Parameters
    ----------
    columns
        Columns of the table with their places among the features.
    levels
        Position of the feature that each feature is merged into; its own if it is not merged, ``LEFT_OUT`` if no sum is
        taken over it, ``[F]``.
    names
        Names of the features.
    pairs
        Columns of numbers that have two values, by position.
    others
        Whether sums over other numbers single out the samples in which they are not zero.
    """

    columns: tuple[tuple[Field, slice], ...]
    levels: Ints
    names: tuple[str, ...]
    pairs: dict[int, tuple[float, float]] = field(default_factory=dict)
    others: bool = True

    @classmethod
    def of(
        cls, features: int, fields: Sequence[Field] | None, *, kept: Ints | None = None, others: bool = True
    ) -> Self:
        """Return the design of some columns, of which none is merged.

        Parameters
        ----------
        features, fields
            Number of features, and columns of the table that they come from.
        kept
            Positions of the features that have coefficients; all if ``None``.
        others
            As of the class.
        """
        chosen = {*range(features)} if kept is None else {*kept.tolist()}
        columns = tuple(each for each in located(features, fields) if each[1].start in chosen)
        return cls(columns, np.arange(features), tuple(feature_names(features, fields)), others=others)

    def merging(self, levels: Floats | Ints) -> Self:
        """Return the design with levels that are merged, as a tensor of a model has them."""
        return replace(self, levels=levels.astype(np.int64))

    def find_pairs(
        self, check: AgreedCheck[Own], parts: Callable[[Own], Sequence[Part]] = lambda own: (own.train, own.validation)
    ) -> Asked[Design]:
        """Ask which columns of numbers have no values but two, and return the design that knows them."""
        places = [where.start for column, where in self.columns if column.levels is None]
        if not places:
            return self

        def other_values(own: Own) -> Bools:
            features = np.concatenate([part.features[:, places] for part in parts(own)])
            near = [
                (np.abs(features - low) <= CLOSE) | (np.abs(features - high) <= CLOSE) | np.isnan(features)
                for low, high in PAIRS
            ]
            return ~np.stack(near).all(axis=1).ravel()

        others = (yield from check.any_of(other_values, size=len(PAIRS) * len(places))).reshape(len(PAIRS), -1)
        codes = {place: np.flatnonzero(~other) for place, other in zip(places, others.T, strict=True)}
        return replace(self, pairs={place: PAIRS[code[0]] for place, code in codes.items() if len(code)})

    @property
    def sets(self) -> list[Singled]:
        """Sets of samples that sums over the features single out."""
        singled, crossed = list[Singled](), self._crossed()
        for column, where in self.columns:
            if (self.levels[where] == LEFT_OUT).all():
                continue
            if column.levels is not None:
                places = np.arange(where.start, where.stop)
                for place in np.unique(self.levels[where]).tolist():
                    merged = tuple(places[self.levels[where] == place].tolist())
                    singled.append(Singled(self.label(place), merged, 1.0))
            elif where.start in self.pairs:
                singled += [Singled(column.name, (where.start,), value) for value in self.pairs[where.start]]
            elif self.others:
                singled.append(Singled(column.name, (where.start,), None))
            singled += crossed.get(column.name, [])
        return singled

    def _crossed(self) -> dict[str, list[Singled]]:
        """Return, by the first column of each interaction, the sets that its parts make together.

        The column of an interaction and those of its parts single out whoever has one part without another.
        """
        by_column, known = dict[str, list[Singled]](), set[tuple[str, ...]]()
        parts = self._values() if self.others else {}
        for column, _ in self.columns:
            crossed = [parts[name] for name in column.name.split(":") if name in parts]
            names = tuple(each[0].name for each in crossed)
            if column.levels is None and len(crossed) == column.name.count(":") + 1 > 1 and names not in known:
                known.add(names)
                name = ":".join(names)
                by_column[column.name] = [
                    Singled(name, first.places, first.value, tuple(rest)) for first, *rest in product(*crossed)
                ]
        return by_column

    def _values(self) -> dict[str, list[Singled]]:
        """Return, by the name of each feature, sets by the value of its column."""
        by_column = dict[str, list[Singled]]()
        for column, where in self.columns:
            places = range(where.start, where.stop)
            if column.levels is not None:
                values = [Singled(column.name, (place,), 1.0) for place in places]
            else:
                codes = self.pairs.get(where.start, (None,))
                values = [Singled(column.name, (where.start,), code) for code in codes]
            by_column |= {self.names[place]: values for place in places}
        return by_column

    def label(self, place: int) -> str:
        """Return the name of a feature with the levels that are merged into it.

        Examples
        --------
        >>> design = Design.of(3, [Field("icd", ("A", "B", "C"))]).merging(np.array([0.0, 1.0, 1.0]))
        >>> [singled.name for singled in design.sets]
        ['icd=A', 'icd=B+C']
        """
        others = [self.names[other].partition("=")[2] for other in np.flatnonzero(self.levels == place).tolist()]
        return "+".join([self.names[place], *others[1:]])

    def merged(self, small: Sequence[str], *, least: int, drops: bool = False) -> Design:
        """Return the design in which levels with few samples are merged.

        Those of a column become one; a single one is merged with the next level, and the last with the one before it.

        Parameters
        ----------
        small
            Names of sets with few samples.
        least
            Least number of samples.
        drops
            Whether other columns are left out: of numbers, or of one level.

        Raises
        ------
        DataError
            Another column has few samples of a value, and must not be left out.
        """
        levels, left = self.levels.copy(), {*small}
        for column, where in self.columns:
            places = [] if column.levels is None else np.unique(levels[where]).tolist()
            rare = [place for place in places if self.label(place) in small]
            if drops and (column.name in small or (rare and len(places) == 1)):
                levels[where] = LEFT_OUT
                left -= {column.name, *map(self.label, rare)}
            if not rare or len(places) == 1:
                continue
            left -= {self.label(place) for place in rare}
            if len(rare) == 1:
                number = places.index(rare[0])
                rare.append(places[number + 1] if number + 1 < len(places) else places[number - 1])
            levels[np.isin(levels, rare)] = min(rare)
        if left:
            raise few_samples([name for name in small if name in left], least=least, merge=False)
        return replace(self, levels=levels)

    def part(self, part: Part) -> Part:
        """Return samples whose merged levels are one feature, and zero in the others; kept with the samples."""
        kept: tuple[Ints, Part] | None = part.kept.get("merged levels")
        if kept is None or not np.array_equal(kept[0], self.levels):
            kept = part.kept["merged levels"] = self.levels, Part(self.joined(part.features), part.targets)
        return kept[1]

    def joined(self, features: FloatArray) -> FloatArray:
        """Return features ``[n, F]`` whose merged levels are one, and zero in the others, as are those left out."""
        summed, kept = np.zeros_like(features), np.flatnonzero(self.levels != LEFT_OUT)
        np.add.at(summed.T, self.levels[kept], features.T[kept])
        return summed

    def own(self, own: Owns) -> Owns:
        """Return the samples of a peer with merged levels."""
        if (self.levels == np.arange(len(self.levels))).all():
            return own

        def merged(peer: str) -> Own:
            each = own(peer)
            return Own(self.part(each.train), self.part(each.validation), each.test)

        return cache(merged)


def few_samples(names: Sequence[str], *, least: int, merge: bool = True) -> DataError:
    """Return the error of sets that have few samples; ``merge`` if an option of the model merges levels."""
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    merging = 'set model.options.merge = "rare", ' if merge else ""
    return DataError(
        f"fewer than {least} people share a value of {listed}, alone or with one outcome, so totals would show single "
        f"people; {merging}merge levels or classes in the data, or leave the column out"
    )


@dataclass(frozen=True, eq=False)
class OutcomeCells:
    """Cells of the sets of a design by outcome, and of the outcomes themselves.

    Parameters
    ----------
    design
        Columns.
    outcomes
        Names of the outcomes; one without a name where the target is a number.
    """

    design: Design
    outcomes: Sequence[str]

    @property
    def cells(self) -> Cells:
        """Groups by name: of each outcome one cell, of each column or level one by outcome."""
        sizes = dict.fromkeys(self.outcomes, 1) if len(self.outcomes) > 1 else {}
        for each in self.design.sets:
            sizes[each.name] = sizes.get(each.name, 0) + len(self.outcomes)
        return Cells.of(sizes)

    def count(self, part: Part, outcome: Ints, weights: Ints | None = None) -> Ints:
        """Return the number of samples in each cell.

        Parameters
        ----------
        part
            Samples with features in their own units.
        outcome
            Outcome of each, ``[n]``.
        weights
            How many people each of them stands for; one if ``None``.
        """

        def by_outcome(chosen: Bools | slice) -> Ints:
            given = None if weights is None else weights[chosen]
            return np.bincount(outcome[chosen], given, minlength=len(self.outcomes)).astype(np.int64)

        own = [by_outcome(slice(None))] if len(self.outcomes) > 1 else []
        return np.concatenate([*own, *(by_outcome(each.among(part.features)) for each in self.design.sets)])


def check_columns(check: CellCheck[Own], *, features: int, fields: Sequence[Field] | None) -> Asked[None]:
    """Refuse columns of which few samples have a value, for a model that does not merge levels.

    Parameters
    ----------
    check
        Check of small cells.
    features, fields
        Number of features, and columns of the table that they come from.

    Raises
    ------
    DataError
        Few samples have a value.
    """
    agreed = yield from check.agree()
    if agreed.least == 1:
        return
    design = yield from Design.of(features, fields).find_pairs(agreed)
    yield from check_design(
        design,
        agreed,
        outcomes=("",),
        count=lambda cells, own: cells.count(own.train, np.zeros(len(own.train), np.int64)),
        merges=False,
        mergeable=False,
    )


def check_design(
    design: Design,
    check: AgreedCheck[Own],
    *,
    outcomes: Sequence[str],
    count: Callable[[OutcomeCells, Own], Ints],
    merges: bool,
    mergeable: bool = True,
    drops: bool = False,
    parts: int = 1,
) -> Asked[Design]:
    """Ask whether a design singles out few samples, and return it with levels merged until it does not.

    Parameters
    ----------
    design
        The design.
    check
        Check under the least number of all peers.
    outcomes
        Names of the outcomes, see :class:`OutcomeCells`.
    count
        Function that returns the numbers of samples of a peer in the cells of each of some parts of its samples,
        ``[parts C]``.
    merges, drops
        Whether levels are merged, and other columns left out.
    mergeable
        Whether an option of the model merges levels.
    parts
        Number of these parts, of which sums are taken by themselves.

    Raises
    ------
    DataError
        It does, and they must not be merged.
    """
    while True:
        singled = OutcomeCells(design, outcomes)
        once = singled.cells
        order = np.argsort(np.tile(once.group, parts), kind="stable")
        cells = Cells(once.groups, np.tile(once.group, parts)[order])

        def counted(own: Own, singled: OutcomeCells = singled, order: Ints = order) -> Ints:
            return count(singled, own)[order]

        small = yield from check.find(cells, counted)
        names = [cells.groups[group] for group in small]
        if not names:
            return design
        if not merges:
            levels = any("=" in name for name in names)
            raise few_samples(names, least=check.least, merge=mergeable and levels)
        design = design.merged(names, least=check.least, drops=drops)
