"""Area under the ROC curve of private boosting on Adult: several splits, each with trees and noise of its own.

    P2PFL_DATA=FOLDER python -m benchmarks.private_boosting [--splits 5] [--epsilon 0.5 1]

Sixteen peers on a small world, one colluder, delta 1e-5, public bins, noise drawn by the peers, the defaults of
`random_boosting` with 400 trees. `docs/private-models.md` states how the defaults were chosen.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.exact import ExactLearner, Part, RandomBoosting
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning.metrics import auc
from p2pfl.simulation import simulate

PEERS, TREES = 16, 400


def area(folder: Path, *, split: int, epsilon: float) -> float:
    """Return the area on the 30 % of a split that no peer holds."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from exact.tables import ADULT, adult_columns, shared_out  # noqa: PLC0415

    features, targets, fields = adult_columns(folder)
    order = np.random.default_rng(split).permutation(len(targets))
    train, test = np.split(order, [int(0.7 * len(order))])
    model = RandomBoosting(
        features=features.shape[1],
        classes=2,
        rounds=TREES,
        bounds={name: [*given] for name, given in ADULT.items()},
        seed=10 * split,
        fields=fields,
    )
    federation = shared_out(features[train], targets[train], classes=2, peers=PEERS)
    graph = topology.build("small_world", peers=PEERS, seed=3, degree=4, rewire=0.3)
    privacy = Pairwise(mask_graph="complete", epsilon=epsilon)
    run = simulate(Exact(), ExactLearner(model, federation), graph, rounds=TREES, privacy=privacy, baselines=False)
    tensors = {name: value.numpy() for name, value in run.models[graph.peers[0]].items()}
    margins = model.margins(tensors, Part(features[test], targets[test]))[:, 0]
    return auc(margins, targets[test] == 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0])
    options = parser.parse_args()
    for epsilon in options.epsilon:
        busy, areas = time.process_time(), []
        for split in range(1, options.splits + 1):
            areas.append(area(Path(os.environ["P2PFL_DATA"]), split=split, epsilon=epsilon))
            print(f"epsilon {epsilon:g}, split {split}: {areas[-1]:.4f}", flush=True)
        spread = np.std(areas, ddof=1) if len(areas) > 1 else 0.0
        busy = time.process_time() - busy
        print(f"epsilon {epsilon:g}: {np.mean(areas):.4f}, deviation {spread:.4f}, {busy:.0f} s of processor time")


if __name__ == "__main__":
    sys.exit(main())
