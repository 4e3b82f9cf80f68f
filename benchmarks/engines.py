"""Time of a training step of few models by each engine.

    python -m benchmarks.engines [--repeats 15] [--cases "64-32-10, batch 16"] [--rows 1 8 64 512] [--uneven 8 30 512]

A step computes the gradients of R perceptrons on batches of their own and moves them by gradient descent. The engines
are autograd (which takes one row), kernels on a stack, numpy (`p2pfl.learning.steps.perceptrons`) and, where numba is
installed (`pip install numba`; p2pfl does not need it), the compiled prototype in `benchmarks.compiled`, whose models
must be those of numpy to rounding (compared in double precision).

They take turns, and the table has the median over all turns of the microseconds of processor time of a step, and half
the distance between the quartiles; and the median of the ratios of numpy to numba in the same turn, with the smallest
and the largest. Uneven rows have 1 to 700 steps in a round, as many of them with fewer than 26 as with more; their
microseconds are those of a step of one row. An option without values leaves its lines out.
"""

import argparse
import os
import statistics
import time
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from benchmarks.compiled import INSTALLED, compiled
from p2pfl.core.process import one_thread
from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner

CASES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "30-2, batch 16": ((30, 2), 16),
    "64-32-10, batch 16": ((64, 32, 10), 16),
    "64-64-10, batch 32": ((64, 64, 10), 32),
    "784-32-10, batch 10": ((784, 32, 10), 10),
    "784-32-10, batch 32": ((784, 32, 10), 32),
    "784-200-10, batch 32": ((784, 200, 10), 32),
}
"""Numbers of units, and samples in a batch."""

NAMES = {"plain": "autograd", "engine": "kernels", "perceptrons": "numpy", "compiled": "numba"}
"""Attributes of a learner that are engines, and what the table calls them; the last one is that of a prototype."""

STEPS = 100
"""Steps of a turn."""

UNEVEN, LONGEST = ("60-32-10, batch 32", (60, 32, 10), 32), 700
"""Model of uneven rows, and the most steps of one of them."""

RATE = 0.01
"""Learning rate."""


def learner(
    units: tuple[int, ...], batch: int, *, rows: int, uneven: bool = False, dtype: torch.dtype = torch.float32
) -> TorchLearner:
    """Return the learner of so many peers with random samples."""
    rng = np.random.default_rng(1)
    samples = LONGEST * batch if uneven else 1000
    features = torch.from_numpy(rng.normal(size=(samples, units[0])).astype(np.float32))
    data = Dataset(features, torch.from_numpy(rng.integers(units[-1], size=samples)), classes=units[-1])
    sizes = np.geomspace(batch, samples, rows).astype(int) if uneven else np.full(rows, samples)
    mine = {f"peer{row}": rng.permutation(samples)[:size] for row, size in enumerate(sizes)}
    federation = Federation(data, train=mine, validation=dict.fromkeys(mine, np.arange(0)), test=mine)
    pairs = [nn.Sequential(nn.Linear(*each), nn.ReLU()) for each in pairwise(units)]
    model = nn.Sequential(*pairs[:-1], pairs[-1][0])
    length = {"epochs": 1} if uneven else {"steps": STEPS}
    return TorchLearner(model, federation, rate=RATE, batch=batch, seed=1, device="cpu", dtype=dtype, **length)


def fitted(made: TorchLearner, engine: str, units: tuple[int, ...]) -> tuple[float, torch.Tensor]:
    """Return the processor seconds of a round by an engine, and the rows after it."""
    used = "perceptrons" if engine == "compiled" else engine
    made.stepper = lambda _work: getattr(made, used)  # type: ignore[method-assign]
    peers = made.federation.peers
    rows = made.start(peers)
    number = np.float64 if made.dtype == torch.float64 else np.float32
    with compiled(units, RATE, number) if engine == "compiled" else nullcontext():
        begun = time.process_time()
        after = made.fit(rows, peers=peers, round=0).rows
        return time.process_time() - begun, after


def check(units: tuple[int, ...], batch: int, *, rows: int, uneven: bool) -> None:
    """Raise an error unless the rows of numba and numpy are the same to rounding.

    They are compared in double precision: in single precision the input of a ReLU more often rounds to either side of
    zero, which drops a sample from the gradient of a unit.
    """
    made = learner(units, batch, rows=rows, uneven=uneven, dtype=torch.float64)
    compared, expected = (fitted(made, engine, units)[1] for engine in ("compiled", "perceptrons"))
    torch.testing.assert_close(compared, expected, rtol=1e-9, atol=1e-11)


def line(units: tuple[int, ...], batch: int, *, rows: int, repeats: int, uneven: bool = False) -> str:
    """Return the times of all engines."""
    made = learner(units, batch, rows=rows, uneven=uneven)
    used = [engine for engine in NAMES if engine != "plain" or rows == 1]
    if INSTALLED:
        check(units, batch, rows=rows, uneven=uneven)
        fitted(made, "compiled", units)  # compiles
    else:
        used.remove("compiled")
    steps = sum(-(-len(mine) // batch) for mine in made.federation.train.values()) if uneven else STEPS
    found: dict[str, list[float]] = {engine: [] for engine in used}
    for _ in range(repeats):
        for engine in used:
            found[engine].append(1e6 * fitted(made, engine, units)[0] / steps)
    texts = []
    for engine, times in found.items():
        low, middle, high = statistics.quantiles(times, n=4)
        texts.append(f"{NAMES[engine]} {middle:7.1f} ± {(high - low) / 2:.1f}")
    if INSTALLED:
        ratios = [mine / its for mine, its in zip(found["perceptrons"], found["compiled"], strict=True)]
        texts.append(f"numpy / numba {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    return ", ".join(texts)


@one_thread()
def main() -> None:
    """Print a line for each case and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 8, 64, 512])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES], metavar="CASE")
    parser.add_argument("--uneven", nargs="*", type=int, default=[8, 30, 512])
    options = parser.parse_args()
    if not INSTALLED:
        print("numba is not installed, so the compiled prototype is left out; `pip install numba` adds it")
    print(f"microseconds of processor time of a step, load {os.getloadavg()[0]:.1f}")
    for name in options.cases:
        units, batch = CASES[name]
        for rows in options.rows:
            print(f"  {name:22} {rows:3} rows: {line(units, batch, rows=rows, repeats=options.repeats)}", flush=True)
    name, units, batch = UNEVEN
    for rows in options.uneven:
        text = line(units, batch, rows=rows, repeats=options.repeats, uneven=True)
        print(f"  {name:22} {rows:3} uneven rows: {text}", flush=True)


if __name__ == "__main__":
    main()
