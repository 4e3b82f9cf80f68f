import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.core.errors import InputError, TopologyError
from p2pfl.privacy.accounting import calibration, divergence
from p2pfl.privacy.accounting.accountant import account
from p2pfl.privacy.accounting.calibration import calibrate
from p2pfl.topology import Topology
from p2pfl.topology import given as weights_of

MIXED = 10**6
"""Gossip steps after which nothing is left of a mask on any graph here."""

ONE, EIGHT = (divergence.mu(epsilon, delta=1e-5) for epsilon in (1.0, 8.0))
"""Costs of all rounds together that keep epsilon at delta = 1e-5."""


def circulant(n, *, reach):
    peers = graphs.ring(n).peers
    return Topology(peers, tuple((peers[i], peers[(i + k) % n]) for i in range(n) for k in range(1, reach + 1)))


CALIBRATED = [
    (partial(graphs.complete, 16), 0.9782, 2.9851, 2.9951),
    (partial(graphs.ring, 16), 0.9782, 14.1104, 14.2593),
    (partial(graphs.torus, 4, 4), 0.9782, 6.3820, 6.4081),
    (partial(graphs.hypercube, 4), 0.9782, 6.3820, 6.4081),
    (partial(circulant, 16, reach=2), 0.9782, 7.2962, 7.3468),
    (partial(graphs.complete, 64), 0.4891, 1.5333, 1.5345),
    (partial(graphs.ring, 64), 0.4891, 28.2855, 28.5710),
    (partial(graphs.torus, 8, 8), 0.4891, 7.6081, 7.6202),
    (partial(graphs.hypercube, 6), 0.4891, 5.4934, 5.4991),
    (partial(circulant, 64, reach=3), 0.4891, 8.4070, 8.4641),
    (partial(graphs.ring, 1024), 0.1223, 113.159, 114.298),
    (partial(graphs.hypercube, 10), 0.1223, 4.1855, 4.1857),
    (partial(graphs.torus, 32, 32), 0.1223, 9.5815, 9.5868),
    (partial(circulant, 1024, reach=5), 0.1223, 15.6062, 15.7500),
    (partial(graphs.complete, 1024), 0.1223, 0.3865, 0.3865),
]


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize(("graph", "noise", "mask", "bound"), CALIBRATED)
def test_noises_of_well_mixed_graphs_are_the_published_ones(graph, noise, mask, bound):
    found = calibrate(graph(), mu=ONE, clip=1.0, rounds=1, steps=MIXED)
    assert found.noise == pytest.approx(noise, abs=6e-5)
    assert found.mask == pytest.approx(mask, rel=2e-4 if mask < 1 else 1e-5, abs=6e-5)
    assert found.mask < bound * (1 + 2e-4)


@pytest.mark.sampled(fast=5)
@pytest.mark.parametrize(("graph", "noise", "mask", "bound"), CALIBRATED[:5])
def test_a_hundred_rounds_at_epsilon_eight_scale_all_noises_alike(graph, noise, mask, bound):
    found = calibrate(graph(), mu=EIGHT / 10, clip=1.0, rounds=100, steps=MIXED)
    assert pytest.approx(0.166603, abs=6e-7) == EIGHT / 10
    assert (found.noise, found.mask) == pytest.approx((1.60894 * noise, 1.60894 * mask), rel=1e-4)
    assert bound > mask
    found = calibrate(graphs.star(9), mu=EIGHT / 10, clip=1.0, rounds=100, steps=MIXED, colluders=1)
    assert (found.noise, found.mask) == (pytest.approx(6.0023, abs=6e-5), 0.0)


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    ("graph", "excess", "cost", "local"),
    [
        (graphs.ring(16), 1.52, 72.3, 278.2),
        (graphs.ring(64), 2.85, 81.3, 324.4),
        (graphs.torus(8, 8), 2.12, 17.1, 72.1),
    ],
)
def test_the_cheapest_noises_of_one_gossip_step_are_the_published_ones(graph, excess, cost, local):
    found = calibrate(graph, mu=EIGHT / 10, clip=1.0, rounds=100)
    alone = 10 / EIGHT
    assert found.noise / (alone / math.sqrt(len(graph.peers))) == pytest.approx(excess, abs=6e-3)
    assert found.cost == pytest.approx(cost, abs=0.06)
    prices = calibration._Prices.of(graph, graphs.metropolis(graph), steps=1, horizon=100)
    assert prices.cost(alone, 0.0) == pytest.approx(local, abs=0.06)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [(graphs.ring(16), 50.43), (graphs.ring(64), 57.46), (graphs.torus(8, 8), 76.14), (graphs.hypercube(6), 89.06)],
)
def test_the_disagreement_that_masks_leave_is_the_published_one(graph, expected):
    prices = calibration._Prices.of(graph, graphs.metropolis(graph), steps=1, horizon=0)
    assert prices.cost(0.0, 10.0) == pytest.approx(expected, abs=6e-3)


