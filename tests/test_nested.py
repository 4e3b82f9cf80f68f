"""Exact averages over hospitals in regions of a country."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pfl import compose
from p2pfl import topology as graphs
from p2pfl.algorithms import Averaging, Exact, FedAvg
from p2pfl.core.errors import TopologyError
from p2pfl.data import gather
from p2pfl.experiment import read
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, TorchLearner
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import live


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_one_gossip_step_for_each_level_is_the_mean_of_all(levels):
    n = math.prod(levels)
    schedule = graphs.nested(n, levels=levels)
    assert schedule.period == max(1, sum(size > 1 for size in levels))
    product = np.eye(n)
    for each in schedule.topologies:
        product = graphs.metropolis(each).matrix.toarray() @ product
    assert np.allclose(product, 1 / n, atol=1e-15)


def test_each_step_averages_one_level_from_the_innermost():
    hospitals, regions = graphs.nested(12, levels=[3, 4]).topologies
    values = np.arange(12.0)
    means = graphs.metropolis(hospitals).matrix @ values
    assert np.allclose(means, np.repeat(values.reshape(3, 4).mean(axis=1), 4))
    assert np.allclose(graphs.metropolis(regions).matrix @ means, values.mean())
    assert all(len(regions.neighbours(peer)) == 2 for peer in regions.peers)


@pytest.mark.parametrize(
    ("n", "levels", "said"),
    [
        (12, [3, 5], "levels of 3 x 5 parts have 15 peers, but there are 12"),
        (4, [2, 0], "levels of 2 x 0 parts have 0 peers"),
    ],
)
def test_levels_that_do_not_fit_are_refused(n, levels, said):
    with pytest.raises(TopologyError, match=said):
        graphs.nested(n, levels=levels)


def test_the_usual_levels_fit_any_number_of_peers():
    assert graphs.nested(12) == graphs.nested(12, levels=[3, 4])
    assert graphs.nested(7) == graphs.Schedule((graphs.complete(7),))
    assert graphs.nested(1).period == 1


FEDAVG = {
    "rounds": 2,
    "topology": {"kind": "nested", "peers": 6, "options": {"levels": [2, 3]}},
    "gossip": {"steps": 2},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"weighted": False, "rate": 0.2},
}


@pytest.mark.slow
async def test_fedavg_over_levels_is_fedavg_over_everybody_live_and_simulated():
    nested = simulate(FEDAVG, baselines=False).models
    complete = {"topology": {"kind": "complete", "peers": 6}, "gossip": {"steps": 1}}
    everybody = simulate(FEDAVG | complete, baselines=False).models
    for name, tensor in everybody["peer0"].items():
        for models in nested.values():
            assert np.allclose(models[name], tensor, atol=1e-6)
    for peer, end in (await live(read(FEDAVG), MemoryTransport(), source=SeededSource(1))).items():
        found = end.peer.plan.learner.state_dict(end.state.rows[0])
        assert all(np.allclose(found[name], nested[peer][name], atol=1e-6) for name in found)


def edges_and_cloud(learner, clusters, *, rounds, between):
    """Return the models of HierFAVG by its loops: a server averages each cluster, and the cloud the servers' models."""
    edge = {cluster: learner.start(cluster)[0] for cluster in clusters}
    for round in range(rounds):
        for cluster in clusters:
            rows = edge[cluster].repeat(len(cluster), 1)
            edge[cluster] = learner.fit(rows, peers=cluster, round=round).rows.mean(dim=0)
        if (round + 1) % between == 0:
            cloud = sum(edge.values()) / len(edge)
            edge = dict.fromkeys(clusters, cloud)
    return {peer: edge[cluster] for cluster in clusters for peer in cluster}


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize("between", [1, 2, 3])
@pytest.mark.parametrize("rounds", [3, 6, 7])
def test_averages_within_clusters_between_averages_of_all_are_the_loops_of_hierarchical_fedavg(between, rounds):
    features, targets = np.random.default_rng(0).normal(size=(240, 4)), np.arange(240) % 3
    samples = {
        f"peer{n}": (torch.from_numpy(features[n::4]).float(), torch.from_numpy(targets[n::4])) for n in range(4)
    }
    federation = gather(samples, seed=0)
    inside, _ = graphs.nested(4, levels=[2, 2]).topologies
    everybody = graphs.complete(4)
    schedule = graphs.Schedule((inside,) * (between - 1) + (everybody,))
    made = compose(
        FedAvg(epochs=2, average=Averaging(weighted=False)),
        TorchLearner(torch.nn.Linear(4, 3), federation, rate=0.3, batch=8),
        schedule,
        rounds=rounds,
        settings={"gossip": {"steps": 1}},
    )
    clusters = [("peer0", "peer1"), ("peer2", "peer3")]
    assert all(inside.neighbours(one) == (other,) for one, other in clusters)
    loops = edges_and_cloud(made.learner, clusters, rounds=rounds, between=between)
    models = simulate(made, baselines=False).models
    for peer, row in loops.items():
        for name, tensor in made.learner.state_dict(row).items():
            assert np.allclose(models[peer][name], tensor, atol=1e-6)
    apart = max(float((loops["peer0"] - loops[peer]).abs().max()) for peer in federation.peers)
    assert (apart > 1e-3) == (rounds % between > 0)  # clusters differ until all average


def test_totals_over_levels_are_those_of_the_pooled_data():
    exact, tables = pytest.importorskip("p2pfl.plugins.exact"), pytest.importorskip("plugins.exact.tables")
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    federation = tables.shared_out(features, targets, classes=2, peers=8)
    model = exact.Boosting(features=3, classes=2, rounds=3, max_depth=2, max_leaf_nodes=None, max_bins=8)
    learner, pooled = tables.trained(model, federation, rounds=3)
    graph = graphs.nested(8, levels=[2, 2, 2])
    run = simulate(Exact(), ExactLearner(model, federation), graph, rounds=3, privacy=Pairwise(), baselines=False)
    for tensors in run.models.values():
        assert all(np.array_equal(tensors[name].numpy(), pooled[name]) for name in learner.layout.names)
