"""What is said for sums, decided without a network: who may say what, to whom, and when."""

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
from p2pfl.network.protocol.wire.sum_messages import ParticipantsConfirmed, RollCall, Term, Unmasking
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
    made = SumSender(name, sums=SUMS, seal=seal(name, life=life), source=SOURCE)
    made.acquaint(SECRETS)
    return made


def sum_receiver(name="eve"):
    return SumReceiver(name, sums=SUMS, seal=seal(name), heaviest=10.0)


def given_terms(giver, gossip_step=(0, 0), *, receiver="eve", mass=None, piece=16, points=None):
    part, share = giver.mask(SumSlot(receiver, *gossip_step), np.arange(SIZE) if points is None else points.copy())
    return list(giver.give(part, share, mass=mass, piece=piece))


def brought(receiver, givers, gossip_step=(0, 0), **given):
    for giver in givers:
        for term in given_terms(giver, gossip_step, **given):
            receiver.take(giver.peer, term)


@pytest.fixture
def begun():
    """A receiver whose sum is open, and four who have given their terms."""
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:4]]
    receiver.open((0, 0), weighted=False)
    brought(receiver, givers)
    return receiver, givers


def finished(receiver, givers):
    call = receiver.close()
    agreed = None
    for giver in givers:
        answer = giver.consent("eve", call)
        if answer is not None:
            agreed = receiver.receive_consent(giver.peer, answer)
    for giver in givers:
        if giver.peer in call.here:
            receiver.unlock(giver.peer, giver.unlock("eve", agreed))
    return receiver.total()


# Exact


@given(piece=st.integers(1, 64), seed=st.integers(0, 1000), lost=st.sampled_from([None, *NAMES[:4]]))
def test_terms_in_pieces_of_any_size_are_added_to_the_last_bit(piece, seed, lost):
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:4]]
    drawn = np.random.default_rng(seed).integers(-(2**40), 2**40, (4, SIZE))
    receiver.open((0, 0), weighted=True)
    for number, giver in enumerate(givers):
        if giver.peer != lost:
            brought(receiver, [giver], points=drawn[number], piece=piece, mass=0.5 + number)
    total = finished(receiver, givers)
    kept = [number for number in range(4) if NAMES[number] != lost]
    np.testing.assert_array_equal(total, drawn[kept].sum(axis=0))
    assert receiver.masses == {NAMES[number]: 0.5 + number for number in kept}


def test_a_term_that_comes_before_its_turn_waits_for_it(begun):
    receiver, givers = begun
    finished(receiver, givers)
    brought(receiver, givers[:1], (0, 1))
    receiver.open((0, 1), weighted=False)
    assert receiver.here == {"ada"}


# Who comes back


def next_life(name):
    """Who has the same secrets and, for its own masks, others."""
    made = SumSender(name, sums=SUMS, seal=seal(name), source=SeededSource(8))
    made.acquaint(SECRETS)
    return made


def test_a_sum_with_the_term_of_a_life_that_has_ended_stays_masked(begun):
    receiver, (_, *others) = begun
    receiver.forget("ada")
    ada, call = next_life("ada"), receiver.close()
    given_terms(ada)  # which comes late
    with pytest.raises(PrivacyError, match="next incarnation of ada, which did not send the term"):
        receiver.receive_consent("ada", ada.consent("eve", call))
    assert [receiver.receive_consent(other.peer, other.consent("eve", call)) for other in others] == [None] * 3
    assert receiver.total() is None


def test_who_came_back_before_all_of_its_term_had_come_gives_it_from_the_beginning():
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:4]]
    receiver.open((0, 0), weighted=False)
    receiver.take("ada", given_terms(givers[0])[0])
    receiver.forget("ada")
    givers[0] = next_life("ada")
    brought(receiver, givers)
    np.testing.assert_array_equal(finished(receiver, givers), 4 * np.arange(SIZE))


def test_a_receiver_that_came_back_and_calls_others_is_refused_and_not_accused(begun):
    receiver, (ada, *_) = begun
    assert ada.consent("eve", receiver.close()) is not None
    ada.seal.membership.up["eve"] = announcement("eve", life=2)
    again = SumReceiver("eve", sums=SUMS, seal=seal("eve", life=2), heaviest=10.0)
    again.open((0, 0), weighted=False)
    with pytest.raises(PrivacyError, match="two different participant sets"):
        ada.consent("eve", again.close())
    assert not ada.proofs


# Who is held back


def test_a_sender_waits_until_the_receiver_has_closed_the_sum_before(begun):
    receiver, (ada, *_) = begun
    assert not ada.ready("eve")
    assert ada.ready("dan")
    ada.consent("eve", receiver.close())
    assert ada.ready("eve")


def test_there_is_never_more_than_one_term_of_a_sender_to_be_held(begun):
    receiver, (ada, *_) = begun
    receiver.close()
    brought(receiver, [ada], (3, 0))
    with pytest.raises(PrivacyError, match="step 0 is late"):
        brought(receiver, [ada], (2, 0))
    brought(receiver, [ada], (4, 0))  # in its place
    assert list(receiver._coming) == ["ada"]
    assert receiver.has_passed("ada")


