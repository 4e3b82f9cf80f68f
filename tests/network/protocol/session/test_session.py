"""One session: three events, and what follows from them."""

import copy
import math

import pytest
import torch

from p2pfl.core.errors import PeerError
from p2pfl.network.protocol.interface.effects import (
    Clear,
    Deliver,
    Entered,
    Fail,
    Flush,
    Gathered,
    Left,
    Missing,
    Parse,
    Play,
    Publish,
    Sent,
    Settled,
    Store,
    Subscribe,
    WakeAt,
)
from p2pfl.network.protocol.interface.events import Connected, Flushed, Published, Received, Stored, Subscribed, Tick
from p2pfl.network.protocol.interface.requests import (
    Close,
    Enter,
    Expect,
    Finish,
    Gather,
    Leave,
    NextRound,
    Offer,
    Open,
    Tolerate,
    Turn,
)
from p2pfl.network.protocol.wire.messages import Account, Ack, Announcement, Chunk, Claim, Pulse
from sessions import announced, arrived, arrives, heartbeat, met, model, offered, published, session
from snapshots import snapshot


def answers(effects):
    """The effects that are no messages and no alarms."""
    return [each for each in effects if not isinstance(each, Publish | WakeAt | Subscribe)]


def entered():
    ada = session()
    ada.handle(Enter(limit=2**20), now=0.0)
    ada.handle(Subscribed("places"), now=0.1)
    ada.handle(Published("claim"), now=0.2)
    ada.handle(arrived("ada", Claim(7)), now=0.3)
    ada.handle(Tick(), now=0.3)
    ada.handle(Published("announced"), now=0.4)
    return ada


# ---------------------------------------------------------------------- entering


def test_a_peer_subscribes_then_claims_its_name_and_only_then_announces_itself():
    ada = session()
    assert answers(ada.handle(Enter(limit=2**20), now=0.0)) == []
    (claim, *_) = ada.handle(Subscribed("places"), now=0.1)
    assert (claim.place, claim.message, claim.retain) == ("in/ada", Claim(7), False)
    assert ada.handle(Published("claim"), now=0.2) == [WakeAt(0.2 + 1.0 + 2 * (0.2 - 0.1))]
    assert ada.handle(arrived("ada", Claim(7)), now=0.3) == [WakeAt(0.3)]  # nobody is retained under its name
    (announcement,) = ada.handle(Tick(), now=0.3)
    assert (announcement.place, announcement.message.status, announcement.retain) == ("state", "up", True)
    assert ada.handle(Published("announced"), now=0.4) == [Entered(), WakeAt(1.4)]


def test_a_namesake_that_lives_has_two_seconds_to_answer():
    ada = session()
    ada.handle(Enter(limit=2**20), now=0.0)
    ada.handle(Subscribed("places"), now=0.0)
    ada.handle(announced("ada", life=5), now=0.1)
    assert ada.handle(arrived("ada", Claim(7)), now=0.2) == [WakeAt(2.2)]
    (failure,) = answers(ada.handle(announced("ada", life=5, answers=b""), now=0.3))
    assert isinstance(failure, Fail)
    assert "already in use" in str(failure.error)


def test_a_peer_answers_a_newcomer_under_its_name_and_not_one_from_the_past():
    ada = entered()
    assert [message.status for _, message in published(ada.handle(arrived("ada", Claim(9)), now=1.0))] == ["up"]
    assert published(ada.handle(arrived("ada", Claim(5)), now=1.0)) == []


def test_a_peer_that_is_taken_for_dead_says_that_it_lives():
    ada = entered()
    (said,) = published(ada.handle(announced("ada", "dead"), now=0.5))
    assert (said[1].status, said[1].turn) == ("up", 1)


def test_a_connection_that_was_lost_while_a_peer_entered_is_reported_with_the_first_heartbeat():
    ada = entered()
    ada.handle(Connected(), now=0.5)
    ada.handle(Tick(), now=1.4)
    said = [message for _, message in published(ada.handle(Published("heartbeat"), now=1.5), Announcement)]
    assert [message.turn for message in said] == [1]


# ---------------------------------------------------------------------- gathering


def test_a_peer_gathers_until_all_are_there():
    ada = session()
    assert ada.handle(Gather(quorum=1.0, within=30.0), now=0.0) == [WakeAt(30.0)]
    assert answers(ada.handle(announced("bob"), now=1.0)) == []
    assert answers(ada.handle(announced("eve"), now=2.0)) == [Gathered()]


