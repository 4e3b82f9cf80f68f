"""Harrell's concordance from histograms of risks by cell of time, in which no sample is seen alone by its risk."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints

MAX_RISK_BINS, MIN_RISK_BINS = 256, 16
"""Bins of the risk in a histogram: as many as fit, within these."""

MAX_TALLY = 2**16
"""Numbers of a histogram of cells and bins, as long as there are more bins than the fewest."""


def risk_bins(cells: int) -> int:
    """Return the number of bins of the risk.

    Examples
    --------
    >>> risk_bins(53), risk_bins(1000), risk_bins(100_000)
    (256, 65, 16)
    """
    return min(MAX_RISK_BINS, max(MIN_RISK_BINS, MAX_TALLY // cells))


def tally(
    risks: Floats, cell: Ints, event: npt.NDArray[np.bool_], *, spread: float, cells: int, entered: Ints | None = None
) -> Ints:
    r"""Return events, and departures with or without the event, by cell and bin, ``[2 cells bins]``.

    Samples fall into cells of time, and their risks into bins. With :math:`e_{cb}` events of bin b in cell c, and
    :math:`l_{cb}` samples of bin b that are at risk in cell c and leave later, or in cell c without the event,

    .. math:: C = \frac{1}{P} \sum_c \sum_b e_{cb} \Bigl( \sum_{a < b} l_{ca} + \tfrac{1}{2} l_{cb} \Bigr), \qquad
              P = \sum_c \sum_b e_{cb} \sum_a l_{ca}

    is Harrell's concordance of times rounded down to their cell and risks rounded to their bin. Rounding of risks moves
    it by at most :math:`\sum_{cb} e_{cb} l_{cb} / (2 P)`.

    Parameters
    ----------
    risks
        Log risks relative to the mean, ``[n]``.
    cell, event
        Cell in which each sample leaves, and whether with the event, ``[n]``. With S strata, those of stratum s are
        cells :math:`s C / S` to :math:`(s + 1) C / S`.
    spread
        Deviation of log risks as all peers know it: bins have equal shares of a normal distribution.
    cells
        C, number of cells.
    entered
        Cell in which each sample enters, -1 from the begin on; then the histogram of these is added. All are at risk
        from the begin on if ``None``.

    References
    ----------
    Harrell et al., Evaluating the yield of medical tests, JAMA 247, 1982.
    """
    count = risk_bins(cells)
    share: Floats = scipy.special.ndtr(risks / spread) if spread > 0 else np.zeros(len(risks))
    bin_of = np.minimum((share * count).astype(np.int64), count - 1)
    index = cell * count + bin_of
    places = [index[event], index]
    if entered is not None:
        places.append((entered * count + bin_of)[entered >= 0])
    return np.concatenate([np.bincount(each, minlength=cells * count) for each in places]).astype(np.int64)


def concordance_of(total: Ints, *, cells: int, strata: int = 1) -> dict[str, float]:
    """Return the concordance and by how much that of the risks themselves can differ; nothing without a pair.

    Parameters
    ----------
    total
        Sum of :func:`tally` over all peers.
    cells
        C, number of cells.
    strata
        S, number of strata; only samples of one stratum are compared.

    Examples
    --------
    >>> counted = tally(np.array([3.0, 2.0, 1.0]), np.array([0, 1, 2]), np.ones(3, bool), spread=1.0, cells=4)
    >>> concordance_of(counted, cells=4)
    {'concordance': 1.0, 'concordance_bound': 0.0}
    """
    events, leaving, *entering = total.reshape(-1, strata, cells // strata, risk_bins(cells))
    present = leaving - entering[0] if entering else leaving
    others = np.cumsum(present[:, ::-1], axis=1)[:, ::-1] - events  # those of the same cell without the event remain
    below = np.cumsum(others, axis=2) - others
    pairs = int((events * others.sum(axis=2, keepdims=True)).sum())
    if not pairs:
        return {}
    tied = int((events * others).sum())
    right = int((events * below).sum())
    return {"concordance": (2 * right + tied) / (2 * pairs), "concordance_bound": tied / (2 * pairs)}
