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


def uneven(*, peer, peers, seed, round=0):
    """Rows of which one peer gets many more than the others after the beginning."""
    place = sorted(peers).index(peer)
    size = FIRST + (0 if round == 0 else 400 if place == 2 else 10 * place)
    x = torch.from_numpy(draw(seed, "uneven", peer).standard_normal((1000, 3)))[:size]
    return x, (x[:, 0] + (place - 1) * x[:, 1] > 0).long()


def failing(*, peer, peers, seed, round=0):
    """Rows that one peer cannot read once."""
    if round == 2 and peer == "peer0":
        raise OSError("the disk is busy")
    return stream(peer=peer, peers=peers, seed=seed, round=round)


def turning(*, peer, peers, seed, round=0):
    """Rows of which the later ones have the class that the earlier ones would not have."""
    x, y = stream(peer=peer, peers=peers, seed=seed, round=round)
    y[FIRST:] = 1 - y[FIRST:]
    return x, y


def shrinking(*, peer, peers, seed, round=0):
    """Rows of which few are left after the beginning."""
    x, y = stream(peer=peer, peers=peers, seed=seed, round=10)
    return (x, y) if round == 0 else (x[:40], y[:40])
