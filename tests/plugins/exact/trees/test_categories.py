"""Categories and monotone constraints of boosting: those of scikit-learn, on any split of the samples."""

import numpy as np
import pytest
import torch
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from p2pfl.core.errors import DataError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.learning import Part
from p2pfl.plugins.exact import Boosting
from p2pfl.plugins.exact.tree_features import TreeFeatures
from plugins.exact.tables import shared_out, trained

FLOAT32 = 1e-6
"""Difference of margins that gradients in single precision leave, as scikit-learn has them."""

SETTINGS = {"max_depth": 4, "max_leaf_nodes": None, "min_samples_leaf": 5}


def mixed(*, missing=0.0):
    """Return 1,500 samples with a number, a category of 12, three of them rare, and one of 4, and a score."""
    rng = np.random.default_rng(3)
    number = rng.normal(size=1500)
    many = rng.choice(12, size=1500, p=[*[0.11] * 9, 0.005, 0.003, 0.002])
    few = rng.integers(0, 4, 1500)
    score = number + np.sin(many * 2.5) * 2 + (few % 2) * np.where(number > 0, 1.5, -1.0) + rng.normal(size=1500) / 2
    features = np.stack([number.astype(np.float32), many, few], axis=1).astype(float)
    features[rng.random(1500) < missing, 1] = np.nan
    return features, score


def model_of(features, *, classes, rounds=15, **options):
    settings = {"max_bins": 64, "least": 1} | SETTINGS | options
    return Boosting(features=features.shape[1], classes=classes, rounds=rounds, **settings)


def fitted(model, features, targets, *, peers=3):
    federation = shared_out(np.nan_to_num(features), targets, classes=model.classes, peers=peers)
    federation.dataset.features[:] = torch.as_tensor(features, dtype=torch.float32)
    return trained(model, federation, rounds=model.rounds)[1]


def binned(model, tensors, features):
    """Return features whose numbers are those of their bins, and whose categories are as they were."""
    codes = model.bins(tensors).codes(np.asarray(features, np.float32)).T.astype(float)
    categorical = np.array(model.seen.categorical)
    return np.where(categorical | np.isnan(features), features, codes)


def part(features):
    return Part(np.asarray(features, np.float32), np.zeros(len(features), np.int64))


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_categories_of_two_classes_are_those_of_scikit_learn(missing):
    features, score = mixed(missing=missing)
    targets = (score > 0.3).astype(int)
    model = model_of(features, classes=2, categorical_features=[1, 2])
    tensors = fitted(model, features, targets)
    shown = binned(model, tensors, features)
    oracle = HistGradientBoostingClassifier(max_iter=15, early_stopping=False, categorical_features=[1, 2], **SETTINGS)
    oracle.fit(shown, targets)
    assert np.abs(model.margins(tensors, part(features))[:, 0] - oracle.decision_function(shown)).max() < FLOAT32
    unseen = shown[:40].copy()
    unseen[::2, 1], unseen[1::2, 2] = 13, 60
    found = features[:40].copy()
    found[:, 1:] = unseen[:, 1:]
    assert np.abs(model.margins(tensors, part(found))[:, 0] - oracle.decision_function(unseen)).max() < FLOAT32
    split = tensors["feature"][: int(tensors["trees"][0])]
    assert (split == 1).sum() > 10


@pytest.mark.slow
def test_categories_of_a_regression_and_of_several_classes_are_those_of_scikit_learn():
    features, score = mixed()
    model = model_of(features, classes=None, categorical_features=[1, 2])
    tensors = fitted(model, features, score.astype(np.float32))
    shown = binned(model, tensors, features)
    oracle = HistGradientBoostingRegressor(max_iter=15, early_stopping=False, categorical_features=[1, 2], **SETTINGS)
    oracle.fit(shown, score.astype(np.float32))
    assert np.abs(model.margins(tensors, part(features))[:, 0] - oracle.predict(shown)).max() < 1e-5
    targets = np.digitize(score, [-1.0, 0.2, 1.4])
    model = model_of(features, classes=4, rounds=5, categorical_features=[1, 2], l2_regularization=1.0)
    tensors = fitted(model, features, targets)
    oracle = HistGradientBoostingClassifier(
        max_iter=5, early_stopping=False, categorical_features=[1, 2], l2_regularization=1.0, **SETTINGS
    ).fit(shown, targets)
    assert np.abs(model.margins(tensors, part(features)) - oracle.decision_function(shown)).max() < FLOAT32


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"max_depth": None, "max_leaf_nodes": 11}], ids=["levels", "best first"])
def test_monotone_constraints_are_those_of_scikit_learn(settings):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(1500, 6))
    score = features @ [1.0, -0.6, 0.4, 0.3, 0.0, 0.0] + 1.5 * np.sin(3 * features[:, 0]) + rng.normal(size=1500)
    targets, signs = (score > 0).astype(int), [1, 0, -1, -1, 0, 1]
    settings = SETTINGS | {"min_samples_leaf": 20} | settings
    model = model_of(features, classes=2, monotonic_cst=signs, **settings)
    tensors = fitted(model, features, targets)
    shown = binned(model, tensors, features)
    oracle = HistGradientBoostingClassifier(max_iter=15, early_stopping=False, monotonic_cst=signs, **settings)
    oracle.fit(shown, targets)
    assert np.abs(model.margins(tensors, part(features))[:, 0] - oracle.decision_function(shown)).max() < FLOAT32
    free = model_of(features, classes=2, **settings)
    assert not np.array_equal(fitted(free, features, targets)["feature"], tensors["feature"])


