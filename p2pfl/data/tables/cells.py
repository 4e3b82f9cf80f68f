"""The one reader of tables: CSV and SQLite with the standard library; Parquet and data frames through pyarrow."""

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from p2pfl.core.errors import DataError
from p2pfl.data.sources import nearest
from p2pfl.data.tables.file_format import PARQUET, PLAIN, SEPARATORS, SQLITE, SUFFIX, FileFormat, advised

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""Cells that stand for a missing value, in lower case."""

WHOLE = re.compile(r"(-?[0-9]+)[.,]0*")
"""A whole number as a program writes it that keeps whole numbers as decimal ones."""

BUSY_S = 30.0
"""Seconds for which a reader waits until a writer has left a database."""


class TextCells:
    """Cells of a table as text, column by column.

    A number of a Parquet file, database or data frame becomes its shortest text, so a table gives the same cells in
    each format; a missing value becomes the empty text.

    Parameters
    ----------
    source
        Name of the table in error messages.
    columns
        By name of a column, a function that returns its cells.
    rows
        Number of rows.
    lines
        Line of each row in a text file; ``None`` for other tables, whose rows are counted from 1.
    format
        Format of numbers and dates in the cells.

    Examples
    --------
    >>> patients = TextCells("the table", {"age": lambda: ["31", "44"]}, rows=2)
    >>> patients.column("age"), patients.place(1)
    (['31', '44'], 'the table, row 2')
    """

    def __init__(
        self,
        source: str,
        columns: Mapping[str, Callable[[], list[str]]],
        *,
        rows: int,
        lines: Sequence[int] | None = None,
        format: FileFormat = PLAIN,
    ) -> None:
        self.source, self.names, self.rows, self.format = source, tuple(columns), rows, format
        self._columns, self._lines = columns, lines
        self._places: Sequence[int] = range(rows)

    def __len__(self) -> int:
        return self.rows

    def column(self, name: str) -> list[str]:
        """Return the cells of a column without the white space around them.

        Raises
        ------
        DataError
            There is no such column.
        """
        if name not in self._columns:
            raise DataError(f'{self.source} has no column "{name}"; {nearest(name, self.names)}')
        return self._columns[name]()

    def beside(self, name: str, cell: str) -> "TextCells":
        """Return the table with another column, whose cells are alike."""
        columns = dict(self._columns) | {name: lambda: [cell] * self.rows}
        wider = TextCells(self.source, columns, rows=self.rows, lines=self._lines, format=self.format)
        wider._places = self._places
        return wider

    def keep(self, rows: Sequence[int]) -> "TextCells":
        """Return the table with some of its rows, counted from 0."""
        columns = {name: lambda column=column: _chosen(column(), rows) for name, column in self._columns.items()}
        kept = TextCells(self.source, columns, rows=len(rows), lines=self._lines, format=self.format)
        kept._places = _chosen(self._places, rows)
        return kept

    def place(self, row: int) -> str:
        """Return where a row, counted from 0, is found."""
        place = self._places[row]
        return f"{self.source}, {f'row {place + 1}' if self._lines is None else f'line {self._lines[place]}'}"


def read(source: Any, *, header: bool = True, growing: bool = False) -> TextCells:
    """Read a table.

    Parameters
    ----------
    source
        Path of a CSV, Parquet or SQLite file, or a data frame: an object with ``__arrow_c_stream__``, as those of
        pandas, polars and pyarrow are.
    header
        True if the first row of a CSV file names the columns; otherwise their names are "0", "1", ...
    growing
        True if somebody may write the file at the same time, so that it can be half written.

    Returns
    -------
    TextCells
        The cells.

    Raises
    ------
    DataError
        The file is missing or damaged, has no rows, or needs a package that is not installed; or it is half written.
    """
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if growing and path.suffix.lower() not in SQLITE:  # a database gives each reader one state
            return _unchanged(path, header=header)
        form, kind = FileFormat.beside(path), path.suffix.lower()
        if kind in SQLITE:
            cells = _sqlite(path, form)
        else:
            cells = _parquet(path, form) if kind in PARQUET else _csv(path, form, header=header)
        for name in form.factors:
            if name not in cells.names:
                raise DataError(
                    f'{path}{SUFFIX}: factors names "{name}", which is no column; {nearest(name, cells.names)}'
                )
        if form.window is not None:
            cells = cells.keep(range(len(cells))[-form.window :])
        if form.reservoir is not None:
            cells = cells.keep(_sampled(cells, form.reservoir))
    else:
        cells = _frame(source)
    if not len(cells):
        raise DataError(f"{cells.source} has no rows of data; check the file and the option `header`")
    return cells


def _sampled(cells: TextCells, size: int) -> list[int]:
    """Return the positions of a uniform sample of the rows, without replacement: those of the lowest priorities.

    The priority of a row is a digest of its cells and of how many equal rows precede it. So the same rows are chosen
    again after a restart, whatever rows the source has dropped; and where the table grows, those that leave the sample
    are the first of it, as of a window: the positions are in the order of falling priorities. A digest that everybody
    can compute hides no row, so no guarantee counts on who is chosen.

    References
    ----------
    Cohen and Kaplan, Summarizing data using bottom-k sketches, PODC 2007.
    """
    known = Counter[bytes]()
    priorities = list[tuple[bytes, int]]()
    for position, row in enumerate(zip(*(cells.column(name) for name in cells.names), strict=True)):
        content = json.dumps(row).encode()
        known[content] += 1
        digest = hashlib.blake2b(
            content, digest_size=16, salt=known[content].to_bytes(8, "little"), person=b"reservoir"
        )
        priorities.append((digest.digest(), position))
    return [position for _, position in sorted(priorities)[size - 1 :: -1]]


def _unchanged(path: Path, *, header: bool) -> TextCells:
    """Return the cells of a file that others may write, if it is whole and nobody wrote it meanwhile."""

    def state() -> tuple[int, ...]:
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    try:
        before = state()
        cells = read(path, header=header)
        if path.suffix.lower() not in PARQUET:
            with path.open("rb") as file:
                file.seek(max(0, before[1] - 4))
                last = file.read(4).rstrip(b"\0")  # half a letter of UTF-16
            if not last.endswith((b"\n", b"\r")):
                raise DataError(f"the last line of {path} does not end, so it may be half written; end each line")
        if state() != before:
            raise DataError(f"{path} was written while it was read; replace it by a file that is whole (rename)")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); check it") from None
    return cells


def _chosen(values: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    return [values[row] for row in rows]


def is_missing(cell: str, missing: Collection[str] = MISSING) -> bool:
    """Return whether a cell stands for a missing value."""
    return cell.lower() in missing


def drop_decimal_point(cell: str) -> str:
    """Return a whole number without its decimal point, and any other cell as it is.

    Examples
    --------
    >>> drop_decimal_point("1.0"), drop_decimal_point("1.5"), drop_decimal_point("01"), drop_decimal_point("east")
    ('1', '1.5', '01', 'east')
    """
    match = WHOLE.fullmatch(cell)
    return match[1] if match else cell


def _csv(path: Path, form: FileFormat, *, header: bool) -> TextCells:
    rows, lines = list[list[str]](), list[int]()
    try:
        with path.open(newline="", encoding=form.codec) as text:
            reader = csv.reader(text, delimiter=form.separator)
            for row in reader:
                if row:
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is no text in {form.encoding} ({error}); name its encoding in {path.name}{SUFFIX} beside it, such "
            'as encoding = "latin-1"'
        ) from None
    except (OSError, csv.Error) as error:
        raise DataError(f"{path} is not a comma-separated file ({error}); save it as such") from None
    if rows and (keys := form.other_separator(rows)):
        raise DataError(f"{path} is separated by {SEPARATORS[keys['separator']]}; {advised(path, keys)}")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            raise DataError(f"{path}, line {line}: {len(row)} cells instead of {len(rows[0])}; fix that row")
    names = (rows[0] if header else [str(position) for position in range(len(rows[0]))]) if rows else []
    body, lines = (rows[1:], lines[1:]) if header else (rows, lines)
    _check_names(names, str(path))
    columns = {name: lambda position=position: [row[position] for row in body] for position, name in enumerate(names)}
    return TextCells(str(path), columns, rows=len(body), lines=lines, format=form)


def _parquet(path: Path, form: FileFormat) -> TextCells:
    pa = _pyarrow(f"{path}, a Parquet file,")
    from pyarrow import parquet  # noqa: PLC0415 (an extra)

    try:
        table = parquet.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is not a Parquet file ({' '.join(str(error).split())}); check it") from None
    return _arrow(table, str(path), form)


def _sqlite(path: Path, form: FileFormat) -> TextCells:
    import sqlite3  # noqa: PLC0415 (Python of some boards has none, nor need of it)

    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as database:
            query = form.query or _whole_table(database, path)
            cursor = database.execute(query)
            names = [column[0] for column in cursor.description or ()]
            rows = [[cell_text(value) for value in row] for row in cursor]
    except (sqlite3.Error, sqlite3.Warning) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_DIRECTORY:
            raise DataError(
                f"{path} is in WAL mode, for which a reader writes files beside it; let the peer write to "
                f"{path.parent}, or have the writer set journal_mode to DELETE"
            ) from None
        raise DataError(
            f"{path} is not a SQLite database with such a table ({error}); correct it, or the query in "
            f"{path.name}{SUFFIX} beside it"
        ) from None
    _check_names(names, str(path))
    columns = {name: lambda position=position: [row[position] for row in rows] for position, name in enumerate(names)}
    return TextCells(str(path), columns, rows=len(rows), format=form)


def _whole_table(database: Any, path: Path) -> str:
    """Return the query for all rows of the only table of a database."""
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
    own = [name for name in names if not name.startswith(("sqlite_", "p2pfl_"))]
    if len(own) != 1:
        example = 'query = "SELECT * FROM readings"'
        raise DataError(
            f"{path} has {len(own)} tables ({', '.join(own) or 'none'}); choose rows by a query in {path.name}{SUFFIX} "
            f"beside it, such as {example}"
        )
    quoted = own[0].replace('"', '""')
    return f'SELECT * FROM "{quoted}"'  # noqa: S608 # nosec B608 -- a name of the database, quoted


def _frame(frame: Any) -> TextCells:
    if not hasattr(frame, "__arrow_c_stream__"):
        raise DataError(
            f"a table is a path or a data frame of pandas, polars or pyarrow, not {type(frame).__name__}; give one"
        )
    return _arrow(_pyarrow("a data frame").table(frame), "the data frame")


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 (an extra)
    except ImportError:
        raise DataError(
            f'{what} needs pyarrow, which is not installed; run `pip install "p2pfl-mqtt[table]"`'
        ) from None
    return pa


def _arrow(table: Any, source: str, form: FileFormat = PLAIN) -> TextCells:
    _check_names(table.column_names, source)
    columns = {
        name: lambda position=position: [cell_text(value) for value in table.column(position).to_pylist()]
        for position, name in enumerate(table.column_names)
    }
    return TextCells(source, columns, rows=table.num_rows, format=form)


def cell_text(value: Any) -> str:
    """Return the text of a cell of a Parquet file, a data frame or JSON.

    Examples
    --------
    >>> cell_text(None), cell_text(63.0), cell_text(" none ")
    ('', '63', 'none')
    """
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():  # pandas makes whole numbers with a missing one floats
        return str(int(value))
    return str(value).strip()


def _check_names(names: Sequence[str], source: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f'{source} has two columns named "{twice[0]}"; rename one')
