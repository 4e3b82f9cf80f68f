"""Names of masks: each is used once, and no key serves two releases."""

import itertools

import numpy as np
import pytest

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.ledgers.mask_slots import END, Mask, MaskSlots, Slot, draw_masks
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.topology import Topology

EDGES = (("ada", "bob"), ("bob", "cleo"))
GRAPH = Topology(("ada", "bob", "cleo"), EDGES)
SIZE = 2000


def masks(**given):
    return Masks(swarm_secrets(GRAPH, source=SeededSource(3), run="test"), deviation=3.0, topology=GRAPH, **given)


def test_masks_of_two_edges_rounds_or_attempts_are_independent():
    rows = [
        draw_masks({Mask(edge, Slot(attempt, round)): 1}, masks=masks(), size=SIZE) * 2.0**-20
        for edge, round, attempt in itertools.product(EDGES, range(3), range(3))
    ]
    alike = np.abs(np.corrcoef(rows)) - np.eye(len(rows))
    assert alike.max() < 6 / SIZE**0.5
    assert np.abs(np.std(rows, axis=1) / 3 - 1).max() < 6 / (2 * SIZE) ** 0.5


def test_masks_of_all_members_of_an_attempt_cancel():
    terms = {
        peer: MaskSlots(peer, partners=GRAPH.neighbours(peer)).take(Slot(1, 4), partners=GRAPH.neighbours(peer))
        for peer in GRAPH.peers
    }
    assert not sum(draw_masks(each, masks=masks(), size=SIZE) for each in terms.values()).any()


@pytest.mark.parametrize("slot", [Slot(0, 3), Slot(0, 4), Slot(1, 0)])
def test_a_slot_that_may_have_been_used_is_refused(slot):
    slots = MaskSlots("ada", partners=["bob"], until=Slot(1, 1))
    with pytest.raises(PrivacyError, match="begin a new run"):
        slots.take(slot, partners=["bob"])
    assert slots.take(Slot(1, 1), partners=["bob"])


def test_an_incarnation_that_goes_back_with_others_uses_the_attempt_that_they_agree_on():
    slots = MaskSlots("ada", partners=["bob"], until=Slot(2, 7))
    slots.agree(5)
    assert (slots.attempt, slots.until) == (5, Slot(5, 0))


def test_no_release_follows_the_promise_that_none_will():
    slots = MaskSlots("ada", partners=["bob"])
    slots.finish()
    assert (slots.over, slots.until) == (True, END)
    with pytest.raises(PrivacyError):
        slots.take(Slot(9, 9), partners=["bob"])


def test_masks_of_another_epoch_are_others():
    slots, again = (MaskSlots("ada", partners=["bob"]) for _ in range(2))
    slots.epochs["bob"], again.epochs["bob"] = b"one", b"two"
    one, two = (draw_masks(each.take(Slot(0, 0), partners=["bob"]), masks=masks(), size=9) for each in (slots, again))
    assert (one != two).any()


def test_masks_with_whom_no_secret_is_shared_are_refused():
    terms = MaskSlots("ada", partners=["cleo"]).take(Slot(0, 0), partners=["cleo"])
    with pytest.raises(PrivacyError, match="ada and cleo share no secret"):
        draw_masks(terms, masks=masks(), size=9)
