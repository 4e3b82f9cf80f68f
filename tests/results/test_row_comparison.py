"""Rows of a table are known again although cells were rewritten, and other people are not taken for them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.experiment.account_entries import RunEntry
from p2pfl.results.spending.people import KnownRows, People, counted, packed, row_texts
from p2pfl.results.spending.row_comparison import RowComparison

KEY = b"key of an account of 32 bytes..."
COLUMNS = ("age", "weight", "race", "smoke", "visits", "low")
LEAST = 5


def people(rng, count):
    """Return rows of a table of births."""
    ranges = ((14, 46), (80, 250), (1, 4), (0, 2), (0, 4), (0, 2))
    return [*zip(*(rng.integers(low, high, count).tolist() for low, high in ranges), strict=True)]


def different(before, now, *, header=COLUMNS, one_table=True):
    """Return in how many people two runs differ, by the same cells, and with linked rows."""
    was, hidden = People(COLUMNS, before, {"all": np.arange(len(before))}), []
    known = KnownRows([], hidden.pop)
    rows = counted(row_texts(was.digests(KEY, header)))
    text = known.hidden(header, rows, lambda data: hidden.append(data) or "rows")
    numbers = known.numbers(header)
    parts = {"all": packed(np.array([numbers[each] for each in rows]), size=len(numbers))}
    facts = {"run": "", "date": "", "experiment": "", "table": "", "peer": "", "peers": (), "model": "", "exact": True}
    run = RunEntry(header=header, columns=header, samples=len(before), parts=parts, rows=text, **facts)
    table = People(COLUMNS, now, {"all": np.arange(len(now))})
    entries = KnownRows([run], lambda _: hidden[0])
    compared = RowComparison(table, header, KEY, entries, least=LEAST, one_table=one_table)
    [[part]] = compared.known([run])
    own = compared.own(np.arange(len(now)))
    return int((own != part.same).sum()), int((own != part.linked).sum())


def corrected(rng, rows, count, *, column=1):
    """Return rows with another value in a column, in ``count`` of them."""
    rows = [*rows]
    for place in rng.permutation(len(rows))[:count].tolist():
        row = list(rows[place])
        row[column] += 1000
        rows[place] = tuple(row)
    return rows


@given(st.integers(0, 2**31), st.integers(0, 8), st.integers(0, 8))
def test_without_rewritten_cells_people_are_counted_as_they_are(seed, gone, come):
    """Oracle: sets of rows that are all different."""
    rng = np.random.default_rng(seed)
    rows = [*dict.fromkeys(people(rng, 60))]
    before, now = rows[: len(rows) - come], rows[gone:]
    assert different(before, now)[0] == gone + come


@pytest.mark.parametrize(
    ("header", "cells"), [(COLUMNS, 7), (COLUMNS, 100), (COLUMNS, 188), (("age", "weight", "low"), 188)]
)
@pytest.mark.parametrize("seed", range(3))
def test_one_person_who_is_gone_is_seen_among_corrected_cells(header, cells, seed):
    rng = np.random.default_rng(seed)
    before = people(rng, 189)
    same, linked = different(before, corrected(rng, before[1:], cells), header=header)
    assert same == 1 + 2 * cells
    assert 0 < linked < LEAST


@pytest.mark.parametrize(("gone", "come"), [(5, 0), (5, 5), (8, 20), (10, 11), (1, 20)])
@pytest.mark.parametrize("seed", range(3))
def test_enough_people_who_come_and_go_are_not_linked_to_each_other(gone, come, seed):
    rng = np.random.default_rng(seed)
    before = people(rng, 189)
    assert min(different(before, [*before[gone:], *people(rng, come)])) >= LEAST


def test_few_corrected_cells_hide_one_person_where_the_other_columns_tell_nobody_apart():
    """The limit that docs/protection.md states."""
    rng = np.random.default_rng(0)
    before = people(rng, 189)
    assert min(different(before, corrected(rng, before[1:], 7), header=("weight", "low"))) >= LEAST


def test_corrected_cells_alone_are_nobody_who_is_gone():
    rng = np.random.default_rng(0)
    before = people(rng, 189)
    assert different(before, corrected(rng, before, 10)) == (20, 0)


@pytest.mark.parametrize(("one_table", "seen"), [(True, 1), (False, 79)])
def test_only_rows_of_one_table_can_all_be_rewritten(one_table, seen):
    rng = np.random.default_rng(0)
    other = [tuple(1000 + cell for cell in row) for row in people(rng, 39)]
    assert different(people(rng, 40), other, one_table=one_table) == (79, seen)
