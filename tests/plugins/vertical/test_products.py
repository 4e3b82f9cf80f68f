"""Products of columns against Python integers, what each peer sees of them, and mutants of both."""

import sys
import tomllib
from collections import Counter
from functools import partial
from itertools import permutations
from itertools import product as every
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from code_patches import patched
from p2pfl.core.errors import PrivacyError, RunError
from p2pfl.learning.additive import answer_questions
from p2pfl.plugins.vertical import products as module
from p2pfl.plugins.vertical.products import Factors, Products
from p2pfl.plugins.vertical.ring import words
from p2pfl.privacy.keys import SecretSource, SeededSource
from vertical_roles import ALONE, FOUR, PAIR, THREE, overheard, play


def uniform(rng, *shape):
    return words(rng.integers(-(2**63), 2**63 - 1, shape, np.int64, endpoint=True))


def matrix(products, owner, entries):
    return products.matrix(owner, entries.shape[1], lambda: entries)


def multiplied(left, right, *, products, to, elementwise=False, pair=("ada", "bob")):
    """Open the product of two matrices, the way of several in one batch."""
    one, two = matrix(products, pair[0], left), matrix(products, pair[1], right)
    [dealt] = yield from products.multiply([Factors(one, two, elementwise)])
    read = yield from products.open([dealt.product], to=to, checks=[dealt.check])
    return read()[0]


def modulo(matrix_of_ints):
    return [[int(value) % 2**64 for value in row] for row in matrix_of_ints]


@given(
    st.integers(1, 30),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 2**32),
    st.sampled_from([PAIR, THREE, ALONE]),
)
def test_an_opened_product_is_that_of_integers(rows, wide, high, seed, roles):
    rng = np.random.default_rng(seed)
    left, right = uniform(rng, rows, wide), uniform(rng, rows, high)
    expected = [[sum(int(x) * int(y) for x, y in zip(a, b, strict=True)) % 2**64 for b in right.T] for a in left.T]
    opened = play(multiplied(left, right, products=Products(roles, SecretSource(), rows=rows), to=roles.solver), roles)
    assert modulo(opened) == expected


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 2**32))
def test_an_element_by_element_product_is_that_of_integers(rows, wide, seed):
    rng = np.random.default_rng(seed)
    left, right = uniform(rng, rows, wide), uniform(rng, rows, 1)
    products = Products(PAIR, SecretSource(), rows=rows)
    opened = play(multiplied(left, right, products=products, to="bob", elementwise=True), PAIR)
    assert modulo(opened) == [[int(x) * int(y[0]) % 2**64 for x in row] for row, y in zip(left, right, strict=True)]


@pytest.mark.parametrize("roles", [THREE, ALONE])
def test_a_product_with_a_share_is_that_of_three_columns(roles):
    """X'(w * Z) where w is bob's, X ada's and Z eve's: two products."""
    rng = np.random.default_rng(5)
    x, z = rng.integers(-9, 9, (20, 2)), rng.integers(-9, 9, (20, 3))
    w = rng.integers(-9, 9, (20, 1))
    products = Products(roles, SecretSource(), rows=20)

    def asking():
        one, two, weight = (matrix(products, owner, words(v)) for owner, v in (("ada", x), ("eve", z), ("bob", w)))
        [shares] = yield from products.multiply([Factors(two, weight, elementwise=True)])
        parts = {peer: products.matrix(peer, 3, shares.product.at[peer]) for peer in ("eve", "bob")}
        [first] = yield from products.multiply([Factors(one, parts["eve"])])
        [second] = yield from products.multiply([Factors(one, parts["bob"])])
        whole = first.product + second.product
        read = yield from products.open([whole], to=roles.solver, checks=[first.check, second.check])
        return read()[0]

    assert play(asking(), roles).tolist() == (x.T @ (w * z)).tolist()