def test_a_peer_gathers_without_a_limit_until_all_are_there():
    ada = session()
    assert ada.handle(Gather(quorum=1.0, within=math.inf), now=0.0) == []
    assert answers(ada.handle(announced("bob"), now=1e9)) == []
    assert answers(ada.handle(announced("eve"), now=2e9)) == [Gathered()]


def test_a_quorum_is_enough_once_the_time_is_over_and_less_is_not():
    for quorum, fails in ((0.5, False), (1.0, True)):
        ada = session()
        ada.handle(Gather(quorum=quorum, within=30.0), now=0.0)
        ada.handle(announced("bob"), now=1.0)
        (answer,) = answers(ada.handle(Tick(), now=30.0))
        assert isinstance(answer.error, PeerError) is fails


# ---------------------------------------------------------------------- sending


def test_nothing_leaves_before_it_is_stored():
    ada = met()
    ada.handle(Open((0, 0), ("bob", "eve"), since=0), now=1.0)
    assert ada.handle(Offer(model(), phase=0), now=1.0) == [Store()]
    effects = ada.handle(Stored(), now=1.1)
    assert [place for place, _ in published(effects, Chunk)] == ["pub/0"]
    assert answers(effects) == [Sent()]


def test_an_account_leaves_with_every_fifth_model_and_before_it():
    ada, said = met(keeps=True), []
    for round in range(5):
        ada.ledgers.open((round, 0), torch.zeros(8).numpy(), weights={"bob": 0.3, "eve": 0.3}, chain=0)
        said.append([type(message) for _, message in published(offered(ada, round=round))])
        ada.ledgers.close()
        for peer in ("bob", "eve"):
            ada.handle(arrived(peer, Ack(7, 0, round + 1, round + 9)), now=1.0)
    assert said == [[Chunk]] * 4 + [[Account, Chunk]]


def test_a_model_waits_while_the_one_before_has_no_credit_and_a_newest_one_is_left_out():
    ada = met()
    for round in range(2):
        assert Sent() in offered(ada, round=round)  # two chunks may go before the first acknowledgement
    assert Sent() in offered(ada, round=2)
    assert Sent() not in offered(ada, round=3)
    bob, eve = (arrived(peer, Ack(7, 0, 2, 10)) for peer in ("bob", "eve"))
    assert Sent() not in ada.handle(bob, now=1.0)
    assert Sent() in ada.handle(eve, now=1.0)
    for round in range(4, 11):
        offered(ada, round=round)
    ada.handle(Open((11, 0), (), since=11), now=1.0)
    assert ada.handle(Offer(model(11), phase=0, newest=True), now=1.0) == [Sent()]


# ---------------------------------------------------------------------- waiting


def test_a_model_that_is_there_is_delivered_at_once_and_one_that_comes_later_then():
    ada = met()
    for event in arrives("bob", value=2.0):
        ada.handle(event, now=0.5)
    ada.handle(Open((0, 0), ("bob", "eve"), since=0), now=1.0)
    (answer,) = answers(ada.handle(Expect("bob"), now=1.0))
    assert torch.equal(answer.model.row, torch.full((8,), 2.0))
    assert answers(ada.handle(Expect("eve"), now=1.0)) == []
    (*_, answer) = [each for event in arrives("eve") for each in answers(ada.handle(event, now=2.0))]
    assert isinstance(answer, Deliver)
    assert answer.sender == "eve"


def test_what_is_kept_can_be_expected_again():
    ada = met()
    for event in arrives("bob"):
        ada.handle(event, now=0.5)
    ada.handle(Open((0, 0), ("bob",), since=0), now=1.0)
    for keep in (True, True, False):
        assert isinstance(answers(ada.handle(Expect("bob", keep=keep), now=1.0))[0], Deliver)


def test_a_silent_neighbour_is_waited_for_until_its_deadline():
    ada = met(patience=10.0)
    ada.handle(Open((0, 0), ("bob", "eve"), since=0), now=1.0)
    assert WakeAt(11.0) in ada.handle(Expect("bob"), now=1.0)
    assert answers(ada.handle(Tick(), now=10.9)) == []
    assert answers(ada.handle(Tick(), now=11.0)) == [Missing("bob", "timeout")]


def test_a_neighbour_that_says_it_waits_itself_is_waited_for_longer():
    ada = met(patience=10.0)
    ada.handle(Open((1, 0), ("bob", "eve"), since=1), now=1.0)
    ada.handle(Expect("bob"), now=1.0)
    ada.handle(heartbeat("bob", waiting=True), now=9.0)
    assert answers(ada.handle(Tick(), now=18.9)) == []
    assert answers(ada.handle(Tick(), now=19.0)) == [Missing("bob", "timeout")]


