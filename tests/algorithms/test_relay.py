from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from convex import OPTIMUM, A, B, quadratics
from hypothesis import given
from hypothesis import strategies as st
from stacks import SEED, classifier, play, stack, wine

from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, Gossip, RelaySGD
from p2pfl.algorithms.relay import relay
from p2pfl.core.errors import TopologyError
from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.simulation import Faults

RATE = 0.05
TREE = topology.Topology.from_graph(
    nx.relabel_nodes(nx.from_edgelist([(0, 1), (1, 2), (1, 3)]), {n: f"peer{n}" for n in range(4)})
)
trees = st.integers(2, 9).flatmap(
    lambda n: st.tuples(*(st.integers(0, child - 1) for child in range(1, n))).map(
        lambda parents: topology.Topology(
            tuple(f"peer{number}" for number in range(len(parents) + 1)),
            tuple((f"peer{parent}", f"peer{child}") for child, parent in enumerate(parents, 1)),
        )
    )
)


def relayed(tree, rows, *, rounds, faults=None):
    """Sums and counts of fixed rows, round by round, as they stand where peers are there."""
    before, found = {}, []
    for round in range(rounds):
        net = stack(tree, faults=faults, round=round)
        sums, after = run_without_loop(relay(tree, net, Released(rows), before, round=round))
        there = (faults or Faults()).present(tree.peers, seed=SEED, round=round)
        if before:
            after = {
                name: torch.where(there.view(-1, *[1] * (value.dim() - 1)), value, before[name])
                for name, value in after.items()
            }
        found.append(sums[there])
        before = after
    return found


@given(trees, st.integers(0, 2**32))
def test_on_a_tree_every_peer_holds_the_exact_sum_after_as_many_rounds_as_the_diameter(tree, seed):
    rows = torch.from_numpy(np.random.default_rng(seed).integers(-1000, 1000, size=(len(tree.peers), 3))).float()
    steps = topology.diameter(tree)
    found = relayed(tree, rows, rounds=steps + 3)
    exact = torch.cat([rows.sum(0), torch.tensor([float(len(rows))])])
    assert all(torch.equal(sums, exact.expand_as(sums)) for sums in found[steps - 1 :])
    if steps > 1:
        assert (found[steps - 2][:, -1] < len(rows)).any()


@given(trees, st.floats(0.0, 0.7), st.floats(0.0, 0.5))
def test_whatever_is_lost_no_row_counts_twice_and_none_that_is_not_counted(tree, loss, absence):
    count = len(tree.peers)
    rows = 2.0 ** torch.arange(count, dtype=torch.float64).unsqueeze(-1)  # a sum tells whose rows are in it
    for sums in relayed(tree, rows, rounds=8, faults=Faults(loss, absence)):
        for total, number in sums.tolist():
            assert 0 < total < 2**count
            assert int(total).bit_count() == number


def test_a_round_is_that_of_the_paper_message_by_message():
    neighbours = {0: (1,), 1: (0, 2, 3), 2: (1,), 3: (1,)}
    x = [0.0] * 4
    told, counts = ({(i, j): 0.0 for i in neighbours for j in neighbours[i]} for _ in range(2))
    for state in play(RelaySGD(TREE), quadratics(), TREE, rounds=30)[1:]:
        half = [x[i] - RATE * (A[i] * x[i] + B[i]) for i in range(4)]
        others = {(i, j): [k for k in neighbours[i] if k != j] for i, j in told}
        tell = {(i, j): half[i] + sum(told[k, i] for k in others[i, j]) for i, j in told}
        count = {(i, j): 1 + sum(counts[k, i] for k in others[i, j]) for i, j in told}
        told, counts = tell, count
        x = [
            (half[i] + sum(told[j, i] for j in neighbours[i])) / (1 + sum(counts[j, i] for j in neighbours[i]))
            for i in range(4)
        ]
        assert state.rows.squeeze(-1).numpy() == pytest.approx(x, abs=1e-12)


@pytest.mark.slow
def test_it_ends_at_the_optimum_to_ten_digits():
    ends = play(RelaySGD(TREE), quadratics(), TREE, rounds=500)[-1].rows
    assert (ends - OPTIMUM).abs().max() < 1e-10


def test_two_peers_average_as_fedavg_does():
    pair = topology.path(2)
    learner, _ = classifier(wine(pair.peers), batch=8)
    relayed = play(RelaySGD(pair), learner, pair, rounds=5)[-1].rows
    averaged = play(FedAvg(Averaging(pair.peers, SEED, Gossip(), weighted=False)), learner, pair, rounds=5)[-1].rows
    assert (relayed - averaged).abs().max() < 1e-12


def test_nothing_of_an_absent_peer_moves():
    faults = Faults(absence=0.4)
    states = play(RelaySGD(TREE), quadratics(), TREE, rounds=6, faults=faults)
    for round, (before, after) in enumerate(pairwise(states)):
        there = faults.present(TREE.peers, seed=SEED, round=round)
        assert torch.equal(after.rows[~there], before.rows[~there])


def test_a_graph_that_is_no_tree_is_refused():
    with pytest.raises(TopologyError, match=r"relay_sgd needs a tree, and .* 4 edges for 4 peers; take a path"):
        RelaySGD(topology.ring(4))
    with pytest.raises(TopologyError, match="relay_sgd needs a tree, and the topology is directed"):
        RelaySGD(topology.exponential(4))
