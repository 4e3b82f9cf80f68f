"""Peers that come back while the members of a run go on: requests, answers, and who is a member when."""

import pytest

from ballots import reported
from commit_sessions import NAMES, Swarm
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.attempt_reports import complete
from p2pfl.network.protocol.incoming.plausible import AFTER
from p2pfl.network.protocol.interface.effects import Admitted, Concluded, Missing, Undecided
from p2pfl.network.protocol.interface.events import Tick
from p2pfl.network.protocol.interface.requests import Begin, Expect, Join, Open, ReportAttempt, Try
from p2pfl.network.protocol.ledgers.mask_slots import LEAP
from p2pfl.network.protocol.wire.verdict_messages import Admission, JoinRequest
from sessions import LIFE, announced, arrived, heartbeat, published, session

LEFT = ("ada", "bob", "dan")
REQUEST = arrived("eve", JoinRequest(LIFE + 1))


@pytest.fixture
def three():
    """Members of a run from which eve was dropped, and which have met its next incarnation."""
    swarm = Swarm("eve")
    for name in LEFT:
        swarm.ask(name, Try(0, 1, LEFT))
        for event in (announced("eve", life=LIFE + 1), heartbeat("eve", life=LIFE + 1, first=None)):
            swarm.ask(name, event)
    return swarm


def returned(*, names=NAMES, **given):
    """Eve, which asks to be a member, and has met the others."""
    eve = session("eve", life=LIFE + 1, names=names, commits=True, **given)
    for name in sorted({*names} - {"eve"}):
        for event in (announced(name), heartbeat(name, round=3)):
            eve.handle(event, now=0.0)
    return eve, eve.handle(Join(), now=0.0)


def answers(effects):
    return [each for each in effects if isinstance(each, Admitted | Undecided)]


def test_a_peer_that_all_members_have_met_is_a_member_from_the_next_round_on(three):
    for name in LEFT:
        three.ask(name, REQUEST)
    three.report(*LEFT)
    assert three.outcomes == {name: [Concluded(committed=True, members=NAMES)] for name in LEFT}
    assert [message for _, message in three.sent if isinstance(message, Admission)][-3:] == [Admission(1, 1, NAMES)] * 3


def test_a_peer_that_one_member_has_not_met_waits_for_another_round(three):
    for name in LEFT[:2]:
        three.ask(name, REQUEST)
    three.report(*LEFT)
    assert three.outcomes == {name: [Concluded(committed=True, members=LEFT)] for name in LEFT}


def test_nobody_joins_with_an_attempt_that_does_not_count(three):
    for name in LEFT:
        three.ask(name, REQUEST)
    three.report(*LEFT[:2])
    three.report("dan", complete=False)
    assert three.outcomes == {name: [Concluded(committed=False, members=LEFT)] for name in LEFT}


def test_a_peer_that_has_gone_again_is_not_named(three):
    for name in LEFT:
        three.ask(name, REQUEST)
        three.ask(name, announced("eve", "dead", life=LIFE + 1))
    three.wait(4)
    three.report(*LEFT)
    assert three.outcomes == {name: [Concluded(committed=True, members=LEFT)] for name in LEFT}


def test_a_request_is_answered_with_the_present_attempt_and_later_with_the_first_one_of_the_peer(three):
    ada = three.sessions["ada"]
    assert published(ada.handle(REQUEST, now=0.0), Admission) == [("in/eve", Admission(0, 1, LEFT))]
    for name in LEFT[1:]:
        three.ask(name, REQUEST)
    three.report(*LEFT)
    assert published(ada.handle(REQUEST, now=0.0), Admission) == [("in/eve", Admission(1, 1, NAMES))]
    three.ask("ada", Try(1, 1, NAMES))
    assert published(ada.handle(REQUEST, now=0.0), Admission) == [("in/eve", Admission(1, 1, NAMES))]
    three.ask("ada", Try(1, 2, NAMES))
    assert published(ada.handle(REQUEST, now=0.0), Admission) == [("in/eve", Admission(1, 2, LEFT))]


def test_a_peer_that_restarts_in_its_first_round_does_not_begin_with_the_attempt_of_its_earlier_incarnation(three):
    for name in LEFT:
        three.ask(name, REQUEST)
    three.report(*LEFT)
    ada = three.sessions["ada"]
    three.ask("ada", Try(1, 1, NAMES))
    three.ask("ada", announced("eve", life=LIFE + 2))
    three.ask("ada", heartbeat("eve", life=LIFE + 2, first=None))
    again = arrived("eve", JoinRequest(LIFE + 2))
    assert published(ada.handle(again, now=0.0), Admission) == [("in/eve", Admission(1, 1, LEFT))]
    assert ada.shared.abandoned
    three.ask("ada", Try(1, 2, LEFT))
    assert ada.commits.admissions.candidate(LEFT, round=1) == NAMES.index("eve")


def test_nobody_becomes_a_member_after_the_last_round():
    """The peer would end with its old model as if it had played."""
    swarm = Swarm("eve", last=1 + AFTER)
    for name in LEFT:
        swarm.ask(name, Try(0, 1, LEFT))
        swarm.ask(name, announced("eve", life=LIFE + 1))
        swarm.ask(name, heartbeat("eve", life=LIFE + 1, first=None))
        swarm.ask(name, REQUEST)
    swarm.report(*LEFT)
    assert swarm.outcomes == {name: [Concluded(committed=True, members=LEFT)] for name in LEFT}


def test_each_peer_that_asks_is_the_first_candidate_of_some_round():
    """So one that only some members have met does not keep out others."""
    ada = Swarm().sessions["ada"]
    for name in ("bob", "eve"):
        ada.handle(arrived(name, JoinRequest(LIFE)), now=0.0)
    names = [NAMES[ada.commits.admissions.candidate(("ada", "dan"), round=round)] for round in range(8)]
    assert names == ["bob", "bob", "eve", "eve"] * 2


