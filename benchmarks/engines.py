"""Time of a training step of few models by each engine.

    python -m benchmarks.engines [--repeats 15] [--rows 1 8 64 512]

A step computes the gradients of R perceptrons on batches of their own and moves them by gradient descent. The engines
are autograd (which takes one row), kernels on a stack, and numpy (`p2pfl.learning.steps.perceptrons`). They take
turns, and the table has the median over all turns of the microseconds of a step, and half the distance between the
quartiles.
"""

import argparse
import os
import statistics
import time
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner
from p2pfl.process import one_thread

CASES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "30-2, batch 16": ((30, 2), 16),
    "64-32-10, batch 16": ((64, 32, 10), 16),
    "64-64-10, batch 32": ((64, 64, 10), 32),
    "784-32-10, batch 10": ((784, 32, 10), 10),
    "784-32-10, batch 32": ((784, 32, 10), 32),
    "784-200-10, batch 32": ((784, 200, 10), 32),
}
"""Numbers of units, and samples in a batch."""

STEPS = 100
"""Steps of a turn."""


def learner(units: tuple[int, ...], batch: int, *, rows: int) -> TorchLearner:
    """Return the learner of so many peers with random samples."""
    rng = np.random.default_rng(1)
    features = torch.from_numpy(rng.normal(size=(1000, units[0])).astype(np.float32))
    data = Dataset(features, torch.from_numpy(rng.integers(units[-1], size=1000)), classes=units[-1])
    mine = {f"peer{row}": rng.permutation(1000) for row in range(rows)}
    federation = Federation(data, train=mine, validation=dict.fromkeys(mine, np.arange(0)), test=mine)
    pairs = [nn.Sequential(nn.Linear(*each), nn.ReLU()) for each in pairwise(units)]
    model = nn.Sequential(*pairs[:-1], pairs[-1][0])
    return TorchLearner(model, federation, rate=0.01, batch=batch, steps=STEPS, seed=1, device="cpu")


def seconds(made: TorchLearner, engine: str) -> float:
    """Return the seconds of a step by an engine."""
    made.stepper = lambda _work: getattr(made, engine)  # type: ignore[method-assign]
    peers = made.federation.peers
    rows = made.start(peers)
    begun = time.perf_counter()
    made.fit(rows, peers=peers, round=0)
    return (time.perf_counter() - begun) / STEPS


def line(units: tuple[int, ...], batch: int, *, rows: int, repeats: int) -> str:
    """Return the times of all engines."""
    made = learner(units, batch, rows=rows)
    names = {"plain": "autograd", "engine": "kernels", "perceptrons": "numpy"}
    used = [engine for engine in names if engine != "plain" or rows == 1]
    found: dict[str, list[float]] = {engine: [] for engine in used}
    for _ in range(repeats):
        for engine in used:
            found[engine].append(1e6 * seconds(made, engine))
    texts = []
    for engine, times in found.items():
        low, middle, high = statistics.quantiles(times, n=4)
        texts.append(f"{names[engine]} {middle:6.0f} ± {(high - low) / 2:.0f}")
    return ", ".join(texts)


@one_thread()
def main() -> None:
    """Print a line for each case and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8, 64, 512])
    options = parser.parse_args()
    print(f"microseconds of a step, load {os.getloadavg()[0]:.1f}")
    for name, (units, batch) in CASES.items():
        for rows in options.rows:
            print(f"  {name:22} {rows:2} rows: {line(units, batch, rows=rows, repeats=options.repeats)}", flush=True)


if __name__ == "__main__":
    main()
