"""The state of a swarm, and the sentence about it, from events that are written out here."""

import math
import pickle
from itertools import pairwise

import msgspec
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.results.notices.kinds import (
    STALLED_REMEDY,
    ChangeTaken,
    ClockBehind,
    LossRose,
    PeerAnnounced,
    PeerFailed,
    PeerFinished,
    PeerSilent,
    PresenceChanged,
    WaitEnded,
)
from p2pfl.results.records import Record
from p2pfl.results.swarm.alerts import alerts
from p2pfl.results.swarm.blockages import Blockage, blockages, waits_of
from p2pfl.results.swarm.headline import estimate_remaining, headline, patience
from p2pfl.results.swarm.history import History
from p2pfl.results.swarm.state import Setting, Swarm, swarm_of
from swarm_events import PEERS, began, waits

SETTING = Setting(name="plant", peers=PEERS, rounds=10, epsilon=8.0)


def ended(peer, round, *, accuracy=0.5, received=3, missed=(), spent=None):
    return Record(
        peer=peer,
        round=round,
        scores={"loss": 1.0, "accuracy": accuracy},
        training_loss=1.0,
        distance=0.5,
        bytes_out=100 * (round + 1),
        bytes_in=50,
        seconds_training=0.0,
        seconds_waiting=0.0,
        received=received,
        missed=list(missed),
        privacy_spent=spent,
    )


def everybody(at=0.0):
    return [(at, began(peer)) for peer in PEERS]


def after(*entries, setting=SETTING):
    return swarm_of(setting, entries)


def said(swarm, now):
    found = headline(swarm, now=now)
    return found.tone, found.sentence


def test_nobody_has_begun():
    assert said(after(), 1.0) == ("quiet", "no peer has begun yet")


def test_peers_gather_and_one_is_missing():
    swarm = after(*[(0.0, began(peer, "gathering")) for peer in PEERS[:3]])
    assert said(swarm, 1.0) == ("quiet", "peers gather: 3 of 4 are there; dan is missing")


def test_all_learn():
    entries = [*everybody(), *((2.0 * (round + 1), ended(peer, round)) for round in range(4) for peer in PEERS)]
    swarm = after(*entries)
    assert said(swarm, 8.0) == ("good", "4 peers learn in round 5 of 10; a round takes 2.0 s; median accuracy 0.500")
    assert swarm.peers["ada"].usual == 2.0
    assert swarm.peers["ada"].bytes_out == 400


def test_the_remaining_time_is_that_of_the_slowest_peer_and_unknown_before_three_rounds():
    entries = [(2.0 * (round + 1), ended(peer, round)) for round in range(4) for peer in PEERS]
    assert estimate_remaining(after(*everybody(), *entries[:8])) is None
    assert estimate_remaining(after(*everybody(), *entries, (9.0, ended("ada", 4)))) == 6 * 2.0
    finished = [(21.0, PeerFinished(peer=peer, scores={})) for peer in PEERS]
    assert estimate_remaining(after(*everybody(), *entries, *finished)) is None


def test_the_number_of_rounds_is_the_one_in_force():
    entries = [*everybody(), *((2.0, ended(peer, 0)) for peer in PEERS)]
    told = [
        (3.0, PeerAnnounced(peer=peer, status="up", rounds=rounds))
        for peer, rounds in zip(PEERS, (40, 40, 40, 7), strict=True)
    ]
    assert said(after(*entries, *told), 3.0)[1].startswith("4 peers learn in round 2 of 40")
    assert said(after(*entries, *told[2:]), 3.0)[1].startswith("4 peers learn in round 2 of 10")  # no majority
    endless = [(3.0, PeerAnnounced(peer=peer, status="up", rounds=0)) for peer in PEERS]
    assert said(after(*entries, *endless), 3.0)[1] == "4 peers learn in round 2; median accuracy 0.500"
    order = ChangeTaken(peer="ada", number=1, digest="0" * 64, operator="me", last=6)
    assert said(after(*entries, (3.0, order)), 3.0)[1].startswith("4 peers learn in round 2 of 6")


