"""Reproducible randomness: every stream depends on its key alone."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


def draw(seed: int, purpose: str, peer: str = "", round: int = 0) -> np.random.Generator:
    r"""Return the random generator of one purpose, peer and round.

    The stream is Philox under the 128-bit key
    :math:`\mathrm{SHA256}(\text{seed}, \text{purpose}, \text{peer}, \text{round})`, so it depends
    on nothing else: neither on the order of peers, nor on their number.
    Use it for reproducible draws only; secrets come from :mod:`p2pfl.identity`.

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


def draws(seed: int, purpose: str, peers: Iterable[str], round: int = 0) -> Iterator[np.random.Generator]:
    """Yield the generator of each peer in turn, as :func:`draw` returns it but at half its price.

    It is one generator with one key after the other, so each is valid until the next.

    Examples
    --------
    >>> [each.integers(100).item() for each in draws(7, "start", ["ada", "bob"])]
    [71, 33]
    >>> [draw(7, "start", peer).integers(100).item() for peer in ["ada", "bob"]]
    [71, 33]
    """
    stream = np.random.Philox(0)
    fresh: Any = {"bit_generator": "Philox", "buffer": np.zeros(4, np.uint64), "buffer_pos": 4}
    fresh |= {"has_uint32": 0, "uinteger": 0}
    generator, counter = np.random.Generator(stream), np.zeros(4, np.uint64)
    for peer in peers:
        key = np.frombuffer(_digest(seed, purpose, peer, round), np.uint64, count=2)
        stream.state = fresh | {"state": {"counter": counter, "key": key}}
        yield generator


def _digest(seed: int, purpose: str, peer: str, round: int) -> bytes:
    """Return the digest whose first 128 bits are a key."""
    return hashlib.sha256(f"{seed}\x1f{purpose}\x1f{peer}\x1f{round}".encode()).digest()


class _Key(np.random.bit_generator.ISeedSequence):
    """Seed sequence that gives Philox its key unchanged; the argument ``key=`` would still request system entropy."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.frombuffer(self._digest, dtype=dtype, count=n_words)
