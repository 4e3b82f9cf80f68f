"""Linear models of several parties against statsmodels and scikit-learn on the joined table."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn import datasets
from sklearn.linear_model import Ridge

from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.plugins.exact.regression.inference import f_tail
from p2pfl.plugins.vertical.linear import fit_linear
from p2pfl.privacy.keys import SecretSource, SeededSource
from vertical_roles import ALONE, FOUR, PAIR, THREE, joined_table, play, split, two_tables


@pytest.fixture(scope="module")
def diabetes():
    features, target = datasets.load_diabetes(return_X_y=True, scaled=False)
    return features, target


def fitted(features, target, roles, *, source=None, **options):
    """Return a fit, and the columns of each party."""
    parts = split(features, roles)
    asking = fit_linear(joined_table(parts, target, roles), source or SecretSource(), **options)
    return play(asking, roles), parts


def centred_at_others(features, roles):
    """Return the joined table as the label holder's intercept sees it, in the order of names."""
    parts = split(features, roles)
    return np.concatenate(
        [part - part.mean(axis=0) * (party != roles.label) for party, part in sorted(parts.items())], axis=1
    )


def joined(fit, key):
    return np.concatenate([fit.own(party)[key] for party in fit.design.roles.parties])


@pytest.mark.parametrize("roles", [PAIR, THREE, ALONE, FOUR], ids=lambda roles: str(len(roles.peers)))
def test_least_squares_are_those_of_the_joined_table(roles, diabetes):
    features, target = diabetes
    fit, _ = fitted(features, target, roles)
    oracle = sm.OLS(target, sm.add_constant(centred_at_others(features, roles))).fit()
    label = fit.own(roles.label)
    assert np.allclose(np.append(label["intercept"], joined(fit, "coefficients")), oracle.params, rtol=1e-6, atol=0)
    assert np.allclose(np.append(label["intercept_error"], joined(fit, "errors")), oracle.bse, rtol=1e-6, atol=0)
    facts = {"r2": oracle.rsquared, "adjusted_r2": oracle.rsquared_adj, "f": oracle.fvalue, "f_p": oracle.f_pvalue}
    facts |= {"deviance": oracle.ssr, "log_likelihood": oracle.llf, "dispersion": oracle.scale}
    for key, value in facts.items():
        assert fit.figures[key] == pytest.approx(value, rel=1e-6), key
    assert fit.figures["aic"] == pytest.approx(oracle.aic + 2, rel=1e-9)  # R counts the variance as a parameter
    assert f_tail(fit.figures["f"], 10, 431) == pytest.approx(oracle.f_pvalue, rel=1e-6)


def test_columns_of_any_unit_are_fitted_alike(diabetes):
    features, target = diabetes
    units = 10.0 ** np.arange(-5, 5)
    fit, _ = fitted(features * units, target * 1e6 + 1e7, PAIR)
    plain, _ = fitted(features, target, PAIR)
    ordered = np.concatenate([part[0] for _, part in sorted(split(units[None], PAIR).items())])
    assert np.allclose(joined(fit, "coefficients") * ordered / 1e6, joined(plain, "coefficients"), rtol=1e-6)
    assert fit.figures["r2"] == pytest.approx(plain.figures["r2"], rel=1e-9)


def test_ridge_is_that_of_scikit_learn(diabetes):
    features, target = diabetes
    fit, parts = fitted(features, target, THREE, ridge=3.0)
    oracle = Ridge(alpha=3.0, tol=1e-12).fit(np.concatenate([parts[party] for party in THREE.parties], axis=1), target)
    assert np.allclose(joined(fit, "coefficients"), oracle.coef_, rtol=1e-6)


def test_a_label_holder_without_columns_has_the_intercept(diabetes):
    features, target = diabetes
    parts = {"ada": features, "bob": np.zeros((len(target), 0))}
    asking = fit_linear(joined_table(parts, target, PAIR), SecretSource())
    fit = play(asking, PAIR)
    oracle = sm.OLS(target, sm.add_constant(features - features.mean(axis=0))).fit()
    assert np.allclose(fit.own("ada")["coefficients"], oracle.params[1:], rtol=1e-6)
    assert fit.own("bob")["intercept"][0] == pytest.approx(oracle.params[0], rel=1e-9)
    assert fit.own("bob")["intercept_error"][0] == pytest.approx(oracle.bse[0], rel=1e-6)


