"""Samples that leave in the cells of a grid of times, by event and feature, and grids on which they are not few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError
from p2pfl.learning.exact_model import Asked, Own, Part, Tensors
from p2pfl.learning.small_cells import AgreedCheck, Cells
from p2pfl.plugins.exact.design_cells import Singled
from p2pfl.plugins.exact.survival.grid import MAX_CELLS, Grid, TimedModel, UnionGrid

SHARES = (0.5, 0.25, 0.75, 0.125, 0.375, 0.625, 0.875)
"""Shares of the width at which a cell of time may be cut in two; the first that leaves no small cell is taken."""

LEAST_WIDE = 16.0
"""Width above which a cell of time is cut at whole numbers, all of them different."""

MAX_BATCH = 512
"""Cells of time whose samples are looked at together, so that a grid that is too fine is refused soon."""


def departures(part: Part, grid: Grid | UnionGrid) -> list[Ints]:
    """Return the cell in which each sample leaves without the event, and with it; -1 for none, ``[n]`` each."""
    cell, event = grid.placed(part.targets)
    return [np.where(event, -1, cell), np.where(event, cell, -1)]


@dataclass(frozen=True, eq=False)
class TimeCells:
    """Samples that leave in a cell of time or enter in it: all of them, and those that a feature singles out.

    Parameters
    ----------
    grid
        Cells of time.
    sets
        Samples that features single out.
    parts
        Function that returns the parts of a peer's samples that are summed.
    moves
        Function that returns the cells in which samples leave, or enter, in each of some ways.
    ways
        Number of these.
    strata
        Names of the strata, of each of which there are as many ways; none without strata.
    """

    grid: Grid | UnionGrid
    sets: Sequence[Singled]
    parts: Callable[[Own], Sequence[Part]]
    moves: Callable[[Part, Grid | UnionGrid], list[Ints]] = departures
    ways: int = 2
    strata: Sequence[str] = ()

    @property
    def names(self) -> list[tuple[str, str]]:
        """Names of the stratum and of the feature of each count of a cell of time; empty for all."""
        strata = np.repeat(self.strata or [""], self.ways // max(1, len(self.strata))).tolist()
        return [("", ""), *((stratum, name) for name in ("", *(each.name for each in self.sets)) for stratum in strata)]

    @property
    def kinds(self) -> int:
        """Number of counts of a cell of time."""
        return 1 + self.ways * (1 + len(self.sets))

    def count(self, own: Own) -> Ints:
        """Return how many samples leave in each cell, and then how many by way and feature, ``[cells, kinds]``."""
        cells = self.grid.cells
        counts = np.zeros((cells, self.kinds), np.int64)
        for part in self.parts(own):
            leaving = self.grid.placed(part.targets)[0]
            every = [np.ones(len(part), np.bool_), *(each.among(part.features) for each in self.sets)]
            moves = [move[chosen] for chosen in every for move in self.moves(part, self.grid)]
            counts += np.stack([np.bincount(move[move >= 0], minlength=cells) for move in (leaving, *moves)], axis=1)
        return counts

    def check_late(self, check: AgreedCheck[Own], *, horizon: float) -> Asked[None]:
        """Ask whether few samples have the event after the horizon, or are observed longer without it.

        Who they are follows from the events before the horizon and all events, which a description states.

        Raises
        ------
        DataError
            They do.
        """

        def counted(own: Own) -> Ints:
            counts = np.zeros((1 + len(self.sets), 2), np.int64)
            for part in self.parts(own):
                late = np.abs(part.targets) > horizon
                chosen = [late, *(late & each.among(part.features) for each in self.sets)]
                counts += [np.bincount(np.signbit(part.targets[each]), minlength=2) for each in chosen]
            return counts.ravel()

        if (yield from check.find(Cells.of({"the time": 2 * (1 + len(self.sets))}), counted)):
            raise DataError(
                f"fewer than {check.least} people have the event after the horizon {horizon:g}, or are observed longer "
                "without it, alone or with one value of a feature, so totals would show single people; set "
                "model.options.horizon to the last time of all, or to an earlier time than now"
            )

    def check(self, check: AgreedCheck[Own], *, auto: bool = False) -> Asked[None]:
        """Ask whether few samples leave in a cell of time.

        Raises
        ------
        DataError
            They do.
        """
        for sets in ((), self.sets):
            cells = replace(self, sets=sets)
            groups, group = np.unique(cells.names, axis=0, return_inverse=True)
            for start in range(0, self.grid.cells, MAX_BATCH):
                batch = slice(start, min(self.grid.cells, start + MAX_BATCH))
                every = np.tile(group.ravel(), batch.stop - batch.start)
                order = np.argsort(every, kind="stable")

                def counted(own: Own, cells: TimeCells = cells, batch: slice = batch, order: Ints = order) -> Ints:
                    return cells.count(own)[batch].ravel()[order]

                named = Cells(tuple(map(" ".join, groups.tolist())), every[order])
                small = yield from check.find(named, counted)
                if small:
                    raise self._few([*map(tuple, groups[list(small)].tolist())], check.least, auto=auto)

    def _few(self, groups: Sequence[tuple[str, ...]], least: int, *, auto: bool) -> DataError:
        """Return the error of cells of time that few samples of some strata and features leave in."""
        strata, names = (", ".join(sorted({*each} - {""})) for each in zip(*groups, strict=True))
        remedy = 'set model.options.width = "auto", or to more'
        if auto:
            remedy = "set another model.options.horizon, or leave out features, groups or strata that few people share"
        if strata:
            remedy = f"merge {strata} with another level in the data, or {remedy}"
        return DataError(
            f"fewer than {least} people{f' of {strata}' if strata else ''} leave in a cell of time, or with or without "
            f"the event{f' and share a value of {names}' if names else ''}, so totals would show single people; "
            f"{remedy}"
        )


def cut_time(check: AgreedCheck[Own], cells: TimeCells, *, horizon: float) -> Asked[Floats]:
    """Return where cells of time begin that few samples leave in none of.

    The time up to the horizon is cut in two, and so is each piece, where this leaves no small cell and no empty one. So
    nothing shows of a small cell but that a larger one around it cannot be cut.

    Parameters
    ----------
    check
        Check under the least number of all peers.
    cells
        Samples by cell, of any grid.
    horizon
        End of the last cell.

    Raises
    ------
    DataError
        Few samples are under observation beyond the horizon, or leave before it.
    """
    yield from replace(cells, grid=UnionGrid(np.zeros(1), horizon)).check(check, auto=True)
    pieces = {0.0: (horizon, 0)}  # the end of each piece, and how many cuts were tried
    while True:
        tried = {low: _cut(low, end, SHARES[tries]) for low, (end, tries) in pieces.items() if tries < len(SHARES)}
        tried = dict(list(tried.items())[: MAX_CELLS - len(pieces)])
        if not tried:
            return np.array(sorted(pieces))
        grid = UnionGrid(np.array(sorted({*pieces, *tried.values()})), horizon)
        cut = replace(cells, grid=grid)
        rows = np.array([np.searchsorted(grid.times, [low, middle]) for low, middle in tried.items()])

        def counted(own: Own, cut: TimeCells = cut, rows: Ints = rows) -> Ints:
            return cut.count(own)[rows.ravel()].ravel()

        groups = {f"{low:g}": 2 * cells.kinds for low in tried}
        nobody = np.tile(np.arange(cells.kinds) == 0, 2 * len(tried)).astype(np.int64)  # so that no cell is empty
        small = yield from check.find(Cells.of(groups), counted, nobody=nobody)
        for number, (low, middle) in enumerate(tried.items()):
            end, tries = pieces[low]
            if number in small:
                pieces[low] = end, tries + 1
            else:
                pieces |= {low: (middle, 0), middle: (end, 0)}


def _cut(low: float, end: float, share: float) -> float:
    """Return where a cell is cut, in a wide one at a whole number."""
    middle = low + (end - low) * share
    return float(np.rint(middle)) if end - low > LEAST_WIDE else middle


def check_time(model: TimedModel, tensors: Tensors, check: AgreedCheck[Own], cells: TimeCells) -> Asked[Tensors]:
    """Refuse cells of time that few samples leave in, or return the model with cells that are wide enough.

    Raises
    ------
    DataError
        Few samples leave in a cell, or by event, or by event with one value of a feature.
    """
    if model.united:
        raise DataError(
            f"a peer wants at least {check.least} people in a cell, but the union of times shows that of each; set "
            'model.options.width = "auto" and a horizon instead of times = "union"'
        )
    yield from cells.check_late(check, horizon=model.last)
    if not model.auto:
        yield from cells.check(check)
        return tensors
    begins = yield from cut_time(check, cells, horizon=model.last)
    times = np.zeros(model.room)
    times[: len(begins)] = begins
    return {**tensors, "times": times, "time_count": np.array([float(len(begins))])}
