"""What has happened is recorded without condition; what is to come is decided by what is left."""

import json

import pytest

from p2pfl.core.errors import BudgetError
from p2pfl.experiment import plan, read
from p2pfl.results.notices.kinds import BudgetExceeded
from p2pfl.results.spending.meter import Meter

TABLE = {
    "rounds": 6,
    "topology": {"kind": "ring", "peers": 8},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "privacy": {"mode": "pairwise", "epsilon": 4.0},
}


def resolved(path=None, **changes):
    given = [] if path is None else [f'privacy.budget="{path}"']
    return plan(read(TABLE, changes=[*given, *(f"privacy.{key}={value}" for key, value in changes.items())]))


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True])
def test_a_last_release_that_turns_out_uncovered_is_recorded_although_nothing_is_left(kept, tmp_path):
    path = tmp_path / "b.jsonl" if kept else None
    found = resolved(path)
    meter = Meter(found, ["peer0"], run="test")
    for round in range(6):
        meter.charge(round, whole=True)
    assert meter.spent == pytest.approx(4.0)
    meter.correct(5)
    cost, local = found.protection.cost, found.protection.local
    assert meter.spent == pytest.approx(found.protection.spent({cost: 5, local: 1}))
    assert meter.spent == pytest.approx(5.80, abs=0.005)
    assert meter.overdrawn == BudgetExceeded(peer="peer0", spent=meter.spent, epsilon=4.0)
    if kept:
        assert len(path.read_text().splitlines()) == 7
        assert Meter(resolved(path, epsilon=9), ["peer0"], run="next").spent == pytest.approx(meter.spent)


@pytest.mark.slow
def test_after_a_correction_the_next_release_is_refused_if_it_does_not_fit(tmp_path):
    meter = Meter(resolved(tmp_path / "b.jsonl"), ["peer0"], run="test")
    for round in range(5):
        meter.charge(round, whole=True)
    meter.check(4)
    meter.correct(4)
    with pytest.raises(
        BudgetError, match=r"does not permit another attempt at round 5, because .* made it 5\.5; raise"
    ):
        meter.check(4)
    with pytest.raises(
        BudgetError,
        match=r"privacy\.epsilon = 4 does not permit round 6, which would make it 5\.8; raise it, or run fewer rounds",
    ):
        meter.charge(5, whole=True)
    assert meter.stopped(5) is not None
    rounds = [json.loads(line)["round"] for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert rounds == [0, 1, 2, 3, 4, 4]


@pytest.mark.slow
def test_a_correction_under_secret_participation_counts_the_release_again_in_full():
    found = resolved(participation=0.5)
    meter = Meter(found, ["peer0"], run="test")
    meter.charge(0, whole=True)
    meter.correct(0)
    assert meter.costs == {found.protection.cost: 1, found.protection.local: 1}


def test_a_sum_that_was_given_without_somebody_is_recorded_although_nothing_is_left(tmp_path):
    table = TABLE | {"topology": {"kind": "complete", "peers": 6}, "rounds": 2}
    found = plan(read(table, changes=["privacy.mode=secagg", f'privacy.budget="{tmp_path}/b.jsonl"']))
    meter = Meter(found, ["peer0"], run="test")
    for round in range(2):
        meter.charge(round, whole=True)
    meter.exposed()
    assert meter.spent == pytest.approx(found.protection.spent({found.protection.local: 2}))
    assert meter.spent > 4


def test_a_sum_that_was_not_given_makes_the_next_release_dearer_and_is_not_recorded_itself():
    table = TABLE | {"topology": {"kind": "complete", "peers": 6}}
    found = plan(
        read(table, changes=["privacy.mode=secagg", "privacy.noise=2", "privacy.clip=1", "privacy.epsilon=90"])
    )
    meter, protection = Meter(found, ["peer0"], run="test"), found.protection
    meter.charge(0, whole=True)
    meter.doubt()
    assert meter.spent == pytest.approx(protection.spent({protection.cost: 1}))
    meter.charge(1, whole=True)
    assert meter.spent == pytest.approx(protection.spent({protection.local: 2}))


GO_ON = {"departures": "go_on", "colluders": 1}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"noise": 3.0, "clip": 1.0, "mask": 4.0}], ids=["calibrated", "own noise"])
def test_where_survivors_go_on_no_death_at_any_round_exceeds_the_budget(changes):
    """One whose update a death exposes is charged its local floor, which the budget allowed before it was sent."""
    table = TABLE | {"topology": {"kind": "complete", "peers": 6}}
    for dead in range(6):
        found = plan(read(table, changes=[f"privacy.{key}={value}" for key, value in (GO_ON | changes).items()]))
        meter, released = Meter(found, ["peer0"], run="test"), 0
        for round in range(6):
            try:
                meter.charge(round, whole=True)
            except BudgetError:
                break
            released += 1
            if round == dead:
                meter.correct(round)
                meter.check(round)
        assert meter.overdrawn is None
        assert meter.spent <= 4.0 * (1 + 1e-6)
        if not changes:
            assert released == 6


def test_where_survivors_go_on_and_nobody_dies_calibrated_noise_suffices_for_all_rounds():
    table = TABLE | {"topology": {"kind": "complete", "peers": 6}}
    found = plan(read(table, changes=["privacy.departures=go_on"]))
    meter = Meter(found, ["peer0"], run="test")
    for round in range(6):
        meter.charge(round, whole=True)
    protection = found.protection
    assert protection.affordable == 6
    assert meter.spent < 4
    assert protection.spent({protection.cost: 5, protection.local: 1}) == pytest.approx(4.0)
    assert found.protection.guarantee.mu == pytest.approx(protection.after({}).cost.mu)
