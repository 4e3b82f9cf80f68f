"""Rules aggregate the models of many receivers at once, and give each what it gets alone."""

from dataclasses import dataclass

import numpy as np
import one_by_one
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import FEW
from p2pfl.algorithms.robust import (
    Attack,
    ClippedGossip,
    Krum,
    Median,
    NearestMixed,
    SelfCentredClipping,
    TrimmedMean,
    add_attack,
    arithmetic,
    robust,
)
from p2pfl.algorithms.robust.arithmetic import distances, mean, network, select_ordered, take_models
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.simulation import Faults, StackedNeighbourhood
from p2pfl.topology import metropolis, small_world, star

RULES = {
    "ClippedGossip": ClippedGossip(1),
    "self-centred clipping": SelfCentredClipping(1.5),
    "trimmed mean": TrimmedMean(1),
    "median": Median(1),
    "Krum": Krum(1),
    "multi-Krum": Krum(1, several=True),
    "NNM, trimmed mean": NearestMixed(TrimmedMean(1), 1),
    "NNM, Krum": NearestMixed(Krum(1), 1),
}
EACH = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
SEEDS = st.integers(0, 2**32 - 1)
SELECTING = (Median, Krum)
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6}


def drawn(seed, *shape, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def shares(seed, receivers, count):
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(count), receivers))


@pytest.mark.sampled(fast=5)
@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@given(seed=SEEDS, shape=st.tuples(st.integers(1, 7), st.integers(5, 12), st.integers(1, 9)))
@settings(FEW)
def test_a_rule_of_a_stack_is_the_rule_of_each_receiver(rule, dtype, seed, shape):
    receivers, count, length = shape
    rows, weights = drawn(seed, receivers, count, length, dtype=dtype), shares(seed, receivers, count)
    found = rule(rows, weights)
    assert found.shape == (receivers, length)
    assert found.dtype == dtype
    for own, share, row in zip(rows, weights, found, strict=True):
        alone = rule(own, share)
        assert torch.allclose(row, alone, rtol=0, atol=TOLERANCE[dtype])
        if not isinstance(rule, (ClippedGossip, SelfCentredClipping)):
            assert torch.equal(row, alone)


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@given(seed=SEEDS, count=st.integers(5, 12))
@settings(FEW)
def test_a_rule_of_a_stack_is_that_of_its_paper_in_numpy(rule, dtype, seed, count):
    rows, weights = drawn(seed, 4, count, 6, dtype=dtype), shares(seed, 4, count)
    if isinstance(rule, NearestMixed) and isinstance(rule.rule, Krum):
        rule = NearestMixed(Median(1), 1)  # mixed models repeat, and rounding decides between those of equal scores
    for own, share, row in zip(rows, weights, rule(rows, weights), strict=True):
        wanted = one_by_one.aggregated(rule, own.numpy(), share.numpy())
        if (
            isinstance(rule, SELECTING)
            and (count % 2 or not isinstance(rule, Median))
            and not getattr(rule, "several", False)
        ):
            assert np.array_equal(row.numpy(), wanted)
        else:
            assert row.numpy() == pytest.approx(wanted, abs=100 * TOLERANCE[dtype])


@pytest.mark.parametrize("rule", [Krum(1), Krum(1, several=True), NearestMixed(Krum(1), 1)], ids=str)
def test_among_models_that_are_as_good_the_first_one_wins_at_each_receiver(rule):
    corners = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]])  # all scores are equal
    rows = torch.stack([torch.cat([corners.roll(turn, 0), torch.full((1, 2), 50.0)]) for turn in range(4)])
    found = rule(rows, torch.full((4, 5), 0.2, dtype=torch.float64))
    for turn in range(4):
        assert torch.equal(found[turn], rule(rows[turn], torch.full((5,), 0.2, dtype=torch.float64)))
    if rule == Krum(1):
        assert torch.equal(found, rows[:, 0])


@pytest.mark.sampled(fast=8)
@EACH
@pytest.mark.parametrize("lie", [torch.inf, -torch.inf, torch.nan, torch.finfo(torch.float64).max])
@given(seed=SEEDS)
@settings(FEW)
def test_a_lie_of_any_number_does_the_same_in_a_stack(rule, lie, seed):
    rows, weights = drawn(seed, 3, 7, 4), shares(seed, 3, 7)
    rows[1, 4] = lie
    found = rule(rows, weights)
    for own, share, row in zip(rows, weights, found, strict=True):
        assert torch.allclose(row, rule(own, share), atol=1e-13, equal_nan=True)
    if isinstance(rule, (TrimmedMean, Median)):
        honest = rows[1, [0, 1, 2, 3, 5, 6]]
        assert bool(((found[1] >= honest.amin(0)) & (found[1] <= honest.amax(0))).all())


@EACH
def test_blocks_of_receivers_and_of_columns_change_nothing(rule, monkeypatch):
    rows, weights = drawn(1, 5, 7, 50), shares(1, 5, 7)
    wanted = rule(rows, weights)
    monkeypatch.setattr(arithmetic, "BLOCK", 40)
    assert torch.equal(rule(rows, weights), wanted)


@given(st.integers(1, 40), st.data())
def test_a_network_sorts_the_places_that_it_is_asked_for(count, data):
    low = data.draw(st.integers(0, count - 1))
    high = data.draw(st.integers(low + 1, count))
    values = torch.tensor(data.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))).double()
    found = select_ordered(values.unsqueeze(-1), low, high)
    assert torch.cat(found).tolist() == sorted(values.tolist())[low:high]
    assert len(network(count, low, high)) <= len(network(count, 0, count))


def test_the_median_of_nine_takes_fewer_operations_than_their_order():
    assert len(network(9, 4, 5)) < len(network(9, 0, 9)) <= 27