def test_one_masked_matrix_serves_many_right_sides_and_is_sent_once():
    rng = np.random.default_rng(5)
    x, y = rng.integers(-9, 9, (50, 2)), rng.integers(-9, 9, (50, 3))
    products = Products(PAIR, SecretSource(), rows=50)

    def asking():
        one = matrix(products, "ada", words(x))
        read = []
        for power in range(1, 4):
            right = matrix(products, "bob", words(y**power))
            both = yield from products.multiply([Factors(one, right), Factors(one, right)])
            read.append((yield from products.open([each.product for each in both], to="cleo")))
        return [each() for each in read]

    opened, views = overheard(asking(), PAIR)
    for power, both in enumerate(opened, 1):
        assert [each.tolist() for each in both] == [(x.T @ y**power).tolist()] * 2
    assert [len(message) for message in views["bob"]] == [4, 150, 18, 18, 18]
    assert [len(message) for message in views["ada"]] == [4, 150, 150, 150]


def test_a_part_and_a_sum_of_shares_open_to_theirs():
    rng = np.random.default_rng(5)
    x, y = rng.integers(-9, 9, (50, 3)), rng.integers(-9, 9, (50, 4))
    products = Products(PAIR, SecretSource(), rows=50)

    def asking():
        [dealt] = yield from products.multiply(
            [Factors(matrix(products, "ada", words(x)), matrix(products, "bob", words(y)))]
        )
        held = products.held("ada", (2, 2), lambda: words(np.full((2, 2), 7)))
        read = yield from products.open([dealt.product.part(slice(1, 3), slice(2, 4)) + held], to="bob")
        return read()[0]

    assert play(asking(), PAIR).tolist() == (x.T @ y)[1:3, 2:4].__add__(7).tolist()


def test_what_one_peer_received_another_cannot_read():
    products = Products(PAIR, SecretSource(), rows=1)
    one = words(np.ones((1, 1)))

    def asking():
        [dealt] = yield from products.multiply([Factors(matrix(products, "ada", one), matrix(products, "bob", one))])
        return dealt

    dealt = play(asking(), PAIR)
    assert {*dealt.product.at} == {"ada", "bob"}
    (key,) = (read for (dealer, party), read in products._keys.items() if party == "bob")
    with pytest.raises(RunError, match="ada cannot read what bob receives"):
        key("ada")


@pytest.mark.parametrize("wrong", ["share", "right", "left"])
def test_a_wrong_dealer_is_noticed(wrong, monkeypatch):
    """The dealer draws other numbers than it gave keys for."""
    real, dealt = module._Deal.dealt, []

    def given(self):
        stream = module.keystream

        def other(key, purpose, shape):
            return stream(key, purpose, shape) + np.uint64(purpose.startswith(wrong))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "keystream", other)
            dealt.append(real(self))
        return dealt[-1]

    monkeypatch.setattr(module._Deal, "dealt", given)
    rng = np.random.default_rng(5)
    left, right = words(rng.integers(1, 9, (20, 2))), words(rng.integers(1, 9, (20, 2)))
    with pytest.raises(PrivacyError, match="dealt random numbers do not fit"):
        play(multiplied(left, right, products=Products(PAIR, SecretSource(), rows=20), to="cleo"), PAIR)


def test_a_fit_that_is_played_again_has_fresh_random_numbers():
    left, right = words(np.arange(20).reshape(10, 2)), words(np.arange(10).reshape(10, 1))

    def views():
        products = Products(PAIR, SecretSource(), rows=10)
        return overheard(multiplied(left, right, products=products, to="cleo"), PAIR)[1]

    first, second = views(), views()
    for peer in ("ada", "bob"):
        assert not {*first[peer]} & {*second[peer]}


def check_pads(_monkeypatch=None):
    """Check that no random number hides two matrices, or one from two peers: matrices of zeros show their masks."""
    products, messages = Products(FOUR, SeededSource(1), rows=10), []

    def asking():
        matrices, others = (
            {peer: matrix(products, peer, np.zeros((10, 2), np.uint64)) for peer in FOUR.parties} for _ in range(2)
        )
        for one, two in permutations(FOUR.parties, 2):
            for right in (others[two], matrices[two]):
                yield from products.multiply([Factors(matrices[one], right), Factors(others[one], right)])

    def total(question):
        [sender] = question.to.among
        messages.append(question.answer(sender))
        question.to.take(messages[-1])
        return np.zeros(0, np.int64)

    answer_questions(asking(), total)
    numbers = np.concatenate(messages)
    assert len(np.unique(numbers)) == len(numbers)


