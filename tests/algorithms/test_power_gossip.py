import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stacks import SEED, classifier, play, stack, wine

from p2pfl import topology
from p2pfl.algorithms import DPSGD, Gossip, PowerGossip, State
from p2pfl.core.draws import keys, subkeys
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Public, Released, run_without_loop
from p2pfl.core.rows import Layout
from p2pfl.experiment import plan, read
from p2pfl.simulation import Faults, simulate
from p2pfl.topology import metropolis

MIXED = Layout(("w", "b", "kernel", "scale"), ((4, 6), (4,), (3, 2, 2), ()))
graphs = st.one_of(
    st.integers(3, 9).map(topology.ring),
    st.integers(2, 6).map(topology.complete),
    st.integers(3, 7).map(topology.star),
    st.integers(2, 7).map(topology.path),
)


def power(graph, layout=MIXED, **settings):
    return PowerGossip(graph, (metropolis(graph),), layout, SEED, **settings)


def exchanged(algorithm, rows, *, numbers, warm=None, faults=None, round=0):
    """Rows after exchanges of these numbers, and what is warm."""
    net = stack(algorithm.topology, faults=faults, round=round)
    warm = warm or {}
    for number in numbers:
        rows, warm = run_without_loop(algorithm.exchange(net, rows, warm, number=number))
    return rows, warm


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def paper(x, graph, *, numbers, direction):
    """Algorithm 1 of the paper, edge by edge, for one matrix a peer; ``direction`` gives an edge's first vector."""
    w = metropolis(graph).matrix.toarray()
    place = {peer: number for number, peer in enumerate(graph.peers)}
    edges = [tuple(sorted((place[a], place[b]))) for a, b in graph.edges]
    v = {edge: direction(edge) for edge in edges}
    x = list(x)
    for number in numbers:
        sent = [each.T if number % 2 else each for each in x]
        after = list(sent)
        for i, j in edges:
            unit = v[i, j] / np.linalg.norm(v[i, j])
            apart = sent[i] @ unit - sent[j] @ unit
            after[i] = after[i] - w[i, j] * np.outer(apart, unit)
            after[j] = after[j] + w[i, j] * np.outer(apart, unit)
            v[i, j] = apart
        x = [each.T if number % 2 else each for each in after]
    return x


@pytest.mark.parametrize(
    "graph", [topology.ring(5), topology.star(4), topology.complete(4)], ids=["ring", "star", "complete"]
)
def test_rank_one_is_the_algorithm_of_the_paper_edge_by_edge(graph):
    layout = Layout(("w",), ((4, 3),))
    rows = normal(len(graph.peers), 12)

    def first(edge):
        low, high = sorted(graph.peers[end] for end in edge)
        bits = subkeys(keys(SEED, "power gossip", (f"{low}\0{high}",), 0), np.arange(3))
        return (bits >> 11) * 2.0**-52

    expected = paper(rows.view(-1, 4, 3).numpy(), graph, numbers=range(7), direction=first)
    found, _ = exchanged(power(graph, layout), rows, numbers=range(7))
    assert found.view(-1, 4, 3).numpy() == pytest.approx(np.stack(expected), abs=1e-12)


def test_a_difference_of_rank_one_is_gone_after_two_exchanges():
    pair = topology.path(2)  # W is 1/2
    common, u, v = normal(5, 7), normal(5, 1, seed=1), normal(1, 7, seed=2)
    rows = torch.stack([common + u @ v, common - 3 * u @ v]).flatten(1)
    after, _ = exchanged(power(pair, Layout(("w",), ((5, 7),))), rows, numbers=range(2))
    assert (after - (common - u @ v).flatten()).abs().max() < 1e-13


@given(graphs, st.integers(1, 6), st.integers(0, 2**32), st.integers(0, 3))
def test_the_mean_of_the_rows_is_kept(graph, rank, seed, first):
    rows = normal(len(graph.peers), MIXED.size, seed=seed)
    after, _ = exchanged(power(graph, rank=rank), rows, numbers=range(first, first + 3))
    assert (after.mean(0) - rows.mean(0)).abs().max() < 1e-13
    assert (after - after.mean(0)).norm() < (rows - rows.mean(0)).norm()


@given(graphs, st.integers(0, 2**32))
def test_at_full_rank_it_is_plain_gossip(graph, seed):
    square = Layout(("w", "b"), ((5, 5), (3,)))
    rows = normal(len(graph.peers), square.size, seed=seed)
    after, _ = exchanged(power(graph, square, rank=5), rows, numbers=range(4))
    net = stack(graph)
    assert (after - run_without_loop(Gossip(4)(net, Released(rows))).values).abs().max() < 1e-12


def test_a_run_at_full_rank_is_dpsgd_that_adapts_first():
    graph = topology.ring(6)
    learner, _ = classifier(wine(graph.peers), batch=8)
    square = Layout(("w", "b"), ((6, 6), (6,)))  # of as many numbers as softmax regression on wine
    assert square.size == learner.layout.size
    whole = play(DPSGD(order="adapt_then_combine"), learner, graph, rounds=4)[-1].rows
    assert (play(power(graph, square, rank=6), learner, graph, rounds=4)[-1].rows - whole).abs().max() < 1e-12


