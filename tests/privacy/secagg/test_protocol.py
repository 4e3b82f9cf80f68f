import hashlib
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
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK
from p2pfl.privacy.secagg.in_process import partners
from p2pfl.privacy.secagg.protocol import FIRST_NUMBER, Sender, Sum, SumSlot, enough, fewest
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


def sender(which, peer="ada", *, secrets=SECRETS):
    return Sender(which, peer=peer, secrets=secrets)


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
def test_the_receiver_gets_the_sum_of_the_participants_to_the_last_bit(count, bits, size, seed, lost):
    which = the_sum(count, size=size, width=bits)
    drawn = np.random.default_rng(seed).integers(1 - which.limit, which.limit, (count, size))
    terms = {peer: row for peer, row in zip(which.senders, drawn, strict=True) if peer not in lost}
    here, total = run_sum(which, terms, secrets=SECRETS)
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
    np.testing.assert_array_equal(run_sum(which, terms, secrets=SECRETS)[1], sum(terms.values()))


@pytest.mark.parametrize("extreme", [1, -1])
@pytest.mark.parametrize("bits", [32, 64])
def test_sums_of_the_largest_terms_do_not_wrap_around_and_larger_ones_are_refused(bits, extreme):
    which = the_sum(width=bits)
    largest = np.full(4, extreme * (which.limit - 1))
    assert set(run_sum(which, dict.fromkeys(NAMES, largest), secrets=SECRETS)[1].tolist()) == {5 * int(largest[0])}
    with pytest.raises(PrivacyError, match=rf"ring of {bits} bits are exact only below {which.limit};"):
        sender(which).share(largest + extreme, NAMES)
    with pytest.raises(PrivacyError, match="are exact only below"):
        sender(which).share(np.array([0, 0, 0, -(2**63)]), NAMES)


def test_weighted_rows_are_rounded_half_to_even_one_by_one():
    np.testing.assert_array_equal(portion(np.array([1.0, 3.0, 5.0, -1.0]), weight=0.5), [0, 2, 2, 0])


# Oracle


@pytest.mark.parametrize(("bits", "kind"), [(32, "<u4"), (64, "<u8")])
@pytest.mark.parametrize("peer", ["ada", "cleo", "eve"])
def test_a_share_is_the_term_and_the_keystreams_of_the_definition(bits, kind, peer):
    which, here = the_sum(size=50, width=bits, place=6), ("ada", "bob", "cleo", "eve")
    points = np.arange(50) - 25
    expected = points.astype(kind)
    among = hashlib.sha256(b"ada/bob/cleo/eve").hexdigest()[:32]
    for other in here:
        if other != peer:
            use = {"purpose": f"total {FIRST_NUMBER + 6} {among}", "round": 4, "attempt": 1}
            key = derived(SOURCE, run="test", a=peer, b=other, **use)
            stream = keystream(key, 50, kind)
            expected = expected + stream if peer < other else expected - stream
    np.testing.assert_array_equal(sender(which, peer).share(points, here), expected)


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
    slots = [(SLOT, 0), (SumSlot("rob", 3, 2), 0), (SumSlot("rob", 4, 1), 0), (SumSlot("sue", 3, 1), 1)]
    for term, (slot, place) in itertools.product(terms.values(), slots):
        which = Sum(slot, NAMES, place=place, size=40_000)
        rows += [sender(which, peer).share(term, NAMES) for peer in ("ada", "bob")]
    drawn = np.stack(rows).astype(np.float64) / 2.0**64
    assert abs(drawn.mean(axis=1) - 0.5).max() < 0.01
    assert abs(drawn.var(axis=1) - 1 / 12).max() < 0.005
    related = np.corrcoef(drawn)
    np.fill_diagonal(related, 0.0)
    related[np.arange(8), np.arange(8) + 8] = related[np.arange(8) + 8, np.arange(8)] = 0.0  # same keys, other term
    assert abs(related).max() < 0.03


# Insiders


@st.composite
def deceits(draw):
    """What a receiver tells each sender, a few sets in any order, and which senders help it."""
    count = draw(st.integers(3, 5))
    names = NAMES[:count]
    helpers = draw(st.sets(st.sampled_from(names), max_size=count - 3))
    sets = draw(st.lists(st.sets(st.sampled_from(names), min_size=2).map(sorted).map(tuple), min_size=1, max_size=3))
    told = {peer: draw(st.lists(st.sampled_from([names, *sets]), min_size=1, max_size=3)) for peer in names}
    return count, helpers, told


