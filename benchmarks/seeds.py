"""Time of the seeds of one experiment, one after the other and as one stack.

    python -m benchmarks.seeds [--seeds 20] [--cases clinics digits narrow]

Each case runs in one process with one thread, as in ``p2pfl sweep``, and writes a run directory for each seed. The
table has the seconds and the processor seconds of both ways, their ratios, and the largest difference between two
parameters. Where the models are larger than :data:`p2pfl.learning.steps.together.PARAMETERS`, a sweep keeps the seeds
apart; here they are stacked all the same.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from p2pfl.experiment import read
from p2pfl.learning.steps import together
from p2pfl.results import Run
from p2pfl.simulation import simulate
from p2pfl.simulation.together import simulate_together

CASES: dict[str, dict[str, Any]] = {
    "clinics": {
        "rounds": 50,
        "topology": {"kind": "ring", "peers": 4},
        "data": {"name": "breast_cancer"},
        "model": {"name": "linear"},
        "learning": {"batch": 8, "device": "cpu"},
    },
    "narrow": {
        "topology": {"kind": "ring", "peers": 8},
        "data": {"name": "digits"},
        "model": {"name": "mlp", "hidden": [16]},
        "learning": {"batch": 16, "device": "cpu"},
    },
    "digits": {
        "topology": {"kind": "ring", "peers": 8},
        "data": {"name": "digits"},
        "model": {"name": "mlp", "hidden": [64]},
        "learning": {"batch": 16, "device": "cpu"},
    },
}
"""Experiments by name."""


def difference(one: Run, other: Run) -> float:
    """Return the largest difference between two parameters of the same name."""
    pairs = [(value, other.models[peer][name]) for peer, model in one.models.items() for name, value in model.items()]
    return max(float((mine - theirs).abs().max()) for mine, theirs in pairs)


def measured(table: dict[str, Any], *, seeds: int, folder: Path) -> str:
    """Return the line of a case."""
    experiments = [read(table | {"seed": seed}) for seed in range(seeds)]
    folders = [[folder / how / str(seed) for seed in range(seeds)] for how in ("apart", "together")]
    simulate(experiments[0], baselines=False)  # imports what it needs
    begun = time.perf_counter(), time.process_time()
    pairs = zip(experiments, folders[0], strict=True)
    apart = [simulate(experiment, folder=place, baselines=False) for experiment, place in pairs]
    between = time.perf_counter(), time.process_time()
    with patch.object(together, "PARAMETERS", 2**62):
        stacked = simulate_together(experiments, folders=folders[1], baselines=False) or []
    ended = time.perf_counter(), time.process_time()
    one = [middle - first for middle, first in zip(between, begun, strict=True)]
    both = [last - middle for last, middle in zip(ended, between, strict=True)]
    runs = [run for run in stacked if isinstance(run, Run)]
    worst = max(difference(mine, its) for mine, its in zip(apart, runs, strict=True))
    return (
        f"apart {one[0]:6.2f} s ({one[1]:6.2f} of a core), together {both[0]:6.2f} s ({both[1]:6.2f}), ratio "
        f"{one[0] / both[0]:.2f} ({one[1] / both[1]:.2f}), largest difference {worst:.2g}"
    )


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    print(f"{options.seeds} seeds, load {os.getloadavg()[0]:.1f}")
    for name in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            print(f"  {name:8} {measured(CASES[name], seeds=options.seeds, folder=Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
