"""Ogier du Terrail et al.: FLamby, Fed-Heart-Disease (NeurIPS 2022 datasets and benchmarks).

Four hospitals, logistic regression from torch's own start of seeds 42 to 46, 15 rounds of 100 steps of SGD in batches
of 4 at each, by FedAvg and what is made of it; accuracy at each hospital, and over all test patients scaled by the
pooled training part. Theirs are the result files of their repository, cell by cell, of one order of the batches. Here
orders are drawn otherwise, and a patient or two change sides with them: ours are medians over five orders. After
fine-tuning (another 100 steps at each hospital, rate .00316, the mean over hospitals) theirs began from starts that no
seed fixes, so only means over seeds compare. FedAvgM is not among theirs.

Source: github.com/owkin/FLamby, flamby/results and flamby/personalization_example.
"""

import statistics
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

import p2pfl
from benchmarks.papers import Line
from p2pfl.core.rows import Rows
from p2pfl.data.tables.heart import HOSPITALS
from p2pfl.experiment import Plan, plan, read

PUBLISHED: dict[int, tuple[float, ...]] = {
    42: (0.7520, 0.7596, 0.6966, 0.6875, 0.6222),
    43: (0.7638, 0.7212, 0.7416, 0.7500, 0.6667),
    44: (0.7638, 0.7404, 0.7528, 0.5000, 0.5778),
    45: (0.7008, 0.7308, 0.6742, 0.7500, 0.6222),
    46: (0.7598, 0.7019, 0.7303, 0.5625, 0.7111),
}
"""FedAvg: pooled test and each hospital, by seed."""

SEEDS = tuple(PUBLISHED)
ADAPTIVE: dict[int, tuple[float, ...]] = {
    42: (0.7835, 0.7596, 0.7640, 0.7500, 0.6222),
    43: (0.7677, 0.7308, 0.7303, 0.7500, 0.6667),
    44: (0.7835, 0.7692, 0.7528, 0.7500, 0.7333),
    45: (0.7992, 0.7596, 0.7416, 0.7500, 0.6889),
    46: (0.7598, 0.7788, 0.7753, 0.6875, 0.6667),
}
METHODS: dict[str, tuple[list[str], dict[int, tuple[float, ...]]]] = {
    "FedAvg": ([], PUBLISHED),
    "FedProx": (["learning.algorithm=fedprox", "learning.algorithm_options={mu=0.01}"], PUBLISHED),
    "SCAFFOLD": (
        ["learning.algorithm=scaffold"],
        PUBLISHED | {42: (0.7520, 0.7500, 0.6966, 0.6875, 0.6222), 45: (0.7008, 0.7212, 0.6742, 0.7500, 0.6222)},
    ),
    "FedAdam": (
        [
            "learning.algorithm=fedadam",
            "learning.rate=0.01",
            "learning.algorithm_options={global_rate=0.01, beta1=0.9, beta2=0.999, tau=1e-8}",
        ],
        {
            42: (0.7756, 0.7596, 0.7528, 0.7500, 0.6222),
            43: (0.7677, 0.7212, 0.7303, 0.7500, 0.6444),
            44: (0.7795, 0.7596, 0.7416, 0.7500, 0.7333),
            45: (0.8031, 0.7596, 0.7303, 0.7500, 0.6889),
            46: (0.7677, 0.7596, 0.7753, 0.6875, 0.6444),
        },
    ),
    "FedYogi": (
        [
            "learning.algorithm=fedyogi",
            "learning.rate=0.003162",
            "learning.algorithm_options={global_rate=0.01, beta1=0.9, beta2=0.999, tau=1e-8}",
        ],
        ADAPTIVE,
    ),
    "FedAdagrad": (
        [
            "learning.algorithm=fedadagrad",
            "learning.rate=0.003162",
            "learning.algorithm_options={global_rate=0.316228, beta1=0.9, tau=1e-8}",
        ],
        ADAPTIVE,
    ),
}
"""Settings, and results as above. Of Yogi and Adagrad they are the same: where squares stay above v, Yogi adds a
thousandth of each, and its rate is smaller by the root of a thousand."""

TUNED = ((0.7178, 0.0160), (0.7351, 0.0086))
"""Mean and deviation over seeds of the mean over hospitals, before and after fine-tuning."""

ORDERS = 5
"""Orders of the batches, whose median is taken."""

PATIENTS = (254, 104, 89, 16, 45)
"""In the pooled test and each hospital's."""

TABLE: dict[str, Any] = {
    "name": "fed_heart",
    "rounds": 15,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "fed_heart"},
    "model": {"name": "benchmarks.papers.fed_heart:Logistic"},
    "learning": {
        "rate": 0.001,
        "batch": 4,
        "steps": 100,
        "loss": "benchmarks.papers.fed_heart:likelihood",
        "metrics": {"accuracy": "benchmarks.papers.fed_heart:right"},
        "device": "cpu",
    },
    "gossip": {"steps": 1},
}


class Logistic(nn.Linear):
    """One logit, as torch starts it after ``manual_seed(start)``."""

    def __init__(self, *, start: int) -> None:
        torch.manual_seed(start)
        super().__init__(13, 1)


