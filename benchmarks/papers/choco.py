"""Koloskova, Stich, Jaggi: Decentralized optimization and gossip with compressed communication (ICML 2019).

Consensus of 25 rows of 2,000 numbers on a ring with weights of 1/3: exact gossip, and CHOCO-Gossip under QSGD of 256
levels, the largest percent and a random percent, with the paper's steps of consensus. The paper starts from rows of the
data set epsilon (several GB); rows of Gaussian numbers and unit norm show the same rates. Published are curves: that
QSGD is as fast as exact gossip, and that all are linear. The errors that the two sparse ones must show
are those of an independent implementation from such rows; that it is another draw of rows leaves a factor.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from benchmarks.papers import Line
from p2pfl import topology as graphs
from p2pfl.algorithms import Choco, Compressed, Gossip, Idle, State
from p2pfl.core.codecs import QSGD, Codec
from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.sparse_codecs import RandomK, TopK
from p2pfl.learning import ExternalLearner
from p2pfl.simulation import StackedNeighbourhood

PEERS, LENGTH = 25, 2000
GRAPH = graphs.ring(PEERS)
WEIGHTS = [graphs.metropolis(GRAPH)]
SPARSE: dict[str, tuple[Codec, float, tuple[int, int], tuple[float, float]]] = {
    "largest 1 %": (TopK(0.01), 0.046, (4000, 10_000), (3.6e-5, 2.8e-10)),
    "random 1 %": (RandomK(0.01, seed=0), 0.011, (16_000, 40_000), (4.7e-5, 5.7e-10)),
}
"""Codec, gamma, exchanges, and the relative squared errors of the independent implementation after them."""


def start() -> torch.Tensor:
    """Gaussian rows of unit norm, ``[25, 2000]``."""
    rows = draw(0, "choco").standard_normal((PEERS, LENGTH))
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def errors(codec: Codec | None, *, gamma: float, exchanges: tuple[int, ...]) -> tuple[list[float], float]:
    """Squared distance from the mean over what it was, after so many exchanges; and how far the mean moved."""
    rows = start()
    mean = rows.mean(0)
    first = float((rows - mean).square().sum())
    algorithm = Choco(Gossip(1)) if codec is None else Compressed(Choco(Gossip(1)), codec, gamma)
    state = State(rows, Public(torch.zeros_like(rows)))  # nothing of the rows is known to others
    learner = Idle(ExternalLearner(lambda row, *, peer, round: row, start=rows[0], samples={}))  # noqa: ARG005
    found = []
    for round in range(max(exchanges)):
        net = StackedNeighbourhood(WEIGHTS, round=round, seed=0)
        state = run_without_loop(algorithm.round(state, learner, net, round))
        if round + 1 in exchanges:
            found.append(float((state.rows - mean).square().sum()) / first)
    return found, float((state.rows.mean(0) - mean).abs().max())


def lines(*, most: int = 40_000) -> list[Line]:
    """The rates; only those that take at most so many exchanges are run."""
    rho = graphs.contraction(WEIGHTS)
    (exact, far), _ = errors(None, gamma=1.0, exchanges=(200, 600))
    (short, end), moved = errors(QSGD(256), gamma=1.0, exchanges=(200, 600))
    rate, coded = (math.pow(late / early, 1 / 400) for early, late in ((exact, far), (short, end)))
    found = [
        Line("exact gossip: factor per gossip step, rho^2", f"{rho**2:.4f}", f"{rate:.4f}", abs(rate - rho**2) < 2e-4),
        Line(
            "QSGD, 256 levels, gamma 1: factor per gossip step, as exact",
            f"{rate:.4f}",
            f"{coded:.4f}",
            coded < rate + 5e-4,
        ),
        Line(
            "QSGD: error after 600 gossip steps, divided by that of exact gossip",
            "within 5 %",
            f"{end / far:.3f}",
            end < 1.05 * far,
        ),
        Line("QSGD: drift of the mean", "0", f"{moved:.0e}", moved < 1e-12),
    ]
    for name, (codec, gamma, exchanges, wanted) in SPARSE.items():
        published = ", ".join(f"{error:.1e}" for error in wanted)
        what = (
            f"{name}, gamma {gamma:g}: relative squared error after {exchanges[0]:,} and {exchanges[1]:,} gossip steps"
        )
        if exchanges[1] > most:
            found.append(Line(what, published, "not run", None, f"more than {most:,} gossip steps"))
            continue
        ours, moved = errors(codec, gamma=gamma, exchanges=exchanges)
        close = all(want / 3 < have < 3 * want for have, want in zip(ours, wanted, strict=True))
        found.append(Line(what, published, ", ".join(f"{error:.1e}" for error in ours), close))
        found.append(Line(f"{name}: drift of the mean", "0", f"{moved:.0e}", moved < 1e-12))
    return found