def test_no_random_number_hides_two_matrices_or_one_from_two_peers():
    check_pads()


def views_of_all_random_numbers(monkeypatch, modulus, x, y, *, elementwise=False, to=None):
    """Return how often each peer has each view of a product of one row, over all random numbers of Z_m.

    The ring of 2^64 maps onto Z_m, so messages modulo m are those of the protocol in Z_m.
    """
    counts = {peer: Counter() for peer in PAIR.peers}
    sizes = {"left": 2, "right": 1, "share": 1 if elementwise else 2}
    for numbers in every(range(modulus), repeat=sum(sizes.values())):
        parts = np.split(np.array(numbers, np.uint64), np.cumsum([*sizes.values()])[:-1])
        drawn = dict(zip(sizes, parts, strict=True))
        received = messages_of(monkeypatch, drawn, x, y, elementwise=elementwise, to=to)
        own = {"ada": ("left", "share"), "bob": ("right",), "cleo": ("left", "right", "share")}
        for peer, count in counts.items():
            messages = [tuple(value % modulus for value in message) for message in received[peer][peer != "cleo" :]]
            count[tuple(tuple(drawn[each].tolist()) for each in own[peer]), tuple(messages)] += 1
    return counts


def messages_of(monkeypatch, drawn, x, y, *, elementwise, to):
    """Return what each peer receives in a product of one row under given random numbers."""
    monkeypatch.setattr(module, "keystream", lambda _key, purpose, shape: +drawn[purpose.split()[0]].reshape(shape))
    products = Products(PAIR, SeededSource(0), rows=1)

    def asking():
        one, two = (matrix(products, peer, words([[v]])) for peer, v in (("ada", x), ("bob", y)))
        [dealt] = yield from products.multiply([Factors(one, two, elementwise)])
        if to is not None:
            yield from products.open([dealt.product], to=to, checks=[dealt.check])

    return overheard(asking(), PAIR)[1]


def check_views(monkeypatch, *, modulus, **how):
    for x, y in every(range(modulus), repeat=2):
        counts = views_of_all_random_numbers(monkeypatch, modulus, x, y, **how)
        output = x * y % modulus
        opened = how.get("to")
        for peer, knows in (("ada", (x,)), ("bob", (y,)), ("cleo", ())):
            known = (peer, *knows, *((output,) if peer == opened else ()))
            expected = EXPECTED.setdefault((modulus, *how.items(), known), counts[peer])
            assert counts[peer] == expected, f"the view of {peer} depends on more than {known}"


EXPECTED = {}
"""Views that were seen first, by what a viewer knows."""

AUDIT = Path(__file__).parents[1] / "audit"


@pytest.mark.parametrize("how", [{}, {"elementwise": True}, {"to": "cleo"}, {"to": "bob"}], ids=str)
def test_each_view_depends_on_the_viewers_input_and_output_alone_in_z2(how, monkeypatch):
    check_views(monkeypatch, modulus=2, **how)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("how", [{"elementwise": True}, {"to": "bob"}, {"to": "cleo"}, {}], ids=str)
def test_each_view_depends_on_the_viewers_input_and_output_alone_in_z4(how, monkeypatch):
    check_views(monkeypatch, modulus=4, **how)


def mutants():
    """Return the mutants of products, as of the audit."""
    rows = tomllib.loads((AUDIT / "mutants.toml").read_text("utf-8"))["of products of columns"]
    return [
        pytest.param(*change, id=name)
        for name, (_, tests, *change) in rows.items()
        if tests.endswith(Path(__file__).name)
    ]


@pytest.mark.parametrize(("function", "text", "other"), mutants())
def test_a_mutant_is_noticed(function, text, other, monkeypatch):
    patched((function, text, other))(monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "EXPECTED", {})
    noticed = [check for check in (check_pads, partial(check_views, modulus=2)) if is_broken(check, monkeypatch)]
    assert noticed


def is_broken(check, monkeypatch):
    try:
        check(monkeypatch)
    except AssertionError:
        return True
    return False
