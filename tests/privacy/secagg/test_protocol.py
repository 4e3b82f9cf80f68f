import itertools
from contextlib import suppress

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_masks import run_sum
from effort import MANY
from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.privacy.keys import SecretSource, SeededSource
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK
from p2pfl.privacy.secagg.in_process import partners
from p2pfl.privacy.secagg.protocol import (
    Keys,
    Receiver,
    Sender,
    Sum,
    SumSlot,
    enough,
    fewest,
)
from p2pfl.privacy.secagg.weighted_sums import portion, portions, width
from p2pfl.privacy.total_masks import mask, to_signed, to_unsigned, zeros
from p2pfl.topology import complete, metropolis, random_regular, torus
from schedule import derived

SOURCE = SeededSource(7)
NAMES = ("ada", "bob", "cleo", "dan", "eve")
SECRETS = swarm_secrets(complete(5).named(NAMES), source=SOURCE, run="test")
SLOT = SumSlot("rob", 3, 1)


def the_sum(count=5, *, size=4, slot=SLOT, **given):
    return Sum(slot, NAMES[:count], size=size, **given)


def sender(which, peer="ada", *, secrets=SECRETS, source=SOURCE):
    return Sender(which, peer=peer, secrets=secrets, source=source)


def everybody(which, *, size=4):
    """All senders, their shares sent."""
    senders = {peer: sender(which, peer) for peer in which.senders}
    return senders, [each.share(np.arange(size) + number) for number, each in enumerate(senders.values())]


def consents(here):
    return dict.fromkeys(here, here)


def keystream(key, size, kind):
    words = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(size * np.dtype(kind).itemsize))
    return np.frombuffer(words, kind)


# Exact


def test_a_mask_is_the_keystream_of_aes_256_in_counter_mode():
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")  # of NIST SP 800-38A
    row = zeros(4, 64)
    mask(row, plus=[key], minus=[])
    blocks = Cipher(AES(key), ECB()).encryptor()  # noqa: S305 (the cipher of one block: an oracle)
    assert row.tobytes() == blocks.update(bytes(31) + b"\1")  # of the counters 0 and 1


@given(
    count=st.integers(3, 5),
    bits=st.sampled_from([32, 64]),
    size=st.integers(1, 60),
    seed=st.integers(0, 2**31),
    lost=st.sets(st.sampled_from(NAMES), max_size=2),
)
def test_the_receiver_gets_the_sum_of_those_whose_share_it_has_to_the_last_bit(count, bits, size, seed, lost):
    which = the_sum(count, size=size, width=bits)
    drawn = np.random.default_rng(seed).integers(1 - which.limit, which.limit, (count, size))
    terms = {peer: row for peer, row in zip(which.senders, drawn, strict=True) if peer not in lost}
    here, total = run_sum(which, terms, secrets=SECRETS, source=SOURCE)
    if len(terms) < 3:
        assert (here, total) == ((), None)
    else:
        assert here == tuple(sorted(terms))
        np.testing.assert_array_equal(total, sum(terms.values()))


@pytest.mark.parametrize("size", [1, VALUES_PER_BLOCK - 1, VALUES_PER_BLOCK, 2 * VALUES_PER_BLOCK + 3])
@pytest.mark.parametrize("bits", [32, 64])
def test_rows_of_any_length_are_unmasked(size, bits):
    which = the_sum(4, size=size, width=bits)
    terms = {peer: np.arange(size) * (1 - number) for number, peer in enumerate(which.senders) if peer != "dan"}
    np.testing.assert_array_equal(run_sum(which, terms, secrets=SECRETS, source=SecretSource())[1], sum(terms.values()))


@pytest.mark.parametrize("extreme", [1, -1])
@pytest.mark.parametrize("bits", [32, 64])
def test_sums_of_the_largest_terms_do_not_wrap_around_and_larger_ones_are_refused(bits, extreme):
    which = the_sum(width=bits)
    largest = np.full(4, extreme * (which.limit - 1))
    assert set(run_sum(which, dict.fromkeys(NAMES, largest), secrets=SECRETS, source=SOURCE)[1].tolist()) == {
        5 * int(largest[0])
    }
    with pytest.raises(PrivacyError, match=rf"ring of {bits} bits are exact only below {which.limit};"):
        sender(which).share(largest + extreme)
    with pytest.raises(PrivacyError, match="are exact only below"):
        sender(which).share(np.array([0, 0, 0, -(2**63)]))


