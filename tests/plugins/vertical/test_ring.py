import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DataError
from p2pfl.plugins.vertical.ring import fixed_point, limb_bits, multiply, signed, sum_room, words


def product_of_integers(left, right):
    """Return X'Y modulo 2^64, in Python's integers."""
    columns = [[int(value) for value in column] for column in left.T], [[int(v) for v in column] for column in right.T]
    return [[sum(x * y for x, y in zip(one, two, strict=True)) % 2**64 for two in columns[1]] for one in columns[0]]


@given(st.integers(0, 40), st.integers(0, 4), st.integers(0, 4), st.integers(0, 2**32 - 1), st.data())
def test_a_product_is_that_of_integers(rows, wide, high, seed, data):
    rng = np.random.default_rng(seed)
    bits = [data.draw(st.integers(1, 63)) for _ in range(2)]
    left = words(rng.integers(-(2 ** bits[0]), 2 ** bits[0], (rows, wide), np.int64, endpoint=False))
    right = words(rng.integers(-(2 ** bits[1]), 2 ** bits[1], (rows, high), np.int64, endpoint=False))
    assert multiply(left, right).tolist() == product_of_integers(left, right)


@pytest.mark.parametrize(
    "value", [0, 1, -1, 2**15 - 1, 2**15, -(2**15), -(2**15) - 1, 2**31, 2**47, 2**63 - 1, -(2**63)]
)
def test_a_product_is_exact_where_a_limb_ends(value):
    column = words(np.full((3000, 1), value))
    assert multiply(column, column).tolist() == [[3000 * value * value % 2**64]]


def test_the_largest_words_of_many_rows_do_not_round():
    column = np.full((5000, 2), 2**64 - 1, np.uint64)
    column[::2, 1] = 2**16 - 1
    assert multiply(column, column).tolist() == product_of_integers(column, column)


@given(st.integers(1, 20), st.integers(2, 44), st.integers(0, 2**32 - 1))
def test_scaled_columns_have_their_bits_and_come_back(rows, bits, seed):
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(rows, 3)) * 10.0 ** rng.integers(-9, 9, 3)
    result = fixed_point(columns, bits=bits)
    largest = np.abs(result.values).max(axis=0)
    assert (largest >= 2 ** (bits - 1) - 1).all()
    assert (largest < 2**bits).all()
    back = np.ldexp(result.values.astype(float), -result.exponents)
    assert (np.abs(back - columns) <= np.ldexp(1.0, -result.exponents)).all()


@given(st.integers(1, 22), st.integers(0, 2**32 - 1))
def test_two_limbs_are_the_number(bits, seed):
    columns = np.random.default_rng(seed).normal(size=(9, 2))
    result = fixed_point(columns, bits=2 * bits)
    high, low = result.limbs(bits)
    assert (signed(high) * 2**bits + signed(low) == result.values).all()
    assert (np.abs(signed(high)) <= 2**bits).all()
    assert (np.abs(signed(low)) <= 2 ** (bits - 1)).all()


@pytest.mark.parametrize("rows", [1, 50, 2**17, 100_000, 10**6, 2**20])
def test_no_sum_of_products_of_limbs_reaches_two_to_the_63(rows):
    assert rows * (2 ** limb_bits(rows)) ** 2 < 2**63
    assert rows * 2 ** sum_room(rows) < 2**63


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_missing_number_is_refused(value):
    with pytest.raises(DataError, match="missing or infinite numbers"):
        fixed_point(np.array([[1.0], [value]]), bits=22)
