"""Format of one owner's table: a small file beside it states it, and no other peer sees it."""

from __future__ import annotations

import codecs
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.sources import nearest

SUFFIX = ".toml"
"""Ending that the name of a table gets for the file that states its format."""

PARQUET = (".parquet", ".pq")
"""Endings of the names of Parquet files."""

SQLITE = (".sqlite", ".sqlite3", ".db")
"""Endings of the names of SQLite databases."""

TEXT_KEYS = ("separator", "decimal", "encoding")
"""Keys for tables that are text; the numbers of others are no text."""

LIMITS = ("window", "reservoir")
"""Keys that limit the rows that count."""

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""Usual separators, with the words for them."""

DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
"""Number with a decimal comma."""

DATE_PARTS = {
    "%d": "(?P<d>[0-9]{1,2})",
    "%m": "(?P<m>[0-9]{1,2})",
    "%Y": "(?P<Y>[0-9]{4})",
    "%y": "(?P<y>[0-9]{2})",
}
"""Parts of the form of a date, with the digits that they stand for."""

TIME = r"(?:[T ](?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?"
"""Time of the day after a date."""

CENTURY = "69"
"""First year of two digits that is one of the last century, as POSIX has it."""


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """Format of a table in a file.

    Parameters
    ----------
    separator
        Character between two cells of a CSV file.
    decimal
        Character before the fraction of a number in a CSV file: a point or a comma.
    encoding
        Encoding of a CSV file, as Python names it.
    dates
        Form of dates: ``%d``, ``%m`` and ``%Y`` stand for day, month and year, ``%y`` for its last two digits, of which
        69 to 99 mean the last century. A time of the day may follow. Several forms have vertical bars between them; the
        first one that fits a cell counts.
    factors
        By name of a column of numbers, the factor from the unit of the file to the declared one.
    query
        Query of a SQLite database, whose result is the table; ``None`` for all rows of its only table.
    window
        Number of rows at the end that count; ``None`` for all.
    reservoir
        Number of rows of a uniform sample, which alone count; ``None`` for all.

    Examples
    --------
    >>> european = FileFormat(separator=";", decimal=",", dates="%d.%m.%Y")
    >>> european.number("155,5"), european.days("03.01.2020", since="2020-01-01")
    (155.5, 2.0)
    >>> FileFormat(factors={"weight": 0.5}).number("155", column="weight")
    77.5
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    dates: str = "%Y-%m-%d"
    factors: Mapping[str, float] = field(default_factory=dict)
    query: str | None = None
    window: int | None = None
    reservoir: int | None = None

    @classmethod
    def beside(cls, table: Path) -> FileFormat:
        """Return the format that the file beside a table states; the default if there is none.

        Raises
        ------
        DataError
            The file is no TOML, or a key or value is not valid for such a table.
        """
        path = table.with_name(table.name + SUFFIX)
        if not path.is_file():
            return cls()
        try:
            given = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise DataError(f"{path} is no TOML file ({error}); correct it, or remove it") from None
        known, kind = [each.name for each in fields(cls)], table.suffix.lower()
        for key, value in given.items():
            if key not in known:
                raise DataError(f'{path} has the unknown key "{key}"; {nearest(key, known)}')
            if key in TEXT_KEYS and kind in {*PARQUET, *SQLITE}:
                raise DataError(f"{path} has {key}, which only CSV files need; leave it out")
            if key == "query" and kind not in SQLITE:
                raise DataError(f"{path} has query, which only SQLite databases answer; leave it out")
            if key not in {"factors", *LIMITS} and not isinstance(value, str):
                raise DataError(f"{path}: {key} is {value!r}; write a text")
        stated = cls(**given)
        for wrong, remedy in stated._errors():
            raise DataError(f"{path}: {wrong}; {remedy}")
        return stated

    def _errors(self) -> list[tuple[str, str]]:
        errors = []
        if len(self.separator) != 1 or self.separator in '"\r\n':
            errors.append((f"separator is {self.separator!r}", "write one character, such as ;"))
        if self.decimal not in {".", ","} or self.decimal == self.separator:
            errors.append((f"decimal is {self.decimal!r}", "write a point or a comma that is not the separator"))
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            errors.append((f"encoding {self.encoding!r} is unknown", 'write one of Python, such as "latin-1"'))
        if not all(
            each.count("%d") == each.count("%m") == len(re.findall("%[Yy]", each)) == 1
            for each in self.dates.split("|")
        ):
            errors.append((f"dates is {self.dates!r}", "write %d, %m and %Y, such as %d.%m.%Y"))
        named = self.factors if isinstance(self.factors, Mapping) else {"": None}
        if not all(isinstance(each, int | float) and 0 < each < math.inf for each in named.values()):
            remedy = "write numbers above 0 by column, such as { weight = 0.4536 }"
            errors.append((f"factors is {self.factors!r}", remedy))
        for key in LIMITS:
            size = getattr(self, key)
            if size is not None and (type(size) is not int or size < 1):
                errors.append((f"{key} is {size!r}", "write a whole number of rows above 0"))
        if self.window is not None and self.reservoir is not None:
            errors.append(("window and reservoir are both given", "keep one of them"))
        return errors

    @property
    def codec(self) -> str:
        """Name of the codec; one of UTF-8 skips the mark with which some programs begin a file."""
        return "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding

    def number(self, cell: str, *, column: str = "") -> float:
        """Return the number of a cell, in the declared unit of its column; NaN if it is none."""
        if self.decimal == ",":
            cell = "" if "." in cell else cell.replace(",", ".")
        try:
            return float(cell) * self.factors.get(column, 1)
        except ValueError:
            return float("nan")

    def days(self, cell: str, *, since: str) -> float:
        """Return the days from a date in ISO 8601 to the date in a cell; NaN if it is none."""
        for form in self._dates:
            match = form.fullmatch(cell)
            if match is None:
                continue
            parts = match.groupdict()
            year = parts.get("Y") or f"{'19' if parts['y'] >= CENTURY else '20'}{parts['y']}"
            try:
                day = np.datetime64(f"{year}-{parts['m']:>02}-{parts['d']:>02}T{parts['time'] or '00:00'}", "us")
            except ValueError:
                continue
            return float((day - np.datetime64(since)) / np.timedelta64(1, "D"))
        return float("nan")

    @cached_property
    def _dates(self) -> list[re.Pattern[str]]:
        patterns = [re.escape(each.strip()) for each in self.dates.split("|")]
        for part, digits in DATE_PARTS.items():
            patterns = [pattern.replace(part, digits) for pattern in patterns]
        return [re.compile(pattern + TIME) for pattern in patterns]

    def other_separator(self, rows: Sequence[Sequence[str]]) -> dict[str, str]:
        """Return the keys that a file needs whose rows have one cell each, because another character separates them.

        Returns
        -------
        dict
            Keys and values of the file beside the table; nothing if the separator is right.
        """
        if len(rows[0]) != 1:
            return {}
        counts = {each: rows[0][0].count(each) for each in SEPARATORS if each != self.separator}
        separator = max(counts, key=lambda each: counts[each])
        if not counts[separator]:
            return {}
        cells = (cell for row in rows[1:] for cell in self.separator.join(row).split(separator))
        comma = separator != "," and any(DECIMAL_COMMA.fullmatch(cell.strip()) for cell in cells)
        return {"separator": separator} | ({"decimal": ","} if comma else {})


PLAIN = FileFormat()
"""Format of a table without such a file, and of tables that are no text."""


def advised(table: Path, keys: dict[str, str]) -> str:
    r"""Return the advice to state keys in the file beside a table.

    Examples
    --------
    >>> advised(Path("north.csv"), {"separator": ";", "decimal": ","})
    'write separator = ";" and decimal = "," to north.csv.toml beside it'
    """
    written = " and ".join(f'{key} = "{value}"'.replace("\t", r"\t") for key, value in keys.items())
    return f"write {written} to {table.name}{SUFFIX} beside it"
