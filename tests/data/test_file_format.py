"""The format of one owner's table: separator, decimal, encoding and dates, in a file beside it."""

import math
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DataError
from p2pfl.data import Table
from p2pfl.data.tables import propose, read
from p2pfl.data.tables.common_table import csv
from p2pfl.data.tables.file_format import FileFormat

PLAIN_TEXT = "born,weight,name,ill\n1970-01-31,81.5,Zoë,1\n1971-12-01,-70,Bo,0\n"
EUROPEAN = "born;weight;name;ill\n31.01.1970;81,5;Zoë;1\n01.12.1971;-70;Bo;0\n"
FORMAT = 'separator = ";"\ndecimal = ","\nencoding = "latin-1"\ndates = "%d.%m.%Y"\n'
COLUMNS = {"born": {"type": "date", "since": "1970-01-01"}, "weight": "number", "name": ["Bo", "Zoë"], "ill": [0, 1]}


@pytest.fixture
def table(tmp_path):
    def write(text, form=None, encoding="utf-8"):
        path = tmp_path / "north.csv"
        path.write_text(text, encoding=encoding)
        if form is not None:
            (tmp_path / "north.csv.toml").write_text(form)
        return path

    return write


def test_a_european_table_gives_what_a_plain_one_gives(table):
    plain = Table(COLUMNS, target="ill").read(table(PLAIN_TEXT))
    european = Table(COLUMNS, target="ill").read(table(EUROPEAN, FORMAT, encoding="latin-1"))
    for one, other in zip(plain, european, strict=True):
        assert one.tolist() == other.tolist()
    assert plain[0].tolist() == [[30, 0, 1, 81.5], [699, 1, 0, -70]]


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "north.sqlite"
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE people (born TEXT, weight REAL, name TEXT, ill INTEGER)")
        rows = [("1970-01-31", 81.5, "Zoë", 1), ("1971-12-01", -70.0, "Bo", 0)]
        opened.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)
    return path


def test_a_database_gives_what_a_plain_table_gives(table, database):
    plain, stored = (Table(COLUMNS, target="ill").read(path) for path in (table(PLAIN_TEXT), database))
    assert all(one.tolist() == other.tolist() for one, other in zip(plain, stored, strict=True))


def test_a_query_chooses_rows_and_columns_while_another_program_writes(database):
    database.with_name("north.sqlite.toml").write_text('query = "SELECT weight, ill FROM people WHERE weight > 0"')
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("INSERT INTO people VALUES ('1970-01-01', 9.0, 'Bo', 1)")  # not committed
        assert read(database, growing=True).column("weight") == ["81.5"]
        writer.commit()
    assert read(database, growing=True).column("weight") == ["81.5", "9"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            "SELECT height FROM people",
            r"no such column: height\); correct it, or the query in north\.sqlite\.toml beside",
        ),
        ("DELETE FROM people", r"attempt to write a readonly database\); correct"),
        ("SELECT 1; SELECT 2", r"one statement at a time\.?\); correct"),
        (
            None,
            r"has 2 tables \(people, more\); choose rows by a query in north\.sqlite\.toml beside it, such as",
        ),
    ],
)
def test_a_query_that_gives_no_table_is_refused_and_changes_nothing(database, query, sentence):
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("CREATE TABLE more (x REAL)")
    if query:
        database.with_name("north.sqlite.toml").write_text(f'query = "{query}"')
    before = database.read_bytes()
    with pytest.raises(DataError, match=sentence):
        read(database)
    assert database.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "north.db"
    with pytest.raises(DataError, match="unable to open database file"):
        read(path)
    path.write_text("a,b\n1,2\n" * 100)
    with pytest.raises(DataError, match="file is not a database"):
        read(path)


def test_factors_hold_for_databases(database):
    beside = database.with_name("north.sqlite.toml")
    beside.write_text("factors = { weight = 2 }\n")
    weights = Table(COLUMNS, target="ill").read(database)[0][:, 3]
    assert weights.tolist() == [163, -140]
    beside.write_text("factors = { waist = 2 }\n")
    with pytest.raises(DataError, match='factors names "waist", which is no column'):
        read(database)


