"""Products of two parties with nobody else: those of integers, and what each of both sees."""

import numpy as np
import pytest
from sklearn import datasets

from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.plugins.vertical import encrypted_products as module
from p2pfl.plugins.vertical import linear
from p2pfl.plugins.vertical.encrypted_products import MAX_ROWS, EncryptedProducts, products_of
from p2pfl.plugins.vertical.paillier import ROOTS, PrivateKey
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.products import Factors, Products
from p2pfl.plugins.vertical.ring import words
from p2pfl.privacy.keys import SecretSource, SeededSource
from vertical_roles import PAIR, THREE, joined_table, overheard, play, split

TWO = PartyRoles(("ada", "bob"), label="bob")
BITS = 448
WIDE = 2 * BITS // 64


def encrypted(rows, source=None):
    return EncryptedProducts(TWO, source or SeededSource(3), rows, bits=BITS)


def matrix(products, owner, entries):
    return products.matrix(owner, entries.shape[1], lambda: words(entries))


def opened(products, one, two, *, to=None, elementwise=False, pair=("ada", "bob")):
    left, right = matrix(products, pair[0], one), matrix(products, pair[1], two)
    [dealt] = yield from products.multiply([Factors(left, right, elementwise)])
    if to is None:
        return dealt.product
    read = yield from products.open([dealt.product], to=to, checks=[dealt.check])
    return read()[0]


def exact(one, two):
    """Return the product modulo 2^64, in integers of Python."""
    left, right = ([[int(value) for value in row] for row in each] for each in (one, two))
    return [
        [sum(x[j] * y[k] for x, y in zip(left, right, strict=True)) % 2**64 for k in range(len(right[0]))]
        for j in range(len(left[0]))
    ]


def modulo(numbers):
    return [[int(value) % 2**64 for value in row] for row in numbers]


SIZES = {"one": (1, 1, 1), "chunks": (7, 2, 5), "full": (20, 3, 2)}  # 2 numbers are packed into one of 448 bits


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize(("pair", "to"), [(("ada", "bob"), "ada"), (("ada", "bob"), "bob"), (("bob", "ada"), "bob")])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_product_of_any_words_is_that_of_integers(size, pair, to):
    rows, a, b = size
    rng = np.random.default_rng(rows)
    one, two = (rng.integers(-(2**63), 2**63 - 1, (rows, columns), endpoint=True) for columns in (a, b))
    assert modulo(play(opened(encrypted(rows), one, two, to=to, pair=pair), TWO)) == exact(one, two)


@pytest.mark.parametrize("low", [-(2**63), 2**63 - 1])
def test_the_largest_numbers_do_not_leave_their_slots(low):
    one, two = np.full((6, 2), -(2**63)), np.full((6, 3), low)
    assert modulo(play(opened(encrypted(6), one, two, to="bob"), TWO)) == exact(one, two)


@pytest.mark.parametrize("to", ["ada", "bob"])
def test_an_element_by_element_product_is_that_of_integers(to):
    rng = np.random.default_rng(4)
    one, two = rng.integers(-(2**63), 2**63 - 1, (5, 3)), rng.integers(-(2**63), 2**63 - 1, (5, 1))
    found = modulo(play(opened(encrypted(5), one, two, to=to, elementwise=True), TWO))
    assert found == [[int(x) * int(y[0]) % 2**64 for x in row] for row, y in zip(one, two, strict=True)]


def test_a_product_with_a_share_is_that_of_three_columns():
    """X'(w * X), where w is bob's and X ada's: an element by element product, whose shares are right sides."""
    rng = np.random.default_rng(5)
    x, w = rng.integers(-9, 9, (12, 2)), rng.integers(-9, 9, (12, 1))
    products = encrypted(12)

    def asking():
        one, weight = matrix(products, "ada", x), matrix(products, "bob", w)
        [shares] = yield from products.multiply([Factors(one, weight, elementwise=True)])
        part = products.matrix("bob", 2, shares.product.at["bob"])
        [second] = yield from products.multiply([Factors(one, part)])
        own = products.held("ada", (2, 2), lambda: words(x.T @ shares.product.at["ada"]().view(np.int64)))
        read = yield from products.open([second.product + own], to="ada")
        return read()[0]

    assert play(asking(), TWO).tolist() == (x.T @ (w * x)).tolist()


