"""Statistics of each column by group, from exact totals that any comparison of groups needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Own, Tensors
from p2pfl.learning.small_cells import AgreedCheck, Bools, Cells
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import TARGET, located
from p2pfl.plugins.exact.design_cells import LEFT_OUT, Design
from p2pfl.plugins.exact.sketch import EXPONENTS, FINE, Sketch, coarse, fine, live, sketches
from p2pfl.plugins.exact.tensor_model import Shapes

QUARTILES = (0.25, 0.5, 0.75)
"""Shares of the quantiles of a group."""

PAIR = 2
"""Number of groups that ranks compare."""


@dataclass(frozen=True)
class Groups:
    """Groups of samples by the level of a column.

    Parameters
    ----------
    name
        Name of the column.
    levels
        Names of the G groups.
    where
        Places of the levels among the columns of a description.
    """

    name: str
    levels: tuple[str, ...]
    where: slice

    @classmethod
    def of(
        cls, name: str, *, features: int, classes: int | None, fields: Sequence[Field] | None, option: str = "by"
    ) -> Groups:
        """Return the groups of a column of levels that an option names, or those of the classes as ``target``.

        Raises
        ------
        ModelError
            There is no such column.
        """
        columns = located(features, fields)
        if classes is not None:
            columns.append((Field(TARGET, tuple(map(str, range(classes)))), slice(features, features + classes)))
        levels = {field.name: (field.levels, where) for field, where in columns if field.levels is not None}
        if name not in levels:
            raise ModelError(
                f'model.options.{option} is "{name}", which is no column with levels; choose from '
                f"{', '.join(levels) or 'none, as there is none'}"
            )
        return cls(name, *levels[name])

    def shapes(self, width: int) -> Shapes:
        """Return the shapes of the tensors of K columns by name."""
        number = len(self.levels)
        shapes: Shapes = {"group_samples": (number,), "group_quantiles": (number, width, len(QUARTILES))}
        shapes |= dict.fromkeys(("group_present", "group_mean", "group_deviation"), (number, width))
        return shapes | {"group_ranks": (PAIR, width)}

    def outcomes(self) -> list[str]:
        """Return names of the groups for a sentence, and of the samples without one."""
        return [*(f"group {self.name}={level}" for level in self.levels), f"no group {self.name}"]

    def of_samples(self, values: FloatArray) -> Ints:
        """Return the group of each sample with columns ``[n, K]``; G of one without a level."""
        return level_of_samples(values, self.where)

    def parted(self, values: FloatArray, group: Ints) -> FloatArray:
        """Return the columns once for each group, missing in samples of other groups, ``[n, G K]``."""
        return _parted(values, group, len(self.levels))

    def check_present(
        self, design: Design, check: AgreedCheck[Own], values: Callable[[Own], FloatArray]
    ) -> Asked[Design]:
        """Leave out the columns of numbers of which few samples of a group have a value."""
        columns = [
            (field.name, where.start)
            for field, where in design.columns
            if field.levels is None and design.levels[where.start] != LEFT_OUT
        ]
        places = [place for _, place in columns]
        number = len(self.levels) + 1  # the samples without a group are the rest of all samples
        cells = Cells.of(dict.fromkeys([name for name, _ in columns], number))

        def present(own: Own) -> Ints:
            mine = values(own)
            there = ~np.isnan(_parted(mine[:, places], self.of_samples(mine), number))
            return np.asarray(there.sum(axis=0, dtype=np.int64).reshape(number, -1).T.ravel())

        small = yield from check.find(cells, present)
        levels = design.levels.copy()
        levels[[places[each] for each in small]] = LEFT_OUT
        return design.merging(levels)

    def totals(
        self,
        values: Callable[[str], FloatArray],
        group: Callable[[str], Ints],
        *,
        width: int,
        whole: Bools,
        dominates: Callable[[Sketch, float], bool],
        least: int,
    ) -> Asked[Tensors]:
        """Ask for the statistics by group, by two totals.

        Parameters
        ----------
        values, group
            Functions that return the K columns of a peer, NaN where a value is missing, and the group of each sample.
        width, whole
            K, and which columns have whole numbers alone.
        dominates
            Function that says whether a sum tells the value of its largest contributor.
        least
            Smallest number of samples that anything is stated of.
        """
        number = len(self.levels)
        many = number * width
        size = sums.size(many)

        def first(peer: str) -> Ints:
            parted, groups = self.parted(values(peer), group(peer)), group(peer)
            known = np.nan_to_num(parted).astype(np.float64)
            total = sums.summed(len(known), many, lambda where: known[where])
            samples = np.bincount(groups, minlength=number + 1)[:number]
            return np.concatenate([samples, (~np.isnan(parted)).sum(axis=0), total, coarse(list(parted.T))])

        total = yield Question(first, size=number + many + size + many * EXPONENTS)
        samples, present = total[:number], total[number : number + many]
        if (total[: number + many] < 0).any():
            raise LearningError(
                "a group has a negative number of samples, as a peer has added what it does not have; compare with "
                "the other owners which peers take part"
            )
        sum_of = sums.numbers(total[number + many : number + many + size])
        mean = sum_of / np.maximum(present, 1)
        used = live(total[number + many + size :])

        def second(peer: str) -> Ints:
            parted = self.parted(values(peer), group(peer))
            centred = np.nan_to_num(parted - mean)
            squares = sums.summed(len(parted), many, lambda where: centred[where] * centred[where])
            return np.concatenate([squares, fine(list(parted.T), used)])

        total = yield Question(second, size=size + len(used) * FINE)
        cells = sketches(used, total[size:], columns=many)
        squares = sums.numbers(total[:size])
        deviation = np.sqrt(np.where(present > 1, squares / np.maximum(present - 1, 1), np.nan))
        mean = np.where(present > 0, mean, np.nan)
        quantiles = np.array(
            [_quartiles(each, whole=bool(whole[n % width]), least=least) for n, each in enumerate(cells)]
        )
        # A hidden group would follow from all samples and the other groups, so none of the column is stated.
        dominated = [dominates(each, value) for each, value in zip(cells, sum_of.tolist(), strict=True)]
        few = (present > 0) & (present < least)
        hidden = ((np.array(dominated) | few) & (least > 1)).reshape(number, width).any(axis=0)
        stated = {"group_mean": mean, "group_deviation": deviation}
        ranks = [compare_ranks(cells[place], cells[width + place]) for place in range(width)] if number == PAIR else []
        return {
            "group_samples": samples.astype(np.float64),
            "group_present": present.reshape(number, width).astype(np.float64),
            **{name: np.where(hidden, np.nan, value.reshape(number, width)) for name, value in stated.items()},
            "group_quantiles": quantiles.reshape(number, width, len(QUARTILES)),
            "group_ranks": np.array(ranks, np.float64).T if ranks else np.full((PAIR, width), np.nan),
        }


def level_of_samples(values: FloatArray, where: slice) -> Ints:
    """Return the level of each sample among L columns of levels; L of one without a level.

    Examples
    --------
    >>> level_of_samples(np.array([[0.0, 1.0], [1.0, 0.0], [np.nan, np.nan]]), slice(0, 2)).tolist()
    [1, 0, 2]
    """
    levels = np.nan_to_num(values[:, where])
    chosen = np.where(levels.max(axis=1, initial=0) > 0, levels.argmax(axis=1), levels.shape[1])
    return np.asarray(chosen, np.int64)


def _parted(values: FloatArray, group: Ints, groups: int) -> FloatArray:
    return np.concatenate([np.where((group == each)[:, None], values, np.nan) for each in range(groups)], axis=1)


def _quartiles(cells: Sketch, *, whole: bool, least: int) -> list[float]:
    """Return the quartiles that ``least`` values lie at or beyond, on either side; NaN for others."""
    count = int(cells.counts.sum())
    if count < max(1, least):
        return [np.nan] * len(QUARTILES)
    places = [share * (count - 1) for share in QUARTILES]
    common = [np.floor(place) + 1 >= least and count - np.ceil(place) >= least for place in places]
    return [
        cells.quantile(share, whole=whole) if stated else np.nan
        for share, stated in zip(QUARTILES, common, strict=True)
    ]


def compare_ranks(one: Sketch, other: Sketch) -> tuple[float, float]:
    r"""Return Mann-Whitney's U of the first group, and the sum of :math:`t^3 - t` over ties; values of a cell tie.

    Examples
    --------
    >>> low, high = np.array([1.0, 2.0]), np.array([1.5, 2.5])
    >>> compare_ranks(Sketch(low, high, np.array([1, 2])), Sketch(low, high, np.array([2, 1])))
    (6.0, 48.0)
    """
    places = np.union1d(one.low, other.low)
    counts = np.zeros((PAIR, len(places)))
    for row, cells in zip(counts, (one, other), strict=True):
        row[np.searchsorted(places, cells.low)] = cells.counts
    ties = counts.sum(axis=0)
    below = np.cumsum(counts[1]) - counts[1]
    return float((counts[0] * (below + counts[1] / 2)).sum()), float((ties**3 - ties).sum())
