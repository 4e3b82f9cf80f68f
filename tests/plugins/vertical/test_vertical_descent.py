"""Gradient descent on encrypted residuals ends at the model that the Gram matrix gives at once."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from p2pfl import simulate
from p2pfl.core.errors import DataError, InputError, LearningError, ModelError
from p2pfl.experiment import plan, read
from p2pfl.plugins.vertical import vertical_descent
from p2pfl.plugins.vertical.linear import fit_linear
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.vertical_descent import DescentOptions, fit_descent
from p2pfl.privacy.keys import SeededSource
from vertical_experiments import changed
from vertical_roles import PAIR, THREE, joined_table, overheard, play, split

ROWS, BITS = 60, 256

TWO = changed(
    topology={"peers": ["ada", "bob", "cleo"]},
    model={"name": "vertical_descent", "options": {"steps": 25, "rate": 0.4, "ridge": 100.0}},
)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    features = rng.normal(size=(ROWS, 4)) * [1.0, 5.0, 0.2, 1.0] + 3
    return features, features @ [1.0, 0.2, -3.0, 0.5] + rng.normal(size=ROWS)


def asked(table, roles=PAIR, **options):
    features, target = table
    parts = split(features, roles)
    return fit_descent(joined_table(parts, target, roles), SeededSource(1), DescentOptions(**{"bits": BITS, **options}))


def test_descent_ends_at_the_model_of_the_gram_matrix(table):
    fit = play(asked(table, steps=200, rate=0.5, tolerance=1e-15), PAIR)
    features, target = table
    parts = split(features, PAIR)
    linear = fit_linear(joined_table(parts, target, PAIR), SeededSource(1))
    oracle = play(linear, PAIR)
    for party in PAIR.parties:
        assert np.allclose(fit.own(party)["coefficients"], oracle.own(party)["coefficients"], rtol=1e-5)
    assert fit.own("bob")["intercept"] == pytest.approx(oracle.own("bob")["intercept"], rel=1e-5)
    assert fit.figures["loss"] == pytest.approx(oracle.figures["deviance"], rel=1e-9)
    assert 10 < fit.figures["steps"] < 200


def test_a_ridge_is_that_of_standardised_columns(table):
    fit = play(asked(table, steps=120, rate=0.5, ridge=5.0), PAIR)
    features, target = table
    parts = split(features, PAIR)
    whole = np.concatenate([parts["ada"], parts["bob"]], axis=1)
    oracle = Ridge(alpha=5.0, tol=1e-12).fit((whole - whole.mean(axis=0)) / whole.std(axis=0), target)
    beta = np.concatenate([fit.own(party)["coefficients"] for party in PAIR.parties]) * whole.std(axis=0)
    assert np.allclose(beta, oracle.coef_, rtol=1e-5)


def test_parties_see_encrypted_and_masked_numbers_and_the_helper_masked_gradients_and_the_loss(table):
    _, views = overheard(asked(table, steps=3), PAIR)
    words = 2 * BITS // 64
    lengths = {peer: [len(message) for message in view if len(message) > 2] for peer, view in views.items()}
    assert lengths["ada"] == [words] + [ROWS * words, 2 * 3] * 3
    assert lengths["bob"] == [words] + [(ROWS + 1) * words, 2 * 3] * 3
    assert lengths["cleo"] == [words, 2 * words, 2 * words] * 3
    masked = [message for message in views["ada"] if len(message) == 6]
    assert all(message[2] >> 40 == 0 and message[2] > 0 for message in masked)  # 168 bits in three words
    assert len({*masked}) == 3


def test_the_indicator_of_one_person_shows_their_target_in_the_first_gradient(table):
    features, target = table
    features = np.column_stack([features[:, 0], np.arange(ROWS) == 7, features[:, 2:]]).astype(float)
    fit = play(asked((features, target), steps=1), PAIR)  # ada has the columns 1 and 3
    indicator = features[:, 1] - features[:, 1].mean()
    theta = fit.own("ada")["coefficients"][0] * indicator.std()  # after a step of the share rate of the gradient
    products = theta * ROWS / DescentOptions().rate * indicator.std()
    assert products == pytest.approx(target[7] - target.mean(), rel=1e-6)


@pytest.mark.slow
def test_an_experiment_of_two_parties_runs_it_and_states_what_it_discloses(monkeypatch, tmp_path):
    monkeypatch.setattr(vertical_descent, "MODULUS_BITS", 448)
    run = simulate(TWO, folder=tmp_path / "run")
    assert run.summary["together"] == pytest.approx(run.summary["pooled"], abs=0.01)
    assert run.summary["difference"] < 0.2  # it has not ended
    learned = run.summary["privacy"]["learned"]
    assert "gradient at each of at most 25 steps" in learned["ada, a feature holder"]
    assert "the loss at each step, and gradients under masks" in learned["cleo, the helper"]
    assert "that person's target" in learned["ada, if it enters the indicator of one person"]
    assert "decrypts masked gradients" in run.summary["privacy"]["statement"]
    assert run.models["bob"]["steps"] == 25


def test_three_parties_are_refused_before_anything_leaves():
    with pytest.raises(InputError, match=r"two parties and a helper, not of ada, bob, cleo, eve"):
        plan(read(changed(model={"name": "vertical_descent", "options": {}})))


def test_what_makes_no_descent_is_refused(table):
    with pytest.raises(LearningError, match="loss rises"):
        play(asked(table, rate=1.9), PAIR)
    with pytest.raises(InputError, match="protocol of two parties and a helper"):
        play(asked(table, THREE), THREE)
    with pytest.raises(InputError, match="protocol of two parties and a helper"):
        play(asked(table, PartyRoles(("ada", "bob", "eve"), label="bob")), THREE)
    with pytest.raises(DataError, match="do not fit encrypted sums"):
        play(asked((table[0], table[1] * 1e9)), PAIR)
    with pytest.raises(ModelError, match="make no descent"):
        DescentOptions(rate=2.0)
