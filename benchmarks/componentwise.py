"""Component-wise boosting of the four hospitals: the authors' stored fit of 100,000 steps, repeated.

``python -m benchmarks.componentwise [STEPS]`` needs the folder of data sets that ``P2PFL_DATA`` names. ``python -m
benchmarks.componentwise average`` compares exact sums with averages of the hospitals' own fits, without site effects.
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


def averages() -> None:
    """Print the training risk of exact sums, and that of averaged fits, after some steps."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from plugins.exact.hospitals import hospitals  # noqa: PLC0415

    federation, options = hospitals(Path(os.environ["P2PFL_DATA"]))
    risks = {}
    for average in (False, True):
        model = Componentwise(**options | {"site_df": 0.0}, rounds=10, every=1000, average=average)
        learner = ExactLearner(model, federation)
        run = simulate(Exact(), learner, topology.complete(4), rounds=model.rounds, baselines=False)
        risks[average] = next(iter(run.models.values()))["risks"]
    for step in (10, 100, 1000, 9999):
        print(f"risk after {step:6d} steps: {risks[False][step]:.6f} exact, {risks[True][step]:.6f} averaged")


if __name__ == "__main__":
    if sys.argv[1:] == ["average"]:
        averages()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
