"""Reproducible randomness: every stream depends on its key alone.

:func:`draw` gives one peer a generator. Where all peers draw alike, :func:`keys` and :func:`subkeys` hash counters by
integer operations, for all peers at once and with the same bits on every device.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Integers = TypeVar("Integers", npt.NDArray[np.int64], "torch.Tensor")
"""Array of numpy or tensor of torch with signed 64-bit integers, whose products wrap around."""

# Odd constants of SplitMix64 (Steele, Lea and Flood, 2014), as signed 64-bit integers.
GOLDEN_STEP = 0x9E3779B97F4A7C15 - 2**64
FIRST_FACTOR = 0xBF58476D1CE4E5B9 - 2**64
SECOND_FACTOR = 0x94D049BB133111EB - 2**64


def draw(seed: int, purpose: str, peer: str = "", round: int = 0) -> np.random.Generator:
    r"""Return the random generator of one purpose, peer and round.

    The stream is Philox under the 128-bit key
    :math:`\mathrm{SHA256}(\text{seed}, \text{purpose}, \text{peer}, \text{round})`, so it depends
    on nothing else: neither on the order of peers, nor on their number.
    Use it for reproducible draws only; secrets come from :mod:`p2pfl.privacy.keys`.

    Parameters
    ----------
    seed
        Seed of the experiment.
    purpose
        Name of the use, such as ``"batches"``.
    peer, round
        Name of the peer and number of the round, if the draw depends on them.

    Returns
    -------
    numpy.random.Generator
        A fresh generator at the start of its stream.

    Examples
    --------
    >>> bool(draw(7, "start", "ada").random() == draw(7, "start", "ada").random())
    True
    """
    digest = _digest(seed, purpose, peer, round)
    return np.random.Generator(np.random.Philox(_Key(digest)))  # type: ignore[arg-type] # numpy's stub


def keys(seed: int, purpose: str, peers: tuple[str, ...], round: int = 0) -> npt.NDArray[np.int64]:
    r"""Return a key for each peer in a round, ``[R]``, from which counters are hashed.

    It depends on nothing else: it is what :func:`subkeys` gives for the round and the first 64 bits of
    :math:`\mathrm{SHA256}(\text{seed}, \text{purpose}, \text{peer})`.

    Examples
    --------
    >>> both, one = keys(7, "batches", ("ada", "bob"), 3), keys(7, "batches", ("bob",), 3)
    >>> bool(both[1] == one[0])
    True
    """
    return subkeys(_bases(seed, purpose, peers), round)


def subkeys(keys: Integers, numbers: int | Integers) -> Integers:
    """Return the keys that follow from keys and numbers: output number n of SplitMix64 that starts at the key.

    ``numbers`` are one number, or an array that broadcasts against ``keys``.

    Examples
    --------
    >>> subkeys(np.zeros(1, np.int64), 0).item() == 0xE220A8397B1DCDAF - 2**64
    True
    """
    steps = wrap_int64((numbers + 1) * GOLDEN_STEP) if isinstance(numbers, int) else (numbers + 1) * GOLDEN_STEP
    return scramble(keys + steps)


def scramble(x: Integers) -> Integers:
    """Apply the finaliser of SplitMix64 to int64: every bit of the input affects every bit of the output."""
    x = _shift(x, 30)
    x *= FIRST_FACTOR
    x = _shift(x, 27)
    x *= SECOND_FACTOR
    return _shift(x, 31)


def wrap_int64(number: int) -> int:
    """Return a Python integer reduced as int64 arithmetic does."""
    return (number + 2**63) % 2**64 - 2**63


def _shift(x: Integers, bits: int) -> Integers:
    """Return ``x ^ (x >> bits)`` with a logical shift, which signed integers lack."""
    high = x >> bits
    high &= 2 ** (64 - bits) - 1
    high ^= x
    return high


@lru_cache(maxsize=8)
def _bases(seed: int, purpose: str, peers: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the keys of peers from which those of rounds follow, ``[R]``."""
    digests = (hashlib.sha256(f"{seed}\x1f{purpose}\x1f{peer}".encode()).digest()[:8] for peer in peers)
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)


def _digest(seed: int, purpose: str, peer: str, round: int) -> bytes:
    """Return the digest whose first 128 bits are a key."""
    return hashlib.sha256(f"{seed}\x1f{purpose}\x1f{peer}\x1f{round}".encode()).digest()


class _Key(np.random.bit_generator.ISeedSequence):
    """Seed sequence that gives Philox its key unchanged; the argument ``key=`` would still request system entropy."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.frombuffer(self._digest, dtype=dtype, count=n_words)
