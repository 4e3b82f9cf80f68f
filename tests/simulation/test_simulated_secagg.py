import itertools
import math

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from drawn_masks import SOURCE, MaskedNeighbourhood
from p2pfl.algorithms.gossip import maximum
from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import Public, Released, run_without_loop
from p2pfl.experiment import plan, read
from p2pfl.privacy import Settings, private
from p2pfl.privacy.accounting.sum_leakage import Sums
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import secagg, simulate
from p2pfl.simulation.secagg import SummedNeighbourhood, sum_neighbourhoods
from p2pfl.simulation.sharding import Shard
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood
from p2pfl.topology import Weights, complete, exponential, metropolis, random_regular

SWARM = metropolis(random_regular(10, degree=4, seed=1))
DIRECTED = metropolis(exponential(16))


def rows(count=10, size=7, *, seed=0, scale=1.0, dtype=torch.float32):
    return (scale * torch.randn(count, size, generator=torch.Generator().manual_seed(seed))).to(dtype)


def net(*weights, round=0, kind=SummedNeighbourhood, **given):
    return kind(weights or (SWARM,), round=round, seed=3, **given)


def mixed(neighbourhood, released):
    return run_without_loop(neighbourhood.mix(released))


# Exact and oracle


@given(seed=st.integers(0, 1000), loss=st.sampled_from([0.0, 0.2, 0.6]), bits=st.integers(1, 30))
def test_mixing_is_the_sum_of_rounded_rows_of_those_heard(seed, loss, bits):
    values, faults = rows(seed=seed), Faults(loss=loss)
    found = mixed(net(round=seed, bits=bits, faults=faults), Released(values))
    heard = faults.senders(SWARM.matrix, seed=3, round=seed, step=0).toarray()
    for receiver in range(10):
        senders = {sender for sender in range(10) if heard[receiver, sender] and sender != receiver}
        shares = {receiver: heard[receiver, receiver]} | {sender: heard[receiver, sender] for sender in senders}
        if len(senders) < 3:
            shares = {receiver: 1.0}
        expected = [
            sum(round(weight * (float(values[sender, column]) * 2.0**bits)) for sender, weight in shares.items())
            for column in range(7)
        ]
        assert found.rows[receiver].tolist() == expected
    assert (found.grid, found.dtype, found.rows.dtype) == (bits, torch.float32, torch.int64)


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("weights", [SWARM, DIRECTED])
@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.3), Faults(loss=0.1, absence=0.2)])
@pytest.mark.parametrize("width", [32, 64])
def test_drawing_all_masks_through_all_messages_gives_the_same_bits(weights, faults, width):
    count = len(weights.peers)
    one = other = Released(rows(count), torch.linspace(0.5, 1.5, count).double().unsqueeze(-1))
    plain = net(weights, round=2, faults=faults, width=width)
    masked = net(weights, round=2, faults=faults, width=width, kind=MaskedNeighbourhood)
    for _ in range(3):
        one, other = mixed(plain, one), mixed(masked, other)
        assert torch.equal(one.rows, other.rows)
        assert torch.equal(one.masses, other.masses)
    assert torch.equal(plain.received, masked.received)
    assert torch.equal(plain.bytes_out, masked.bytes_out)
    assert torch.equal(plain.distance, masked.distance)


@pytest.mark.parametrize("algorithm", ["fedavg", "dpsgd"])
def test_a_whole_experiment_is_the_same_with_every_mask_drawn(algorithm, monkeypatch):
    resolved = plan(read(TABLE, changes=[f"learning.algorithm={algorithm}", *LOSSY, "privacy.noise=0.01"]))
    source = SeededSource(1)  # the same private noise twice
    plain = simulate(resolved, source=source, baselines=False)
    monkeypatch.setattr(secagg, "SummedNeighbourhood", MaskedNeighbourhood)
    masked = simulate(resolved, source=source, baselines=False)
    for name, model in plain.models.items():
        for key, tensor in model.items():
            assert torch.equal(tensor, masked.models[name][key])
    assert plain.summary["bytes_sent"] == masked.summary["bytes_sent"]


# Neutral


def test_rows_whose_terms_lie_on_the_grid_are_mixed_as_in_plain_view():
    weights = metropolis(complete(8))
    values = torch.randint(-1000, 1000, (8, 5)).double() / 8
    plain = mixed(StackedNeighbourhood((weights,), round=0, seed=3), Released(values)).values
    found = mixed(net(weights), Released(values)).values
    assert torch.equal(found, plain)


def test_an_experiment_learns_as_in_plain_view():
    summed = simulate(read(TABLE), baselines=False)
    plain = simulate(read(TABLE, changes=["privacy.mode=none"]), baselines=False)
    for name, model in plain.models.items():
        for key, tensor in model.items():
            torch.testing.assert_close(summed.models[name][key], tensor, atol=1e-4, rtol=1e-4)
    assert summed.summary["together"] == pytest.approx(plain.summary["together"], abs=0.02)
    assert summed.summary["privacy"]["mode"] == "secagg"
    assert "no differential privacy is claimed" in summed.summary["privacy"]["statement"]


@pytest.mark.parametrize("chosen", [{"clip": 0.5}, {"noise": 0.3}, {"clip": 0.5, "noise": 0.3}])
def test_what_is_released_is_clipped_and_noised_as_with_independent_noise(chosen):
    others = StackedNeighbourhood((SWARM,), round=4, seed=3)
    given = {"settings": Settings(**chosen), "masks": None, "source": SOURCE, "round": 4}
    wrapped = (private(each, **given) for each in (net(round=4), others))
    released = [run_without_loop(each.release(rows(), since=Public(rows(seed=1)))) for each in wrapped]
    assert torch.equal(*(each.rows for each in released))


