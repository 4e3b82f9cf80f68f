"""Clients that come, go and take their time: who is invited to a round, and whose model counts."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from p2pfl.algorithms import Averaging
from p2pfl.algorithms.devices import MS, NEVER, Devices, Invitations, Trace, count_invited
from p2pfl.topology import complete

PEERS = complete(30).peers


def takes(*seconds):
    return lambda number: float(seconds[number])


def test_devices_without_traits_draw_those_that_a_plain_average_does():
    plain, same = (Averaging(PEERS, 4, fraction=0.2, devices=devices) for devices in (None, Devices(float)))
    for round in range(20):
        assert same.drawn(round).tolist() == plain.drawn(round).tolist()
        assert same.participants(PEERS, round=round).tolist() == plain.participants(PEERS, round=round).tolist()


def test_the_first_models_of_those_invited_count_and_end_the_round():
    seconds = np.random.default_rng(3).uniform(1, 9, 30)
    average = Averaging(PEERS, 4, fraction=0.2, devices=Devices(takes(*seconds), invited=1.5))
    for round in range(20):
        here = average.invitation(round)
        fastest = sorted(here.invited, key=lambda number: seconds[number])[:6]
        assert len(here.invited) == 9
        assert here.counted.tolist() == sorted(fastest)
        assert here.ended - here.began == np.ceil(MS * seconds[fastest].max())
        assert np.flatnonzero(average.participants(PEERS, round=round)).tolist() == sorted(fastest)


def test_models_after_the_deadline_are_late_and_the_round_ends_with_it():
    devices = Devices(takes(1, 5, 9, 2), deadline=5.0)
    here = devices.invite(0, peers=4, count=4, seed=1, now=0)
    assert here.counted.tolist() == [0, 1, 3]
    assert here.ended == 5 * MS
    none = Devices(takes(7, 8, 9, 7), deadline=5.0).invite(0, peers=4, count=2, seed=1, now=0)
    assert (none.counted.tolist(), none.ended) == ([], 5 * MS)


def test_a_client_that_leaves_before_it_ends_is_late_and_the_round_goes_on_without_it():
    trace = Trace.of([0, 1, 1], [0, 0, 20], [30, 3, 30], peers=2)
    here = Devices(takes(2, 4), trace=trace).invite(0, peers=2, count=2, seed=1, now=0)
    assert (sorted(here.invited), here.counted.tolist(), here.ended) == ([0, 1], [0], 3 * MS)


def test_a_round_without_clients_begins_when_the_next_one_comes():
    trace = Trace.of([0, 1], [5, 6], [10, 7], peers=2)
    rounds = Invitations(Devices(takes(4, 4), trace=trace), peers=2, count=1, seed=1)
    assert [(rounds.at(round).began, rounds.at(round).ended) for round in range(3)] == [
        (5_000, 9_000),
        (9_000, 10_000),  # it leaves
        (15_000, 19_000),
    ]


def test_where_nothing_takes_time_a_trace_counts_rounds():
    trace = Trace.of([0, 1, 2, 3], [0, 1, 2, 4], [1, 2, 4, 4], peers=4)
    rounds = Invitations(Devices(lambda _: 0.0, trace=trace, timeless=True), peers=4, count=4, seed=1)
    assert [rounds.at(round).counted.tolist() for round in range(6)] == [[0], [1], [2], [2], [0], [1]]


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 20)).map(
            lambda it: (it[0], it[1], it[1] + it[2])
        ),
        min_size=1,
    ).filter(lambda rows: any(off > on for _, on, off in rows)),
    st.integers(0, 200),
)
@example(rows=[(0, 0, 1)], now=0)  # always there
def test_a_trace_is_the_union_of_its_intervals_over_and_over_again(rows, now):
    trace = Trace.of(*map(list, zip(*rows, strict=True)), peers=6)
    period, listed = max(off for *_, off in rows), {number for number, *_ in rows}

    def there(client, tick):
        own = [(on, off) for number, on, off in rows if number == client]
        return client not in listed or any(on <= tick % period < off for on, off in own)

    for client, leaves in enumerate(trace.leaves(now * MS)):
        stays = next((tick for tick in range(now, now + 2 * period + 1) if not there(client, tick)), None)
        wanted = NEVER if stays is None else stays * MS
        assert leaves == wanted if there(client, now) else leaves <= now * MS
        if stays is None:
            assert leaves >= NEVER
    if not any(there(client, now) for client in listed):
        come = next(tick for tick in range(now, now + period + 1) if any(there(client, tick) for client in listed))
        assert trace.next(now * MS) == come * MS


def test_a_trace_takes_twelve_bytes_for_each_interval():
    count = 10_000
    trace = Trace.of(range(count), np.zeros(count), np.ones(count), peers=count)
    assert sum(each.nbytes for each in (trace.owner, trace.on, trace.off, trace.listed)) == 13 * count


def test_products_of_decimal_shares_invite_no_client_more():
    assert [count_invited(count, 1.1) for count in (10, 50, 100, 1000)] == [11, 55, 110, 1100]
    assert len(Devices(float, invited=1.1).invite(0, peers=1000, count=100, seed=1, now=0).invited) == 110
    assert Averaging(complete(200).peers, 4, fraction=0.5, devices=Devices(float, invited=1.1)).invites == 110


def test_a_client_that_takes_longer_than_anybody_waits_ends_its_rounds_after_decades():
    trace = Trace.of([0], [0], [5], peers=2)
    rounds = Invitations(Devices(takes(1e300, 1e300), trace=trace), peers=2, count=2, seed=1)
    assert 0 < rounds.at(1000).ended < NEVER


@pytest.mark.parametrize("count", [1, 7, 30])
def test_rounds_can_be_asked_for_in_any_order(count):
    devices = Devices(takes(*np.linspace(1, 3, 30)), trace=Trace.of([3, 4], [0, 2], [9, 12], peers=30), invited=1.3)
    one, other = (Invitations(devices, peers=30, count=count, seed=9) for _ in range(2))
    ahead = one.at(12)
    for round in range(13):
        assert other.at(round).invited.tolist() == one.at(round).invited.tolist()
    assert other.at(12).ended == ahead.ended
