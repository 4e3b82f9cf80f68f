r"""Paillier encryption, under which sums of encrypted numbers times known ones can be computed.

For safe primes p, q and :math:`n = pq`,

.. math:: E(m) = (1 + n)^m \rho \bmod n^2, \qquad \prod_i E(m_i)^{x_i} = E\Big(\sum_i x_i m_i\Big)

where :math:`\rho` is a uniform square among the n-th powers. The holder of the key draws it as a power of a fixed one
modulo p^2 and q^2, each to a uniform exponent. Anybody else may raise a square of an n-th power that it drew itself to
an exponent 64 bits longer than n: since p and q are safe, this one generates all of them but with probability
:math:`2^{-1000}`, so the result is within :math:`2^{-60}` of uniform, also to the holder of the key. A message is
hidden if n-th powers look like other numbers modulo n^2 (the decisional composite residuosity assumption).

A holder that lies may take other primes. Its certificate shows that each number modulo n has one n-th root; then the
n-th power of a uniform number hides all factors of a combination from it, whatever n and the encrypted numbers are.

gmpy2, the extra `vertical`, makes all of it seven to ten times faster.

References
----------
P. Paillier, Public-key cryptosystems based on composite degree residuosity classes, EUROCRYPT 1999.
I. Damgård, M. Jurik, J. B. Nielsen, A generalization of Paillier's public-key system, IJIS 9, 2010 (powers of a fixed
n-th power in place of fresh ones).
S. Goldberg, L. Reyzin, O. Sagga, F. Baldimtsi, Efficient noninteractive certification of RSA moduli and beyond,
ASIACRYPT 2019 (certificates).
N. Pippenger, On the evaluation of powers and related problems, 1976 (products of many powers).
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import PrivacyError

big: Callable[[int], Any]
"""Type of large numbers: ``mpz`` with gmpy2, otherwise ``int``."""

try:
    from gmpy2 import mpz
except ImportError:  # the extra is not installed
    big = int
else:
    big = mpz

MODULUS_BITS = 2048
"""Bits of n: 112 bits of security."""

WINDOW = 6
"""Bits of an exponent that a table of powers of a fixed number takes at once."""

SPARE_BITS = 64
"""Bits by which an exponent is longer than the order of what it raises, so that the power is uniform."""

SIEVED = 2**17
"""Primes below it are tried before a candidate is tested."""

ROOTS = 8
"""Numbers of a certificate: without small factors, a key that has none passes with probability 2^-136."""

TESTS = 40
"""Bases to which a prime is tested: it is none with probability 4^-40."""

Stream = Callable[[int], int]
"""Function that returns a uniform integer of so many bits; the same ones in turn for the same key."""


def stream(key: bytes) -> Stream:
    """Return a source of uniform integers that follow from a key of 32 bytes.

    Examples
    --------
    >>> draw, again = stream(bytes(32)), stream(bytes(32))
    >>> draw(100) == again(100) != draw(100)
    True
    """
    numbers = count()

    def draw(bits: int) -> int:
        info = f"p2pfl/v1/paillier/{next(numbers)}".encode()
        seed = hmac.digest(key, info, "sha256")
        data = hashlib.shake_256(seed).digest(-(-bits // 8))
        return int.from_bytes(data, "little") >> (-bits % 8)

    return draw


class PublicKey:
    """Key with which anybody adds up encrypted numbers, and encrypts.

    Parameters
    ----------
    modulus
        n.

    Raises
    ------
    PrivacyError
        It is even, or too short.
    """

    def __init__(self, modulus: int, *, bits: int = MODULUS_BITS) -> None:
        if modulus.bit_length() != bits or modulus % 2 == 0:
            raise PrivacyError(
                f"a key of {modulus.bit_length()} bits cannot hide products; install the same p2pfl at both parties"
            )
        self.bits = bits
        self.modulus = big(modulus)
        self.square = self.modulus * self.modulus

    def rerandomiser(self, draw: Stream) -> Powers:
        """Return powers of a square of an n-th power that is drawn now."""
        base = pow(big(draw(self.bits + SPARE_BITS)) % self.square, 2 * self.modulus, self.square)
        return Powers(base, self.square, self.bits + SPARE_BITS)

    def fresh(self, draw: Stream) -> Any:
        """Return a uniform n-th power, which takes several times as long as one by a table of powers."""
        return pow(big(draw(self.bits + SPARE_BITS)) % self.modulus, self.modulus, self.square)

    def hide(self, encrypted: Any, message: int, fresh: Any) -> Any:
        """Return an encryption of the sum of an encrypted number and a message, hidden by a fresh n-th power."""
        return encrypted * (1 + message * self.modulus) % self.square * fresh % self.square

    def challenges(self) -> list[Any]:
        """Return the numbers that follow from n, of which a certificate has the n-th roots."""
        draw = stream(hashlib.sha256(int(self.modulus).to_bytes(self.bits // 8, "little")).digest())
        return [big(draw(self.bits + SPARE_BITS)) % self.modulus for _ in range(ROOTS)]

    def check_certificate(self, roots: Sequence[int]) -> None:
        """Refuse a key under which n-th powers do not hide everything.

        Raises
        ------
        PrivacyError
            n has a small factor, or a root is none.
        """
        pairs = zip(roots, self.challenges(), strict=True)
        if any(self.modulus % prime == 0 for prime in _small_primes()) or any(
            pow(big(root), self.modulus, self.modulus) != number for root, number in pairs
        ):
            raise PrivacyError(
                "a key is not the product of two primes that it must be, so it does not hide products; its owner does "
                "not follow the protocol, so compare versions"
            )

    def check(self, numbers: Sequence[int]) -> list[Any]:
        """Return encrypted numbers, checked, in the type of large numbers.

        Raises
        ------
        PrivacyError
            One is no encrypted number.
        """
        checked = [big(number) for number in numbers]
        product = big(1)
        for number in checked:
            product = product * number % self.modulus
        if math.gcd(int(product), int(self.modulus)) != 1 or not all(0 < number < self.square for number in checked):
            raise PrivacyError("encrypted numbers are damaged; start the run again")
        return checked

    def combine(self, encrypted: Sequence[Any], factors: npt.NDArray[np.int64]) -> Any:
        r"""Return an encryption of :math:`\sum_i x_i m_i`, which is not yet hidden from the holder of the key.

        Parameters
        ----------
        encrypted
            n encrypted numbers.
        factors
            x, ``[n]``.
        """
        wide = max(int(factors.max()), -int(factors.min()) - 1).bit_length()
        shifted = factors.view(np.uint64) + np.uint64(1 << wide)  # not negative, below 2^(wide + 1), modulo 2^64
        window = max(1, min(8, len(encrypted).bit_length() - 3))
        total = big(1)
        for position in range((wide + window) // window - 1, -1, -1):
            digits = ((shifted >> np.uint64(window * position)) & np.uint64((1 << window) - 1)).tolist()
            for _ in range(window):
                total = total * total % self.square
            total = total * self._by_digit(encrypted, digits, 1 << window) % self.square
        every = big(1)
        for number in encrypted:
            every = every * number % self.square
        try:
            return total * pow(every, -(1 << wide), self.square) % self.square
        except (ValueError, ZeroDivisionError):
            raise PrivacyError("encrypted numbers are damaged; start the run again") from None

    def _by_digit(self, encrypted: Sequence[Any], digits: list[int], base: int) -> Any:
        """Return the product of numbers to the power of their digits: by digit, then of suffixes of these products."""
        met: list[Any] = [None] * base
        for number, digit in zip(encrypted, digits, strict=True):
            known = met[digit]
            met[digit] = number if known is None else known * number % self.square
        running, total = big(1), big(1)
        for digit in range(base - 1, 0, -1):
            known = met[digit]
            if known is not None:
                running = running * known % self.square
            total = total * running % self.square
        return total


class PrivateKey:
    """Key of two safe primes, which decrypts.

    Parameters
    ----------
    draw
        Uniform integers, of which the primes are made and by which messages are hidden.
    bits
        Bits of n.

    Examples
    --------
    >>> key = PrivateKey(stream(bytes(32)), bits=128)
    >>> one, two = key.encrypt(5), key.encrypt(-3)
    >>> key.decrypt(key.public.combine([one, two], np.array([2, 1]))), one == key.encrypt(5)
    (7, False)
    """

    def __init__(self, draw: Stream, *, bits: int = MODULUS_BITS) -> None:
        p = q = 0
        while p == q:
            p, q = safe_prime(bits // 2, draw), safe_prime(bits // 2, draw)
        self._draw = draw
        self._primes = big(p), big(q)
        self.public = PublicKey(p * q, bits=bits)

    @cached_property
    def _powers(self) -> tuple[Powers, Powers]:
        """Powers of a square among the n-th powers modulo both squares of primes."""
        made = []
        for prime in self._primes:
            square, bits = prime * prime, self.public.bits
            base = pow(big(self._draw(bits + SPARE_BITS)) % square, 2 * self.public.modulus, square)
            made.append(Powers(base, square, bits // 2 + SPARE_BITS))
        return made[0], made[1]

    @cached_property
    def _inverses(self) -> tuple[Any, Any]:
        """Inverse of q^2 modulo p^2, and of q modulo p."""
        p, q = self._primes
        return pow(q * q, -1, p * p), pow(q, -1, p)

    @cached_property
    def _logarithms(self) -> tuple[Any, Any]:
        """Inverses of the logarithms of 1 + n to the powers p - 1 and q - 1."""
        n = self.public.modulus
        both = [pow((pow(1 + n, p - 1, p * p) - 1) // p, -1, p) for p in self._primes]
        return both[0], both[1]

    def certificate(self) -> list[Any]:
        """Return the n-th roots of the challenges of the key."""
        p, q = self._primes
        root = pow(self.public.modulus, -1, (p - 1) * (q - 1))
        return [pow(number, root, self.public.modulus) for number in self.public.challenges()]

    def encrypt(self, message: int) -> Any:
        """Return an encryption of a message, whole numbers of less than half of n in magnitude."""
        n, square = self.public.modulus, self.public.square
        q = self._primes[1]
        first, second = (powers.power(self._draw(powers.bits)) for powers in self._powers)
        hidden = second + q * q * ((first - second) * self._inverses[0] % (self._primes[0] ** 2))
        return (1 + message % n * n) * hidden % square

    def decrypt(self, number: Any) -> int:
        """Return the message of an encrypted number, the one of least magnitude."""
        p, q = self._primes
        first, second = (
            (pow(number % (prime * prime), prime - 1, prime * prime) - 1) // prime * inverse % prime
            for prime, inverse in zip(self._primes, self._logarithms, strict=True)
        )
        message = second + q * ((first - second) * self._inverses[1] % p)
        return int(message - self.public.modulus if 2 * message > self.public.modulus else message)


class Powers:
    """Powers of a fixed number, by a table of its powers to all digits.

    Parameters
    ----------
    base, modulus
        Number, and modulus.
    bits
        Bits of the exponents.

    Examples
    --------
    >>> int(Powers(big(3), big(1000), 20).power(12345)) == pow(3, 12345, 1000)
    True
    """

    def __init__(self, base: Any, modulus: Any, bits: int) -> None:
        self.bits, self._modulus = bits, modulus
        self._table = []
        for _ in range(-(-bits // WINDOW)):
            row = [big(1)]
            for _ in range((1 << WINDOW) - 1):
                row.append(row[-1] * base % modulus)
            self._table.append(row)
            base = row[-1] * base % modulus

    def power(self, exponent: int) -> Any:
        """Return the power to an exponent."""
        result, low = big(1), (1 << WINDOW) - 1
        for row in self._table:
            digit = exponent & low
            exponent >>= WINDOW
            if digit:
                result = result * row[digit] % self._modulus
        return result


def safe_prime(bits: int, draw: Stream) -> int:
    """Return a prime p of which (p - 1) / 2 is prime as well, with both top bits set.

    Examples
    --------
    >>> p = safe_prime(32, stream(bytes(32)))
    >>> p.bit_length(), all(p % k and (p // 2) % k for k in range(2, 1000))
    (32, True)
    """
    while True:
        start = draw(bits - 1) | 3 << (bits - 3) | 1
        for half in _unsieved(start, bits - 1):
            if pow(2, half - 1, big(half)) == 1 and is_prime(half, draw) and is_prime(2 * half + 1, draw):
                return 2 * half + 1


def _unsieved(start: int, bits: int) -> list[int]:
    """Return odd numbers from a start on, such that small primes divide neither them nor their doubles plus one."""
    span = min(SIEVED, 1 << (bits // 2))
    divided = np.zeros(span, bool)  # of start + 2 k
    for prime in _small_primes():
        if prime * prime > start:
            break
        inverse = pow(2, -1, prime)
        divided[-start * inverse % prime :: prime] = True
        divided[(-(2 * start + 1) * inverse * inverse) % prime :: prime] = True
    end = 1 << bits
    return [number for k in np.flatnonzero(~divided).tolist() if (number := start + 2 * k) < end]


def _small_primes() -> list[int]:
    sieve = np.ones(SIEVED, bool)
    sieve[:2] = False
    for number in range(2, int(SIEVED**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = False
    return [int(number) for number in np.flatnonzero(sieve)[1:]]  # the odd ones


def is_prime(number: int, draw: Stream) -> bool:
    """Return whether a number is prime, by the test of Miller and Rabin.

    Examples
    --------
    >>> is_prime(561, stream(bytes(32))), is_prime(569, stream(bytes(32)))
    (False, True)
    """
    odd, halvings, wide = number - 1, 0, big(number)
    while odd % 2 == 0:
        odd, halvings = odd // 2, halvings + 1
    for _ in range(TESTS):
        power = pow(big(2 + draw(number.bit_length() + SPARE_BITS) % (number - 3)), odd, wide)
        if power in {1, number - 1}:
            continue
        for _ in range(halvings - 1):
            power = power * power % wide
            if power == number - 1:
                break
        else:
            return False
    return True
