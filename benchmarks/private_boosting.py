"""Area under the ROC curve of private boosting on Adult: several splits, each with trees and noise of its own.

    P2PFL_DATA=FOLDER python -m benchmarks.private_boosting [--splits 5] [--epsilon 0.5 1] [--held | --validation]

Sixteen peers on a small world, one colluder, delta 1e-5, public bins, noise drawn by the peers, the defaults of
`random_boosting` with 400 trees. `docs/notes/exact-models.md` states how the defaults were chosen:
with `--validation`, on divisions of 70 % of the people, with less noise, as there are fewer of them. `--held` trains on
these and takes the scores of the others, who had no part in the choice.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.data import IntArray
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, Part
from p2pfl.learning.metrics import auc
from p2pfl.plugins.exact import RandomBoosting
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate

PEERS, TREES = 16, 400


CHOICE = 1000
"""Seed of the permutation whose first 70 % served the choice of the defaults."""

SHARE = 0.7
"""Share of the people on whom models are trained."""


def divided(people: IntArray, *, seed: int) -> tuple[IntArray, IntArray]:
    """Return people for training and for scores."""
    order = np.random.default_rng(seed).permutation(people)
    first, second = np.split(order, [int(SHARE * len(order))])
    return first, second


def people(count: int, *, split: int, kind: str) -> tuple[IntArray, IntArray]:
    """Return people for training and for scores: of all, those who served the choice, or those and the others."""
    everybody = np.arange(count)
    if kind == "all":
        return divided(everybody, seed=split)
    chosen, others = divided(everybody, seed=CHOICE)
    return (chosen, others) if kind == "held" else divided(chosen, seed=2 * CHOICE + split)


def area(
    folder: Path,
    *,
    split: int,
    epsilon: float,
    kind: str = "all",
    trees: int = TREES,
    options: Mapping[str, Any] | None = None,
) -> float:
    """Return the area on people whom no peer holds."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from plugins.exact.tables import ADULT, adult_columns, shared_out  # noqa: PLC0415

    features, targets, fields = adult_columns(folder)
    train, test = people(len(targets), split=split, kind=kind)
    model = RandomBoosting(
        features=features.shape[1],
        classes=2,
        rounds=trees,
        bounds={name: [*given] for name, given in ADULT.items()},
        seed=10 * split,
        fields=fields,
        **(options or {}),
    )
    federation = shared_out(features[train], targets[train], classes=2, peers=PEERS)
    graph = topology.build("small_world", peers=PEERS, seed=3, degree=4, rewire=0.3)
    privacy = Pairwise(mask_graph="complete", epsilon=epsilon / SHARE if kind == "validation" else epsilon)
    how = {"privacy": privacy, "source": SeededSource(0)}  # so that the published areas can be printed again
    run = simulate(Exact(), ExactLearner(model, federation), graph, rounds=trees, baselines=False, **how)
    tensors = {name: value.numpy() for name, value in run.models[graph.peers[0]].items()}
    margins = model.margins(tensors, Part(features[test], targets[test]))[:, 0]
    return auc(margins, targets[test] == 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--options", type=json.loads, default={}, help="settings of the model as JSON")
    kinds = parser.add_mutually_exclusive_group()
    for kind in ("held", "validation"):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, default="all")
    options = parser.parse_args()
    folder, given = Path(os.environ["P2PFL_DATA"]), {"trees": options.trees, "options": options.options}
    for epsilon in options.epsilon:
        busy, areas = time.process_time(), []
        for split in range(1, options.splits + 1):
            areas.append(area(folder, split=split, epsilon=epsilon, kind=options.kind, **given))
            print(f"epsilon {epsilon:g}, split {split}: {areas[-1]:.4f}", flush=True)
        spread = np.std(areas, ddof=1) if len(areas) > 1 else 0.0
        busy = time.process_time() - busy
        print(f"epsilon {epsilon:g}: {np.mean(areas):.4f}, deviation {spread:.4f}, {busy:.0f} s of processor time")


if __name__ == "__main__":
    sys.exit(main())
