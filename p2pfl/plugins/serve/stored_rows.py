""":class:`RowStore`, a table in a SQLite file that takes each message of a broker once."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.core.errors import P2PFLError
from p2pfl.plugins.serve.answers import MAX_BODY_BYTES
from p2pfl.plugins.serve.served_model import MAX_ROWS

MAX_TABLE_BYTES = 4 << 30
"""Largest file; when it is full, messages wait at the broker."""

MAX_NAME = 200
"""Largest number of letters of the name of a column."""

MAX_COLUMNS = 1000
"""Largest number of columns; SQLite accepts twice as many."""

LOCK_SECONDS = 30.0
"""Seconds to wait for another writer of the file."""

TABLE = "rows"
"""Name of the table in a new file."""

ADVICE = "send an object with a value by column, or a list of them"

Row = dict[str, Any]


class RowError(P2PFLError):
    """A message is no row of the table."""


def decode_rows(data: bytes) -> list[Row]:
    """Return the rows of a message.

    Parameters
    ----------
    data
        JSON: an object with a text, a number, a truth value or null by column, or a list of such objects.

    Raises
    ------
    RowError
        It is anything else.

    Examples
    --------
    >>> decode_rows(b'{"hall": "north", "celsius": 21.5}')
    [{'hall': 'north', 'celsius': 21.5}]
    """
    if len(data) > MAX_BODY_BYTES:
        raise RowError(f"it has more than {MAX_BODY_BYTES:,} bytes; send several messages")
    try:
        decoded = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise RowError(f"it is not JSON; {ADVICE}") from None
    rows = [decoded] if isinstance(decoded, dict) else decoded
    if not isinstance(rows, list) or not rows:
        raise RowError(f"it has no rows; {ADVICE}")
    if len(rows) > MAX_ROWS:
        raise RowError(f"it has {len(rows):,} rows, more than {MAX_ROWS:,}; send several messages")
    return [_checked(row) for row in rows]


def _checked(row: Any) -> Row:
    if not isinstance(row, dict):
        raise RowError("a row is not an object; send a value by column")
    if not 0 < len(row) <= MAX_COLUMNS:
        count = f"more than {MAX_COLUMNS:,}" if row else "no"
        raise RowError(f"a row has {count} columns; send a value by column")
    known = set[str]()
    for name, value in row.items():
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise RowError(f"{name!a:.60} is no name of a column; send a printable one of at most {MAX_NAME} letters")
        if name.lower() in known:
            raise RowError(f"two columns are named {name.lower()!a:.60}; rename one")
        known.add(name.lower())
        if isinstance(value, list | dict):
            raise RowError(f"the column {name!a:.60} holds several values; send one")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise RowError(f"the column {name!a:.60} holds a whole number of more than 64 bits; send a text")
    return {name: str(value) if isinstance(value, bool) else value for name, value in row.items()}


class RowStore:
    """Table in a SQLite file, and beside it which message of a broker was last stored under each number.

    Both change in one transaction, so a message that the broker sends again after a crash is no second row. An equal
    message under the same number of which the first transmission was lost looks alike; brokers use 65,535 numbers in
    turn. Tables whose names begin with ``p2pfl_`` are no tables to readers.

    Parameters
    ----------
    path
        The file, which need not exist. The columns are those of its table, or those of the first row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def client(self) -> str:
        """Return the name under which the file's messages wait at a broker.

        Raises
        ------
        sqlite3.Error
            The file cannot be written, or is no database.
        """
        with closing(self._open()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            _prepare(database)
            (name,) = database.execute("SELECT name FROM p2pfl_client").fetchone()
            return f"p2pfl-store-{name}"

    def add(self, data: bytes, *, topic: str, broker: str, number: int, repeated: bool) -> tuple[str, ...] | None:
        """Store the rows of a message, durably, unless they are stored already.

        Parameters
        ----------
        data, topic
            The message.
        broker
            Name of the broker.
        number
            Packet identifier; 0 for a message that does not arrive again.
        repeated
            True if the broker has sent the message before under this number.

        Returns
        -------
        tuple or None
            The columns, if they are those of this message because the file had no table.

        Raises
        ------
        RowError
            The message is no row of the table, and changes nothing.
        sqlite3.Error
            The file cannot be written; it is unchanged.
        """
        rows = decode_rows(data)
        digest = hashlib.sha256(topic.encode() + b"\0" + data).digest()
        with closing(self._open()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            _prepare(database)
            place = broker, number
            stored = database.execute("SELECT digest FROM p2pfl_messages WHERE (broker, number) = (?, ?)", place)
            if repeated and stored.fetchone() == (digest,):
                return None
            columns = _insert(database, rows)
            if number:
                database.execute("INSERT OR REPLACE INTO p2pfl_messages VALUES (?, ?, ?)", (*place, digest))
            return columns

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None)
        size = database.execute("PRAGMA page_size").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {MAX_TABLE_BYTES // size}")
        return database


def _prepare(database: sqlite3.Connection) -> None:
    """Create the tables that readers do not see."""
    database.execute("CREATE TABLE IF NOT EXISTS p2pfl_client (name TEXT NOT NULL)")
    database.execute(
        "CREATE TABLE IF NOT EXISTS p2pfl_messages (broker TEXT, number INTEGER, digest BLOB, "
        "PRIMARY KEY (broker, number)) WITHOUT ROWID"
    )
    name = secrets.token_hex(8)
    database.execute("INSERT INTO p2pfl_client SELECT ? WHERE NOT EXISTS (SELECT * FROM p2pfl_client)", (name,))


def _insert(database: sqlite3.Connection, rows: Sequence[Row]) -> tuple[str, ...] | None:
    """Insert rows into the only table, which the first row creates."""
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [name for name in tables if not name.startswith(("sqlite_", "p2pfl_"))]
    if len(tables) > 1:
        raise sqlite3.DatabaseError(f"it has {len(tables)} tables instead of one")
    created = None
    if not tables:
        tables, created = [TABLE], tuple(rows[0])
        database.execute(f"CREATE TABLE {TABLE} ({_quoted(created)})")
    table = _quoted(tables)
    columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
    for row in rows:
        if other := sorted(row.keys() - {*columns}):
            known = ", ".join(f"{name!a:.60}" for name in columns[:20])
            raise RowError(f"it has the column {other[0]!a:.60}, which the table lacks; send {known}")
        marks = ", ".join("?" * len(row))
        database.execute(f"INSERT INTO {table} ({_quoted(row)}) VALUES ({marks})", [*row.values()])  # noqa: S608 # nosec B608 -- names are quoted
    return created


def _quoted(names: Iterable[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)
