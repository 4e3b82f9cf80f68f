"""Meaning of the features and targets of a data set: columns, classes and the affine map from raw values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import DataError
from p2pfl.core.texts import breaks

FloatArray = npt.NDArray[np.floating[Any]]
"""Number, or array of numbers, of the map from raw values to features."""


@dataclass(frozen=True)
class Field:
    """Column of a table before it becomes features.

    Parameters
    ----------
    name
        Name of the column.
    levels
        Categories of a text column in the order of their features, one feature each; ``None`` for a number.
    missing
        Value that replaces a missing cell: a number, or one of the levels; ``None`` if a cell must not be missing.
    unknown
        Level that replaces a text which is not one of the levels; ``None`` if there must be no such text.
    integer
        True if a number must be whole.
    codes
        Texts that stand for a missing cell of this column, such as ``-9``.
    range
        Lowest and highest number; ``None`` for any.
    outside_missing
        True if a number outside of the range is missing; otherwise it is an error.
    since
        Date in ISO 8601 from which the days to the dates in the cells are counted; ``None`` if the cells are no dates.
    drop
        True if a row is left out of training where the cell is missing.

    Raises
    ------
    DataError
        A name or a level contains a control character, such as a line break.
    """

    name: str
    levels: tuple[str, ...] | None = None
    missing: float | str | None = None
    unknown: str | None = None
    integer: bool = False
    codes: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    outside_missing: bool = False
    since: str | None = None
    drop: bool = False

    def __post_init__(self) -> None:
        for what, text in (("column", self.name), *(("level", level) for level in self.levels or ())):
            if breaks(text):
                raise DataError(f"the {what} {text!a} contains a line break or another control character; rename it")


@dataclass(frozen=True)
class Cells:
    """Rules for reading the text of a table's cells, before encoding.

    Parameters
    ----------
    missing
        Texts that stand for a missing cell, in lower case; the cell is compared in lower case, too.
    stripped
        True if white space around the text of a cell is removed first.
    """

    missing: tuple[str, ...]
    stripped: bool


@dataclass(frozen=True, eq=False)
class Description:
    r"""Affine map from raw values to features and targets.

    A raw row is first encoded as numbers: a number stays, a text becomes 1 for its level and 0 for each other level.
    Then each feature is :math:`(x - \mu) / \sigma`. A prediction :math:`y` of a number means
    :math:`y \cdot \sigma_y + \mu_y` in the unit of the raw target.

    Parameters
    ----------
    raw
        Raw values in words for a reader.
    columns
        Columns of a table in the order of their features; ``None`` if they have no names.
    mean, deviation
        :math:`\mu` and :math:`\sigma` of the encoded features: ``[F]``, or one number for all of them.
    classes
        Names of the classes in order; ``None`` if they are unknown or for regression.
    target
        Name of the target column, if it has one.
    target_mean, target_deviation
        :math:`\mu_y` and :math:`\sigma_y`.
    cells
        Format of the text of a cell; ``None`` where raw values are numbers.
    table
        Columns of the table from which a formula makes those of the features; ``None`` without a formula.
    declared
        True if the columns are as their owners have declared them, not as p2pfl has found them in the data.

    Examples
    --------
    >>> pixels = Description(raw="pixels from 0 to 255", deviation=255.0)
    >>> scaled = pixels.scaled(mean=np.array([0.5, 0.2]), deviation=np.array([0.1, 0.1]))
    >>> scaled.mean.tolist(), scaled.deviation.tolist()
    ([127.5, 51.0], [25.5, 25.5])
    """

    raw: str = "the features as they are"
    columns: tuple[Field, ...] | None = None
    mean: FloatArray | float = 0.0
    deviation: FloatArray | float = 1.0
    classes: tuple[str | int | float, ...] | None = None
    target: str | None = None
    target_mean: float = 0.0
    target_deviation: float = 1.0
    cells: Cells | None = None
    declared: bool = False
    table: tuple[Field, ...] | None = None

    @property
    def lacking(self) -> bool:
        """True if missing values of a column stay missing, as NaN."""
        return any(isinstance(column.missing, float) and np.isnan(column.missing) for column in self.columns or ())

    def scaled(self, *, mean: FloatArray, deviation: FloatArray) -> Description:
        r"""Return the description of the features after another :math:`(x - \mu) / \sigma`, ``[F]`` each."""
        return replace(self, mean=self.mean + self.deviation * mean, deviation=self.deviation * deviation)


def feature_names(features: int, columns: Sequence[Field] | None) -> list[str]:
    """Return the names of features: a column, or ``column=level``; ``x0``, ``x1`` and so on without columns.

    Examples
    --------
    >>> feature_names(3, [Field("age"), Field("sex", ("f", "m"))])
    ['age', 'sex=f', 'sex=m']
    """
    if columns is None:
        return [f"x{position}" for position in range(features)]
    return [
        column.name if level is None else f"{column.name}={level}"
        for column in columns
        for level in (column.levels or [None])
    ]
