"""The statement of a vertical run names who learns what, for its own peers and numbers."""

from dataclasses import replace

import pytest

from p2pfl.plugins.vertical.statement import VerticalRun

LINEAR = VerticalRun(
    label="bob", features=("ada", "eve"), solver="cleo", helper="cleo", rows=10_000, columns=10.0, keys=2
)
LOGISTIC = replace(LINEAR, steps=8)


def test_of_a_linear_model_the_label_holder_sees_predictors_of_test_rows_alone():
    learned = LINEAR.disclosure.learned
    assert "the sum of the linear predictors of ada and eve of each test row" in learned["bob, the label holder"]
    assert "training row" not in learned["bob, the label holder"]
    assert "the products of all pairs of columns" in learned["cleo, the helper"]


def test_of_a_glm_the_label_holder_sees_one_exact_and_seven_noisy_predictors():
    learned = LOGISTIC.disclosure.learned
    assert "of each training row, once exactly and 7 times under noise" in learned["bob, the label holder"]
    assert "its own coefficients at each of 9 points" in learned["ada, a feature holder"]
    crafted = learned["bob, if it sends crafted residuals"]
    assert "noise of at least 30 % of what changes in them; nobody shows more than 14 predictors of a row" in crafted


def test_coefficients_single_out_no_few_people_in_one_sum():
    learned = LOGISTIC.disclosure.learned["cleo, if it sends crafted coefficients"]
    assert "bob sends none in which one person has more than 1/10 of all weights" in learned
    assert "cleo, if it sends crafted coefficients" not in LINEAR.disclosure.learned


def test_less_noise_than_the_schedule_has_is_a_lie_that_gains_nothing():
    lie = "a peer that asks for less noise, or alters published numbers"
    assert "gains nothing: each owner bounds its noise" in LOGISTIC.disclosure.learned[lie]
    assert lie not in replace(LOGISTIC, noisy=False).disclosure.learned
    assert lie not in LINEAR.disclosure.learned


def test_without_test_rows_the_label_holder_of_a_linear_model_sees_no_predictor():
    disclosure = replace(LINEAR, tested=False).disclosure
    assert "predictor" not in disclosure.statement
    assert "predictor" not in disclosure.learned["bob, the label holder"]


def test_without_noise_the_statement_says_that_columns_nearly_follow():
    learned = replace(LOGISTIC, noisy=False).disclosure.learned
    assert "exactly at 8 steps, from which columns nearly follow" in learned["bob, the label holder"]


def test_of_two_parties_the_predictor_is_that_of_the_other_alone():
    learned = replace(LINEAR, features=("ada",)).disclosure.learned
    assert "the linear predictor of ada of each test row" in learned["bob, the label holder"]


def test_without_a_helper_the_first_feature_holder_solves():
    learned = replace(LINEAR, helper=None, solver="ada").disclosure.learned
    assert "the products of all pairs of columns" in learned["ada, a feature holder"]
    assert "the products of all pairs of columns" not in learned["eve, a feature holder"]
    assert not any("helper" in who for who in learned)


def test_two_parties_alone_depend_on_encryption_and_on_no_third_peer():
    alone, three = (
        replace(LINEAR, helper=None, solver="ada", features=features) for features in (("ada",), ("ada", "eve"))
    )
    statement = alone.disclosure.statement
    assert "neither breaks the Paillier encryption of the other" in statement
    lie = "a party that encrypts more than its columns, or under a key that was made to read"
    assert "reads nothing" in alone.disclosure.learned[lie]
    assert lie not in three.disclosure.learned
    assert "conspire" not in statement
    assert "conspire" in replace(LINEAR, helper=None, solver="ada").disclosure.statement


@pytest.mark.parametrize("run", [LINEAR, LOGISTIC])
def test_the_person_who_is_entered_as_a_column_is_always_named(run):
    assert (
        "shows cleo that person's row, exactly"
        in run.disclosure.learned["a party that enters the indicator of one person"]
    )


def test_bytes_follow_the_formulae_of_the_messages():
    two = replace(LINEAR, features=("ada",))
    assert "3.2 MB to fit" in two.disclosure.learned["bytes"]  # 16 n (a + b)
    assert "25.1 MB to fit, 8 steps" in replace(two, steps=8).disclosure.learned["bytes"]
