"""Messages of sums, without a network: who may send what, to whom, and when."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import BudgetError, DecodeError, PrivacyError
from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay, common_sums
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.sum_messages import Ready
from p2pfl.network.protocol.wire.total_messages import Again, Subtotal, Total
from p2pfl.network.secagg.receiver import SumReceiver
from p2pfl.network.secagg.seal import Seal
from p2pfl.network.secagg.sender import SumSender
from p2pfl.privacy.keys import ExchangeKey, Identity, SeededSource
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.secagg.protocol import SumSlot
from p2pfl.topology import complete, metropolis

SOURCE = SeededSource(7)
NAMES = ("ada", "bob", "cleo", "dan", "eve")
WEIGHTS = metropolis(complete(5).named(NAMES))
SECRETS = swarm_secrets(complete(5).named(NAMES), source=SOURCE, run="test")
IDENTITIES = {name: Identity.generate(SOURCE, peer=name) for name in NAMES}
SIZE = 6
SUMS = common_sums(WEIGHTS, size=SIZE, width=64, colluders=1)


def announcement(name, *, life=1):
    key = ExchangeKey.from_source(SOURCE, peer=name).public
    return Announcement(name, life, "up", {}, key).sign(IDENTITIES[name], swarm="test")


def seal(name, *, life=1):
    up = {each: announcement(each) for each in NAMES if each != name}
    return Seal(IDENTITIES[name], Membership(announcement(name, life=life), frozenset(up), "test", up=up))


def sum_sender(name, *, life=1):
    made = SumSender(name, sums=SUMS, seal=seal(name, life=life))
    made.acquaint(SECRETS)
    return made


def sum_receiver(name="eve", *, life=1, weighted=False):
    made = SumReceiver(name, sums=SUMS, seal=seal(name, life=life), heaviest=10.0)
    made.open((0, 0), weighted=weighted)
    return made


def prepared(receiver, givers, gossip_step=(0, 0), *, masses=None):
    """Let senders be ready."""
    for number, giver in enumerate(givers):
        mass = None if masses is None else masses[number]
        receiver.take(giver.peer, giver.prepare(SumSlot(receiver.peer, *gossip_step), mass=mass))


def exchanged(receiver, givers, terms, *, piece=16, lose=lambda _: False):
    """Carry the terms of those that are called, and what is lost again on request; return the sum."""
    call, queue = receiver.close(), []
    for giver, term in zip(givers, terms, strict=True):
        giver.take(receiver.peer, call)
        if giver.called(receiver.peer, (call.round, call.step)):
            slot = SumSlot(receiver.peer, call.round, call.step)
            queue += [(giver, each) for each in giver.give(slot, giver.mask(slot, term), piece=piece)]
    while queue or receiver.lacking:
        if not queue:
            again = ((giver, receiver.missing_pieces(giver.peer)) for giver in givers)
            queue = [(giver, part) for giver, each in again if each for part in giver.receive(receiver.peer, each)]
        giver, message = queue.pop(0)
        if lose(message):
            continue
        for answer in receiver.receive(giver.peer, message):
            for each in givers:
                if each.peer in receiver.called:
                    queue += [(each, further) for further in each.receive(receiver.peer, answer)]
    return receiver.total()


@pytest.fixture
def begun():
    """A receiver whose sum is open, and four senders that are ready."""
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:4]]
    prepared(receiver, givers)
    return receiver, givers


def restarted(name):
    """A sender in its next incarnation."""
    made = sum_sender(name, life=2)
    made.seal.membership.up.pop(name, None)
    return made


TERM = np.arange(SIZE)

# Exact


@given(
    piece=st.integers(8, 64),
    seed=st.integers(0, 1000),
    lost=st.sampled_from([None, *NAMES[:4]]),
    drops=st.lists(st.booleans(), max_size=12),
)
def test_terms_in_pieces_of_any_size_of_which_any_are_lost_are_added_to_the_last_bit(piece, seed, lost, drops):
    receiver, givers = sum_receiver(weighted=True), [sum_sender(name) for name in NAMES[:4] if name != lost]
    drawn = np.random.default_rng(seed).integers(-(2**40), 2**40, (len(givers), SIZE))
    masses = [0.5 + number for number in range(len(givers))]
    prepared(receiver, givers, masses=masses)
    total = exchanged(receiver, givers, drawn, piece=piece, lose=lambda _: bool(drops) and drops.pop())
    np.testing.assert_array_equal(total, drawn.sum(axis=0))
    assert receiver.masses == {giver.peer: mass for giver, mass in zip(givers, masses, strict=True)}
    assert receiver.called == tuple(giver.peer for giver in givers)


def test_who_is_ready_before_its_turn_waits_for_it(begun):
    receiver, givers = begun
    exchanged(receiver, givers, [TERM] * 4)
    prepared(receiver, givers[:1], (0, 1))
    receiver.open((0, 1), weighted=False)
    assert receiver.here == {"ada"}


def test_a_sender_is_through_once_its_whole_term_has_arrived_with_all_others(begun):
    receiver, givers = begun
    call = receiver.close()
    for giver in givers:
        assert not giver.over("eve", (0, 0))
        giver.take("eve", call)
    exchanged(receiver, givers, [TERM] * 4)
    assert all(giver.over("eve", (0, 0)) for giver in givers)
    assert [giver.unanswered(SumSlot("eve", 0, 0)) for giver in givers] == [None] * 4


def test_what_a_sender_repeats_is_that_it_is_ready_and_then_that_it_waits_for_confirmation(begun):
    receiver, (ada, *_) = begun
    slot = SumSlot("eve", 0, 0)
    assert ada.unanswered(slot) == Ready(0, 0)
    assert receiver.take("ada", Ready(0, 0)) is None
    call = receiver.close()
    assert receiver.take("ada", Ready(0, 0)) == call  # which was lost
    ada.take("eve", call)
    assert ada.unanswered(slot) is None
    ada.give(slot, ada.mask(slot, TERM), piece=16)
    again = ada.unanswered(slot)
    assert isinstance(again, Again)
    (answer,) = receiver.receive("ada", again)
    assert isinstance(answer, Total)
    assert answer.offset == 0
    assert len(ada.take("eve", call)) == 3  # all pieces were lost


def test_a_set_that_arrives_again_while_the_term_is_masked_changes_nothing(begun):
    receiver, (ada, *_) = begun
    call, slot = receiver.close(), SumSlot("eve", 0, 0)
    ada.take("eve", call)
    share = ada.mask(slot, TERM)
    assert ada.take("eve", call) == []
    assert not ada.over("eve", (0, 0))
    assert len(ada.give(slot, share, piece=16)) == 3


# Who comes back, or disappears


def test_a_sum_of_a_participant_that_restarts_before_its_term_is_complete_stays_masked(begun):
    receiver, givers = begun
    call = receiver.close()
    for giver in givers:
        giver.take("eve", call)
    receiver.forget("ada")
    assert receiver.ended == {"ada"}
    slot = SumSlot("eve", 0, 0)
    for giver in givers:
        for piece in giver.give(slot, giver.mask(slot, TERM), piece=100):
            if giver.peer == "ada":
                with pytest.raises(PrivacyError, match="is not for the sum 0 of round 0 for eve"):
                    receiver.receive("ada", piece)
            else:
                receiver.receive(giver.peer, piece)
    assert receiver.total() is None


def test_a_participant_that_restarts_after_its_term_has_arrived_changes_nothing(begun):
    receiver, givers = begun
    np.testing.assert_array_equal(exchanged(receiver, givers, [TERM] * 4), 4 * TERM)
    receiver.forget("ada")
    assert receiver.ended == set()
    np.testing.assert_array_equal(receiver.total(), 4 * TERM)


def test_who_restarts_before_the_participant_set_is_fixed_takes_part_under_its_new_keys(begun):
    receiver, (_, *others) = begun
    receiver.forget("ada")
    assert receiver.here == {"bob", "cleo", "dan"}
    for each in (receiver, *others):
        each.seal.membership.up["ada"] = announcement("ada", life=2)
    for each in others:
        each.acquaint(SECRETS)
    ada = restarted("ada")
    prepared(receiver, [ada])
    np.testing.assert_array_equal(exchanged(receiver, [ada, *others], [TERM] * 4), 4 * TERM)


def test_who_does_not_know_an_incarnation_of_the_set_masks_nothing(begun):
    """Its masks would not cancel: it shares secrets with the incarnation before."""
    receiver, (ada, bob, *_) = begun
    receiver.seal.membership.up["bob"] = announcement("bob", life=2)
    call = receiver.close()
    with pytest.raises(PrivacyError, match="is of other incarnations than ada shares secrets with"):
        ada.take("eve", call)
    with pytest.raises(PrivacyError, match="is of other incarnations than bob"):
        bob.take("eve", call)
    assert not ada.called("eve", (0, 0))
    assert ada.over("eve", (0, 0))


def test_a_receiver_that_came_back_and_calls_others_is_refused_and_not_accused(begun):
    receiver, (ada, bob, cleo, dan) = begun
    exchanged(receiver, [ada, bob, cleo, dan], [TERM] * 4)
    again = sum_receiver(life=2)
    for each in (ada, bob, cleo, dan):
        each.seal.membership.up["eve"] = announcement("eve", life=2)
    for name in NAMES[:3]:
        again.take(name, Ready(0, 0))
    with pytest.raises(PrivacyError, match="two different participant sets"):
        ada.take("eve", again.close())
    assert not ada.proofs


def test_nobody_is_ready_twice_for_one_sum_or_an_earlier_one(begun):
    _, (ada, *_) = begun
    for gossip_step in ((0, 0), (0, 1), (0, 0)):
        slot = SumSlot("eve", *gossip_step)
        if gossip_step == (0, 1):
            ada.prepare(slot, mass=None)
            continue
        with pytest.raises(PrivacyError, match="has been ready for the sum"):
            ada.prepare(slot, mass=None)


# Who is left out


def test_whoever_is_not_in_the_set_gives_nothing_for_that_sum_any_more(begun):
    _, givers = begun
    receiver = sum_receiver()
    for giver in givers[:3]:
        receiver.take(giver.peer, Ready(0, 0))
    late = givers[3]
    late.take("eve", receiver.close())
    assert not late.called("eve", (0, 0))
    assert late.over("eve", (0, 0))
    with pytest.raises(PrivacyError, match="does not list dan"):
        late.mask(SumSlot("eve", 0, 0), TERM)
    assert late.give(SumSlot("eve", 0, 0), np.zeros(SIZE, np.uint64), piece=16) == []


def test_a_set_that_arrives_before_a_sender_is_ready_leaves_it_out():
    receiver, givers, late = sum_receiver(), [sum_sender(name) for name in NAMES[:3]], sum_sender("dan")
    prepared(receiver, givers)
    late.take("eve", receiver.close())
    late.prepare(SumSlot("eve", 0, 0), mass=None)
    assert late.over("eve", (0, 0))
    assert late.unanswered(SumSlot("eve", 0, 0)) is None


def test_too_few_that_are_ready_call_nobody():
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:2]]
    prepared(receiver, givers)
    call = receiver.close()
    assert call.here == ()
    assert receiver.total() is None
    for giver in givers:
        giver.take("eve", call)
        assert giver.over("eve", (0, 0))


def test_a_sender_that_is_ready_for_a_later_sum_has_passed_this_one(begun):
    receiver, (ada, *_) = begun
    assert not receiver.has_passed("ada")
    prepared(receiver, [ada], (1, 0))
    assert receiver.has_passed("ada")
    with pytest.raises(PrivacyError, match="too late"):
        receiver.take("ada", Ready(0, 0))


# Forged and out of place


def test_what_is_no_piece_of_an_open_sum_is_refused(begun):
    receiver, givers = begun
    call, slot = receiver.close(), SumSlot("eve", 0, 0)
    for giver in givers:
        giver.take("eve", call)
    first, second, third = givers[0].give(slot, givers[0].mask(slot, TERM), piece=16)
    wrong = {
        "is none of a total": msgspec.structs.replace(first, total=first.total + 8),
        "cuts integers": msgspec.structs.replace(first, data=first.data[:4]),
        "is not for the": msgspec.structs.replace(first, number=first.number + 1),
    }
    for why, piece in wrong.items():
        with pytest.raises((DecodeError, PrivacyError), match=why):
            receiver.receive("ada", piece)
    with pytest.raises(DecodeError, match='"mallory" has no subtotal'):
        receiver.receive("mallory", first)
    for piece in (second, first, first, third, second, third):
        receiver.receive("ada", piece)  # once each, whatever the order
    np.testing.assert_array_equal(exchanged_rest(receiver, givers[1:]), 4 * TERM)


def exchanged_rest(receiver, givers):
    slot = receiver.slot
    for giver in givers:
        for piece in giver.give(slot, giver.mask(slot, TERM), piece=16):
            receiver.receive(giver.peer, piece)
    return receiver.total()


@pytest.mark.parametrize("mass", [10.5, float("nan"), -11.0])
def test_a_weight_that_is_too_large_is_refused(mass):
    with pytest.raises(PrivacyError, match="which is too large"):
        sum_receiver(weighted=True).take("ada", Ready(0, 0, mass))


@pytest.mark.parametrize(("mass", "weighted"), [(None, True), (1.0, False)])
def test_who_has_a_weight_where_others_have_none_does_not_count_or_the_other_way_round(mass, weighted):
    receiver = sum_receiver(weighted=weighted)
    prepared(receiver, [sum_sender("ada")], masses=[mass])
    assert receiver.here == set()


def test_a_set_that_its_receiver_has_not_signed_for_this_sum_and_life_is_refused(begun):
    receiver, (ada, *_) = begun
    call = receiver.close()
    other = IDENTITIES["bob"].sign(b"whatever", domain="roll")
    moved = msgspec.structs.replace(call, step=1)
    shorter = msgspec.structs.replace(call, here=call.here[:3], marks=call.marks[:3])
    relabelled = msgspec.structs.replace(call, marks=(bytes(16), *call.marks[1:]))
    for forged in (msgspec.structs.replace(call, signature=other), moved, shorter, relabelled):
        with pytest.raises(DecodeError, match='"eve" has not signed this participant set'):
            ada.take("eve", forged)
    with pytest.raises(DecodeError, match='"dan" has not signed this participant set'):
        ada.take("dan", call)
    with pytest.raises(DecodeError, match='"eve" has not signed this participant set'):
        ada.take("eve", seal("eve", life=2).sign(0, 0, call.here))
    ada.take("eve", call)
    assert ada.called("eve", (0, 0))


def test_who_lacks_a_secret_of_somebody_in_the_sum_gives_no_term():
    ada = sum_sender("ada")
    assert ada.shares_secrets(SumSlot("eve", 0, 0))
    ada.acquaint({edge: secret for edge, secret in SECRETS.items() if edge != ("ada", "bob")})
    assert not ada.shares_secrets(SumSlot("eve", 0, 0))
    assert not ada.shares_secrets(SumSlot("bob", 0, 0))


def test_a_sum_that_its_receiver_gives_up_is_over_for_all_and_proves_nothing(begun):
    receiver, givers = begun
    call = receiver.close()
    for giver in givers:
        giver.take("eve", call)
    given_up = receiver.give_up()
    for giver in givers:
        giver.take("eve", given_up)
        assert giver.over("eve", (0, 0))
        assert not giver.proofs
        assert giver.give(SumSlot("eve", 0, 0), np.zeros(SIZE, np.uint64), piece=16) == []
    assert receiver.total() is None
    assert not seal("eve").proof("eve", call, given_up).holds(seal("eve").identity.public)


# A receiver that lies


def test_a_second_set_that_differs_is_refused_although_it_is_signed(begun):
    receiver, (ada, *_) = begun
    first = receiver.close()
    ada.take("eve", first)
    other = seal("eve").sign(0, 0, NAMES[:3])
    for _ in range(2):
        with pytest.raises(PrivacyError, match="two different participant sets"):
            ada.take("eve", other)
    ada.take("eve", first)  # that one it goes on with
    assert ada.called("eve", (0, 0))
    proof = ada.proofs["eve"]
    assert (proof.one.signature, proof.other.signature) == (first.signature, other.signature)
    assert proof.gossip_step == (0, 0)
    assert proof.holds(seal("eve").identity.public)  # whoever looks
    assert not proof.holds(seal("bob").identity.public)
    assert not Proof(proof.one, proof.one, "roll").holds(seal("eve").identity.public)


def test_a_receiver_that_has_all_terms_and_says_that_one_is_missing_gets_no_second_sum(begun):
    """The classical attack: two sums that differ by one peer reveal its model."""
    receiver, givers = begun
    np.testing.assert_array_equal(exchanged(receiver, givers, [TERM] * 4), 4 * TERM)
    attacker = sum_receiver()
    for giver in givers[:3]:
        attacker.take(giver.peer, Ready(0, 0))
    call = attacker.close()
    for giver in givers[:3]:
        with pytest.raises(PrivacyError, match="two different participant sets"):
            giver.take("eve", call)
        with pytest.raises(PrivacyError, match="masks no second one"):
            giver.mask(SumSlot("eve", 0, 0), TERM)
    assert attacker.total() is None


def test_two_sets_of_one_sum_leave_their_receiver_nothing_but_masks(begun):
    """Each sender gets one set, as if a message of dan were lost to some of them."""
    _, givers = begun
    attacker, slot = sum_receiver(), SumSlot("eve", 0, 0)
    for giver in givers:
        attacker.take(giver.peer, Ready(0, 0))
    whole, fewer = attacker.close(), seal("eve").sign(0, 0, NAMES[:3])
    for giver, call in zip(givers, (whole, fewer, fewer, whole), strict=True):
        giver.take("eve", call)
        for piece in giver.give(slot, giver.mask(slot, TERM), piece=100):
            attacker.receive(giver.peer, piece)
    assert attacker.total() is not None
    assert abs(attacker.total()).min() > 2**40  # uniform, where the sum of the terms is small


def test_a_set_that_nobody_signed_proves_nothing(begun):
    receiver, (ada, *_) = begun
    first = receiver.close()
    ada.take("eve", first)
    with pytest.raises(DecodeError, match='"eve" has not signed this participant set'):
        ada.take("eve", msgspec.structs.replace(first, here=NAMES[:3]))
    assert ada.proofs == {}


# Nothing is sent that would cost more than is left


@pytest.mark.parametrize("lost", [None, "dan"])
def test_a_set_that_lacks_somebody_is_answered_only_if_the_budget_allows_it(lost):
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:4]]
    prepared(receiver, [giver for giver in givers if giver.peer != lost])

    def lacking():
        raise BudgetError("too much")

    relay = SumRelay(
        bits=32, sum_sender=givers[0], sum_receiver=sum_receiver("ada"), lacking=lacking, lacked=lambda _: None
    )
    call = receiver.close()
    if lost is None:
        assert relay.receive("eve", call) == []
    else:
        for _ in range(2):
            with pytest.raises(DecodeError, match="too much"):
                relay.receive("eve", call)
    assert givers[0].called("eve", (0, 0)) == (lost is None)


def test_the_relay_passes_messages_to_the_part_that_they_are_for(begun):
    receiver, givers = begun
    slot = SumSlot("eve", 0, 0)
    eve = SumRelay(
        bits=32, sum_sender=sum_sender("eve"), sum_receiver=receiver, lacking=lambda: None, lacked=lambda _: None
    )
    relays = [
        SumRelay(
            bits=32, sum_sender=each, sum_receiver=sum_receiver(each.peer), lacking=lambda: None, lacked=lambda _: None
        )
        for each in givers
    ]
    call = receiver.close()
    assert eve.receive("ada", Ready(0, 0)) == [("ada", call)]
    for relay, giver in zip(relays, givers, strict=True):
        assert relay.receive("eve", call) == []
        pieces = giver.give(slot, giver.mask(slot, TERM), piece=100)
        assert all(isinstance(each, Subtotal) for each in pieces)
        assert relay.receive("eve", Again(1, 0, pieces[0].number, 0)) == [("eve", pieces[0])]
        for piece in pieces:
            answers = eve.receive(giver.peer, piece)
    assert {peer for peer, _ in answers} == {*NAMES[:4]}
    for relay, giver in zip(relays, givers, strict=True):
        assert relay.receive("eve", answers[0][1]) == []
        assert giver.over("eve", (0, 0))
    with pytest.raises(DecodeError, match="sends bob no term"):
        relays[0].receive("bob", Again(1, 0, 0, 0))
