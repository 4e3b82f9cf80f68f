"""What a person must know at once."""

import math

from p2pfl.results.notices.alarms import find_alarm
from p2pfl.results.notices.kinds import LossRose, MasksUncancelled

GOOD, BAD = {"accuracy": 0.97, "loss": 0.1}, {"accuracy": 0.29, "loss": 28.0}


def alarm(lost=(), **how):
    given = {"round": 11, "deviation": 0.1, "before": GOOD, "now": GOOD, "best": None}
    return find_alarm("ada", lost, **given | how)


def test_a_partner_that_disappears_under_masks_raises_an_alarm_even_where_the_scores_hold():
    assert alarm(["peer2"]) == MasksUncancelled(
        peer="ada", round=11, partners=("peer2",), before=GOOD, now=GOOD, deviation=0.1
    )


def test_masks_of_several_partners_add_up():
    found = alarm(["peer2", "peer1", "peer3", "peer4"], now=BAD)
    assert found.partners == ("peer1", "peer2", "peer3", "peer4")
    assert found.deviation == 0.2
    assert (found.before, found.now) == (GOOD, BAD)


def test_a_loss_that_triples_raises_an_alarm_at_peers_that_know_nobody_who_is_gone():
    assert alarm(now=BAD) == LossRose(peer="ada", round=11, before=GOOD, now=BAD)
    assert isinstance(alarm(now=BAD | {"loss": math.nan}), LossRose)
    assert alarm(now=GOOD | {"loss": 0.29}) is None
    assert alarm(before=GOOD | {"loss": math.nan}, now=GOOD | {"loss": math.nan}) is None
    assert alarm(before=None, now=BAD) is None
    assert alarm(before={}, now={}) is None


def test_an_alarm_names_the_best_model_where_one_is_kept():
    found = alarm(["x"], best=(7, "a/b.safetensors"))
    assert (found.best_round, found.best_file) == (7, "a/b.safetensors")
    assert alarm(["x"]).best_round is None
