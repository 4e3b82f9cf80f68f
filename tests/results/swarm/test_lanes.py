"""What each peer did over time, and the alerts that follow from events alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.results.notices.kinds import (
    STALLED_REMEDY,
    PeerAnnounced,
    PeerFailed,
    PeerFinished,
    PeerResponded,
    PeerSilent,
    PresenceChanged,
    WaitEnded,
)
from p2pfl.results.records import Record
from p2pfl.results.swarm.alerts import alerts
from p2pfl.results.swarm.blockages import find_partition
from p2pfl.results.swarm.headline import headline
from p2pfl.results.swarm.lanes import KEPT_CHANGES, Lanes, busiest
from p2pfl.results.swarm.state import Setting, swarm_of
from swarm_events import PEERS, began, waits

SETTING = Setting(name="plant", peers=PEERS, rounds=40)


def ended(peer, round, loss=1.0):
    return Record(
        peer=peer,
        round=round,
        scores={"loss": loss},
        training_loss=loss,
        distance=0.0,
        bytes_out=0,
        bytes_in=0,
        seconds_training=1.0,
        seconds_waiting=0.0,
        received=2,
    )


def lane(swarm, peer, until):
    return [(each.doing, each.began, each.ended) for each in swarm.lanes.of(peer, since=0.0, until=until)]


def kinds(swarm, now=100.0):
    return [(alert.kind, alert.peer, alert.at) for alert in alerts(swarm, now=now)]


# ---------------------------------------------------------------------- lanes


def test_a_lane_follows_what_a_peer_does():
    swarm = swarm_of(
        SETTING,
        [
            (0.0, began("ada", "gathering")),
            (2.0, began("ada")),
            (10.0 + STALLED_REMEDY, waits("ada", "bob")),
            (14.0 + STALLED_REMEDY, waits("ada", "bob", "cy")),
            (20.0, WaitEnded(peer="ada")),
            (30.0 + STALLED_REMEDY, waits("ada", connected=False)),
            (35.0, ended("ada", 0)),
            (50.0, PeerSilent(peer="ada", seconds=10.0)),
            (60.0, PeerResponded(peer="ada")),
            (70.0, PeerFinished(peer="ada", scores={})),
        ],
    )
    assert lane(swarm, "ada", 80.0) == [
        ("training", 2.0, 10.0),
        ("waiting", 10.0, 20.0),
        ("training", 20.0, 30.0),
        ("offline", 30.0, 35.0),
        ("training", 35.0, 50.0),
        ("away", 50.0, 60.0),
        ("training", 60.0, 70.0),
    ]


def test_a_peer_that_its_neighbours_lose_is_away_in_its_lane():
    swarm = swarm_of(
        SETTING,
        [
            (0.0, began("ada")),
            (0.0, began("bob")),
            (1.0, PresenceChanged(peer="ada", came=("bob",))),
            (5.0, PresenceChanged(peer="ada", left=("bob",))),
            (9.0, PresenceChanged(peer="ada", came=("bob",))),
        ],
    )
    assert lane(swarm, "bob", 10.0) == [("training", 0.0, 5.0), ("away", 5.0, 9.0), ("training", 9.0, 10.0)]


CHANGES = st.lists(
    st.tuples(st.floats(0.0, 10.0), st.sampled_from(["learning", "waiting", "offline", "gone", "finished"])),
    max_size=20,
)


@given(changes=CHANGES, since=st.floats(0.0, 60.0), length=st.floats(0.1, 60.0))
def test_the_stretches_of_a_lane_are_in_order_and_inside_of_its_window(changes, since, length):
    lanes, at = Lanes(), 0.0
    for step, activity in changes:
        at += step
        lanes.note(at, "ada", activity)
    found = lanes.of("ada", since=since, until=since + length)
    ends = [value for each in found for value in (each.began, each.ended)]
    assert ends == sorted(ends)
    assert all(since <= value <= since + length for value in ends)


def test_lanes_are_bounded():
    lanes = Lanes()
    for number in range(10 * KEPT_CHANGES):
        lanes.note(float(number), "ada", ("learning", "waiting")[number % 2])
    assert len(lanes.of("ada", since=0.0, until=1e9)) == KEPT_CHANGES


def test_of_many_lanes_those_that_lost_most_time_are_shown():
    lanes = Lanes()
    for number in range(100):
        lanes.note(0.0, f"peer{number}", "waiting" if number in {7, 90} else "learning")
    names = [f"peer{number}" for number in range(100)]
    assert {"peer7", "peer90"} <= {*busiest(lanes, names, since=0.0, until=10.0, most=5)}
    assert busiest(lanes, names[:5], since=0.0, until=10.0, most=5) == names[:5]


def test_a_page_is_sent_the_lanes_of_its_window():
    swarm = swarm_of(SETTING, [(0.0, began("ada")), (290.0 + STALLED_REMEDY, waits("ada", "bob"))])
    frames = pytest.importorskip("p2pfl.plugins.watch.frames")
    found = frames.lanes(swarm, now=400.0, seconds=300.0)
    assert (found["since"], found["until"], found["more"]) == (100.0, 400.0, 0)
    assert found["lanes"]["ada"] == [["training", 100.0, 290.0], ["waiting", 290.0, 400.0]]
    assert found["lanes"]["bob"] == []
    assert [*frames.lanes(swarm, now=400.0, seconds=9.0, peers=["bob", "nobody"])["lanes"]] == ["bob"]


# ---------------------------------------------------------------------- hung


def test_a_silent_peer_is_hung_until_it_responds():
    events = [(0.0, began(peer)) for peer in PEERS]
    silent = [*events, (50.0, PeerSilent(peer="cy", seconds=12.0))]
    assert kinds(swarm_of(SETTING, silent)) == [("hung", "cy", 38.0)]
    assert headline(swarm_of(SETTING, silent), now=50.0).sentence == "cy gives no sign of life for 12 s"
    assert kinds(swarm_of(SETTING, [*silent, (60.0, PeerResponded(peer="cy"))])) == []
    assert kinds(swarm_of(SETTING, [*silent, (60.0, PeerAnnounced(peer="cy", status="dead"))])) == [
        ("gone", "cy", 60.0)
    ]


def test_a_silent_peer_that_blocks_others_is_named_with_them():
    events = [(0.0, began(peer)) for peer in PEERS]
    events += [(20.0 + STALLED_REMEDY, waits("ada", "cy")), (50.0, PeerSilent(peer="cy", seconds=12.0))]
    assert headline(swarm_of(SETTING, events), now=60.0).sentence == (
        "cy blocks 1 peer: it gives no sign of life; ada waits for it, for 40 s"
    )


# ---------------------------------------------------------------------- parted


def meeting(*edges):
    return [
        (1.0, PresenceChanged(peer=one, came=(other,)))
        for pair in edges
        for one, other in (pair, tuple(reversed(pair)))
    ]


RING = (("ada", "bob"), ("bob", "cy"), ("cy", "dan"), ("dan", "ada"))


def lose(at, *edges):
    return [(at, PresenceChanged(peer=one, left=(other,))) for one, other in edges]


def both(one, other):
    return (one, other), (other, one)


def swarm_after(*events):
    learning = [(0.0, began(peer)) for peer in PEERS]
    return swarm_of(SETTING, sorted([*learning, *meeting(*RING), *events], key=lambda event: event[0]))


def rounds(at, *peers):
    return [(at, ended(peer, 0)) for peer in peers]


def test_peers_that_lost_each_other_and_go_on_are_parted():
    cut = lose(10.0, *both("bob", "cy"), *both("dan", "ada"))
    swarm = swarm_after(*cut, *rounds(20.0, *PEERS))
    assert find_partition(swarm).groups == (("ada", "bob"), ("cy", "dan"))
    [alert] = alerts(swarm, now=30.0)
    assert (alert.kind, alert.severity, alert.at) == ("parted", "alarm", 10.0)
    assert alert.sentence == (
        "the peers fall into 2 groups that do not reach each other (ada and bob; cy and dan); check the brokers and "
        "the bridges between them"
    )


def test_a_ring_that_lost_one_edge_is_one_group():
    assert find_partition(swarm_after(*lose(10.0, *both("bob", "cy")), *rounds(20.0, *PEERS))) is None


def test_one_peer_that_goes_on_alone_is_a_group():
    cut = lose(10.0, *both("bob", "cy"), *both("cy", "dan"))
    swarm = swarm_after(*cut, *rounds(20.0, *PEERS))
    assert find_partition(swarm).groups == (("cy",), ("ada", "bob", "dan"))


@pytest.mark.parametrize(
    "last",
    [
        [],
        [(20.0, PeerFailed(peer="cy", error="RunError", message="no", status=1))],
        [(20.0, PeerFinished(peer="cy", scores={}))],
        [(20.0 + STALLED_REMEDY, waits("cy", connected=False))],
        [(20.0, PeerSilent(peer="cy", seconds=9.0))],
    ],
    ids=["gone", "failed", "finished", "offline", "silent"],
)
def test_a_peer_that_does_not_go_on_is_no_group(last):
    cut = lose(10.0, ("bob", "cy"), ("dan", "cy"))
    assert find_partition(swarm_after(*cut, *rounds(15.0, "ada", "bob", "dan"), *last)) is None


def test_peers_that_meet_again_are_parted_no_more():
    cut = lose(10.0, *both("bob", "cy"), *both("dan", "ada"))
    again = [(30.0, PresenceChanged(peer="bob", came=("cy",))), (30.0, PresenceChanged(peer="cy", came=("bob",)))]
    assert find_partition(swarm_after(*cut, *rounds(20.0, *PEERS), *again, *rounds(40.0, *PEERS))) is None


def test_peers_that_have_not_met_yet_are_not_parted():
    assert find_partition(swarm_of(SETTING, [(0.0, began(peer)) for peer in PEERS])) is None
