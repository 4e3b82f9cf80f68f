"""Encoding of a table's cells as numbers, the same for training and for predictions."""

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Field
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.tables.cells import MISSING, TextCells, drop_decimal_point, is_missing

EXACT = 2**24
"""Whole numbers up to this one are exact in single precision, in which models take them."""


Role = Literal["feature", "target"]
"""Use of a column; rules for cells that do not fit are for features alone."""


def code_cells(cells: TextCells, fields: Sequence[Field], *, missing: Collection[str] = MISSING) -> FloatArray:
    """Return one number per cell: the number itself, or the position of the level.

    The rules of the columns replace missing cells and unknown levels.

    Parameters
    ----------
    cells
        Table with at least the columns of the fields.
    fields
        Declaration of C columns.
    missing
        Texts that stand for a missing cell, in lower case.

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
    >>> cells = TextCells("patients", {"sex": lambda: ["m", ""], "age": lambda: ["31", "44.5"]}, rows=2)
    >>> code_cells(cells, [Field("sex", ("f", "m"), missing="f"), Field("age")]).tolist()
    [[1.0, 31.0], [0.0, 44.5]]
    """
    columns = [
        (numbers if field.levels is None else labels)(cells, field, missing=missing).astype(np.float64)
        for field in fields
    ]
    return np.stack(columns, axis=1)  # [n, C]


def encode_features(codes: FloatArray, fields: Sequence[Field]) -> FloatArray:
    """Return the features of coded cells, ``[n, F]``: a number stays, a level becomes 1 in its feature.

    Examples
    --------
    >>> encode_features(np.array([[1.0, 31.0]]), [Field("sex", ("f", "m")), Field("age")]).tolist()
    [[0.0, 1.0, 31.0]]
    """
    parts = [
        column if field.levels is None else (column == np.arange(len(field.levels))).astype(np.float64)
        for column, field in zip(np.split(codes, codes.shape[1], axis=1), fields, strict=True)
    ]
    return np.concatenate(parts, axis=1)  # [n, F]


def numbers(
    cells: TextCells, field: Field, *, missing: Collection[str] = MISSING, role: Role = "feature"
) -> FloatArray:
    """Return a column of numbers, ``[n]`` float64.

    Parameters
    ----------
    cells
        Table.
    field
        Declaration of the column.
    missing
        Texts that stand for a missing cell, in lower case.
    role
        True if the column is a feature or the target, which decides what to advise.

    Raises
    ------
    DataError
        A cell is missing and there is no rule for it, is no finite number, or is not whole where it must be.
    """
    read = _whole if field.integer else number
    filler = _filler(cells, field, missing=missing, role=role)
    parsed = [filler if is_missing(cell, missing) else read(cell) for cell in cells.column(field.name)]
    values = np.array(parsed, dtype=np.float64)  # [n]
    wrong = ~np.isfinite(values)
    if isinstance(field.missing, float) and np.isnan(field.missing):  # a missing value stays missing
        wrong &= ~np.array([is_missing(cell, missing) for cell in cells.column(field.name)], dtype=bool)
    if wrong.any():
        kind = f"no whole number of at most {EXACT:,}" if field.integer else "no finite number"
        remedy = "correct the cell"
        if role == "target":
            remedy = "correct the cell, or remove the row"
        elif field.integer:
            remedy = "correct the cell, or declare another type"
        raise _unfit(cells, field, wrong, kind, remedy)
    return values


def labels(cells: TextCells, field: Field, *, missing: Collection[str] = MISSING, role: Role = "feature") -> IntArray:
    """Return the positions of a column's levels, ``[n]`` int64.

    The whole number ``1.0`` is the level ``1``, as a program writes it that keeps whole numbers as decimal ones.

    Parameters
    ----------
    cells, field, missing, role
        As for :func:`numbers`.

    Raises
    ------
    DataError
        A cell is missing or no level, and there is no rule for it.
    """
    codes = {level: code for code, level in enumerate(field.levels or ())}
    unknown = -1 if field.unknown is None else codes[field.unknown]
    filler = _filler(cells, field, missing=missing, role=role)
    encoded = [
        codes[str(filler)]
        if is_missing(cell, missing)
        else codes.get(cell, codes.get(drop_decimal_point(cell), unknown))
        for cell in cells.column(field.name)
    ]
    positions = np.array(encoded, dtype=np.int64)  # [n]
    if (positions < 0).any():
        shown = ", ".join(f'"{level}"' for level in codes)
        remedy = "correct the cell, or have all peers declare the level or a rule `unknown`"
        if role == "target":
            remedy = "correct the cell, or remove the row"
        raise _unfit(cells, field, positions < 0, f"none of the levels {shown}", remedy)
    return positions


def number(cell: str) -> float:
    """Return the number of a cell; NaN if it is none."""
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _whole(cell: str) -> float:
    value = number(cell)
    return value if value == np.rint(value) and abs(value) <= EXACT else np.nan


def _filler(cells: TextCells, field: Field, *, missing: Collection[str], role: Role) -> float | str | None:
    """Return what replaces a missing cell; ``None`` where no cell is missing and no rule says."""
    gone = np.array([is_missing(cell, missing) for cell in cells.column(field.name)])
    if field.missing is None and gone.any():
        remedy = "remove the row" if role == "target" else "have all peers declare a rule `missing`"
        raise _unfit(cells, field, gone, "missing", f"fill the cell, or {remedy}")
    return field.missing


def _unfit(cells: TextCells, field: Field, wrong: np.ndarray, what: str, remedy: str) -> DataError:
    """Return the error of the first wrong cell, with the number of the others."""
    first, count = int(np.flatnonzero(wrong)[0]), int(wrong.sum())
    cell = cells.column(field.name)[first]
    others = f" (and in {count - 1} more rows)" if count > 1 else ""
    return DataError(f'{cells.place(first)}: "{cell:.40}" in column "{field.name}" is {what}{others}; {remedy}')
