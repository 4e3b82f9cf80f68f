"""Paillier encryption against Python integers, with and without gmpy2."""

import math
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import PrivacyError
from p2pfl.plugins.vertical import paillier
from p2pfl.plugins.vertical.paillier import Powers, PrivateKey, PublicKey, is_prime, safe_prime, stream

BITS = 256


@pytest.fixture(scope="module")
def key():
    return PrivateKey(stream(bytes(32)), bits=BITS)


MESSAGES = st.integers(-(2 ** (BITS - 2)), 2 ** (BITS - 2))
FACTORS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**21), 2**21), st.sampled_from([-1, 0, 1]))


@given(message=MESSAGES)
def test_what_is_encrypted_decrypts_to_itself_and_never_twice_to_the_same_number(key, message):
    one, other = key.encrypt(message), key.encrypt(message)
    assert key.decrypt(one) == key.decrypt(other) == message
    assert one != other


@given(pairs=st.lists(st.tuples(st.integers(-(2**63), 2**63), FACTORS), min_size=1, max_size=40), noise=MESSAGES)
def test_a_combination_decrypts_to_the_sum_of_products(key, pairs, noise):
    messages, factors = zip(*pairs, strict=True)
    numbers = key.public.check([int(key.encrypt(each)) for each in messages])
    combined = key.public.combine(numbers, np.array(factors, np.int64))
    expected = sum(x * y for x, y in pairs)
    assert key.decrypt(combined) == expected
    draw = stream(bytes(range(32)))
    hidden = key.public.hide(combined, abs(noise), key.public.fresh(draw))
    assert key.decrypt(hidden) == centred(expected + abs(noise), int(key.public.modulus))


