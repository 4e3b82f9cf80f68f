"""All gossip steps of a round as one product: the models, counts and distances of one step after the other."""

import pytest
import torch

from p2pfl.algorithms import Gossip
from p2pfl.core.neighbourhood import Released, Wrapped, run_without_loop, step_by_step
from p2pfl.simulation import StackedNeighbourhood
from p2pfl.simulation.mixing import at_once
from p2pfl.simulation.stacked import Faults
from p2pfl.topology import metropolis, random_regular, ring

GOSSIP = {
    "plain": Gossip(12),
    "Chebyshev": Gossip(12, rho=0.8),
    "three": Gossip(3),
}
WEIGHTS = metropolis(random_regular(30, degree=4, seed=3))


def released(*, weighted, dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(30, 40, generator=generator, dtype=torch.float64).to(dtype)
    return Released(rows, torch.rand(30, 1, generator=generator, dtype=torch.float64) if weighted else None)


def net(*weights, **more):
    return StackedNeighbourhood(weights or [WEIGHTS], round=0, seed=0, **more)


@pytest.fixture
def steps(monkeypatch):
    """The number of gossip steps taken one by one."""
    taken, mix = [], StackedNeighbourhood.mix

    async def counted(self, released):
        taken.append(self.step)
        return await mix(self, released)

    monkeypatch.setattr(StackedNeighbourhood, "mix", counted)
    return taken


@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
@pytest.mark.parametrize("gossip", GOSSIP.values(), ids=GOSSIP)
def test_all_at_once_find_what_one_after_the_other_does(gossip, weighted, steps):
    given, whole, single = released(weighted=weighted), net(), net()
    found = run_without_loop(gossip(whole, given))
    assert len(steps) == 1  # the last, whose distance is recorded
    expected = run_without_loop(step_by_step(single, given, gossip.omegas))
    torch.testing.assert_close(found.values, expected.values, rtol=0, atol=1e-13)
    torch.testing.assert_close(found.masses, expected.masses, rtol=0, atol=1e-13) if weighted else None
    assert whole.step == single.step == gossip.steps
    assert torch.equal(whole.received, single.received)
    assert torch.equal(whole.bytes_out, single.bytes_out)
    torch.testing.assert_close(whole.distance, single.distance, rtol=0, atol=1e-13)


def test_floats_are_as_close_to_the_exact_result_as_one_after_the_other():
    given, exact = released(weighted=False, dtype=torch.float32), released(weighted=False)
    expected = run_without_loop(step_by_step(net(), exact, [1.0] * 12)).values
    found, single = (
        run_without_loop(Gossip(12)(net(), given)).values,
        run_without_loop(step_by_step(net(), given, [1.0] * 12)).values,
    )
    assert (found - expected).abs().max() <= 2 * (single - expected).abs().max()


def test_integers_on_the_grid_count_four_bytes_in_the_first_step_as_before():
    grid = Released(torch.arange(30 * 40).view(30, 40), grid=10)
    whole, single = net(), net()
    run_without_loop(Gossip(5)(whole, grid))
    run_without_loop(step_by_step(single, grid, [1.0] * 5))
    assert torch.equal(whole.bytes_out, single.bytes_out)


@pytest.mark.parametrize(
    "made",
    [
        lambda: net(faults=Faults(loss=0.1)),
        lambda: net(faults=Faults(absence=0.1)),
        lambda: net(*(metropolis(each) for each in (ring(30), random_regular(30, degree=4, seed=1)))),
    ],
    ids=["loss", "absence", "schedule"],
)
def test_steps_with_weights_of_their_own_are_taken_one_by_one(made, steps):
    run_without_loop(Gossip(12)(made(), released(weighted=False)))
    assert len(steps) == 12


class Halved(Wrapped):
    """A neighbourhood whose mixing goes half of the way."""

    async def mix(self, released):
        return released.combine(0.5, 0.5, await self._net.mix(released))


def test_a_wrapper_that_mixes_in_its_own_way_takes_each_step_and_one_that_does_not_takes_them_at_once(steps):
    given = released(weighted=False)
    halved = run_without_loop(Gossip(12)(Halved(net()), given))
    assert len(steps) == 12
    torch.testing.assert_close(halved.values, run_without_loop(step_by_step(Halved(net()), given, [1.0] * 12)).values)
    steps.clear()
    run_without_loop(Gossip(12)(Wrapped(net()), given))
    assert len(steps) == 1


def test_a_large_sparse_graph_or_few_steps_are_not_worth_a_dense_matrix():
    assert at_once(metropolis(ring(100)).matrix, steps=20)
    assert not at_once(metropolis(ring(1000)).matrix, steps=20)
    assert not at_once(metropolis(ring(100)).matrix, steps=1)
    assert not at_once(metropolis(ring(2100)).matrix, steps=10**6)
