r"""Bins of features, the same at all peers: from totals, or of equal width between public bounds.

Peers count their values on a fixed grid, whose cells have a relative width of :math:`2^{-7}`: first by sign and
exponent (512 cells a feature), then by the next seven bits within each exponent that occurs. Whole numbers up to 256
have cells of their own. Where at most ``max_bins`` cells are in use, each is a bin; otherwise the bins cut at the ranks
:math:`n i / B`. A cut lies in the middle of the gap between two cells in use; between adjacent cells it is the lower
end of the next one, which can be a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.learning.exact_model import Asked, Owns
from p2pfl.plugins.exact.columns import check_named, ends, keeps_missing
from p2pfl.plugins.exact.sketch import MAX_EXPONENTS, Sketch, impossible, sketch
from p2pfl.plugins.exact.tree_features import TreeFeatures

MAX_BINS = 255
"""Largest number of bins, so that a bin and the mark of a missing value fit into a byte."""

MAX_MEAN_EXPONENTS = 64
"""Largest number of exponents in use of a feature, on average; of a few features more may be in use."""


LOGARITHMIC = "log"
"""Third entry of the bounds of a feature whose bins are even in the logarithm of 1 plus its distance from the bound."""

Bounds = Mapping[str, Sequence[float | str]]
"""Bounds ``[low, high]`` or ``[low, high, "log"]``, by the name of a number."""


@dataclass(frozen=True, eq=False)
class Bins:
    """Cuts between the bins of each feature.

    Parameters
    ----------
    cuts
        ``[F, B - 1]`` float32 in float64; those of a feature are its first ``counts`` ones.
    counts
        ``[F]`` numbers of cuts.
    missing
        ``[F]`` bool: whether any peer lacks a value of the feature; missing values are a bin of their own, the last.
    known
        ``[F, 255]`` bool: which categories are in use; each is a bin. No entry for a feature that is no category.
    """

    cuts: Floats
    counts: Ints
    missing: npt.NDArray[np.bool_]
    known: npt.NDArray[np.bool_] | None = None

    def same(self, other: Bins) -> bool:
        """Return whether all bins are those of another."""
        pairs = ((self.cuts, other.cuts), (self.counts, other.counts), (self.missing, other.missing))
        return all(np.array_equal(one, two) for one, two in (*pairs, (self.categorical, other.categorical)))

    @property
    def categorical(self) -> npt.NDArray[np.bool_]:
        """True for each feature whose values are categories, ``[F]``."""
        none: npt.NDArray[np.bool_] = np.zeros(len(self.counts), np.bool_)
        return none if self.known is None else none | self.known.any(axis=1)

    @property
    def sizes(self) -> Ints:
        """Number of bins of each feature, that of missing values included, ``[F]``."""
        return self.counts + 1 + self.missing

    @property
    def starts(self) -> Ints:
        """Place of the first bin of each feature among the bins of all, ``[F]``."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def codes(self, features: FloatArray) -> npt.NDArray[np.uint8]:
        """Return the bin of each value, ``[F, n]``; a missing value has the number of the other bins."""
        binned = np.empty(features.shape[::-1], np.uint8)  # [F, n]
        for number, column in enumerate(features.T):
            cuts = self.cuts[number, : self.counts[number]].astype(np.float32)
            bins = np.searchsorted(cuts, column, side="right")
            binned[number] = np.where(np.isnan(column), self.counts[number] + 1, bins)
        return binned


def sketched(
    own: Owns, *, features: int, max_bins: int, least: int = 1, categorical: Sequence[bool] = ()
) -> Asked[Bins]:
    """Agree on bins by two totals.

    Parameters
    ----------
    own
        Samples of a peer.
    features
        F.
    max_bins
        Largest number of bins of a feature besides that of missing values.
    least
        Least number of samples of a bin of a number; smaller ones are one with the next.
    categorical
        By feature whether its values are categories, whole numbers from 0 to 254; none are if it is empty.

    Yields
    ------
    Question
        Two questions.

    Returns
    -------
    Bins
        Bins.
    """
    sketches, missing = yield from sketch(
        lambda peer: list(own(peer).train.features.T),
        columns=features,
        most=max(MAX_EXPONENTS, MAX_MEAN_EXPONENTS * features),
    )
    cuts, counts = np.zeros((features, max_bins - 1)), np.zeros(features, np.int64)
    known = np.zeros((features, MAX_BINS), np.bool_) if any(categorical) else None
    for number, cells in enumerate(sketches):
        is_number = not (any(categorical) and categorical[number])
        own_cuts = _cuts(cells, max_bins, least=least if is_number else 1)
        cuts[number, : len(own_cuts)], counts[number] = own_cuts, len(own_cuts)
        if known is not None and categorical[number]:
            known[number, _categories(number, cells.low, max_bins)] = True
    return Bins(cuts, counts, missing > 0, known)


