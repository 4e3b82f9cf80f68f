"""Randomness that is reproducible: every stream has a key, so that it depends on nothing else."""

import hashlib
from typing import Any

import numpy as np


def draw(seed: int, purpose: str, peer: str = "", round: int = 0) -> np.random.Generator:
    r"""Return the random generator of one purpose, peer and round.

    The stream is Philox under the 128-bit key
    :math:`\mathrm{SHA256}(\text{seed}, \text{purpose}, \text{peer}, \text{round})`, so it depends
    on nothing else: not on the order of peers, nor on how many there are.
    For what must be reproducible only; secrets come from :mod:`p2pfl.identity`.

    Examples
    --------
    >>> bool(draw(7, "start", "ada").random() == draw(7, "start", "ada").random())
    True
    """
    name = f"{seed}\x1f{purpose}\x1f{peer}\x1f{round}".encode()
    return np.random.Generator(np.random.Philox(_Key(hashlib.sha256(name).digest())))  # type: ignore[arg-type] # numpy's stub


class _Key(np.random.bit_generator.ISeedSequence):
    """Hands Philox its key as it is; given as ``key=`` it would ask the system for entropy all the same."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.frombuffer(self._digest, dtype=dtype, count=n_words)
