import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.network.transport.backoff import DOUBT, RETURN, Backoff, Outages, RetrySchedule

BACKOFF = Backoff(first=0.25, largest=8.0, outage=600.0)
names = st.text(max_size=8)


@pytest.mark.slow
@given(names, st.integers(0, 2000))
def test_a_pause_lies_in_the_upper_half_of_its_bound(name, failures):
    bound = min(8.0, 0.25 * 2 ** min(failures, 10))
    assert bound / 2 <= BACKOFF.pause(name, failures) < bound


def test_a_thousand_peers_come_back_evenly_spread():
    pauses = sorted(BACKOFF.pause(f"peer{number}", 5) for number in range(1000))
    quarters = statistics.quantiles(pauses, n=4)
    assert all(abs(found - wanted) < 0.3 for found, wanted in zip(quarters, (5, 6, 7), strict=True))


def test_time_without_a_connection_adds_up():
    outages = Outages(BACKOFF, "ada", now=0.0)
    outages.lost(10.0)
    outages.lost(11.0)  # the second to notice
    assert outages.away(12.0) == 2.0
    outages.note_connection(13.0)
    assert outages.away(50.0) == 3.0
    outages.lost(60.0, since=55.0)  # a publish of then was never acknowledged
    assert outages.away(61.0) == 9.0
    assert outages.count == 2


def test_a_connection_that_is_lost_at_once_is_a_failure_and_one_that_was_steady_starts_anew():
    outages = Outages(BACKOFF, "ada", now=0.0)
    outages.lost(100.0)
    pauses = [outages.pause]
    for moment in (101.0, 102.0, 103.0, 104.0):
        outages.note_connection(moment)
        outages.lost(moment + 0.1)
        pauses.append(outages.pause)
    assert pauses == [BACKOFF.pause("ada", failures) for failures in range(5)]
    outages.note_connection(110.0)
    outages.lost(150.0)
    assert outages.pause == BACKOFF.pause("ada", 0)


def test_hope_is_given_up_when_nothing_was_steady_for_too_long():
    outages = Outages(BACKOFF, "ada", now=0.0)
    outages.lost(100.0)
    assert not outages.hopeless(700.0)
    outages.note_connection(690.0)
    outages.lost(690.1)
    assert outages.hopeless(700.1)
    outages.note_connection(701.0)
    outages.lost(800.0)
    assert not outages.hopeless(1000.0)


def test_others_get_more_time_to_come_back_after_an_outage():
    outages = Outages(BACKOFF, "ada", now=0.0)
    assert outages.grace(1.0) == DOUBT
    outages.lost(50.0)
    outages.note_connection(60.0)
    assert outages.grace(61.0) == RETURN > 2 * BACKOFF.largest
    assert outages.grace(60.0 + RETURN) == DOUBT


def test_attempts_go_on_until_the_deadline_and_the_last_is_made_at_it():
    attempts = RetrySchedule(BACKOFF, "ada", now=100.0)
    now, pauses = 100.0, []
    while (pause := attempts.pause(now)) is not None:
        pauses.append(pause)
        now += pause
    assert now == pytest.approx(700.0)
    assert pauses[:4] == [BACKOFF.pause("ada", failures) for failures in range(4)]
    assert max(pauses) <= BACKOFF.largest


def test_without_an_outage_there_is_one_attempt_and_no_second_connection():
    at_once = Backoff(outage=0.0)
    assert RetrySchedule(at_once, "ada", now=100.0).pause(100.0) is None
    outages = Outages(at_once, "ada", now=100.0)
    assert not outages.hopeless(100.0)
    outages.lost(110.0)
    assert outages.hopeless(110.0)
