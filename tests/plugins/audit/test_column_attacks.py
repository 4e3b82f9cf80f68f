"""Attacks on columns of the same people at different peers."""

from types import SimpleNamespace

import numpy as np
import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.column_attacks import attack_columns, explained_columns
from p2pfl.plugins.vertical import vertical_regression
from p2pfl.plugins.vertical.private_messages import collect
from p2pfl.privacy.keys import SeededSource
from vertical_experiments import LINEAR, changed

PREDICTORS = "predictors do not give columns away"


def logistic(**options):
    return changed(
        data={"name": "breast_cancer", "test": 0.0},
        model={"options": {"family": "binomial", "ridge": 1.0} | options},
    )


def claims_of(experiment):
    return {each.name: each for each in attack_columns(plan(read(experiment)), fresh=SeededSource)}


def test_columns_that_follow_from_what_is_given_are_explained_and_others_are_not():
    rng = np.random.default_rng(1)
    given, columns = rng.normal(size=(400, 3)), rng.normal(size=(400, 2))
    known = np.arange(200)
    assert explained_columns(known, given, given @ rng.normal(size=(3, 2))) == pytest.approx(1.0)
    assert explained_columns(known, given, columns) < 0.05


def test_peers_with_samples_of_their_own_are_not_attacked():
    assert attack_columns(plan(read("digits")), fresh=SeededSource) == []


EQUATIONS = "a prediction is a few equations"


@pytest.mark.slow
def test_a_prediction_gives_one_of_the_columns_of_others_at_most_to_who_knows_all_coefficients():
    claim = claims_of(LINEAR)[EQUATIONS]
    assert "receives one number" in claim.sentence
    assert "for 6 linearly independent columns" in claim.sentence
    assert claim.measured == pytest.approx(1 / 6, abs=1e-9)
    assert not claim.broken


@pytest.mark.slow
def test_predictors_of_each_party_by_itself_would_be_two_equations(monkeypatch):
    def collect_apart(answer, *, size, to, among):
        first = yield from collect(answer, size=size, to=to, among=among[:1])
        second = yield from collect(answer, size=size, to=to, among=among[1:])
        return SimpleNamespace(read=lambda label: first.read(label) + second.read(label))

    monkeypatch.setattr(vertical_regression, "collect", collect_apart)
    claim = claims_of(LINEAR)[EQUATIONS]
    assert claim.measured == pytest.approx(2 / 6, abs=1e-9)
    assert claim.broken


@pytest.mark.slow
def test_noisy_predictors_give_columns_away_less_than_exact_ones():
    noisy, exact = claims_of(logistic()), claims_of(logistic(predictor_noise=False))
    assert not noisy[PREDICTORS].broken
    assert exact[PREDICTORS].broken
    assert exact[PREDICTORS].measured > noisy[PREDICTORS].measured + 0.05


@pytest.mark.slow
def test_the_shipped_trial_stays_within_the_bound_although_its_rows_are_few():
    assert not claims_of("columns")[PREDICTORS].broken


@pytest.mark.slow
def test_distances_of_a_joint_kernel_show_the_columns_of_everybody():
    claims = claims_of(changed(model={"name": "kernel", "options": {"consent": "distances"}}))
    assert abs(claims["distances show the columns of everybody"].measured) < 1e-6
    assert "the indicator of one person shows their row" not in claims  # no peer receives products


@pytest.mark.slow
def test_one_person_as_a_column_shows_their_row_and_guesses_are_refused():
    claims = claims_of(LINEAR)
    assert PREDICTORS not in claims  # of a linear model the label holder sees none of the training rows
    assert claims["the indicator of one person shows their row"].measured < 1e-5
    assert claims["guessed people are refused"].measured == 0