def test_rows_are_encrypted_once_for_all_products_of_a_fit():
    rng = np.random.default_rng(5)
    products = encrypted(4)
    x, y = rng.integers(-9, 9, (4, 2)), rng.integers(-9, 9, (4, 2))

    def asking():
        left, right = [matrix(products, "ada", each) for each in (x, x**2)], matrix(products, "bob", y)
        both = yield from products.multiply([Factors(each, right) for each in left])
        more = yield from products.multiply([Factors(left[0], right)])
        read = yield from products.open([each.product for each in (*both, *more)], to="ada")
        return [each.tolist() for each in read()]

    found, views = overheard(asking(), TWO)
    assert found == [(each.T @ y).tolist() for each in (x, x**2, x)]
    # the key with its certificate, rows, shares
    assert [len(message) for message in views["ada"]] == [(1 + ROOTS) * BITS // 64, 4 * WIDE, 12]
    assert [len(message) for message in views["bob"]] == [2 * WIDE] * 3


# ---------------------------------------------------------------------- what each of both sees


@pytest.fixture
def decrypted(monkeypatch):
    """Numbers below n that the holder of the key decrypts."""
    seen, decrypt = [], PrivateKey.decrypt

    def note(self, number):
        seen.append(int(decrypt(self, number) % self.public.modulus))
        return seen[-1]

    monkeypatch.setattr(PrivateKey, "decrypt", note)
    return seen


@pytest.mark.parametrize("columns", [1, 2])
def test_the_holder_of_the_key_decrypts_uniform_numbers_of_the_whole_range(columns, decrypted):
    """Decrypt products that are zero: each slot, and what is left beyond the slots, is uniform for any columns."""
    zeros = np.zeros((3, 80), np.int64)
    play(opened(encrypted(3, SecretSource()), zeros, np.full((3, columns), 2**62)), TWO).at["bob"]()
    assert len(decrypted) == 80
    ones = np.array([[number >> bit & 1 for bit in range(BITS - 1)] for number in decrypted]).mean(axis=0)
    assert abs(ones - 0.5).max() < 0.3
    assert abs(ones.mean() - 0.5) < 0.02


def test_rows_that_the_holder_of_the_key_packs_beyond_its_columns_are_not_read(decrypted, monkeypatch):
    """It declares one column, and adds a power of two in the free bits of each row, so that sums hold rows of ada."""
    base, wide = 192 + 1, 23
    room = (BITS - 2 - base) // wide
    packed = module._Holder.packed

    def crafted(self, rows):
        return [
            number + ((1 << (base + wide * row)) if row < room else 0) for row, number in enumerate(packed(self, rows))
        ]

    monkeypatch.setattr(module._Holder, "packed", crafted)
    rng = np.random.default_rng(0)
    one, two = rng.integers(-(2**21), 2**21, (room, 6)), rng.integers(-(2**21), 2**21, (room, 1))
    play(opened(encrypted(room, SecretSource()), one, two), TWO).at["bob"]()
    guessed = [[(number >> (base + wide * row)) % 2**wide for row in range(room)] for number in decrypted]
    near = np.abs((np.array(guessed) - one.T) % 2**wide)
    assert room == 11
    assert (np.minimum(near, 2**wide - near) > 1).mean() > 0.95  # of 66 numbers, each by chance with 2^-21


def test_a_key_without_its_certificate_ends_the_fit_before_a_row_is_multiplied(monkeypatch):
    monkeypatch.setattr(PrivateKey, "certificate", lambda _: [2] * ROOTS)
    one = np.ones((3, 2), np.int64)
    with pytest.raises(PrivacyError, match="a key is not the product of two primes"):
        play(opened(encrypted(3), one, one, to="bob"), TWO)


def test_shares_alone_are_uniform_and_a_fit_that_is_played_again_has_others():
    one, two = np.ones((3, 30), np.int64), np.ones((3, 2), np.int64)
    shares, views = [], []
    for _ in range(2):
        product, seen = overheard(opened(encrypted(3, SecretSource()), one, two), TWO)
        shares += [product.at[peer]() for peer in TWO.parties]
        views.append(seen)
    assert ((shares[0] + shares[1]) == 3).all()
    assert len(np.unique(np.concatenate(shares))) == 240
    for peer in TWO.parties:
        first, second = ({value for message in seen[peer] for value in message if value} for seen in views)
        assert not first & second


def test_each_product_has_its_own_noise():
    products = encrypted(3)
    x, y = np.ones((3, 2), np.int64), np.ones((3, 2), np.int64)

    def asking():
        left, right = matrix(products, "ada", x), matrix(products, "bob", y)
        return (yield from products.multiply([Factors(left, right), Factors(left, right)]))

    one, other = play(asking(), TWO)
    assert not (one.product.at["ada"]() == other.product.at["ada"]()).any()


@pytest.mark.parametrize("wrong", ["rows", "products"])
def test_damaged_numbers_end_the_fit_in_a_sentence(wrong, monkeypatch):
    products, real = encrypted(3), module.large_to_ints

    def damaged(numbers, size):
        late = len(numbers) == (3 if wrong == "rows" else 2) and size == WIDE
        return real([0 if late else int(number) for number in numbers], size)

    monkeypatch.setattr(module, "large_to_ints", damaged)
    one = np.ones((3, 2), np.int64)
    with pytest.raises(PrivacyError, match="damaged; start the run again"):
        play(opened(products, one, one, to="bob"), TWO)


# ---------------------------------------------------------------------- which products


def test_two_parties_encrypt_where_nobody_deals_and_few_rows_alone():
    for roles, kind in ((PAIR, Products), (THREE, Products), (TWO, EncryptedProducts)):
        assert type(products_of(roles, SeededSource(1), 100)) is kind
    assert products_of(PAIR, SeededSource(1), MAX_ROWS + 1)
    with pytest.raises(InputError, match=r"encrypt each of 20,001 rows.*set data\.options\.helper"):
        products_of(TWO, SeededSource(1), MAX_ROWS + 1)


def test_two_parties_alone_fit_the_linear_model_that_a_helper_would_to_the_last_bit(monkeypatch):
    features, target = datasets.load_diabetes(return_X_y=True, scaled=False)
    features, target = features[:120, :6], target[:120]

    def alone(roles, source, rows):
        return EncryptedProducts(roles, source, rows, bits=BITS)

    fits = []
    for roles in (PAIR, TWO):
        if roles is TWO:
            monkeypatch.setattr(linear, "products_of", alone)
        parts = split(features, roles)
        asking = linear.fit_linear(joined_table(parts, target, roles), SecretSource())
        fits.append(play(asking, roles))
    helped, on_their_own = fits
    assert TWO.solver == "ada"
    for party in TWO.parties:
        for name, values in helped.own(party).items():
            assert np.array_equal(on_their_own.own(party)[name], values, equal_nan=True), name
