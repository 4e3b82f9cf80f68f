"""The audit's attack on the totals of two runs, one without a person: it reads the row to the last digits."""

import numpy as np
import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.attacks import model_differences
from p2pfl.plugins.audit.attacks.model_differences import subtract_models
from p2pfl.plugins.audit.attacks.run_differences import subtract_runs


@pytest.fixture
def planned(tmp_path):
    """Function that plans a model of three tables."""

    def resolve(model, **options):
        for number in range(3):
            rng = np.random.default_rng(number)
            rows = [f"{rng.integers(20, 80)},{rng.choice(['f', 'm'])},{rng.choice(['no', 'yes'])}" for _ in range(40)]
            rows = [f"{row},{time}" for row, time in zip(rows, rng.integers(-99, 99, 40), strict=True)]
            (tmp_path / f"peer{number}.csv").write_text("\n".join(["age,sex,ill,time", *rows]))
        columns = {"age": "number", "sex": ["f", "m"], "ill": ["no", "yes"]}
        data = {"path": str(tmp_path / "{peer}.csv"), "target": "ill", "columns": columns}
        if model == "cox":  # a negative time is censored
            data |= {"target": "time", "columns": columns | {"time": "number"}}
            options |= {"width": 10.0, "horizon": 100.0}
        if options.get("family") == "gaussian":
            data |= {"target": "age", "columns": {"age": "number", "sex": ["f", "m"]}}
        table = {
            "topology": {"kind": "complete", "peers": 3},
            "data": {"name": "table", "options": data},
            "model": {"name": model, "options": options},
            "learning": {"algorithm": "exact"},
            "privacy": {"mode": "pairwise"},
        }
        return plan(read(table))

    return resolve


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
def test_the_row_and_the_target_of_who_left_follow_from_two_regressions(planned, family):
    (claim,) = subtract_models(planned("glm", family=family))
    assert claim.measured < 1e-12
    assert not claim.broken
    assert "(12 people tried; error of the row)" in claim.sentence


def test_the_bins_and_the_class_of_who_left_follow_from_two_first_trees(planned):
    (claim,) = subtract_models(planned("boosting"))
    assert (claim.measured, claim.broken) == (0, False)


@pytest.mark.parametrize("options", [{}, {"bootstrap": False}, {"extra": True}])
def test_the_bins_and_the_class_of_who_left_follow_from_the_roots_of_two_forests(planned, options):
    (claim,) = subtract_models(planned("forest", n_estimators=20, **options))
    assert (claim.measured, claim.broken) == (0, False)
    assert "(4 people tried; not read)" in claim.sentence


def test_people_whom_no_tree_has_drawn_are_left_out_of_the_difference_of_forests(planned):
    (claim,) = subtract_models(planned("forest", n_estimators=1))
    assert (claim.measured, claim.broken) == (0, False)


def test_the_row_of_who_left_follows_from_two_sums_of_principal_components(planned):
    (claim,) = subtract_models(planned("pca"))
    assert claim.measured < 1e-12
    assert "(12 people tried; error of the row)" in claim.sentence


def test_the_row_and_the_time_of_who_left_follow_from_two_cox_regressions(planned):
    (claim,) = subtract_models(planned("cox"))
    assert claim.measured < 1e-12
    assert "when they left, and whether with the event" in claim.sentence


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("model", ["glm", "boosting", "forest", "pca", "cox"])
def test_the_account_refuses_each_second_release_without_fewer_people_than_least(planned, model):
    people, peers = subtract_runs(planned(model))
    assert (people.measured, people.broken, peers.measured, peers.broken) == (0, False, 0, False)
    assert "people tried; those who are shown)" in people.sentence


@pytest.mark.parametrize("model", ["glm", "boosting", "forest", "pca", "cox"])
def test_totals_of_other_people_are_not_their_row(planned, monkeypatch, model):
    def other(learner, owner, position):
        train = learner.federation.train
        return without(learner, owner, (position + 1) % len(train[owner]))

    without = model_differences._without
    monkeypatch.setattr(model_differences, "_without", other)
    (claim,) = subtract_models(planned(model))
    assert claim.broken


def test_models_that_do_not_follow_from_exact_totals_are_not_attacked():
    table = {"topology": {"kind": "complete", "peers": 3}, "data": {"name": "wine"}}
    assert subtract_models(plan(read(table | {"privacy": {"mode": "pairwise"}}))) == []
