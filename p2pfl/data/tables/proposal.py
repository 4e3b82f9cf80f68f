"""Proposal of a declaration, from the table of one owner."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from p2pfl.core.errors import DataError
from p2pfl.data.tables.cells import TextCells, drop_decimal_point, is_missing
from p2pfl.data.tables.file_format import PLAIN, advised

FEW_ROWS = 8
"""Rows of a table that is an example rather than data: any text in it may be a category."""

LEAST_ROWS = 5
"""Rows of a level that a proposal names; the declaration goes to all owners, and a rarer level may be one person."""

OTHER = "other"
"""Level that takes the place of rarer ones."""

MOST_LEVELS = 50
"""Largest number of different texts that a proposal takes for the levels of a column."""

MOST_CODES = 10
"""Different whole numbers of a feature from which on they are amounts rather than codes of levels."""

CODES = frozenset({-1, -7, -8, -9, -77, -88, -99, -777, -888, -999, -9999})
"""Numbers that often stand for a missing value."""

IDENTIFIED_ROWS = 100
"""Least number of rows whose whole numbers, all of them different, are no coincidence."""

DIFFERENT_SHARE = 0.95
"""Share of different texts from which on a column is an identifier, of which a few rows repeat another."""

FEW_WORDS = 3
"""Mean number of words of a cell above which a column is free text."""

ISO = PLAIN.dates

DATE_FORMS = (ISO, "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y")
"""Forms of dates, the first of which needs no file beside the table."""

MOST_CLASSES = 20
"""Largest number of different whole numbers in a target that stand for classes."""


def propose(cells: TextCells, *, target: str) -> tuple[dict[str, Any], list[str]]:
    """Propose the declaration of a table's columns.

    A column of numbers is a ``number`` or, if all are whole, an ``integer``. A column of text is the list of its levels
    in sorted order; so is one of few whole numbers, except two in a feature. Constants, dates, free text, identifiers
    and columns with other texts are left out. Levels of few rows are not named: ``other`` takes their place in a
    feature, except in a table of a few rows. A negative number that stands for a missing value is declared as its code.

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
    ['"age" is missing in 1 of 2 rows; declare `missing`, such as "drop", or fill these cells']
    """
    if gone := sum(map(is_missing, cells.column(target))):
        raise DataError(f'the target "{target}" is missing in {gone} rows of {cells.source}; remove these rows')
    columns: dict[str, Any] = {}
    remarks = []
    for name in cells.names:
        column = cells.column(name)
        known = [cell for cell in column if not is_missing(cell)]
        code = None if name == target else _code(known, cells)
        if code is not None:
            known = [cell for cell in known if cells.format.number(cell) != code]
        kind = _kind(known, cells, most=MOST_CLASSES) if name == target else _feature_kind(known, cells)
        if kind is None:
            remarks.append(f'"{name}" {_reason(known, cells)}')
            continue
        columns[name] = kind
        if code is not None:
            remarks.append(
                f'"{name}" is {code} in {column.count(str(code))} of {len(column)} rows, which usually stands for a '
                "missing value; leave `missing_codes` out if it is a number"
            )
        remarks += _remarks(name, column, known, kind, cells, target=target)
        if isinstance(kind, list) and name != target and (rare := _rare(known, kind)):
            columns[name] = {"levels": sorted({*kind} - rare | {OTHER}), "unknown": OTHER}
        if code is not None:
            rule = kind if isinstance(columns[name], str) else columns[name]
            declared = rule if isinstance(rule, dict) else {"levels" if isinstance(rule, list) else "type": rule}
            columns[name] = declared | {"missing_codes": [code]}
    return columns, remarks


def _remarks(name: str, column: list[str], known: list[str], kind: Any, cells: TextCells, *, target: str) -> list[str]:
    """Return sentences on what the owner must decide about a column."""
    remarks = []
    rare = _rare(known, kind)
    if rare and name != target:
        remarks.append(
            f'"{name}" has {_levels(rare)}, for which "{OTHER}" stands, because all owners read the declaration; '
            "declare those that others have too"
        )
    elif rare:
        remarks.append(
            f'"{name}" has {_levels(rare)}, which may be that of one person, and all owners read the declaration; '
            "decide whether they may"
        )
    if name != target and isinstance(kind, list) and math.isfinite(cells.format.number(kind[-1])):
        remarks.append(
            f'"{name}" has {len(kind)} different whole numbers, which are declared as levels; declare "integer" if '
            "they are amounts"
        )
    if len(known) < len(column):
        gone = len(column) - len(known)
        remarks.append(
            f'"{name}" is missing in {gone} of {len(column)} rows; declare `missing`, such as "drop", or fill these '
            "cells"
        )
    return remarks


def _code(known: list[str], cells: TextCells) -> int | None:
    """Return the number that stands for a missing value by all appearances; ``None`` if none does.

    It is the only negative number of a column, and a usual code.
    """
    negative = {number for number in map(cells.format.number, known) if number < 0}
    code = negative.pop() if len(negative) == 1 else math.nan
    return int(code) if code in CODES and all(math.isfinite(cells.format.number(cell)) for cell in known) else None


def _rare(cells: list[str], kind: Any) -> set[str]:
    """Return the levels of a column that few rows have; none in a table that is an example."""
    if not isinstance(kind, list) or len(cells) <= FEW_ROWS:
        return set()
    counts = Counter(cell if cell in kind else drop_decimal_point(cell) for cell in cells)
    return {level for level, count in counts.items() if count < LEAST_ROWS}


def _levels(levels: set[str]) -> str:
    return f"{'a level' if len(levels) == 1 else f'{len(levels)} levels'} of fewer than {LEAST_ROWS} rows"


def _feature_kind(known: list[str], cells: TextCells) -> Any:
    """Return the type or the levels of a feature; ``None`` if it is neither, or of no use as one."""
    different = {drop_decimal_point(cell) for cell in known}
    many = len(known) > FEW_ROWS
    if many and (len(different) == 1 or (len(different) == len(known) >= IDENTIFIED_ROWS and _whole(known, cells))):
        return None
    few = 2 < len(different) < MOST_CODES and LEAST_ROWS * len(different) <= len(known)
    return None if _dates(known, cells) else _kind(known, cells, most=MOST_CODES if few else 0)


def _whole(known: list[str], cells: TextCells) -> bool:
    return all(number.is_integer() for number in map(cells.format.number, known))


def _kind(known: list[str], cells: TextCells, *, most: int) -> Any:
    """Return the type or the levels of a column; ``None`` if it is neither.

    In a table of more than a few rows, text of which most values are different is no category: names and identifiers of
    persons must not get into an experiment file.
    """
    if known and all(math.isfinite(cells.format.number(cell)) for cell in known):
        if not _whole(known, cells):
            return "number"
        codes = {drop_decimal_point(cell) for cell in known}
        return sorted(codes, key=float) if len(codes) <= most else "integer"
    levels = sorted(set(known))
    identifies = len(known) > FEW_ROWS and 2 * len(levels) > len(known)
    return levels if 0 < len(levels) <= MOST_LEVELS and not identifies else None


def _reason(known: list[str], cells: TextCells) -> str:
    """Return why a column is left out, and what to do if it is a feature."""
    different = len(set(known))
    if not known:
        return "has no values and is left out; declare it if others have some"
    if different == 1:
        return "has the same value in all rows and is left out; declare it if others have another"
    if form := _dates(known, cells):
        written = "" if form == cells.format.dates else f", and {advised(Path(cells.source), {'dates': form})}"
        declared = '{ type = "date", since = "2000-01-01" }'
        return f"has dates and is left out; if it is a feature, declare it as {declared}{written}"
    if sum(len(cell.split()) for cell in known) > FEW_WORDS * len(known):
        return "has free text and is left out; do not declare it"
    if different >= DIFFERENT_SHARE * len(known):
        return "looks like an identifier and is left out; name it as `key` if it identifies persons"
    return f"has {different} different texts and is left out; declare it if it is a feature"


def _dates(known: list[str], cells: TextCells) -> str:
    """Return the form of the dates in all cells; nothing if they are no dates."""
    if not known or math.isfinite(cells.format.number(known[0])):
        return ""
    forms = DATE_FORMS if cells.format.dates == ISO else (cells.format.dates,)
    for form in forms:
        parsed = replace(cells.format, dates=form)
        if all(math.isfinite(parsed.days(cell, since="2000-01-01")) for cell in known):
            return form
    return ""
