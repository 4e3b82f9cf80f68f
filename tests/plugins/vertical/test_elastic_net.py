"""Elastic nets and components of several parties against scikit-learn on the joined table."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.linear_model import ElasticNet

from p2pfl.core.errors import ModelError
from p2pfl.plugins.vertical.components import decompose
from p2pfl.plugins.vertical.elastic_net import PathOptions, fit_path
from p2pfl.privacy.keys import SecretSource
from vertical_roles import FOUR, PAIR, THREE, joined_table, play, split


@pytest.fixture(scope="module")
def diabetes():
    return datasets.load_diabetes(return_X_y=True)


def path_of(features, target, roles, **options):
    parts = split(features * 20, roles)
    asking = fit_path(joined_table(parts, target, roles), SecretSource(), PathOptions(**options))
    return play(asking, roles), np.concatenate([parts[party] for party in roles.parties], axis=1)


@pytest.mark.parametrize(("roles", "ratio"), [(PAIR, 1.0), (THREE, 0.5), (FOUR, 1.0)])
def test_a_path_is_that_of_scikit_learn(roles, ratio, diabetes):
    features, target = diabetes
    fit, whole = path_of(features, target, roles, l1_ratio=ratio, lambdas=10)
    assert not np.concatenate([fit.own(party)["coefficients"][0] for party in roles.parties]).any()
    for place in (0, 3, 9):
        oracle = ElasticNet(alpha=fit.penalties[place], l1_ratio=ratio, tol=1e-14, max_iter=10**6).fit(whole, target)
        beta = np.concatenate([fit.own(party)["coefficients"][place] for party in roles.parties])
        assert np.allclose(beta, oracle.coef_, rtol=1e-6, atol=1e-6)
        assert fit.deviances[place] == pytest.approx(((oracle.predict(whole) - target) ** 2).sum(), rel=1e-6)
    assert fit.chosen == 9
    assert np.isnan(fit.validation).all()


def test_held_out_rows_choose_the_penalty(diabetes):
    features, target = diabetes
    fit, whole = path_of(features, target, PAIR, lambdas=10, validation=322)
    errors = []
    for penalty in fit.penalties:
        oracle = ElasticNet(alpha=penalty, l1_ratio=1.0, tol=1e-14, max_iter=10**6).fit(whole[:-322], target[:-322])
        errors.append(((oracle.predict(whole[-322:]) - target[-322:]) ** 2).mean())
    assert np.allclose(fit.validation, errors, rtol=1e-6)
    assert fit.chosen == int(np.argmin(errors)) < 9
    beta = np.concatenate([fit.own(party)["coefficients"][-1] for party in PAIR.parties])
    assert np.allclose(beta, oracle.coef_, rtol=1e-6)
    others = split(features * 20, PAIR)["ada"].mean(axis=0)
    at_means = oracle.intercept_ + oracle.coef_[:5] @ others
    assert fit.own("bob")["intercept"][-1] == pytest.approx(at_means, rel=1e-6)


@pytest.mark.parametrize("standardise", [True, False])
def test_components_are_those_of_the_joined_table(standardise):
    features, _ = datasets.load_wine(return_X_y=True)
    parts = split(features, FOUR)
    table = joined_table(parts, np.zeros(len(features)), FOUR)
    asking = decompose(table, SecretSource(), standardise=standardise, open=standardise)
    fit = play(asking, FOUR)
    whole = np.concatenate([parts[party] for party in FOUR.parties], axis=1)
    if standardise:
        assert np.allclose(fit.correlation, np.corrcoef(whole.T), atol=1e-9)
        whole = whole / whole.std(axis=0, ddof=1)
    else:
        assert fit.correlation is None
    oracle = PCA().fit(whole)
    assert np.allclose(fit.variance, oracle.explained_variance_, rtol=1e-6)
    loadings = np.concatenate([fit.own(party) for party in FOUR.parties], axis=1)
    signs = np.sign((loadings * oracle.components_).sum(axis=1))
    assert np.allclose(loadings * signs[:, None], oracle.components_, atol=1e-6)


@pytest.mark.parametrize("wrong", [{"l1_ratio": 0.0}, {"smallest": 1.0}, {"lambdas": 1}, {"validation": -1}])
def test_options_that_make_no_path_are_refused(wrong):
    with pytest.raises(ModelError, match="make no path"):
        PathOptions(**wrong)
