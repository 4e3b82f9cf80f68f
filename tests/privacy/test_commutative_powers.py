"""Points of Curve25519 that nobody knows as multiples of each other, and their commuting multiples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.privacy import commutative_powers
from p2pfl.privacy.commutative_powers import hash_to_point, jacobi_symbol, multiply

PRIME = 2**255 - 19


@given(st.integers(0, PRIME - 1))
def test_the_symbol_says_what_the_power_says(number):
    power = pow(number, (PRIME - 1) // 2, PRIME)
    assert jacobi_symbol(number, PRIME) == {0: 0, 1: 1, PRIME - 1: -1}[power]


@given(st.integers(0, 10**6), st.integers(0, 10**6).map(lambda half: 2 * half + 1))
def test_the_symbol_is_that_of_gmpy2_also_where_the_modulus_is_no_prime(number, modulus):
    gmpy2 = pytest.importorskip("gmpy2")
    assert jacobi_symbol(number, modulus) == gmpy2.jacobi(number, modulus)


def test_a_point_is_the_same_with_and_without_gmpy2(monkeypatch):
    pytest.importorskip("gmpy2")
    values = [bytes([number]) for number in range(50)]
    fast = [hash_to_point(value) for value in values]
    monkeypatch.setattr(commutative_powers, "_symbol", lambda: jacobi_symbol)
    assert [hash_to_point(value) for value in values] == fast


def test_points_are_those_of_earlier_versions():
    assert hash_to_point(b"ada").hex() == "bffdb852416b703fad8052cb5a13446fe72c482e14402888c7a3e9c384efb746"


def test_all_points_are_on_the_curve_and_not_on_its_twist():
    for number in range(100):
        u = int.from_bytes(hash_to_point(number.to_bytes(2, "big")), "little")
        assert pow(u**3 + 486662 * u**2 + u, (PRIME - 1) // 2, PRIME) == 1


def test_multiples_commute():
    points = [hash_to_point(bytes([number])) for number in range(5)]
    one, other, third = (bytes([key]) * 32 for key in (1, 2, 3))
    assert multiply(one, multiply(other, multiply(third, points))) == multiply(
        third, multiply(one, multiply(other, points))
    )


@pytest.mark.parametrize("point", [0, 1, PRIME - 1, PRIME, PRIME + 1])
def test_points_of_low_order_are_refused(point):
    with pytest.raises(ValueError, match="shared key"):
        multiply(bytes(range(32)), [point.to_bytes(32, "little")])