def test_peers_in_several_rounds_are_stated():
    swarm = after(*everybody(), (1.0, ended("ada", 0)), (2.0, ended("ada", 1)), (2.0, ended("bob", 0)))
    assert headline(swarm, now=2.0).sentence.startswith("4 peers learn in rounds 1 to 2 of 10")


def test_the_sentence_names_the_peer_at_the_end_of_the_chain():
    swarm = after(
        *everybody(),
        (3.0 + STALLED_REMEDY, waits("ada", "bob")),
        (4.0 + STALLED_REMEDY, waits("bob", "cy")),
        (5.0 + STALLED_REMEDY, waits("dan", "cy")),
    )
    found = headline(swarm, now=7.0)
    assert found.peers == ("cy",)
    assert found.tone == "waiting"
    assert found.sentence == (
        "cy holds up 3 peers: it has worked on round 1 for 7.0 s; ada, bob and dan wait for it, some through others, "
        "for 4.0 s"
    )


def test_a_long_wait_is_a_blockage_with_the_usual_duration_of_the_round():
    rounds = [(3.0 * (round + 1), ended(peer, round)) for round in range(5) for peer in PEERS]
    swarm = after(*everybody(), *rounds, (20.0 + STALLED_REMEDY, waits("ada", "bob", round=5)))
    assert patience(swarm) == 12.0
    assert headline(swarm, now=31.9).tone == "waiting"
    assert said(swarm, 56.0) == (
        "blocked",
        "bob blocks 1 peer: it has worked on round 6 for 41 s (usually 3.0 s); ada waits for it, for 36 s",
    )


def test_a_cycle_is_stated():
    swarm = after(
        *everybody(),
        (1.0 + STALLED_REMEDY, waits("ada", "bob")),
        (2.0 + STALLED_REMEDY, waits("bob", "ada")),
        (2.0 + STALLED_REMEDY, waits("cy", "bob")),
    )
    found = headline(swarm, now=31.0)
    assert found.peers == ("ada", "bob")
    assert found.sentence == "ada and bob wait for each other, and cy for them, for 30 s"


def test_two_chains_are_both_named_and_the_longer_queue_comes_first():
    swarm = after(
        *everybody(),
        (1.0 + STALLED_REMEDY, waits("ada", "dan")),
        (1.0 + STALLED_REMEDY, waits("bob", "cy")),
        (1.0 + STALLED_REMEDY, waits("eve", "cy")),
    )
    assert headline(swarm, now=2.0).peers == ("cy",)
    assert headline(swarm, now=2.0).sentence.endswith("Others wait for dan")


def test_a_peer_that_gives_no_sign_of_life_comes_before_a_longer_queue():
    """Neighbours have given up the silent peer one after the other, and some of their reports are on their way."""
    entries = [
        (1.0 + STALLED_REMEDY, waits("ada", "bob", "eve")),
        (1.0 + STALLED_REMEDY, waits("bob", "cy")),
        (1.0 + STALLED_REMEDY, waits("cy", "dan")),
        (1.0 + STALLED_REMEDY, waits("fay", "eve")),
    ]
    swarm = after(*everybody(), (0.5, began("eve")), *entries, (11.0, PeerSilent(peer="eve", seconds=11.0)))
    swarm.apply(11.1, WaitEnded(peer="ada"))  # and bob, cy wait for dan, which has not reported its own wait
    found = headline(swarm, now=11.5)
    assert found.peers == ("eve",)
    assert found.sentence == (
        "eve blocks 1 peer: it gives no sign of life; fay waits for it, for 10 s. Others wait for dan"
    )


def test_a_silent_peer_that_nobody_waits_for_hides_no_blockage():
    silent = (5.0, PeerSilent(peer="dan", seconds=5.0))
    swarm = after(*everybody(), (1.0 + STALLED_REMEDY, waits("ada", "bob")), silent)
    assert headline(swarm, now=20.0).peers == ("bob",)


