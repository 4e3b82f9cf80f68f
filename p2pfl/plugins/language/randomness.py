"""Global random generators, for libraries that draw from nothing else."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Let the global generators of Python, numpy and torch start from a seed, and restore them afterwards.

    Examples
    --------
    >>> with seeded_globals(7):
    ...     once = torch.rand(1)
    >>> with seeded_globals(7):
    ...     bool(torch.rand(1) == once)
    True
    """
    python, array = random.getstate(), np.random.get_state()  # noqa: NPY002 -- the global ones are meant
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)  # noqa: NPY002
