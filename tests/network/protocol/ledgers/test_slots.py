"""Sets of slots as runs are sets of slots."""

from hypothesis import given
from hypothesis import strategies as st

from p2pfl.network.protocol.ledgers.slots import END, START, Slot, Slots

SLOTS = st.builds(Slot, st.integers(0, 2), st.integers(0, 9))
SETS = st.frozensets(SLOTS)
RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)))


def slots(some):
    return Slots.of(slot.run for slot in some)


@given(SETS, SETS)
def test_they_are_added_taken_away_and_compared_as_sets_are(left, right):
    here, there = slots(left), slots(right)
    assert list(here) == sorted(left)
    assert len(here) == len(left)
    assert bool(here) == bool(left)
    assert (here == there) == (left == right)
    for mixed, plain in ((here | there, left | right), (here - there, left - right), (here ^ there, left ^ right)):
        assert mixed == slots(plain)


@given(SETS, SLOTS)
def test_they_are_searched_and_cut_as_sets_are(some, slot):
    kept = slots(some)
    assert (slot in kept) == (slot in some)
    assert kept.before(slot) == slots(each for each in some if each < slot)
    assert kept.since(slot) == slots(each for each in some if each >= slot)
    assert kept.before(END) == kept.since(START) == kept


@given(RUNS)
def test_runs_in_any_order_that_overlap_or_touch_are_one_set(runs):
    kept = Slots.of(runs)
    assert set(kept) == {Slot(attempt, round) for attempt, first, stop in runs for round in range(first, stop)}
    assert Slots.of(kept.runs).runs == kept.runs
    assert all(left[0] < right[0] or left[2] < right[1] for left, right in zip(kept.runs, kept.runs[1:], strict=False))


def test_a_million_rounds_without_a_gap_are_one_run():
    assert Slots.of([(0, 0, 500_000), (0, 500_000, 1_000_000)]).runs == ((0, 0, 1_000_000),)
