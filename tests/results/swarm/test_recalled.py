"""Tests of the scores that a peer keeps for an observer that comes late."""

import math
from itertools import pairwise

import pytest

from p2pfl.network.protocol.telemetry.observer_messages import Body, room
from p2pfl.results.notices.observing import ScoresRecalled
from p2pfl.results.records import Record
from p2pfl.results.swarm.history import History
from p2pfl.results.swarm.state import Setting, Swarm
from p2pfl.results.swarm.telemetry import MAX_POINTS, MAX_SCORES, ROUNDS_OF_NOTICE, ScoreHistory, decoded, encoded


def record(round, **scores):
    counts = {"bytes_out": 0, "bytes_in": 0, "seconds_training": 0.0, "seconds_waiting": 0.0, "received": 0}
    return Record(peer="ada", round=round, scores=scores, training_loss=None, distance=0.0, **counts)


def recalled(rounds, **scores):
    curves = ScoreHistory("ada")
    for round in range(rounds):
        curves.add(record(round, **scores))
    return [*curves.notices()]


@pytest.mark.parametrize("rounds", [1, 15, 16, 17, 64, 65, 1000])
def test_a_curve_has_few_rounds_evenly_spaced_from_the_first_on(rounds):
    found = sorted(round for notice in recalled(rounds, loss=1.0) for round in notice.rounds)
    assert len(found) <= MAX_POINTS
    assert found[0] == 0
    assert {after - before for before, after in pairwise(found)} <= {found[1] if found[1:] else 1}
    assert rounds - 1 - found[-1] < max(2, rounds / MAX_POINTS * 2)


def test_every_notice_fits_into_a_frame_with_others():
    many = {f"score {number} {'x' * 60}": math.pi for number in range(20)}
    notices = recalled(200, **many)
    assert len(notices) <= MAX_SCORES * MAX_POINTS / ROUNDS_OF_NOTICE
    sizes = [len(encoded(notice, level="scores")) for notice in notices]
    assert room(Body(bytes(16), 0, tuple((1.0, bytes(size)) for size in sizes[:3]))) >= 0


def test_a_curve_is_no_part_of_the_level_health():
    [notice] = recalled(3, loss=1.0)
    assert encoded(notice, level="health") is None
    assert decoded(encoded(notice, level="scores"), peer="ada", names=("ada",)) == notice


def test_a_later_observer_shows_the_curves_and_keeps_what_records_say():
    swarm = Swarm(Setting(peers=("ada",)))
    swarm.apply(1.0, record(2, loss=0.5))
    swarm.apply(2.0, ScoresRecalled(peer="ada", score="loss", rounds=(0, 2, 3), values=(2.0, 9.0, math.nan)))
    curves = swarm.history.curves("loss")
    assert (curves.rounds, curves.peers) == ([1, 3], {"ada": [2.0, 0.5]})


def test_what_a_copy_of_the_history_shows_does_not_change_with_recalled_scores():
    history = History()
    history.add(record(0, loss=1.0))
    copy = history.copy()
    history.recall("ada", "auc", {0: 0.9})
    assert (copy.curves("auc").rounds, history.curves("auc").rounds) == ([], [1])
