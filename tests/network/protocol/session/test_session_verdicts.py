"""Verdicts of sessions: events in, effects out, without a network."""

import pytest
from msgspec.structs import replace

from ballots import COUNTED, cast, kept, prepare, promised
from counting import totalling
from known_peers import LARGEST, SIGNED, SWARM
from p2pfl.network.protocol.interface.effects import Decided, Sent, Store, Undecided
from p2pfl.network.protocol.interface.events import Stored, Tick
from p2pfl.network.protocol.interface.requests import Begin, Decide, Offer, Open
from p2pfl.network.protocol.wire.reliable_stream import Outbox
from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Ballot,
    Decision,
    Promise,
    Proposal,
    Votes,
)
from sessions import NAMES, announced, arrived, heartbeat, met, model, published, session
from verdict_sessions import FourSessions, ThreeSessions, kinds


def test_a_model_leaves_with_its_owners_vote_once_that_is_durable():
    ada = met("ada", keeps=True)
    ada.handle(Open((0, 0), ("bob", "eve"), since=0), now=0.0)
    effects = ada.handle(Offer(model(voted=True), phase=0, decided=True), now=0.0)
    assert not published(effects)
    assert effects[:2] == [Store(), Store()]
    assert not published(ada.handle(Stored(), now=0.0))
    second = ada.handle(Stored(), now=0.0)
    assert [place for place, _ in published(second)] == ["pub/0"]


def test_where_all_models_arrive_votes_are_all_that_is_sent():
    three = ThreeSessions()
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))
    assert three.answers == {name: [Decided(frozenset())] for name in NAMES}
    assert kinds(three.sent) == {Votes}
    assert len(three.sent) == len(NAMES)  # for those that they hold; their own leave with the models


def test_a_model_that_nobody_holds_is_dropped_and_its_owner_is_gone():
    three = ThreeSessions("eve")
    three.release("ada", "bob")
    three.decide("ada", "bob")
    three.decide("bob", "ada")
    three.wait(1.0)
    for name in ("ada", "bob"):
        assert three.answers[name] == [Decided(frozenset({"eve"}))]
        assert "eve" not in three.sessions[name].membership.present


def test_a_peer_that_counted_last_and_is_gone_may_have_released_until_its_model_is_dropped_or_it_restarts():
    three = ThreeSessions()
    ada = three.sessions["ada"].verdicts
    assert ada.departed == frozenset()
    three.ask("ada", announced("eve", "left"))
    assert ada.departed == {"eve"}  # it was there when ada began
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))
    assert ada.departed == {"eve"}
    three.dead.add("eve")
    three.release("ada", "bob", round=1)
    three.decide("ada", "bob", round=1)
    three.decide("bob", "ada", round=1)
    three.wait(1.0)
    assert three.answers["ada"][-1] == Decided(frozenset({"eve"}))
    assert ada.departed == frozenset()


def test_a_peer_that_restarted_has_not_released_in_its_earlier_incarnation():
    three = ThreeSessions()
    three.ask("ada", announced("eve", "left"))
    three.ask("ada", announced("eve", life=8))
    three.ask("ada", announced("eve", "left", life=8))
    assert three.sessions["ada"].verdicts.departed == frozenset()


def test_whoever_a_model_that_counts_is_masked_with_is_decided_about_by_peers_that_never_met_it():
    """Only ada has masked with eve, so bob and dan learn from her model that a mask of eve stays in it."""
    square = FourSessions("eve")
    square.release("ada", masked={1: 7, 2: 7, 3: 7})
    square.release("bob", "dan", masked={0: 7})
    square.decide("ada", "bob", "dan")
    square.decide("bob", "ada", "dan", masked=("ada", "dan"))
    square.decide("dan", "ada", "bob", masked=("ada", "bob"))
    square.wait(1.0)
    square.wait(1.0)
    assert square.answers == {"eve": []} | {name: [Decided(frozenset({"eve"}))] for name in ("ada", "bob", "dan")}


@pytest.mark.parametrize("masked", [{4000: 7}, {0: 6}], ids=["a peer that does not exist", "the sender"])
def test_a_model_that_lists_an_impossible_mask_partner_is_refused(masked):
    three = ThreeSessions()
    three.release("ada", masked=masked)
    for name in ("bob", "eve"):
        assert three.sessions[name].shared.refused["ada: not a row"] == 1


def test_a_model_that_its_owner_and_one_neighbour_hold_counts_and_the_third_that_lacks_it_does_not_go_on():
    three = ThreeSessions()
    three.release(*NAMES)
    three.dead.add("eve")
    three.decide("ada", "bob", "eve")
    three.decide("bob", "ada")
    assert three.answers["ada"] == [Decided(frozenset())]
    three.wait(5.0)
    three.wait(5.0)
    assert three.answers["bob"] == [Undecided(frozenset({"eve"}))]


