"""Messages become rows of a table, each once, and what is no row changes nothing."""

import json
import sqlite3
from contextlib import closing

import pytest

from p2pfl.data.tables.cells import read
from p2pfl.plugins.serve.stored_rows import RowError, RowStore, decode_rows

ROW = {"age": 63, "sex": "f", "weight": 70.5, "smokes": True, "ward": None}


@pytest.fixture
def store(tmp_path):
    return RowStore(tmp_path / "readings.sqlite")


def encoded(*rows):
    return json.dumps(rows).encode()


def rows_of(store):
    cells = read(store.path)
    return [*zip(*(cells.column(name) for name in cells.names), strict=True)]


def add(store, data, *, number=1, repeated=False, broker="mqtt://a:1883", topic="hall"):
    return store.add(data, topic=topic, broker=broker, number=number, repeated=repeated)


def test_a_message_is_a_row_of_a_table_that_peers_read_as_any_other(store):
    assert add(store, json.dumps(ROW).encode()) == ("age", "sex", "weight", "smokes", "ward")
    assert add(store, encoded({"age": 44}, ROW | {"sex": "m"}), number=2) is None
    assert read(store.path).names == tuple(ROW)
    assert rows_of(store) == [
        ("63", "f", "70.5", "True", ""),
        ("44", "", "", "", ""),
        ("63", "m", "70.5", "True", ""),
    ]


def test_a_message_that_arrives_again_is_no_second_row(store):
    add(store, encoded(ROW))
    add(store, encoded(ROW), repeated=True)
    assert len(rows_of(store)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"repeated": False},  # an equal reading under a number that is free again
        {"repeated": True, "number": 2},
        {"repeated": True, "broker": "mqtt://b:1883"},
        {"repeated": True, "topic": "roof"},
    ],
)
def test_an_equal_row_of_another_message_is_a_second_row(store, other):
    add(store, encoded(ROW))
    add(store, encoded(ROW), **other)
    assert len(rows_of(store)) == 2


def test_a_message_that_arrives_again_after_others_under_its_number_is_another_one(store):
    add(store, encoded({"age": 1}))
    add(store, encoded({"age": 2}))
    add(store, encoded({"age": 1}), repeated=True)
    assert rows_of(store) == [("1",), ("2",), ("1",)]


def test_rows_and_the_number_of_their_message_are_stored_together_or_not_at_all(store):
    add(store, encoded({"age": 1}))
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON rows WHEN NEW.age = 3 BEGIN SELECT RAISE(ABORT, 'x'); END"
        )
    with pytest.raises(sqlite3.Error):
        add(store, encoded({"age": 2}, {"age": 3}), number=2)
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute("DROP TRIGGER full")
    assert rows_of(store) == [("1",)]
    add(store, encoded({"age": 2}, {"age": 3}), number=2, repeated=True)
    assert rows_of(store) == [("1",), ("2",), ("3",)]


def test_the_table_of_a_file_that_exists_gives_the_columns(store):
    with closing(sqlite3.connect(store.path)) as database, database:
        database.execute('CREATE TABLE "my readings" ("a ""b""" REAL, c TEXT)')
    assert add(store, encoded({"c": "x", 'a "b"': 1})) is None
    assert rows_of(store) == [("1", "x")]
    with pytest.raises(RowError, match=r"^it has the column 'd', which the table lacks; send 'a \"b\"', 'c'$"):
        add(store, encoded({"d": 1}))


def test_the_name_of_a_client_is_that_of_its_file(store, tmp_path):
    assert store.client() == store.client() == RowStore(store.path).client()
    assert store.client() != RowStore(tmp_path / "other.sqlite").client()


def test_a_full_table_is_refused_before_the_disk_is(store, monkeypatch):
    monkeypatch.setattr("p2pfl.plugins.serve.stored_rows.MAX_TABLE_BYTES", 64 << 10)

    def fill():
        for number in range(100):
            add(store, encoded({"note": "x" * 4000}), number=number)

    with pytest.raises(sqlite3.Error, match="full"):
        fill()
    assert store.path.stat().st_size <= 64 << 10
    assert 5 < len(rows_of(store)) < 17


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is not JSON; send an object with a value by column, or a list of them"),
        (b"\xff", "it is not JSON; send an object with a value by column, or a list of them"),
        (b"[" * 100_000, "it is not JSON; send an object with a value by column, or a list of them"),
        (b'{"x": NaN}', "it is not JSON; send an object with a value by column, or a list of them"),
        (b"7", "it has no rows; send an object with a value by column, or a list of them"),
        (b"[]", "it has no rows; send an object with a value by column, or a list of them"),
        (b"[7]", "a row is not an object; send a value by column"),
        (b"{}", "a row has no columns; send a value by column"),
        (b'{"x": [1]}', "the column 'x' holds several values; send one"),
        (b'{"x": {}}', "the column 'x' holds several values; send one"),
        (b'{"x": 1e999}', "it is not JSON; send an object with a value by column, or a list of them"),
        (b'{"x": 9223372036854775808}', "the column 'x' holds a whole number of more than 64 bits; send a text"),
        (b'{"": 1}', "'' is no name of a column; send a printable one of at most 200 letters"),
        (b'{"a\\u0000": 1}', "'a\\x00' is no name of a column; send a printable one of at most 200 letters"),
        (b'{"x": 1, "X": 2}', "two columns are named 'x'; rename one"),
        (b"[" + b"{}," * 10_000 + b"{}]", "it has 10,001 rows, more than 10,000; send several messages"),
        (b" " * ((4 << 20) + 1), "it has more than 4,194,304 bytes; send several messages"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_message_that_is_no_row_says_why(store, data, reason):
    with pytest.raises(RowError) as error:
        decode_rows(data)
    assert str(error.value) == reason
    with pytest.raises(RowError):
        add(store, data)
    with closing(sqlite3.connect(store.path)) as database:
        assert "rows" not in [name for (name,) in database.execute("SELECT name FROM sqlite_schema")]


def test_no_text_of_a_message_is_read_as_sql(store):
    evil = 'x"); DROP TABLE rows; --'
    add(store, encoded({evil: "'; DROP TABLE rows; --"}))
    assert read(store.path).column(evil) == ["'; DROP TABLE rows; --"]