def readable(shares, *, helpers):
    """Return a basis of the combinations of shares, ``[D, S]``, from which all masks of honest pairs cancel.

    ``shares`` lists sender and participant set of each; helpers know the masks that they share with anybody.
    """
    masks = sorted(
        {(*pair, here) for _, here in shares for pair in itertools.combinations(sorted({*here} - helpers), 2)}
    )
    signs = np.zeros((len(masks), len(shares)))  # [masks, S]
    for column, (peer, here) in enumerate(shares):
        for row, (low, high, among) in enumerate(masks):
            if among == here and peer in (low, high):
                signs[row, column] = 1.0 if peer == low else -1.0
    if not masks:
        return np.eye(len(shares))
    _, sizes, basis = np.linalg.svd(signs)
    return basis[np.count_nonzero(sizes > 1e-9) :]


@pytest.mark.slow
@settings(MANY)
@given(deceit=deceits())
def test_whatever_a_receiver_says_it_reads_one_sum_of_enough_honest_terms_or_nothing(deceit):
    count, helpers, told = deceit
    which = the_sum(count, colluders=1 + len(helpers))
    shares = []
    for peer in which.senders:
        honest = sender(which, peer)
        for here in told[peer] if peer not in helpers else ():
            with suppress(PrivacyError):
                honest.share(np.zeros(4, np.int64), here)
                shares.append((peer, here))
    assert len({peer for peer, _ in shares}) == len(shares)  # one term of each, whatever it was told
    complete = [
        here for here in {here for _, here in shares} if {(peer, here) for peer in {*here} - helpers} <= {*shares}
    ]
    assert len(complete) <= 1
    found = readable(shares, helpers=helpers)
    assert len(found) == len(complete)
    for here in complete:
        parts = np.abs(found[0]) > 1e-9
        assert {shares[each][0] for each in np.flatnonzero(parts)} == {*here} - helpers
        assert np.ptp(found[0][parts]) < 1e-9  # the sum, each term alike
        assert len({*here} - helpers) >= 3


def test_two_sums_that_differ_by_one_peer_are_refused():
    """The classical attack: the receiver has all terms, and says that eve is missing to add up the others again."""
    which = the_sum()
    senders = {peer: sender(which, peer) for peer in NAMES}
    shares = {peer: each.share(np.arange(4), NAMES) for peer, each in senders.items()}
    assert to_signed(sum(shares.values())).tolist() == [0, 5, 10, 15]
    for peer in NAMES[:4]:
        with pytest.raises(PrivacyError, match=f"{peer} has masked its term of the sum 1 of round 3 for rob"):
            senders[peer].share(np.arange(4), NAMES[:4])


def test_a_participant_set_that_others_did_not_get_leaves_all_masks():
    """One sender is told that eve is there, the others that it is not: nothing follows from their terms."""
    which, terms = the_sum(size=40_000), np.zeros(40_000, np.int64)
    told = {"ada": NAMES, "bob": NAMES[:4], "cleo": NAMES[:4], "dan": NAMES[:4]}
    shares = {peer: sender(which, peer).share(terms, here) for peer, here in told.items()}
    drawn = sum(shares.values()).astype(np.float64) / 2.0**64
    assert abs(drawn.mean() - 0.5) < 0.01
    assert abs(drawn.var() - 1 / 12) < 0.005
    assert len(readable([*told.items()], helpers=set())) == 0


def test_senders_are_not_split_into_two_sums():
    names = tuple(f"peer{number}" for number in range(6))
    secrets = swarm_secrets(complete(6), source=SOURCE, run="test")
    which = Sum(SLOT, names, size=2)
    for half in (names[:3], names[3:]):
        for peer in half:
            with pytest.raises(PrivacyError, match="has 3 terms and needs 4"):
                sender(which, peer, secrets=secrets).share(np.zeros(2, np.int64), half)


# Refusals


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (("ada", "bob"), "has 2 terms and needs 3"),
        (("bob", "ada", "cleo"), "does not list ada and others in order"),
        (("ada", "bob", "mallory"), "does not list ada and others in order"),
        (("ada", "ada", "bob", "cleo"), "does not list ada and others in order"),
        (("bob", "cleo", "dan"), "does not list ada and others in order"),
    ],
)
def test_a_participant_set_that_no_honest_receiver_sends_is_refused_and_the_next_one_is_not(here, why):
    ada = sender(the_sum())
    with pytest.raises(PrivacyError, match=why):
        ada.share(np.zeros(4, np.int64), here)
    ada.share(np.zeros(4, np.int64), NAMES)


def test_a_share_is_made_once():
    ada = sender(the_sum())
    ada.share(np.zeros(4, np.int64), NAMES)
    with pytest.raises(PrivacyError, match="masks no second one"):
        ada.share(np.zeros(4, np.int64), NAMES)


def test_a_term_of_another_shape_is_refused():
    with pytest.raises(PrivacyError, match="the sum 4 numbers"):
        sender(the_sum()).share(np.zeros(5, np.int64), NAMES)


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
    with pytest.raises(PrivacyError, match="the edge ada-bob has no shared secret"):
        sender(the_sum(), secrets={}).share(np.zeros(4, np.int64), NAMES)


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
