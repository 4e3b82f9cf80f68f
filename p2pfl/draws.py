"""Reproducible randomness: every stream depends on its key alone."""

import hashlib
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
    name = f"{seed}\x1f{purpose}\x1f{peer}\x1f{round}".encode()
    return np.random.Generator(np.random.Philox(_Key(hashlib.sha256(name).digest())))  # type: ignore[arg-type] # numpy's stub


class _Key(np.random.bit_generator.ISeedSequence):
    """Seed sequence that gives Philox its key unchanged; the argument ``key=`` would still request system entropy."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.frombuffer(self._digest, dtype=dtype, count=n_words)
