"""Accuracy of random forests on digits, by what peers exchange: nothing, their own trees, or totals.

    python -m benchmarks.forest [--peers 5] [--trees 30] [--splits 5]

Each peer holds as many of 80 % of the samples; the others are for the test. Alone, each peer trains all trees on its
own samples. In the union, each peer trains its share of the trees on its own samples, and predictions are means over
the trees of all, as in FedTree, Flower and NVFlare. Lossless forests follow from totals. Figures are means over splits;
integers are those of all totals of a forest.
"""

import argparse

import numpy as np
import torch
from sklearn import datasets

from p2pfl.core.encodings import Floats, Ints
from p2pfl.data import Dataset, Federation
from p2pfl.learning import ExactLearner, Part
from p2pfl.plugins.exact import RandomForest
from p2pfl.topology import complete

CLASSES = 10


def split(peers: int, *, seed: int) -> tuple[Federation, Part]:
    """Return the training samples of peers, and the test samples."""
    features, targets = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(targets))
    train, test = np.split(order, [int(0.8 * len(order))])
    shares = np.array_split(train, peers)
    names = complete(peers).peers
    dataset = Dataset(torch.from_numpy(features).float(), torch.from_numpy(targets), CLASSES)
    held = dict(zip(names, shares, strict=True))
    federation = Federation(dataset, held, dict.fromkeys(names, train[:0]), dict.fromkeys(names, test))
    return federation, Part(features[test].astype(np.float32), targets[test])


def grown(
    federation: Federation, peer: str, test: Part, *, trees: int, seed: int, extra: bool = False
) -> tuple[Floats, int]:
    """Return the probabilities of classes by the forest of the samples of a peer, ``[n, C]``, and its integers."""
    model = RandomForest(features=64, classes=CLASSES, rounds=1, n_estimators=trees, seed=seed, extra=extra)
    learner = ExactLearner(model, federation)
    asking, integers = learner.asking(learner.start([peer])[0], round=0), 0
    total: Ints | None = None
    while True:
        try:
            question = next(asking) if total is None else asking.send(total)
        except StopIteration as stop:
            return np.exp(model.predicted(learner.tensors(stop.value.row), test)), integers
        total = question.answer(peer)
        integers += question.size


def accuracies(peers: int, *, trees: int, seed: int) -> dict[str, tuple[float, int]]:
    """Return the accuracy on the test samples and the integers of totals by what peers exchange."""
    federation, test = split(peers, seed=seed)
    names = federation.peers
    pooled = federation.pooled(names[0])

    def correct(found: Floats) -> float:
        return float((found.argmax(axis=1) == test.targets).mean())

    alone = [grown(federation, peer, test, trees=trees, seed=seed)[0] for peer in names]
    few = [grown(federation, peer, test, trees=trees // peers, seed=place)[0] for place, peer in enumerate(names)]
    lossless, integers = grown(pooled, names[0], test, trees=trees, seed=seed)
    extra, fewer = grown(pooled, names[0], test, trees=trees, seed=seed, extra=True)
    return {
        "alone": (float(np.mean([correct(each) for each in alone])), 0),
        f"union of {trees // peers} trees each": (correct(np.mean(few, axis=0)), 0),
        "lossless, the forest of the pooled data": (correct(lossless), integers),
        "lossless, extra trees": (correct(extra), fewer),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=5)
    parser.add_argument("--trees", type=int, default=30)
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    found = [accuracies(options.peers, trees=options.trees, seed=seed) for seed in range(options.splits)]
    print(f"digits, {options.peers} peers, {options.trees} trees of depth 10, {options.splits} splits")
    for name in found[0]:
        values, integers = zip(*(each[name] for each in found), strict=True)
        print(
            f"{name:<40} {np.mean(values):.3f} +- {np.std(values):.3f}   {np.mean(integers) / 1e6:.2f} million integers"
        )


if __name__ == "__main__":
    main()
