import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.core.draws import draw
from p2pfl.topology import Schedule, Topology, spectrum

CONNECTED = [
    *(graphs.ring(n) for n in (1, 2, 3, 9)),
    *(graphs.star(6), graphs.path(7), graphs.complete(5), graphs.grid(3, 4), graphs.torus(3, 5), graphs.hypercube(3)),
    graphs.small_world(20, degree=4, rewire=0.3, seed=1),
    graphs.random_regular(14, degree=3, seed=1),
    graphs.erdos_renyi(20, probability=0.2, seed=1),
]


@st.composite
def connected_graphs(draw, *, most=12):
    """A random tree and any further edges."""
    n = draw(st.integers(1, most))
    edges = [(i, draw(st.integers(0, i - 1))) for i in range(1, n)]
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    extra = draw(st.lists(pairs, max_size=2 * n)) if n > 1 else []
    return Topology(tuple(f"p{i:02}" for i in range(n)), tuple((f"p{a:02}", f"p{b:02}") for a, b in [*edges, *extra]))


def dense(weights):
    return weights.matrix.toarray()


def rho(topology):
    return graphs.contraction([graphs.metropolis(topology)])


def period(schedule):
    return [graphs.metropolis(topology) for topology in schedule.topologies]


# Exact: published and closed forms.


@pytest.mark.parametrize(
    ("topology", "published"),
    [
        *(
            (graphs.ring(8), 0.80473785),
            (graphs.ring(16), 0.94925302),
            (graphs.ring(25), 0.97905544),
            (graphs.ring(32), 0.98719019),
        ),
        *(
            (graphs.ring(64), 0.99678982),
            (graphs.ring(100), 0.99868449),
            (graphs.path(8), 0.94925302),
            (graphs.path(16), 0.98719019),
        ),
        *(
            (graphs.torus(3, 3), 0.4),
            (graphs.torus(4, 4), 0.6),
            (graphs.torus(5, 5), 0.72360680),
            (graphs.torus(8, 8), 0.88284271),
        ),
        *((graphs.torus(10, 10), 0.92360680), (graphs.hypercube(3), 0.5), (graphs.hypercube(4), 0.6)),
        *((graphs.hypercube(5), 2 / 3), (graphs.hypercube(6), 5 / 7)),
        *((graphs.star(n), 1 - 1 / n) for n in (3, 4, 10, 50)),
        *((graphs.complete(n), 0.0) for n in (1, 2, 7)),
    ],
)
def test_metropolis_contracts_by_the_published_rate(topology, published):
    assert rho(topology) == pytest.approx(published, abs=5e-9)


@pytest.mark.parametrize(
    ("n", "published"),
    [(4, 2 / 3), (6, 0.5), (12, 0.4), (16, 0.4), (32, 1 / 3), (100, 0.25), (5, 0.75), (25, 0.489139)],
)
def test_static_exponential_graph_has_the_published_gap(n, published):
    assert graphs.gap([graphs.metropolis(graphs.exponential(n))]) == pytest.approx(published, abs=5e-7)


def test_static_steps_follow_from_the_spectrum_even_where_the_power_is_exact():
    cube = [graphs.metropolis(graphs.hypercube(3))]  # rho = 1/2
    assert [graphs.steps(cube, tolerance=2.0**-s) for s in range(1, 30)] == list(range(1, 30))
    assert graphs.steps(cube, tolerance=2.0**-5 * 0.999) == 6
    assert graphs.steps([graphs.metropolis(graphs.complete(5))], tolerance=1e-12) == 1
    assert graphs.steps([graphs.metropolis(graphs.ring(1))], tolerance=1e-12) == 1


def test_turns_of_known_graphs_are_as_few_as_possible():
    assert max(graphs.turns(graphs.ring(6)).values()) == 2
    assert sorted(graphs.turns(graphs.star(5)).values()) == [0, 1, 2, 3, 4]
    assert graphs.turns(graphs.ring(1)) == {"peer0": 0}


def test_builders_number_peers_to_equal_width():
    assert graphs.ring(8).peers[:2] == ("peer0", "peer1")
    assert graphs.ring(16).peers[-1] == "peer15"
    assert graphs.ring(16).peers[0] == "peer00"
    assert (
        graphs.ring(1)
        == graphs.path(1)
        == graphs.complete(1)
        == graphs.star(1)
        == graphs.hypercube(0)
        == Topology(("peer0",), ())
    )
    assert graphs.ring(2) == graphs.path(2) == graphs.torus(1, 2) == Topology(("peer0", "peer1"), (("peer0", "peer1"),))
    assert graphs.exponential(5).senders("peer0") == ("peer1", "peer3", "peer4")
    assert graphs.exponential(5).receivers("peer0") == ("peer1", "peer2", "peer4")
    assert [t.senders("peer0") for t in graphs.one_peer_exponential(8).topologies] == [
        ("peer7",),
        ("peer6",),
        ("peer4",),
    ]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        *((graphs.ring(9), nx.cycle_graph(9)), (graphs.path(9), nx.path_graph(9)), (graphs.star(9), nx.star_graph(8))),
        *((graphs.complete(6), nx.complete_graph(6)), (graphs.hypercube(4), nx.hypercube_graph(4))),
        *((graphs.tree(15), nx.balanced_tree(2, 3)), (graphs.tree(14, branching=3), nx.full_rary_tree(3, 14))),
        (graphs.tree(6, branching=1), nx.path_graph(6)),
        *((graphs.grid(3, 4), nx.grid_2d_graph(3, 4)), (graphs.torus(3, 5), nx.grid_2d_graph(3, 5, periodic=True))),
    ],
)
def test_builders_build_the_graphs_networkx_builds(ours, theirs):
    # Their nodes in sorted order are our numbers, so the graphs are equal and not only isomorphic.
    names = dict(zip(sorted(theirs), ours.peers, strict=True))
    assert Topology.from_graph(nx.relabel_nodes(theirs, names)) == ours


