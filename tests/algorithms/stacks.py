"""All rows of an algorithm at once, and losses whose fixed points are known."""

import numpy as np
import scipy.sparse
import torch

from p2pfl.algorithms import State, learn, start
from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.data import federate
from p2pfl.learning import ExternalLearner, TorchLearner, build
from p2pfl.simulation import Faults, StackedNeighbourhood
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.playing import AttendanceAlgorithm
from p2pfl.topology import Topology, Weights, metropolis

SEED = 3
RATE = 0.2


def stack(topology, *, faults=None, round=0, weigh=metropolis):
    """The neighbourhood of one round, with Metropolis weights."""
    weights = [weigh(topology.at(phase)) for phase in range(topology.period)]
    return StackedNeighbourhood(weights, round=round, seed=SEED, faults=faults)


def play(algorithm, learner, topology, *, rounds, faults=None, stop=None, weigh=metropolis, begin=None):
    """The states of all peers: their start, or where they ``begin``, then one for each round."""
    faults = faults or Faults()
    states = [begin or start(learner, topology.peers)]

    async def observe(_round: int, state: State, _net: StackedNeighbourhood) -> None:
        states.append(state)

    def present(round: int) -> torch.Tensor:
        return faults.present(topology.peers, seed=SEED, round=round)

    coroutine = learn(
        AttendanceAlgorithm(algorithm, present=present),
        Inline(learner, present=present, clock=lambda: 0.0),
        states[0],
        rounds=range(rounds),
        neighbourhood=lambda round: stack(topology, faults=faults, round=round, weigh=weigh),
        private=lambda net, _: net,
        observe=observe,
        stop=stop,
    )
    assert run_without_loop(coroutine) is states[-1]
    return states


def mixed(gossip, topology, rows, *, faults=None):
    """Rows after a round's gossip."""
    return run_without_loop(gossip(stack(topology, faults=faults), Released(rows))).values


def wine(peers, *, split="dirichlet"):
    """Real data, differently much of it at each peer."""
    return federate("wine", peers=peers, split=split, seed=SEED, alpha=1.0, options={})


def classifier(federation, *, rate=RATE, **settings):
    """Softmax regression in double precision, and the module it is made of."""
    dataset = federation.dataset
    model = build("linear", shape=dataset.shape, classes=dataset.classes, seed=SEED)
    settings = {"seed": SEED, "rate": rate, "dtype": torch.float64, "device": "cpu"} | settings
    return TorchLearner(model, federation, **settings), model.double()


def quadratics(a, b, *, rate, steps, sizes=None):
    r"""Gradient descent on :math:`f_i(x) = a_i x^2 / 2 + b_i x`, one number for each peer."""

    def descend(row: torch.Tensor, *, peer: str, round: int) -> torch.Tensor:
        del round  # all are alike
        own = int(peer.removeprefix("peer"))
        for _ in range(steps):
            row = row - rate * (a[own] * row + b[own])
        return row

    samples = {f"peer{number}": size for number, size in enumerate(sizes or [1] * len(a))}
    return ExternalLearner(descend, start=torch.zeros(1, dtype=torch.float64), samples=samples)


def push(topology):
    """Column-stochastic weights: every sender splits evenly among itself and those who hear it."""
    hears = topology.adjacency.toarray() + np.eye(len(topology.peers))
    return Weights(topology.peers, scipy.sparse.csr_array(hears / hears.sum(0)))


def circulant(n, hops):
    """A directed graph in which peer i sends to i + hop for every hop."""
    peers = tuple(f"peer{number}" for number in range(n))
    edges = {(peers[number], peers[(number + hop) % n]) for number in range(n) for hop in hops}
    return Topology(peers, tuple(sorted(edges)), directed=True)