def test_short_waits_do_not_hide_a_peer_that_gives_no_sign_of_life_or_is_gone():
    waiting = (20.0, waits("ada", "bob"))
    silent = after(*everybody(), (15.0, PeerSilent(peer="dan", seconds=5.0)), waiting)
    assert headline(silent, now=20.5).sentence == "dan gives no sign of life for 10 s"
    gone = after(*everybody(), (15.0, PresenceChanged(peer="ada", left=("dan",))), waiting)
    assert headline(gone, now=20.5).sentence == "dan is gone; the others learn without"
    assert headline(gone, now=31.0).sentence.startswith("bob blocks 1 peer")


def test_a_wait_began_before_its_report():
    swarm = after(*everybody(), (5.0, waits("ada", "bob")))
    assert swarm.peers["ada"].waiting_since == 5.0 - STALLED_REMEDY
    assert [each.ended for each in swarm.lanes.of("ada", since=0.0, until=9.0)] == [5.0 - STALLED_REMEDY, 9.0]
    assert after((0.5, waits("ada", "bob"))).peers["ada"].waiting_since == 0.0


def test_a_wait_ends_by_its_own_event_and_by_the_end_of_the_round():
    first = after(*everybody(), (1.0 + STALLED_REMEDY, waits("ada", "bob")), (2.0, WaitEnded(peer="ada")))
    second = after(*everybody(), (1.0 + STALLED_REMEDY, waits("ada", "bob")), (2.0, ended("ada", 0)))
    assert waits_of(first) == waits_of(second) == {}
    assert first.peers["ada"].activity == second.peers["ada"].activity == "learning"


def test_a_wait_that_changes_keeps_its_beginning():
    swarm = after(
        *everybody(), (1.0 + STALLED_REMEDY, waits("ada", "bob", "cy")), (5.0 + STALLED_REMEDY, waits("ada", "cy"))
    )
    assert swarm.peers["ada"].waits_for == ("cy",)
    assert swarm.peers["ada"].waiting_since == 1.0


def test_a_peer_without_the_broker_is_no_part_of_the_waits():
    swarm = after(*everybody(), (1.0 + STALLED_REMEDY, waits("ada", connected=False)))
    assert swarm.peers["ada"].activity == "offline"
    assert said(swarm, 13.0) == ("blocked", "ada has not reached the broker for 12 s")


def test_a_failure_comes_first_and_ends_when_the_peer_begins_again():
    failed = PeerFailed(peer="bob", error="StorageError", message="the disk is full", status=1)
    swarm = after(*everybody(), (1.0 + STALLED_REMEDY, waits("ada", "bob")), (2.0, failed))
    assert said(swarm, 3.0) == ("failed", "bob has failed: the disk is full")
    assert [alert.over for alert in alerts(swarm, now=3.0)] == [False]
    swarm.apply(9.0, began("bob", "joining", 1))
    assert swarm.peers["bob"].activity == "joining"
    assert [alert.over for alert in alerts(swarm, now=9.0)] == [True]


def test_the_end():
    swarm = after(*everybody(), *((9.0, PeerFinished(peer=peer, scores={"accuracy": 0.75})) for peer in PEERS))
    swarm.apply(9.5, PresenceChanged(peer="ada", left=("bob",)))
    assert said(swarm, 10.0) == ("good", "4 peers have finished")
    assert {peer.activity for peer in swarm.peers.values()} == {"finished"}


