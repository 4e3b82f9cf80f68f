"""When rounds begin, in pure decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import check
from p2pfl.experiment.timetable import DAY, SKEW, Position, Timetable, Window, first_in, parse_duration, parse_hours


def seconds(least, most):
    """Whole seconds, of which sums and differences are exact."""
    return st.integers(int(least), int(most)).map(float)


times = seconds(0, 4e9)
windows = st.lists(st.builds(Window, seconds(0, DAY - 1), seconds(1, DAY)), min_size=1, max_size=3)


@given(windows, times)
def test_the_first_time_in_some_hours_lies_in_them_and_none_before_it_does(hours, now):
    first = first_in(hours, now)
    assert now <= first <= now + DAY
    assert any((first - window.begin) % DAY < window.seconds for window in hours)
    assert first == now or not any((now - window.begin) % DAY < window.seconds for window in hours)


@given(seconds(1, 31 * DAY), st.one_of(st.just(()), windows.map(tuple)), times, seconds(0, 1e7))
def test_a_round_begins_no_earlier_than_the_pace_and_within_the_longest_pause(every, hours, began, passed):
    table, now = Timetable(every, hours), began + passed
    due = table.due(began=began, now=now)
    assert due >= max(now, began + every)
    assert due - max(now, began) <= table.longest


def test_a_clock_that_was_set_back_makes_nobody_wait_for_years():
    assert Timetable(600.0).due(began=2e9, now=5.0) == 605.0


@given(seconds(1, DAY), times, seconds(0, 1e9))
def test_a_clock_that_was_ahead_and_is_set_right_makes_a_peer_wait_for_one_pause(every, now, ahead):
    table, position = Timetable(every), Position(began=now + ahead).at(0, now=now)
    assert table.due(began=position.began, now=now + every) == now + every
    assert position.at(0, now=now + 1).began == position.began


@given(seconds(1, DAY), times, seconds(0, 1e6))
def test_nobody_follows_others_much_earlier_than_the_pace(every, began, passed):
    follows = Timetable(every).follows(began=began, now=began + passed)
    assert follows == (passed + began >= began + every - min(SKEW, every / 4))


def test_a_peer_follows_others_shortly_before_and_after_the_hours_and_not_else():
    table = Timetable(hours=parse_hours("01:00-05:00", key="hours"))
    followed = [second for second in range(0, int(DAY), 30) if table.follows(began=None, now=float(second))]
    assert (followed[0], followed[-1]) == (3540, 18030)


@pytest.mark.parametrize("text", ["", "10", "min", "0 s", "32 d", "10 min ", "-1 s", "1e3 s", "10 MIN", "1 year"])
def test_what_is_no_duration_is_refused_in_one_sentence(text):
    with pytest.raises(ExperimentError, match=r'transport.pace.every is ".*"; set it to a duration .* or "2 h"$'):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["", "1:00-5:00", "01:00", "01:00-01:00", "25:00-26:00", "01:00-24:30", "01:00-05:00;"]
)
def test_what_are_no_hours_is_refused_in_one_sentence(text):
    with pytest.raises(ExperimentError, match=r'transport.pace.hours is ".*"; set it to hours of UTC such as'):
        parse_hours(text, key="hours")


@pytest.mark.parametrize(
    ("pace", "sentence"),
    [
        ({"every": "soon"}, 'the experiment: transport.pace.every is "soon"; set it to a duration'),
        ({"hours": "night"}, 'the experiment: transport.pace.hours is "night"; set it to hours of UTC'),
        ({"often": "1 h"}, 'unknown key "transport.pace.often"'),
        ({"every": 600}, "transport.pace.every is 600; set it to text"),
        ({"bytes": f"{'9' * 400} GB"}, "; set it to a size in kB, MB or GB"),
        ({"hours": "01:00-02:00", "awake": "03:00-04:00"}, 'awake is "03:00-04:00", outside of transport.pace.hours ='),
        ({"hours": "23:00-01:00", "awake": "01:00-23:00"}, 'awake is "01:00-23:00", outside of transport.pace.hours ='),
        ("10 min", 'transport.pace is "10 min"; set it to a section with keys of its own'),
    ],
)
def test_a_pace_is_checked_with_the_file(pace, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        check({"transport": {"pace": pace}})
