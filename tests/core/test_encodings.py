"""Numbers as integers: their sums are exact, decode to what they stand for, and never wrap around unnoticed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core import encodings
from p2pfl.core.errors import InputError, PrivacyError

FINITE = st.floats(-(2.0**55), 2.0**55)


def exact(values):
    """The sum without any rounding."""
    return sum(map(Fraction, values), Fraction(0))


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_a_total_of_wide_numbers_is_off_by_half_a_point_a_peer_and_one_rounding(values):
    total = encodings.from_wide(sum(encodings.wide([each]) for each in values))[0]
    points = exact(values)
    assert abs(Fraction(float(total)) - points) <= Fraction(len(values), 2**41) + abs(points) * Fraction(2, 2**53)


@given(st.lists(st.floats(-1e25, 1e25), min_size=1, max_size=20))
def test_a_total_of_wide_numbers_of_four_words_is_exact_but_for_the_rounding_of_the_result(values):
    how = {"words": 4, "fraction": 96}
    total = encodings.from_wide(sum(encodings.wide([each], **how) for each in values), **how)[0]
    points = exact(values)
    assert abs(Fraction(float(total)) - points) <= Fraction(len(values), 2**97) + abs(points) * Fraction(2, 2**53)


@given(st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=50))
def test_whole_numbers_survive_the_wide_encoding_to_the_last_bit(values):
    total = encodings.from_wide(sum(encodings.wide([float(each)]) for each in values))[0]
    assert total == float(sum(values))


def test_wide_numbers_below_any_bound_add_up_exactly_over_as_many_peers_as_promised():
    largest = np.nextafter(encodings.largest_wide(), 0)
    for value in (largest, -largest, -(2.0**-41), 2.0**-40):
        encoded = encodings.wide([value])
        most = (encodings.MAX_PARTICIPANTS - 1) * max(abs(int(each)) for each in encoded)
        assert most < 2**63


@given(st.lists(FINITE, min_size=1, max_size=8), st.randoms())
def test_a_total_of_wide_numbers_does_not_depend_on_the_order(values, random):
    encoded = [encodings.wide([each]) for each in values]
    total = sum(encoded)
    random.shuffle(encoded)
    assert (sum(encoded) == total).all()


@pytest.mark.parametrize("wrong", [2.0**56, -(2.0**56), np.inf, np.nan])
def test_wide_numbers_have_a_range_that_is_told(wrong):
    with pytest.raises(InputError, match="finite and below 2\\^56"):
        encodings.wide([1.0, wrong])


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("peers", [1, 2, 3, 7, 64])
def test_a_contribution_at_the_limit_is_refused_and_below_it_never_wraps(bits, peers):
    bound = encodings.limit(peers, bits=bits)
    assert peers * (bound - 1) < 2 ** (bits - 1)
    below = np.array([0, bound - 1, 1 - bound])
    encodings.check_contribution(below, peer="ada", size=3, participants=peers, bits=bits)
    for wrong in {min(bound, 2**63 - 1), -bound}:
        if wrong != 2**63 - 1 or bound < 2**63:
            with pytest.raises(PrivacyError, match=rf"of ada has an integer .* over {peers} peers in {bits} bits"):
                encodings.check_contribution(np.array([0, wrong]), peer="ada", size=2, participants=peers, bits=bits)


def test_other_widths_than_those_of_rings_are_refused():
    with pytest.raises(InputError, match="32 or 64 bits, not 16"):
        encodings.limit(3, bits=16)


def test_a_contribution_of_another_shape_or_type_is_refused():
    for wrong in (np.zeros(3, np.int64), np.zeros(2), np.zeros((2, 1), np.int64)):
        with pytest.raises(InputError, match="the total is of 2 numbers of type int64"):
            encodings.check_contribution(wrong, peer="ada", size=2, participants=3, bits=64)
