"""A simulation uses one intra-op thread, and leaves the caller's setting as it was."""

import pytest
import torch

from p2pfl.experiment import plan, read
from p2pfl.network.virtual.forecast import forecast, network
from p2pfl.privacy import Settings
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from p2pfl.simulation.curator import compare

TABLE = {
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
}


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_simulation_uses_one_thread_and_restores_the_callers_number():
    seen = []
    simulate(TABLE, observe=lambda _records: seen.append(torch.get_num_threads()))
    assert seen == [1, 1]
    assert torch.get_num_threads() == 2


def test_a_forecast_over_a_network_uses_one_thread():
    seen = []
    over = network("wan")
    forecast(read(TABLE), over, observe=lambda _records: seen.append(torch.get_num_threads()), baselines=False)
    assert seen == [1, 1]
    assert torch.get_num_threads() == 2


@pytest.mark.slow
def test_an_inversion_of_an_audit_uses_one_thread():
    resolved, seen = plan(read(TABLE)), []

    def train(_federation):
        seen.append(torch.get_num_threads())
        raise KeyError

    inversion = pytest.importorskip("p2pfl.plugins.audit.attacks.inversion")
    target = pytest.importorskip("p2pfl.plugins.audit.pipeline").Target(
        Settings(), resolved.topology, resolved.weights, SeededSource
    )
    with pytest.raises(KeyError):
        inversion.invert(target, (), federation=resolved.federation, train=train)
    assert seen == [1]
    assert torch.get_num_threads() == 2


def test_a_simulation_that_fails_restores_the_callers_number_of_threads():
    def fail(_records):
        raise KeyError

    with pytest.raises(KeyError):
        simulate(TABLE, observe=fail)
    assert torch.get_num_threads() == 2


@pytest.mark.slow
def test_the_callers_number_of_threads_does_not_change_the_models():
    table = TABLE | {"data": {"name": "digits"}, "model": {"name": "mlp"}, "topology": {"kind": "ring", "peers": 64}}
    two = simulate(table, baselines=False).models
    torch.set_num_threads(1)
    one = simulate(table, baselines=False).models
    assert all(torch.equal(two[peer][name], value) for peer in one for name, value in one[peer].items())


@pytest.mark.slow
def test_the_comparison_with_a_curator_uses_one_thread(monkeypatch):
    resolved = plan(read(TABLE | {"privacy": {"mode": "pairwise", "epsilon": 8.0}}))
    seen, evaluate = set(), resolved.learner.evaluate

    def noting(*args, **options):
        seen.add(torch.get_num_threads())
        return evaluate(*args, **options)

    monkeypatch.setattr(resolved.learner, "evaluate", noting)
    compare(resolved)
    assert seen == {1}
    assert torch.get_num_threads() == 2
