import math
import re

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given as holds_for
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.errors import TopologyError
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


def refuses(sentence):
    return pytest.raises(TopologyError, match=re.escape(sentence))


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
    assert graphs.exponential(5).hears("peer0") == ("peer1", "peer3", "peer4")
    assert graphs.exponential(5).heard_by("peer0") == ("peer1", "peer2", "peer4")
    assert [t.hears("peer0") for t in graphs.one_peer_exponential(8).topologies] == [("peer7",), ("peer6",), ("peer4",)]


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
        assert tuple(weights.row(peer)) == tuple(sorted((peer, *topology.hears(peer))))
        assert list(weights.row(peer).values()) == matrix[row][matrix[row] > 0].tolist()


@holds_for(connected_graphs(), st.booleans(), st.randoms(use_true_random=False))
def test_no_listener_hears_two_peers_of_one_turn_nor_while_it_sends(topology, directed, random):
    if directed:
        arcs = tuple(random.choice([(a, b), (b, a)]) for a, b in topology.edges)
        topology = Topology(topology.peers, arcs, directed=True)
    turns = graphs.turns(topology)
    assert tuple(turns) == topology.peers
    for listener in topology.peers:
        at_once = [turns[peer] for peer in (listener, *topology.hears(listener))]
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
    assert {len(regular.hears(peer)) for peer in regular.peers} == {4}
    assert dense_regular == graphs.complete(n)
    assert len(world.edges) == 2 * n
    assert graphs.small_world(n, degree=2, rewire=0, seed=2) == graphs.ring(n)


# Oracles.


@holds_for(connected_graphs())
def test_diameter_and_adjacency_agree_with_networkx(topology):
    graph = topology.to_graph()
    assert graphs.diameter(topology) == nx.diameter(graph)
    assert all(list(topology.hears(peer)) == sorted(graph[peer]) for peer in topology.peers)


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
    assert graphs.steps([weights], tolerance=1e-2) == graphs.steps(lambda _: weights, tolerance=1e-2)


# What is refused, and how.


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a+b", "#", "ä", "a" * 23, "a\n"])
def test_malformed_names_are_refused(name):
    with refuses(f"{name!r} is not a valid peer name; rename it with 1 to 22 letters, digits"):
        Topology((name, "ada"), ())


def test_graphs_that_contradict_themselves_are_refused():
    with refuses('peer name "ada" is used twice; rename one of the peers'):
        Topology(("ada", "bob", "ada"), ())
    with refuses('the edge ("ada", "bob") leads to an unknown peer; add bob to the peers or remove the edge'):
        Topology(("ada",), (("ada", "bob"),))
    with refuses('peer "ada" is not one of the 3 peers (peer0, peer1, peer2); check its name'):
        graphs.ring(3).neighbours("ada")
    with refuses('peer "ada" is not one of the 5 peers (peer0, peer1, peer2, peer3 and 1 more); check its name'):
        graphs.metropolis(graphs.ring(5)).row("ada")
    with refuses("a schedule has no topology; add at least one"):
        Schedule(())
    with refuses(
        "topologies 0 and 2 of the schedule have different peers (peer3, peer4 only in one of them); give all "
        "topologies the same peers"
    ):
        Schedule((graphs.ring(3), graphs.path(3), graphs.ring(5)))


def test_parts_that_do_not_reach_each_other_are_named():
    parts = Topology(tuple("abcde"), (("a", "c"), ("b", "d")))
    with refuses("the graph falls into 3 parts that do not reach each other (a, c | b, d | e); add edges between them"):
        graphs.check_connected(parts)
    with refuses("the graph falls into 2 parts that do not reach each other (a | b); add edges between them"):
        graphs.check_connected(Topology(("a", "b"), (("a", "b"),), directed=True))
    with refuses(
        "the graph falls into 9 parts that do not reach each other (peer0 | peer1 | peer2 | peer3 | ...); add "
        "edges between them"
    ):
        graphs.diameter(Topology(graphs.ring(9).peers, ()))
    graphs.check_connected(Schedule((parts, Topology(tuple("abcde"), (("a", "b"), ("d", "e"))))))


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            "rign",
            {},
            '"rign" is not a kind of topology; use "ring" or another of ring, path, star',
        ),
        (
            "small-world",
            {},
            '"small-world" is not a kind of topology; use "small_world" or another of ring, path, star',
        ),
        (
            "Torus",
            {},
            '"Torus" is not a kind of topology; use "torus" or another of ring, path, star',
        ),
        ("ring", {"peers": 0}, "the number of peers must be at least 1, but it is 0; raise it"),
        ("grid", {"rows": 5}, "12 peers do not fill 5 rows of equal length; change one of the two numbers"),
        ("torus", {"rows": 0}, "12 peers do not fill 0 rows of equal length; change one of the two numbers"),
        ("hypercube", {}, "a hypercube needs a power of two of peers, but there are 12; use 16"),
        ("hypercube", {"peers": 9}, "a hypercube needs a power of two of peers, but there are 9; use 8"),
        (
            "random_regular",
            {"peers": 11, "degree": 3},
            "peers times degree must be even, but it is 11 times 3; change one of them by one",
        ),
        (
            "random_regular",
            {"degree": 12},
            (
                "the degree must be at least 1 and below the number of peers (12), but it is 12; change the degree "
                "(topology.degree), add peers, or use a complete graph"
            ),
        ),
        (
            "random_regular",
            {"degree": 0},
            (
                "the degree must be at least 1 and below the number of peers (12), but it is 0; change the degree "
                "(topology.degree), add peers, or use a complete graph"
            ),
        ),
        (
            "random_regular",
            {"degree": 1},
            "none of 100 random graphs is connected; raise the degree or the probability of an edge",
        ),
        (
            "small_world",
            {"peers": 3},
            (
                "the degree must be at least 1 and below the number of peers (3), but it is 4; change the degree "
                "(topology.degree), add peers, or use a complete graph"
            ),
        ),
        (
            "small_world",
            {"degree": 3},
            "the degree of a small world must be even, half on each side, but it is 3; change it by one",
        ),
        ("small_world", {"rewire": 1.5}, "rewire must be a probability from 0 to 1, but it is 1.5; change it"),
        (
            "erdos_renyi",
            {"probability": -0.1},
            "probability must be a probability from 0 to 1, but it is -0.1; change it",
        ),
        (
            "erdos_renyi",
            {"probability": 0.0},
            "none of 100 random graphs is connected; raise the degree or the probability of an edge",
        ),
    ],
)
def test_impossible_experiments_are_refused_with_a_way_out(kind, options, sentence):
    with refuses(sentence):
        graphs.build(kind, **{"peers": 12, "seed": 0, **options})