# Invariant


@given(seed=st.integers(0, 1000), loss=st.floats(0, 0.9), colluders=st.integers(1, 3))
def test_a_common_row_stays_but_for_half_a_step_of_the_grid_a_term(seed, loss, colluders):
    row = rows(1, seed=seed, dtype=torch.float64)
    found = mixed(net(round=seed, faults=Faults(loss=loss), colluders=colluders), Released(row.expand(10, -1)))
    assert (found.values - row).abs().max() <= 6 * 2.0**-21


@pytest.mark.parametrize(("colluders", "heard"), [(1, {0, 3, 4}), (2, {0, 4})])
def test_who_is_reached_by_too_few_keeps_its_row(colluders, heard):
    neighbourhood = net(faults=Faults(loss=0.4), colluders=colluders)
    values = rows()
    found = mixed(neighbourhood, Released(values)).values
    assert {*neighbourhood.received.tolist()} == heard
    kept = (found - values).abs().amax(1) < 1e-6
    assert torch.equal(kept, neighbourhood.received == 0)


def test_a_row_for_each_receiver_is_what_it_costs():
    small, large = net(width=32), net(DIRECTED, width=64)
    mixed(small, Released(rows()))
    mixed(large, Released(rows(16)))
    assert small.bytes_out.tolist() == [4 * 7 * 4] * 10
    assert large.bytes_out.tolist() == [4 * 7 * 8] * 16


@pytest.mark.parametrize("algorithm", ["fedavg", "dpsgd"])
def test_rows_of_a_run_stay_within_what_the_small_ring_was_chosen_for(algorithm):
    """Unequal masses, updates as large as the clip allows: the bound holds, so the ring of 32 bits never overflows."""
    table = TABLE | {"data": {"name": "wine", "split": "dirichlet"}, "learning": {"algorithm": algorithm, "rate": 10.0}}
    resolved = plan(read(table, changes=["privacy.clip=2", "privacy.noise=1", "rounds=6"]))
    neighbourhood = sum_neighbourhoods(resolved, faults=Faults())(0, Shard(resolved.topology.peers))
    assert neighbourhood.width == 32
    assert simulate(resolved, baselines=False).summary["rounds"] == 6


# Refused


def test_rows_themselves_are_not_to_be_had():
    for released in (Released(rows()), Released(rows().long(), grid=20), Released(rows(size=1), torch.ones(10, 1))):
        with pytest.raises(PrivacyError, match="requests single models"):
            run_without_loop(net().receive(released))


def test_public_numbers_may_be_flooded():
    found = run_without_loop(maximum(net(), torch.arange(10.0).unsqueeze(-1), steps=5))
    assert found.flatten().tolist() == [9.0] * 10


@pytest.mark.parametrize(("width", "largest"), [(32, 2.0**11 * 1.3), (64, 2.0**31)])
def test_rows_that_could_leave_the_ring_are_refused_with_and_without_masks(width, largest):
    values = torch.zeros(10, 3)
    values[4, 1] = largest
    for kind in (SummedNeighbourhood, MaskedNeighbourhood):
        with pytest.raises(PrivacyError, match=f"ring of {width} bits"):
            mixed(net(width=width, kind=kind), Released(values))


# Claims


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_attack_of_a_receiver_on_real_sums_is_as_good_as_was_said(seed):
    """Its statistic has the mean shift of the update and the deviation of all other noise: their ratio is mu."""
    size, noise = 60_000, 0.25
    heavy = metropolis(random_regular(10, degree=4, seed=seed)).matrix.toarray()
    heavy = 0.5 * (heavy + heavy @ heavy)  # unequal weights
    weights = Weights(SWARM.peers, scipy.sparse.csr_array(heavy))
    seen = heavy[None, :, None, :]
    leaks = Sums(weights.peers, seen).leaks({weights.peers[0]})
    victim = int(np.argmax(leaks))
    since = torch.zeros(10, size, dtype=torch.float64)
    update = torch.zeros_like(since)
    update[victim] = 1 / math.sqrt(size)  # of norm 1
    given = {"settings": Settings(clip=1.0, noise=noise), "masks": None, "round": 0}
    sums = []
    for number, rows in itertools.product((5, 6), (since, update)):
        wrapped = private(net(weights), source=SeededSource(number), **given)
        released = run_without_loop(wrapped.release(rows, since=Public(since)))
        own = released.values[0] * heavy[0, 0]
        sums.append(run_without_loop(wrapped.mix(released)).values[0] - own)
    shift = float((sums[1] - sums[0]).sum()) / math.sqrt(size)  # the same noise: the update alone
    deviation = float(torch.cat([sums[0], sums[2]]).std())
    assert shift / deviation == pytest.approx(math.sqrt(leaks[victim]) / noise, rel=0.01)


TABLE = {
    "rounds": 3,
    "seed": 6,
    "topology": {"kind": "complete", "peers": 6},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "privacy": {"mode": "secagg"},
}
LOSSY = ("simulation.loss=0.2", "simulation.absence=0.1", "privacy.clip=2")


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(("fault", "full"), [("loss=0.0", True), ("loss=0.1", False), ("absence=0.3", False)])
def test_rounds_in_which_something_may_be_lost_are_charged_at_the_local_floor(fault, full):
    resolved = plan(read(TABLE, changes=["privacy.clip=1", "privacy.noise=2", f"simulation.{fault}"]))
    protection = resolved.protection
    spent = simulate(resolved, baselines=False).summary["privacy"]["epsilon"]
    if full:
        assert spent == pytest.approx(protection.total({protection.cost: 3}))
    else:
        assert spent > protection.total({protection.cost: 3})
        assert spent <= protection.total({protection.local: 3}) * (1 + 1e-9)