def test_a_peer_that_was_cut_off_learns_that_its_model_was_dropped():
    three = ThreeSessions()
    three.release("ada", "bob")
    three.dead.add("eve")
    three.decide("ada", "bob")
    three.decide("bob", "ada")
    three.wait(1.0)
    three.dead.clear()  # it was cut off, and sends its model too late
    three.release("eve")
    three.decide("eve", "ada", "bob")
    for _ in range(6):
        three.wait(1.0)
    assert three.answers["eve"] == [Decided(frozenset({"eve"}))]
    assert any(name != "eve" and isinstance(message, Decision) for name, message in three.sent)


def test_a_model_on_which_the_others_have_voted_before_it_was_sent_never_leaves():
    three = ThreeSessions()
    three.release("ada", "bob")
    three.decide("ada", "bob")
    three.decide("bob", "ada")
    three.wait(1.0)  # eve is slow, and hears the ballot that drops its model
    eve = three.sessions["eve"]
    eve.handle(Open((0, 0), ("ada", "bob"), since=0), now=three.now)
    effects = eve.handle(Offer(model(voted=True), phase=0, decided=True), now=three.now)
    assert Sent() in effects
    for effect in effects:  # grows
        effects += eve.handle(Stored(), now=three.now) if isinstance(effect, Store) else []
    assert "pub/0" not in [place for place, _ in published(effects)]
    three.decide("eve", "ada", "bob")
    three.wait(1.0)
    assert three.answers["eve"] == [Decided(frozenset({"eve"}))]


def test_without_a_majority_nobody_decides():
    three = ThreeSessions("bob", "eve")
    three.release("ada")
    three.decide("ada")
    for _ in range(10):
        three.wait(1.0)
    assert three.answers["ada"] == [Undecided(frozenset(NAMES))]


def test_a_restart_forgets_no_vote():
    three = ThreeSessions()
    three.release(*NAMES)
    three.decide("bob", "ada", "eve")
    kept = three.sessions["bob"].verdicts.records()
    again = met("bob", others=("ada", "eve"), keeps=True)
    again.verdicts.restore(kept)
    answer = published(again.handle(arrived("eve", prepare("eve", "ada", 7, 0, 1)), now=0.0))
    assert [(place, type(said)) for place, said in answer] == [("in/eve", Decision)]
    assert again.verdicts.records() == kept


@pytest.mark.parametrize(("incarnation", "excluded"), [(7, {"eve"}), (8, set())])
def test_a_member_that_hides_its_vote_is_excluded_and_one_that_has_forgotten_it_is_not_taken(incarnation, excluded):
    """Who comes back with an old backup signs as another incarnation; its promise is refused all the same."""
    three = ThreeSessions("eve")
    three.release("ada", "bob")
    three.decide("ada")
    three.dead.add("ada")
    knows = three.sessions["ada"]
    knows.handle(arrived("eve", Votes((cast("bob", 7, 0, "eve", 0, "bob", COUNTED, voter=7),))), now=0.0)
    hides = promised("bob", 7, 0, "eve", 1, "ada", incarnation)
    three.now = 1.0
    for event in (Tick(), Stored(), Stored(), arrived("eve", hides), Stored()):
        effects = knows.handle(event, now=three.now) if knows.shared.stores or not isinstance(event, Stored) else []
        assert not [each for _, each in published(effects) if isinstance(each, Proposal)]
    assert knows.membership.excluded == excluded


def answers(made, peer="eve", *, incarnation=7, round=0):
    """What a session sends after bob has requested a promise on a release of a peer."""
    effects = made.handle(arrived("bob", prepare("bob", peer, incarnation, round, 1)), now=0.0)
    while made.shared.stores:
        effects += made.handle(Stored(), now=0.0)
    return [type(message) for place, message in published(effects) if place == "in/bob"]


def test_a_peer_that_takes_part_in_a_round_promises_nothing_before_it_has_waited_for_the_models_itself():
    ada = met("ada", keeps=True)
    assert answers(ada) == []
    effects = ada.handle(Decide(0, frozenset({"bob"}), {"bob": 7, "eve": 7}), now=0.0)
    while ada.shared.stores:
        effects += ada.handle(Stored(), now=0.0)
    assert Promise in [type(message) for place, message in published(effects) if place == "in/bob"]


def test_a_peer_that_has_no_part_in_a_round_promises_at_once():
    assert answers(met("ada", keeps=True, first=1)) == [Promise]


def test_a_peer_that_joins_late_promises_in_the_round_before_its_first():
    assert answers(met("ada", keeps=True, first=50), round=49) == [Promise]


def test_a_peer_that_restarts_in_a_late_round_answers_before_it_takes_part_again():
    three = ThreeSessions(given={"first": 50})
    three.release(*NAMES, round=50)
    three.decide("bob", "ada", "eve", round=50)
    again = session("bob", keeps=True)
    again.verdicts.restore(three.sessions["bob"].verdicts.records())
    for other in ("ada", "eve"):
        again.handle(announced(other), now=0.0)
        again.handle(heartbeat(other), now=0.0)
    answer = published(again.handle(arrived("eve", prepare("eve", "ada", 7, 50, 1)), now=0.0))
    assert [(place, type(said)) for place, said in answer] == [("in/eve", Decision)]


