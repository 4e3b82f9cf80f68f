"""Sets of masks as runs and epochs are sets of slots and epochs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.ledgers.drawn_slots import DrawnSlots
from p2pfl.network.protocol.ledgers.slots import Slot, Slots

SLOTS = st.builds(Slot, st.integers(0, 2), st.integers(0, 6))
SETS = st.frozensets(st.tuples(SLOTS, st.sampled_from([b"", b"one", b"two"])))


def drawn(some):
    return DrawnSlots.of((epoch, Slots.of([slot.run])) for slot, epoch in some)


@given(SETS, SETS)
def test_they_are_added_taken_away_and_compared_as_sets_are(left, right):
    here, there = drawn(left), drawn(right)
    assert list(here) == sorted(left)
    assert len(here) == len(left)
    assert (here == there) == (left == right)
    for mixed, plain in ((here | there, left | right), (here - there, left - right), (here ^ there, left ^ right)):
        assert mixed == drawn(plain)


@given(SETS, SLOTS)
def test_they_are_searched_and_cut_at_a_slot_whatever_the_epoch(some, slot):
    kept = drawn(some)
    assert (slot in kept) == any(each == slot for each, _ in some)
    assert kept.before(slot) == drawn(each for each in some if each[0] < slot)
    assert kept.since(slot) == drawn(each for each in some if each[0] >= slot)
    assert set(kept.slots) == {each for each, _ in some}


@given(SETS)
def test_what_is_written_as_runs_and_epochs_is_read_as_it_was(some):
    kept = drawn(some)
    assert DrawnSlots.read(kept.runs, kept.epochs) == kept


def test_runs_of_an_earlier_version_belong_to_no_epoch():
    assert list(DrawnSlots.read([(0, 3, 5)])) == [(Slot(0, 3), b""), (Slot(0, 4), b"")]


def test_epochs_that_count_more_runs_than_there_are_are_refused():
    with pytest.raises(PrivacyError, match="counts 2 runs of masks and only 1 follow"):
        DrawnSlots.read([(0, 0, 1)], ((b"one", 2),))
