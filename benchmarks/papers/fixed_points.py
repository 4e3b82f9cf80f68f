"""Fixed points on scalar quadratics, compared with closed forms to ten digits.

Peers minimise f_i(x) = a_i x^2 / 2 + b_i x with a = (2, .5, 1, 3) and b = (4, -3, 1, -6) by steps of .05. The optimum
of the sum is -(sum b) / (sum a), where SCAFFOLD ends. FedAvg with K local steps ends at -(sum w b / a) / (sum w),
w = 1 - (1 - .05 a)^K; adapt-then-combine descent on a ring, with weights 1/3, at (I - W (I - .05 A))^-1 (-.05 W b).
"""

import numpy as np
import torch
from torch import nn

from benchmarks.papers import Line
from p2pfl import topology as graphs
from p2pfl.algorithms import SCAFFOLD, Algorithm, Averaging, FedAvg, Gossip, State, learn, start
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner
from p2pfl.simulation import StackedNeighbourhood
from p2pfl.simulation.inline import Inline

A, B, RATE, STEPS = np.array([2.0, 0.5, 1.0, 3.0]), np.array([4.0, -3.0, 1.0, -6.0]), 0.05, 10
OPTIMUM, BIASED = 0.6153846154, 0.5984317101
COMBINED = (0.61757508, 0.55621519, 0.70580862, 0.59364454)
COMPLETE, RING = graphs.complete(4), graphs.ring(4)


def quadratics(steps: int) -> TorchLearner:
    """So many gradient steps a round on (z x - t)^2, which is a x^2 / 2 + b x and a constant."""
    z = np.sqrt(A / 2)
    data = Dataset(torch.from_numpy(z).unsqueeze(-1), torch.from_numpy(-B / (2 * z)), None)
    own = {peer: np.array([index]) for index, peer in enumerate(RING.peers)}
    line = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(line.weight)
    model = nn.Sequential(line)
    federation = Federation(data, own, own, own)
    return TorchLearner(model, federation, seed=0, rate=RATE, steps=steps, dtype=torch.float64, device="cpu")


async def nothing(_round: int, _state: State, _net: StackedNeighbourhood) -> None:
    """Look at no round."""


def ends(algorithm: Algorithm, topology: graphs.Topology, *, steps: int, rounds: int) -> list[float]:
    """Where each peer is after so many rounds."""
    learner = quadratics(steps)
    everybody = torch.ones(4, dtype=torch.bool)
    weights = [graphs.metropolis(topology)]
    coroutine = learn(
        algorithm,
        Inline(learner, present=lambda _: everybody, clock=lambda: 0.0),
        start(learner, topology.peers),
        rounds=range(rounds),
        neighbourhood=lambda round: StackedNeighbourhood(weights, round=round, seed=0),
        private=lambda net, _: net,
        observe=nothing,
    )
    found: list[float] = run_without_loop(coroutine).rows.squeeze(-1).tolist()
    return found


def line(what: str, published: float | tuple[float, ...], found: list[float], *, digits: int) -> Line:
    """A fixed point that is the same for all peers, or one of each."""
    expected = published if isinstance(published, tuple) else (published,) * len(found)
    met = all(round(mine, digits) == round(other, digits) for mine, other in zip(found, expected, strict=True))
    shown = found if isinstance(published, tuple) else found[:1]
    text = ", ".join(f"{value:.{digits}f}" for value in shown)
    return Line(what, ", ".join(f"{value:.{digits}f}" for value in dict.fromkeys(expected)), text, met)


def over(exchanges: int) -> Averaging:
    """The mean of all peers, who count alike."""
    return Averaging(RING.peers, 0, Gossip(exchanges), weighted=False)


def lines() -> list[Line]:
    """FedAvg, SCAFFOLD, and adapt-then-combine, which is FedAvg with one step and one exchange."""
    found = []
    for graph, exchanges, name in ((COMPLETE, 1, "complete graph"), (RING, 30, "ring, 30 gossip steps")):
        for what, algorithm, published in (
            ("FedAvg", FedAvg(over(exchanges)), BIASED),
            ("SCAFFOLD, option I", SCAFFOLD(over(exchanges), "I"), OPTIMUM),
            ("SCAFFOLD, option II", SCAFFOLD(over(exchanges), "II"), OPTIMUM),
        ):
            last = ends(algorithm, graph, steps=STEPS, rounds=150)
            found.append(line(f"{what}, {STEPS} local steps, {name}", published, last, digits=10))
    last = ends(FedAvg(over(1)), RING, steps=1, rounds=1000)
    return [*found, line("adapt-then-combine, ring", COMBINED, last, digits=8)]
