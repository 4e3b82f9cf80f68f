"""What a person must know at once."""

import math

from p2pfl.report.alarms import spoiled

GOOD, BAD = {"accuracy": 0.97, "loss": 0.1}, {"accuracy": 0.29, "loss": 28.0}


def alarm(lost=(), **how):
    given = {"round": 11, "deviation": 0.1, "before": GOOD, "now": GOOD, "best": None}
    return spoiled(lost, **given | how)


def test_a_partner_that_disappears_under_masks_raises_an_alarm_even_where_the_scores_hold():
    said = alarm(["peer2"])
    assert "nothing came from peer2 in round 12" in said
    assert "noise of deviation 0.1 " in said
    assert "If peer2 is only slow, or offline for a while, the masks cancel when it is received again" in said
    assert "if it has ended, start it with --resume while the others run" in said


def test_masks_of_several_partners_add_up():
    said = alarm(["peer2", "peer1", "peer3", "peer4"], now=BAD)
    assert said.startswith("ALARM: nothing came from peer1, peer2, peer3, peer4 in round 12, so the masks that they")
    assert "deviation 0.2 " in said
    assert "If peer1, peer2, peer3, peer4 are only slow" in said
    assert "if they have ended, start them with --resume" in said
    assert "accuracy 0.970 before, 0.290 now; loss 0.100 before, 28.000 now" in said


def test_a_loss_that_triples_raises_an_alarm_at_peers_that_know_nobody_who_is_gone():
    assert "the loss rose steeply in round 12" in alarm(now=BAD)
    assert "the loss rose steeply" in alarm(now=BAD | {"loss": math.nan})
    assert alarm(now=GOOD | {"loss": 0.29}) is None
    assert alarm(before=GOOD | {"loss": math.nan}, now=GOOD | {"loss": math.nan}) is None
    assert alarm(before=None, now=BAD) is None
    assert alarm(before={}, now={}) is None


def test_an_alarm_names_the_best_model_where_one_is_kept():
    assert "the best model so far is that of round 8, in a/b.safetensors" in alarm(["x"], best=(7, "a/b.safetensors"))
    assert "best model" not in alarm(["x"])
