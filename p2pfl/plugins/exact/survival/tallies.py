r"""Concordance of risks with times from integer histograms, whose sums over peers are exact.

Samples fall into cells of time, and their risks into bins. With :math:`e_{cb}` events of bin b in cell c, and
:math:`l_{cb}` samples of bin b that leave in a later cell, or in cell c without the event,

.. math:: C = \frac{1}{P} \sum_c \sum_b e_{cb} \Bigl( \sum_{a < b} l_{ca} + \tfrac{1}{2} l_{cb} \Bigr), \qquad
          P = \sum_c \sum_b e_{cb} \sum_a l_{ca}

is Harrell's concordance of times rounded down to their cell and risks rounded to their bin. Rounding of risks moves it
by at most :math:`\sum_{cb} e_{cb} l_{cb} / (2 P)`.

References
----------
Harrell et al., Evaluating the yield of medical tests, JAMA 247, 1982.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints

MOST, FEWEST = 256, 16
"""Bins of the risk: as many as fit, within these."""

NUMBERS = 2**16
"""Numbers of a histogram of cells and bins, as long as there are more bins than the fewest."""


def bins(cells: int) -> int:
    """Return the number of bins of the risk.

    Examples
    --------
    >>> bins(53), bins(1000), bins(100_000)
    (256, 65, 16)
    """
    return min(MOST, max(FEWEST, NUMBERS // cells))


def tally(risks: Floats, cell: Ints, event: npt.NDArray[np.bool_], *, spread: float, cells: int) -> Ints:
    """Return events, and departures with or without the event, by cell and bin, ``[2 cells bins]``.

    Parameters
    ----------
    risks
        Log risks relative to the mean, ``[n]``.
    cell, event
        Cell in which each sample leaves, and whether with the event, ``[n]``.
    spread
        Deviation of log risks as all peers know it: bins have equal shares of a normal distribution.
    cells
        Number of cells.
    """
    count = bins(cells)
    share: Floats = scipy.special.ndtr(risks / spread) if spread > 0 else np.zeros(len(risks))
    place = cell * count + np.minimum((share * count).astype(np.int64), count - 1)
    found = [np.bincount(each, minlength=cells * count) for each in (place[event], place)]
    return np.concatenate(found).astype(np.int64)


def scored(total: Ints, *, cells: int) -> dict[str, float]:
    """Return the concordance and by how much that of the risks themselves can differ; nothing without a pair.

    Parameters
    ----------
    total
        Sum of :func:`tally` over all peers.
    cells
        Number of cells.

    Examples
    --------
    >>> found = tally(np.array([3.0, 2.0, 1.0]), np.array([0, 1, 2]), np.ones(3, bool), spread=1.0, cells=4)
    >>> scored(found, cells=4)
    {'concordance': 1.0, 'concordance_bound': 0.0}
    """
    events, leaving = total.reshape(2, cells, -1)
    later = np.cumsum(leaving[::-1], axis=0)[::-1] - events  # those of the same cell without the event remain
    below = np.cumsum(later, axis=1) - later
    pairs = int((events * later.sum(axis=1, keepdims=True)).sum())
    if not pairs:
        return {}
    tied = int((events * later).sum())
    right = int((events * below).sum())
    return {"concordance": (2 * right + tied) / (2 * pairs), "concordance_bound": tied / (2 * pairs)}
