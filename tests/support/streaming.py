"""Data that grow with the rounds, for tests."""

import torch

from p2pfl.core.draws import draw

FIRST, MORE = 30, 20
"""Rows at the beginning, and rows that come with each round."""


def stream(*, peer, peers, seed, round=0, more=MORE, shift=0.0):
    """Rows of two classes of which each round brings more to the peers, unequally many."""
    size = FIRST + round * more * (1 + sorted(peers).index(peer))
    x = torch.from_numpy(draw(seed, "stream", peer).standard_normal((4000, 3)))[:size]
    x[FIRST:] += shift
    return x, (x[:, 0] + x[:, 1] > 0).long()
