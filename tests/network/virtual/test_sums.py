"""What the world notices of sums."""

import numpy as np
import pytest

from p2pfl.network.secagg.sender import SumSender
from p2pfl.privacy.secagg.protocol import SumSlot
from worlds.explore import outcome
from worlds.keys import KeyWatch
from worlds.settings import Plans, setting
from worlds.sums import SumWatch

SLOT = SumSlot("eve", 0, 0)


@pytest.fixture
def failures():
    return []


@pytest.fixture
def watch(failures):
    return SumWatch(failures.append, KeyWatch(failures.append))


def test_a_sum_is_that_of_the_terms_on_its_roll(watch, failures):
    for sender, number in (("ada", 1), ("bob", 2), ("cleo", 4)):
        watch.terms[SLOT, sender].append(np.array([number, -number]))
    watch.summed(SLOT, ("ada", "cleo"), np.array([5, -5]))
    assert not failures
    watch.summed(SLOT, ("ada", "bob"), np.array([5, -5]))
    assert failures == [f"the sum of {SLOT} is not that of the terms of ada, bob"]


def test_two_terms_of_one_incarnation_for_one_sum_are_noticed(watch, failures):
    watch.masked(SLOT, "ada", 1)
    watch.masked(SLOT, "ada", 2)
    watch.masked(SumSlot("eve", 0, 1), "ada", 1)
    assert not failures
    watch.masked(SLOT, "ada", 1)
    assert failures == [f"ada masked two terms for {SLOT}"]


def test_worlds_look_at_sums(monkeypatch):
    """A sender that masks another term than it says is noticed in the first world with sums."""
    masked = SumSender.mask
    monkeypatch.setattr(SumSender, "mask", lambda self, slot, points: masked(self, slot, points + 1))
    seed = next(seed for seed in range(200) if "privacy.mode=secagg" in setting(seed).changes)
    assert "is not that of the terms" in outcome(seed, plans=Plans(), kinds=()).failure