@pytest.mark.parametrize("line", ['separator = ";"', 'decimal = ","', 'encoding = "latin-1"'])
@pytest.mark.parametrize("name", ["north.sqlite", "north.parquet"])
def test_keys_of_text_are_refused_beside_other_tables(tmp_path, name, line):
    (tmp_path / f"{name}.toml").write_text(line)
    with pytest.raises(DataError, match=rf"{name}\.toml has {line.split()[0]}, which only CSV files need; leave"):
        read(tmp_path / name)


def test_a_query_beside_a_text_is_refused(table):
    with pytest.raises(DataError, match=r"csv\.toml has query, which only SQLite databases answer; leave it out"):
        read(table(PLAIN_TEXT, 'query = "SELECT 1"'))


def test_factors_hold_for_parquet_files(tmp_path):
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "north.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"weight": [81.5, -70.0], "ill": [1, 0]}), path)
    path.with_name("north.parquet.toml").write_text("factors = { weight = 2 }\n")
    features, _ = Table({"weight": "number", "ill": [0, 1]}, target="ill").read(path)
    assert features[:, 0].tolist() == [163, -140]


def test_a_row_of_a_window_keeps_its_place_beside_another_column(table):
    cells = read(table(PLAIN_TEXT, "window = 1"))
    assert cells.beside("x", "1").place(0) == cells.place(0)


@pytest.mark.parametrize(("window", "weights"), [(1, ["-70"]), (2, ["81.5", "-70"]), (9, ["81.5", "-70"])])
def test_a_window_keeps_the_last_rows(table, window, weights):
    cells = read(table(PLAIN_TEXT, f"window = {window}"))
    assert cells.column("weight") == weights
    assert cells.place(len(weights) - 1).endswith("line 3")


def test_one_table_for_everybody_may_be_european_too(table):
    path = table("weight;ill\n81,5;1\n70,0;0\n64,5;0\n", 'separator = ";"\ndecimal = ","')
    assert csv(None, path=path, target="ill").columns["weight"].tolist() == [81.5, 70.0, 64.5]


@pytest.mark.parametrize(
    ("text", "form", "sentence"),
    [
        (EUROPEAN, None, r'is separated by semicolons; write separator = ";" and decimal = "," to north\.csv\.toml'),
        ("a;b\n1;2\n", None, r'is separated by semicolons; write separator = ";" to north\.csv\.toml beside it$'),
        ("a\tb\n1\t2\n", None, r'is separated by tabs; write separator = "\\t" to north\.csv\.toml beside it$'),
        ("a,b\n1,2\n", 'separator = ";"', r'is separated by commas; write separator = "," to north\.csv\.toml'),
        ("a,b\n1,2\n", 'seperator = ";"', r'toml has the unknown key "seperator"; did you mean "separator"\?'),
        ("a,b\n1,2\n", "separator = 1", r"toml: separator is 1; write a text$"),
        ("a,b\n1,2\n", 'separator = ";;"', r"toml: separator is ';;'; write one character, such as ;$"),
        ("a,b\n1,2\n", 'decimal = ","', r"toml: decimal is ','; write a point or a comma that is not the separator"),
        ("a,b\n1,2\n", 'encoding = "latin-0"', r"toml: encoding 'latin-0' is unknown; write one of Python, such as"),
        ("a,b\n1,2\n", 'dates = "%d.%B"', r"toml: dates is '%d\.%B'; write %d, %m and %Y, such as %d\.%m\.%Y$"),
        ("a,b\n1,2\n", "factors = { a = 0 }", r"toml: factors is \{'a': 0\}; write numbers above 0 by column, such as"),
        ("a,b\n1,2\n", "window = 0", r"toml: window is 0; write a whole number of rows above 0$"),
        ("a,b\n1,2\n", "window = true", r"toml: window is True; write a whole number"),
        ("a,b\n1,2\n", "factors = 2", r"toml: factors is 2; write numbers above 0 by column"),
        ("a,b\n1,2\n", "separator = ;", r"toml is no TOML file \(.*\); correct it, or remove it$"),
    ],
)
def test_a_table_that_is_written_otherwise_is_recognised(table, text, form, sentence):
    with pytest.raises(DataError, match=sentence):
        read(table(text, form))