@pytest.mark.parametrize(
    ("graph", "variances"),
    [
        (graphs.ring(16), {1: 22.6, 2: 7.64, 4: 2.94, 8: 1.18, 16: 0.453, 32: 0.135}),
        (graphs.torus(8, 8), {1: 48.2, 2: 13.5, 4: 2.93, 8: 0.634, 16: 0.086, 32: 0.017}),
        (graphs.hypercube(6), {1: 61.4, 2: 16.3, 4: 2.78, 8: 0.189, 16: 0.0164}),
        (graphs.complete(64), {1: 0.0156}),
    ],
)
def test_what_a_release_leaves_after_gossip_is_the_published_variance(graph, variances):
    weights = graphs.metropolis(graph)
    for steps, expected in variances.items():
        masks = calibration._Prices.of(graph, weights, steps=steps, horizon=0).left * 10**2
        noise = (np.linalg.matrix_power(weights.matrix.toarray(), steps) ** 2).sum() / len(graph.peers)
        assert masks + noise == pytest.approx(expected, rel=0.025)  # two or three digits are known


@given(n=st.integers(2, 6), steps=st.integers(1, 3), lazy=st.floats(0.2, 0.8), seed=st.integers(0, 5))
def test_prices_are_the_sums_over_rounds_also_where_weights_are_not_symmetric(n, steps, lazy, seed):
    graph = Topology(
        graphs.ring(n).peers,
        tuple((graphs.ring(n).peers[i], graphs.ring(n).peers[(i + 1) % n]) for i in range(n)),
        directed=True,
    )
    around = np.roll(np.eye(n), 1, axis=0)
    arcs = lazy * np.eye(n) + (1 - lazy) * np.where(graph.adjacency.toarray() > 0, around + around.T, 0)
    arcs /= arcs.sum(axis=1, keepdims=True)
    weights = weights_of(graph, arcs)
    found = calibration._Prices.of(graph, weights, steps=steps, horizon=seed)
    turn = np.linalg.matrix_power(weights.matrix.toarray() - 1 / n, steps)
    total, power = np.zeros((n, n)), np.eye(n)
    for _ in range(3000):
        power = power @ turn
        total += power.T @ power
    both = graph.adjacency.toarray() + graph.adjacency.toarray().T > 0
    laplacian = np.diag(both.sum(axis=1)) - both
    assert found.noise == pytest.approx((np.trace(total) + seed) / n)
    assert found.mask == pytest.approx(np.trace(laplacian @ total) / n)
    assert found.left == pytest.approx(np.trace(laplacian @ turn.T @ turn) / n, abs=1e-12)


@pytest.mark.slow
@given(
    mu=st.floats(0.01, 10),
    steps=st.sampled_from([1, 3, 100]),
    settings=st.fixed_dictionaries(
        {
            "colluders": st.integers(0, 3),
            "adjacency": st.sampled_from(["zero-out", "replace"]),
            "size": st.sampled_from([None, 10**6]),
        }
    ),
)
def test_what_is_calibrated_is_accounted_at_the_cost_that_was_asked_for(mu, steps, settings):
    graph = graphs.small_world(12, degree=4, rewire=0.4, seed=2)
    settings["clip"] = 0.7
    found = calibrate(graph, mu=mu, rounds=10, steps=steps, **settings)
    again = account(graph, noise=found.noise, mask=found.mask, **settings)
    assert again == found.guarantee
    assert mu * (1 - 1e-6) <= again.mu <= mu