def test_a_neighbour_that_has_sent_a_later_model_does_not_send_this_one():
    ada = met()
    ada.handle(Open((0, 0), ("bob",), since=0), now=1.0)
    ada.handle(Expect("bob"), now=1.0)
    (event,) = arrives("bob", round=1)
    assert answers(ada.handle(event, now=2.0)) == [Missing("bob", "overtaken")]


def test_a_neighbour_that_continued_two_rounds_ago_is_not_waited_for():
    """It gave this peer up, so its models of the rounds in between never arrive; both would wait for each other."""
    ada = met(patience=10.0)
    ada.handle(Open((3, 0), ("bob", "eve"), since=3), now=1.0)
    ada.handle(Expect("bob"), now=1.0)
    ada.handle(heartbeat("bob", round=4, tail=9, head=9), now=2.0)
    assert answers(ada.handle(Tick(), now=2.0)) == []  # it may wait for this peer, and its model may be on its way
    assert answers(ada.handle(heartbeat("bob", round=5, tail=9, head=9), now=3.0)) == [Missing("bob", "overtaken")]
    assert answers(ada.handle(Expect("eve"), now=3.0)) == []


def test_a_neighbour_that_is_ahead_is_waited_for_while_something_of_it_is_on_its_way():
    ada = met(patience=10.0)
    ada.handle(Open((3, 0), ("bob",), since=3), now=1.0)
    ada.handle(Expect("bob"), now=1.0)
    assert answers(ada.handle(heartbeat("bob", round=6, tail=8, head=9), now=2.0)) == []
    (event,) = arrives("bob", round=3, sequence=8)
    (answer,) = answers(ada.handle(event, now=3.0))
    assert isinstance(answer, Deliver)


def test_who_takes_part_only_later_is_not_expected():
    ada = met()
    ada.handle(heartbeat("bob", first=3, round=3), now=0.5)
    ada.handle(Open((1, 0), ("bob", "eve"), since=1), now=1.0)
    assert answers(ada.handle(Expect("bob"), now=1.0)) == [Missing("bob", "not expected")]


def test_a_slow_neighbour_is_left_behind_where_that_is_tolerated():
    ada = met()
    ada.handle(Tolerate(0.5), now=0.0)
    for round in range(4):
        ada.handle(Turn(round), now=100.0 * round)
        for event in arrives("eve", round=round, sequence=round):
            ada.handle(event, now=100.0 * round + 2.0)
        offered(ada, round=round, now=100.0 * round + 1.0)
        ada.handle(Expect("eve"), now=100.0 * round + 2.0)
        waited = answers(ada.handle(Expect("bob"), now=100.0 * round + 2.0))
        if not waited:
            waited = answers(ada.handle(Tick(), now=100.0 * round + 50.0))
        ada.handle(Close(), now=100.0 * round + 50.0)
    assert waited == [Missing("bob", "timeout")]
    assert ada.waiting.is_left_behind("bob")
    assert answers(ada.handle(NextRound(apart=1, last=10), now=350.0)) == [Play(4)]


# ---------------------------------------------------------------------- heartbeats


def test_a_heartbeat_follows_once_the_one_before_is_published():
    ada = entered()
    assert [type(message) for _, message in published(ada.handle(Tick(), now=1.4))] == [Pulse]
    assert ada.handle(Tick(), now=60.0) == []
    assert WakeAt(61.0) in ada.handle(Published("heartbeat"), now=60.0)


def test_heartbeats_say_whether_the_peer_waits():
    ada = met()
    ada.handle(Published("announced"), now=0.0)
    ada.naming.stage = "inside"
    ada.handle(Open((0, 0), ("bob",), since=0), now=0.0)
    ada.handle(Expect("bob"), now=0.0)
    ((_, pulse),) = published(ada.handle(Tick(), now=1.0), Pulse)
    assert pulse.waiting


# ---------------------------------------------------------------------- settling and leaving


def test_a_peer_that_has_finished_tells_its_partners_until_all_have():
    ada = met(keeps=True)
    assert ada.handle(Finish("flows"), now=1.0) == [Store()]
    assert [place for place, _ in published(ada.handle(Stored(), now=1.0))] == ["account"]
    assert ada.handle(Tick(), now=2.0) == [Store()]  # somebody may not have heard
    ada.handle(Stored(), now=2.0)
    bob, eve = met("bob", others=("ada", "eve"), keeps=True), met("eve", others=("ada", "bob"), keeps=True)
    said = []
    for other, name in ((bob, "bob"), (eve, "eve")):
        other.handle(Finish("flows"), now=1.0)
        ((_, account),) = published(other.handle(Stored(), now=1.0), Account)
        said += answers(ada.handle(arrived(name, account), now=2.5))
    assert said == [Settled()]