def likelihood(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Minus the log-likelihood of a logit, ``[B]``."""
    return F.binary_cross_entropy_with_logits(outputs.squeeze(-1), targets.to(outputs.dtype), reduction="none")


def right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One where the probability lies on the right side of a half, ``[B]``."""
    return ((outputs.squeeze(-1) > 0) == (targets > 0)).double()


def resolved(seed: int, *changes: str) -> Plan:
    """The experiment from the start of a seed."""
    return plan(read(TABLE, changes=[f"model.options={{start={seed}}}", *changes]))


def trained(experiment: Plan) -> Rows:
    """Each hospital's row after FedAvg, ``[4, P]``."""
    run = p2pfl.simulate(experiment, baselines=False)
    rows = [experiment.learner.layout.join(run.models[name]) for name in experiment.topology.peers]
    return torch.stack(rows)


def accuracies(experiment: Plan, rows: Rows) -> list[float]:
    """At each hospital, ``[4]``."""
    found: list[float] = experiment.learner.evaluate(rows, peers=experiment.topology.peers)["accuracy"].tolist()
    return found


@cache
def everybody() -> Plan:
    """The same experiment with patients scaled by all training parts."""
    return resolved(0, 'data.options={scaling="pooled"}')


def federated(seed: int, *changes: str, order: int) -> list[float]:
    """Accuracy over all test patients, then at each hospital."""
    experiment = resolved(seed, f"seed={order}", *changes)
    rows = trained(experiment)
    pooled = everybody()
    sizes = [len(pooled.federation.test[name]) for name in pooled.topology.peers]
    hits = sum(size * score for size, score in zip(sizes, accuracies(pooled, rows), strict=True))
    return [hits / sum(sizes), *accuracies(experiment, rows)]


def tuned(seed: int) -> tuple[float, float]:
    """Mean accuracy over hospitals after FedAvg, and after 100 steps more at each."""
    experiment = resolved(seed, "learning.rate=0.00316227")
    peers, rows = experiment.topology.peers, trained(experiment)
    after = experiment.learner.fit(rows, peers=peers, round=TABLE["rounds"]).rows
    before, later = accuracies(experiment, rows), accuracies(experiment, after)
    return statistics.mean(before), statistics.mean(later)


def lines(*, seeds: Sequence[int] = SEEDS, orders: int = ORDERS) -> list[Line]:
    """Cell by cell, then fine-tuned."""
    found = [line for method in METHODS for line in cells(method, seeds=seeds, orders=orders)]
    return found + _fine_tuned(seeds)


def cells(method: str, *, seeds: Sequence[int], orders: int) -> list[Line]:
    """The pooled test and the hospitals by seed, medians over orders of the batches."""
    changes, published = METHODS[method]
    drawn = {seed: [federated(seed, *changes, order=order) for order in range(orders)] for seed in seeds}
    medians = {seed: [statistics.median_low(cell) for cell in zip(*each, strict=True)] for seed, each in drawn.items()}
    whys = {}
    for index, (part, size) in enumerate(zip(("pooled test", *HOSPITALS), PATIENTS, strict=True)):
        theirs, ours = ([each[seed][index] for seed in seeds] for each in (published, medians))
        spread = {seed: [each[index] for each in drawn[seed]] for seed in seeds}
        if _listed(theirs) != _listed(ours):
            whys[part] = _patients(dict(zip(seeds, theirs, strict=True)), medians=ours, drawn=spread, size=size)
    theirs, ours = ([each[seed][0] for seed in seeds] for each in (published, medians))
    why = whys.pop("pooled test", "")
    pooled = Line(f"{method}, pooled test: accuracy by seed", _listed(theirs), _listed(ours), not why, why)
    same = sum(
        f"{one:.4f}" == f"{other:.4f}"
        for seed in seeds
        for one, other in zip(published[seed][1:], medians[seed][1:], strict=True)
    )
    size = len(seeds) * len(HOSPITALS)
    why = "; ".join(f"{part}: {each}" for part, each in whys.items())
    apart = Line(f"{method}, hospitals and seeds of equal accuracy", f"{size}", f"{same}", not whys, why)
    return [pooled, apart]


def _patients(theirs: dict[int, float], *, medians: list[float], drawn: dict[int, list[float]], size: int) -> str:
    """How many patients medians are away, and whether another order of the batches gives what is published."""
    away = [round(abs(one - other) * size) for one, other in zip(theirs.values(), medians, strict=True)]
    within = all(min(drawn[seed]) - 1e-4 < one < max(drawn[seed]) + 1e-4 for seed, one in theirs.items())
    return f"{max(away)} of {size} patients, {'within' if within else 'beyond'} other orders of batches"


def _fine_tuned(seeds: Sequence[int]) -> list[Line]:
    """Before and after, and that it helps."""
    pairs = [tuned(seed) for seed in seeds]
    means = [statistics.mean(values) for values in zip(*pairs, strict=True)]
    found = []
    for (mean, deviation), ours, when in zip(TUNED, means, ("before", "after"), strict=True):
        what = f"FedAvg {when} fine-tuning: mean over hospitals and seeds, within a deviation"
        found.append(Line(what, f"{mean:.4f} +- {deviation:.4f}", f"{ours:.4f}", abs(ours - mean) <= deviation))
    gains = f"{TUNED[1][0] - TUNED[0][0]:+.4f}", f"{means[1] - means[0]:+.4f}"
    return [*found, Line("FedAvg, what fine-tuning gains", *gains, means[1] > means[0])]


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)
