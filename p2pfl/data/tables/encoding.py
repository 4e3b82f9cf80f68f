"""Encoding of a table's cells as numbers, the same for training and for predictions."""

from collections.abc import Sequence

import numpy as np

from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.description import Field
from p2pfl.data.tables.reading import Cells, is_missing
from p2pfl.errors import DataError

EXACT = 2**24
"""Whole numbers up to this one are exact in single precision, in which models take them."""


def coded(cells: Cells, fields: Sequence[Field]) -> FloatArray:
    """Return one number per cell: the number itself, or the position of the level.

    The rules of the columns replace missing cells and unknown levels.

    Parameters
    ----------
    cells
        Table with at least the columns of the fields.
    fields
        Declaration of C columns.

    Returns
    -------
    numpy.ndarray
        ``[n, C]`` float64.

    Raises
    ------
    DataError
        A cell does not fit its column.

    Examples
    --------
    >>> cells = Cells("patients", {"sex": lambda: ["m", ""], "age": lambda: ["31", "44.5"]}, rows=2)
    >>> coded(cells, [Field("sex", ("f", "m"), missing="f"), Field("age")]).tolist()
    [[1.0, 31.0], [0.0, 44.5]]
    """
    columns = [numbers(cells, field) if field.levels is None else labels(cells, field) for field in fields]
    return np.stack(columns, axis=1).astype(np.float64)  # [n, C]


def encoded(codes: FloatArray, fields: Sequence[Field]) -> FloatArray:
    """Return the features of coded cells, ``[n, F]``: a number stays, a level becomes 1 in its feature.

    Examples
    --------
    >>> encoded(np.array([[1.0, 31.0]]), [Field("sex", ("f", "m")), Field("age")]).tolist()
    [[0.0, 1.0, 31.0]]
    """
    parts = [
        column if field.levels is None else (column == np.arange(len(field.levels))).astype(np.float64)
        for column, field in zip(np.split(codes, codes.shape[1], axis=1), fields, strict=True)
    ]
    return np.concatenate(parts, axis=1)  # [n, F]


def numbers(cells: Cells, field: Field) -> FloatArray:
    """Return a column of numbers, ``[n]`` float64.

    Raises
    ------
    DataError
        A cell is missing and there is no rule for it, is no finite number, or is not whole where it must be.
    """
    number = _whole if field.integer else _number
    column = cells.column(field.name)
    found = [_missing(cells, field) if is_missing(cell) else number(cell) for cell in column]
    values = np.array(found, dtype=np.float64)  # [n]
    wrong = ~np.isfinite(values)
    if isinstance(field.missing, float) and np.isnan(field.missing):  # a missing value stays missing
        wrong &= ~np.array([is_missing(cell) for cell in column], dtype=bool)
    if wrong.any():
        kind = f"no whole number of at most {EXACT:,}" if field.integer else "no finite number"
        remedy = "correct the cell, or declare another type" if field.integer else "correct the cell"
        raise _unfit(cells, field, wrong, kind, remedy)
    return values


def labels(cells: Cells, field: Field) -> IntArray:
    """Return the positions of a column's levels, ``[n]`` int64.

    Raises
    ------
    DataError
        A cell is missing or no level, and there is no rule for it.
    """
    places = {level: place for place, level in enumerate(field.levels or ())}
    unknown = -1 if field.unknown is None else places[field.unknown]
    found = [
        places[str(_missing(cells, field))] if is_missing(cell) else places.get(cell, unknown)
        for cell in cells.column(field.name)
    ]
    positions = np.array(found, dtype=np.int64)  # [n]
    if (positions < 0).any():
        shown = ", ".join(f'"{level}"' for level in places)
        remedy = "correct the cell, or have all peers declare the level or a rule `unknown`"
        raise _unfit(cells, field, positions < 0, f"none of the levels {shown}", remedy)
    return positions


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _whole(cell: str) -> float:
    number = _number(cell)
    return number if number == np.rint(number) and abs(number) <= EXACT else np.nan


def _missing(cells: Cells, field: Field) -> float | str:
    """Return what replaces a missing cell."""
    if field.missing is None:
        column = np.array([is_missing(cell) for cell in cells.column(field.name)])
        raise _unfit(cells, field, column, "missing", "fill the cell, or have all peers declare a rule `missing`")
    return field.missing


def _unfit(cells: Cells, field: Field, wrong: np.ndarray, what: str, remedy: str) -> DataError:
    """Return the error of the first wrong cell, with the number of the others."""
    first, count = int(np.flatnonzero(wrong)[0]), int(wrong.sum())
    cell = cells.column(field.name)[first]
    others = f" (and in {count - 1} more rows)" if count > 1 else ""
    return DataError(f'{cells.place(first)}: "{cell:.40}" in column "{field.name}" is {what}{others}; {remedy}')