def test_weighted_rows_are_rounded_half_to_even_one_by_one():
    np.testing.assert_array_equal(portion(np.array([1.0, 3.0, 5.0, -1.0]), weight=0.5), [0, 2, 2, 0])


# Oracle


@pytest.mark.parametrize(("bits", "kind"), [(32, "<u4"), (64, "<u8")])
@pytest.mark.parametrize("peer", ["ada", "cleo", "eve"])
def test_a_share_is_the_term_and_the_keystreams_of_the_definition(bits, kind, peer):
    which = the_sum(size=50, width=bits)
    points = np.arange(50) - 25
    expected = points.astype(kind)
    expected += keystream(SOURCE.bytes(32, purpose="selfmask rob 1", peer=peer, round=3), 50, kind)
    for other in NAMES:
        if other != peer:
            use = {"purpose": "summask", "round": 3, "attempt": 1, "receiver": "rob"}
            key = derived(SOURCE, run="test", a=peer, b=other, **use)
            stream = keystream(key, 50, kind)
            expected = expected + stream if peer < other else expected - stream
    np.testing.assert_array_equal(sender(which, peer).share(points), expected)


def test_sums_of_rows_are_those_written_from_the_definition():
    weights = metropolis(random_regular(9, degree=4, seed=2)).matrix
    points = np.random.default_rng(3).normal(scale=2.0**20, size=(9, 33))
    expected = [
        [sum(round(weights[r, j] * points[j, c]) for j in range(9)) for c in range(33)]
        for r in range(9)  # Python's round is half to even
    ]
    np.testing.assert_array_equal(portions(weights, points), expected)


@pytest.mark.parametrize("graph", [complete(5), torus(3, 3), random_regular(10, degree=4, seed=1)])
def test_partners_are_those_whom_some_receiver_hears_both(graph):
    found = {frozenset(edge) for edge in partners(metropolis(graph)).edges}
    pairs = {
        frozenset(pair) for peer in graph.peers for pair in itertools.combinations(sorted(graph.neighbours(peer)), 2)
    }
    assert found == pairs


# Invariant


def test_shares_are_uniform_whatever_the_term_and_differ_for_every_sum_and_peer():
    terms = {"zero": np.zeros(40_000, np.int64), "large": np.full(40_000, 2**40)}
    rows = []
    for term, slot in itertools.product(
        terms.values(), [SLOT, SumSlot("rob", 3, 2), SumSlot("rob", 4, 1), SumSlot("sue", 3, 1)]
    ):
        which = Sum(slot, NAMES, size=40_000)
        rows += [sender(which, peer).share(term.copy()) for peer in ("ada", "bob")]
    drawn = np.stack(rows).astype(np.float64) / 2.0**64
    assert abs(drawn.mean(axis=1) - 0.5).max() < 0.01
    assert abs(drawn.var(axis=1) - 1 / 12).max() < 0.005
    related = np.corrcoef(drawn)
    np.fill_diagonal(related, 0.0)
    related[np.arange(8), np.arange(8) + 8] = related[np.arange(8) + 8, np.arange(8)] = 0.0  # same keys, other term
    assert abs(related).max() < 0.03


@given(order=st.permutations(NAMES), again=st.lists(st.sampled_from(NAMES)))
def test_the_order_of_shares_changes_nothing_and_doubled_ones_count_once(order, again):
    which = the_sum()
    senders, shares = everybody(which)
    receiver = Receiver(which)
    for peer in order[:4]:
        assert receiver.take(peer, shares[NAMES.index(peer)])
    for peer in {*again} & {*order[:4]}:
        assert not receiver.take(peer, shares[NAMES.index(peer)])
    here = receiver.close()
    assert here == tuple(sorted(order[:4]))
    assert not receiver.take(order[4], shares[NAMES.index(order[4])])  # late
    assert all(senders[peer].consent(here) for peer in here)
    unlocked = [receiver.unlock(peer, senders[peer].keys(consents(here))) for peer in (*order[:4], order[0])]
    assert unlocked == [False, False, False, True, True]
    np.testing.assert_array_equal(receiver.total(), sum(np.arange(4) + NAMES.index(peer) for peer in order[:4]))


@st.composite
def deceits(draw):
    """What a receiver tells each sender, a few rolls in any order, and which senders help it."""
    count = draw(st.integers(3, 5))
    names = NAMES[:count]
    helpers = draw(st.sets(st.sampled_from(names), max_size=count - 3))
    rolls = draw(st.lists(st.sets(st.sampled_from(names), min_size=2).map(sorted).map(tuple), min_size=1, max_size=3))
    told = {peer: draw(st.lists(st.sampled_from(rolls), min_size=1, max_size=2)) for peer in names}
    return count, helpers, rolls, told


