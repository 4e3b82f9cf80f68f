"""Early stopping by the loss on validation parts, which a total gives."""

from __future__ import annotations

from p2pfl.core.encodings import Floats


def stopped(losses: Floats, patience: int, tol: float) -> bool:
    """Return whether none of the last losses is below the one before them by more than a tolerance, as scikit-learn.

    Parameters
    ----------
    losses
        Losses so far, in their order.
    patience
        Number of the last ones.
    tol
        Tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> stopped(np.array([3.0, 2.0, 2.0]), 2, 0.1), stopped(np.array([3.0, 3.0, 2.95]), 2, 0.1)
    (False, True)
    """
    if len(losses) <= patience:
        return False
    return not bool((losses[-patience:] < losses[-patience - 1] - tol).any())
