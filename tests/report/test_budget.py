import json

import pytest

from p2pfl.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.privacy.spending import Cost
from p2pfl.report.budget import Budget, Meter
from p2pfl.simulation import simulate

TABLE = {
    "rounds": 4,
    "topology": {"kind": "ring", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "privacy": {"mode": "pairwise", "noise": 2.0, "mask": 10.0, "clip": 1.0, "epsilon": 8.0},
}


def experiment(path, *changes):
    return read(TABLE, changes=[f'privacy.budget="{path}"', *changes])


def test_two_runs_on_the_same_data_add_up_and_the_second_stops_at_the_budget(tmp_path):
    path = tmp_path / "wine.budget.jsonl"
    first = simulate(experiment(path), baselines=False)
    alone = first.metrics[-1].privacy_spent
    second = simulate(experiment(path, "rounds=1"), baselines=False)
    assert second.metrics[-1].privacy_spent > alone
    last = simulate(experiment(path, "rounds=400"), baselines=False)
    assert last.metrics[-1].privacy_spent <= 8.0
    assert last.summary["rounds"] < 400
    with pytest.raises(InputError, match="spent already"):
        simulate(experiment(path), baselines=False)


def test_spending_grows_by_the_same_cost_each_round(tmp_path):
    run = simulate(experiment(tmp_path / "b.jsonl"), baselines=False)
    resolved = plan(experiment(tmp_path / "b2.jsonl")).protection
    spent = [record.privacy_spent for record in run.metrics if record.peer == "peer0"]
    assert spent == pytest.approx([resolved.spent({resolved.cost: rounds}) for rounds in (1, 2, 3, 4)])


def test_the_file_has_one_line_a_peer_and_release(tmp_path):
    path = tmp_path / "b.jsonl"
    simulate(experiment(path), baselines=False)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(entry["peer"], entry["round"]) for entry in entries} == {
        (f"peer{peer}", round) for peer in range(4) for round in range(4)
    }


def test_a_round_without_all_mask_neighbours_costs_what_private_noise_alone_gives(tmp_path):
    resolved = plan(experiment(tmp_path / "b.jsonl"))
    meter = Meter(resolved, ["peer0"], run="test")
    meter.charge(0, whole=False)
    assert Budget(tmp_path / "b.jsonl").before(["peer0"], delta=1e-5) == {Cost(resolved.protection.guarantee.local): 1}
    assert resolved.protection.local.mu > resolved.protection.cost.mu


def test_a_file_that_is_damaged_is_refused_by_its_line(tmp_path):
    path = tmp_path / "b.jsonl"
    path.write_text('{"run":"a","peer":"peer0","round":0,"mu":0.5}\nnonsense\n')
    with pytest.raises(InputError, match="line 2"):
        Budget(path).before(["peer0"], delta=1e-5)


def test_a_table_of_data_has_its_budget_beside_it(tmp_path):
    table = TABLE | {"data": {"name": "csv", "options": {"path": str(tmp_path / "cells.csv"), "target": "y"}}}
    found = Budget.of(read(table))
    assert found is not None
    assert found.path == tmp_path / "cells.csv.budget.jsonl"


def test_without_a_mode_nothing_is_counted():
    assert Budget.of(read({})) is None
