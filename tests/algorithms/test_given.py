"""What peers of running sums gave each other: whoever dies, the others know what it took."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from stacks import SEED, play, push, quadratics

from p2pfl import topology
from p2pfl.algorithms import RobustSGP, State
from p2pfl.core.neighbourhood import Public
from p2pfl.core.rows import Layout
from p2pfl.simulation import Faults

ROW = Layout(("row",), ((1,),))


@dataclass(frozen=True)
class Deaths(Faults):
    """Peers that are there up to a round, by number, and links that lose."""

    last: dict[int, int] = field(default_factory=dict)

    def present(self, peers, *, seed, round):
        """Who lives, ``[N]`` bool."""
        there = super().present(peers, seed=seed, round=round)
        return there & torch.tensor([round < self.last.get(number, round + 1) for number in range(len(peers))])

    def senders(self, weights, *, seed, round, step):
        """The weights of those who live and were heard."""
        heard = super().senders(weights, seed=seed, round=round, step=step).toarray()
        there = self.present(range(len(heard)), seed=seed, round=round).numpy()
        heard = heard * np.outer(there, there) + np.diag(heard.diagonal() * ~there)
        return scipy.sparse.csr_array(heard)


def ends(graph, values, faults, *, rounds):
    """The last state of all, those of the dead as they were."""
    rows = torch.tensor(values, dtype=torch.float64).unsqueeze(-1)  # [N, 1]
    idle = quadratics([0.0] * len(values), [0.0] * len(values), rate=0.0, steps=1)
    algorithm = RobustSGP(graph, ROW)
    return algorithm, play(
        algorithm, idle, graph, rounds=rounds, weigh=push, faults=faults, begin=State(rows, Public(rows))
    )[-1]


def held(state):
    """Values, weighted, and masses, ``[N, 2]``."""
    return torch.cat([state.rows * state.extra["mass"], state.extra["mass"]], dim=-1).numpy()


def test_three_peers_by_hand():
    """On a path the last of three dies after a round; the one in the middle goes on to give it a third."""
    graph = topology.path(3)
    algorithm, state = ends(graph, [6.0, 12.0, 18.0], Deaths(last={2: 1}), rounds=2)
    # Round 1: the ends keep half and the middle a third; 0 has (3 + 4, 1/2 + 1/3), 1 (4 + 3 + 9, 4/3), 2 (9 + 4, 5/6).
    # Round 2: 0 keeps (7/2, 5/12) and hears (16/3, 4/9); 1 keeps (16/3, 4/9) and hears (7/2, 5/12); 2 is dead.
    both = [7 / 2 + 16 / 3, 5 / 12 + 4 / 9]
    assert held(state) == pytest.approx(np.array([both, both, [13.0, 5 / 6]]), abs=1e-12)
    gave = algorithm.given(state, peers=graph.peers, to="peer2").numpy()
    assert gave == pytest.approx(np.array([[0.0, 0.0], [4 + 16 / 3 - 9, 1 / 3 + 4 / 9 - 1 / 2], [0.0, 0.0]]), abs=1e-12)
    lost = np.array([18.0, 1.0]) + gave.sum(0)  # what peer2 put in, and what the others gave it
    assert lost == pytest.approx(np.array([13 + 16 / 3, 5 / 6 + 4 / 9]), abs=1e-12)  # held, and on its way
    assert held(state)[:2].sum(0) + lost == pytest.approx(np.array([36.0, 3.0]), abs=1e-12)


GRAPHS = {
    "path": topology.path(5),
    "ring": topology.ring(5),
    "complete": topology.complete(4),
    "exponential": topology.exponential(6),
    "one way": topology.Topology(
        topology.ring(4).peers,
        tuple((f"peer{a}", f"peer{b}") for a, b in [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 3)]),
        directed=True,
    ),
}


@given(st.sampled_from(sorted(GRAPHS)), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.2]), st.data())
def test_what_survivors_hold_is_what_they_put_in_less_what_is_on_its_way_and_what_they_gave_the_dead(
    kind, loss, absence, data
):
    graph, rounds = GRAPHS[kind], 8
    count = len(graph.peers)
    last = data.draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, rounds - 1), max_size=count - 1))
    values = np.random.default_rng(SEED).normal(size=count)
    algorithm, state = ends(graph, values, Deaths(loss, absence, last=last), rounds=rounds)
    gave = np.stack([algorithm.given(state, peers=graph.peers, to=peer).numpy() for peer in graph.peers])  # [to, N, 2]
    put = np.stack([values, np.ones(count)], axis=-1)  # [N, 2]
    left = [number for number in range(count) if number not in last]
    dead = sorted(last)
    assert held(state) == pytest.approx(put - gave.sum(0), abs=1e-12)  # everybody knows what it put in
    way = gave[np.ix_(left, left)].sum((0, 1))
    gone = gave[np.ix_(dead, left)].sum((0, 1))
    assert held(state)[left].sum(0) + way + gone == pytest.approx(put[left].sum(0), abs=1e-12)
    taken = put[dead].sum(0) + gone  # what the dead hold, and what is on its way from, to and among them
    assert taken == pytest.approx(put.sum(0) - held(state)[left].sum(0) - way, abs=1e-12)


def test_what_survivors_come_to_is_the_average_of_what_they_put_in_less_what_they_gave_the_dead():
    """On a complete graph without loss they agree in a round, while the mass that they hold falls by a quarter."""
    graph = topology.complete(4)
    algorithm, state = ends(graph, [1.0, 2.0, 3.0, 4.0], Deaths(last={3: 2}), rounds=12)
    assert state.extra["mass"][:3, 0].numpy() == pytest.approx(0.75**10, abs=1e-12)
    gave = algorithm.given(state, peers=graph.peers, to="peer3").numpy()[:3].sum(0)
    value, mass = np.array([6.0, 3.0]) - gave
    assert state.rows[:3, 0].numpy() == pytest.approx(value / mass, abs=1e-9)
