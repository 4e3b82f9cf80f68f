"""Hidden cells of a table: every table that has the same published result is enumerated."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from p2pfl.plugins.exact.statistics.column_statistics import suppressed


def tables(cells, total):
    """Yield all tables of so many cells with a sum."""
    for first in itertools.product(range(total + 1), repeat=cells - 1):
        if sum(first) <= total:
            yield (*first, total - sum(first))


def published(table, *, least):
    found = suppressed(np.array(table, float), least=least, total=float(sum(table)))
    return tuple(None if np.isnan(count) else int(count) for count in found)


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize("least", [2, 3, 5])
@pytest.mark.parametrize(("cells", "largest"), [(2, 24), (3, 16), (4, 12)])
def test_no_hidden_cell_can_be_computed_and_no_small_one_is_shown(cells, largest, least):
    for total in range(1, largest + 1):
        same = defaultdict(list)
        for table in tables(cells, total):
            same[published(table, least=least)].append(table)
        for shown, possible in same.items():
            for place, count in enumerate(shown):
                assert count is None or count == 0 or count >= least
                if count is None:
                    assert len({table[place] for table in possible}) > 1, (total, shown, possible)


def test_cells_that_are_hidden_already_need_not_be_known():
    for table in itertools.product([0, 1, 4, 5, 20], repeat=4):
        counts, total = np.array(table, float), float(sum(table))
        before = np.where((counts > 0) & (counts < 5), np.nan, counts)
        np.testing.assert_array_equal(
            suppressed(before, least=5, total=total), suppressed(counts, least=5, total=total)
        )


def test_a_table_without_small_cells_stays_as_it_is():
    assert published((30, 0, 12, 5), least=5) == (30, 0, 12, 5)
    assert published((3, 2, 1, 0), least=1) == (3, 2, 1, 0)
