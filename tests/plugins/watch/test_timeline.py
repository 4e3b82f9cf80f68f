"""The state at any time of a run: the same as from all events."""

import random

from growing import PEERS, began, ended, waits
from p2pfl.plugins.watch import frames
from p2pfl.plugins.watch.feed import Feed, Timeline
from p2pfl.results.notices.kinds import ModelsRefused, PresenceChanged, WaitEnded
from p2pfl.results.swarm.alerts import alerts
from p2pfl.results.swarm.state import Setting, swarm_of

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
    curves = swarm.history.curves("accuracy")
    return frames.frame(swarm, now=at, stage="running"), curves, alerts(swarm, now=at)


def test_the_state_at_any_time_is_that_of_all_events_before_it():
    line, every = Timeline(SETTING), events()
    line.extend(every)
    draw = random.Random(7)
    for at in [draw.uniform(-1.0, 165.0) for _ in range(60)] + [0.0, line.span]:
        expected = swarm_of(SETTING, [event for event in every if event[0] <= at])
        assert seen(line.swarm(at), at) == seen(expected, at)


def test_events_that_arrive_late_take_their_place():
    every = events()
    draw = random.Random(3)
    order = sorted(every, key=lambda event: event[0] + draw.uniform(0.0, 9.0))
    line = Timeline(SETTING)
    for start in range(0, len(order), 10):
        line.extend(order[start : start + 10])
        line.swarm(draw.uniform(0.0, 160.0))
    for at in (0.0, 33.3, 100.0, 160.0):
        expected = swarm_of(SETTING, [event for event in every if event[0] <= at])
        assert seen(line.swarm(at), at) == seen(expected, at)


def test_terminal_page_and_replay_agree_on_notices_that_repeat_each_other():
    alarms = [
        (
            10.0 * round + number,
            ModelsRefused(peer=peer, round=round, neighbour="peer3"),
        )
        for round in (1, 2, 3)
        for number, peer in enumerate(PEERS[:3])
    ]
    line, swarm = Timeline(SETTING), swarm_of(SETTING, alarms)
    line.extend(alarms)
    [shown] = frames.frame(line.swarm(99.0), now=99.0, stage="ended")["alerts"]
    assert (shown["count"], shown["first"], shown["at"]) == (9, 10.0, 32.0)
    assert shown["sentence"].endswith("; and 8 more like it from peer0 and peer1")
    assert f"warning: peer2: {shown['sentence']}" in frames.text(swarm, now=99.0)
    [before] = frames.frame(line.swarm(15.0), now=15.0, stage="ended")["alerts"]
    assert before["count"] == 3


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
