"""Tasks without any framework: a few of many clients train in each round, and a server averages.

``SIMULATED_TASK`` names one of :data:`TASKS`, ``SIMULATED_ROUNDS`` another number of rounds, and ``SIMULATED_DEVICE``
the device of the framework; on a GPU, the samples of all clients are made before the time begins. Pictures and words
are drawn, because speed needs no real ones. A script in this folder takes :data:`TASK` and :func:`client`, and ends
with :func:`report`. It runs in the environment of its framework, so this module needs torch only.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import nn

Samples = tuple[torch.Tensor, torch.Tensor]
"""Features ``[n, ...]`` and classes ``[n]``."""


class TagModel(nn.Module):
    """Linear model of the tags of a question, which has a bag of words: the mean of the rows of its words."""

    def __init__(self, words: int, tags: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, tags)
        self.bias = nn.Parameter(torch.zeros(tags))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the tags."""
        return self.words(x).mean(1) + self.bias


def network(side: int, channels: int, classes: int) -> nn.Module:
    """Return the network of pfl's CIFAR-10 task and of FLUTE's FEMNIST task."""
    left = (side - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(64 * left * left, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes)),
    )


@dataclass(frozen=True)
class Task:
    """Sizes of a task.

    Attributes
    ----------
    clients, cohort, rounds, every
        Clients, those that train in a round, rounds, and after how many of them the test set is scored.
    batch, rate
        Of one local epoch of SGD.
    tested
        Samples of the test set.
    shape, classes
        Of a sample; whole numbers below ``words`` where there are words.
    mean, most
        Mean and largest number of samples of a client; all have the mean where both are equal.
    build
        Function that returns the model.
    stored
        True if the samples of all clients are made before the time begins.
    """

    clients: int
    cohort: int
    rounds: int
    every: int
    batch: int
    rate: float
    tested: int
    shape: tuple[int, ...]
    classes: int
    mean: int
    most: int
    build: Callable[[], nn.Module]
    words: int = 0
    stored: bool = False


TASKS = {
    "mnist": Task(1000, 10, 100, 20, 10, 0.03, 10_000, (784,), 10, 60, 60, lambda: nn.Linear(784, 10), stored=True),
    "cifar10": Task(1000, 50, 20, 10, 10, 0.1, 10_000, (3, 32, 32), 10, 50, 50, lambda: network(32, 3, 10)),
    "femnist": Task(3400, 10, 20, 20, 20, 0.1, 10_000, (1, 28, 28), 62, 227, 500, lambda: network(28, 1, 62)),
    "stackoverflow": Task(
        342_477, 100, 5, 5, 100, 0.5, 10_000, (20,), 50, 397, 1000, lambda: TagModel(5000, 50), words=5000
    ),
}
"""FLUTE's MNIST and FEMNIST tasks, pfl's CIFAR-10 task, and clients of StackOverflow's number and mean size."""

DEVICE = os.environ.get("SIMULATED_DEVICE", "cpu")

TASK = TASKS[os.environ.get("SIMULATED_TASK", "mnist")]
TASK = replace(TASK, rounds=int(os.environ.get("SIMULATED_ROUNDS", TASK.rounds)), stored=TASK.stored or DEVICE != "cpu")


@cache
def sizes() -> list[int]:
    """Return the number of samples of each client; where they differ, most clients have few."""
    if TASK.mean == TASK.most:
        return [TASK.mean] * TASK.clients
    draws = torch.empty(TASK.clients).exponential_(1 / TASK.mean, generator=torch.Generator().manual_seed(1))
    return (1 + draws).clamp(max=TASK.most).int().tolist()


@cache
def _centres() -> torch.Tensor:
    """Return the mean picture of each class, or the words of which a class prefers one in three."""
    generator = torch.Generator().manual_seed(0)
    if TASK.words:
        return torch.randint(TASK.words, (TASK.classes, 20), generator=generator)
    return torch.rand(TASK.classes, *TASK.shape, generator=generator)


def draw(count: int, *, seed: int) -> Samples:
    """Draw samples."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(TASK.classes, (count,), generator=generator)
    if not TASK.words:
        noise = torch.rand(count, *TASK.shape, generator=generator)
        return 0.1 * _centres()[classes] + 0.3 * noise, classes
    words = torch.randint(TASK.words, (count, *TASK.shape), generator=generator)
    typical = torch.rand(count, *TASK.shape, generator=generator) < 1 / 3
    return torch.where(typical, _centres()[classes][:, : TASK.shape[0]], words), classes


@cache
def stored() -> list[Samples]:
    """Return the samples of all clients; each process makes them once."""
    return [draw(count, seed=number + 1) for number, count in enumerate(sizes())]


def client(number: int) -> Samples:
    """Return the samples of a client, which follow from its number."""
    return stored()[number] if TASK.stored else draw(sizes()[number], seed=number + 1)


@cache
def test() -> Samples:
    """Return the test set, and set the number of threads of this process."""
    torch.set_num_threads(1)
    return draw(TASK.tested, seed=0)


def build() -> nn.Module:
    """Return the model, with the same parameters in all frameworks."""
    torch.manual_seed(0)
    return TASK.build()


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train a model for one epoch on the data of one client."""
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=TASK.rate)
    for rows in torch.randperm(len(x)).split(TASK.batch):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()


def accuracy(model: nn.Module) -> float:
    """Return the share of the test set that a model classifies correctly."""
    model.eval()
    device = next(model.parameters()).device
    x, y = (each.to(device) for each in test())
    with torch.no_grad():
        right = sum(
            int((model(few).argmax(1) == own).sum()) for few, own in zip(x.split(500), y.split(500), strict=True)
        )
    return right / len(y)


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