def test_a_run_that_resumes_from_an_earlier_round_decides_that_round():
    three = ThreeSessions(given={"first": 50})
    three.release(*NAMES, round=50)
    again = met("bob", others=("ada", "eve"), keeps=True)
    again.verdicts.restore(three.sessions["bob"].verdicts.records())
    again.handle(Begin(40), now=0.0)
    again.handle(Decide(40, frozenset({"ada"}), {"ada": 7}), now=0.0)
    assert again.verdicts.waits == {"ada", "bob"}


def test_requests_about_later_rounds_do_not_move_a_peer_that_restarts():
    again = session("ada", keeps=True)
    again.verdicts.restore([kept("eve", 7, 52, promised=Ballot(1, "bob"))])
    assert again.verdicts._now == 0


def test_a_peer_that_decides_without_a_release_promises_for_those_that_need_it():
    """It has met another incarnation of the owner than they have."""
    ada = met("ada", keeps=True)
    ada.handle(announced("eve", life=8), now=0.0)
    assert answers(ada, incarnation=8) == []
    effects = ada.handle(Decide(0, frozenset({"bob"}), {"bob": 7, "eve": 7}), now=0.0)
    while ada.shared.stores:
        effects += ada.handle(Stored(), now=0.0)
    assert Promise in [type(message) for place, message in published(effects) if place == "in/bob"]


def without_votes_on_ada(three):
    """Lose the votes on the model of ada in the first ballot, and let all have all models."""
    three.lost = ("ada", 0)
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))


def test_a_lost_vote_is_requested_and_repeated_without_a_ballot():
    three = ThreeSessions()
    without_votes_on_ada(three)
    assert three.answers["ada"] == []
    three.lost = None
    for _ in range(2):
        three.wait(1.0)
    assert three.answers == {name: [Decided(frozenset())] for name in NAMES}
    assert Promise not in kinds(three.sent)


def test_who_holds_a_model_votes_on_it_although_all_other_votes_of_its_owner_are_lost():
    three = ThreeSessions()
    three.release(*NAMES)
    three.dead.add("ada")
    three.decide("bob", "ada", "eve")
    assert "ada" not in three.sessions["bob"].verdicts.waits
    assert {each.counted for each in three.sessions["bob"].verdicts.records() if each.release.peer == "ada"} == {True}


@pytest.mark.parametrize("vote", [[], [bytes(64)]])
def test_a_model_without_its_owners_vote_does_not_count_as_held(vote):
    """Or with a vote that the owner has not signed: such a model is refused."""
    bob = totalling("bob", "bob")
    bob.handle(Open((0, 0), ("ada", "cleo"), since=0), now=0.0)
    announcement = bob.membership.up["ada"]
    bob.streams.open(announcement)
    bob.mailbox.know("ada")
    outbox = Outbox(1, chunk=LARGEST, trailer=SIGNED)
    outbox.listen("bob")
    outbox.put([*model(voted=bool(vote)), *vote])
    for chunk in outbox.ready():
        bob.handle(arrived("ada", chunk, swarm=SWARM), now=0.0)
    assert bob.mailbox.peek("ada") is None or not vote
    bob.handle(Decide(0, frozenset({"ada"}), {"ada": 1, "cleo": 1}), now=0.0)
    assert {each.release.peer: each.record.voted for each in bob.verdicts.records()}.get("ada") is None


def test_a_peer_repeats_its_vote_for_one_member_at_most_twice_in_a_second():
    three = ThreeSessions("eve")
    three.release("ada")
    three.sent.clear()
    for _ in range(3):
        three.ask("ada", arrived("eve", prepare("eve", "ada", 7, 0, 0)))
    assert kinds(three.sent) == {Votes}
    assert len(three.sent) == 1


def test_a_broker_and_a_malicious_member_together_cannot_drop_a_model_that_the_others_hold():
    """The broker loses its owner's votes; the malicious member proposes to drop it, and its promise shows no vote."""
    three = ThreeSessions("eve")
    three.lost = ("ada", 0)
    three.release("ada", "bob")
    three.dead.add("ada")
    three.decide("bob", "ada")
    own = promised("ada", 7, 0, "eve", 1, "eve", 7)
    for _ in range(9):
        three.wait(1.0)
        three.ask("bob", arrived("eve", prepare("eve", "ada", 7, 0, 1)))
        three.flush()
        given = [said for name, said in three.sent if name == "bob" and isinstance(said, Promise)]
        for answer in [each for each in given if (each.subject.peer, each.ballot.proposer) == ("ada", "eve")]:
            dropped = cast("ada", 7, 0, "eve", 1, "eve", DROPPED, voter=7, final=False)
            three.ask("bob", arrived("eve", Proposal(dropped, (answer, own))))
            three.ask("bob", arrived("eve", Votes((replace(dropped, final=True), dropped))))
            three.flush()
    assert Decided(frozenset({"ada"})) not in three.answers["bob"]
    assert [each.counted for each in three.sessions["bob"].verdicts.records() if each.release.peer == "ada"] != [False]
