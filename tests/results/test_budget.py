import errno
import io
import json
import threading
from pathlib import Path

import pytest

from p2pfl.core.errors import BudgetError, InputError, StorageError
from p2pfl.experiment import plan, read
from p2pfl.experiment.schema import PrivacySettings
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.results.spending.budget import Budget, PeerAccounts
from p2pfl.results.spending.meter import Meter, stopped
from p2pfl.results.spending.stated import BudgetStop
from p2pfl.simulation import simulate

TABLE = {
    "rounds": 4,
    "topology": {"kind": "ring", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "privacy": {"mode": "pairwise", "noise": 2.0, "mask": 10.0, "clip": 1.0, "epsilon": 8.0},
}


PEERS = ("peer0", "peer1", "peer2", "peer3")


def account(path, *, names=PEERS, **wanted):
    """What the experiment of these peers reads and writes there."""
    return Budget(path, PrivacySettings(**wanted), names)


def experiment(path, *changes):
    return read(TABLE, changes=[f'privacy.budget="{path}"', *changes])


@pytest.mark.slow
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
    assert account(tmp_path / "b.jsonl").before(["peer0"]) == {Cost(resolved.protection.guarantee.local): 1}
    assert resolved.protection.local.mu > resolved.protection.cost.mu


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("changes", [["simulation.absence=0.2"], ["simulation.absence=0.05", "privacy.epsilon=20"]])
def test_rounds_that_absent_peers_make_dearer_end_the_run_before_its_budget_is_exceeded(changes, tmp_path):
    settings = experiment(tmp_path / "b.jsonl", "rounds=400", *changes)
    run = simulate(settings, baselines=False)
    counted = account(tmp_path / "b.jsonl").before(["peer0"])
    assert len(counted) == 2  # both kinds of rounds
    assert run.summary["rounds"] == sum(counted.values()) < plan(settings).protection.affordable
    assert 0.7 * settings.privacy.epsilon < run.summary["privacy"]["epsilon"] <= settings.privacy.epsilon


def test_where_not_even_the_first_round_is_within_the_budget_nothing_is_sent(tmp_path):
    wanted = plan(experiment(tmp_path / "b.jsonl", "privacy.epsilon=2", "privacy.noise=1.5"))
    meter = Meter(wanted, ["peer0"], run="test")
    with pytest.raises(
        BudgetError,
        match=(
            r"privacy\.epsilon = 2 does not permit round 1, in which a mask partner is missing,, which would make it "
            r"2\.75; raise it, or run fewer rounds"
        ),
    ):
        meter.charge(0, whole=False)
    assert not (tmp_path / "b.jsonl").exists()
    meter.charge(0, whole=True)
    with pytest.raises(
        BudgetError,
        match=(
            r"privacy\.epsilon = 2 does not permit round 1, in which a mask partner is missing,, which would make it "
            r"2\.75; raise it, or run fewer rounds"
        ),
    ):
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
    budget = account(tmp_path / "b.jsonl")
    budget.spend(["peer0"], run="test", round=0, cost=Cost(0.5))
    assert budget.before(["peer0"]) == {Cost(0.5): 1}
    room[0] = 12
    with pytest.raises(
        StorageError,
        match=(
            r"the privacy budget .* cannot be written \(no space left\), and nothing is sent without it; free some "
            r"space, or choose another place with privacy\.budget"
        ),
    ):
        budget.spend(["peer0"], run="test", round=1, cost=Cost(0.5))
    assert budget.before(["peer0"]) == {Cost(0.5): 1}
    assert (tmp_path / "b.jsonl").read_text().count("\n") == 1
    room[0] = 1000
    budget.spend(["peer0"], run="test", round=1, cost=Cost(0.5))
    assert account(tmp_path / "b.jsonl").before(["peer0"]) == {Cost(0.5): 2}


def test_a_file_that_is_damaged_is_refused_by_its_line(tmp_path):
    path = tmp_path / "b.jsonl"
    account(path).spend(["peer0"], run="a", round=0, cost=Cost(0.5))
    path.write_text(path.read_text() + "nonsense\n")
    with pytest.raises(InputError, match="line 2"):
        account(path).before(["peer0"])


def test_a_table_of_data_has_its_budget_beside_it(tmp_path):
    table = TABLE | {"data": {"name": "csv", "options": {"path": str(tmp_path / "cells.csv"), "target": "y"}}}
    found = PeerAccounts.of(read(table), plan(read(TABLE)).protection, PEERS)
    assert found is not None
    assert found.path(PEERS) == tmp_path / "cells.csv.budget.jsonl"


def test_without_a_mode_nothing_is_counted():
    assert PeerAccounts.of(read({}), plan(read({})).protection, PEERS) is None


@pytest.mark.slow
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
    budget = account(tmp_path / "b.jsonl")
    entered, order = threading.Event(), []

    def check():
        entered.set()
        order.append("one looks")
        other.join(0.2)  # it cannot end before we do
        order.append("one spends")

    def spend():
        entered.wait()
        account(tmp_path / "b.jsonl").spend(
            ["b"], run="other", round=0, cost=Cost(0.5), check=lambda: order.append("other looks")
        )

    other = threading.Thread(target=spend)
    other.start()
    budget.spend(["a"], run="one", round=0, cost=Cost(0.5), check=check)
    other.join()
    assert order == ["one looks", "one spends", "other looks"]


def test_rounds_of_sums_that_somebody_was_missing_from_cost_what_private_noise_alone_gives(tmp_path):
    table = TABLE | {"topology": {"kind": "complete", "peers": 6}}
    changes = ["privacy.mode=secagg", "privacy.epsilon=100", f'privacy.budget="{tmp_path}/b.jsonl"']
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
    costs = account(tmp_path / "b.jsonl").before(["peer0"])
    assert resolved.total(costs) == pytest.approx(meter.spent)


def test_another_life_counts_the_sums_of_the_one_before_as_those_that_lacked_it():
    table = {key: value for key, value in TABLE.items() if key != "privacy"} | {
        "topology": {"kind": "complete", "peers": 6}
    }
    table["privacy"] = {"mode": "secagg", "noise": 2.0, "clip": 1.0}
    resolved = plan(read(table))
    first = Meter(resolved, ["peer0"], run="test 1")
    for round in range(2):
        first.charge(round, whole=True)
    second = Meter(resolved, ["peer0"], run="test 2", earlier=first.costs)
    second.charge(2, whole=True)
    assert second.spent == pytest.approx(resolved.protection.spent({resolved.protection.local: 3}))


def test_what_sums_that_lack_somebody_would_cost_beyond_the_budget_is_not_spent_and_nothing_more_is_sent(tmp_path):
    table = TABLE | {"topology": {"kind": "complete", "peers": 6}}
    changes = ["privacy.mode=secagg", "privacy.noise=0", f'privacy.budget="{tmp_path}/b.jsonl"']
    meter = Meter(plan(read(table, changes=changes)), ["peer0"], run="test")
    meter.charge(0, whole=True)
    before = meter.spent
    for act in (meter.expose, lambda: meter.charge(1, whole=True)):
        with pytest.raises(
            BudgetError,
            match=(
                r"privacy\.epsilon = 8 does not permit 1 rounds of sums without a missing peer, which would make it "
                r"9\.16; raise it, or run fewer rounds"
            ),
        ):
            act()
    assert meter.spent == before


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("privacy.adjacency=replace", 'has privacy.adjacency = "replace" and privacy.colluders = 1'),
        ("privacy.colluders=0", 'has privacy.adjacency = "zero-out" and privacy.colluders = 0'),
    ],
)
def test_costs_under_another_adjacency_or_for_other_colluders_are_not_added_up(change, said, tmp_path):
    path = tmp_path / "b.jsonl"
    simulate(experiment(path), baselines=False)
    kept = path.read_text()
    with pytest.raises(
        InputError, match=f'kept under privacy.adjacency = "zero-out" and privacy.colluders = 1.*{said}'
    ):
        simulate(experiment(path, change), baselines=False)
    assert path.read_text() == kept


