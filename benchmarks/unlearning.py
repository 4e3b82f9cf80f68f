"""Traces of a peer after approximate removals, against a replay without it.

    python -m benchmarks.unlearning [--data DIR] [--seeds 3] [--rate 0.1] [--batch 32]

MNIST, ten peers of 200 samples, a perceptron of 64 units that begins with the values of He et al. (2015), complete
graph, 30 rounds of 3 epochs; scores on the first 2,000 test pictures. Distances are those of `p2pfl repair`, and
membership is against 1,000 other pictures of the peer's share. For the trigger, all peers train a second time after
half of the pictures of the peer that leaves got a white square and the class 0; its success is the share of test
pictures of other classes that become 0 by the square.

The second table divides 20 peers of 100 samples into groups, each of which learns a model of its own (SISA: Bourtoule
et al., Machine unlearning, 2021); predictions are means over the models, and a replay concerns one group.

`p2pfl repair` has only `calibrate`. The other methods stand here alone, because they remove too little (`continue`,
`ascent`: Halimi et al., Federated unlearning, 2022) or cost as much for less (`negate`: Khalil et al., NoT, CVPR 2025).
"""

import argparse
import copy
import os
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import p2pfl
from p2pfl.algorithms import FedAvg
from p2pfl.core.draws import draw
from p2pfl.data import Dataset, Federation, federate
from p2pfl.experiment import Plan
from p2pfl.learning import TorchLearner
from p2pfl.learning.models import build
from p2pfl.plugins.evidence.repair import (
    calibrated,
    mean_model,
    membership,
    repair_cost,
    update_lengths,
    with_other_batches,
)
from p2pfl.topology import complete

GRAPH = complete(10)
LEAVES, *REMAIN = GRAPH.peers
SAMPLES, OTHERS, TESTED = 200, 1_000, 2_000
ROUNDS, EPOCHS = 30, 3
CORNER = (..., slice(-4, -1), slice(-4, -1))
"""Place of the trigger in a picture."""

RADIUS = 4.0
"""Distance from the last model at which ascent ends, in units of the distance between two replays."""

MAX_GRADIENT = 1.0
"""Norm to which ascent clips gradients."""


@dataclass(frozen=True)
class Result:
    """Scores of one model.

    Attributes
    ----------
    cost
        Share of the training of a replay; ``None`` for the old model.
    accuracy, distance, membership, trigger
        See the module.
    """

    cost: float | None
    accuracy: float
    distance: float
    membership: float
    trigger: float


