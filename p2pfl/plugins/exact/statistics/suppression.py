"""Small cells of a table whose sum is known, hidden together with as many others as keep them from being computed."""

from __future__ import annotations

import numpy as np

from p2pfl.core.encodings import Floats


def suppressed(counts: Floats, *, least: int, total: float) -> Floats:
    """Return counts of samples without small ones, and without others from which those would follow.

    Readers know the sum, this rule, and which cells are hidden. The hidden cells are at least two, have ``least``
    samples together, and are not all equal, so each of them may have the count of another. Where no cell with samples
    would be left, empty cells are hidden, too.

    Parameters
    ----------
    counts
        Samples by cell; NaN where a cell is hidden already because it has at least one sample and fewer than ``least``.
    least
        Smallest number of samples that is stated, apart from zero.
    total
        Sum of all cells.

    Returns
    -------
    numpy.ndarray
        The counts, NaN where they are hidden.

    Examples
    --------
    >>> suppressed(np.array([30.0, 27.0, 3.0]), least=5, total=60)
    array([30., nan, nan])
    >>> suppressed(np.array([30.0, 27.0, 0.0, 3.0, 12.0]), least=5, total=72)
    array([30., 27.,  0., nan, nan])
    """
    found = np.where((counts > 0) & (counts < least), np.nan, counts)
    if total <= least:
        return np.full_like(found, np.nan)
    gone = np.isnan(found)
    if not gone.any():
        return found
    rest = total - np.nansum(found)
    # A cell that is not small differs from all small ones; small ones may be equal where they divide the rest.
    lacking = gone.sum() < 2 or rest < least or rest % gone.sum() == 0
    while lacking and (found > 0).any():
        found[found == found[found > 0].min()] = np.nan  # all of the same size, whichever comes first
        lacking = np.isnan(found).sum() < 2 or total - np.nansum(found) < least
    return found if (found > 0).any() else np.full_like(found, np.nan)
