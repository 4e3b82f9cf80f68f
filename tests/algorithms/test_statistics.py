"""Sums over all peers, against the same computed where all data are at hand."""

import numpy as np
import pytest
import torch
from stacks import stack

from p2pfl import topology
from p2pfl.algorithms import maximum, score_pooled, statistics
from p2pfl.core.encodings import from_wide, wide
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.data import Dataset, Federation
from p2pfl.data import federation as federations
from p2pfl.simulation import StackedNeighbourhood

GRAPHS = {
    "ring": topology.ring(7),
    "star": topology.star(6),
    "directed": topology.exponential(6),
    "schedule": topology.one_peer_exponential(8),
    "complete": topology.complete(5),
    "two": topology.complete(2),
}


def total(net, *, words=4, fraction=96):
    """The sum of private numbers over all peers, by exact totals."""

    async def added(values):
        own = dict(zip(net.peers, values.double().numpy(), strict=True))
        how = {"words": words, "fraction": fraction}
        found = await net.total(lambda peer: wide(own[peer], **how), size=words * values.shape[-1])
        return torch.from_numpy(from_wide(found, **how)).expand_as(values)

    return added


def taking(graph):
    """A neighbourhood of all peers that takes totals."""
    weights = [topology.metropolis(graph.at(phase)) for phase in range(graph.period)]
    return StackedNeighbourhood(weights, round=0, seed=0, graph=graph.union)


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


def found(graph, federation):
    return run_without_loop(
        statistics(
            total(taking(graph)),
            totals=federations.totals(federation, graph.peers),
            squares=lambda middle: federations.squares(federation, graph.peers, mean=middle),
            features=4,
        )
    )


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_statistics_are_those_of_all_data_in_one_place(graph):
    federation = owned(graph.peers)
    told = found(graph, federation)
    x, y = federation.dataset.features.double(), federation.dataset.targets
    deviation = x.std(0, correction=0)
    deviation[3] = 1.0  # constant
    for row in range(len(graph.peers)):
        assert int(told.samples[row]) == len(x)
        assert told.classes[row].tolist() == torch.bincount(y, minlength=3).tolist()
        assert torch.allclose(told.mean[row].double(), x.mean(0), rtol=1e-6, atol=1e-6)
        assert torch.allclose(told.deviation[row].double(), deviation, rtol=1e-6)


def test_one_peer_alone_has_the_statistics_of_its_own_data():
    graph = topology.ring(1)
    federation = owned(graph.peers)
    told = run_without_loop(
        statistics(
            total(taking(graph)),
            totals=federations.totals(federation, graph.peers),
            squares=lambda middle: federations.squares(federation, graph.peers, mean=middle),
            features=4,
        )
    )
    assert torch.allclose(told.mean[0], federation.dataset.features.double().mean(0).float())


def test_scaled_features_have_mean_zero_and_deviation_one():
    graph = topology.ring(6)
    federation = owned(graph.peers)
    told = found(graph, federation)
    scaled = federations.standardise(federation, mean=told.mean[0], deviation=told.deviation[0])
    x = scaled.dataset.features.double()
    assert x.mean(0).abs().max() < 1e-4
    assert torch.allclose(x.std(0, correction=0)[:3], torch.ones(3).double(), atol=1e-4)
    assert x[:, 3].abs().max() < 1e-5
    assert torch.equal(scaled.dataset.targets, federation.dataset.targets)


def test_the_largest_of_more_columns_than_are_compared_at_a_time_is_that_of_each():
    graph = topology.path(4)
    values = torch.from_numpy(np.random.default_rng(3).normal(size=(4, 600)))
    kept = values.clone()
    largest = run_without_loop(maximum(stack(graph), values, steps=3))
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
    told = run_without_loop(score_pooled(total(taking(graph)), scores=scores, targets=targets, squared=True))
    everybody, error = torch.cat(y), torch.cat(errors)
    assert torch.allclose(told["loss"], error.mean().expand(5), atol=1e-5)
    assert torch.allclose(told["r2"], (1 - error.mean() / everybody.var(correction=0)).expand(5), atol=1e-5)
    unknown = run_without_loop(score_pooled(total(taking(graph)), scores=scores, targets=targets, squared=False))
    assert set(unknown) == {"loss"}
