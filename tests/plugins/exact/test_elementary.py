"""Elementary functions against those of the standard library and numpy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.plugins.exact.elementary import added, inverse, log, times


@given(st.floats(2.0**-60, 2.0**60))
def test_the_logarithm_is_that_of_the_standard_library(number):
    assert log(number) == pytest.approx(math.log(number), rel=4e-16, abs=4e-16)


def test_the_inverse_of_a_badly_scaled_matrix_is_that_of_numpy():
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.uniform(-6, 6, 9)
    half = rng.normal(size=(9, 30))
    matrix = (half @ half.T) * scale[:, None] * scale[None, :]
    found, dependent = inverse(matrix)
    expected = np.linalg.inv(half @ half.T) / scale[:, None] / scale[None, :]
    assert not dependent
    assert np.abs(found / expected - 1).max() < 1e-10


def test_a_dependent_column_is_named_and_left_out():
    half = np.random.default_rng(0).normal(size=(20, 3))
    design = np.column_stack([half, half[:, 0] + half[:, 1]])
    found, dependent = inverse(design.T @ design)
    assert dependent == [3]
    assert (found[3] == 0).all()
    assert (found[:, 3] == 0).all()
    assert np.allclose(found[:3, :3], np.linalg.inv(half.T @ half), rtol=1e-10)


def test_sums_and_products_follow_the_order_of_their_arguments():
    values = np.array([1e16, 1.0, -1e16, 1.0])
    assert added(values) == 1.0
    assert times(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 1.0])).tolist() == [12.0, 34.0]


@pytest.mark.parametrize("function", [np.exp, np.log1p, np.tanh, np.log, np.sqrt])
def test_numpy_gives_an_element_the_same_bits_whatever_its_neighbours(function):
    """Each peer computes its own part of the samples, and the baseline on pooled data computes all of them at once."""
    values = np.abs(np.random.default_rng(2).normal(size=10_007)) + 1e-3
    whole = function(values)
    pieces = np.concatenate([function(values[low : low + 7].copy()) for low in range(0, len(values), 7)])
    assert np.array_equal(whole, pieces)
