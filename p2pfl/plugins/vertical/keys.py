"""Keys of people: columns and rules that turn untidy cells of several owners into equal values.

A key is a list of parts ``column:rule``, such as ``["surname:text", "born:date"]``. Rules are ``text`` (letters and
digits without accents and case), ``digits`` (without leading zeros), ``date``, ``first:3`` (the first three characters
of ``text``) and ``exact``. A row without one of the parts has no value of the key, and neither have rows that share
one: repeated values would show how frequent they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.sources import nearest
from p2pfl.data.tables.cells import TextCells, is_missing
from p2pfl.data.tables.file_format import FileFormat, advised

PART = re.compile(r"(?P<column>.+?):(?P<rule>text|digits|date|exact|first:(?P<length>[1-9][0-9]?))")
"""Part of a key."""

EXAMPLE = 'write keys such as [["nhs:digits"], ["surname:text", "born:date"]]'

FLOAT = re.compile(r"[+-]?[0-9]+(?:[.,]0+|(?:[.,][0-9]+)?[eE][+-]?[0-9]+)")
"""Whole number that a program has written as a decimal one."""

MAX_REPEATED = 0.01
"""Largest share of rows that may repeat a value of the last key, which has no other one behind it."""

MAX_KEYS = 8
"""Largest number of keys; each costs as much as the first."""

SINCE = "1970-01-01"

BETWEEN = "\x1f"
"""Character between the parts of a value."""


@dataclass(frozen=True)
class PersonKey:
    """Key of a person.

    Parameters
    ----------
    parts
        Columns with the names of their rules.
    """

    parts: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The declaration, which all parties agree on and which pseudonyms depend on."""
        return ", ".join(f"{column}:{rule}" for column, rule in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column for column, _ in self.parts)


def read_keys(declared: Any) -> tuple[PersonKey, ...]:
    """Return declared keys.

    Raises
    ------
    DataError
        The declaration is none.

    Examples
    --------
    >>> [key.name for key in read_keys([["nhs:digits"], ["surname:first:3", "born:date"]])]
    ['nhs:digits', 'surname:first:3, born:date']
    """
    if not isinstance(declared, Sequence) or isinstance(declared, str) or not declared:
        raise DataError(f"`keys` is {declared!r}; {EXAMPLE}")
    if len(declared) > MAX_KEYS:
        raise DataError(f"`keys` has {len(declared)} keys, more than {MAX_KEYS}; keep those that match most rows")
    keys = tuple(PersonKey(tuple(map(_part, _listed(each)))) for each in declared)
    for position, key in enumerate(keys):
        if key in keys[:position]:
            raise DataError(f'`keys` contains "{key.name}" twice; leave one out')
    return keys


def _listed(declared: Any) -> Sequence[Any]:
    if not isinstance(declared, Sequence) or isinstance(declared, str) or not declared:
        raise DataError(f"`keys` contains {declared!r}, which is no list of columns with their rules; {EXAMPLE}")
    return declared


def _part(declared: Any) -> tuple[str, str]:
    match = PART.fullmatch(declared) if isinstance(declared, str) else None
    if match is None:
        raise DataError(
            f"`keys` contains {declared!r}; write a column and one of the rules text, digits, date, exact and first:3, "
            'such as "nhs:digits"'
        )
    return match["column"], match["rule"]


def identify_rows(
    cells: TextCells, keys: Sequence[PersonKey]
) -> tuple[tuple[tuple[str | None, ...], ...], tuple[str, ...]]:
    """Return the value of each key in each row, ``None`` where there is none, and sentences for the owner.

    Raises
    ------
    DataError
        A column is missing or has other cells than its rule takes, or too many rows repeat the last key.

    Examples
    --------
    >>> rows = {"nhs": lambda: ["0485 777", "485777", "17"], "name": lambda: ["Zoë", "Bo", "O'Neil"]}
    >>> cells = TextCells("ada.csv", rows, rows=3)
    >>> identify_rows(cells, read_keys([["nhs:digits"], ["name:text"]]))[0]
    ((None, None, '17'), ('zoe', 'bo', 'oneil'))
    """
    values, notes = [], list[str]()
    for key in keys:
        joined = _join(cells, key)
        counts = Counter(joined)
        del counts[None]
        repeated = sum(count for count in counts.values() if count > 1)
        if key == keys[-1] and repeated > MAX_REPEATED * len(cells):
            raise DataError(_repetition(cells, key, repeated))
        lacking = joined.count(None)
        if repeated or lacking:
            notes.append(
                f'of {len(cells):,} rows, {lacking:,} lack a part of the key "{key.name}" and {repeated:,} share its '
                "value with another row, so this key does not match them"
            )
        values.append(tuple(value if counts[value] == 1 else None for value in joined))
    if not any(value is not None for column in values for value in column):
        raise DataError(f"{cells.source} has no row with a value of a key; correct `keys` or the columns that it names")
    return tuple(values), tuple(notes)