@pytest.mark.parametrize("kind", graphs.BUILDERS)
def test_every_kind_is_built_from_a_number_of_peers(kind):
    built = graphs.build(kind, peers=16, seed=5)
    assert len(built.peers) == 16
    graphs.check_connected(built)


def test_grids_are_as_square_as_they_can_be():
    assert graphs.build("grid", peers=12, seed=0) == graphs.grid(3, 4)
    assert graphs.build("grid", peers=12, seed=0, rows=2) == graphs.grid(2, 6)
    assert graphs.build("torus", peers=7, seed=0) == graphs.ring(7)


# Neutral: what must change nothing.


@holds_for(connected_graphs(), st.randoms(use_true_random=False))
def test_a_topology_is_the_same_in_whatever_order_it_is_given(topology, random):
    edges = [random.choice([(a, b), (b, a)]) for a, b in topology.edges]
    peers = list(topology.peers)
    random.shuffle(edges)
    random.shuffle(peers)
    again = Topology(tuple(peers), (*edges, *edges))
    assert again == topology
    assert hash(again) == hash(topology)
    assert Topology.from_graph(again.to_graph()) == topology


def test_a_topology_is_the_schedule_of_period_one():
    ring = graphs.ring(5)
    assert ring.at(7) is ring.union is ring
    assert ring.period == Schedule((ring,)).period == 1
    assert Schedule((ring,)).at(7) == Schedule((ring,)).union == ring


@pytest.mark.parametrize("kind", ["small_world", "random_regular", "erdos_renyi"])
def test_random_graphs_depend_on_the_seed_and_on_nothing_else(kind):
    assert (
        graphs.build(kind, peers=30, seed=3)
        == graphs.build(kind, peers=30, seed=3)
        != graphs.build(kind, peers=30, seed=4)
    )


def test_weights_of_ones_own_are_returned_as_given():
    weights = graphs.max_degree(graphs.star(5))
    assert (dense(graphs.given(graphs.star(5), dense(weights))) == dense(weights)).all()
    assert (dense(graphs.given(graphs.star(5), weights.matrix)) == dense(weights)).all()


# Invariants.


@holds_for(connected_graphs(), st.sampled_from([graphs.metropolis, graphs.max_degree]))
def test_weights_are_symmetric_doubly_stochastic_and_as_sparse_as_the_graph(topology, rule):
    weights = rule(topology)
    matrix = dense(weights)
    assert weights.matrix.has_sorted_indices
    assert matrix.dtype == np.float64
    assert (matrix >= 0).all()
    assert (matrix.diagonal() > 0).all()
    np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-14)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_array_equal(matrix, matrix.T)
    edges = nx.to_numpy_array(topology.to_graph(), nodelist=topology.peers)
    np.testing.assert_array_equal((matrix - np.diag(matrix.diagonal())) > 0, edges > 0)
    assert graphs.contraction([weights]) < 1
    for row, peer in enumerate(topology.peers):
        assert tuple(weights.row(peer)) == tuple(sorted((peer, *topology.senders(peer))))
        assert list(weights.row(peer).values()) == matrix[row][matrix[row] > 0].tolist()


@holds_for(connected_graphs(), st.booleans(), st.randoms(use_true_random=False))
def test_no_listener_hears_two_peers_of_one_turn_nor_while_it_sends(topology, directed, random):
    if directed:
        arcs = tuple(random.choice([(a, b), (b, a)]) for a, b in topology.edges)
        topology = Topology(topology.peers, arcs, directed=True)
    turns = graphs.turns(topology)
    assert tuple(turns) == topology.peers
    for listener in topology.peers:
        at_once = [turns[peer] for peer in (listener, *topology.senders(listener))]
        assert len(set(at_once)) == len(at_once)


@holds_for(connected_graphs(most=8), connected_graphs(most=8), st.sampled_from([0.3, 1e-2, 1e-4]))
def test_steps_is_the_first_exchange_within_the_tolerance(one, other, tolerance):
    other = Topology(one.peers, tuple(edge for edge in other.edges if set(edge) <= set(one.peers)))
    weights = [graphs.metropolis(one), graphs.metropolis(other)]
    count = graphs.steps(weights, tolerance=tolerance)
    product = np.eye(len(one.peers)) - 1 / len(one.peers)
    for exchange in range(count):
        assert exchange == 0 or np.linalg.norm(product, 2) > tolerance * (1 - 1e-8)
        product = dense(weights[exchange % 2]) @ product
    assert np.linalg.norm(product, 2) <= tolerance * (1 + 1e-8)


