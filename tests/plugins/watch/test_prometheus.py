"""Metrics in the format of Prometheus, read back by its own parser."""

import math

import pytest

from growing import PEERS, at, began, waits
from p2pfl.plugins.watch.feed import Feed
from p2pfl.plugins.watch.prometheus import exposition
from p2pfl.results.notices.kinds import ClockBehind

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")


def read(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_all_that_the_page_shows_is_a_metric(growing):
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(4)
    growing.log(waits("peer1", "peer2", seconds=9.0, round=4))
    growing.log(ClockBehind(peer="peer0", seconds=60, time=at(9.5)))
    with Feed(growing.folder, now=lambda: at(30.0)) as feed:
        feed.refresh()
        found = read(exposition(feed.swarm, now=30.0, stage=feed.stage))
    assert found["p2pfl_run_seconds",] == 30.0
    assert found["p2pfl_run_ended",] == 0.0
    assert found["p2pfl_peers", ("activity", "learning")] == 3
    assert found["p2pfl_peers", ("activity", "waiting")] == 1
    assert found["p2pfl_waiting_seconds", ("peer", "peer1")] == 21.0
    assert found["p2pfl_waiting_seconds", ("peer", "peer2")] == 0.0
    assert found["p2pfl_alerts", ("kind", "blocked")] == 1
    assert found["p2pfl_alerts", ("kind", "clock_behind")] == 1
    assert found["p2pfl_rounds_total", ("peer", "peer3")] == 4
    assert found["p2pfl_sent_bytes_total", ("peer", "peer3")] == 4000
    assert found["p2pfl_score", ("peer", "peer0"), ("score", "accuracy")] == pytest.approx(0.62)


def test_alerts_that_repeat_each_other_are_each_counted(growing):
    growing.log(*(ClockBehind(peer="peer0", seconds=60, time=at(second)) for second in (1.0, 2.0, 3.0)))
    with Feed(growing.folder, now=lambda: at(30.0)) as feed:
        feed.refresh()
        found = read(exposition(feed.swarm, now=30.0, stage=feed.stage))
    assert found["p2pfl_alerts", ("kind", "clock_behind")] == 3


def test_names_and_values_that_need_care(growing):
    with Feed(growing.folder, now=lambda: at(1.0)) as feed:
        feed.swarm.peers['a"b\\c\nd'] = type(feed.swarm.peers["peer0"])('a"b\\c\nd', scores={"loss": float("nan")})
        found = read(exposition(feed.swarm, now=1.0, stage="ended"))
    assert math.isnan(found["p2pfl_score", ("peer", 'a"b\\c\nd'), ("score", "loss")])
    assert found["p2pfl_run_ended",] == 1.0
