import errno
import io
import json
import threading
from pathlib import Path

import pytest

from p2pfl.errors import BudgetError, InputError, StorageError
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


@pytest.mark.parametrize("changes", [["simulation.absence=0.2"], ["simulation.absence=0.05", "privacy.epsilon=20"]])
def test_rounds_that_absent_peers_make_dearer_end_the_run_before_its_budget_is_exceeded(changes, tmp_path):
    settings = experiment(tmp_path / "b.jsonl", "rounds=400", *changes)
    run = simulate(settings, baselines=False)
    counted = Budget(tmp_path / "b.jsonl").before(["peer0"], delta=1e-5)
    assert len(counted) == 2  # both kinds of rounds
    assert run.summary["rounds"] == sum(counted.values()) < plan(settings).protection.affordable
    assert 0.7 * settings.privacy.epsilon < run.summary["privacy"]["epsilon"] <= settings.privacy.epsilon


def test_where_not_even_the_first_round_is_within_the_budget_nothing_is_sent(tmp_path):
    wanted = plan(experiment(tmp_path / "b.jsonl", "privacy.epsilon=2", "privacy.noise=1.5"))
    meter = Meter(wanted, ["peer0"], run="test")
    with pytest.raises(BudgetError, match=r"epsilon = 2 to allow round 1, in which .* is missing, too, got 2\.\d+"):
        meter.charge(0, whole=False)
    assert not (tmp_path / "b.jsonl").exists()
    meter.charge(0, whole=True)
    with pytest.raises(BudgetError, match=r"in which somebody"):
        simulate(experiment(tmp_path / "c.jsonl", "privacy.epsilon=2", "privacy.noise=1.5", "simulation.absence=0.9"))


def test_what_the_disk_takes_in_parts_is_noted_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    room = [1000]

    class Small(io.FileIO):
        def write(self, data):
            if not room[0]:
                raise OSError(errno.ENOSPC, "no space left")
            taken = super().write(bytes(data)[: min(5, room[0])])
            room[0] -= taken
            return taken

    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode, **_: Small(path, mode) if "a" in mode else real(path, mode))
    budget = Budget(tmp_path / "b.jsonl")
    budget.spend(["peer0"], run="test", round=0, cost=Cost(0.5))
    assert budget.before(["peer0"], delta=1e-5) == {Cost(0.5): 1}
    room[0] = 12
    with pytest.raises(StorageError, match="without it nothing is sent"):
        budget.spend(["peer0"], run="test", round=1, cost=Cost(0.5))
    with pytest.raises(InputError, match="line 2"):  # rather than to count too little
        budget.before(["peer0"], delta=1e-5)


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


def test_two_runs_at_once_stop_where_both_together_reach_the_budget(tmp_path):
    resolved = plan(experiment(tmp_path / "b.jsonl", "rounds=400"))
    meters = [Meter(resolved, ["peer0"], run=name) for name in ("one", "other")]
    allowed = len(meters[0].rounds)
    for round in range(allowed):
        meters[round % 2].charge(round, whole=True)
    for meter in meters:
        with pytest.raises(BudgetError, match="raise it, or run fewer rounds"):
            meter.charge(allowed, whole=True)
        assert meter.spent <= 8.0
    assert len((tmp_path / "b.jsonl").read_text().splitlines()) == allowed


def test_while_one_run_spends_another_waits(tmp_path):
    budget = Budget(tmp_path / "b.jsonl")
    entered, order = threading.Event(), []

    def check():
        entered.set()
        order.append("one looks")
        other.join(0.2)  # it cannot end before we do
        order.append("one spends")

    def spend():
        entered.wait()
        Budget(tmp_path / "b.jsonl").spend(
            ["b"], run="other", round=0, cost=Cost(0.5), check=lambda: order.append("other looks")
        )

    other = threading.Thread(target=spend)
    other.start()
    budget.spend(["a"], run="one", round=0, cost=Cost(0.5), check=check)
    other.join()
    assert order == ["one looks", "one spends", "other looks"]


def test_rounds_of_sums_that_somebody_was_missing_from_cost_what_private_noise_alone_gives(tmp_path):
    table = TABLE | {"topology": {"kind": "complete", "peers": 6}}
    changes = ["privacy.mode=secagg", "privacy.mask=1.0", "privacy.epsilon=100", f'privacy.budget="{tmp_path}/b.jsonl"']
    resolved = plan(read(table, changes=changes)).protection
    meter = Meter(plan(read(table, changes=changes)), ["peer0"], run="test")
    for round in range(2):
        meter.charge(round, whole=True)
    assert meter.spent == pytest.approx(resolved.spent({resolved.cost: 2}))
    meter.expose()
    meter.expose()
    assert meter.spent == pytest.approx(resolved.spent({resolved.local: 2}))
    meter.charge(2, whole=True)
    assert meter.spent == pytest.approx(resolved.spent({resolved.local: 3}))
    costs = Budget(tmp_path / "b.jsonl").before(["peer0"], delta=1e-5)
    assert resolved.total(costs) == pytest.approx(meter.spent)


def test_another_life_counts_the_sums_of_the_one_before_as_those_that_lacked_it():
    table = {key: value for key, value in TABLE.items() if key != "privacy"} | {
        "topology": {"kind": "complete", "peers": 6}
    }
    table["privacy"] = {"mode": "secagg", "mask": 1.0, "noise": 2.0, "clip": 1.0}
    resolved = plan(read(table))
    first = Meter(resolved, ["peer0"], run="test 1")
    for round in range(2):
        first.charge(round, whole=True)
    second = Meter(resolved, ["peer0"], run="test 2", earlier=first.costs)
    second.charge(2, whole=True)
    assert second.spent == pytest.approx(resolved.protection.spent({resolved.protection.local: 3}))


def test_what_sums_that_lack_somebody_would_cost_beyond_the_budget_is_not_spent_and_nothing_more_is_sent(tmp_path):
    table = TABLE | {"topology": {"kind": "complete", "peers": 6}}
    changes = ["privacy.mode=secagg", "privacy.mask=1.0", "privacy.noise=0", f'privacy.budget="{tmp_path}/b.jsonl"']
    meter = Meter(plan(read(table, changes=changes)), ["peer0"], run="test")
    meter.charge(0, whole=True)
    before = meter.spent
    for act in (meter.expose, lambda: meter.charge(1, whole=True)):
        with pytest.raises(BudgetError, match="sums that somebody is missing from"):
            act()
    assert meter.spent == before
