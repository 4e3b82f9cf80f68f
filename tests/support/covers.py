"""Noise that differs between peers and masks that differ between edges, and what a linear view of both shows."""

import math
from collections.abc import Mapping

import numpy as np
import scipy.sparse

from p2pfl.privacy.accounting.colluders import worst_rows
from p2pfl.privacy.accounting.leakage import NoiseCover, whiten


def cover_of(graph, *, noise, mask):
    """Return the cover by deviations of each peer and edge, or by one of all."""
    noise = noise if isinstance(noise, Mapping) else dict.fromkeys(graph.peers, noise)
    mask = mask if isinstance(mask, Mapping) else dict.fromkeys(graph.edges, mask)
    number = {peer: row for row, peer in enumerate(graph.peers)}
    masks = np.zeros((len(number), len(number)))
    for (a, b), deviation in mask.items():
        masks[number[a], number[b]] = masks[number[b], number[a]] = deviation**2
    return NoiseCover(graph.peers, np.array([noise[peer] for peer in graph.peers]) ** 2, scipy.sparse.csr_array(masks))


def leakage(graph, *, noise, mask, colluders=()):
    """Return the leak of each honest peer."""
    cover = cover_of(graph, noise=noise, mask=mask)
    kept = cover.honest(colluders)
    return {cover.peers[row]: float(leak) for row, leak in zip(kept, cover.leaks(kept), strict=True)}


def worst_colluders(graph, *, noise, mask, **settings):
    """Return the names of the worst colluders, the leak, and how they were found."""
    rows, leak, how = worst_rows(cover_of(graph, noise=noise, mask=mask), **settings)
    return {graph.peers[row] for row in rows}, leak, how


def linear_view(A, B, *, variances, sensitivity, users=None, local=math.inf):
    r"""Return mu of each user against whoever sees y = A x + B z, z Gaussian.

    With :math:`G = A^\top (B \operatorname{diag}(v) B^\top)^+ A` and a user's columns s, t, in each of which what it
    adds changes by at most S, :math:`\mu_u^2 \le S^2 \sum_{s,t} |G_{us,ut}|`; infinite where a column is outside the
    range of B. Where later rows depend on what the observer did not see, this relies on the adaptive theorem of MAFALDA
    (arXiv 2510.17480).
    """
    A, B = np.array(A, dtype=np.float64, ndmin=2), np.array(B, dtype=np.float64, ndmin=2)
    users = range(A.shape[1]) if users is None else users
    whitened, outside = whiten(A, B * np.sqrt(variances))
    found = {}
    for user in dict.fromkeys(users):
        columns = [column for column, whose in enumerate(users) if whose == user]
        gram = whitened[:, columns].T @ whitened[:, columns]
        mu = math.inf if outside[columns].any() else sensitivity * math.sqrt(np.abs(gram).sum())
        found[user] = float(min(mu, local[user] if isinstance(local, Mapping) else local))
    return found