def centred(number, modulus):
    return (number + modulus // 2) % modulus - modulus // 2


def test_many_combine_to_their_sum(key):
    rng = np.random.default_rng(3)
    messages, factors = rng.integers(-(2**40), 2**40, 3000), rng.integers(-(2**63), 2**63 - 1, 3000)
    some = [key.encrypt(each) for each in messages[:30].tolist()] * 100
    expected = sum(int(x) * int(y) for x, y in zip(np.tile(messages[:30], 100), factors, strict=True))
    assert key.decrypt(key.public.combine(some, factors)) == expected


def residue(key, number):
    """Return the n-th power beside the message of a number, which the holder of the key can compute."""
    n, square = key.public.modulus, key.public.square
    return number * pow(1 + n, -key.decrypt(number) % n, square) % square


def test_the_holder_of_the_key_finds_in_a_combination_the_powers_it_drew_and_after_hiding_it_does_not(key):
    """They would tell the factors: of zeros none are left."""
    numbers = [key.encrypt(1) for _ in range(3)]
    combined = key.public.combine(numbers, np.array([0, 2, 0]))
    assert residue(key, combined) == pow(residue(key, numbers[1]), 2, key.public.square)
    draw = stream(bytes(range(32)))
    powers = key.public.rerandomiser(draw)
    residues = {int(residue(key, key.public.hide(combined, 5, powers.power(draw(powers.bits))))) for _ in range(20)}
    assert len(residues) == 20
    assert residue(key, combined) not in residues
    half = (int(key._primes[0]) - 1) // 2  # the order of squares modulo p
    assert all(pow(each, half, key._primes[0]) == 1 for each in residues)


def test_encrypted_numbers_that_are_no_squares_do_not_show_whether_factors_are_odd(key):
    """The holder sees whether what it receives is a square modulo p: by a coin, and not by the parity of the factor."""
    prime, square = key._primes[0], key.public.square
    other = next(each for each in range(2, 99) if pow(each, (prime - 1) // 2, prime) != 1)
    crafted = key.encrypt(1) * pow(other, key.public.modulus, square) % square
    draw = stream(bytes(range(32)))
    for factor in (2, 3):
        combined = key.public.combine([crafted], np.array([factor]))
        hidden = [key.public.hide(combined, 5, key.public.fresh(draw)) for _ in range(200)]
        squares = sum(pow(residue(key, each), (prime - 1) // 2, prime) == 1 for each in hidden)
        assert 70 < squares < 130


def test_a_certificate_shows_that_each_number_has_one_root(key):
    key.public.check_certificate(key.certificate())
    with pytest.raises(PrivacyError, match="not the product of two primes"):
        key.public.check_certificate([key.certificate()[0]] * paillier.ROOTS)


def product(*factors):
    """Return a key of 256 bits whose modulus has some prime factors, and another one."""
    whole = math.prod(factors)
    return next(
        PublicKey(whole * rest, bits=BITS)
        for rest in range(2 ** (BITS - 1) // whole + 2 & ~1 | 1, 2**BITS // whole, 2)
        if is_prime(rest, stream(bytes(32))) and math.gcd(whole, rest - 1) == 1  # so that there are n-th roots
    )


@pytest.mark.parametrize("factors", [(3,), (131071,), (2**61 - 1, 2**61 - 1)])
def test_a_modulus_with_small_or_repeated_factors_has_no_certificate(factors):
    public = product(*factors)
    primes = [*dict.fromkeys(factors), int(public.modulus) // math.prod(factors)]
    order = math.prod(prime - 1 for prime in primes)  # beside the n-th powers where a factor is repeated
    root = pow(int(public.modulus), -1, order)
    roots = [pow(number, root, public.modulus) for number in public.challenges()]
    with pytest.raises(PrivacyError, match="not the product of two primes"):
        public.check_certificate(roots)


def test_numbers_that_share_a_factor_with_the_modulus_are_refused(key):
    with pytest.raises(PrivacyError, match="encrypted numbers are damaged"):
        key.public.check([int(key.encrypt(1)), int(key._primes[0])])


def test_primes_of_a_key_are_safe_and_of_its_length(key):
    for prime in map(int, key._primes):
        assert prime.bit_length() == BITS // 2
        assert is_prime(prime, stream(bytes(32)))
        assert is_prime(prime // 2, stream(bytes(32)))
    assert key.public.modulus.bit_length() == BITS


def test_powers_by_table_are_powers():
    rng = np.random.default_rng(1)
    for bits in (1, 5, 6, 7, 100):
        table = Powers(paillier.big(12345), paillier.big(2**61 - 1), bits)
        exponent = int(rng.integers(2**62)) * 2**40 % 2**bits
        assert table.power(exponent) == pow(12345, exponent, 2**61 - 1)


@pytest.mark.parametrize("composite", [561, 1105, 41041, 825265, (2**61 - 1) * (2**31 - 1), 2**67 - 1])
def test_composites_are_no_primes_even_where_fermat_thinks_so(composite):
    assert not is_prime(composite, stream(bytes(32)))


@pytest.mark.parametrize("prime", [5, 569, 2**31 - 1, 2**61 - 1, 2**127 - 1])
def test_primes_are(prime):
    assert is_prime(prime, stream(bytes(32)))


def test_primes_follow_from_the_key_of_their_stream_alone():
    drawn = [safe_prime(64, stream(bytes([seed]) * 32)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_stream_is_uniform_in_all_bits():
    draw = stream(bytes(32))
    numbers = [draw(13) for _ in range(4000)]
    assert all(0 <= number < 2**13 for number in numbers)
    ones = np.array([[number >> bit & 1 for bit in range(13)] for number in numbers]).mean(axis=0)
    assert (abs(ones - 0.5) < 0.04).all()


@pytest.mark.parametrize("modulus", [2**2047 + 1 >> 1, 2**2047, 15])
def test_a_key_that_hides_nothing_is_refused(modulus):
    with pytest.raises(PrivacyError, match="cannot hide products"):
        PublicKey(modulus)


@pytest.mark.parametrize("number", [0, -1, 2**600])
def test_a_number_that_is_no_encryption_is_refused(key, number):
    with pytest.raises(PrivacyError, match="damaged"):
        key.public.check([int(key.encrypt(1)), number])


def test_a_number_without_an_inverse_is_refused(key):
    with pytest.raises(PrivacyError, match="damaged"):
        key.public.combine([key.public.modulus], np.array([1]))


def test_plain_integers_and_those_of_gmpy2_make_the_same_key_and_numbers(monkeypatch):
    gmpy2 = pytest.importorskip("gmpy2")
    found = []
    for kind in (int, gmpy2.mpz):
        monkeypatch.setattr(paillier, "big", kind)
        drawn = PrivateKey(stream(bytes([7]) * 32), bits=BITS)
        numbers = [drawn.encrypt(each) for each in (3, -4)]
        found.append([int(each) for each in (*drawn._primes, *numbers, drawn.decrypt(numbers[1]))])
    assert found[0] == found[1]


def test_draws_do_not_repeat():
    draw = stream(bytes(32))
    assert len({draw(64) for _, _ in zip(range(1000), count(), strict=False)}) == 1000
