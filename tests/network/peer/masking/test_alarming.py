"""Alarms about masks that did not cancel, and what becomes of them."""

from datetime import UTC, datetime

import msgspec

from p2pfl.experiment import Experiment
from p2pfl.network.peer.launch.event_log import EventLog
from p2pfl.network.peer.masking.mask_alarms import Alarms
from p2pfl.network.protocol.ledgers.payments import Mask
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.results import Run
from p2pfl.results.notices.kinds import KeyTrusted, LossRose, MasksCancelled, MasksUncancelled

SLOT = Slot(0, 11)
SCORES = {"loss": 0.1}
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def alarmed(*lost, notify):
    """Alarms of ada after nothing came from somebody in round 11."""
    alarms = Alarms("ada", notify.append)
    alarms.look(lost, slot=SLOT, round=11, scores=SCORES, deviation=lambda: 0.1, best=None)
    return alarms


def listed(told):
    log = EventLog(Run(Experiment()), now=lambda: NOW)
    for event in told:
        log.observe(event)
    return log.alarms


def test_an_alarm_stays_as_long_as_its_masks_may_be_uncancelled():
    told = []
    alarms = alarmed("bob", notify=told)
    alarms.settle([Mask(("ada", "bob"), SLOT), Mask(("ada", "eve"), Slot(0, 12))])
    [alarm] = told
    assert alarm == MasksUncancelled(peer="ada", round=11, partners=("bob",), now=SCORES, deviation=0.1)
    assert listed(told) == (msgspec.structs.replace(alarm, time=NOW),)


def test_masks_that_cancel_later_are_reported_once_and_end_the_alarm():
    told = []
    alarms = alarmed("bob", notify=told)
    for _ in range(2):
        alarms.settle([Mask(("ada", "eve"), SLOT)])
    _, settled = told
    assert settled == MasksCancelled(peer="ada", round=11, partners=("bob",))
    assert listed(told)[0].cancelled


def test_an_alarm_about_two_partners_ends_with_the_masks_of_both():
    told = []
    alarms = alarmed("bob", "eve", notify=told)
    alarms.settle([Mask(("ada", "eve"), SLOT)])
    assert not listed(told)[0].cancelled
    alarms.settle([])
    assert listed(told)[0].cancelled


def test_an_alarm_about_a_loss_alone_stays():
    told = []
    alarms = alarmed(notify=told)
    assert told == []
    alarms.look((), slot=SLOT, round=12, scores={"loss": 9.0}, deviation=lambda: 0.1, best=None)
    alarms.settle([])
    assert [(type(each), each.cancelled) for each in listed(told)] == [(LossRose, False)]


def test_an_end_of_masks_at_one_peer_ends_no_alarm_of_another():
    alarm = MasksUncancelled(peer="ada", round=11, partners=("bob",), now=SCORES, deviation=0.1)
    told = [
        alarm,
        MasksCancelled(peer="eve", round=11, partners=("bob",)),
        KeyTrusted(peer="ada", neighbour="bob", key=""),
    ]
    assert not listed(told)[0].cancelled
