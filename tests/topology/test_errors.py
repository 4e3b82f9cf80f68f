"""What topologies and weights refuse, and how they say so."""

import math
import re

import numpy as np
import pytest
import scipy.sparse

from p2pfl import topology as graphs
from p2pfl.core.errors import TopologyError
from p2pfl.topology import Schedule, Topology


def dense(weights):
    return weights.matrix.toarray()


def refuses(sentence):
    return pytest.raises(TopologyError, match=re.escape(sentence))


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
        graphs.steps([turning, turning], tolerance=0.1)