def test_whoever_is_not_on_the_roll_gives_nothing_for_that_sum_any_more():
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:4]]
    receiver.open((2, 0), weighted=False)
    brought(receiver, givers[:3], (2, 0))
    late = givers[3]
    part, share = late.mask(SumSlot("eve", 2, 0), np.arange(SIZE))  # in the middle of it
    assert late.consent("eve", receiver.close()) is None
    assert list(late.give(part, share, mass=None, piece=16)) == []
    assert late.over("eve", (1, 5))
    assert not late.over("eve", (2, 1))


def test_keys_may_be_asked_for_until_they_are_given_or_nobody_is_called(begun):
    receiver, givers = begun
    assert givers[0].awaited == {"eve"}
    finished(receiver, givers)
    assert givers[0].awaited == set()
    alone = sum_sender("ada")
    given_terms(alone)
    empty = sum_receiver()
    empty.open((0, 0), weighted=False)
    assert alone.consent("eve", empty.close()) is None
    assert alone.awaited == set()


def test_too_few_terms_call_nobody():
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:2]]
    receiver.open((0, 0), weighted=False)
    brought(receiver, givers)
    assert receiver.close().here == ()
    assert receiver.total() is None


# Forged and out of place


def test_a_piece_that_is_not_the_next_one_is_refused(begun):
    receiver, givers = begun
    receiver.close()
    first, second, third = given_terms(givers[0], (1, 0), piece=20)
    for wrong in (
        second,
        msgspec.structs.replace(first, total=first.total + 8),
        msgspec.structs.replace(first, data=first.data[:0]),
        msgspec.structs.replace(first, data=memoryview(bytes(first.total + 1))),
        msgspec.structs.replace(first, mass=10.5),
        msgspec.structs.replace(first, mass=float("nan")),
    ):
        with pytest.raises(DecodeError, match="are not the piece at 0"):
            receiver.take("ada", wrong)
    receiver.take("ada", first)
    for wrong in (first, third):
        with pytest.raises(DecodeError, match="are not the piece at 20"):
            receiver.take("ada", wrong)
    with pytest.raises(PrivacyError, match="mallory sends eve no term"):
        receiver.take("mallory", first)


@pytest.mark.parametrize(("mass", "weighted"), [(None, True), (1.0, False)])
def test_a_term_with_a_mass_where_others_have_none_is_not_added_or_the_other_way_round(mass, weighted):
    receiver = sum_receiver()
    receiver.open((0, 0), weighted=weighted)
    brought(receiver, [sum_sender("ada")], mass=mass)
    assert receiver.here == set()


def test_a_roll_that_its_receiver_has_not_signed_for_this_sum_and_life_is_refused(begun):
    receiver, (ada, *_) = begun
    call = receiver.close()
    other = IDENTITIES["bob"].sign(b"whatever", domain="roll")
    moved = msgspec.structs.replace(call, step=1)
    shorter = msgspec.structs.replace(call, here=call.here[:3])
    for forged in (msgspec.structs.replace(call, signature=other), moved, shorter):
        with pytest.raises(DecodeError, match='"eve" has not signed this participant set'):
            ada.consent("eve", forged)
    with pytest.raises(DecodeError, match='"dan" has not signed this participant set'):
        ada.consent("dan", call)
    again = Seal(IDENTITIES["eve"], Membership(announcement("eve", life=2), frozenset(), "test"))
    signature = again.sign(SumSlot("eve", 0, 0), call.here, domain="roll")
    with pytest.raises(DecodeError, match='"eve" has not signed this participant set'):
        ada.consent("eve", msgspec.structs.replace(call, signature=signature))
    assert ada.consent("eve", call) is not None


def test_nothing_is_opened_where_two_masked_under_different_keys_of_a_third(begun):
    """One of them has not heard yet that it came back with another."""
    receiver, (ada, bob, *others) = begun
    late = sum_sender("ada")
    late.seal.membership.up["bob"] = msgspec.structs.replace(announcement("bob"), key=bytes([9] * 32))
    late.acquaint(SECRETS)
    given_terms(late)
    call = receiver.close()
    with pytest.raises(DecodeError, match='"ada" has not signed this consent'):
        receiver.receive_consent("ada", late.consent("eve", call))
    for giver in (ada, bob, *others):
        agreed = receiver.receive_consent(giver.peer, giver.consent("eve", call))
    with pytest.raises(DecodeError, match="has not signed this consent"):
        late.unlock("eve", agreed)


def test_who_lacks_a_secret_of_somebody_in_the_sum_gives_no_term():
    ada = sum_sender("ada")
    assert ada.shares_secrets(SumSlot("eve", 0, 0))
    ada.acquaint({edge: secret for edge, secret in SECRETS.items() if edge != ("ada", "bob")})
    assert not ada.shares_secrets(SumSlot("eve", 0, 0))
    assert not ada.shares_secrets(SumSlot("bob", 0, 0))


