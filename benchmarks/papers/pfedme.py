"""Dinh, Tran, Nguyen: Personalized federated learning with Moreau envelopes, pFedMe (NeurIPS 2020).

MNIST, 20 peers of two classes each, softmax regression on standardised pixels; the published figures are those
of curves stored with its code. Its program deals the same samples every time, and so do we: they make the sizes that
the paper names, 1,165 to 3,834. A slip in it makes peers share pictures, and gives most of them one wrong label. What
it scores as personal are not the theta_k of the paper but the w_k after a peer's own steps: both names are bound to the
same numbers. We show both.

Source: github.com/CharlieDinh/pFedMe.
"""

import random
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from benchmarks.papers import Line
from benchmarks.papers.personal import pictures
from p2pfl import topology as graphs
from p2pfl.algorithms import PFedMe, State
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan, plan, read
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import Faults, StackedNeighbourhood
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.playing import play_rounds


@lru_cache
def users() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Positions and labels of each user's samples, as data/Mnist/generate_niid_10users.py of pFedMe deals them.

    There a mask stands where counters were meant: at a label's first turn a user gets its pictures from the first on,
    later from the second on, however many are gone. Labels are then one more than pictures, and shift by one.
    """
    targets = pictures("mnist").targets.numpy()
    cuts, shuffle = np.random.RandomState(1), random.Random(1).shuffle  # noqa: S311 (the program's own)
    shares, later = [], targets[:10] == 9
    for held in np.bincount(targets).tolist():
        left = held
        for _ in range(3):
            shares.append(cuts.randint(left // 5, left // 2))
            left -= shares[-1]
        shares.append(left)
    turns = iter(np.reshape(shares, (10, 4)).T.ravel().tolist())
    found = []
    for user in range(20):
        places, labels = [], []
        for label in (user % 10, (user + 1) % 10):
            count = next(turns)
            places += np.flatnonzero(targets == label)[int(later[label]) : count].tolist()
            labels += [label] * count
            later[label] = True
        both = list(zip(places, labels))  # noqa: B905 (the last label is lost)
        shuffle(both)
        found.append((torch.tensor([place for place, _ in both]), torch.tensor([label for _, label in both])))
    return found


@lru_cache
def standardised() -> torch.Tensor:
    """MNIST, each pixel with mean 0 and deviation 1 over all pictures, ``[n, 784]``."""
    features = pictures("mnist").features.flatten(1)
    return (features - features.mean(0)) / (features.std(0) + 1e-3 / 255)


def digits(*, peer: str, peers: tuple[str, ...], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A peer's own part of MNIST in pFedMe's experiment."""
    del seed  # the program has its own
    places, labels = users()[peers.index(peer)]
    return standardised()[places], labels


PFEDME: dict[str, Any] = {
    "name": "pfedme",
    "topology": {"kind": "complete", "peers": 20},
    "data": {"name": "benchmarks.papers.pfedme:digits", "test": 0.25},
    "model": {"name": "linear"},
    "learning": {"algorithm": "pfedme", "fraction": 0.25, "rate": 0.1, "batch": 20, "device": "cpu"},
    "gossip": {"steps": 1},
}


def alone(resolved: Plan, public: Rows, *, round: int) -> State:
    """What every peer's own steps of a round make of the common model: theta_k, and w_k before any is averaged."""
    algorithm, names = resolved.algorithm, resolved.topology.peers
    if not isinstance(algorithm, PFedMe):
        raise TypeError(f"expected PFedMe, got {algorithm}")
    net = StackedNeighbourhood([graphs.natural(graphs.Topology(names, ()))], round=round, seed=0)
    everybody = replace(algorithm, average=replace(algorithm.average, fraction=1.0))
    present = torch.ones(len(names), dtype=torch.bool)
    learner = Inline(resolved.learner, present=lambda _: present, clock=lambda: 0.0)
    return run_without_loop(everybody.round(State(public, Public(public)), learner, net, round))


def curves(*changes: str, rounds: Collection[int]) -> dict[int, tuple[float, float, float]]:
    """Accuracy over all test samples of theta_k, w_k and the common model after these rounds."""
    last = max(rounds)
    resolved = plan(read(PFEDME, changes=[f"rounds={last}", *changes]))
    names, common = resolved.topology.peers, {0: resolved.learner.start(resolved.topology.peers)}
    sizes = torch.tensor([len(resolved.federation.test[name]) for name in names], dtype=torch.float64)  # [N]

    def score(rows: Rows) -> float:
        accuracy = resolved.learner.evaluate(rows, peers=names)["accuracy"]  # [N]
        return float((accuracy * sizes).sum() / sizes.sum())

    async def observe(round: int, state: State, _: object, __: object) -> None:
        if {round + 1, round + 2} & set(rounds):
            common[round + 1] = state.public.rows

    run_without_loop(
        play_rounds(resolved, source=SeededSource(0), rounds=range(last), faults=Faults(), observe=observe)
    )
    own = {each: alone(resolved, common[each - 1], round=each - 1) for each in rounds}
    return {each: (score(own[each].rows), score(own[each].public.rows), score(common[each])) for each in rounds}


PERSONAL = {1: 0.8947, 100: 0.9328, 400: 0.9416, 800: 0.9454}
COMMON = {10: 0.7005, 50: 0.8708, 100: 0.8960, 400: 0.9205, 800: 0.9286}


def lines() -> list[Line]:
    """The curves of pFedMe, within a point."""
    own = curves(rounds=PERSONAL)
    shared = curves("learning.rate=0.09", "learning.algorithm_options={steps=10}", rounds=COMMON)
    return [
        *(near(f"w_k (its program's personal models), round {t}", PERSONAL[t], own[t][1]) for t in PERSONAL),
        *(Line(f"theta_k (the paper's), round {t}", "-", f"{own[t][0]:.4f}", None, SCORED) for t in own),
        *(near(f"common model, round {t}", COMMON[t], shared[t][2]) for t in COMMON),
    ]


def near(what: str, published: float, ours: float) -> Line:
    """A line that is met within a point."""
    met = abs(published - ours) <= 0.01
    why = "" if met else f"by {100 * abs(published - ours):.1f} points; {UNKNOWN}"
    return Line(what, f"{published:.4f}", f"{ours:.4f}", met, why)


SCORED = "not scored by their program"
UNKNOWN = "their initial model and participants are unknown"