@pytest.mark.slow
def test_more_privacy_more_colluders_or_fewer_edges_cost_more():
    graph = graphs.random_regular(20, degree=4, seed=1)
    settings = {"clip": 1.0, "rounds": 10}
    for steps in (1, 40):
        costs = [calibrate(graph, mu=mu, steps=steps, **settings).cost for mu in (0.5, 0.3, 0.1)]
        assert costs == sorted(costs)
        costs = [calibrate(graph, mu=0.5, steps=steps, colluders=t, **settings).cost for t in (0, 1, 2, 3, 4)]
        assert costs == sorted(costs)
        assert calibrate(graphs.ring(20), mu=0.5, steps=steps, **settings).cost > costs[0]


def test_one_step_on_a_complete_graph_mixes_masks_away():
    found = calibrate(graphs.complete(16), mu=ONE, clip=1.0, rounds=1, steps=1)
    assert (found.noise, found.mask) == pytest.approx((0.9782, 2.9851), abs=6e-5)


def test_noise_that_masks_cannot_lower_comes_without_masks():
    for graph, colluders in [(graphs.ring(8), 2), (graphs.ring(1), 0), (graphs.star(6), 1), (graphs.ring(5), 4)]:
        for steps in (1, 50):
            found = calibrate(graph, mu=0.5, clip=1.0, rounds=1, steps=steps, colluders=colluders)
            assert found.mask == 0
            assert found.noise == pytest.approx(2.0, rel=1e-6)
            assert found.guarantee.search == "exact"


def test_the_worst_colluders_at_the_end_may_be_others_than_at_the_start():
    """A peer that joins two halves matters for large masks, one at the rim for small ones."""
    rim = [("hub", f"a{i}") for i in range(4)] + [("hub", f"b{i}") for i in range(4)]
    rim += [(f"{side}{i}", f"{side}{(i + 1) % 4}") for side in "ab" for i in range(4)]
    graph = Topology(("hub", *(f"{side}{i}" for side in "ab" for i in range(4))), tuple(rim))
    for steps in (1, 10):
        found = calibrate(graph, mu=0.5, clip=1.0, rounds=1, steps=steps, colluders=1)
        assert 0.5 * (1 - 1e-6) <= found.guarantee.mu <= 0.5


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"clip": math.inf}, "finite clip"),
        ({"clip": 0.0}, r"the clip is 0\.0, but must be above 0; infinity clips nothing"),
        ({"rounds": 0}, "the number of rounds is 0, but must be at least 1; change it"),
        ({"steps": 0}, "the number of gossip steps is 0, but must be at least 1; change it"),
        ({"mu": -1.0}, r"mu is -1\.0, but must be above 0 and finite; leave the noise out to hide nothing"),
        ({"mu": math.inf}, "mu is inf, but must be above 0 and finite"),
        (
            {"weights": graphs.metropolis(graphs.ring(6))},
            "the weights belong to other peers than the graph; make them from the graph",
        ),
        ({"colluders": 5}, "5 peers cannot have 5 colluders; use 0 to 4, as one must be honest"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, what):
    settings = {"graph": graphs.ring(5), "mu": 1.0, "clip": 1.0, "rounds": 1, **changed}
    with pytest.raises(InputError, match=what):
        calibrate(settings.pop("graph"), **settings)


def test_a_graph_in_parts_and_weights_that_never_mix_are_refused():
    with pytest.raises(TopologyError, match="2 parts"):
        calibrate(Topology(("a", "b"), ()), mu=1.0, clip=1.0, rounds=1)
    swap = weights_of(graphs.path(2), [[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(
        InputError, match="the weights never bring all peers together; let each keep some weight for its own model"
    ):
        calibrate(graphs.path(2), swap, mu=1.0, clip=1.0, rounds=1)
    turn = Topology(("a", "b", "c"), (("a", "b"), ("b", "c"), ("c", "a")), directed=True)
    with pytest.raises(
        InputError, match="the weights never bring all peers together; let each keep some weight for its own model"
    ):
        calibrate(turn, weights_of(turn, turn.adjacency), mu=1.0, clip=1.0, rounds=1)
