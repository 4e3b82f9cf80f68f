"""The default deviation of a mask, from public numbers."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import p2pfl
from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.parts.masks_and_noise import AVERAGED
from p2pfl.privacy import mask_size
from p2pfl.privacy.mask_size import MAX_VICTIMS, MIN_MASK_FACTOR, mask_deviation, residual, update_size


def deviation(**sections) -> float:
    table = {"topology": {"kind": "ring", "peers": 4}, "privacy": {"mode": "pairwise"}} | sections
    return p2pfl.plan(p2pfl.read(table)).protection.settings.mask


def swarm(kind, peers):
    table = {"topology": {"kind": kind, "peers": peers}, "privacy": {"mode": "pairwise"}}
    return p2pfl.plan(p2pfl.read(table))


def test_an_update_is_at_most_its_steps_at_a_gradient_of_norm_one_and_at_most_the_initial_parameters():
    assert update_size(norm=9.0, size=100, rate=0.1, steps=20) == pytest.approx(2.0 / 10)
    assert update_size(norm=1.5, size=100, rate=0.1, steps=20) == pytest.approx(1.5 / 10)
    assert update_size(norm=1.5, size=100, rate=0.1, steps=None) == pytest.approx(1.5 / 10)
    assert update_size(norm=9.0, size=100, rate=0.01, steps=5, optimizer="adam") == pytest.approx(0.05)
    assert update_size(norm=9.0, size=100, rate=0.1, steps=2, momentum=0.9) == pytest.approx(2.0 / 10)


def test_parameters_that_start_at_zero_and_a_rate_of_zero_still_give_a_mask():
    assert update_size(norm=0.0, size=4, rate=0.1, steps=3) == pytest.approx(0.15)
    assert update_size(norm=2.0, size=4, rate=0.0, steps=3) == pytest.approx(1.0)
    assert update_size(norm=0.0, size=4, rate=0.1, steps=None) == pytest.approx(0.5)


@pytest.mark.parametrize(("kind", "peers"), [("ring", 3), ("complete", 4), ("small_world", 8)])
def test_what_a_death_leaves_is_measured_by_mixing_masked_rows_without_the_dead_peer(kind, peers):
    plan, size = swarm(kind, peers), 10_000
    mask, draw, worst = plan.protection.settings.mask, np.random.default_rng(7), 0.0
    weights = plan.weights[0].matrix.toarray()
    for dead in range(peers):
        rows = np.zeros((peers, size))
        for a, b in plan.protection.graph.edges:
            noise = mask * draw.standard_normal(size)
            rows[plan.topology.peers.index(a)] += noise
            rows[plan.topology.peers.index(b)] -= noise
        for _ in range(plan.gossip.steps):
            mixed = np.zeros_like(rows)
            for i in [each for each in range(peers) if each != dead]:
                for j in range(peers):
                    mixed[i] += weights[i, j] * rows[i if j == dead else j]  # its share stays with who misses it
            rows = mixed
        worst = max(worst, float(np.delete(rows, dead, axis=0).std(axis=1).max()))
    assert plan.residual == pytest.approx(worst, rel=0.05)


def dense_residual(graph, weights, *, steps):
    masks = np.zeros((len(graph.peers), len(graph.edges)))
    for edge, (a, b) in enumerate(graph.edges):
        masks[graph.peers.index(a), edge], masks[graph.peers.index(b), edge] = 1, -1
    worst = 0.0
    for dead in np.argsort(-np.abs(masks).sum(1), kind="stable")[:MAX_VICTIMS]:
        here = np.arange(len(masks)) != dead
        mixing = np.eye(len(masks))
        for each in weights:
            kept = each.matrix.toarray() * here * here[:, None]
            mixing = (kept + np.diag(here * (1 - kept.sum(1)))) @ mixing
        turns, rest = divmod(steps, len(weights))
        assert rest == 0
        rows = np.linalg.matrix_power(mixing, turns) @ (masks * here[:, None])
        worst = max(worst, float(np.linalg.norm(rows, axis=1).max()))
    return worst


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("steps", [1, 6, 400])
@pytest.mark.parametrize("graph", [graphs.ring(30), graphs.complete(9), graphs.star(12), graphs.torus(4, 5)])
def test_what_a_death_leaves_equals_the_product_of_all_gossip_steps(graph, steps, monkeypatch):
    weights = [graphs.metropolis(graph)]
    expected = dense_residual(graph, weights, steps=steps)
    assert residual(graph, weights, steps=steps) == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr(mask_size, "MAX_DENSE_PEERS", 8)  # by eigenvectors, as for large graphs
    assert residual(graph, weights, steps=steps) == pytest.approx(expected, rel=1e-6)


def test_gossip_steps_of_a_schedule_take_turns():
    graph = graphs.ring(6)
    weights = [graphs.metropolis(graph), graphs.metropolis(graphs.complete(6)), graphs.metropolis(graphs.path(6))]
    for steps in (3, 9):
        expected = dense_residual(graph, weights, steps=steps)
        assert residual(graph, weights, steps=steps) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_many_thousand_gossip_steps_on_a_large_ring_leave_the_slow_waves_of_a_path():
    ring, size = graphs.ring(1000), 999
    steps = graphs.steps([graphs.metropolis(ring)], tolerance=AVERAGED)
    assert steps > 300_000
    waves, places = np.arange(20), np.arange(size)  # the modes of the path that a death leaves
    rates = (1 - 2 / 3 * (1 - np.cos(math.pi * waves / size))) ** steps
    modes = np.cos(math.pi * waves * (places[:, None] + 0.5) / size) * np.sqrt(np.where(waves == 0, 1, 2) / size)
    row = modes @ (rates * modes[0])  # of a neighbour of the dead peer
    masks = [row[0], *np.diff(row), row[-1]]
    found = residual(ring, [graphs.metropolis(ring)], steps=steps)
    assert found == pytest.approx(float(np.linalg.norm(masks)), rel=1e-4)


def test_the_default_leaves_one_update_of_a_death_where_many_average_and_hides_where_few_do():
    update, size = 0.02, 50_000
    assert mask_deviation(update, size=size, residual=0.05, bits=20) == pytest.approx(0.4)
    assert mask_deviation(update, size=size, residual=0.8, bits=20) == pytest.approx(0.04)
    assert mask_deviation(update, size=100, residual=0.001, bits=20) == pytest.approx(0.2)  # as long as the update


def test_a_mask_is_wider_than_the_grid_however_small_the_rate_is():
    assert mask_deviation(1e-12, size=100, residual=0.5, bits=10) == pytest.approx(16 / 1024, rel=0.05)
    assert deviation(learning={"rate": 1e-9}) >= 16 * 2.0**-20 * 0.95


@pytest.mark.slow
def test_the_default_follows_from_public_numbers_and_a_given_one_stays():
    norm = math.sqrt(p2pfl.plan(p2pfl.read({})).learner.start(("peer0",)).double().pow(2).sum())
    wide = deviation(learning={"rate": 1.0, "epochs": 10})
    plan = swarm("ring", 4)
    left = residual(plan.protection.graph, plan.weights, steps=graphs.steps(plan.weights, tolerance=AVERAGED))
    assert wide == pytest.approx(norm / math.sqrt(4810) * max(MIN_MASK_FACTOR, 1 / left), rel=0.05)
    assert deviation(learning={"rate": 0.01}) < wide
    assert deviation(privacy={"mode": "pairwise", "mask": 0.25}) == 0.25
    assert deviation(privacy={"mode": "pairwise", "noise": 2.0, "clip": 3.0}) == 3.0


def test_a_device_that_has_its_own_data_alone_computes_the_same():
    experiment = p2pfl.read({"topology": {"kind": "ring", "peers": 4}, "privacy": {"mode": "pairwise"}})
    whole = p2pfl.plan(experiment).protection.settings
    assert p2pfl.plan(experiment, only=["peer2"]).protection.settings == whole
    assert p2pfl.plan(p2pfl.plan(experiment).pinned).protection.settings == whole


def own(size):
    """A training loop of the user's own, with so many parameters."""
    counts = {f"peer{number}": 1 for number in range(4)}
    return p2pfl.ExternalLearner(lambda row, **_: row, start=torch.ones(size), samples=counts)


def test_a_learner_that_takes_the_place_of_the_model_does_not_keep_a_mask_that_was_sized_for_the_model():
    with pytest.raises(ExperimentError, match=r"privacy\.mask: the default was computed for the model"):
        dataclasses.replace(swarm("ring", 4), learner=own(10))
    table = {"topology": {"kind": "ring", "peers": 4}, "privacy": {"mode": "pairwise", "mask": 0.5}}
    plan = dataclasses.replace(p2pfl.plan(p2pfl.read(table)), learner=own(10))
    assert plan.protection.settings.mask == 0.5
    plan = swarm("ring", 4)
    assert dataclasses.replace(plan, learner=plan.learner.on(plan.federation)).masked


def test_without_masks_any_learner_may_take_the_place_of_the_model():
    plan = p2pfl.plan(p2pfl.read({"topology": {"kind": "ring", "peers": 4}}))
    assert dataclasses.replace(plan, learner=own(10)).learner.layout.size == 10