def test_statements_of_an_earlier_run_by_a_member_that_has_restarted_are_not_believed():
    """Others can repeat them: eve asks before the first attempt that names it, and has no part in this one."""
    ada = session("ada", names=NAMES, commits=True, keeps=True)
    for name, life in {"bob": LIFE, "dan": LIFE, "eve": LIFE + 1}.items():
        for event in (announced(name, life=life), heartbeat(name, life=life)):
            ada.handle(event, now=0.0)
    for event in (Begin(0), Try(0, 0, LEFT), REQUEST, Try(0, 1, NAMES), ReportAttempt(complete=True)):
        ada.handle(event, now=0.0)
    for life, missing in ((LIFE - 1, True), (LIFE + 1, False)):
        ada.handle(arrived("bob", reported("eve", complete(), place=(0, 1), voter=life)), now=0.0)
        assert ("eve" in ada.commits._settlement.silent) is missing


def test_a_request_of_another_incarnation_is_refused(three):
    with pytest.raises(DecodeError, match="the announced incarnation"):
        three.sessions["ada"].commits.receive("eve", JoinRequest(LIFE))


def test_nobody_waits_for_a_model_of_a_member_that_has_restarted():
    four = Swarm()
    four.ask("bob", Open((0, 1), ("ada", "eve"), since=0))
    four.ask("bob", Expect("ada"))
    four.ask("bob", announced("eve", life=LIFE + 1))
    four.ask("bob", heartbeat("eve", life=LIFE + 1, first=None))
    assert not four.answers["bob"]
    four.ask("bob", REQUEST)
    assert four.answers["bob"] == [Missing("ada", "abandoned")]


def test_a_peer_begins_once_more_than_half_of_the_other_members_admit_it_alike():
    eve, effects = returned()
    assert published(effects, JoinRequest) == [("account", JoinRequest(LIFE + 1))]
    told = Admission(4, 2, NAMES)
    assert not answers(eve.handle(arrived("ada", told), now=0.1))
    assert not answers(eve.handle(arrived("ada", told), now=0.2))
    assert not answers(eve.handle(arrived("bob", Admission(4, 3, NAMES)), now=0.3))
    assert answers(eve.handle(arrived("dan", told), now=0.4)) == [Admitted(4, 2, NAMES)]
    assert not answers(eve.handle(arrived("bob", told), now=0.5))


def test_one_member_admits_nobody_alone():
    """Not even where it names no other member."""
    eve, _ = returned()
    assert not answers(eve.handle(arrived("ada", Admission(4, 2, ("ada", "eve"))), now=0.1))
    assert not answers(eve.handle(Tick(), now=2.0))
    for name in LEFT[1:]:
        eve.handle(announced(name, "dead"), now=3.0)
    assert not answers(eve.handle(arrived("ada", Admission(4, 2, ("ada", "eve"))), now=3.1))


def test_members_cannot_admit_a_peer_by_naming_fewer_members_than_there_are():
    eve, _ = returned(names=(*NAMES, "mia"))
    for name in LEFT[:2]:
        assert not answers(eve.handle(arrived(name, Admission(4, 2, ("ada", "bob", "eve"))), now=0.1))


def test_the_answer_of_a_peer_that_has_left_does_not_count():
    eve, _ = returned()
    eve.handle(arrived("ada", Admission(4, 2, NAMES)), now=0.1)
    eve.handle(announced("ada", "dead"), now=0.2)
    assert not answers(eve.handle(arrived("bob", Admission(4, 2, NAMES)), now=0.3))
    assert answers(eve.handle(arrived("dan", Admission(4, 2, NAMES)), now=0.4)) == [Admitted(4, 2, NAMES)]


@pytest.mark.parametrize(
    "told",
    [
        Admission(8, 2, NAMES),
        Admission(4, LEAP + 1, NAMES),
        Admission(4, 2, NAMES[::-1]),
        Admission(4, 2, (*NAMES, "eve")),
        Admission(4, 2, (*NAMES, "mia")),
    ],
    ids=["round", "attempt", "order", "twice", "stranger"],
)
def test_an_admission_that_no_member_can_send_is_refused(told):
    eve, _ = returned(last=8 + AFTER)
    for name in LEFT:
        assert not answers(eve.handle(arrived(name, told), now=0.1))
    assert eve.shared.refused == {f"{name}: not a message": 1 for name in LEFT}


@pytest.mark.parametrize("told", [Admission(4, 2, LEFT), Admission(4, 2, ("ada", "eve")), Admission(4, 2, ())])
def test_a_peer_that_is_no_member_yet_goes_on_asking(told):
    eve, _ = returned()
    for name in LEFT:
        assert not answers(eve.handle(arrived(name, told), now=0.1))
    assert published(eve.handle(Tick(), now=2.0), JoinRequest)


def test_a_peer_that_gets_no_answer_for_the_timeout_ends():
    eve, _ = returned()
    for name, now in (("ada", 4.0), ("bob", 5.0)):
        eve.handle(arrived(name, Admission(4, 2, LEFT)), now=now)
    assert not answers(eve.handle(Tick(), now=13.9))
    assert answers(eve.handle(Tick(), now=14.0)) == [Undecided(frozenset(LEFT))]


def test_a_peer_that_only_one_other_answers_does_not_wait_longer():
    """A run has two members at least."""
    eve, _ = returned()
    for now in range(1, 10):
        assert not answers(eve.handle(arrived("ada", Admission(4, now, LEFT)), now=now))
    assert answers(eve.handle(Tick(), now=10.0)) == [Undecided(frozenset(LEFT))]
