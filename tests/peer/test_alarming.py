"""Alarms about masks that did not cancel, and what becomes of them."""

from p2pfl.peer.alarming import Alarms, Raised
from p2pfl.peer.notices import Alarm, Notice, Settled
from p2pfl.protocol.ledgers.payments import Mask
from p2pfl.protocol.ledgers.slots import Slot

SLOT = Slot(0, 11)
SCORES = {"loss": 0.1}


def alarmed(*lost, told):
    """Alarms of ada after nothing came from somebody in round 11."""
    alarms = Alarms("ada", told.append)
    alarms.look(lost, slot=SLOT, round=11, scores=SCORES, deviation=lambda: 0.1, best=None)
    return alarms


def listed(told):
    raised = Raised()
    for event in told:
        raised.observe(event)
    return raised.facts


def test_an_alarm_stays_as_long_as_its_masks_may_be_uncancelled():
    told = []
    alarms = alarmed("bob", told=told)
    alarms.settle([Mask(("ada", "bob"), SLOT), Mask(("ada", "eve"), Slot(0, 12))])
    [alarm] = told
    assert isinstance(alarm, Alarm)
    [found] = listed(told)
    assert found == {
        "peer": "ada",
        "round": 11,
        "partners": ["bob"],
        "cancelled": False,
        "sentence": alarm.sentence,
    }


def test_masks_that_cancel_later_are_reported_once_and_end_the_alarm():
    told = []
    alarms = alarmed("bob", told=told)
    for _ in range(2):
        alarms.settle([Mask(("ada", "eve"), SLOT)])
    _, settled = told
    assert isinstance(settled, Settled)
    assert settled.sentence.startswith("masks of bob are cancelled: what was missing in round 12 ")
    assert listed(told)[0]["cancelled"]


def test_an_alarm_about_two_partners_ends_with_the_masks_of_both():
    told = []
    alarms = alarmed("bob", "eve", told=told)
    alarms.settle([Mask(("ada", "eve"), SLOT)])
    assert not listed(told)[0]["cancelled"]
    alarms.settle([])
    assert listed(told)[0]["cancelled"]


def test_an_alarm_about_a_loss_alone_stays():
    told = []
    alarms = alarmed(told=told)
    assert told == []
    alarms.look((), slot=SLOT, round=12, scores={"loss": 9.0}, deviation=lambda: 0.1, best=None)
    alarms.settle([])
    assert [each["cancelled"] for each in listed(told)] == [False]


def test_an_end_of_masks_at_one_peer_ends_no_alarm_of_another():
    told = [Alarm("ada", "", 11, ("bob",)), Settled("eve", "", 11, ("bob",)), Notice("ada", "something else")]
    assert not listed(told)[0]["cancelled"]