def test_a_device_knows_of_its_neighbours_what_it_sees():
    swarm = after((0.0, began("ada")), (1.0, PresenceChanged(peer="ada", came=("bob", "cy"))))
    assert [peer.activity for peer in swarm.peers.values()] == ["learning", "present", "present", "unseen"]
    swarm.apply(2.0, PresenceChanged(peer="ada", left=("cy",)))
    assert swarm.peers["cy"].activity == "gone"
    assert said(swarm, 3.0) == ("waiting", "cy is gone; the others learn without")
    swarm.apply(4.0, PresenceChanged(peer="ada", came=("cy",)))
    swarm.apply(5.0 + STALLED_REMEDY, waits("ada", "bob"))
    assert headline(swarm, now=8.0).sentence == (
        "bob holds up 1 peer: it is present, and nothing more is known of it here; ada waits for it, for 3.0 s"
    )


def test_a_peer_that_some_neighbours_still_see_is_not_gone():
    swarm = after(*everybody(), (1.0, PresenceChanged(peer="ada", left=("cy",))))
    assert swarm.peers["cy"].activity == "gone"
    swarm.apply(2.0, PresenceChanged(peer="bob", came=("cy",)))
    assert swarm.peers["cy"].activity == "learning"


def test_a_simulation_has_records_alone():
    swarm = after(*((round + 1.0, ended(peer, round, accuracy=0.25)) for round in range(10) for peer in PEERS))
    assert headline(swarm, now=10.0).sentence.startswith("4 peers learn in round 10 of 10")


def test_alarms_of_one_peer_are_one_alert_with_their_number_and_rounds():
    entries = [
        (10.0 * round + number, LossRose(peer=peer, round=round, before={"loss": 0.1}, now={"loss": 28.0}))
        for round in (1, 2, 3)
        for number, peer in enumerate(("ada", "bob"))
    ]
    bob, ada = alerts(after(*everybody(), *entries), now=40.0)
    assert (bob.kind, bob.count, bob.first, bob.at, bob.over) == ("loss_rose", 3, 11.0, 31.0, False)
    assert (ada.peer, ada.count) == ("ada", 3)
    assert ada.sentence.startswith("the loss rose steeply in round 4 (loss 0.100 before, 28.000 now)")
    assert ada.sentence.endswith("; and 2 more like it, rounds 2 to 4")


def test_a_single_alarm_reads_as_its_notice():
    alarm = LossRose(peer="ada", round=3, now={})
    [alert] = alerts(after(*everybody(), (1.0, alarm)), now=2.0)
    assert f"ALARM: {alert.sentence}" == str(alarm)


def test_warnings_that_repeat_are_one_alert():
    swarm = after(*everybody(), *((float(at), ClockBehind(peer="cy", seconds=at)) for at in (3, 4, 5)))
    [alert] = alerts(swarm, now=6.0)
    assert (alert.kind, alert.count, alert.first, alert.at) == ("clock_behind", 3, 3.0, 5.0)
    assert alert.sentence == f"{ClockBehind(peer='cy', seconds=5)}; and 2 more like it"


def test_the_alarms_of_a_long_run_are_bounded(monkeypatch):
    monkeypatch.setattr("p2pfl.results.swarm.state.KEPT_ALARMS", 3)
    swarm = after(*((float(round), LossRose(peer="cy", round=round, now={"loss": 9.0})) for round in range(5)))
    [alert] = alerts(swarm, now=5.0)
    assert (alert.count, alert.first, alert.at) == (3, 2.0, 4.0)


def test_a_blockage_is_an_alert_from_when_it_lasts_too_long():
    swarm = after(*everybody(), (5.0 + STALLED_REMEDY, waits("ada", "bob")))
    assert alerts(swarm, now=14.9) == []
    [alert] = alerts(swarm, now=47.0)
    assert (alert.kind, alert.severity, alert.peer, alert.at) == ("blocked", "alarm", "bob", 15.0)
    assert alert.sentence == (
        "blocks 1 peer: it has worked on round 1 for 47 s; ada waits for it, for 42 s; look at the logs and the broker"
    )


