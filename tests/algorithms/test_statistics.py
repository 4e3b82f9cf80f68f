"""Sums over all peers, against the same computed where all data are at hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stacks import stack

from p2pfl import topology
from p2pfl.algorithms import Accord, Gossip, maximum, pooled, statistics
from p2pfl.data import Dataset, Federation, scaling
from p2pfl.identity import SeededSource
from p2pfl.neighbourhood import Public, settled
from p2pfl.privacy import Masks, Settings, private, swarm_secrets

GRAPHS = {
    "ring": topology.ring(7),
    "star": topology.star(6),
    "directed": topology.exponential(6),
    "schedule": topology.one_peer_exponential(8),
    "complete": topology.complete(5),
    "two": topology.complete(2),
}


def accord(graph, *, tolerance=1e-13):
    weights = [topology.metropolis(graph.at(phase)) for phase in range(graph.period)]
    return Accord(Gossip(topology.steps(weights, tolerance=tolerance)), len(graph.peers))


def mean(agreement, net):
    """The mean of private numbers, which are released before the agreement."""

    async def agreed(values):
        released = await net.release(values.double(), since=Public(torch.zeros_like(values.double())))
        return await agreement.settle(net, released)

    return agreed


def masked(graph, net):
    """The neighbourhood behind masks far larger than what they hide."""
    secrets = swarm_secrets(graph, source=SeededSource(1), run="test")
    masks = Masks(secrets, deviation=4096.0, topology=graph.union)
    return private(net, settings=Settings(mask=4096.0), masks=masks, source=SeededSource(1), round=0)


def owned(peers, *, classes=3, features=4, seed=0):
    """Differently many samples of raw features, one of them constant, one far from zero."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 30, len(peers))
    cuts = np.split(np.arange(sizes.sum()), sizes.cumsum()[:-1])
    x = rng.normal(size=(sizes.sum(), features)) * [1.0, 20.0, 0.5, 0.0] + [0.0, 5.0, 300.0, 7.5]
    y = rng.integers(0, classes, len(x))
    parts = dict(zip(peers, cuts, strict=True))
    data = Dataset(torch.from_numpy(x).float(), torch.from_numpy(y), classes)
    return Federation(data, parts, parts, parts)


def found(graph, federation, *, hide=False):
    net = stack(graph)
    return settled(
        statistics(
            mean(accord(graph), masked(graph, net) if hide else net),
            peers=len(graph.peers),
            totals=scaling.totals(federation, graph.peers),
            squares=lambda middle: scaling.squares(federation, graph.peers, mean=middle),
            features=4,
            resolution=2.0**-20 if hide else 0.0,
        )
    )


@pytest.mark.parametrize("hide", [False, True], ids=["plain", "masks"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_statistics_are_those_of_all_data_in_one_place(graph, hide):
    federation = owned(graph.peers)
    told = found(graph, federation, hide=hide)
    x, y = federation.dataset.features.double(), federation.dataset.targets
    deviation = x.std(0, correction=0)
    deviation[3] = 1.0  # constant
    for row in range(len(graph.peers)):
        assert int(told.samples[row]) == len(x)
        assert told.classes[row].tolist() == torch.bincount(y, minlength=3).tolist()
        assert torch.allclose(told.mean[row].double(), x.mean(0), rtol=1e-6, atol=1e-6)
        assert torch.allclose(told.deviation[row].double(), deviation, rtol=1e-6)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_masked_sums_are_exact_to_the_grid_and_the_same_bits_everywhere(graph):
    values = torch.from_numpy(np.random.default_rng(2).normal(size=(len(graph.peers), 5)) * 100)
    rows = settled(mean(accord(graph), masked(graph, stack(graph)))(values))
    assert torch.equal(rows, rows[:1].expand_as(rows))
    on_grid = (values * 2**20).round().mean(0) / 2**20
    assert (rows[0] - on_grid).abs().max() < 1e-8  # what gossip leaves of masks of 4096


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2), min_size=5, max_size=5),
    st.sampled_from([topology.ring(5), topology.star(5), topology.path(5)]),
)
def test_whatever_peers_hold_the_mean_is_theirs(values, graph):
    values = torch.tensor(values, dtype=torch.float64)
    rows = settled(mean(accord(graph), stack(graph))(values))
    assert torch.allclose(rows, values.mean(0).expand_as(rows), rtol=1e-9, atol=1e-6)


def test_one_peer_alone_has_the_statistics_of_its_own_data():
    graph = topology.ring(1)
    federation = owned(graph.peers)
    told = settled(
        statistics(
            mean(Accord(Gossip(1), 0), stack(graph)),
            peers=1,
            totals=scaling.totals(federation, graph.peers),
            squares=lambda middle: scaling.squares(federation, graph.peers, mean=middle),
            features=4,
        )
    )
    assert torch.allclose(told.mean[0], federation.dataset.features.double().mean(0).float())


def test_scaled_features_have_mean_zero_and_deviation_one():
    graph = topology.ring(6)
    federation = owned(graph.peers)
    told = found(graph, federation, hide=True)
    scaled = scaling.standardised(federation, mean=told.mean[0], deviation=told.deviation[0])
    x = scaled.dataset.features.double()
    assert x.mean(0).abs().max() < 1e-4
    assert torch.allclose(x.std(0, correction=0)[:3], torch.ones(3).double(), atol=1e-4)
    assert x[:, 3].abs().max() < 1e-5
    assert torch.equal(scaled.dataset.targets, federation.dataset.targets)


def test_the_largest_of_more_columns_than_are_compared_at_a_time_is_that_of_each():
    graph = topology.path(4)
    values = torch.from_numpy(np.random.default_rng(3).normal(size=(4, 600)))
    kept = values.clone()
    largest = settled(maximum(stack(graph), values, steps=3))
    assert torch.equal(largest, values.amax(0).expand_as(values))
    assert torch.equal(values, kept)


def test_a_pooled_score_is_the_score_on_all_test_data():
    graph = topology.ring(5)
    rng = np.random.default_rng(4)
    y = [torch.from_numpy(rng.normal(size=size)) for size in (3, 8, 1, 0, 5)]
    guess = [each + torch.from_numpy(rng.normal(size=len(each))) for each in y]
    errors = [(a - b).square() for a, b in zip(y, guess, strict=True)]
    scores = {
        "loss": torch.stack([each.mean() for each in errors]),  # of no sample it is not a number
        "r2": torch.zeros(5),
    }
    targets = torch.stack([torch.stack([t.new_tensor(len(t)), t.sum(), t.square().sum()]) for t in y])
    told = settled(
        pooled(mean(accord(graph), masked(graph, stack(graph))), scores=scores, targets=targets, squared=True)
    )
    everybody, error = torch.cat(y), torch.cat(errors)
    assert torch.allclose(told["loss"], error.mean().expand(5), atol=1e-5)
    assert torch.allclose(told["r2"], (1 - error.mean() / everybody.var(correction=0)).expand(5), atol=1e-5)
    unknown = settled(pooled(mean(accord(graph), stack(graph)), scores=scores, targets=targets, squared=False))
    assert set(unknown) == {"loss"}