def test_columns_that_others_determine_are_nan_at_their_owner(diabetes):
    features, target = diabetes
    parts = split(features, THREE)
    parts["eve"] = np.concatenate([parts["eve"], parts["ada"][:, :1] * 2 + parts["bob"][:, :1], np.ones((442, 1))], 1)
    asking = fit_linear(joined_table(parts, target, THREE), SecretSource())
    fit, (plain, _) = play(asking, THREE), fitted(features, target, THREE)
    own = fit.own("eve")
    width = fit.design.widths["eve"]
    assert np.isnan(own["coefficients"][width - 2 :]).all()
    assert np.isnan(own["errors"][width - 2 :]).all()
    assert np.allclose(own["coefficients"][: width - 2], plain.own("eve")["coefficients"], rtol=1e-6)
    assert fit.own("bob")["intercept"] == pytest.approx(plain.own("bob")["intercept"], rel=1e-6)
    assert fit.figures["adjusted_r2"] == pytest.approx(plain.figures["adjusted_r2"], rel=1e-6)


def test_values_of_columns_are_shapley_values_of_refits(diabetes):
    features, target = diabetes
    fit, parts = fitted(features, target, FOUR)

    def explained(*parties):
        if not parties:
            return 0.0
        return (
            sm.OLS(target, sm.add_constant(np.concatenate([parts[party] for party in parties], axis=1))).fit().rsquared
        )

    total = 0.0
    for party in FOUR.parties:
        others = [each for each in FOUR.parties if each != party]
        value = 0.0
        for subset in range(8):
            chosen = [each for place, each in enumerate(others) if subset >> place & 1]
            weight = {0: 1 / 4, 1: 1 / 12, 2: 1 / 12, 3: 1 / 4}[len(chosen)]
            value += weight * (explained(*chosen, party) - explained(*chosen))
        assert fit.own(party)["value"][0] == pytest.approx(value, abs=1e-12)
        total += value
    assert fit.figures["r2"] == pytest.approx(total, abs=1e-12)
    assert total == pytest.approx(0.5177, abs=1e-4)


def test_a_fit_is_the_same_to_the_bit_whatever_random_numbers_hide_it(diabetes):
    features, target = diabetes
    one, _ = fitted(features, target, THREE, source=SecretSource())
    two, _ = fitted(features, target, THREE, source=SeededSource(3))
    assert one.figures == two.figures
    for party in THREE.parties:
        for key, values in one.own(party).items():
            assert (values == two.own(party)[key]).all()


def test_motor_alone_and_together(data_dir):
    parts, target = two_tables(data_dir, "motor_hetero")
    asking = fit_linear(joined_table(parts, target, PAIR), SecretSource())
    fit = play(asking, PAIR)
    whole = np.concatenate([parts["ada"] - parts["ada"].mean(axis=0), parts["bob"]], axis=1)
    oracle = sm.OLS(target, sm.add_constant(whole)).fit()
    assert np.allclose(joined(fit, "coefficients"), oracle.params[1:], rtol=1e-6)
    assert np.allclose(joined(fit, "errors"), oracle.bse[1:], rtol=1e-6)
    assert fit.figures["r2"] == pytest.approx(0.9234, abs=5e-5)
    assert sm.OLS(target, sm.add_constant(parts["bob"])).fit().rsquared == pytest.approx(0.3193, abs=5e-5)


def test_too_few_rows_many_coefficients_and_missing_numbers_are_refused(diabetes):
    features, target = diabetes
    with pytest.raises(DataError, match="49 rows in common"):
        fitted(features[:49], target[:49], PAIR)
    with pytest.raises(LearningError, match="11 coefficients of all parties for 100 rows"):
        fitted(features[:100], target[:100], PAIR)
    with pytest.raises(DataError, match="missing or infinite"):
        fitted(np.where(features == features[0], np.nan, features), target, PAIR)
    with pytest.raises(ModelError, match="ridge is -1"):
        fitted(features, target, PAIR, ridge=-1)
    parts = split(features, PAIR)
    table = replace(joined_table(parts, target, PAIR), target=lambda _: target[:-1])
    with pytest.raises(DataError, match="bob has 441 of 442 common rows"):
        play(fit_linear(table, SecretSource()), PAIR)
