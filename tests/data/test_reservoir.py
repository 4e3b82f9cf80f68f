"""``reservoir`` beside a table keeps a uniform sample of its rows, which follows from the rows alone."""

import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from p2pfl.core.errors import DataError
from p2pfl.data.tables.cells import read


@pytest.fixture
def sample(tmp_path):
    """Return the rows that a reservoir keeps of a table."""

    def kept(rows, *, size, name="north.csv"):
        path = tmp_path / name
        (tmp_path / f"{name}.toml").write_text(f"reservoir = {size}\n")
        if name.endswith(".sqlite"):
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("CREATE TABLE readings (x INTEGER, y TEXT)")
                database.executemany("INSERT INTO readings VALUES (?, ?)", rows)
        else:
            path.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
        cells = read(path)
        return [*zip(map(int, cells.column("x")), cells.column("y"), strict=True)], cells

    return kept


def numbered(count, *, name="a"):
    return [(number, name) for number in range(count)]


def test_each_row_is_as_likely_to_stay_as_any_other(sample):
    tables, size, rows = 400, 3, 10
    counts = Counter(
        number for table in range(tables) for number, _ in sample(numbered(rows, name=f"t{table}"), size=size)[0]
    )
    expected = tables * size / rows
    deviation = (tables * 0.3 * 0.7) ** 0.5
    assert sum(counts.values()) == tables * size
    assert all(abs(counts[number] - expected) < 3.5 * deviation for number in range(rows))


def test_a_table_that_grows_by_a_row_replaces_one_row_of_the_sample_at_most(sample):
    size, before, replaced = 20, None, 0
    for count in range(1, 200):
        rows, _ = sample(numbered(count), size=size)
        assert len(rows) == min(count, size)
        if before is not None:
            assert {*rows} <= {*before, (count - 1, "a")}
            if count > size and rows != before:
                replaced += 1
                assert before[0] not in rows  # the one that leaves is the first one
                assert [row for row in rows if row in before] == before[1:]
        before = rows
    expected = sum(size / count for count in range(size + 1, 200))
    assert abs(replaced - expected) < 4 * expected**0.5


def test_the_sample_follows_from_the_rows_and_not_from_their_order_place_or_format(sample):
    rows = numbered(300)
    chosen, _ = sample(rows, size=40)
    assert sample(rows[::-1], size=40)[0] == chosen
    assert sample(rows, size=40, name="other.csv")[0] == chosen
    assert sample(rows, size=40, name="north.sqlite")[0] == chosen
    assert sample(rows, size=1000)[0] != rows  # an order of its own
    assert sorted(sample(rows, size=1000)[0]) == rows


def test_rows_that_a_source_drops_leave_and_the_others_stay(sample):
    rows = numbered(300)
    chosen, _ = sample(rows, size=40)
    rotated, _ = sample(rows[100:], size=40)
    stayed = [row for row in chosen if row[0] >= 100]
    assert 10 < len(stayed) < 40
    assert [row for row in rotated if row in chosen] == stayed
    assert len(rotated) == 40


def test_equal_rows_are_sampled_one_by_one(sample):
    rows = [(0, "a")] * 900 + [(1, "b")] * 100
    counts = Counter(number for number, _ in sample(rows, size=200)[0])
    assert sum(counts.values()) == 200
    assert abs(counts[1] - 20) < 12  # of 200 rows a tenth; the deviation is 3.8


def test_a_row_of_the_sample_keeps_its_place(sample):
    rows, cells = sample(numbered(50), size=5)
    assert [cells.place(row).partition(", ")[2] for row in range(5)] == [f"line {number + 2}" for number, _ in rows]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("reservoir = 0", r"toml: reservoir is 0; write a whole number of rows above 0$"),
        ("reservoir = true", r"toml: reservoir is True; write a whole number of rows above 0$"),
        ('reservoir = "all"', r"toml: reservoir is 'all'; write a whole number of rows above 0$"),
        ("window = 9\nreservoir = 9", r"toml: window and reservoir are both given; keep one of them$"),
    ],
)
def test_an_invalid_reservoir_is_refused_in_one_sentence(tmp_path, text, sentence):
    (tmp_path / "north.csv").write_text("x\n1\n")
    (tmp_path / "north.csv.toml").write_text(text)
    with pytest.raises(DataError, match=sentence):
        read(tmp_path / "north.csv")
