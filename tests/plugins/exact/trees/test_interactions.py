"""Interaction constraints of boosting, as in scikit-learn."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier

from p2pfl import topology
from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field
from p2pfl.learning import Part
from p2pfl.plugins.exact import Boosting
from plugins.exact.tables import masked_as_pooled, shared_out, trained

SETS = {
    "pairs": "pairwise",
    "none": "no_interactions",
    "overlapping": [[0, 1, 7], [7, 20, 22], [22, 27]],
    "all listed": [list(range(10)), list(range(10, 30))],
}


def cancer():
    features, targets = datasets.load_breast_cancer(return_X_y=True)
    return np.asarray(features, np.float32), targets


def boosting(features, *, rounds=15, **options):
    """Return a model; in smaller leaves splits gain the same, and single precision chooses for scikit-learn."""
    settings = {"max_depth": 4, "max_leaf_nodes": None, "min_samples_leaf": 20, "max_bins": 32} | options
    return Boosting(features=features.shape[1], classes=2, rounds=rounds, **settings)


def paths(tensors, tree, node=0, above=frozenset()):
    """Yield the features of each path from the root of a tree to a leaf."""
    feature, left = int(tensors["feature"][tree, node]), int(tensors["left"][tree, node])
    if feature < 0:
        yield above
        return
    for child in (left, left + 1):
        yield from paths(tensors, tree, child, above | {feature})


@pytest.mark.slow
@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("sets", SETS.values(), ids=SETS)
@pytest.mark.parametrize("shape", [{}, {"max_depth": None, "max_leaf_nodes": 9}], ids=["levels", "best first"])
def test_margins_are_those_of_scikit_learn(sets, shape):
    features, targets = cancer()
    model = boosting(features, interaction_cst=sets, **shape)
    _, tensors = trained(model, shared_out(features, targets, classes=2, peers=3), rounds=15)
    codes = model.bins(tensors).codes(features).T.astype(np.float64)
    given = {key: getattr(model, key) for key in ("max_depth", "max_leaf_nodes", "min_samples_leaf")}
    oracle = HistGradientBoostingClassifier(max_iter=15, early_stopping=False, interaction_cst=sets, **given).fit(
        codes, targets
    )
    found = model.margins(tensors, Part(features, targets))[:, 0]
    assert np.abs(found - oracle.decision_function(codes)).max() < 1e-7


def test_columns_of_levels_interact_as_one_column():
    rng = np.random.default_rng(0)
    ward, numbers = rng.integers(0, 4, 600), rng.normal(size=(600, 2))
    features = np.column_stack([numbers[:, 0], np.eye(4)[ward], numbers[:, 1]]).astype(np.float32)
    targets = ((numbers[:, 0] * (ward - 1.5) + numbers[:, 1]) > 0).astype(int)
    fields = (Field("age"), Field("ward", tuple("abcd")), Field("dose"))
    model = boosting(features, interaction_cst=[["ward", 2], ["age"]], fields=fields, rounds=10)
    _, tensors = trained(model, shared_out(features, targets, classes=2, peers=3), rounds=10)
    found = {each for tree in range(10) for each in paths(tensors, tree)}
    assert all(each <= {0} or each <= {1, 2, 3, 4, 5} for each in found)
    assert any(len(each & {1, 2, 3, 4}) > 1 and 5 in each for each in found)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("graph", [topology.ring(8), topology.path(5)], ids=["ring", "path"])
def test_peers_under_masks_end_with_the_model_of_their_pooled_data_bit_for_bit(graph):
    features, targets = cancer()
    federation = shared_out(features, targets, classes=2, peers=len(graph.peers))
    model = boosting(features, interaction_cst="pairwise", max_features=0.5, colsample_bytree=0.7, rounds=3)
    pooled = masked_as_pooled(model, federation, graph, rounds=3)
    assert all(len(each) <= 2 for tree in range(3) for each in paths(pooled, tree))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ("triples", 'interaction_cst is "triples"; set it to "pairwise", "no_interactions" or lists of columns'),
        ([["x0", "age"]], "there is no column 'age'; write names of columns, or positions from 0 to 1"),
        ([[2]], "there is no column 2"),
    ],
)
def test_sets_of_columns_that_do_not_exist_are_refused(sets, said):
    with pytest.raises(ModelError, match=said):
        boosting(np.zeros((2, 2)), interaction_cst=sets)