def test_a_name_stands_for_the_same_data_in_every_run_of_the_same_peers(tmp_path):
    path = tmp_path / "b.jsonl"
    account(path).spend(["peer0"], run="one", round=0, cost=Cost(0.5))
    account(path, names=reversed(PEERS)).spend(["peer1"], run="two", round=0, cost=Cost(0.7))
    budget = account(path)
    assert budget.before(["peer0"]) == {Cost(0.5): 1}
    assert budget.before(["peer2"]) == {}
    assert budget.before(PEERS) == {Cost(0.7): 1}


def test_among_other_peers_the_data_may_have_been_anybodys(tmp_path):
    path = tmp_path / "b.jsonl"
    account(path).spend(["peer0"], run="one", round=0, cost=Cost(0.5))
    account(path).spend(["peer1"], run="one", round=0, cost=Cost(0.7))
    account(path, names=["ada", "bob"]).spend(["bob"], run="two", round=0, cost=Cost(0.6))
    for name in ("peer0", "peer5"):
        other = account(path, names=[*PEERS, "peer4", "peer5"])
        assert other.before([name]) == {Cost(0.7): 1, Cost(0.6): 1}
        other.spend([name], run=name, round=0, cost=Cost(0.1))
        assert other.before([name]) == {Cost(0.7): 1, Cost(0.6): 1, Cost(0.1): 1}
    assert account(path).before(["peer1"]) == {Cost(0.7): 1, Cost(0.6): 1, Cost(0.1): 1}