def _categories(feature: int, values: Floats, max_bins: int) -> Ints:
    """Return the categories that are in use."""
    if ((values < 0) | (values >= MAX_BINS) | (values != np.floor(values))).any():
        raise impossible()
    if len(values) > max_bins:
        raise ModelError(
            f"feature {feature} has {len(values)} categories and model.options.max_bins is {max_bins}; raise it, or "
            "leave the feature out of model.options.categorical_features"
        )
    return values.astype(np.int64)


def _cuts(cells: Sketch, max_bins: int, *, least: int) -> Floats:
    """Return the cuts of one feature, ascending."""
    if len(cells.counts) < 2:
        return np.zeros(0)
    after = np.arange(len(cells.counts) - 1)  # cut after each cell but the last
    if len(cells.counts) > max_bins:
        reached = np.cumsum(cells.counts) * max_bins  # [cells]
        ranks = int(cells.counts.sum()) * np.arange(1, max_bins)
        after = np.unique(np.searchsorted(reached, ranks, side="left"))
        after = after[after < len(cells.counts) - 1]
    after = after[_filled(np.cumsum(cells.counts)[after], int(cells.counts.sum()), least=least)]
    middle = 0.5 * cells.high[after] + 0.5 * cells.low[after + 1]
    return np.asarray(middle.astype(np.float32).astype(np.float64))


def _filled(before: Ints, samples: int, *, least: int) -> list[int]:
    """Return which cuts leave no bin of few samples, given how many samples lie before each.

    Examples
    --------
    >>> _filled(np.array([3, 6, 7, 12, 18]), 20, least=5)
    [1, 3]
    """
    kept, last = list[int](), 0
    for index, count in enumerate(before.tolist()):
        if count - last >= least and samples - count >= least:
            kept.append(index)
            last = count
    return kept


def even_cuts(seen: TreeFeatures, bounds: Bounds, *, max_bins: int) -> tuple[tuple[float, ...], ...]:
    """Return the cuts between the bins of each feature; none of a category.

    Parameters
    ----------
    seen
        Features that trees split. A level that is a feature of its own is 0 or 1, and needs no bounds.
    bounds
        Public bounds of the other numbers.
    max_bins
        Number of bins of a number.

    Raises
    ------
    ModelError
        Bounds are missing or invalid, or their name is not that of a number.

    Examples
    --------
    >>> even_cuts(TreeFeatures.of(1, None, categorical=None), {"x0": [0, 8]}, max_bins=4)
    ((2.0, 4.0, 6.0),)
    """
    check_named(bounds, [name for name, category in zip(seen.names, seen.categorical, strict=True) if not category])
    cuts = list[tuple[float, ...]]()
    for name, category in zip(seen.names, seen.categorical, strict=True):
        if category:
            cuts.append(())
        elif "=" in name and name not in bounds:  # a level that is a feature of its own is 0 or 1
            cuts.append((0.5,))
        else:
            cuts.append(_even(name, bounds, max_bins))
    return tuple(cuts)


def even_bins(seen: TreeFeatures, fields: Sequence[Field] | None, bounds: Bounds, *, max_bins: int) -> Bins:
    """Return bins of equal width between public bounds; each level of a category is a bin.

    Parameters
    ----------
    seen, bounds, max_bins
        As of :func:`even_cuts`.
    fields
        Columns of the table. Those whose missing values stay missing have a bin for them, used or not.

    Raises
    ------
    ModelError
        As :func:`even_cuts`; or a category is not a column of levels, so its values are not public.
    """
    table = list(fields or (Field(name) for name in seen.names))
    columns = [table[position] for position in seen.columns]
    cuts, counts = np.zeros((len(seen), max_bins - 1)), np.zeros(len(seen), np.int64)
    known = np.zeros((len(seen), MAX_BINS), np.bool_) if any(seen.categorical) else None
    for number, even in enumerate(even_cuts(seen, bounds, max_bins=max_bins)):
        own = even
        if known is not None and seen.categorical[number]:
            levels = columns[number].levels
            if levels is None or len(levels) > max_bins:
                raise ModelError(
                    f'model.options.edges = "even": the category "{seen.names[number]}" needs declared levels, at '
                    f"most {max_bins}; declare them, or leave it out of model.options.categorical_features"
                )
            known[number, : len(levels)] = True
            own = tuple(level + 0.5 for level in range(len(levels) - 1))
        cuts[number, : len(own)], counts[number] = own, len(own)
    missing = np.array([keeps_missing(each) for each in columns])
    return Bins(cuts, counts, missing, known)


def _even(name: str, bounds: Bounds, bins: int) -> tuple[float, ...]:
    """Return the cuts between bins of equal width."""
    given = bounds.get(name, ())
    logarithmic = len(given) == 3 and given[2] == LOGARITHMIC
    low, high = ends({name: given[:2]} if logarithmic else bounds, name)
    shares = np.arange(1, bins) / bins
    cuts = low + (np.expm1(np.log1p(high - low) * shares) if logarithmic else (high - low) * shares)
    return tuple(np.unique(cuts.astype(np.float32)).astype(float).tolist())
