"""Encoding of a table's cells as numbers, the same for training and for predictions."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Field
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.tables.cells import MISSING, TextCells, drop_decimal_point, is_missing
from p2pfl.data.tables.file_format import DECIMAL_COMMA, PLAIN, advised

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
    return np.stack(columns, axis=1) if columns else np.empty((len(cells), 0))  # [n, C]


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
    column, parse = texts(cells, field, missing=missing), _parser(cells, field)
    filler = _filler(cells, field, column, role=role)
    values = np.array([parse(cell) if cell else filler for cell in column], dtype=np.float64)  # [n]
    known = np.array([cell != "" for cell in column], dtype=bool)  # [n]
    stays = isinstance(field.missing, float) and np.isnan(field.missing)  # a missing value stays missing
    wrong = ~np.isfinite(values) & (known | (not stays))
    if wrong.any():
        raise _unfit(cells, field, wrong, _kind(field), _remedy(cells, field, wrong, role=role))
    if field.range is not None:
        low, high = field.range
        outside = known & ((values < low) | (values > high))
        if outside.any():
            remedy = 'correct the cell, or have all peers declare outside = "missing"'
            raise _unfit(cells, field, outside, f"not from {low:g} to {high:g}", remedy)
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
    column = texts(cells, field, missing=missing)
    filler = _filler(cells, field, column, role=role)
    encoded = [
        codes.get(cell, codes.get(drop_decimal_point(cell), unknown)) if cell else codes[str(filler)] for cell in column
    ]
    positions = np.array(encoded, dtype=np.int64)  # [n]
    if (positions < 0).any():
        shown = ", ".join(f'"{level}"' for level in codes)
        remedy = "correct the cell, or have all peers declare the level or a rule `unknown`"
        if role == "target":
            remedy = "correct the cell, or remove the row"
        raise _unfit(cells, field, positions < 0, f"none of the levels {shown}", remedy)
    return positions


def texts(cells: TextCells, field: Field, *, missing: Collection[str] = MISSING) -> list[str]:
    """Return the cells of a column, with the empty text for a missing one.

    A cell is also missing if it is one of the codes of the column, or a number outside of a range that makes it so.

    Examples
    --------
    >>> cells = TextCells("patients", {"chol": lambda: ["230", "-9.0", "0", "NA"]}, rows=4)
    >>> texts(cells, Field("chol", codes=("-9",), range=(1, 600), outside_missing=True))
    ['230', '', '', '']
    """
    column = ["" if is_missing(cell, missing) else cell for cell in cells.column(field.name)]
    if field.codes:
        column = ["" if {cell, drop_decimal_point(cell)} & {*field.codes} else cell for cell in column]
    if field.range is not None and field.outside_missing:
        (low, high), parse = field.range, _parser(cells, field)
        column = ["" if cell and (parse(cell) < low or parse(cell) > high) else cell for cell in column]
    return column


def complete_rows(
    cells: TextCells, fields: Sequence[Field], *, missing: Collection[str] = MISSING
) -> tuple[TextCells, dict[str, int]]:
    """Return the rows without a missing cell in the columns that drop it, and the missing cells of each such column.

    Raises
    ------
    DataError
        No row is complete.

    Examples
    --------
    >>> cells = TextCells("patients", {"age": lambda: ["31", ""], "sex": lambda: ["f", "m"]}, rows=2)
    >>> kept, counts = complete_rows(cells, [Field("age", drop=True), Field("sex")])
    >>> len(kept), counts
    (1, {'age': 1})
    """
    gone, counts = np.zeros(len(cells), dtype=bool), dict[str, int]()
    for field in fields:
        if field.drop:
            lacking = np.array([cell == "" for cell in texts(cells, field, missing=missing)], dtype=bool)  # [n]
            gone |= lacking
            if lacking.any():
                counts[field.name] = int(lacking.sum())
    if gone.all():
        raise DataError(f"{cells.source} has no complete row; replace missing cells of a column by a value")
    return (cells.keep(np.flatnonzero(~gone).tolist()) if gone.any() else cells), counts


def _parser(cells: TextCells, field: Field) -> Callable[[str], float]:
    """Return the function that reads the number, or the days, of a cell; NaN if there is none."""
    since = field.since
    if since is not None:
        return lambda cell: cells.format.days(cell, since=since)
    parse = partial(cells.format.number, column=field.name)
    return partial(_whole, parse) if field.integer else parse


def _whole(parse: Callable[[str], float], cell: str) -> float:
    value = parse(cell)
    return value if value == np.rint(value) and abs(value) <= EXACT else np.nan


def _kind(field: Field) -> str:
    if field.since is not None:
        return "no date"
    return f"no whole number of at most {EXACT:,}" if field.integer else "no finite number"


def _remedy(cells: TextCells, field: Field, wrong: np.ndarray, *, role: Role) -> str:
    """Return what to do about cells that are no numbers."""
    table, cell = Path(cells.source), cells.column(field.name)[int(np.flatnonzero(wrong)[0])]
    if field.since is not None and cells.format.dates == PLAIN.dates:
        return f"write it as 2020-12-31, or {advised(table, {'dates': '%d.%m.%Y'})}"
    if cells.format.decimal == "." and DECIMAL_COMMA.fullmatch(cell):
        return f"correct the cell, or {advised(table, {'decimal': ','})}"
    if role == "target":
        return "correct the cell, or remove the row"
    return "correct the cell, or declare another type" if field.integer else "correct the cell"


def _filler(cells: TextCells, field: Field, column: Sequence[str], *, role: Role) -> float | str | None:
    """Return what replaces a missing cell; ``None`` where no cell is missing and no rule says."""
    gone = np.array([not cell for cell in column])
    if field.missing is None and gone.any():
        remedy = "have all peers declare a rule `missing`"
        if role == "target" or field.drop:
            remedy = "remove the row"
        raise _unfit(cells, field, gone, "missing", f"fill the cell, or {remedy}")
    return field.missing


def _unfit(cells: TextCells, field: Field, wrong: np.ndarray, what: str, remedy: str) -> DataError:
    """Return the error of the first wrong cell, with the number of the others."""
    first, count = int(np.flatnonzero(wrong)[0]), int(wrong.sum())
    cell = cells.column(field.name)[first]
    others = f" (and in {count - 1} more rows)" if count > 1 else ""
    return DataError(f'{cells.place(first)}: "{cell:.40}" in column "{field.name}" is {what}{others}; {remedy}')
