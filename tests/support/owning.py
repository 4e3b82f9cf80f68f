"""Models and Datasets of torch that peers own, for tests."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from p2pfl.core.draws import draw


class Words(nn.Module):
    """Looks words up, which needs whole numbers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


class Pixels(nn.Module):
    """A class for each pixel."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 1)

    def forward(self, x):
        return self.layer(x)


def _random(peer, seed):
    return torch.Generator().manual_seed(int(draw(seed, "own", peer).integers(2**60)))


def words(*, peer, seed, peers=()):  # noqa: ARG001 - a protocol of three names
    """Sentences of five words, whose class says which half of the vocabulary prevails."""
    x = torch.randint(20, (16, 5), generator=_random(peer, seed))
    return TensorDataset(x, (x < 10).sum(1).gt(2).long())


def pictures(*, peer, seed, peers=()):  # noqa: ARG001 - a protocol of three names
    """Pictures with one of three classes for each pixel."""
    x = torch.randn(12, 1, 4, 4, generator=_random(peer, seed))
    return x, (x[:, 0] > 0).long() + (x[:, 0] > 1).long()


def labelled(*, peer, seed, peers=()):  # noqa: ARG001 - a protocol of three names
    """Samples with two labels each."""
    x = torch.randn(15, 6, generator=_random(peer, seed))
    return x, (x[:, :2] > 0).float()
