"""The task that all systems learn, without any framework: digits, an MLP 64-32-10, SGD.

A script in this folder calls :func:`load`, trains with :func:`train` where its framework lets it, and ends with
:func:`report`. It runs in the environment of its framework, so this module needs numpy and torch only.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

ROUNDS, EPOCHS, BATCH, RATE = 10, 5, 32, 0.1


@dataclass(frozen=True)
class Task:
    """The data of all peers.

    Attributes
    ----------
    shards
        Features ``[n, 64]`` and classes ``[n]`` of each peer.
    test
        Features and classes of the test set, the same for all.
    """

    shards: list[tuple[torch.Tensor, torch.Tensor]]
    test: tuple[torch.Tensor, torch.Tensor]


def load(path: str = "") -> Task:
    """Return the task that the command line names first."""
    torch.set_num_threads(1)
    with np.load(path or sys.argv[1]) as arrays:
        x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
        shards = [(x[rows], y[rows]) for rows in map(torch.from_numpy, arrays["shards"])]
        return Task(shards, (torch.from_numpy(arrays["x_test"]), torch.from_numpy(arrays["y_test"])))


def build() -> nn.Module:
    """Return the model, with the same parameters for all peers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], *, epochs: int = EPOCHS) -> None:
    """Train a model on the data of one peer."""
    x, y = data
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()


def accuracy(model: nn.Module, task: Task) -> float:
    """Return the share of the test set that a model classifies correctly."""
    x, y = task.test
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


def report(task: Task, models: Sequence[nn.Module], *, begun: float, ended: float, version: str) -> None:
    """Write what the command reads to the file that the command line names second.

    Parameters
    ----------
    task, models
        The task, and the model of each peer.
    begun, ended
        ``time.perf_counter()`` when the first round began, and when the last one ended.
    version
        Version of the framework.
    """
    scores = [accuracy(model, task) for model in models]
    found = {"learning": ended - begun, "mean": float(np.mean(scores)), "least": min(scores), "version": version}
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


now = time.perf_counter
