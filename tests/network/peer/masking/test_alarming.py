"""Alarms about models under masks whose loss rises steeply."""

from p2pfl.network.peer.rounds import Alarms
from p2pfl.results.notices.kinds import LossRose


def test_a_loss_that_rises_steeply_is_told_once():
    told = []
    alarms = Alarms("ada", told.append)
    for round, loss in enumerate((0.1, 9.0, 9.5)):
        alarms.look(round=round, scores={"loss": loss}, best=(0, None))
    assert told == [LossRose(peer="ada", round=1, before={"loss": 0.1}, now={"loss": 9.0}, best_round=0)]
