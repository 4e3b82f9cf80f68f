r"""Accounting once more, by formulas of its own: what the accountant states must not be less.

Nothing here is that of :mod:`p2pfl.privacy.accounting`. A fault there would have to be repeated here to stay unseen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr

from p2pfl.topology import Topology

Floats = npt.NDArray[np.float64]

CELL_COUNT = 1 << 16
"""Number of cells of a distribution of privacy losses."""

MAX_DEVIATIONS = 12.0
"""Standard deviations of a privacy loss beyond which it is left out: its probability is below 1e-30."""

MAX_MECHANISMS = 10_000
"""Most mechanisms of a kind that are convolved, beyond which rounding shows: of more of them this bounds epsilon from
below."""

MAX_COLLUDER_SETS = 3000
"""Most sets of colluders that are tried."""


def gaussian_epsilon(mu: float, *, delta: float) -> float:
    r"""Return :math:`\varepsilon` of a Gaussian mechanism.

    .. math:: \delta(\varepsilon) = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon \Phi(-\mu/2 - \varepsilon/\mu)

    Parameters
    ----------
    mu, delta
        Sensitivity over deviation, and :math:`\delta`.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, delta=1e-5), 3)
    4.377

    References
    ----------
    B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
    """
    if math.isinf(mu):
        return math.inf

    def profile(epsilon: float) -> float:
        return float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))

    if not mu or profile(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while profile(high) > delta:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return high


def sampled_epsilon(mechanisms: Mapping[tuple[float, float], int], *, delta: float) -> float:
    r"""Return :math:`\varepsilon` of Gaussian mechanisms on secret samples, less at most one part in a hundred.

    With probability q a mechanism shows :math:`N(\mu, 1)`, and else :math:`N(0, 1)`, which it also shows without the
    sample in question. The distribution of the privacy loss of each mechanism is convolved with those of the others.

    Parameters
    ----------
    mechanisms
        Number of mechanisms by :math:`\mu` and q.
    delta
        :math:`\delta`.

    Examples
    --------
    >>> round(sampled_epsilon({(1.0, 1.0): 4}, delta=1e-5), 2) == round(gaussian_epsilon(2.0, delta=1e-5), 2)
    True
    >>> round(sampled_epsilon({(1.0, 0.01): 1000}, delta=1e-5), 2)
    1.83

    References
    ----------
    A. Koskela, J. Jälkö, A. Honkela, "Computing tight differential privacy guarantees using FFT", AISTATS 2020.
    """
    there = {each: min(count, MAX_MECHANISMS) for each, count in mechanisms.items() if count and all(each)}
    if not there:
        return 0.0
    if any(math.isinf(mu) for mu, _ in there):
        return math.inf
    return max(_epsilon(there, delta=delta, removed=removed) for removed in (True, False))


def _epsilon(mechanisms: Mapping[tuple[float, float], int], *, delta: float, removed: bool) -> float:
    """Return epsilon if the sample is there in truth (``removed`` from what it is compared with), or is not."""
    losses = [(*_losses(mu, q, removed=removed), count) for (mu, q), count in mechanisms.items()]
    moments = [(float(p @ x), float(p @ np.square(x)), count) for x, p, count in losses]
    middle = sum(count * mean for mean, _, count in moments)
    spread = math.sqrt(sum(count * max(0.0, square - mean**2) for mean, square, count in moments))
    single = max(float(np.abs(x[p > 1e-30]).max()) for x, p, _ in losses)
    reach = abs(middle) + MAX_DEVIATIONS * spread + single
    step = 2 * reach / CELL_COUNT
    spectrum, shift = np.ones(CELL_COUNT // 2 + 1, np.complex128), 0.0
    for loss, probability, count in losses:
        cells = np.clip(np.rint(loss / step), -CELL_COUNT // 2, CELL_COUNT // 2 - 1).astype(np.int64)
        shift += count * float(probability @ (loss - cells * step))  # rounding keeps the mean of all losses together
        spectrum *= np.fft.rfft(np.bincount(cells % CELL_COUNT, weights=probability, minlength=CELL_COUNT)) ** count
    whole = np.fft.fftshift(np.fft.irfft(spectrum, CELL_COUNT)).clip(0.0)
    levels = (np.arange(CELL_COUNT) - CELL_COUNT // 2) * step + shift

    def profile(epsilon: float) -> float:
        first = int(np.searchsorted(levels, epsilon))
        return float(whole[first:] @ -np.expm1(epsilon - levels[first:]))

    low, high = 0.0, reach
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return high


def _losses(mu: float, q: float, *, removed: bool) -> tuple[Floats, Floats]:
    """Return values of the privacy loss of one mechanism and their probabilities."""
    x = np.linspace(-MAX_DEVIATIONS, MAX_DEVIATIONS + mu, 20_001)
    ends = np.concatenate([[-np.inf], (x[1:] + x[:-1]) / 2, [np.inf]])
    ratio = np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + mu * x - mu**2 / 2)
    without = np.diff(ndtr(ends))
    return (ratio, (1 - q) * without + q * np.diff(ndtr(ends - mu))) if removed else (-ratio, without)


def models_mu(graph: Topology, *, change: float, noise: float, mask: float, colluders: Collection[str]) -> float:
    r"""Return :math:`\mu` of a released model of the honest peer that is worst off.

    The noise of the honest peers' models has the covariance :math:`\Sigma = s^2 I + m^2 L`, with L the Laplacian of the
    masks between them, and :math:`\mu^2 = S^2 \max_u (\Sigma^{-1})_{uu}`.

    Parameters
    ----------
    graph
        Mask graph.
    change, noise, mask
        Largest change S of a model, and deviations s and m.
    colluders
        Peers that share what they know with the observer.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> round(models_mu(ring(8), change=1.0, noise=1.0, mask=4.0, colluders=[]) ** 2, 6)
    0.163095
    """
    honest = [peer for peer in graph.peers if peer not in set(colluders)]
    index = {peer: row for row, peer in enumerate(honest)}
    laplacian = np.zeros((len(honest), len(honest)))
    for a, b in {(min(edge), max(edge)) for edge in graph.edges}:
        if mask and a in index and b in index:
            i, j = index[a], index[b]
            laplacian[[i, j], [i, j]] += 1.0
            laplacian[[i, j], [j, i]] -= 1.0
    values, vectors = np.linalg.eigh(laplacian)
    values = np.where(values < 1e-9, 0.0, values)
    leaks = np.square(vectors) @ (1 / (noise**2 + mask**2 * values))
    return change * math.sqrt(float(leaks.max()))


def worst_mu(graph: Topology, *, change: float, noise: float, mask: float, colluders: Collection[str]) -> float:
    """Return the largest mu for these colluders, and for as many others if there are not too many sets of them.

    The parameters are those of :func:`models_mu`.
    """
    sets = [tuple(colluders)]
    if colluders and math.comb(len(graph.peers), len(colluders)) * len(graph.peers) ** 3 <= MAX_COLLUDER_SETS * 20**3:
        sets += itertools.combinations(graph.peers, len(colluders))
    return max(models_mu(graph, change=change, noise=noise, mask=mask, colluders=each) for each in sets)


def sums_mu(view: Floats, *, change: float, noise: float, colluders: Collection[int]) -> float:
    r"""Return :math:`\mu` of an honest peer for colluders that receive sums of models, in one round.

    They see :math:`y = A (x + s z)`, with a row of A for each of them, and know what is their own. So
    :math:`\mu^2 = (S/s)^2 \max_u (A^+ A)_{uu}` over honest peers.

    Parameters
    ----------
    view
        Factor of each peer in what each peer receives, ``[N, N]``.
    change, noise
        S and s.
    colluders
        Their numbers.

    Examples
    --------
    >>> round(sums_mu(np.full((5, 5), 0.2), change=1.0, noise=1.0, colluders=[0]), 3)
    0.5
    """
    honest = [peer for peer in range(len(view)) if peer not in set(colluders)]
    if not colluders or not honest:
        return 0.0
    rows = view[np.ix_(sorted(colluders), honest)]
    return change / noise * math.sqrt(float(np.diagonal(np.linalg.pinv(rows) @ rows).max()))
