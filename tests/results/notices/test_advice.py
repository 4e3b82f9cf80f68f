"""What is said of a run, on records made up and on real ones."""

import math

import msgspec
import pytest

from p2pfl.experiment import read
from p2pfl.results import Record
from p2pfl.results.notices.advice import advice
from p2pfl.simulation import simulate

DIGITS = {
    "seed": 7,
    "rounds": 12,
    "topology": {"kind": "small_world", "peers": 8},
    "data": {"split": "dirichlet"},
    "learning": {"device": "cpu", "rate": 0.1, "epochs": 2},
}


def made(losses, *, peers=4, **changes):
    facts = {
        "training_loss": 1.0,
        "distance": 0.01,
        "bytes_out": 1,
        "bytes_in": 1,
        "seconds_training": 0.0,
        "seconds_waiting": 0.0,
        "received": 3,
        "update": 1.0,
    }
    return [
        Record(peer=f"peer{peer}", round=round, **(facts | {"scores": {"loss": loss}} | changes))
        for round, loss in enumerate(losses)
        for peer in range(peers)
    ]


GOOD = [2.0 * 0.8**round for round in range(10)]


def test_of_a_good_run_nothing_is_said():
    assert advice(made(GOOD)) == []
    assert advice(made(GOOD, disagreement=1.0, diversity=100.0)) == []


def test_of_too_few_rounds_nothing_is_said():
    assert advice(made([1.0, 2.0, 3.0])) == []
    assert advice([]) == []


@pytest.mark.parametrize("last", [9.0, math.nan, math.inf])
def test_a_loss_that_rises_asks_for_smaller_steps(last):
    (said,) = advice(made([2.0, 2.5, 2.4, 3.0, last]))
    assert "lower learning.rate" in said


def test_a_loss_that_falls_slowly_but_surely_asks_for_larger_steps():
    (said,) = advice(made([2.0 - 0.001 * round for round in range(10)]))
    assert "raise learning.rate" in said


def test_updates_that_cancel_are_told_with_the_loss_that_does_not_fall():
    (said,) = advice(made([2.0, 2.1, 2.0, 2.1, 2.0, 2.1], diversity=40.0))
    assert "diversity 40, where 4 means nothing in common" in said


def test_under_private_noise_the_steps_are_not_blamed():
    (said,) = advice(made([2.0, 2.5, 2.4, 3.0, 9.0]), noise=0.1)
    assert "p2pfl privacy" in said
    assert "learning.rate" not in said


@pytest.mark.plugin("exact")
def test_of_a_model_from_totals_no_learning_rate_is_blamed():
    rises, falls = made([2.0, 2.5, 2.4, 3.0, 9.0]), made([2.0 - 0.001 * round for round in range(10)])
    assert advice(rises, totals=True) == advice(falls, totals=True) == []
    assert "p2pfl privacy" in advice(rises, totals=True, noise=0.1)[0]
    run = simulate(
        {
            "rounds": 8,
            "topology": {"kind": "complete", "peers": 3},
            "data": {"name": "wine"},
            "model": {"name": "boosting", "options": {"learning_rate": 0.001, "max_bins": 8}},
            "privacy": {"mode": "none"},
        },
        baselines=False,
    )
    assert run.summary["advice"] == []


