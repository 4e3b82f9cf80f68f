"""Fixed points of gradient tracking, D2, exact diffusion and RelaySGD on quadratics: closed forms and an order.

Four peers with a x^2 / 2 + b x on a path (ring for DGD), then sixteen with far apart minima and noisy
gradients. The order is that of Table 2 of Vogels et al. (2021) at Dirichlet 0.01: RelaySGD 86.5 and gradient
push 86.7 above D-PSGD 53.9 and D2 38.2 on CIFAR-10.
"""

import numpy as np
import torch

from benchmarks.papers import Line
from p2pfl import topology
from p2pfl.algorithms import D2, DPSGD, SGP, Algorithm, ExactDiffusion, GradientTracking, RelaySGD, start
from p2pfl.algorithms.relay import relay
from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.data import Dataset, Federation
from p2pfl.learning import Learner, TorchLearner
from p2pfl.simulation import StackedNeighbourhood
from p2pfl.simulation.inline import Inline

A, B, RATE = np.array([2.0, 0.5, 1.0, 3.0]), np.array([4.0, -3.0, 1.0, -6.0]), 0.05
OPTIMUM = 0.6153846154


class Quadratic(torch.nn.Module):
    """One number x; a sample is (a, b)."""

    def __init__(self) -> None:
        super().__init__()
        self.x = torch.nn.Parameter(torch.zeros(1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """``a x^2 / 2 + b x``, ``[B]``."""
        return features[:, 0] * self.x**2 / 2 + features[:, 1] * self.x


def learner(samples: list[np.ndarray], *, rate: float, batch: int | None) -> TorchLearner:
    """Stochastic gradient descent on each peer's samples ``[n, 2]``."""
    bounds = np.cumsum([0, *map(len, samples)])
    own = {
        f"peer{i:02}" if len(samples) > 10 else f"peer{i}": np.arange(bounds[i], bounds[i + 1])
        for i in range(len(samples))
    }
    features = torch.tensor(np.concatenate(samples), dtype=torch.float32)
    federation = Federation(Dataset(features, torch.zeros(len(features)), classes=None), own, own, own)
    return TorchLearner(
        Quadratic(),
        federation,
        loss=lambda outputs, _: outputs,
        seed=1,
        rate=rate,
        batch=batch,
        steps=1,
        dtype=torch.float64,
        device="cpu",
    )


def ends(
    algorithm: Algorithm, trained: Learner, graph: topology.Topology | topology.Schedule, *, rounds: int
) -> torch.Tensor:
    """Rows ``[N]`` after so many rounds, the mean over the last tenth of them."""
    weights = [topology.metropolis(graph.at(phase)) for phase in range(graph.period)]
    everybody = torch.ones(len(graph.peers), dtype=torch.bool)
    inline = Inline(trained, present=lambda _: everybody, clock=lambda: 0.0)
    state, late = start(trained, graph.peers), []
    for round in range(rounds):
        net = StackedNeighbourhood(weights, round=round, seed=0)
        state = run_without_loop(algorithm.round(state, inline, net, round))
        late += [state.rows.squeeze(-1)] * (round >= 0.9 * rounds)
    return torch.stack(late).mean(0) if late else state.rows.squeeze(-1)


def fixed_points() -> list[Line]:
    """B.11: the optimum to ten digits, and where D-PSGD ends instead."""
    ring, path = topology.ring(4), topology.path(4)
    one = learner([np.array([[a, b]]) for a, b in zip(A, B, strict=True)], rate=RATE, batch=None)
    found = []
    unbiased: list[tuple[str, Algorithm, topology.Topology]] = [
        ("gradient tracking on a ring", GradientTracking(), ring),
        ("D2 on a path", D2(), path),
        ("exact diffusion on a ring", ExactDiffusion(), ring),
        ("RelaySGD on a path", RelaySGD(path), path),
    ]
    for name, algorithm, graph in unbiased:
        rows = ends(algorithm, one, graph, rounds=600)
        worst = float(rows[(rows - OPTIMUM).abs().argmax()])
        found.append(Line(f"{name} ends at", f"{OPTIMUM:.10f}", f"{worst:.10f}", abs(worst - OPTIMUM) < 1e-10))
    mixing = topology.metropolis(ring).matrix.toarray()
    atc = np.linalg.solve(np.eye(4) - mixing + RATE * np.diag(A), -RATE * B)
    ours = ends(DPSGD(), one, ring, rounds=600).numpy()
    wanted, got = ("(" + ", ".join(f"{number:.8f}" for number in numbers) + ")" for numbers in (atc, ours))
    return [*found, Line("D-PSGD on a ring ends at", wanted, got, bool(abs(atc - ours).max() < 1e-10))]


def relay_sum() -> Line:
    """B.10: fixed inputs are summed exactly after as many rounds as the diameter."""
    graph = topology.path(16)
    rows = torch.from_numpy(np.random.default_rng(0).integers(-999, 999, (16, 5))).float()
    before: dict[str, torch.Tensor] = {}
    for round in range(100):
        net = StackedNeighbourhood([topology.metropolis(graph)], round=round, seed=0)
        sums, after = run_without_loop(relay(graph, net, Released(rows), before, round=round))
        before = dict(after)
        if torch.equal(sums[:, :-1], rows.sum(0).expand(16, 5)):
            break
    steps = topology.diameter(graph)
    return Line("RelaySum on a chain of 16, rounds to the exact sum", str(steps), str(round + 1), round + 1 == steps)


def order() -> list[Line]:
    """Table 2 of RelaySum: who ends near the optimum where minima are far apart."""
    random, count = np.random.default_rng(0), 16
    slopes, minima = random.uniform(0.5, 1.5, count), 10 * random.normal(size=count)
    samples = [
        np.stack([np.full(64, slope), -slope * minimum + 0.1 * random.normal(size=64)], axis=1)
        for slope, minimum in zip(slopes, minima, strict=True)
    ]
    best = -sum(each[:, 1].mean() for each in samples) / sum(each[:, 0].mean() for each in samples)
    trained = learner(samples, rate=0.05, batch=8)
    ring, chain, push = topology.ring(count), topology.path(count), topology.one_peer_exponential(count)
    runs: dict[str, tuple[Algorithm, topology.Topology | topology.Schedule]] = {
        "RelaySGD": (RelaySGD(chain), chain),
        "SGP": (SGP(), push),
        "D2": (D2(), ring),
        "D-PSGD": (DPSGD(), ring),
    }
    error = {
        name: float((ends(algorithm, trained, graph, rounds=300) - best).square().mean().sqrt())
        for name, (algorithm, graph) in runs.items()
    }
    words, worse = (
        ", ".join(f"{name} {number:.2g}" for name, number in error.items()),
        max(error["RelaySGD"], error["SGP"]),
    )
    why = "on a convex loss D2 has no bias; the paper's networks are deep and its step sizes tuned"
    return [
        Line(
            f"distant minima, distance from the optimum: {name}",
            f"RelaySGD, SGP < {name}",
            words,
            met,
            "" if met else why,
        )
        for name, met in (("D-PSGD", worse < error["D-PSGD"]), ("D2", worse < error["D2"]))
    ]


def lines() -> list[Line]:
    """Everything."""
    return [*fixed_points(), relay_sum(), *order()]


if __name__ == "__main__":
    for line in lines():
        print(line)
