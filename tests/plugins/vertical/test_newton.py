"""Generalised linear models of several parties against statsmodels and scikit-learn on the joined table."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from p2pfl.core.errors import DataError, LearningError, ModelError, PrivacyError
from p2pfl.plugins.vertical import weighted_products
from p2pfl.plugins.vertical.newton import NewtonOptions, fit_newton
from p2pfl.plugins.vertical.newton_steps import STILL
from p2pfl.privacy.keys import SecretSource, SeededSource
from vertical_roles import ALONE, FOUR, PAIR, THREE, joined_table, overheard, play, split, two_tables

FAMILIES = {
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
    "gamma": sm.families.Gamma(sm.families.links.Log()),
}


def drawn(family, *, rows=1500, width=8, seed=3):
    """Return features and targets of a model."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, width)) * 3.0 ** np.arange(-4, width - 4) + 5
    features[:, 3] = rng.integers(0, 2, rows) + 4.5
    eta = (features - 5) @ (rng.normal(size=width) / 3.0 ** np.arange(-4, width - 4)) / 3
    if family == "binomial":
        return features, (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(np.int64)
    if family == "poisson":
        return features, rng.poisson(np.exp(eta / 2)).astype(float)
    return features, rng.gamma(2.0, np.exp(eta) / 2)


def asked(parts, target, roles, *, source=None, **options):
    return fit_newton(joined_table(parts, target, roles), source or SecretSource(), NewtonOptions(**options))


def joined(fit, key):
    return np.concatenate([fit.own(party)[key] for party in fit.design.roles.parties])


def check(fit, parts, target, family):
    """Compare a fit with that of statsmodels on the joined table."""
    roles = fit.design.roles
    whole = np.concatenate([parts[p] - parts[p].mean(axis=0) * (p != roles.label) for p in roles.parties], axis=1)
    kind = FAMILIES[family]
    scale = {} if family != "gamma" else {"scale": "X2"}
    oracle = sm.GLM(target, sm.add_constant(whole), family=kind).fit(tol=1e-14, maxiter=200, **scale)
    label = fit.own(roles.label)
    beta = np.append(label["intercept"], joined(fit, "coefficients"))
    errors = np.append(label["intercept_error"], joined(fit, "errors"))
    assert (np.abs(beta - oracle.params) < 1e-4 * oracle.bse).all()
    assert np.allclose(errors, oracle.bse, rtol=1e-4)
    assert fit.figures["deviance"] == pytest.approx(oracle.deviance, rel=1e-7)
    assert fit.figures["null_deviance"] == pytest.approx(oracle.null_deviance, rel=1e-9)
    assert fit.figures["dispersion"] == pytest.approx(oracle.scale, rel=1e-4)
    if family != "gamma":
        assert fit.figures["log_likelihood"] == pytest.approx(oracle.llf, rel=1e-8)
    moved = label["predictor"] - kind.link(oracle.fittedvalues)  # by the exact step, which ends the fit
    assert np.sqrt(np.mean(moved**2)) < STILL


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("roles", [PAIR, THREE], ids=["two", "three"])
def test_a_noisy_fit_is_that_of_the_joined_table(family, roles):
    features, target = drawn(family)
    parts = split(features, roles)
    fit = play(asked(parts, target, roles, source=SeededSource(9), family=family), roles)
    check(fit, parts, target, family)
    assert 5 <= fit.figures["steps"] <= 10


@pytest.mark.parametrize("roles", [ALONE, FOUR], ids=["without a helper", "four"])
def test_any_number_of_parties_fits_the_same_model(roles):
    features, target = drawn("binomial")
    parts = split(features, roles)
    check(play(asked(parts, target, roles, source=SeededSource(9)), roles), parts, target, "binomial")


def test_a_ridge_is_that_of_scikit_learn():
    features, target = drawn("binomial")
    parts = split((features - features.mean(axis=0)) / features.std(axis=0), THREE)
    fit = play(asked(parts, target, THREE, ridge=5.0), THREE)
    whole = np.concatenate([parts[party] for party in THREE.parties], axis=1)
    oracle = LogisticRegression(C=1 / 5, tol=1e-12, max_iter=1000).fit(whole, target)
    assert np.allclose(joined(fit, "coefficients"), oracle.coef_[0], atol=2e-6)
    assert fit.own("bob")["intercept"] == pytest.approx(oracle.intercept_, abs=2e-6)


def test_without_noise_a_fit_is_the_same_to_the_bit_whatever_random_numbers_hide_it():
    features, target = drawn("binomial", rows=300)
    parts = split(features, THREE)
    one, two = (
        play(asked(parts, target, THREE, predictor_noise=False, source=source), THREE)
        for source in (SecretSource(), SeededSource(9))
    )
    assert one.figures == two.figures
    for party in THREE.parties:
        assert all((values == two.own(party)[key]).all() for key, values in one.own(party).items())


def test_pairs_of_columns_and_shares_of_weighted_ones_give_the_same_bits(monkeypatch):
    features, target = drawn("binomial", rows=300)
    parts = split(features, THREE)
    paired = play(asked(parts, target, THREE, predictor_noise=False), THREE)
    monkeypatch.setattr(weighted_products, "MAX_PAIRED_COLUMNS", 1)
    shared = play(asked(parts, target, THREE, predictor_noise=False), THREE)
    assert (joined(paired, "coefficients") == joined(shared, "coefficients")).all()
    assert (joined(paired, "errors") == joined(shared, "errors")).all()


def test_columns_that_others_determine_are_nan_at_their_owner():
    features, target = drawn("binomial")
    parts = split(features, THREE)
    plain = play(asked(parts, target, THREE, predictor_noise=False), THREE)
    more = {**parts, "eve": np.column_stack([parts["eve"], parts["ada"][:, 0] - 2 * parts["bob"][:, 0]])}
    fit = play(asked(more, target, THREE, predictor_noise=False), THREE)
    assert np.isnan(fit.own("eve")["coefficients"]).tolist() == [False, False, True]
    beta = joined(fit, "coefficients")
    assert np.allclose(beta[~np.isnan(beta)], joined(plain, "coefficients"), rtol=1e-5)


def test_the_label_holder_receives_its_own_coefficients_and_sums_of_predictors_alone():
    """Beside masked numbers: bob has his block at each point, one predictor of each row, and his errors."""
    features, target = drawn("binomial", rows=300)
    parts = split(features, PAIR)
    fit, views = overheard(asked(parts, target, PAIR, source=SeededSource(2)), PAIR)
    points = [view for view in views["bob"] if len(view) == 300]
    assert len(points) == fit.figures["steps"] < 14
    exact = (parts["ada"] - parts["ada"].mean(axis=0)) @ fit.own("ada")["coefficients"]
    assert np.allclose(np.array(points[-1]) / 2**24, exact, atol=0.02)
    noise = [(np.array(point) / 2**24 - exact).std() for point in points]
    assert noise[0] > 0.1
    assert noise[-1] < 0.02


@pytest.mark.parametrize("roles", [PAIR, THREE], ids=["two", "three"])
def test_noise_of_a_predictor_has_its_deviation_and_the_last_one_has_none(roles):
    """The first point follows from the Gram matrix, so that two fits differ there by their noise alone."""
    features, target = drawn("binomial", rows=2000)
    parts = split(features, roles)
    seen = []
    for seed in range(2):
        _, views = overheard(asked(parts, target, roles, source=SeededSource(seed)), roles)
        seen.append(np.array([view for view in views["bob"] if len(view) == 2000]) / 2**24)
    noise = (seen[0] - seen[1])[0]
    whole = np.concatenate([parts[party] for party in roles.parties], axis=1)
    whole = np.column_stack([np.ones(2000), whole - whole.mean(axis=0)])
    mean = target.mean()
    first = np.linalg.solve(whole.T @ whole * mean * (1 - mean), whole.T @ (target - mean))
    assert noise.std() == pytest.approx(0.3 * (whole @ first).std() * np.sqrt(2), rel=0.1)
    assert abs(noise.mean()) < 0.05
    assert (seen[0] - seen[1])[-1].std() < 1e-3


def test_a_step_costs_one_number_a_row_for_all_pairs_of_one_partys_columns():
    rows, ada, bob = 1000, 5, 4
    features, target = drawn("binomial", rows=rows, width=9)
    parts = {"ada": features[:, :ada], "bob": features[:, ada:]}
    fit, views = overheard(asked(parts, target, PAIR), PAIR)
    masked = (ada + 1) * 2 + ada * (ada + 1) // 2 + 1  # both limbs, pairs, and a column of ones with each
    step = 1 + 1 + (bob + 1) + 1  # predictor, scores, weighted columns, weights
    words = masked + (bob + 2) + step * fit.figures["steps"] + 1  # one more limb of weights in the last step
    sent = sum(len(view) for peer in ("ada", "bob") for view in views[peer])
    assert 0 < sent - rows * words < rows


def test_noise_is_drawn_once_for_each_point_and_party():
    drawn_for = []

    class Noted(SeededSource):
        def bytes(self, size, *, purpose, peer, round=0):
            drawn_for.append((purpose, peer, round))
            return super().bytes(size, purpose=purpose, peer=peer, round=round)

    features, target = drawn("binomial", rows=300)
    fit = play(asked(split(features, THREE), target, THREE, source=Noted(1)), THREE)
    noise = [each for each in drawn_for if "noise" in each[0]]
    assert len(noise) == len({*noise}) == 2 * (fit.figures["steps"] - 1)
    assert {peer for _, peer, _ in noise} == {"ada", "eve"}


@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("itself", [False, True])
def test_classes_that_columns_separate_are_refused(noise, itself):
    """Near the border of a column few people have weights; of a column that is the class, coefficients grow."""
    features, _ = drawn("binomial", rows=300)
    target = (features[:, 1] > np.median(features[:, 1])).astype(np.int64)
    if itself:
        features = np.tile(target[:, None], 4)
    with pytest.raises((LearningError, PrivacyError), match=r"set model\.options\.ridge"):
        play(asked(split(features, PAIR), target, PAIR, predictor_noise=noise), PAIR)


def test_targets_and_families_that_do_not_fit_are_refused():
    features, target = drawn("binomial", rows=300)
    with pytest.raises(DataError, match="bob has a number that is not positive among its targets"):
        play(asked(split(features, PAIR), target, PAIR, family="gamma"), PAIR)
    with pytest.raises(ModelError, match='"multinomial", which vertical learning does not fit'):
        NewtonOptions(family="multinomial")
    with pytest.raises(ModelError, match="ridge is inf"):
        NewtonOptions(ridge=float("inf"))


def explained(known, given, columns):
    """Return the median R² of foreign columns that follow, by least squares, from what is given of some people."""
    given = np.column_stack([np.ones(len(given)), given - given.mean(axis=0)])
    given[:, 1:] /= given[:, 1:].std(axis=0)
    rest = np.setdiff1d(np.arange(len(given)), known)
    beta = np.linalg.lstsq(given[known], columns[known], rcond=1e-10)[0]
    away = columns[rest] - given[rest] @ beta
    return np.median(1 - (away**2).sum(axis=0) / ((columns[rest] - columns[rest].mean(axis=0)) ** 2).sum(axis=0))


def leak_of(parts, target, *, seed, **options):
    """Return R² of ada's columns from bob's own data, with the final predictor, and with all predictors."""
    rows = len(target)
    _, views = overheard(asked(parts, target, PAIR, source=SeededSource(seed), **options), PAIR)
    seen = np.array([view for view in views["bob"] if len(view) == rows]).T / 2**24  # [n, T]
    own = np.column_stack([parts["bob"], target])
    scores = []
    for each in range(10):
        known = np.random.default_rng(each).permutation(rows)[: min(300, rows // 3)]
        given = own, np.column_stack([own, seen[:, -1]]), np.column_stack([own, seen])
        scores.append([explained(known, each, parts["ada"]) for each in given])
    return np.mean(scores, axis=0)


def fate(name):
    return lambda folder: two_tables(folder, name)


def adults(folder):
    """Return eight columns of what people are and own, three of their work, and who earns much, of 8,000 people."""
    path = folder / "adult" / "adult.data"
    if not path.is_file():
        pytest.skip("adult is not in the folder of data sets")
    table = pd.read_csv(path, skipinitialspace=True).iloc[:8000]
    levels = {"sex": "Male", "marital": "Married-civ-spouse", "race": "White", "country": "United-States"}
    levels |= {"occupation": "Exec-managerial"}
    ada = [table[column] == level for column, level in levels.items()]
    ada += [table["age"], np.log1p(table["capital_gain"]), np.log1p(table["capital_loss"])]
    bob = [table["education_num"], table["hr_per_week"], table["type_employer"] == "Private"]
    return standardised(ada, bob), (table["income"] == ">50K").to_numpy(np.int64)


def visits(_folder):
    """Return six columns of health, three of insurance, and visits of a doctor, of 6,000 people (RAND)."""
    table = sm.datasets.randhie.load_pandas().data.iloc[:6000]
    ada = [table[column] for column in ("physlm", "disea", "hlthg", "hlthf", "hlthp", "fmde")]
    bob = [table[column] for column in ("lncoins", "idp", "lpi")]
    return standardised(ada, bob), table["mdvis"].to_numpy(np.float64)


def standardised(ada, bob):
    whole = {peer: np.column_stack(columns).astype(np.float64) for peer, columns in {"ada": ada, "bob": bob}.items()}
    return {peer: (columns - columns.mean(axis=0)) / columns.std(axis=0) for peer, columns in whole.items()}


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize(
    ("table", "exact", "options"),
    [
        (fate("breast_hetero"), 0.1, {"ridge": 1.0}),
        (fate("default_credit_hetero"), 0.15, {}),
        (adults, 0.15, {}),
        (visits, 0.15, {"family": "poisson"}),
    ],
    ids=["breast", "credit", "adult", "visits"],
)
def test_noisy_predictors_give_columns_away_hardly_more_than_the_final_one(table, exact, options, data_dir):
    parts, target = table(data_dir)
    noisy = np.mean([leak_of(parts, target, seed=seed, **options) for seed in range(3)], axis=0)
    plain = leak_of(parts, target, seed=0, predictor_noise=False, **options)
    assert noisy[0] < noisy[1]
    assert noisy[2] <= noisy[1] + 0.10
    assert plain[2] >= plain[1] + exact


@pytest.mark.slow
@pytest.mark.parametrize("rows", [200, 400, 1000])
def test_noise_that_falls_slowly_hides_the_columns_of_few_people(rows):
    """With noise that fell tenfold at each step, all predictors told .17 more than the last one at 400 rows."""
    rises = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        parts = {"ada": rng.normal(size=(rows, 4)), "bob": rng.normal(size=(rows, 2))}
        eta = parts["ada"] @ [0.6, -0.8, 0.8, 0.1] + parts["bob"] @ [0.7, 0.2]
        target = (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(np.int64)
        _, last, everything = leak_of(parts, target, seed=seed)
        rises.append(everything - last)
    assert np.mean(rises) <= 0.10


@pytest.mark.slow
def test_credit_alone_and_together(data_dir):
    parts, target = two_tables(data_dir, "default_credit_hetero")
    fit = play(asked(parts, target, PAIR), PAIR)
    check(fit, parts, target, "binomial")
    assert roc_auc_score(target, fit.own("bob")["predictor"]) == pytest.approx(0.7242, abs=1e-4)
    alone = sm.GLM(target, sm.add_constant(parts["bob"]), family=sm.families.Binomial()).fit()
    assert roc_auc_score(target, alone.fittedvalues) == pytest.approx(0.6586, abs=1e-4)