@pytest.mark.slow
@settings(MANY)
@given(deceit=deceits())
def test_whatever_a_receiver_says_it_gets_one_sum_and_never_both_masks_of_one_honest_peer(deceit):
    count, helpers, rolls, told = deceit
    which = the_sum(count, colluders=1 + len(helpers))
    senders, _ = everybody(which)
    given = {(peer, here) for peer in helpers for here in rolls}
    honest = [peer for peer in which.senders if peer not in helpers]
    for peer in honest:
        for here in told[peer]:
            with suppress(PrivacyError):
                given |= {(peer, here)} if senders[peer].consent(here) else set()
    revealed = {}
    for peer, here in itertools.product(honest, rolls):
        with suppress(PrivacyError):
            revealed[peer] = senders[peer].keys({each: agreed for each, agreed in given if agreed == here})
    assert len({tuple(sorted(keys.pairs)) for keys in revealed.values()}) <= 1
    for peer, keys in revealed.items():
        assert not {*keys.pairs} & {*revealed}, f"{peer} gave a mask of somebody who gave its own key"
        assert not senders[peer].missing


def test_senders_are_not_split_into_two_sums():
    names = tuple(f"peer{number}" for number in range(6))
    secrets = swarm_secrets(complete(6), source=SOURCE, run="test")
    which = Sum(SLOT, names, size=2)
    for half in (names[:3], names[3:]):
        for peer in half:
            one = sender(which, peer, secrets=secrets)
            one.share(np.zeros(2, np.int64))
            with pytest.raises(PrivacyError, match="has 3 terms and needs 4"):
                one.consent(half)


def test_two_rolls_that_differ_by_one_peer_unmask_nobody():
    """What the consents are for: one sender is told that it is there, the others that it is not."""
    which = the_sum()
    senders, _ = everybody(which)
    everyone, fewer = NAMES, NAMES[1:]
    assert senders["ada"].consent(everyone)
    assert all(senders[peer].consent(fewer) for peer in fewer)
    given = {"ada": everyone} | consents(fewer)
    with pytest.raises(PrivacyError, match="bob, cleo, dan, eve did not consent to the participant set"):
        senders["ada"].keys(given)
    assert "ada" in senders["bob"].keys(given).pairs


# Refusals


def test_who_was_declared_missing_sends_nothing_any_more():
    which = the_sum()
    late = sender(which)
    assert not late.consent(NAMES[1:])
    assert late.missing
    for act in (lambda: late.share(np.zeros(4, np.int64)), lambda: late.keys(consents(NAMES[1:]))):
        with pytest.raises(PrivacyError, match="missing"):
            act()
    assert not late.consent(NAMES)  # whatever it is told later


def test_who_was_declared_missing_after_it_sent_never_gives_its_own_key():
    which = the_sum()
    senders, _ = everybody(which)
    assert not senders["ada"].consent(NAMES[1:])
    with pytest.raises(PrivacyError, match="was declared missing in"):
        senders["ada"].keys(consents(NAMES))


def test_a_second_roll_that_differs_is_refused_and_the_same_one_answered_alike():
    which = the_sum()
    senders, _ = everybody(which)
    assert senders["ada"].consent(NAMES)
    assert senders["ada"].consent(NAMES)
    with pytest.raises(PrivacyError, match="rob has sent two different participant sets"):
        senders["ada"].consent(NAMES[:4])
    assert senders["ada"].keys(consents(NAMES)) is senders["ada"].keys(consents(NAMES))


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (("ada", "bob"), "has 2 terms and needs 3"),
        (("bob", "ada", "cleo"), "list its senders in order"),
        (("ada", "bob", "mallory"), "list its senders in order"),
        (("ada", "ada", "bob", "cleo"), "list its senders in order"),
    ],
)
def test_a_roll_that_no_honest_receiver_sends_is_refused(here, why):
    senders, _ = everybody(the_sum())
    with pytest.raises(PrivacyError, match=why):
        senders["ada"].consent(here)


def test_a_roll_with_somebody_who_has_sent_nothing_is_refused():
    with pytest.raises(PrivacyError, match="includes ada, which has sent nothing"):
        sender(the_sum()).consent(NAMES)


