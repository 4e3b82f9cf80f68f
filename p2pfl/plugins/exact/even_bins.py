"""Bins of equal width between public bounds, which follow from no data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field
from p2pfl.plugins.exact.bins import MOST, Bins
from p2pfl.plugins.exact.tree_features import TreeFeatures

LOG = "log"
"""Third entry of the bounds of a feature whose bins are even in the logarithm of 1 plus its distance from the bound."""

KEY = "model.options.bounds"

Bounds = Mapping[str, Sequence[float | str]]
"""Bounds ``[low, high]`` or ``[low, high, "log"]``, by the name of a number."""


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
    known = {name for name, category in zip(seen.names, seen.categorical, strict=True) if not category}
    if unknown := sorted({*bounds} - known):
        raise ModelError(f'{KEY}: there is no number "{unknown[0]}"; choose from {", ".join(sorted(known)[:20])}')
    found = list[tuple[float, ...]]()
    for name, category in zip(seen.names, seen.categorical, strict=True):
        if category:
            found.append(())
        elif "=" in name and name not in bounds:  # a level that is a feature of its own is 0 or 1
            found.append((0.5,))
        elif name not in bounds:
            raise ModelError(
                f'{KEY}: the bounds of "{name}" are missing, and its bins must not depend on data; write '
                "[low, high], as widely known"
            )
        else:
            found.append(_even(name, bounds[name], max_bins))
    return tuple(found)


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
    columns = _columns(seen, fields)
    cuts, counts = np.zeros((len(seen), max_bins - 1)), np.zeros(len(seen), np.int64)
    known = np.zeros((len(seen), MOST), np.bool_) if any(seen.categorical) else None
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
    missing = np.array([isinstance(each.missing, float) and math.isnan(each.missing) for each in columns])
    return Bins(cuts, counts, missing, known)


def _columns(seen: TreeFeatures, fields: Sequence[Field] | None) -> list[Field]:
    """Return the column that each feature comes from."""
    if fields is None:
        return [Field(name) for name in seen.names]
    ends, at = dict[int, Field](), 0
    for field in fields:
        for place in range(at, at := at + (1 if field.levels is None else len(field.levels))):
            ends[place] = field
    return [ends[start] for start, _ in seen.places]


def _even(name: str, given: Sequence[float | str], bins: int) -> tuple[float, ...]:
    """Return the cuts between bins of equal width."""
    words = f'{KEY}: those of "{name}" are {list(given)}; write [low, high] or [low, high, "log"]'
    numbers = [each for each in given[:2] if isinstance(each, int | float) and math.isfinite(each)]
    if len(given) not in {2, 3} or len(numbers) < 2 or (len(given) == 3 and given[2] != LOG):
        raise ModelError(words)
    low, high = (float(each) for each in numbers)
    if not low < high:
        raise ModelError(words)
    shares = np.arange(1, bins) / bins
    width = high - low
    cuts = low + (np.expm1(np.log1p(width) * shares) if len(given) == 3 else width * shares)
    return tuple(np.unique(cuts.astype(np.float32)).astype(float).tolist())
