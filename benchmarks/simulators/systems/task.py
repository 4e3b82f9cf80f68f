"""FLUTE's MNIST task without any framework: logistic regression of 1,000 clients, 10 of them in a round.

Each client has 60 samples of 28x28, batches of 10, rate 0.03; the test set of 10,000 is scored after every 20th of 100
rounds. Pictures are drawn, because speed needs no real ones. A script in this folder calls :func:`load` and ends with
:func:`report`. It runs in the environment of its framework, so this module needs torch only.
"""

import json
import resource
import sys
import time
from functools import cache
from pathlib import Path

import torch
from torch import nn

CLIENTS, SAMPLES, TESTED, COHORT, ROUNDS, EVERY, BATCH, RATE = 1000, 60, 10_000, 10, 100, 20, 10, 0.03

Samples = tuple[torch.Tensor, torch.Tensor]
"""Features ``[n, 784]`` and classes ``[n]``."""


@cache
def load() -> tuple[Samples, Samples]:
    """Return the samples of all clients, one client after the other, and the test set; each process makes them once."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(10, (CLIENTS * SAMPLES + TESTED,), generator=generator)
    centres = torch.rand(10, 784, generator=generator)
    pictures = 0.1 * centres[classes] + 0.3 * torch.rand(len(classes), 784, generator=generator)
    low = CLIENTS * SAMPLES
    return (pictures[:low], classes[:low]), (pictures[low:], classes[low:])


def build() -> nn.Module:
    """Return the model, with the same parameters in all frameworks."""
    torch.manual_seed(0)
    return nn.Linear(784, 10)


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train a model for one epoch on the data of one client."""
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for rows in torch.randperm(len(x)).split(BATCH):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()


def accuracy(model: nn.Module, test: Samples) -> float:
    """Return the share of the test set that a model classifies correctly."""
    with torch.no_grad():
        return float((model(test[0]).argmax(1) == test[1]).double().mean())


def report(score: float, *, begun: float, ended: float, version: str) -> None:
    """Write what the command reads to the file that the command line names.

    Parameters
    ----------
    score
        Accuracy of the last model.
    begun, ended
        ``now()`` when the framework began, and when it ended.
    version
        Version of the framework.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(each.ru_utime + each.ru_stime for each in used)
    memory = max(each.ru_maxrss for each in used) * 1024
    figures = {"learning": ended - begun, "processor": processor, "memory": memory, "accuracy": score}
    Path(sys.argv[1]).write_text(json.dumps(figures | {"version": version}), encoding="utf-8")


now = time.perf_counter