@pytest.mark.parametrize("n", [-1, 0])
@pytest.mark.parametrize(
    "builder", [graphs.ring, graphs.star, graphs.complete, graphs.exponential, graphs.one_peer_exponential]
)
def test_graphs_without_peers_are_refused(builder, n):
    with refuses("the number of peers must be at least 1, but it is"):
        builder(n)
    with refuses("the number of rows and columns must be at least 1, but it is"):
        graphs.grid(3, n)
    with refuses("a hypercube cannot have dimension -2; use a dimension of 0 or more"):
        graphs.hypercube(-2)


@pytest.mark.parametrize("kind", graphs.BUILDERS)
def test_every_kind_is_built_from_a_number_of_peers(kind):
    built = graphs.build(kind, peers=16, seed=5)
    assert len(built.peers) == 16
    graphs.check_connected(built)


def test_grids_are_as_square_as_they_can_be():
    assert graphs.build("grid", peers=12, seed=0) == graphs.grid(3, 4)
    assert graphs.build("grid", peers=12, seed=0, rows=2) == graphs.grid(2, 6)
    assert graphs.build("torus", peers=7, seed=0) == graphs.ring(7)


def test_directed_graphs_need_balance():
    star = Topology(("a", "b", "c"), (("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")), directed=True)
    with refuses(
        '"b" receives from 1 peers and sends to 1, but in this directed graph every peer must receive from and '
        'send to as many peers as "a" receives from (2); make the edges'
    ):
        graphs.metropolis(star)
    assert (
        dense(graphs.max_degree(star)).tolist() == dense(graphs.max_degree(Topology(star.peers, star.edges))).tolist()
    )
    with refuses(
        '"a" receives from 0 peers and sends to 1, but in this directed graph every peer must receive from and '
        "send to equally many peers; make the edges undirected, give the"
    ):
        graphs.max_degree(Topology(("a", "b"), (("a", "b"),), directed=True))


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.eye(2), "the weights are a 2 x 2 matrix, but there are 3 peers; give a 3 x 3 matrix"),
        (
            [["a"]],
            (
                "the weights are not a 3 x 3 matrix of numbers (could not convert string to float: "
                "np.str_('a')); replace them"
            ),
        ),
        (np.full((3, 3), np.nan), "the weights contain a negative or non-finite number; replace it"),
        (
            [[0.5, 0.75, -0.25], [0.75, 0.25, 0], [-0.25, 0, 1.25]],
            "the weights contain a negative or non-finite number; replace it",
        ),
        (
            [[1, 0, 0], [0.5, 0.4, 0], [0, 0, 1]],
            (
                'the row of "peer1" in the weights sums to 0.9, not to 1 within 1e-09; scale the weights to be '
                "doubly stochastic"
            ),
        ),
        (
            [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 1, 0]],
            (
                'the column of "peer1" in the weights sums to 2, not to 1 within 1e-09; scale the weights to be '
                "doubly stochastic"
            ),
        ),
        (
            np.full((3, 3), 1 / 3),
            ('there is a weight from "peer2" to "peer0", where the graph has no edge; change the weights or the graph'),
        ),
        (
            [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]],
            'there is no weight on the edge from "peer2" to "peer1"; change the weights or the graph',
        ),
    ],
)
def test_weights_that_do_not_fit_the_graph_are_refused(matrix, sentence):
    with refuses(sentence):
        graphs.given(graphs.path(3), matrix)


def test_weights_that_never_agree_and_tolerances_out_of_range_are_refused():
    swap = graphs.given(graphs.ring(2), [[0, 1], [1, 0]])
    apart = graphs.metropolis(Topology(("a", "b"), ()))
    turning = graphs.given(graphs.one_peer_exponential(3).at(0), scipy.sparse.csr_array(np.roll(np.eye(3), 1, axis=0)))
    for tolerance in (0.0, 1.0, math.nan):
        with refuses(f"the tolerance must be between 0 and 1, but it is {tolerance}; change it"):
            graphs.steps([swap], tolerance=tolerance)
    with refuses(
        "the contraction of the weights must be below 1, but it is 1; connect all peers and let each keep some "
        "weight for its own model"
    ):
        graphs.steps([swap], tolerance=0.1)
    with refuses(
        "the contraction of the weights must be below 1, but it is 1; connect all peers and let each keep some "
        "weight for its own model"
    ):
        graphs.chebyshev_steps(1.0, 0.1)
    with refuses("the weights leave 2 groups of peers that never mix; add edges between them"):
        graphs.steps([apart, apart], tolerance=0.1)
    with refuses("the weights do not contract to 0.1 within 16384 gossip steps; raise the tolerance or add edges"):
        graphs.steps(lambda _: turning, tolerance=0.1)
