"""Models with batch normalisation, for tests."""

import torch
from torch import nn


class Normed(nn.Module):
    """A small classifier with batch normalisation in the middle."""

    def __init__(self, features=13, classes=3, width=5):
        super().__init__()
        self.body = nn.Linear(features, width)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.body(x))))