def pictures(
    folder: Path, *, seed: int, planted: bool = False, peers: tuple[str, ...] = GRAPH.peers, samples: int = SAMPLES
) -> Federation:
    """Return the pictures of peers, of the first of which half carry the trigger if it is ``planted``."""
    whole = federate("mnist", peers=peers, seed=seed, data_dir=folder)
    chosen = {peer: draw(seed, "few", peer=peer).permutation(whole.train[peer]) for peer in peers}
    kept = np.concatenate(
        [*(chosen[peer][: samples + OTHERS] for peer in peers), np.sort(whole.test[peers[0]])[:TESTED]]
    )
    positions = np.arange(len(kept))
    starts = {peer: number * (samples + OTHERS) for number, peer in enumerate(peers)}
    features, targets = (each[torch.from_numpy(kept)] for each in (whole.dataset.features, whole.dataset.targets))
    if planted:
        features[: samples // 2][CORNER], targets[: samples // 2] = 1.0, 0
    return Federation(
        Dataset(features, targets, whole.dataset.classes),
        {peer: positions[start : start + samples] for peer, start in starts.items()},
        {peer: positions[start + samples : start + samples + OTHERS] for peer, start in starts.items()},
        dict.fromkeys(peers, positions[-TESTED:]),
    )


def perceptron(seed: int) -> torch.nn.Module:
    """Return a perceptron whose weights have the variance 2 / fan-in; a negated network recovers from larger ones."""
    model, random = build("mlp", shape=(1, 28, 28), classes=10, seed=seed, options={"hidden": [64]}), draw(seed, "he")
    for values in model.parameters():
        deviation = (2 / values.shape[1]) ** 0.5 if values.dim() == 2 else 0.0
        values.data = torch.from_numpy(random.normal(0.0, deviation, tuple(values.shape))).float()
    return model


def planned(learner: TorchLearner, *, rounds: int = ROUNDS, seed: int, without: bool = True) -> Plan:
    """Return the plan of all peers, or of those that remain."""
    peers = REMAIN if without else GRAPH.peers
    graph = GRAPH.without([LEAVES]) if without else GRAPH
    return p2pfl.compose(FedAvg(), learner.on(learner.federation.of(*peers)), graph, rounds=rounds, seed=seed)


def starting(learner: TorchLearner, row: torch.Tensor) -> TorchLearner:
    """Return the same learner, whose peers begin with a model ``[P]`` and draw other batches."""
    other = copy.copy(learner)
    other.initial, other.seed = row, learner.seed + 1
    return other


def last_model(plan: Plan) -> torch.Tensor:
    """Return the mean of the last models of a simulation, ``[P]``."""
    return mean_model(p2pfl.simulate(plan, baselines=False), plan)


def ascended(learner: TorchLearner, row: torch.Tensor, *, radius: float) -> torch.Tensor:
    """Return a model ``[P]`` after projected gradient ascent on the samples of the peer that leaves."""
    moved, steps = row, -(-SAMPLES // (learner.batch or SAMPLES))
    for round in range(EPOCHS):
        for step in range(steps):
            slope = learner.gradient(moved.unsqueeze(0), peers=[LEAVES], round=ROUNDS + round, step=step)[0]
            away = moved + learner.rate(0) * slope * min(1.0, MAX_GRADIENT / float(slope.norm())) - row
            moved = row + away * min(1.0, radius / float(away.norm()))
    return moved


def models(learner: TorchLearner, *, seed: int) -> tuple[dict[str, tuple[float | None, torch.Tensor]], float]:
    """Return cost and model of each method, and the distance between two replays."""
    whole, never = planned(learner, seed=seed, without=False), planned(learner, seed=seed)
    old = p2pfl.simulate(whole, baselines=False)
    last, replay = mean_model(old, whole), last_model(never)
    unit = float((replay - last_model(with_other_batches(never))).norm())
    lengths = update_lengths(old.metrics)
    half, second = planned(learner, rounds=ROUNDS // 2, seed=seed), {peer: each[::2] for peer, each in lengths.items()}
    first = learner.layout.mask(learner.layout.names[:1])

    def further(row: torch.Tensor, rounds: int) -> torch.Tensor:
        return last_model(planned(starting(learner, row), rounds=rounds, seed=seed))

    up = ascended(learner, last, radius=RADIUS * unit)
    own = EPOCHS * SAMPLES / (ROUNDS * planned(learner, seed=seed).learner.bare.samples_a_round(tuple(REMAIN)))
    return {
        "with the peer": (None, last),
        "replay": (1.0, replay),
        "continue, 10 rounds": (10 / ROUNDS, further(last, 10)),
        "calibrate, every second round": (repair_cost(never) / 2, last_model(calibrated(half, second))),
        "calibrate": (repair_cost(never), last_model(calibrated(never, lengths))),
        "ascent, then 3 rounds": (3 / ROUNDS + own, further(up, 3)),
        "negate, then 10 rounds": (10 / ROUNDS, further(torch.where(first, -last, last), 10)),
    }, unit


def measured(folder: Path, *, seed: int, planted: bool, rate: float, batch: int) -> dict[str, Result]:
    """Return the scores of all methods for one seed."""
    data = pictures(folder, seed=seed, planted=planted)
    learner = TorchLearner(perceptron(seed), data, seed=seed, rate=rate, batch=batch, epochs=EPOCHS, device="cpu")
    whole, marked = planned(learner, seed=seed, without=False), data.dataset.features.clone()
    marked[CORNER] = 1.0
    triggered = learner.on(replace(data, dataset=replace(data.dataset, features=marked)))
    made, unit = models(learner, seed=seed)
    results = {}
    for name, (cost, row) in made.items():
        outputs, targets = triggered.outputs(row, peer=LEAVES)
        results[name] = Result(
            cost,
            float(learner.evaluate(row.unsqueeze(0), peers=[LEAVES])["accuracy"]),
            float((row - made["replay"][1]).norm()) / unit,
            membership(whole, row, peer=LEAVES, others="validation"),
            float((outputs.argmax(1) == 0)[targets != 0].double().mean()),
        )
    return results


def grouped(folder: Path, *, seed: int, groups: int, rate: float, batch: int) -> float:
    """Return the accuracy of mean predictions of models that disjoint groups of 20 peers learn (SISA)."""
    graph = complete(20)
    data = pictures(folder, seed=seed, peers=graph.peers, samples=100)
    learner = TorchLearner(perceptron(seed), data, seed=seed, rate=rate, batch=batch, epochs=EPOCHS, device="cpu")
    order = [graph.peers[number] for number in draw(seed, "groups").permutation(len(graph.peers))]
    predicted = torch.zeros(TESTED, 10)
    for number in range(groups):
        group = sorted(order[number::groups])
        own = learner.on(data.of(*group))
        absent = [peer for peer in graph.peers if peer not in group]
        plan = p2pfl.compose(FedAvg(), own, graph.without(absent) if absent else graph, rounds=ROUNDS, seed=seed)
        outputs, targets = learner.outputs(last_model(plan), peer=graph.peers[0])
        predicted += outputs.softmax(1)
    return float((predicted.argmax(1) == targets).double().mean())


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("P2PFL_DATA", "data")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    if not any((options.data / folder / "train-images-idx3-ubyte.gz").is_file() for folder in ("mnist", ".")):
        print(f"skipped: {options.data} has no MNIST; name its folder with --data or P2PFL_DATA")
        return 0
    clean, planted = (
        [
            measured(options.data, seed=seed, planted=planted, rate=options.rate, batch=options.batch)
            for seed in range(options.seeds)
        ]
        for planted in (False, True)
    )
    print("| model | cost | accuracy | distance (with the trigger) | membership | trigger |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in clean[0]:
        own, other = [each[name] for each in clean], [each[name] for each in planted]
        distances = [f"{statistics.mean(each.distance for each in runs):.1f}" for runs in (own, other)]
        cost = "-" if own[0].cost is None else f"{own[0].cost:.2f}"
        print(
            f"| {name} | {cost} | {spread([each.accuracy for each in own])} | "
            f"{distances[0]} ({distances[1]}) | {spread([each.membership for each in own])} | "
            f"{spread([each.trigger for each in other])} |",
            flush=True,
        )
    print("| groups | cost of forgetting a peer by replay | accuracy |")
    print("| ---: | ---: | ---: |")
    for groups in (1, 2, 4, 5):
        scores = [
            grouped(options.data, seed=seed, groups=groups, rate=options.rate, batch=options.batch)
            for seed in range(options.seeds)
        ]
        print(f"| {groups} | {(20 / groups - 1) / 20:.2f} | {spread(scores)} |", flush=True)
    return 0


def spread(values: list[float]) -> str:
    """Return the mean of values and their standard deviation."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"


if __name__ == "__main__":
    sys.exit(main())
