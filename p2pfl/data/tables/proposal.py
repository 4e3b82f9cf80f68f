"""Proposal of a declaration, from the table of one owner."""

import math
from collections import Counter
from typing import Any

from p2pfl.core.errors import DataError
from p2pfl.data.tables.cells import TextCells, drop_decimal_point, is_missing
from p2pfl.data.tables.encoding import number

FEW_ROWS = 8
"""Rows of a table that is an example rather than data: any text in it may be a category."""

LEAST_ROWS = 5
"""Rows of a level that a proposal names; the declaration goes to all owners, and a rarer level may be one person."""

OTHER = "other"
"""Level that takes the place of rarer ones."""

MOST_LEVELS = 50
"""Largest number of different texts that a proposal takes for the levels of a column."""

MOST_CLASSES = 20
"""Largest number of different whole numbers in a target that stand for classes."""


def propose(cells: TextCells, *, target: str) -> tuple[dict[str, Any], list[str]]:
    """Propose the declaration of a table's columns.

    A column of numbers is a ``number`` or, if all are whole, an ``integer``. A column of text is the list of its levels
    in sorted order; so is a target of few whole numbers. A column with other texts is left out. Levels of few rows are
    not named: ``other`` takes their place in a feature, except in a table of a few rows.

    Parameters
    ----------
    cells
        Table of one owner.
    target
        Column to predict.

    Returns
    -------
    columns
        Declaration for :class:`~p2pfl.data.tables.declaration.Table`.
    remarks
        Sentences on what the owner must decide.

    Raises
    ------
    DataError
        There is no such target, or it is missing in some rows.

    Examples
    --------
    >>> rows = {"age": lambda: ["31", ""], "sex": lambda: ["m", "f"], "ill": lambda: ["1", "0"]}
    >>> columns, remarks = propose(TextCells("patients", rows, rows=2), target="ill")
    >>> columns
    {'age': 'integer', 'sex': ['f', 'm'], 'ill': ['0', '1']}
    >>> remarks
    ['"age" is missing in 1 of 2 rows; declare `missing`, or fill these cells']
    """
    if gone := sum(map(is_missing, cells.column(target))):
        raise DataError(f'the target "{target}" is missing in {gone} rows of {cells.source}; remove these rows')
    columns: dict[str, Any] = {}
    remarks = []
    for name in cells.names:
        column = cells.column(name)
        known = [cell for cell in column if not is_missing(cell)]
        kind = _kind(known, most=MOST_CLASSES if name == target else 0)
        if kind is None:
            what = f"has {len(set(known))} different texts" if known else "has no values"
            remarks.append(f'"{name}" {what} and is left out; declare it if it is a feature')
            continue
        rare = _rare(known, kind)
        columns[name] = kind
        if rare and name != target:
            columns[name] = {"levels": sorted({*kind} - rare | {OTHER}), "unknown": OTHER}
            remarks.append(
                f'"{name}" has {_levels(rare)}, for which "{OTHER}" stands, because all owners read the declaration; '
                "declare those that others have too"
            )
        elif rare:
            remarks.append(
                f'"{name}" has {_levels(rare)}, which may be that of one person, and all owners read the declaration; '
                "decide whether they may"
            )
        if len(known) < len(column):
            gone = len(column) - len(known)
            remarks.append(
                f'"{name}" is missing in {gone} of {len(column)} rows; declare `missing`, or fill these cells'
            )
    return columns, remarks


def _rare(cells: list[str], kind: Any) -> set[str]:
    """Return the levels of a column that few rows have; none in a table that is an example."""
    if not isinstance(kind, list) or len(cells) <= FEW_ROWS:
        return set()
    counts = Counter(cell if cell in kind else drop_decimal_point(cell) for cell in cells)
    return {level for level, count in counts.items() if count < LEAST_ROWS}


def _levels(levels: set[str]) -> str:
    return f"{'a level' if len(levels) == 1 else f'{len(levels)} levels'} of fewer than {LEAST_ROWS} rows"


def _kind(cells: list[str], *, most: int) -> Any:
    """Return the type or the levels of a column; ``None`` if it is neither.

    In a table of more than a few rows, text of which most values are different is no category: names and identifiers of
    persons must not get into an experiment file.
    """
    numbers = [number(cell) for cell in cells]
    if cells and all(map(math.isfinite, numbers)):
        if not all(number.is_integer() for number in numbers):
            return "number"
        codes = {drop_decimal_point(cell) for cell in cells}
        return sorted(codes, key=float) if len(codes) <= most else "integer"
    levels = sorted(set(cells))
    identifies = len(cells) > FEW_ROWS and 2 * len(levels) > len(cells)
    return levels if 0 < len(levels) <= MOST_LEVELS and not identifies else None
