"""Suspicion from silence, held against the paper's formula."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.network.protocol.timing.failure_detector import DEVIATION, MIN_INTERVALS, THRESHOLD, Detector
from p2pfl.network.protocol.timing.timeouts import MAX_REST, Timeouts

INTERVALS = st.lists(st.floats(0.6, 30.0), min_size=MIN_INTERVALS, max_size=60)


def beating(intervals, **given):
    """A detector that has heard a peer's heartbeats, and when it heard the last."""
    detector, now = Detector(period=1.0, **given), 100.0
    detector.receive("ada", now=now, beat=True)
    for interval in intervals:
        now += interval
        detector.receive("ada", now=now, beat=True)
    return detector, now


def later(silence, intervals):
    """P_later of the paper (equation 4): the tail of the normal distribution of the intervals."""
    deviation = max(DEVIATION, float(np.std(intervals)))
    return NormalDist(float(np.mean(intervals)), deviation).cdf(2 * float(np.mean(intervals)) - silence)


@given(INTERVALS, st.floats(0.0, 20.0))
def test_phi_is_that_of_the_paper(intervals, silence):
    detector, now = beating(intervals)
    assert detector.phi("ada", now=now + silence) == pytest.approx(-math.log10(later(silence, intervals)), abs=1e-6)


def test_of_longer_silence_than_numbers_can_say_phi_is_infinite():
    detector, now = beating([1.0] * MIN_INTERVALS)
    assert detector.phi("ada", now=now + 1e6) == math.inf


@given(INTERVALS, st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_suspicion_grows_with_silence_and_ends_with_a_word(intervals, silence, more):
    detector, now = beating(intervals)
    assert detector.phi("ada", now=now + silence) <= detector.phi("ada", now=now + silence + more)
    detector.receive("ada", now=now + silence + more)
    assert detector.find_suspects(now=now + silence + more) == frozenset()


@given(st.lists(st.floats(0.0, 1000.0), max_size=MIN_INTERVALS), st.floats(0.0, 1e6))
def test_nobody_is_suspected_of_whom_too_little_is_known(intervals, silence):
    detector, now = beating(intervals[: MIN_INTERVALS - 1])
    assert detector.find_suspects(now=now + silence) == frozenset()


@given(INTERVALS)
def test_whose_heartbeats_go_on_as_before_is_never_suspected(intervals):
    detector, now = beating(intervals)
    usual = sum(intervals) / len(intervals)
    assert "ada" not in detector.find_suspects(now=now + usual)


@given(st.lists(st.floats(0.5, 1.5), min_size=MIN_INTERVALS, max_size=60), st.floats(0.0, 1e4))
def test_time_in_which_nothing_could_be_heard_does_not_count(intervals, outage):
    detector, now = beating(intervals)
    before = detector.phi("ada", now=now + 2.0)
    detector.stand(outage, now=now + 2.0 + outage)
    assert detector.phi("ada", now=now + 2.0 + outage) == pytest.approx(before, abs=1e-6)


def test_heartbeats_of_many_streams_are_one():
    detector, streams = Detector(period=1.0), 5
    for second in range(30):
        for stream in range(streams):
            detector.receive("ada", now=second + 0.01 * stream, beat=True)
    assert detector.phi("ada", now=29.0 + 2.0) < 1.0
    assert detector.phi("ada", now=29.05 + 9.0) < THRESHOLD < detector.phi("ada", now=29.05 + 10.0)


def test_a_flood_of_rows_does_not_make_the_rest_of_the_time_look_like_silence():
    detector = Detector(period=1.0)
    for tick in range(20_000):
        detector.receive("ada", now=tick / 1000, beat=tick % 1000 == 0)
    assert detector.find_suspects(now=20.0 + 8.0) == frozenset()


def test_a_line_that_stutters_is_given_more_time():
    steady, now = beating([1.0] * 50)
    stutters, then = beating([1.0, 1.0, 1.0, 1.0, 12.0] * 10)
    assert steady.find_suspects(now=now + 12.0)
    assert not stutters.find_suspects(now=then + 20.0)


def test_a_new_life_is_not_held_to_the_habits_of_the_one_before():
    detector, now = beating([1.0] * 50)
    detector.forget("ada")
    assert detector.find_suspects(now=now + 1e6) == frozenset()


def test_a_silent_neighbour_that_stated_the_longest_pause_is_suspected_soon_after_the_next_round_begins():
    timeouts = Timeouts(period=1.0, patience=60.0, longest_pause=86400.0)
    timeouts.allowed = True
    for second in range(20):
        timeouts.receive("eve", now=float(second), beat=True)
    timeouts.receive_pause("eve", 86400.0, now=20.0)
    timeouts.look(before=619.0, now=620.0)
    assert not timeouts.suspected
    timeouts.begin(now=620.0)
    timeouts.look(before=620.0 + MAX_REST - 1, now=620.0 + MAX_REST)
    assert not timeouts.suspected
    timeouts.look(before=649.0 + MAX_REST, now=650.0 + MAX_REST)
    assert timeouts.suspected == {"eve"}
