"""One table that everybody has, as a source of central data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Cells as Rules
from p2pfl.data.data_description import Description, Field
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.sources import Central, moments, nearest, scale_columns
from p2pfl.data.tables.cells import MISSING, is_missing, read
from p2pfl.data.tables.declaration import locate_file
from p2pfl.data.tables.file_format import FileFormat
from p2pfl.data.tables.proposal import MOST_CLASSES

MOST_LEVELS = 1000
"""Largest number of levels of a category; a text column with more is a name or an address."""


@dataclass(frozen=True, eq=False)
class Column:
    """Column as read: its cells, and its numbers (NaN where missing) if all known cells are numbers."""

    name: str
    cells: npt.NDArray[np.str_]
    missing: npt.NDArray[np.bool_]
    numbers: npt.NDArray[np.float64] | None

    @property
    def values(self) -> npt.NDArray[Any]:
        """Numbers of a numerical column, otherwise its text."""
        return self.cells if self.numbers is None else self.numbers


def csv(
    data_dir: Path | None,
    *,
    path: str,
    target: str | int,
    drop: Sequence[str | int] = (),
    header: bool = True,
    bounds: Mapping[str, Sequence[float]] | None = None,
) -> Central:
    """Load one table that p2pfl shares out among the peers: a CSV or Parquet file.

    Columns of numbers are standardised, and text is one-hot encoded (a feature for each level). Missing cells (see
    :data:`~p2pfl.data.tables.cells.MISSING`) become the mean or the most frequent level of the training part. With
    ``bounds`` no such statistic of the samples is taken, as a guarantee requires: see there. A
    target of text or of few whole numbers (see :data:`~p2pfl.data.tables.proposal.MOST_CLASSES`) gives classes in
    sorted order, any other a regression. All columns, including dropped ones, remain available to ``split = "column"``.

    Parameters
    ----------
    data_dir
        Folder in which to look up a relative ``path`` that does not exist as it stands.
    path
        Path of the file; a CSV file is in UTF-8.
    target
        Column to predict.
    drop
        Columns that are not features.
    header
        True if the first row of a CSV file names the columns; otherwise their names are "0", "1", ...
    bounds
        Public lowest and highest value of columns of numbers, the target included: they become -1 and 1, and other
        columns keep their units. A missing cell becomes the middle, or 0 without bounds, or the first level.

    Returns
    -------
    Central
        Source of the rows.

    Raises
    ------
    DataError
        An option is invalid, the file is missing or malformed, or a column cannot be used.
    """
    _check_options(path=path, target=target, drop=drop, header=header, bounds=bounds)
    file = locate_file(path, data_dir)
    cells = read(file, header=header)
    columns = {name: _column(name, cells.column(name), cells.format) for name in cells.names}
    for name in (str(target), *map(str, drop)):
        if name not in columns:
            raise DataError(f'{file} has no column "{name}"; {nearest(name, columns)}')
    targets, labels = _targets(columns[str(target)], file)
    features = [column for name, column in columns.items() if name not in {str(target), *map(str, drop)}]
    if not features:
        raise DataError(f"{file} has no feature besides the target; drop fewer columns")
    for column in features:
        _check_feature(column, file)
    for name, (low, high) in (bounds or {}).items():
        _check_bounds(columns.get(name), name, low, high, file=file)

    def encode(train: IntArray, keep: IntArray) -> tuple[FloatArray, Description]:
        encoded = [_encode(column, train, bounds=bounds) for column in features]
        description = Description(
            raw="the cells of a row",
            columns=tuple(each.field for each in encoded),
            mean=np.concatenate([each.mean for each in encoded]),  # [d]
            deviation=np.concatenate([each.deviation for each in encoded]),  # [d]
            cells=Rules(tuple(sorted(MISSING)), stripped=True),
            classes=labels,
            target=str(target),
        )
        return np.concatenate([each.features[keep] for each in encoded], axis=1), description  # [n, d]

    classes = None if labels is None else len(labels)
    units = None if bounds is None else _units(bounds.get(str(target)))
    return Central(targets, classes, encode, {name: column.values for name, column in columns.items()}, units=units)


def _units(bounds: Sequence[float] | None) -> tuple[float, float]:
    """Return the middle and half the width of public bounds; those of -1 and 1 without any."""
    low, high = bounds or (-1.0, 1.0)
    return (low + high) / 2, (high - low) / 2


def _check_bounds(column: Column | None, name: str, low: float, high: float, *, file: Path) -> None:
    if column is None or column.numbers is None:
        raise DataError(f'the option "bounds" names "{name}", which is no column of numbers of {file}; leave it out')
    if not -math.inf < low < high < math.inf:
        raise DataError(f'the option "bounds" gives "{name}" from {low:g} to {high:g}; the first must be the smaller')


def _check_options(*, path: Any, target: Any, drop: Any, header: Any, bounds: Any) -> None:
    right = {
        "path": (isinstance(path, str | Path), "the name of a file", path),
        "target": (isinstance(target, str | int), "the name of a column", target),
        "drop": (isinstance(drop, Sequence) and not isinstance(drop, str), "a list of columns", drop),
        "header": (isinstance(header, bool), "true or false", header),
        "bounds": (bounds is None or _are_bounds(bounds), "a table of pairs of numbers by column", bounds),
    }
    for name, (good, expected, value) in right.items():
        if not good:
            raise DataError(f'the option "{name}" must be {expected}, but it is {value!r}; change it')


def _are_bounds(given: Any) -> bool:
    return isinstance(given, Mapping) and all(
        isinstance(pair, Sequence)
        and len(pair) == 2
        and all(isinstance(end, int | float) and not isinstance(end, bool) for end in pair)
        for pair in given.values()
    )


def _column(name: str, cells: Sequence[str], form: FileFormat) -> Column:
    missing = np.array([is_missing(cell) for cell in cells])
    parsed = np.array([np.nan if gone else form.number(cell) for cell, gone in zip(cells, missing, strict=True)])
    text = missing.all() or (np.isnan(parsed) & ~missing).any()
    return Column(name, np.array(cells), missing, None if text else parsed)


def _targets(column: Column, file: Path) -> tuple[npt.NDArray[Any], tuple[int | str, ...] | None]:
    """Return the targets, and the names of their classes; ``None`` in place of the names for regression."""
    if column.missing.any():
        raise DataError(
            f'the target "{column.name}" is missing in {int(column.missing.sum())} rows of {file}; remove these rows'
        )
    levels, classes = np.unique(column.values, return_inverse=True)
    numbers = column.numbers
    if numbers is not None and not ((numbers == np.floor(numbers)).all() and len(levels) <= MOST_CLASSES):
        return numbers, None
    names = tuple(str(level) if column.numbers is None else int(level) for level in levels)
    Field(column.name, tuple(map(str, names)))  # checks the names, which a saved model contains
    return classes, names


def _check_feature(column: Column, file: Path) -> None:
    if column.numbers is None:
        levels = len(np.unique(column.cells[~column.missing]))
        if not 0 < levels <= MOST_LEVELS:
            raise DataError(
                f'column "{column.name}" of {file} has {levels} different texts, not 1 to {MOST_LEVELS}; list '
                "it under `drop`"
            )
    elif np.isinf(column.numbers).any():
        raise DataError(f'column "{column.name}" of {file} contains infinity; fix these cells')


@dataclass(frozen=True, eq=False)
class _Encoded:
    """One column as features: ``[n, 1]`` for numbers and ``[n, levels]`` for text."""

    features: FloatArray
    field: Field
    mean: FloatArray
    deviation: FloatArray


def _encode(column: Column, train: IntArray, *, bounds: Mapping[str, Sequence[float]] | None) -> _Encoded:
    """Encode one column by the statistics of the samples ``train``, or by public bounds where there are any."""
    known = train[~column.missing[train]]
    if not len(known):
        raise DataError(f'column "{column.name}" has no values in the training part; list it under `drop`')
    if column.numbers is not None:
        numbers = column.numbers[:, None]  # [n, 1]
        if bounds is None:
            mean, deviation = moments(numbers, train)
        else:
            mean, deviation = (np.array([each]) for each in _units(bounds.get(column.name)))
        return _Encoded(
            scale_columns(numbers, mean, deviation), Field(column.name, None, float(mean[0])), mean, deviation
        )
    levels = np.unique(column.cells[~column.missing])
    distinct, counts = np.unique(column.cells[known], return_counts=True)
    usual = distinct[counts.argmax()] if bounds is None else levels[0]
    cells = np.where(column.missing, usual, column.cells)
    hot: FloatArray = (cells[:, None] == levels).astype(np.float32)  # [n, levels]
    field = Field(column.name, tuple(map(str, levels)), str(usual))
    return _Encoded(hot, field, np.zeros(len(levels)), np.ones(len(levels)))
