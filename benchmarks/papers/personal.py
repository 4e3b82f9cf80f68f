"""Personal models: the benchmark PFLlib, and model propagation (AISTATS 2017).

PFLlib: Fashion-MNIST, 20 peers of two classes each, one epoch a round, a quarter for the test. It took 2,000 rounds
of all data and a larger network; we take 10 rounds of 600 samples a peer, so only the order is claimed.

Model propagation: the means of 300 peers on two moons, of which each has one number; the paper prints curves, and the
figures here are those of an independent run.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse
import torch

from benchmarks.papers import Line
from p2pfl import topology as graphs
from p2pfl.algorithms import Averaging, Gossip, Propagation, learn, start
from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.data import Dataset, federate
from p2pfl.experiment import read
from p2pfl.experiment.accounts import data_folder
from p2pfl.learning import ExternalLearner
from p2pfl.simulation import StackedNeighbourhood, simulate
from p2pfl.simulation.inline import Inline

OWN = {"kind": "complete", "peers": 20}


@lru_cache
def pictures(name: str) -> Dataset:
    """All samples of a data set, the test part among them."""
    return federate(name, peers=["all"], split="iid", seed=0, data_dir=data_folder(), options={}).dataset


@lru_cache
def dealt(peers: tuple[str, ...], seed: int) -> dict[str, torch.Tensor]:
    """Positions of each peer's 600 samples of Fashion-MNIST: 300 of each of the classes k and k + 1 for peer k."""
    targets = pictures("fashion_mnist").targets.numpy()
    rng = draw(seed, "personal")
    left = [rng.permutation(np.flatnonzero(targets == label)) for label in range(10)]
    halves = [
        [left[(number + second) % 10][600 * (number // 10) + 300 * second :][:300] for second in (0, 1)]
        for number in range(len(peers))
    ]
    return {peer: torch.from_numpy(np.concatenate(own)) for peer, own in zip(peers, halves, strict=True)}


def garments(*, peer: str, peers: tuple[str, ...], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A peer's own part of Fashion-MNIST."""
    own = dealt(peers, seed)[peer]
    return pictures("fashion_mnist").features[own], pictures("fashion_mnist").targets[own]


PFLLIB: dict[str, Any] = {
    "name": "pfllib",
    "rounds": 10,
    "topology": OWN,
    "data": {"name": "benchmarks.papers.personal:garments", "test": 0.25},
    "model": {"name": "cnn", "hidden": [4, 8]},
    "learning": {"rate": 0.05, "batch": 10, "device": "cpu"},
    "gossip": {"steps": 1},
}
"""45 steps make an epoch."""

PUBLISHED = {
    "fedavg": ("80.41", ""),
    "per_fedavg": ("99.18", "{inner=0.05, steps=22}"),
    "pfedme": ("99.35", "{steps=22, inner=3, rate=0.05}"),
    "ditto": ("99.44", ""),
    "fedper": ("99.47", ""),
    "fedrep": ("99.56", "{head_steps=45, body_steps=45}"),
    "fine_tuning": ("-", ""),
    "multitask": ("-", ""),
}
"""Mean accuracy in percent on each peer's own test part, and our options."""


def pfllib() -> list[Line]:
    """The order of the table: all personal models far above FedAvg's."""
    scores = {}
    for name, (_, options) in PUBLISHED.items():
        changes = [f"learning.algorithm={name}", *([f"learning.algorithm_options={options}"] if options else [])]
        run = simulate(read(PFLLIB, changes=changes), baselines=False)
        scores[name] = 100 * run.summary["together"]
    found = [Line("FedAvg, Fashion-MNIST, 2 classes a peer", "80.41", f"{scores.pop('fedavg'):.2f}", None, BRIEF)]
    common = float(found[0].measured)
    for name, score in scores.items():
        what = f"{name}: at least 5 points above FedAvg"
        found.append(Line(what, PUBLISHED[name][0], f"{score:.2f}", score > common + 5))
    return found


BRIEF = "10 rounds of a smaller network, so only the order is comparable"


def moons(rng: np.random.Generator, *, peers: int) -> tuple[np.ndarray, np.ndarray]:
    """Row-stochastic weights ``[N, N]`` by nearness on two moons, and which moon each is on, +1 or -1."""
    angle, kind = rng.uniform(0, np.pi, peers), np.where(np.arange(peers) < peers // 2, 1.0, -1.0)
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1) * kind[:, None]
    places[kind < 0] += [1, 0.5]
    places += rng.normal(0, 0.05, places.shape)
    squares = ((places[:, None] - places[None]) ** 2).sum(-1)
    near = np.exp(-squares / (2 * 0.1**2))
    np.fill_diagonal(near, 0)
    near[near < 1e-9] = 0
    return near / near.sum(1, keepdims=True), kind


def propagated(P: np.ndarray, alone: np.ndarray, sizes: np.ndarray, *, rounds: int) -> np.ndarray:
    """Where our model propagation ends, ``[N]``."""
    names = tuple(f"peer{number:03}" for number in range(len(alone)))
    answers = {name: torch.tensor([value]) for name, value in zip(names, alone, strict=True)}
    learner = ExternalLearner(
        lambda row, *, peer, round: answers[peer],  # noqa: ARG005 (the signature of a training loop)
        start=torch.zeros(1, dtype=torch.float64),
        samples=dict(zip(names, sizes.tolist(), strict=True)),
    )
    weights = [graphs.Weights(names, scipy.sparse.csr_array(P))]
    everybody = torch.ones(len(names), dtype=torch.bool)
    near = tuple((names[a], names[b]) for a, b in zip(*np.nonzero(P), strict=True) if a != b)
    average = Averaging(names, 0, Gossip(), graph=graphs.Topology(names, near))

    async def nothing(*_: object) -> None:
        pass

    coroutine = learn(
        Propagation(average, alone=1, smoothing=0.99),
        Inline(learner, present=lambda _: everybody, clock=lambda: 0.0),
        start(learner, names),
        rounds=range(1 + rounds),
        neighbourhood=lambda round: StackedNeighbourhood(weights, round=round, seed=0),
        private=lambda net, _: net,
        observe=nothing,
    )
    return run_without_loop(coroutine).rows.squeeze(-1).numpy()


def propagation(*, draws: int = 30, peers: int = 300, rounds: int = 2500) -> list[Line]:
    """Squared errors of the mean estimation, and how often confidence helps."""
    errors = []
    away = 0.0
    for number in range(draws):
        rng = draw(number, "moons")
        P, truth = moons(rng, peers=peers)
        sizes = rng.integers(1, 101, peers)
        alone = truth + rng.normal(0, 1, peers) * np.sqrt(40 / sizes)
        ends = [propagated(P, alone, given, rounds=rounds) for given in (sizes, np.ones_like(sizes))]
        C = np.diag(sizes / sizes.max())
        closed = 0.01 * np.linalg.solve(np.eye(peers) - 0.01 * (np.eye(peers) - C) - 0.99 * P, C @ alone)
        away = max(away, float(np.abs(ends[0] - closed).max()))
        everybody = np.full(peers, (sizes * alone).sum() / sizes.sum())
        errors.append([((found - truth) ** 2).mean() for found in (alone, *ends, everybody)])
    solitary, confident, plain, consensus = np.mean(errors, axis=0).tolist()
    wins = float(np.mean([first < second for _, first, second, _ in errors]))
    kinds = f"two moons, {peers} peers, {draws} draws"
    return [
        Line(f"{kinds}: error alone", "2.030", f"{solitary:.3f}", 1.8 < solitary < 2.3),
        Line("model propagation with confidence", "0.0093", f"{confident:.4f}", confident < 0.02),
        Line("without confidence", "0.0249", f"{plain:.4f}", confident < plain < 0.05),
        Line("consensus", "1.006", f"{consensus:.3f}", 0.98 < consensus < 1.05),
        Line("draws in which confidence wins", "90 %", f"{wins:.0%}", wins >= 0.8),
        Line(f"distance to the closed form after {rounds} gossip steps, at most 1e-5", "0", f"{away:.1e}", away < 1e-5),
    ]


def lines() -> list[Line]:
    """Both."""
    return [*pfllib(), *propagation()]
