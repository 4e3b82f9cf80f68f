"""How far a gossip step moved the models is computed where it is read."""

import pytest
import torch

from p2pfl.algorithms.robust import Median, robust
from p2pfl.core.neighbourhood import Released, measure_step, run_without_loop
from p2pfl.simulation import StackedNeighbourhood, simulate, stacked
from p2pfl.simulation.secagg import SummedNeighbourhood
from p2pfl.topology import complete, metropolis, ring

ROWS = torch.arange(18, dtype=torch.float64).view(6, 3) ** 2


@pytest.fixture
def computed(monkeypatch):
    """Which gossip steps the distance was computed of."""
    found = []

    def counting(before, after):
        found.append((before, after))
        return measure_step(before, after)

    monkeypatch.setattr(stacked, "measure_step", counting)
    return found


@pytest.mark.parametrize("kind", [StackedNeighbourhood, SummedNeighbourhood])
def test_the_distance_is_computed_once_of_the_last_step_and_only_when_it_is_read(kind, computed):
    net = kind([metropolis(ring(6))], round=0, seed=0)
    assert net.distance.tolist() == [0.0] * 6
    first = run_without_loop(net.mix(Released(ROWS)))
    second = run_without_loop(net.mix(first))
    assert not computed
    expected = (second.values - first.values).norm(dim=-1)
    assert net.distance.tolist() == pytest.approx(expected.tolist())
    assert net.distance.tolist() == pytest.approx(expected.tolist())
    assert len(computed) == 1


def test_a_step_that_has_been_read_holds_no_rows():
    net = StackedNeighbourhood([metropolis(ring(6))], round=0, seed=0)
    run_without_loop(net.mix(Released(ROWS)))
    assert net.last is not None
    _ = net.distance
    assert net.last is None


def test_the_distance_under_a_robust_rule_is_computed_when_it_is_read(computed):
    net = StackedNeighbourhood([metropolis(complete(6))], round=0, seed=0)
    run_without_loop(robust(net, Median(1), observer=net).mix(Released(ROWS)))
    assert not computed
    assert net.distance.shape == (6,)
    assert len(computed) == 1


def test_a_simulation_computes_the_distance_once_a_round(computed):
    table = {"rounds": 3, "topology": {"kind": "ring", "peers": 6}, "data": {"name": "wine"}}
    run = simulate(table | {"model": {"name": "linear"}, "gossip": {"steps": 7}}, baselines=False)
    assert len(computed) == 3
    assert all(record.distance > 0 for record in run.metrics)
