"""Component-wise boosting of the four hospitals: the authors' stored fit of 100,000 steps, repeated.

``python -m benchmarks.componentwise [STEPS]`` needs the folder of data sets that ``P2PFL_DATA`` names.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact import Componentwise
from p2pfl.simulation import simulate

EVERY = 1000
"""Steps of a round."""


def main(steps: int) -> None:
    """Print whether choices and risks are those of the stored fit, and how long they took."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from plugins.exact.hospitals import ALL, FIRST, LAST, RISKS, chosen, hashed, hospitals  # noqa: PLC0415

    federation, options = hospitals(Path(os.environ["P2PFL_DATA"]))
    model = Componentwise(**options, rounds=steps // EVERY, every=EVERY)
    began = time.perf_counter()
    learner = ExactLearner(model, federation)
    run = simulate(Exact(), learner, topology.complete(4), rounds=model.rounds, baselines=False)
    took = time.perf_counter() - began
    found = next(iter(run.models.values()))
    names = chosen(model, found["choices"].tolist())
    print(f"{steps} steps in {took:.0f} s")
    print(f"first 1,000 choices equal: {hashed(names[:1000]) == FIRST}")
    if steps == 100_000:
        print(f"all 100,000 choices equal: {hashed(names) == ALL}")
    known = {step: risk for step, risk in RISKS.items() if step < steps}
    for step, risk in known.items():
        print(f"risk after {step:6d} steps: {found['risks'][step]:.10f}, stored {risk:.9f}")
    print(f"risk before the last step: {found['risks'][-1]:.13f}; stored after all 100,000: {LAST}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