def _repetition(cells: TextCells, key: PersonKey, repeated: int) -> str:
    columns = " and ".join(f'"{column}"' for column in key.columns)
    remedy = "" if len(key.parts) == 1 else ", or add a part to the key"
    return (
        f"{repeated:,} of {len(cells):,} rows of {cells.source} repeat a value of {columns}, the last key; aggregate "
        f"first, so that each person has one row{remedy}"
    )


def _join(cells: TextCells, key: PersonKey) -> list[str | None]:
    """Return the value of a key in each row."""
    columns = [_normalise(cells, column, rule) for column, rule in key.parts]
    return [BETWEEN.join(parts) if all(parts) else None for parts in zip(*columns, strict=True)]


def _normalise(cells: TextCells, column: str, rule: str) -> list[str]:
    """Return the cells of a column under a rule, with the empty text for missing ones."""
    if column not in cells.names:
        raise DataError(
            f'{cells.source} has no column "{column}", which the agreed keys name; {nearest(column, cells.names)}, or '
            "rename the column"
        )
    kept = ["" if is_missing(cell) else cell for cell in cells.column(column)]
    if rule in {"digits", "exact"}:
        _refuse_floats(cells, column, kept)
    normalised = list(map(_function(rule, cells.format), kept))
    if rule == "date" and any(kept) and not any(normalised):
        source, example = cells.source, next(cell for cell in kept if cell)
        raise DataError(
            f'"{example:.40}" and all other cells in column "{column}" of {source} are no dates in the form '
            f"{cells.format.dates}; {advised(Path(source), {'dates': '%d.%m.%Y | %Y-%m-%d'})}"
        )
    return normalised


def _refuse_floats(cells: TextCells, column: str, kept: Sequence[str]) -> None:
    wrong = [row for row, cell in enumerate(kept) if FLOAT.fullmatch(cell)]
    if wrong:
        others = f" (and in {len(wrong) - 1:,} more rows)" if len(wrong) > 1 else ""
        raise DataError(
            f'{cells.place(wrong[0])}: "{kept[wrong[0]]:.40}" in column "{column}" is a decimal number{others}, '
            "which may have lost digits of an id; save the column as text"
        )


def _function(rule: str, form: FileFormat) -> Callable[[str], str]:
    if rule == "text":
        return plain_text
    if rule == "digits":
        return _digits
    if rule == "date":
        return partial(_date, form)
    if rule == "exact":
        return str
    length = int(rule.partition(":")[2])
    return lambda cell: plain_text(cell)[:length]


def plain_text(cell: str) -> str:
    """Return the letters and digits of a cell, without accents and case.

    Examples
    --------
    >>> plain_text("Müller-Lüdenscheidt "), plain_text("O'NEIL"), plain_text("Straße")
    ('mullerludenscheidt', 'oneil', 'strasse')
    """
    whole = cell if cell.isascii() else unicodedata.normalize("NFKD", cell)
    return "".join(filter(str.isalnum, whole.casefold()))


def _digits(cell: str) -> str:
    whole = cell if cell.isascii() else unicodedata.normalize("NFKD", cell)
    digits = re.sub("[^0-9]", "", whole)
    return digits.lstrip("0") or digits[:1]


def _date(form: FileFormat, cell: str) -> str:
    """Return a date as YYYYMMDD, or nothing."""
    days = form.days(cell, since=SINCE)
    if np.isnan(days):
        return ""
    return str(np.datetime64(SINCE) + np.timedelta64(int(np.floor(days)), "D")).replace("-", "")
