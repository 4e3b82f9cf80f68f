"""The state at any time of a run: the same as from all events, and cheap to find."""

import random

import pytest

from growing import PEERS, began, ended, waits
from p2pfl.plugins.watch import frames, swarm_timeline
from p2pfl.plugins.watch.feed import Feed
from p2pfl.plugins.watch.swarm_timeline import Timeline
from p2pfl.results.notices.kinds import MasksUncancelled, PresenceChanged, WaitEnded
from p2pfl.results.swarm.alerts import alerts
from p2pfl.results.swarm.state import Setting, Swarm, swarm_of

SETTING = Setting(peers=PEERS, rounds=40)


def events(rounds=40):
    """Return rounds of four peers, some of which wait and lose each other, one second apart."""
    found = [(0.0, began(peer)) for peer in PEERS]
    for round in range(rounds):
        at = 4.0 * round
        one, other = PEERS[round % 4], PEERS[(round + 1) % 4]
        found.append((at + 1.0, waits(one, other, seconds=0, round=round)))
        found.append((at + 2.0, WaitEnded(peer=one)))
        found.append((at + 2.5, PresenceChanged(peer=one, **{("came", "left")[round % 2]: (other,)})))
        found += [(at + 3.0 + number / 10, ended(peer, round, seconds=0)) for number, peer in enumerate(PEERS)]
    return found


def seen(swarm, at):
    """Return all that a page shows of a state."""
    curves = frames.curves(swarm.history.curves("accuracy"))
    return frames.frame(swarm, now=at, stage="running"), curves, alerts(swarm, now=at)


@pytest.fixture
def small(monkeypatch):
    """States are kept every few events."""
    monkeypatch.setattr(swarm_timeline, "APART", 7)
    monkeypatch.setattr(swarm_timeline, "MOST", 4)


@pytest.mark.usefixtures("small")
def test_the_state_at_any_time_is_that_of_all_events_before_it():
    line, every = Timeline(SETTING), events()
    line.extend(every)
    draw = random.Random(7)
    for at in [draw.uniform(-1.0, 165.0) for _ in range(60)] + [0.0, line.span]:
        expected = swarm_of(SETTING, [event for event in every if event[0] <= at])
        assert seen(line.swarm(at), at) == seen(expected, at)


@pytest.mark.usefixtures("small")
def test_events_that_arrive_late_take_their_place():
    every = events()
    draw = random.Random(3)
    order = sorted(every, key=lambda event: event[0] + draw.uniform(0.0, 9.0))
    line = Timeline(SETTING)
    for start in range(0, len(order), 10):
        line.extend(order[start : start + 10])
        line.swarm(draw.uniform(0.0, 160.0))
    assert len(line) == len(every)
    for at in (0.0, 33.3, 100.0, 160.0):
        expected = swarm_of(SETTING, [event for event in every if event[0] <= at])
        assert seen(line.swarm(at), at) == seen(expected, at)


def test_terminal_page_and_replay_agree_on_alarms_that_repeat_each_other():
    alarms = [
        (
            10.0 * round + number,
            MasksUncancelled(peer=peer, round=round, partners=("peer3",), now={"loss": 9.0}, deviation=0.3),
        )
        for round in (1, 2, 3)
        for number, peer in enumerate(PEERS[:3])
    ]
    line, swarm = Timeline(SETTING), swarm_of(SETTING, alarms)
    line.extend(alarms)
    [shown] = frames.frame(line.swarm(99.0), now=99.0, stage="ended")["alerts"]
    assert (shown["count"], shown["first"], shown["at"]) == (9, 10.0, 32.0)
    assert shown["sentence"].endswith("; and 8 more like it from peer0 and peer1, rounds 2 to 4")
    assert f"alarm: peer2: {shown['sentence']}" in frames.text(swarm, now=99.0)
    [before] = frames.frame(line.swarm(15.0), now=15.0, stage="ended")["alerts"]
    assert before["count"] == 3


def test_a_step_back_applies_few_events(monkeypatch):
    monkeypatch.setattr(swarm_timeline, "APART", 50)
    line = Timeline(SETTING)
    line.extend(events(300))
    line.swarm(line.span)
    applied = []
    apply = Swarm.apply
    monkeypatch.setattr(Swarm, "apply", lambda swarm, at, entry: applied.append(at) or apply(swarm, at, entry))
    for back in range(1, 9):
        line.swarm(line.span * (1 - back / 10))
    assert len(applied) <= 8 * 2 * swarm_timeline.APART < len(line)


def test_a_copy_of_a_state_is_not_changed_by_what_follows():
    every = events()
    swarm = swarm_of(SETTING, every[:100])
    copied, before = swarm.copy(), seen(swarm_of(SETTING, every[:100]), 50.0)
    for event in every[100:]:
        swarm.apply(*event)
    assert seen(copied, 50.0) == before
    for event in every[100:]:
        copied.apply(*event)
    assert seen(copied, 160.0) == seen(swarm, 160.0)


def test_a_replay_reads_each_line_once(growing, monkeypatch):
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(3)
    growing.seconds = 100.0
    with Feed(growing.folder, now=growing.now) as feed:
        feed.refresh()
        feed.replay()
        growing.learn(1, first=3)
        added = []
        extend = Timeline.extend
        monkeypatch.setattr(Timeline, "extend", lambda line, found: added.extend(found) or extend(line, found))
        for at in (2.0, 8.0, 5.0):
            feed.replay().swarm(at)
        assert len(added) == len(PEERS)
        assert feed.replay().span == 8.0


@pytest.mark.usefixtures("small")
def test_a_long_replay_forgets_its_older_half_and_keeps_what_followed_from_it():
    every, line = events(), Timeline(SETTING)
    for start in range(0, len(every), 20):
        line.extend(every[start : start + 20])
        line.keep(100)
        line.swarm(line.span - 3.0)
    assert 50 <= len(line) <= 100 < len(every)
    for at in (line.span, line.span - 20.0):
        expected = swarm_of(SETTING, [event for event in every if event[0] <= at])
        assert seen(line.swarm(at), at) == seen(expected, at)
