import math

import pytest

from p2pfl import topology as graphs
from p2pfl.experiment import plan, read
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.accounting.accountant import account, find_isolated
from p2pfl.privacy.accounting.leakage import NoiseCover
from p2pfl.privacy.accounting.spending import Cost

NOISES = {"clip": 1.0, "noise": 0.4, "mask": 3.0}


@pytest.mark.parametrize("degree", [2, 4, 6])
def test_a_peer_whose_neighbours_mask_with_it_alone_is_the_centre_of_a_star(degree):
    graph = graphs.build("circulant", peers=20, degree=degree, seed=0).union
    names = graph.peers[: degree + 1]
    star = NoiseCover.of(graphs.Topology(names, tuple((names[0], leaf) for leaf in names[1:])), noise=0.4, mask=3.0)
    assert find_isolated(graph, **NOISES)[1] == pytest.approx(math.sqrt(star.leaks(star.honest(()))[0]), rel=1e-12)


def test_if_all_mask_neighbours_collude_private_noise_is_left():
    graph = graphs.build("circulant", peers=20, degree=4, seed=0).union
    for colluders in (4, 9):
        assert find_isolated(graph, **NOISES, colluders=colluders)[1] == pytest.approx(1 / 0.4)
    assert find_isolated(graph, clip=1.0, noise=0.0, mask=3.0)[1] == math.inf


def test_a_broker_that_lies_gains_nothing_on_a_complete_graph():
    graph = graphs.build("complete", peers=8, seed=0).union
    assert find_isolated(graph, **NOISES)[1] == pytest.approx(account(graph, **NOISES).mu, rel=1e-12)


def test_without_an_epsilon_a_broker_that_lies_turns_7_6_into_26_5():
    graph = graphs.build("circulant", peers=100, degree=6, seed=0).union
    accounted = account(graph, **NOISES)
    _, mu = find_isolated(graph, **NOISES)
    assert divergence.epsilon(accounted.mu * math.sqrt(20), delta=1e-5) == pytest.approx(7.6, abs=0.05)
    assert divergence.epsilon(mu * math.sqrt(20), delta=1e-5) == pytest.approx(26.5, abs=0.05)
    assert mu < accounted.local


@pytest.mark.slow
def test_with_an_epsilon_the_neighbours_own_floor_ends_what_a_broker_that_lies_gains():
    protection = plan(read("private")).protection
    listens = protection.observers()[0]
    assert protection.total({Cost(listens.mu): 16}) == pytest.approx(7.59, abs=0.005)
    _, costs = protection.isolated(listens, rounds=16)
    assert sorted(costs.values()) == [1, 15]
    assert protection.total(costs) == pytest.approx(8.15, abs=0.005)
    hospitals = plan(read("hospitals")).protection
    listens = hospitals.observers()[0]
    assert hospitals.total(hospitals.isolated(listens, rounds=12)[1]) == pytest.approx(
        hospitals.total({Cost(listens.mu): 12})
    )