def test_many_missed_models_and_a_budget_that_is_nearly_spent_are_alerts():
    few = [(1.0, ended("ada", 0, received=40, missed=["bob"]))]
    assert alerts(after(*few), now=2.0) == []
    swarm = after(*few, (2.0, ended("ada", 1, received=40, missed=["bob"], spent=6.5)))
    assert [(alert.kind, alert.peer, alert.at) for alert in alerts(swarm, now=3.0)] == [
        ("budget_nearly_spent", "ada", 2.0),
        ("late", "ada", 2.0),
    ]
    budget, late = alerts(swarm, now=3.0)
    assert "epsilon 6.5 of privacy.epsilon = 8" in budget.sentence
    assert late.sentence.startswith(
        "2 of 82 models did not arrive in time, those of bob; find out what slows this down"
    )


def test_a_swarm_that_pauses_for_hours_is_not_silent():
    swarm = after(*everybody(), *((5.0, began(peer, "paused", 1)) for peer in PEERS))
    assert headline(swarm, now=9000.0).sentence == "4 peers pause before round 2"
    assert headline(swarm, now=9000.0).tone == "quiet"


def test_a_device_that_sleeps_has_not_ended_its_rounds():
    swarm = after((0.0, began("ada")), (5.0, began("ada", "asleep", 3)))
    assert headline(swarm, now=9000.0).sentence == "ada sleeps until it takes part again"


def test_models_of_a_peer_that_is_gone_are_not_late():
    gone = (1.0, PresenceChanged(peer="ada", left=("bob",)))
    swarm = after(*everybody(), gone, (2.0, ended("ada", 0, received=40, missed=["bob"] * 20)))
    [alert] = alerts(swarm, now=3.0)
    assert (alert.kind, alert.severity, alert.peer, alert.at) == ("gone", "warning", "bob", 1.0)
    assert alert.sentence == "is gone; look at its log, and start it again with --resume"
    assert swarm.peers["ada"].missed == 20


@pytest.mark.parametrize(
    ("trains", "waits", "named"),
    [
        ((9.0, 1.0, 1.0), (0.5, 8.0, 8.0), True),
        ((2.0, 1.0, 1.0), (0.5, 1.0, 1.0), False),  # they differ little
        ((9.0, 1.0, 1.0), (0.5, 0.1, 0.1), False),  # nobody waits, as with transport.hurry
        ((0.09, 0.01, 0.01), (8.0, 8.0, 8.0), False),  # the network is slow
    ],
)
def test_a_peer_that_trains_while_all_others_wait_is_named(trains, waits, named):
    def record(peer, round):
        index = sorted(PEERS[:3]).index(peer)
        times = {"seconds_training": trains[index], "seconds_waiting": waits[index]}
        return msgspec.structs.replace(ended(peer, round), **times)

    def slow(rounds):
        entries = [(1.0 + round, record(peer, round)) for round in range(rounds) for peer in sorted(PEERS[:3])]
        return [each for each in alerts(after(*everybody(), *entries), now=1.0 + rounds) if each.kind == "slow"]

    assert [alert.peer for alert in slow(12)] == ([min(PEERS[:3])] if named else [])
    assert slow(5) == []
    expected = "trains for 9 s a round and the others for 1 s, so all wait for it; give it less to train"
    assert all(expected in alert.sentence for alert in slow(12))


def test_a_peer_that_leaves_at_the_end_is_no_alert():
    swarm = after(
        (0.0, began("ada")), (1.0, PresenceChanged(peer="ada", came=("bob",))), (8.0, began("ada", "leaving"))
    )
    swarm.apply(9.0, PresenceChanged(peer="ada", left=("bob",)))
    assert alerts(swarm, now=9.0) == []


def test_alarms_come_before_warnings_that_are_newer():
    failed = PeerFailed(peer="bob", error="StorageError", message="the disk is full", status=1)
    swarm = after(*everybody(), (1.0, failed), (2.0, ClockBehind(peer="cy", seconds=3600)))
    assert [alert.kind for alert in alerts(swarm, now=3.0)] == ["peer_failed", "clock_behind"]


