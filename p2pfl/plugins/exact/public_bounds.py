"""Public bounds of columns, from which private models take scales that do not depend on data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from p2pfl.core.errors import ModelError

TARGET = "target"
"""Key of the bounds of a target that is a number."""


def ends(bounds: Mapping[str, Sequence[float]], name: str) -> tuple[float, float]:
    """Return the public bounds of a column.

    Parameters
    ----------
    bounds
        ``[low, high]`` by name.
    name
        Name of the column.

    Examples
    --------
    >>> ends({"age": [0, 100]}, "age")
    (0.0, 100.0)

    Raises
    ------
    ModelError
        They are missing, or are no bounds.
    """
    given = bounds.get(name)
    if given is None:
        raise ModelError(
            f'model.options.bounds: those of "{name}" are missing, and they must not depend on data; write '
            "[low, high], as widely known"
        )
    if len(given) != 2 or not all(math.isfinite(end) for end in given) or not given[0] < given[1]:
        raise ModelError(f'model.options.bounds: those of "{name}" are {list(given)}; write [low, high]')
    return float(given[0]), float(given[1])


def check_named(bounds: Iterable[str], numbers: Iterable[str]) -> None:
    """Refuse bounds of what is no column of numbers.

    Parameters
    ----------
    bounds, numbers
        Names that have bounds, and names of the columns of numbers.

    Raises
    ------
    ModelError
        A name is unknown.
    """
    known = {*numbers}
    if unknown := sorted({*bounds} - known):
        listed = ", ".join(sorted(known)[:20]) or "none"
        raise ModelError(f'model.options.bounds: there is no number "{unknown[0]}"; choose from {listed}')
