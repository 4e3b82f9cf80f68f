"""How much a simulation evaluates follows from counted operations and keys, and is stated."""

import pytest
import torch
from torch import nn

from p2pfl.experiment import plan, read
from p2pfl.learning.checks import Size
from p2pfl.results.run import Run
from p2pfl.results.run_files import evaluation_of
from p2pfl.simulation import simulate
from p2pfl.simulation.evaluation_size import FREE, Evaluator, Scope, _affordable, scope

TABLE = {
    "rounds": 4,
    "topology": {"kind": "ring", "peers": 12},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"algorithm": "dpsgd"},
}


def simulated(evaluation, **changes):
    return simulate(TABLE | {"evaluation": evaluation} | changes, baselines=False)


@pytest.fixture(scope="module")
def full():
    return simulated({})


@pytest.fixture(scope="module")
def some():
    return simulated({"every": 2, "peers": 5})


def test_a_small_simulation_is_evaluated_in_full_and_says_nothing_about_it(full):
    assert all(record.scores for record in full.metrics)
    assert full.summary["evaluation"] is None
    assert evaluation_of(full.summary) == ""


def test_evaluated_peers_have_the_scores_of_a_full_evaluation_in_the_rounds_that_are_due(full, some):
    whole = {(record.round, record.peer): record.scores for record in full.metrics}
    seen = {
        round: {record.peer for record in some.metrics if record.round == round and record.scores} for round in range(4)
    }
    assert [len(seen[round]) for round in range(4)] == [0, 5, 0, 12]
    assert seen[1] < seen[3]
    for record in some.metrics:
        assert not record.scores or record.scores == pytest.approx(whole[record.round, record.peer], abs=1e-6)


def test_evaluating_less_changes_no_model_and_not_the_last_round(full, some):
    assert all(
        torch.equal(value, full.models[peer][name]) for peer in some.models for name, value in some.models[peer].items()
    )
    assert some.summary["together"] == full.summary["together"]
    assert some.summary["evaluation"] == {"every": 2, "peers": 5}
    assert evaluation_of(some.summary).startswith("scores of one in 2 rounds are those of 5 of 12 peers")


def test_which_peers_are_evaluated_follows_from_the_seed():
    chosen = [Evaluator(plan(read(TABLE | {"seed": seed, "evaluation": {"peers": 5}}))).some for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_a_run_that_stops_early_evaluates_its_last_round_in_full():
    learning = {"algorithm": "dpsgd", "rate": 1e-9, "stop": 1.0}
    run = simulated({"peers": 3}, learning=learning)
    assert {record.round for record in run.metrics} == {0, 1}
    assert all(record.scores for record in run.metrics if record.round == 1)


def test_the_record_of_a_run_that_stops_early_is_replaced_in_its_file(tmp_path):
    table = TABLE | {"evaluation": {"peers": 3}, "learning": {"algorithm": "dpsgd", "rate": 1e-9, "stop": 1.0}}
    run = simulate(table, folder=tmp_path / "run", baselines=False)
    assert Run.load(tmp_path / "run").metrics == run.metrics


def test_equal_models_are_evaluated_in_full_by_default(monkeypatch):
    monkeypatch.setattr("p2pfl.simulation.evaluation_size.FREE", 1)
    table = TABLE | {"topology": {"kind": "ring", "peers": 40}, "learning": {"algorithm": "dpsgd", "batch": 1}}
    evaluator = Evaluator(plan(read(table)))
    rows = evaluator.plan.learner.start(evaluator.names)
    assert evaluator.scope.peers is not None or evaluator.scope.every > 1
    assert all(evaluator.after(0, rows))
    rows[3] += 1
    assert not all(evaluator.after(0, rows))


def test_the_default_costs_at_most_a_fifth_of_the_training(monkeypatch):
    monkeypatch.setattr("p2pfl.simulation.evaluation_size.FREE", 1)
    for batch in (1, 2, 4, 16, 64):
        resolved = plan(read(TABLE | {"topology": {"peers": 60}, "learning": {"algorithm": "dpsgd", "batch": batch}}))
        found, held = scope(resolved), len(resolved.federation.test["peer00"])
        cost = (found.peers or 60) * held / found.every
        trained = resolved.learner.samples_a_round(resolved.topology.peers)
        assert cost <= 0.2 * 3 * trained
        assert found.full or 2 * cost * (1 + 1 / (found.peers or 60)) > 0.2 * 3 * trained


@pytest.mark.parametrize(
    ("held", "budget", "wanted"),
    [
        ([10_000] * 4000, 4e7, Scope()),
        ([10_000] * 4000, 770_000, Scope(peers=77)),
        ([10_000] * 4000, 16_000, Scope(every=10, peers=16)),
        ([10_000] * 8, 16_000, Scope(every=5)),
        ([100] * 8, 200, Scope(every=4)),
        ([0] * 8, 0, Scope()),
    ],
)
def test_peers_are_left_out_first_then_rounds(held, budget, wanted):
    assert _affordable(sum(held), len(held), budget=budget) == wanted


def test_what_is_free_may_always_be_evaluated():
    resolved = plan(read(TABLE | {"learning": {"algorithm": "dpsgd", "batch": 1}}))
    spent = resolved.learner.products * 4 * 12 * len(resolved.federation.test["peer00"])
    assert spent < FREE
    assert scope(resolved).full


def test_products_of_layers_are_counted_for_each_place_where_a_layer_uses_its_weights():
    size = Size(0)
    for layer, sample in ((nn.Linear(6, 4), (1, 6)), (nn.Conv2d(2, 3, 3), (1, 2, 8, 8)), (nn.ReLU(), (1, 5))):
        layer.register_forward_hook(size.count)
        layer(torch.zeros(sample))
    assert size.products == 6 * 4 + 3 * 2 * 9 * 36
    assert size.numbers == 4 + 3 * 36 + 5