def test_warnings_are_alerts_in_the_order_of_time():
    swarm = after(*everybody(), (1.0, ClockBehind(peer="cy", seconds=3600)))
    assert [(alert.kind, alert.severity) for alert in alerts(swarm, now=2.0)] == [("clock_behind", "warning")]


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefgh")), max_size=8))
def test_blockages_are_the_sinks_of_the_graph_of_waits(graph):
    oracle = nx.DiGraph((a, b) for a, others in graph.items() for b in others if a != b)
    groups = nx.condensation(oracle)
    sinks = {
        frozenset(groups.nodes[group]["members"]): frozenset(
            peer for above in nx.ancestors(groups, group) for peer in groups.nodes[above]["members"]
        )
        for group in groups
        if not groups.out_degree(group)
    }
    assert {frozenset(each.blockers): frozenset(each.waiting) for each in blockages(graph)} == sinks


def test_a_long_chain_of_waits_needs_no_recursion():
    names = [f"p{number}" for number in range(5000)]
    [found] = blockages({a: [b] for a, b in pairwise(names)})
    assert found == Blockage(("p4999",), tuple(sorted(names[:-1])))


def test_curves_have_the_median_and_percentiles():
    history = History()
    for number, accuracy in enumerate([0.0, 0.25, 0.5, 0.75, 1.0]):
        history.add(ended(f"p{number}", 0, accuracy=accuracy))
    curves = history.curves("accuracy")
    assert (curves.rounds, curves.median) == ([1], [0.5])
    assert (curves.low[0], curves.high[0]) == pytest.approx((0.1, 0.9))
    assert history.curves("accuracy", peers=["p3"]).peers == {"p3": [0.75]}
    assert history.names == ["loss", "accuracy"]


@pytest.mark.slow
def test_a_run_of_months_needs_no_more_memory_and_traffic_than_one_of_hours():
    """A peer of 50,000 rounds, a year at one in ten minutes, which waits in each; processor time makes it slow."""
    frames = pytest.importorskip("p2pfl.plugins.watch.frames")
    swarm, stored, sent = Swarm(Setting(peers=("ada",))), [], []
    for round in range(50_000):
        swarm.apply(float(round), waits("ada", "bob", round=round))
        swarm.apply(round + 0.5, ended("ada", round))
        if round in {2_000, 49_999}:
            stored.append(len(pickle.dumps(swarm)))
            parts = (frames.frame, {"stage": "running"}), (frames.lanes, {"seconds": frames.LANE_SECONDS})
            sent.append(sum(len(msgspec.json.encode(make(swarm, now=round + 1.0, **more))) for make, more in parts))
            sent[-1] += len(msgspec.json.encode(swarm.history.curves("accuracy")))
    assert stored[1] < 2 * stored[0] < 60_000
    assert sent[1] < 2 * sent[0] < 60_000
    assert swarm.history.curves("accuracy").rounds[-1] > 49_900


def test_a_score_that_is_no_number_is_left_out():
    history = History()
    history.add(ended("ada", 0, accuracy=math.nan))
    history.add(ended("bob", 1, accuracy=0.5))
    assert history.curves("accuracy").peers == {"bob": [0.5]}


def test_a_round_that_runs_again_replaces_its_scores():
    history = History()
    for accuracy in (0.25, 0.75):
        history.add(ended("ada", 0, accuracy=accuracy))
    assert history.curves("accuracy").median == [0.75]


def test_the_history_of_a_long_run_is_bounded(monkeypatch):
    monkeypatch.setattr("p2pfl.results.swarm.history.MAX_RECORDS", 100)
    history = History()
    for round in range(1000):
        for peer in PEERS:
            history.add(ended(peer, round, accuracy=round / 1000))
    curves = history.curves("accuracy")
    assert 10 <= len(curves.rounds) <= 25
    assert curves.median == [(round - 1) / 1000 for round in curves.rounds]