def test_a_share_is_made_once():
    which = the_sum()
    ada = sender(which)
    ada.share(np.zeros(4, np.int64))
    with pytest.raises(PrivacyError, match="ada has sent its share"):
        ada.share(np.zeros(4, np.int64))


def test_keys_need_everybodys_consent():
    which = the_sum()
    senders, _ = everybody(which)
    with pytest.raises(PrivacyError, match="has not consented"):
        senders["ada"].keys(consents(NAMES))
    senders["ada"].consent(NAMES)
    with pytest.raises(PrivacyError, match="eve did not consent"):
        senders["ada"].keys(dict.fromkeys(NAMES[:4], NAMES))


def test_messages_of_a_stranger_and_of_one_whose_share_is_missing_are_ignored():
    which = the_sum()
    _, shares = everybody(which)
    receiver = Receiver(which)
    receiver.take("ada", shares[0])
    for act in (lambda: receiver.take("mallory", shares[0]), lambda: receiver.unlock("eve", Keys(bytes(32), {}))):
        with pytest.raises(PrivacyError, match="ignore it"):
            act()


@pytest.mark.parametrize("values", [np.zeros(5, np.uint64), np.zeros(4, np.uint32), np.zeros(4, np.int64)])
def test_a_share_of_another_shape_is_refused(values):
    with pytest.raises(PrivacyError, match="the sum 4 numbers of 64 bits"):
        Receiver(the_sum()).take("ada", values)


def test_keys_for_others_than_the_missing_are_refused():
    which = the_sum()
    senders, shares = everybody(which)
    receiver = Receiver(which)
    for peer, share in zip(NAMES[:4], shares, strict=False):
        receiver.take(peer, share)
    here = receiver.close()
    assert senders["ada"].consent(here)
    good = senders["ada"].keys(consents(here))
    for pairs in ({}, {"bob": bytes(32)}, {"eve": bytes(31)}):
        with pytest.raises(PrivacyError, match="not those of ada's masks with eve"):
            receiver.unlock("ada", Keys(good.own, pairs))


def test_without_one_answer_there_is_no_sum():
    which = the_sum()
    senders, shares = everybody(which)
    receiver = Receiver(which)
    for peer, share in zip(NAMES, shares, strict=True):
        receiver.take(peer, share)
    assert receiver.close() == NAMES
    for peer in NAMES[:4]:
        assert senders[peer].consent(NAMES)
        receiver.unlock(peer, senders[peer].keys(consents(NAMES)))
    assert receiver.total() is None


def test_fewer_shares_than_are_needed_give_no_roll():
    which = the_sum(colluders=2)
    _, shares = everybody(which)
    receiver = Receiver(which)
    for peer, share in zip(NAMES[:4], shares, strict=False):
        receiver.take(peer, share)
    assert receiver.close() == ()
    assert receiver.total() is None
    assert not receiver.take("eve", shares[4])


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 2},
        {"count": 4, "colluders": 3},
        {"slot": SumSlot("ada", 0, 0)},
        {"width": 16},
    ],
)
def test_sums_that_would_hide_nothing_are_refused(wrong):
    with pytest.raises(InputError, match=r"take a denser graph|choose 32 or 64"):
        the_sum(**wrong)


def test_a_missing_secret_names_the_pair():
    with pytest.raises(PrivacyError, match="ada and bob, which both send to rob, share no secret"):
        sender(the_sum(), secrets={}).share(np.zeros(4, np.int64))


def test_colluders_ask_for_more_senders():
    assert [enough(count) for count in range(5)] == [3, 3, 4, 5, 6]
    assert [fewest(7, colluders=count) for count in range(3)] == [4, 4, 7]


@given(senders=st.integers(3, 100))
def test_any_two_sets_that_may_be_summed_share_a_sender(senders):
    assert 2 * fewest(senders, colluders=1) > senders


def test_the_ring_is_the_smallest_that_holds_every_sum():
    assert width(8, largest=255.0, bits=20) == 32
    assert width(8, largest=256.0, bits=20) == 64
    assert width(8, largest=float("inf"), bits=1) == 64


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1))
def test_twos_complement_goes_there_and_back(numbers):
    points = np.array(numbers)
    for bits in (32, 64):
        np.testing.assert_array_equal(to_signed(to_unsigned(points, bits)), points)


def test_keys_do_not_show_in_a_representation():
    which = the_sum()
    senders, _ = everybody(which)
    senders["ada"].consent(NAMES)
    keys = senders["ada"].keys(consents(NAMES))
    assert repr(keys.own) not in repr(keys)