def test_models_are_taken_from_their_places_whatever_lies_how_in_memory():
    rows = drawn(2, 3, 5, 4)
    places = torch.tensor([[4, 0], [1, 1], [2, 3]])
    wanted = torch.stack([own[place] for own, place in zip(rows, places, strict=True)])
    assert torch.equal(take_models(rows, places), wanted)
    assert torch.equal(take_models(rows.transpose(0, 1).contiguous().transpose(0, 1), places), wanted)


def test_distances_are_symmetric_zero_to_oneself_and_finite_where_squares_are_not():
    rows = drawn(3, 2, 6, 5)
    rows[0, 2] *= 1e200
    found = distances(rows)
    assert torch.equal(found, found.mT)
    assert not found.diagonal(dim1=-2, dim2=-1).any()
    assert bool(found.isfinite().all())
    assert float(found[0, 2, 0] / rows[0, 2].abs().max()) == pytest.approx(
        float((rows[0, 2] / rows[0, 2].abs().max()).norm())
    )


def test_a_mean_is_added_up_in_order():
    rows = drawn(4, 5, 3, dtype=torch.float32)
    assert torch.equal(mean(lambda place: rows[place], 5), ((((rows[0] + rows[1]) + rows[2]) + rows[3]) + rows[4]) / 5)


def net_of(topology, **settings):
    return StackedNeighbourhood([metropolis(topology)], round=0, seed=3, **settings)


def mixed(net, rows):
    async def both():
        return await net.mix(await net.release(rows, since=Public(torch.zeros_like(rows))))

    return run_without_loop(both()).values


@pytest.mark.sampled(fast=5)
@EACH
@pytest.mark.parametrize("topology", [small_world(12, degree=6, rewire=0.8, seed=3), star(9)], ids=["uneven", "star"])
def test_receivers_with_different_numbers_of_models_get_what_the_rule_makes_of_theirs(rule, topology, monkeypatch):
    rows, weights = drawn(5, len(topology.peers), 6), metropolis(topology)
    assert len({len(topology.senders(peer)) for peer in topology.peers}) > 1
    found = mixed(robust(net_of(topology), rule), rows)
    for index, peer in enumerate(topology.peers):
        places, share = one_by_one.around(weights.row(peer), topology.peers, peer)
        own = rows[index] if len(places) < rule.fewest else rule(rows[places], torch.from_numpy(share))
        assert torch.allclose(found[index], own, atol=1e-13)
    monkeypatch.setattr(arithmetic, "BLOCK", 100)  # blocks of two receivers
    assert torch.allclose(mixed(robust(net_of(topology), rule), rows), found, atol=1e-13)


@dataclass(frozen=True)
class Own:
    """Rule of a user, which knows nothing of stacks."""

    calls: list[torch.Tensor]
    fewest: int = 2

    def __call__(self, rows, weights):
        assert rows.dim() == 2
        assert weights.sum() == pytest.approx(1.0)
        self.calls.append(rows)
        return rows[0] + 1


@pytest.mark.parametrize("nearest", [False, True])
def test_a_rule_without_the_trait_is_called_for_one_receiver_after_the_other(nearest):
    own, topology, rows = Own([]), small_world(12, degree=4, rewire=0.8, seed=3), drawn(6, 12, 6)
    found = mixed(robust(net_of(topology), NearestMixed(own, 0) if nearest else own), rows)
    assert len(own.calls) == 12
    if not nearest:
        assert torch.equal(torch.stack([each[0] for each in own.calls]), rows)
        assert torch.equal(found, rows + 1)


def test_without_most_messages_the_plain_average_under_an_attack_is_that_of_what_arrives():
    topology, rows = small_world(12, degree=4, rewire=0.8, seed=3), drawn(7, 12, 6)
    faults = Faults(loss=0.5)
    attack = Attack("sign_flip", frozenset({"peer03", "peer07"}), 12)
    found = mixed(add_attack(net_of(topology, faults=faults), attack, round=0), rows)
    matrix = faults.senders(metropolis(topology).matrix, seed=3, round=0, step=0).toarray()
    sent = rows.clone()
    sent[[3, 7]] *= -1
    for index in range(12):
        heard = sent.clone()
        heard[index] = rows[index]
        assert torch.allclose(found[index], torch.from_numpy(matrix[index]) @ heard, atol=1e-13)


def test_dissensus_sends_each_receiver_what_its_paper_says():
    topology, rows, bad = small_world(12, degree=4, rewire=0.8, seed=3), drawn(8, 12, 6), {"peer03", "peer07"}
    attack, weights = Attack("dissensus", frozenset(bad), 12, scale=1.5), metropolis(topology)
    net = add_attack(net_of(topology), attack, round=0)

    async def received():
        return await net.receive(await net.release(rows, since=Public(torch.zeros_like(rows))))

    found = run_without_loop(received())
    for listener, sender in zip(found.listener.tolist(), found.sender.tolist(), strict=True):
        peer, row = topology.peers[listener], weights.row(topology.peers[listener])
        if sender < 12:
            assert torch.equal(found.rows[sender], rows[sender])
            continue
        assert peer not in bad
        pulled = sum(row[each] * (rows[topology.peers.index(each)] - rows[listener]) for each in {*row} - bad - {peer})
        lie = rows[listener] - 1.5 * pulled / sum(row[each] for each in {*row} & bad)
        assert torch.allclose(found.rows[sender], lie, atol=1e-12)
    lied = {int(each) for each in found.listener[found.sender >= 12]}
    assert len(lied) > 3
    assert lied == {i for i, peer in enumerate(topology.peers) if peer not in bad and bad & {*topology.senders(peer)}}
