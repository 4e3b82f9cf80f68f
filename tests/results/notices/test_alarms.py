"""What a person must know at once."""

import math

from p2pfl.results.notices.alarms import find_alarm
from p2pfl.results.notices.kinds import LossRose

GOOD, BAD = {"accuracy": 0.97, "loss": 0.1}, {"accuracy": 0.29, "loss": 28.0}


def alarm(**how):
    return find_alarm("ada", **{"round": 11, "before": GOOD, "now": GOOD, "best": None} | how)


def test_a_loss_that_triples_raises_an_alarm():
    assert alarm() is None
    assert alarm(now=BAD) == LossRose(peer="ada", round=11, before=GOOD, now=BAD)
    assert isinstance(alarm(now=BAD | {"loss": math.nan}), LossRose)
    assert alarm(now=GOOD | {"loss": 0.29}) is None
    assert alarm(before=GOOD | {"loss": math.nan}, now=GOOD | {"loss": math.nan}) is None
    assert alarm(before=None, now=BAD) is None
    assert alarm(before={}, now={}) is None


def test_an_alarm_names_the_best_model_where_one_is_kept():
    found = alarm(now=BAD, best=(7, "a/b.safetensors"))
    assert (found.best_round, found.best_file) == (7, "a/b.safetensors")
    assert alarm(now=BAD).best_round is None