def test_a_prediction_rises_with_a_feature_that_must_rise():
    features, targets = datasets.load_diabetes(return_X_y=True)
    model = model_of(features, classes=None, monotonic_cst={"x2": 1, "x8": -1})
    tensors = fitted(model, features, targets)
    for number, sign in ((2, 1), (8, -1)):
        grid = np.repeat(features[:50, None], 40, axis=1)  # [50, 40, F]
        grid[..., number] = np.linspace(-0.2, 0.2, 40)
        found = model.margins(tensors, part(grid.reshape(-1, features.shape[1]))).reshape(50, 40)
        assert (np.diff(found * sign, axis=1) >= 0).all()
        assert (np.diff(found, axis=1) != 0).any()


def test_any_split_of_the_samples_gives_the_same_categories_and_the_module_predicts_them():
    features, score = mixed(missing=0.1)
    targets = (score > 0).astype(int)
    hot = np.concatenate([features[:, :1], features[:, 1:2] == np.arange(12), features[:, 2:3] == np.arange(4)], axis=1)
    fields = (Field("age"), Field("ward", tuple("abcdefghijkl")), Field("kind", tuple("wxyz")))
    model = Boosting(
        features=17, classes=2, rounds=4, fields=fields, categorical_features=["ward", "kind"], max_bins=32, **SETTINGS
    )
    same = model_of(features, classes=2, rounds=4, categorical_features=[1, 2], max_bins=32, least=5)
    one, two = fitted(model, hot, targets, peers=2), fitted(model, hot, targets, peers=7)
    plain = fitted(same, features, targets, peers=1)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert all(np.array_equal(one[name], plain[name]) for name in one if name != "levels")
    module = model.module()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in one.items()}, strict=True)
    found = module(torch.from_numpy(hot.astype(np.float32))).numpy()
    assert np.allclose(found[:, 1], model.margins(one, part(hot))[:, 0], rtol=1e-12)


def test_levels_that_are_not_named_keep_a_feature_each():
    fields = (Field("age"), Field("ward", ("a", "b", "c")), Field("sex", ("f", "m")))
    seen = TreeFeatures.of(6, fields, categorical=["sex"])
    assert seen.names == ("age", "ward=a", "ward=b", "ward=c", "sex")
    assert TreeFeatures.of(6, fields, categorical="from_dtype").categorical == (False, True, True)
    assert TreeFeatures.of(6, fields, categorical=None).plain


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"categorical_features": ["ward"]}, "there is no column 'ward'"),
        ({"categorical_features": [3]}, "positions from 0 to 2"),
        ({"monotonic_cst": [1, 0]}, "has 2 numbers for 3 features"),
        ({"monotonic_cst": {"x0": 2}}, '"x0" has the direction 2'),
        ({"monotonic_cst": {"age": 1}}, 'there is no feature "age"; choose from x0, x1, x2'),
        ({"monotonic_cst": {"x1": 1}, "categorical_features": [1]}, '"x1" is a category, which has no order'),
    ],
)
def test_invalid_columns_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        model_of(np.zeros((2, 3)), classes=2, **options)


def test_categories_that_are_no_codes_or_too_many_are_refused():
    features, score = mixed()
    targets = (score > 0).astype(int)
    with pytest.raises(DataError, match='all has a value of the category "x0" that is no whole number from 0 to 254'):
        fitted(model_of(features, classes=2, categorical_features=[0]), features, targets)
    with pytest.raises(ModelError, match=r"12 categories and model\.options\.max_bins is 8"):
        fitted(model_of(features, classes=2, categorical_features=[1], max_bins=8), features, targets)