@pytest.mark.parametrize("n", [9, 40, 101])
def test_random_builders_give_what_their_name_says(n):
    regular = graphs.random_regular(n, degree=4, seed=2)
    dense_regular = graphs.random_regular(n, degree=n - 1, seed=2)
    world = graphs.small_world(n, degree=4, rewire=0.5, seed=2)
    graph = graphs.erdos_renyi(n, probability=0.3, seed=2)
    for topology in (regular, dense_regular, world, graph):
        assert len(topology.peers) == n
        graphs.check_connected(topology)
    assert {len(regular.senders(peer)) for peer in regular.peers} == {4}
    assert dense_regular == graphs.complete(n)
    assert len(world.edges) == 2 * n
    assert graphs.small_world(n, degree=2, rewire=0, seed=2) == graphs.ring(n)


# Oracles.


@holds_for(connected_graphs())
def test_diameter_and_adjacency_agree_with_networkx(topology):
    graph = topology.to_graph()
    assert graphs.diameter(topology) == nx.diameter(graph)
    assert all(list(topology.senders(peer)) == sorted(graph[peer]) for peer in topology.peers)


@holds_for(st.lists(connected_graphs(), min_size=1, max_size=3))
def test_contraction_is_the_norm_of_the_product_without_its_mean(drawn):
    peers = max(drawn, key=lambda graph: len(graph.peers)).peers
    weights = [graphs.metropolis(Topology(peers, graph.edges)) for graph in drawn]
    product = np.linalg.multi_dot([np.eye(len(peers)), *(dense(each) for each in reversed(weights))])
    norm = np.linalg.svd(product - 1 / len(peers), compute_uv=False)[0]
    assert graphs.contraction(weights) == pytest.approx(norm, abs=1e-12)


@pytest.mark.parametrize("topology", [*CONNECTED, graphs.torus(15, 20), graphs.path(300)])
def test_lanczos_agrees_with_the_closed_solver(topology, monkeypatch):
    weights = graphs.metropolis(topology)
    exact = np.linalg.svd(dense(weights) - 1 / len(topology.peers), compute_uv=False)[0]
    monkeypatch.setattr(spectrum, "_DENSE", 80)  # the large ones by Lanczos, the small ones directly
    assert graphs.contraction([weights]) == pytest.approx(exact, abs=1e-11)
    other = graphs.metropolis(graphs.ring(len(topology.peers)))
    both = np.linalg.svd(dense(weights) @ dense(other) - 1 / len(topology.peers), compute_uv=False)[0]
    assert graphs.contraction([other, weights]) == pytest.approx(both, abs=1e-11)


def test_lanczos_knows_the_large_closed_forms():
    assert rho(graphs.ring(1000)) == pytest.approx(1 / 3 + 2 / 3 * math.cos(2 * math.pi / 1000), abs=1e-12)
    assert rho(graphs.exponential(512)) == pytest.approx(1 - 2 / 10, abs=1e-12)
    assert graphs.contraction(period(graphs.one_peer_exponential(512))) < 1e-14
    assert rho(graphs.complete(300)) < 1e-14


def test_chebyshev_steps_are_the_fewest_whose_polynomial_meets_the_tolerance():
    for radius in (0.05, 0.5, 0.9, 0.999):
        for tolerance in (0.5, 1e-3, 1e-9):
            count = graphs.chebyshev_steps(radius, tolerance)
            bounds = [1 / np.polynomial.Chebyshev.basis(s)(1 / radius) for s in range(count + 1)]
            assert bounds[count] <= tolerance * (1 + 1e-6)
            assert count == 1 or bounds[count - 1] > tolerance
    assert graphs.chebyshev_steps(0.0, 1e-3) == 1


def test_normal_directed_weights_take_the_short_way_to_the_same_steps():
    weights = graphs.metropolis(graphs.one_peer_exponential(9).at(0))  # a directed ring
    assert graphs.steps([weights], tolerance=1e-2) == graphs.steps([weights, weights], tolerance=1e-2)


@pytest.mark.parametrize(("peers", "degree"), [(10, 3), (50, 4), (301, 6), (9, 6)])
def test_a_random_regular_graph_is_the_one_that_networkx_draws_from_the_same_generator(peers, degree):
    ours = graphs.random_regular(peers, degree=degree, seed=3)
    drawn = draw(3, "topology", round=0)
    dense = 2 * degree >= peers
    theirs = nx.random_regular_graph(peers - 1 - degree if dense else degree, peers, seed=drawn)
    theirs = nx.complement(theirs) if dense else theirs
    assert nx.is_connected(theirs)  # so it is the first draw
    names = sorted(ours.peers)
    assert set(ours.edges) == {tuple(sorted((names[a], names[b]))) for a, b in theirs.edges()}