def test_where_peers_attack_the_rule_is_what_is_advised():
    flew = made([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    assert advice(flew) == ["the test loss went from 1 to 32 in 6 rounds; lower learning.rate, to a tenth at first"]
    [told] = advice(flew, attack="sign_flip")
    assert told.startswith("some peers attack by sign_flip")
    assert "set a robustness.rule" in told
    [told] = advice(flew, attack="sign_flip", rule="median")
    assert "other rules than median" in told
    assert advice(made(GOOD), attack="sign_flip") == []


def test_models_far_apart_ask_for_more_exchanges_whatever_else_follows_from_it():
    (said,) = advice(made([2.0, 2.5, 2.4, 3.0, 9.0], disagreement=5.0), steps=3)
    assert said.startswith("the models of the peers are 5.0 times as far from their mean")
    assert "raise gossip.steps, now 3" in said


def test_live_peers_know_only_how_far_they_are_from_those_they_heard():
    (said,) = advice(made(GOOD, distance=6.0))
    assert said.startswith("the last gossip step of a round still moves the models 6.0 times as far")


def test_peers_that_sat_out_do_not_count_as_moved_by_nothing():
    idle = made(GOOD, update=0.0, disagreement=1.0)
    awake = made(GOOD, update=1.0, disagreement=1.0)
    assert advice([*idle, *awake]) == []
    assert advice(idle) == []


def test_a_loss_that_wavers_above_that_of_guessing_asks_for_smaller_steps_even_if_the_last_is_below_the_first():
    wavers = made([2.54, 2.46, 2.47, 2.52, 2.43, 2.42, 2.52, 2.40])
    assert advice(wavers) == []
    (said,) = advice(wavers, guess=math.log(10))
    assert said.startswith(
        "the test loss went from 2.54 to 2.4 in 8 rounds, where guessing has 2.3; lower learning.rate"
    )
    assert advice(made([2.54 - 0.02 * turn for turn in range(8)]), guess=math.log(10)) == []  # falls, if slowly
    assert advice(made([0.4, 0.3, 0.31, 0.28, 0.29, 0.27]), guess=math.log(10)) == []


def test_rows_that_come_too_late_ask_for_patience():
    (said,) = advice(made(GOOD, missed=["cy"]))
    assert said == (
        "40 of 160 models did not arrive in time: 40 of cy; find out whether these peers disappeared or are slow, or "
        "raise transport.patience"
    )


def test_a_score_that_still_rises_asks_for_more_rounds():
    records = [made([2.0], scores={"loss": 2.0 * 0.8**t, "accuracy": 0.05 * t}) for t in range(12)]
    turns = [
        Record(**({name: getattr(each, name) for name in each.__struct_fields__} | {"round": t}))
        for t, all_peers in enumerate(records)
        for each in all_peers
    ]
    (said,) = advice(turns)
    assert said == "accuracy rose by 0.150 in the last 3 rounds alone; raise rounds, now 12"
    assert advice(turns, noise=0.1) == []  # more rounds would cost more epsilon, or more noise


REAL = {
    "rate a hundred times too high": (["learning.rate=10"], "lower learning.rate"),
    "the same from another start": (["learning.rate=10", "seed=2"], "lower learning.rate"),
    "rate three hundred times too high": (["learning.rate=30", "seed=1"], "lower learning.rate"),
    "rate a hundred times too low": (["learning.rate=0.001"], "raise learning.rate"),
    "one exchange on a ring of 32": (
        ["topology.kind=ring", "topology.peers=32", "gossip.steps=1", "rounds=24"],
        "raise gossip.steps",
    ),
    "one exchange, under masks": (
        ["topology.kind=ring", "topology.peers=32", "gossip.steps=1", "rounds=24", "privacy.mode=pairwise"],
        "raise gossip.steps",
    ),
    "too few rounds": ([], "raise rounds"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "said"), REAL.values(), ids=REAL)
def test_a_real_run_gone_wrong_is_told_what_to_change(changes, said):
    summary = simulate(read(DIGITS, changes=changes), baselines=False).summary
    (sentence,) = summary["advice"]
    assert said in sentence


@pytest.mark.slow
def test_one_exchange_on_the_complete_graph_is_enough_however_differently_much_peers_have():
    changes = ["topology.kind=complete", "data.split=power_law", "gossip.steps=1", "rounds=30"]
    run = simulate(read(DIGITS, changes=changes), baselines=False)
    live = [msgspec.structs.replace(record, disagreement=None, diversity=None) for record in run.metrics]
    assert advice(live) == advice(run.metrics) == []


@pytest.mark.slow
def test_of_a_real_run_that_went_well_nothing_is_said():
    assert simulate(read(DIGITS, changes=["rounds=30"]), baselines=False).summary["advice"] == []


def test_distances_give_no_advice_under_masks_for_they_measure_the_masks():
    facts = {
        "peer": "ada",
        "bytes_out": 0,
        "bytes_in": 0,
        "received": 2,
        "seconds_training": 0.0,
        "seconds_waiting": 0.0,
    }
    records = [
        Record(round=t, scores={"loss": 2.0 - 0.2 * t}, training_loss=1.0, distance=80.0, update=1.0, **facts)
        for t in range(6)
    ]
    assert "80.0 times as far as training" in advice(records)[0]
    assert advice(records, masked=True) == []
