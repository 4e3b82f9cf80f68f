"""Nodes below a root: bins that few people of a node or its sibling have are merged before derivatives are summed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl import topology
from p2pfl.learning import ExactLearner
from p2pfl.learning.additive import answer_questions
from p2pfl.plugins.exact import Boosting, RandomForest
from p2pfl.plugins.exact.trees.merged_bins import few, merged
from plugins.exact.tables import masked_as_pooled, shared_out

WIDTH = 4
"""Number of features."""


def people(count=300, *, missing=0.0, seed=0):
    """Return features, of which one has few values and one lacks some, and a target of numbers."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, WIDTH)).astype(np.float32)
    features[:, 1] = rng.integers(0, 6, count)
    features[rng.uniform(size=count) < missing, 2] = np.nan
    targets = features[:, 0] + (features[:, 1] > 2) * np.nan_to_num(features[:, 2]) + rng.normal(size=count)
    return features, targets.astype(np.float32)


def boosting(**options):
    given = {"features": WIDTH, "classes": None, "rounds": 3, "min_samples_leaf": 1, "max_depth": 4, "max_bins": 32}
    return Boosting(**given | options)


def linked(model, features, targets):
    """Return how many people have, in a node of the first two trees, a bin of two features for themselves.

    The sum of derivatives of such a bin is that of the person, so equal sums in bins of two features are one person.
    """
    data = shared_out(features, targets, classes=None, peers=3)
    learner, alone = ExactLearner(model, data), set()
    peers = tuple(data.peers)
    row = learner.start(peers[:1])[0]
    for round in range(2):

        def total(question, round=round):
            found = np.sum([question.answer(peer) for peer in peers], axis=0)
            table = found[: 2 * (len(found) // 2)].reshape(-1, 2)  # first derivatives and counts
            singles = table[table[:, 1] == 1][:, 0] if question.size > 300 else []
            values, often = np.unique(singles, return_counts=True)
            alone.update((round, value) for value in values[(often > 1) & (np.abs(values) > 2**20)].tolist())
            return found

        row = answer_questions(learner.asking(row, round=round), total).row
    return len(alone)


def test_nobody_is_linked_over_two_features_by_a_derivative_unless_the_check_is_off():
    features, targets = people()
    assert linked(boosting(least=1), features, targets) > 20
    assert linked(boosting(), features, targets) == 0


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("missing", [0.0, 0.03])
@pytest.mark.parametrize("categorical", [(), (1,)])
def test_trees_on_merged_bins_are_those_of_pooled_people_and_have_leaves_of_many(missing, categorical):
    features, targets = people(missing=missing)
    model = boosting(categorical_features=[f"x{place}" for place in categorical] or None)
    data = shared_out(features, targets, classes=None, peers=4)
    tensors = masked_as_pooled(model, data, topology.complete(4), rounds=3)
    ends = (tensors["feature"] < 0) & (tensors["count"] > 0)
    assert tensors["count"][ends].min() >= 5
    assert (tensors["feature"] >= 0).sum() > 20


@pytest.mark.parametrize("missing", [0.0, 0.03])
@pytest.mark.parametrize("categorical", [None, ["x1"]])
def test_the_sums_of_a_leaf_are_those_of_the_people_that_its_splits_lead_there(missing, categorical):
    """A split by merged bins moves exactly the people whose sums decided it."""
    features, targets = people(missing=missing)
    model = boosting(rounds=1, categorical_features=categorical, learning_rate=1.0)
    data = shared_out(features, targets, classes=None, peers=3)
    tensors = masked_as_pooled(model, data, topology.complete(3), rounds=1)
    part = ExactLearner(model, data.pooled("all")).own("all").train
    margins = model.margins(tensors, part)[:, 0]
    for value in np.unique(margins):
        own = part.targets[margins == value]
        assert len(own) >= 5
        assert value == pytest.approx(own.mean(), abs=1e-5)


def test_a_leaf_of_a_forest_has_at_least_five_people():
    features, targets = people()
    model = RandomForest(features=WIDTH, classes=None, rounds=1, n_estimators=4, bootstrap=False)
    tensors = masked_as_pooled(model, shared_out(features, targets, classes=None, peers=3), topology.ring(3), rounds=1)
    ends = (tensors["feature"] < 0) & (tensors["count"] > 0)
    assert tensors["count"][ends].min() >= 5


@given(
    counts=st.integers(1, 2).flatmap(
        lambda siblings: st.lists(
            st.lists(st.sampled_from([0, 0, 1, 3, 5, 8]), min_size=siblings, max_size=siblings), min_size=1, max_size=9
        )
    ),
    least=st.integers(1, 6),
)
def test_merged_bins_have_no_one_or_enough_of_each_sibling(counts, least):
    table = np.array(counts).T  # [S, B]
    places = merged(table, least)
    assert (np.diff(places) >= 0).all()
    assert (places >= np.arange(len(places))).all()
    sums = np.zeros_like(table)
    np.add.at(sums.T, places, table.T)
    assert not few(sums, least).any() or (len(np.unique(places)) == 1 and few(table.sum(axis=1), least).any())