def test_a_second_roll_that_differs_is_refused_although_it_is_signed(begun):
    receiver, (ada, *_) = begun
    first = receiver.close()
    ada.consent("eve", first)
    here = NAMES[:3]
    other = RollCall(0, 0, here, seal("eve").sign(SumSlot("eve", 0, 0), here, domain="roll"))
    for _ in range(2):
        with pytest.raises(PrivacyError, match="two different participant sets"):
            ada.consent("eve", other)
    assert ada.consent("eve", first) is not None  # that one it goes on with
    proof = ada.proofs["eve"]
    assert (proof.one.signature, proof.other.signature) == (first.signature, other.signature)
    assert proof.gossip_step == (0, 0)
    assert proof.holds(seal("eve").identity.public)  # whoever looks
    assert not proof.holds(seal("bob").identity.public)
    assert not Proof(proof.one, proof.one, "roll").holds(seal("eve").identity.public)


def test_a_roll_that_nobody_signed_proves_nothing(begun):
    receiver, (ada, *_) = begun
    first = receiver.close()
    ada.consent("eve", first)
    with pytest.raises(DecodeError, match='"eve" has not signed this participant set'):
        ada.consent("eve", msgspec.structs.replace(first, here=NAMES[:3]))
    assert ada.proofs == {}


def test_no_key_is_given_for_consents_that_somebody_has_not_signed(begun):
    receiver, givers = begun
    call = receiver.close()
    words = [giver.consent("eve", call) for giver in givers]
    for giver, word in zip(givers, words, strict=True):
        agreed = receiver.receive_consent(giver.peer, word)
    own = IDENTITIES["eve"].sign(b"whatever", domain="consent")
    swapped = agreed.signatures[1::-1] + agreed.signatures[2:]
    for signatures in ((*agreed.signatures[:3], own), swapped):
        with pytest.raises(DecodeError, match="has not signed this consent"):
            givers[0].unlock("eve", msgspec.structs.replace(agreed, signatures=signatures))
    with pytest.raises(PrivacyError, match="not to a participant set"):
        givers[0].unlock("eve", msgspec.structs.replace(agreed, signatures=agreed.signatures[:3]))
    with pytest.raises(PrivacyError, match="not to a participant set"):
        givers[0].unlock("dan", agreed)
    assert givers[0].unlock("eve", agreed).own


def test_a_consent_of_another_life_does_not_pass(begun):
    receiver, givers = begun
    call = receiver.close()
    before = seal("ada", life=9).sign(SumSlot("eve", 0, 0), call.here, domain="consent")
    with pytest.raises(DecodeError, match='"ada" has not signed this consent'):
        receiver.receive_consent("ada", ParticipantsConfirmed(0, 0, before))
    with pytest.raises(DecodeError, match='"bob" has not signed this consent'):
        receiver.receive_consent("bob", givers[0].consent("eve", call))


def test_keys_that_were_not_asked_for_are_refused(begun):
    receiver, givers = begun
    with pytest.raises(PrivacyError, match="is not for the sum"):
        receiver.unlock("ada", Unmasking(0, 0, bytes(32)))
    call = receiver.close()
    with pytest.raises(PrivacyError, match="arrived before all consents"):
        receiver.unlock("ada", Unmasking(0, 0, bytes(32)))
    for giver in givers:
        receiver.receive_consent(giver.peer, giver.consent("eve", call))
    for wrong in (Unmasking(0, 0, bytes(32), {"bob": bytes(32)}), Unmasking(0, 1, bytes(32))):
        with pytest.raises(PrivacyError):
            receiver.unlock("ada", wrong)
    with pytest.raises(PrivacyError):
        receiver.unlock("mallory", Unmasking(0, 0, bytes(32)))


# Nothing is said that would cost more than is left


@pytest.mark.parametrize("lost", [None, "dan"])
async def test_a_roll_that_lacks_somebody_is_answered_only_if_the_budget_allows_it(lost):
    receiver, givers = sum_receiver(), [sum_sender(name) for name in NAMES[:4]]
    receiver.open((0, 0), weighted=False)
    brought(receiver, [giver for giver in givers if giver.peer != lost])

    def lacking():
        raise BudgetError("too much")

    relay = SumRelay(
        bits=32, sum_sender=givers[0], sum_receiver=sum_receiver("ada"), lacking=lacking, lacked=lambda _: None
    )
    call = receiver.close()
    if lost is None:
        assert [peer for peer, _ in await relay.receive("eve", call)] == ["eve"]
    else:
        for _ in range(2):
            with pytest.raises(DecodeError, match="too much"):
                await relay.receive("eve", call)


def test_a_term_fits_on_the_wire_only_as_a_piece_of_one():
    term = given_terms(sum_sender("ada"), mass=0.5, piece=1000)[0]
    assert isinstance(term, Term)
    assert (term.offset, term.total, len(term.data), term.mass) == (0, 8 * SIZE, 8 * SIZE, 0.5)