@pytest.mark.slow
def test_peers_on_a_ring_come_to_their_mean():
    ring = topology.ring(6)
    rows = normal(6, MIXED.size)
    after, _ = exchanged(power(ring), rows, numbers=range(400))
    assert (after - rows.mean(0)).abs().max() < 1e-9


def test_warm_directions_find_more_than_fresh_ones():
    ring, layout = topology.ring(8), Layout(("w",), ((12, 12),))
    rows = normal(8, 144) * torch.logspace(0, -3, 12).double().repeat(12)
    warm, _ = exchanged(power(ring, layout), rows, numbers=range(10))
    cold = rows
    for number in range(10):
        cold, _ = exchanged(power(ring, layout), cold, numbers=[number])
    assert (warm - warm.mean(0)).norm() < 0.7 * (cold - cold.mean(0)).norm()


@pytest.mark.slow
@given(st.floats(0.0, 0.6), st.floats(0.0, 0.4), st.integers(0, 2**32))
def test_whatever_is_missed_two_ends_never_use_two_directions(loss, absence, seed):
    ring, faults = topology.ring(6), Faults(loss, absence)
    algorithm = power(ring)
    state = State(normal(6, MIXED.size, seed=seed), Public(torch.zeros(6, 0)))
    for round in range(12):
        there = faults.present(ring.peers, seed=SEED, round=round)
        rows, warm = exchanged(algorithm, state.rows, numbers=[round], warm=state.extra, faults=faults, round=round)
        state = State(rows, state.public, extra=warm).where(there, state)
        for one, other in ring.edges:
            ends = [ring.peers.index(peer) for peer in (one, other)]
            places = [ring.senders(one).index(other), ring.senders(other).index(one)]
            found, numbers = state.extra["direction"][ends, places], state.extra["number"][ends, 0]
            same = torch.equal(*found) or not found.any(-1).all()
            assert same or numbers[0] != numbers[1]


@pytest.mark.slow
def test_after_a_loss_both_ends_begin_anew_and_agree_again():
    ring = topology.ring(5)
    algorithm = power(ring)
    rows, warm = exchanged(algorithm, normal(5, MIXED.size), numbers=range(3))
    lost = {name: value.clone() for name, value in warm.items()}
    lost["direction"][1] = 0.0  # peer1 heard nobody
    unmoved, after = exchanged(algorithm, rows, numbers=[3], warm=lost)
    matrices = MIXED.split(unmoved - rows)
    assert matrices["w"][1].abs().max() == 0  # what the two ends did differently is not used
    assert matrices["b"][1].abs().max() > 0
    again, found = exchanged(algorithm, unmoved, numbers=range(4, 300), warm=after)
    assert found["direction"].any(-1).all()
    assert (again - again.mean(0)).abs().max() < 1e-7


def test_a_message_has_the_numbers_of_the_paper():
    run = simulate(
        {
            "rounds": 2,
            "topology": {"kind": "ring", "peers": 4},
            "model": {"hidden": [32]},
            "learning": {"algorithm": "power_gossip", "algorithm_options": {"rank": 2}},
        },
        baselines=False,
    )
    # 64 pixels to 32 to 10, each of 2 edges: n r, then m r; a flag an edge, and the biases once
    left, right = 2 * 2 * (32 + 10), 2 * 2 * (64 + 32)
    assert run.metrics[-1].bytes_out == 4 * (left + right + 2 * (2 + 42))


@pytest.mark.slow
def test_it_learns_digits_from_few_bytes():
    table = {
        "rounds": 40,
        "topology": {"kind": "ring", "peers": 6},
        "learning": {"steps": 4, "rate": 0.2},
    }
    few, whole = (
        simulate(table | {"learning": table["learning"] | given}, baselines=False).summary
        for given in (
            {"algorithm": "power_gossip"},
            {"algorithm": "dpsgd", "algorithm_options": {"order": "adapt_then_combine"}},
        )
    )
    assert few["together"] > whole["together"] - 0.03
    assert few["bytes_sent"] < whole["bytes_sent"] / 8


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        (["topology.kind=one_peer_exponential"], ExperimentError, "a schedule of .* graphs does not work"),
        (["topology.kind=exponential"], ExperimentError, "an asymmetric matrix does not work"),
        (["gossip.acceleration=chebyshev", "gossip.steps=3"], ExperimentError, "gossip.acceleration"),
        (["privacy.mode=pairwise"], ExperimentError, "privacy.mode"),
        (["compression.name=top_k"], ExperimentError, "compression.name"),
    ],
)
def test_what_it_does_not_go_with_is_said(changes, error, match):
    with pytest.raises(error, match=match):
        plan(read({"learning": {"algorithm": "power_gossip"}}, changes=changes))
