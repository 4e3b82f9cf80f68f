"""Columns of a table among the features of a model, and public bounds of their values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field

TARGET = "target"
"""Key of the bounds of a target that is a number."""


def located(features: int, fields: Sequence[Field] | None) -> list[tuple[Field, slice]]:
    """Return the columns with their places among the features; they are numbers ``x0``, ``x1``, ... without a table.

    Examples
    --------
    >>> [(field.name, where.start, where.stop) for field, where in located(3, (Field("sex", ("f", "m")), Field("age")))]
    [('sex', 0, 2), ('age', 2, 3)]
    """
    columns, start = [], 0
    for field in fields or [Field(f"x{number}") for number in range(features)]:
        end = start + (1 if field.levels is None else len(field.levels))
        columns.append((field, slice(start, end)))
        start = end
    return columns


def labels_of(fields: Iterable[Field]) -> list[str]:
    """Return the names of the features of columns, as tables of results have them.

    Examples
    --------
    >>> labels_of([Field("age"), Field("sex", ("f", "m"))])
    ['age', 'sex: f', 'sex: m']
    """
    return [
        label
        for field in fields
        for label in ([field.name] if field.levels is None else [f"{field.name}: {level}" for level in field.levels])
    ]


def keeps_missing(field: Field) -> bool:
    """Return whether missing values of a column stay missing."""
    return isinstance(field.missing, float) and math.isnan(field.missing)


def ends(bounds: Mapping[str, Sequence[float | str]], name: str) -> tuple[float, float]:
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
    numbers = [end for end in given if isinstance(end, int | float) and math.isfinite(end)]
    if len(given) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise ModelError(f'model.options.bounds: those of "{name}" are {list(given)}; write [low, high]')
    return float(numbers[0]), float(numbers[1])


def centered(low: float, high: float) -> tuple[float, float]:
    """Return the middle and half the width of bounds."""
    return 0.5 * (low + high), 0.5 * (high - low)


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


def position_of(column: str | int, names: Sequence[str], *, key: str) -> int:
    """Return the position of a column that an option names, or gives by its position.

    Raises
    ------
    ModelError
        There is no such column.
    """
    position = names.index(column) if column in names else column
    if not isinstance(position, int) or not 0 <= position < len(names):
        raise ModelError(
            f"{key}: there is no column {column!r}; write names of columns, or positions from 0 to {len(names) - 1}"
        )
    return position
