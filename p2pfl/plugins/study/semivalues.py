"""Shapley and Banzhaf values, exact from the scores of all coalitions or estimated from a sample of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats

MAX_EXACT_PEERS = 10
"""Most peers of which all coalitions are scored; beyond, coalitions are drawn."""

Utility = Callable[[Sequence[int]], Floats]
"""Function that returns the scores of coalitions, each the bits of its members."""


def semivalue(scores: Floats, *, peers: int, method: str) -> Floats:
    """Return the exact values of peers from the scores of all coalitions, ``[N]``.

    Parameters
    ----------
    scores
        ``[2^N]`` by the bits of the members.
    peers
        N.
    method
        ``shapley`` or ``banzhaf``.

    Examples
    --------
    >>> semivalue(np.array([0.0, 0.0, 0.0, 1.0]), peers=2, method="shapley").tolist()
    [0.5, 0.5]
    """
    coalitions = np.arange(1 << peers)
    sizes = np.array([each.bit_count() for each in coalitions.tolist()])
    if method == "banzhaf":
        weights = np.full(peers, 2.0 ** (1 - peers))
    else:
        weights = np.array([1 / (peers * math.comb(peers - 1, size)) for size in range(peers)])
    values = np.zeros(peers)
    for peer in range(peers):
        without = coalitions[coalitions >> peer & 1 == 0]
        gains = scores[without | 1 << peer] - scores[without]
        values[peer] = (weights[sizes[without]] * gains).sum()
    return values


def sampled_shapley(utility: Utility, *, peers: int, draws: int, seed: int) -> tuple[Floats, Floats]:
    """Return estimates of Shapley values and their standard errors, from permutations and their reverses.

    Parameters
    ----------
    utility
        Scores of coalitions.
    peers, draws, seed
        N, permutations, and the seed of their draws.
    """
    rng = draw(seed, "permutations")
    orders = [
        order for _ in range(max(2, draws // 2)) for own in [rng.permutation(peers)] for order in (own, own[::-1])
    ]
    paths = [np.concatenate([[0], np.cumsum([1 << int(peer) for peer in order])]).tolist() for order in orders]
    needed = list(dict.fromkeys(each for path in paths for each in path))
    scores = dict(zip(needed, utility(needed).tolist(), strict=True))
    gains = np.zeros((len(orders), peers))
    for row, (order, path) in enumerate(zip(orders, paths, strict=True)):
        gains[row, order] = np.diff([scores[each] for each in path])
    pairs = gains.reshape(-1, 2, peers).mean(axis=1)
    return pairs.mean(axis=0), pairs.std(axis=0, ddof=1) / math.sqrt(len(pairs))


def sampled_banzhaf(utility: Utility, *, peers: int, draws: int, seed: int) -> tuple[Floats, Floats]:
    """Return estimates of Banzhaf values and their standard errors, each coalition serving all peers.

    Parameters
    ----------
    utility
        Scores of coalitions.
    peers, draws, seed
        N, coalitions, and the seed of their draws.
    """
    members = draw(seed, "coalitions").random((max(8, draws), peers)) < 0.5
    members[0], members[1] = True, False  # so that each peer is in some and out of some
    bits = (members * (1 << np.arange(peers, dtype=np.int64))).sum(axis=1)
    scores = utility(bits.tolist())
    values, errors = np.zeros(peers), np.zeros(peers)
    for peer in range(peers):
        groups = scores[members[:, peer]], scores[~members[:, peer]]
        values[peer] = groups[0].mean() - groups[1].mean()
        errors[peer] = math.sqrt(sum(group.var(ddof=min(1, len(group) - 1)) / len(group) for group in groups))
    return values, errors
