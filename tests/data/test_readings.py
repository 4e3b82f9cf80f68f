"""Rows that come later: each stays in its part, and what is new is found and compared."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from p2pfl.core.errors import DataError
from p2pfl.data.loader import federate
from p2pfl.data.readings import (
    compare_readings,
    digest_rows,
    digests_of,
    divide_by_digest,
    position_of,
    rows_of,
    shorten,
)
from streaming import FIRST, MORE


def read(round, **options):
    return federate(
        "streaming:stream",
        peers=["ada", "bob"],
        only=["ada"],
        seed=7,
        options={"classes": 2} | options,
        reading=round,
        test=0.3,
        validation=0.2,
    )


def rows(federation, part):
    return {*digests_of(federation, "ada")[getattr(federation, part)["ada"]].tolist()}


def test_a_row_that_was_tested_on_is_never_trained_on_and_the_other_way_round():
    readings = [read(round) for round in range(6)]
    for earlier in readings:
        for later in readings:
            for part in ("train", "validation", "test"):
                others = {"train", "validation", "test"} - {part}
                assert not rows(earlier, part) & set.union(*(rows(later, other) for other in others))
    assert [sum(each.sizes("ada")) for each in readings] == [FIRST + MORE * round for round in range(6)]


def test_equal_rows_are_in_one_part_whatever_their_place():
    federation = read(3)
    features = federation.dataset.features.repeat(2, 1).flip(0)
    targets = federation.dataset.targets.repeat(2).flip(0)
    parts = divide_by_digest(features, targets, seed=7, test=0.3, validation=0.2)
    found = [{*digest_rows(features[part], targets[part]).tolist()} for part in map(torch.from_numpy, parts)]
    assert found == [rows(federation, part) for part in ("train", "validation", "test")]


def test_shares_of_the_parts_are_about_those_that_were_asked_for():
    sizes = read(150).sizes("ada")
    whole = sum(sizes)
    assert sizes.test / whole == pytest.approx(0.3, abs=0.03)
    assert sizes.validation / whole == pytest.approx(0.14, abs=0.03)


def test_a_checkpoint_finds_its_rows_again_in_a_longer_file():
    before, after = read(2), read(9)
    found = shorten(after, "ada", position_of(digests_of(before, "ada"), round=2))
    assert (digests_of(found, "ada") == digests_of(before, "ada")).all()
    assert found.sizes("ada") == before.sizes("ada")


def test_other_rows_than_those_of_a_checkpoint_are_noticed():
    before = read(2)
    other = federate(
        "streaming:stream", peers=["ada", "bob"], only=["ada"], seed=8, options={"classes": 2}, reading=9, test=0.3
    )
    assert shorten(other, "ada", position_of(digests_of(before, "ada"), round=2)) is None


def test_new_rows_are_found_at_the_end_of_a_file():
    change = compare_readings(read(1), read(3), "ada")
    assert change.appended
    assert change.rows.tolist() == list(range(FIRST + MORE, FIRST + 3 * MORE))


def test_new_rows_are_found_where_old_ones_have_left():
    change = compare_readings(read(3), _last(read(4), 40), "ada")
    assert not change.appended
    assert len(change.rows) == MORE


def test_a_row_that_comes_a_second_time_is_new():
    before = read(3)
    rows = rows_of(before, "ada")
    kept = _rows(before, rows[1:])
    again = _rows(before, np.append(rows[1:], rows[5:8]))
    change = compare_readings(kept, again, "ada")
    assert (change.appended, len(change.rows)) == (True, 3)
    moved = _rows(before, np.append(rows[2:], rows[5:8]))
    change = compare_readings(kept, moved, "ada")
    assert (change.appended, len(change.rows)) == (False, 3)


def _rows(federation, chosen):
    """A federation of these rows, in this order, all for training."""
    data, where = federation.dataset, torch.from_numpy(chosen)
    data = replace(data, features=data.features[where], targets=data.targets[where])
    none = {"ada": np.arange(0)}
    return type(federation)(data, {"ada": np.arange(len(chosen))}, none, none)


def test_equal_digests_are_no_more_frequent_than_chance_has_it():
    grid = torch.cartesian_prod(torch.arange(400.0), torch.arange(500.0))
    digests = digest_rows(grid, torch.zeros(len(grid), dtype=torch.int64))
    assert len(np.unique(digests)) == len(grid)
    bits = np.unpackbits(digests.view(np.uint8)).reshape(-1, 64).mean(0)
    assert np.abs(bits - 0.5).max() < 0.006  # five standard deviations


def _last(federation, count):
    kept = rows_of(federation, "ada")[-count:]
    parts = {name: np.intersect1d(getattr(federation, name)["ada"], kept) for name in ("train", "validation", "test")}
    return type(federation)(federation.dataset, *({"ada": part} for part in parts.values()))


def test_a_shift_of_the_new_rows_shows_in_the_stability_index():
    calm, moved = (compare_readings(read(0), read(50, shift=shift), "ada").drift for shift in (0.0, 2.0))
    assert calm.max() < 0.25 < moved.min()


def test_a_peer_without_rows_for_the_test_is_refused():
    with pytest.raises(DataError, match="leaves one of the two empty; add data"):
        federate("streaming:stream", peers=["ada"], seed=7, options={"classes": 2}, reading=0, test=0.001)