def test_partners_that_are_gone_or_hang_are_not_waited_for():
    ada = met(keeps=True, patience=10.0)
    ada.handle(Finish("flows"), now=1.0)
    ada.handle(Stored(), now=1.0)
    ada.handle(announced("bob", "left"), now=2.0)
    ada.handle(Tick(), now=11.0)
    assert answers(ada.handle(Stored(), now=11.0)) == [Settled()]


def test_a_goodbye_waits_for_what_was_sent_and_is_cleared():
    ada = met()
    offered(ada)
    assert answers(ada.handle(Leave(done=True, until=60.0), now=1.0)) == []
    ada.handle(arrived("bob", Ack(7, 0, 1, 9)), now=2.0)
    assert Flush() in ada.handle(arrived("eve", Ack(7, 0, 1, 9)), now=3.0)
    (goodbye,) = ada.handle(Flushed(), now=3.0)
    assert (goodbye.message.status, goodbye.message.done, goodbye.receipt) == ("left", True, "goodbye")
    assert ada.handle(Published("goodbye"), now=3.1) == [Clear("cleared")]
    assert ada.handle(Published("cleared"), now=3.2) == [Left()]


# ---------------------------------------------------------------------- bytes


def test_hostile_bytes_are_counted_and_change_nothing_else():
    ada = met()
    before = snapshot(ada.streams.inboxes), snapshot(ada.mailbox)
    for data in (b"", b"junk", bytes(100), b"\x04\x00\x00"):
        assert ada.handle(Received("p2pfl/v1/s/peer/bob/pub/0", data), now=1.0) == []
    assert ada.shared.refused == {"bob: not a message": 4}
    assert (snapshot(ada.streams.inboxes), snapshot(ada.mailbox)) == before


def test_nothing_where_announcements_and_accounts_are_is_no_hostile_payload():
    ada = met()
    for place in ("state", "account"):  # the first clears it, and with both the doctor tries its rights
        assert ada.handle(Received(f"p2pfl/v1/s/peer/bob/{place}", b""), now=1.0) == []
    assert ada.shared.refused == {}


def test_a_payload_that_is_too_long_is_not_opened():
    ada = met()
    ada.handle(Received("p2pfl/v1/s/peer/bob/pub/0", bytes(ada.shared.codec.largest + 1)), now=1.0)
    assert ada.shared.refused == {"bob: not a message": 1}


def test_a_large_model_is_read_elsewhere_and_acknowledged_when_it_is():
    length = 2**18 + 1
    ada = met(length=length, chunk=2**21)
    (event,) = arrives("bob", length=length, size=2**21)
    (parse,) = ada.handle(event, now=1.0)
    assert isinstance(parse, Parse)
    ada.handle(Open((0, 0), ("bob",), since=0), now=1.0)
    ada.handle(Expect("bob"), now=1.0)
    effects = ada.handle(parse.result(), now=2.0)
    assert [type(each) for each in answers(effects)] == [Deliver]


# ---------------------------------------------------------------------- copies


def test_a_copy_decides_alike_and_neither_changes_the_other():
    one = met(keeps=True)
    offered(one)
    for event in arrives("bob"):
        one.handle(event, now=0.5)
    other = copy.deepcopy(one)
    assert snapshot(one) == snapshot(other)
    before = snapshot(one)
    events = [
        Expect("bob"),
        heartbeat("eve", round=1),
        announced("eve", "left"),
        arrived("bob", Ack(7, 0, 1, 9)),
        Tick(),
    ]
    for now, event in enumerate(events, start=1):
        other.handle(event, now=float(now))
    assert snapshot(one) == before != snapshot(other)
    for now, event in enumerate(events, start=1):
        one.handle(event, now=float(now))
    assert snapshot(one) == snapshot(other)


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_copy_cuts_the_rest_of_a_model_alike(cut):
    ada = met(length=2000)
    ada.handle(Open((0, 0), (), since=0), now=0.0)
    ada.handle(Offer(model(length=2000), phase=0), now=0.0)
    ada.handle(Stored(), now=0.0)
    for number in range(cut):
        for peer in ("bob", "eve"):
            ada.handle(arrived(peer, Ack(7, 0, number, number + 3)), now=1.0)
    other, found = copy.deepcopy(ada), []
    for each in (ada, other):
        each.handle(arrived("bob", Ack(7, 0, cut, 99)), now=2.0)
        effects = each.handle(arrived("eve", Ack(7, 0, cut, 99)), now=2.0)
        found.append([(chunk.sequence, bytes(chunk.data)) for _, chunk in published(effects, Chunk)])
    assert found[0] == found[1] != []
