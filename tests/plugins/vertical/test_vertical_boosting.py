"""Boosting of columns at different peers against boosting of the joined table, to the last bit."""

from types import SimpleNamespace

import numpy as np
import pytest

from p2pfl.core.errors import DataError, PrivacyError
from p2pfl.learning.additive import answer_questions
from p2pfl.learning.exact_model import Own, Part
from p2pfl.learning.metrics import auc
from p2pfl.plugins.vertical import encrypted_products, vertical_boosting
from p2pfl.plugins.vertical.label_trees import AlignedBoosting, TreeTable
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.tree_columns import TreeColumns
from p2pfl.plugins.vertical.vertical_boosting import fit_trees
from p2pfl.privacy.keys import SeededSource
from vertical_roles import ALONE, FOUR, PAIR, THREE, overheard, play, split, two_tables

TWO = PartyRoles(("ada", "bob"), label="bob")

ONE = SimpleNamespace(parties=("bob",))

FIELDS = ("feature", "threshold", "left", "missing", "value", "gain", "count")


def drawn(rows=240, width=7, *, seed=3, missing=0.0, classes=True):
    """Return features, some of few values and some missing, and targets."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, width)) * 10.0 ** np.arange(width)
    features[:, 2] = rng.integers(0, 4, rows)
    features[rng.random((rows, width)) < missing] = np.nan
    known = np.nan_to_num(features / 10.0 ** np.arange(width))
    score = known[:, 0] + known[:, 1] * known[:, 3] - known[:, -1] + rng.normal(size=rows)
    return features, (score > 0).astype(np.int64) if classes else score


def model_of(features, *, classes=2, rounds=3, max_bins=12, least=1, **options):
    options = {"max_depth": 3, "min_samples_leaf": 5} | options
    return AlignedBoosting(features=features, classes=classes, rounds=rounds, max_bins=max_bins, least=least, **options)


def asked(parts, targets, roles, *, trained=None, classes=2, own=None, source=None, **options):
    """Return the questions of the trees of all parties, some of which have options of their own columns."""
    trained = np.arange(len(targets)) if trained is None else trained
    alone = {name: value for name, value in options.items() if name != "loss"}
    columns = {
        peer: TreeColumns(
            peer, model_of(part.shape[1], classes=None, **alone, **(own or {}).get(peer, {})), part, trained
        )
        for peer, part in parts.items()
    }

    def joined(categorical, signs):
        chosen = {"categorical_features": np.flatnonzero(categorical).tolist(), "monotonic_cst": signs.tolist()}
        return model_of(len(categorical), classes=classes, **options, **chosen)

    table = TreeTable(roles, len(targets), trained, columns.__getitem__, lambda: targets[trained], joined)
    return fit_trees(table, model_of(1, classes=classes, **options), source or SeededSource(5))


def pooled(parts, targets, roles, *, trained=None, classes=2, **options):
    """Return the tensors of boosting of the joined table."""
    trained = np.arange(len(targets)) if trained is None else trained
    features = np.concatenate([parts[peer] for peer in roles.parties], axis=1).astype(np.float32)[trained]
    model = model_of(features.shape[1], classes=classes, **options)
    own = Own(Part(features, targets[trained]), Part(features[:0], targets[:0]))
    tensors, over = model.start(), False
    while not over:
        outcome = answer_questions(model.round(tensors, lambda _: own), lambda question: question.answer("all"))
        tensors, over = outcome.tensors, outcome.over
    return tensors


def joined_trees(fit, parts, roles):
    """Return the trees in the units of the joined table, from what each party keeps."""
    label, trees = fit.label(), dict(fit.label().trees)
    width = parts[roles.label].shape[1]
    first = dict(zip(roles.parties, np.cumsum([0, *[parts[peer].shape[1] for peer in roles.parties]]), strict=False))
    trees = {name: values.copy() for name, values in trees.items()}
    used = dict.fromkeys(roles.features, 0)
    splits = []
    for owner in label.owners.tolist():
        peer = roles.parties[owner]
        own = {name: values[used[peer]] for name, values in fit.splits(peer).items()}
        used[peer] += 1
        splits.append({**own, "feature": first[peer] + own["feature"]})
    for where in np.argwhere(trees["feature"] >= 0):
        place = tuple(where)
        number = int(trees["feature"][place]) - width
        if number < 0:
            trees["feature"][place] += first[roles.label]
        else:
            for name in ("feature", "threshold", "missing"):
                trees[name][place] = splits[number][name]
    return trees


def check(fit, tensors, parts, roles):
    trees = joined_trees(fit, parts, roles)
    for name in FIELDS:
        assert np.array_equal(trees[name], tensors[name]), name
    assert np.array_equal(fit.label().base, tensors["base"])


@pytest.mark.parametrize("roles", [PAIR, THREE, ALONE, FOUR], ids=["two", "three", "without a helper", "four"])
def test_trees_of_any_number_of_parties_are_those_of_the_joined_table(roles):
    features, targets = drawn(width=8)
    parts = split(features, roles)
    check(play(asked(parts, targets, roles), roles), pooled(parts, targets, roles), parts, roles)


@pytest.mark.parametrize("least", [1, 5, 20])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_bins_of_few_rows_are_merged_as_those_of_the_joined_table(least, missing):
    features, targets = drawn(missing=missing)
    parts = split(features, PAIR)
    fit = play(asked(parts, targets, PAIR, least=least), PAIR)
    check(fit, pooled(parts, targets, PAIR, least=least), parts, PAIR)


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    "options",
    [
        {"max_depth": None, "max_leaf_nodes": 5},
        {"subsample": 0.6},
        {"colsample_bytree": 0.4},
        {"l2_regularization": 3.0, "min_hessian": 8.0},
        {"least": 5, "colsample_bytree": 0.4},
        {"max_bins": 64},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_trees_are_those_of_the_joined_table(options):
    features, targets = drawn(missing=0.1)
    parts = split(features, THREE)
    fit = play(asked(parts, targets, THREE, **options), THREE)
    check(fit, pooled(parts, targets, THREE, **options), parts, THREE)


@pytest.mark.parametrize(("classes", "loss"), [(None, None), (None, "poisson"), (None, "gamma"), (3, None)], ids=str)
def test_trees_of_other_losses_are_those_of_the_joined_table(classes, loss):
    features, targets = drawn(classes=False)
    targets = np.digitize(targets, [-0.5, 0.5]) if classes else np.exp(targets) if loss else targets
    parts = split(features, PAIR)
    fit = play(asked(parts, targets, PAIR, classes=classes, loss=loss), PAIR)
    check(fit, pooled(parts, targets, PAIR, classes=classes, loss=loss), parts, PAIR)


@pytest.mark.parametrize("least", [1, 5])
def test_categories_and_directions_of_each_party_are_those_of_the_joined_table(least):
    features, targets = drawn(missing=0.1)
    codes = np.random.default_rng(8).permutation(9)[np.random.default_rng(9).integers(0, 6, len(targets))]
    features[:, 1], features[:, 4] = codes, codes[::-1]
    features[:, 3] = np.where(targets > 0, codes, 8 - codes)
    parts = {"ada": features[:, :4], "bob": features[:, 4:]}
    own = {
        "ada": {"categorical_features": [1, 3], "monotonic_cst": [-1, 0, 0, 0]},
        "bob": {"categorical_features": [0]},
    }
    joined = {"categorical_features": [1, 3, 4], "monotonic_cst": [-1, 0, 0, 0, 0, 0, 0]}
    fit = play(asked(parts, targets, PAIR, own=own, least=least), PAIR)
    tensors = pooled(parts, targets, PAIR, least=least, **joined)
    check(fit, tensors, parts, PAIR)
    used = [int(number) for number in tensors["feature"].ravel() if number >= 0]
    assert {*used} & {1, 3}
    for number, words in zip(fit.label().owners.tolist(), fit.splits("ada")["categories"], strict=True):
        assert number == 0
        assert words.tolist() in [[0.0] * 8, *tensors["categories"].reshape(-1, 8).tolist()]


def test_a_label_holder_without_columns_has_the_trees_of_the_others():
    features, targets = drawn()
    parts = {"ada": features, "bob": features[:, :0]}
    check(play(asked(parts, targets, PAIR), PAIR), pooled(parts, targets, PAIR), parts, PAIR)


def test_two_parties_with_nobody_else_grow_the_same_trees(monkeypatch):
    monkeypatch.setattr(encrypted_products, "MODULUS_BITS", 448)
    features, targets = drawn(rows=50, width=4)
    parts, options = split(features, TWO), {"rounds": 1, "max_depth": 2, "max_bins": 4}
    check(play(asked(parts, targets, TWO, **options), TWO), pooled(parts, targets, TWO, **options), parts, TWO)


def test_test_rows_have_the_margins_of_the_trees_of_the_joined_table():
    features, targets = drawn(rows=500, missing=0.1)
    parts, trained = split(features, THREE), np.arange(0, 500, 2)
    fit = play(asked(parts, targets, THREE, trained=trained), THREE)
    tensors = pooled(parts, targets, THREE, trained=trained)
    check(fit, tensors, parts, THREE)
    every = np.concatenate([parts[peer] for peer in THREE.parties], axis=1).astype(np.float32)
    margins = model_of(7).margins(tensors, Part(every, targets))
    assert np.array_equal(fit.label().margins, margins)


def test_feature_holders_and_the_helper_receive_the_same_whatever_the_targets_are():
    features, targets = drawn(rows=120, width=4)
    parts, options = split(features, PAIR), {"rounds": 1, "max_depth": 1}
    _, seen = overheard(asked(parts, targets, PAIR, **options), PAIR)
    _, other = overheard(asked(parts, 1 - targets, PAIR, **options), PAIR)  # the same splits with other derivatives
    assert seen["cleo"] == other["cleo"]
    differing = [place for place, (one, two) in enumerate(zip(seen["ada"], other["ada"], strict=True)) if one != two]
    assert len(differing) == 1  # the masked derivatives
    assert len(np.unique(np.array(seen["ada"][differing[0]]))) == len(seen["ada"][differing[0]])


def test_a_split_that_a_party_does_not_have_is_refused():
    columns = TreeColumns(
        "ada", model_of(2, classes=None), np.random.default_rng(1).normal(size=(60, 2)), np.arange(60)
    )
    with pytest.raises(PrivacyError, match="ada is asked for a split that its columns do not have"):
        columns.bits(np.array([[2, 0, 0, *[0] * 8]]))


def test_few_common_rows_are_refused():
    features, targets = drawn(rows=49)
    with pytest.raises(DataError, match="49 rows in common"):
        play(asked(split(features, PAIR), targets, PAIR), PAIR)


@pytest.mark.parametrize("wanted", [[1, 8], [16, 0], [1, -1], [np.nan, 0]], ids=["splits", "nodes", "negative", "nan"])
def test_a_label_holder_that_asks_for_more_than_trees_have_nodes_ends_the_run(wanted, monkeypatch):
    """A tree of depth 3 has 15 nodes and 7 splits, of which each shows one bit of all rows."""
    features, targets = drawn()
    monkeypatch.setattr(vertical_boosting, "_public", lambda _: np.array(wanted, float))
    with pytest.raises(PrivacyError, match="bob asks for more histograms or splits than the trees of a round have"):
        play(asked(split(features, PAIR), targets, PAIR), PAIR)


@pytest.mark.slow
@pytest.mark.nightly
def test_trees_of_credit_defaults_are_those_of_the_joined_table(data_dir):
    parts, targets = two_tables(data_dir, "default_credit_hetero")
    targets = targets.astype(np.int64)
    options = {"rounds": 30, "max_bins": 32, "learning_rate": 0.3, "l2_regularization": 1.0, "min_hessian": 1.0}
    fit, tensors = play(asked(parts, targets, PAIR, **options), PAIR), pooled(parts, targets, PAIR, **options)
    check(fit, tensors, parts, PAIR)
    assert auc(fit.label().margins[:, 0], targets == 1) == pytest.approx(0.796, abs=3e-3)  # XGBoost .7958
    own = pooled({"bob": parts["bob"]}, targets, ONE, **options)
    margins = model_of(13, **options).margins(own, Part(parts["bob"].astype(np.float32), targets))
    assert auc(margins[:, 0], targets == 1) == pytest.approx(0.746, abs=3e-3)  # XGBoost .7457