@pytest.mark.parametrize(
    ("text", "form", "sentence"),
    [
        (
            EUROPEAN,
            'separator = ";"',
            r'line 2: "31\.01\.1970" in column "born" is no date .*; write it as 2020-12-31, or',
        ),
        (
            EUROPEAN,
            'separator = ";"\ndates = "%d.%m.%Y"',
            r'line 2: "81,5" in column "weight" is no finite number; correct the cell, or write decimal = "," to north',
        ),
        (
            EUROPEAN.replace("81,5", "1.081,5"),
            'separator = ";"\ndecimal = ","\ndates = "%d.%m.%Y"',
            r'line 2: "1\.081,5" in column "weight" is no finite number; correct the cell$',
        ),
        (
            EUROPEAN.replace("81,5", "81.5"),
            'separator = ";"\ndecimal = ","\ndates = "%d.%m.%Y"',
            r'line 2: "81\.5" in column "weight" is no finite number',
        ),
    ],
)
def test_a_cell_of_another_format_says_what_to_state(table, text, form, sentence):
    with pytest.raises(DataError, match=sentence):
        Table(COLUMNS, target="ill").read(table(text, form))


def test_a_whole_number_with_a_decimal_comma_is_its_level(table):
    path = table("stage;ill\n1,0;0\n2,00;1\n", 'separator = ";"\ndecimal = ","')
    assert Table({"stage": [1, 2], "ill": [0, 1]}, target="ill").read(path)[0].tolist() == [[1, 0], [0, 1]]


def test_a_factor_turns_the_unit_of_a_file_into_the_declared_one_before_its_range_counts(table):
    columns = {"crea": {"type": "number", "missing_codes": [-9], "missing": "drop", "range": [0.1, 20]}, "ill": [0, 1]}
    path = table("crea;ill\n88,4;0\n-9;1\n176,8;1\n", 'separator = ";"\ndecimal = ","\nfactors = { crea = 0.01 }')
    assert Table(columns, target="ill").read(path)[0].ravel().tolist() == pytest.approx([0.884, 1.768], rel=1e-12)


def test_a_factor_of_a_column_that_a_table_lacks_is_an_error(table):
    with pytest.raises(DataError, match=r'toml: factors names "creat", which is no column; did you mean "crea"\?'):
        read(table("crea,ill\n1,2\n", "factors = { creat = 0.01 }"))


def test_the_file_beside_a_table_belongs_to_its_owner_alone(table):
    """The declaration, which peers compare, has no trace of it."""
    path = table(EUROPEAN, FORMAT, encoding="latin-1")
    assert propose(read(path), target="ill")[0]["weight"] == "number"
    with pytest.raises(DataError, match='has the unknown key "separator"'):
        Table(COLUMNS | {"weight": {"type": "number", "separator": ";"}}, target="ill")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9))
def test_a_decimal_comma_changes_no_number(number):
    assert FileFormat(decimal=",").number(str(number).replace(".", ",")) == FileFormat().number(str(number))


@pytest.mark.parametrize(
    ("form", "cell", "days"),
    [
        ("%Y-%m-%d", "2020-01-02", 1),
        ("%Y-%m-%d", "2020-01-02T06:00:00.5", 1.25 + 0.5 / 86_400),
        ("%d.%m.%Y", "2.1.2020 12:00", 1.5),
        ("%m/%d/%y", "01/02/20", 1),
        ("%m/%d/%y", "12/31/99", -7306),
        ("%d%m%Y", "03012020", 2),
        ("%Y-%m-%d", "2020-02-30", None),
        ("%Y-%m-%d", "today", None),
        ("%d.%m.%Y", "2020-01-02", None),
    ],
)
def test_a_date_is_read_in_its_form_or_is_none(form, cell, days):
    found = FileFormat(dates=form).days(cell, since="2020-01-01")
    assert found == pytest.approx(math.nan if days is None else days, abs=1e-9, nan_ok=True)
