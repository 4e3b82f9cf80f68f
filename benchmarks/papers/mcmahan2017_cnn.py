"""McMahan et al. (AISTATS 2017): the convolutional network on MNIST.

As :mod:`benchmarks.papers.mcmahan2017`, with the network of 1,663,370 parameters and a target of 99 %. One cell of
Table 2, at one rate that was not tuned finely: at most 1.5 times the rounds.
"""

from torch import nn

from benchmarks.papers import Line
from benchmarks.papers.mcmahan2017 import bounded, rounds

NETWORK = 'model.name="benchmarks.papers.mcmahan2017_cnn:cnn"'


def cnn() -> nn.Module:
    """Two 5x5 convolutions of 32 and 64 channels, each halved by pooling, 512 units, ten classes."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def lines() -> list[Line]:
    """Rounds of FedAvg with one epoch of batches of ten."""
    found = rounds(NETWORK, "learning.rate=0.1", target=0.99, most=51)
    return [bounded("CNN, IID, E = 1, B = 10, rate .1: rounds to 99 %, at most 1.5 times", 34, found, most=51)]