@pytest.mark.slow
def test_other_names_on_the_same_data_do_not_begin_at_zero(tmp_path):
    path = tmp_path / "b.jsonl"
    simulate(experiment(path, "rounds=400"), baselines=False)
    for change in ("topology.peers=12", "topology.peers=5"):
        with pytest.raises(InputError, match="spent already"):
            simulate(experiment(path, "rounds=400", change), baselines=False)


def test_a_peer_with_a_file_of_its_own_counts_its_lives_once_each(tmp_path):
    settings = plan(experiment(tmp_path / "mine.jsonl", "privacy.epsilon=20"))
    first = Meter(settings, ["peer2"], run="swarm 1")
    first.charge(0, whole=True)
    second = Meter(settings, ["peer2"], run="swarm 2", earlier=first.costs)
    second.charge(1, whole=True)
    assert second.spent == pytest.approx(settings.protection.spent({settings.protection.cost: 2}))


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "stops"), [(3, False), (400, True)])
def test_a_run_that_its_budget_ends_says_so(rounds, stops, tmp_path):
    path = tmp_path / "b.jsonl"
    run = simulate(experiment(path, f"rounds={rounds}"), baselines=False, folder=tmp_path / "run")
    played = run.summary["rounds"]
    peers = run.summary["peers"]
    stop = {"done": played, "rounds": 400, "epsilon": 8.0, "account": None, "peers": peers, "among": peers}
    assert run.summary["stopped"] == (stop if stops else None)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["stopped"] == run.summary["stopped"]


@pytest.mark.slow
def test_a_run_that_stops_early_because_of_earlier_ones_names_their_account(tmp_path):
    path = tmp_path / "b.jsonl"
    simulate(experiment(path), baselines=False)
    run = simulate(experiment(path, "rounds=400"), baselines=False)
    assert run.summary["stopped"]["account"] == str(path)


@pytest.mark.slow
def test_a_run_that_a_dearer_round_ends_says_so_too(tmp_path):
    settings = experiment(tmp_path / "b.jsonl", "rounds=400", "simulation.absence=0.2")
    run = simulate(settings, baselines=False)
    stop = run.summary["stopped"]
    assert (stop["done"], stop["rounds"], stop["epsilon"]) == (run.summary["rounds"], 400, 8.0)


def test_peers_that_their_budget_ended_are_counted():
    stop = BudgetStop(8, 10, 8.0)
    assert stopped([None, None]) is None
    assert stopped([stop, stop]) == BudgetStop(8, 10, 8.0, peers=2, among=2)
    assert stopped([stop, None, None]) == BudgetStop(8, 10, 8.0, peers=1, among=3)
