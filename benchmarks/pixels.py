"""Samples of as many peers as a benchmark needs: digits of the bundled data set under noise of each peer's own."""

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.data.bundled import read_bundled


def load(
    *, peer: str, peers: tuple[str, ...], seed: int, samples: int = 40
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the samples of one peer, features ``[samples, 64]`` and classes ``[samples]``.

    Examples
    --------
    >>> features, targets = load(peer="ada", peers=("ada",), seed=0)
    >>> features.shape, targets.shape
    ((40, 64), (40,))
    """
    del peers  # a peer's samples do not depend on the others
    rng, table = draw(seed, "pixels", peer), read_bundled("digits")
    chosen = rng.integers(len(table.data), size=samples)
    pictures = table.data[chosen] / 16 + 0.1 * rng.standard_normal((samples, 64))  # [samples, 64]
    return pictures.astype(np.float32), table.target[chosen].astype(np.int64)
