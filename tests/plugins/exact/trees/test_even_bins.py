"""Bins of equal width between public bounds: no total before the first tree, and the model of scikit-learn."""

import math

import numpy as np
import pytest
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact.bins import even_bins
from p2pfl.plugins.exact.boosting import Boosting
from p2pfl.plugins.exact.tree_features import TreeFeatures
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out, trained

FEATURES, TARGETS = datasets.load_breast_cancer(return_X_y=True)
FEATURES = FEATURES[:, :6].astype(np.float32)
BOUNDS = {f"x{number}": [0.0, float(math.ceil(FEATURES[:, number].max()))] for number in range(6)}
MODEL = Boosting(
    features=6,
    classes=2,
    rounds=5,
    max_leaf_nodes=0,
    max_depth=3,
    min_samples_leaf=1,
    max_bins=32,
    least=1,
    edges="even",
    bounds=BOUNDS,
)


def questions(model, federation):
    """Return the number of totals of the first round."""
    learner, count = ExactLearner(model, federation), 0
    asking = learner.asking(learner.start(["all"])[0], round=0)
    question = next(asking)
    while True:
        count += 1
        try:
            question = asking.send(question.answer("all"))
        except StopIteration:
            return count


def test_peers_end_with_the_model_of_their_pooled_data_bit_for_bit():
    federation = shared_out(FEATURES, TARGETS, classes=2, peers=7)
    privacy = Pairwise(mask_graph="complete")
    run = simulate(
        Exact(), ExactLearner(MODEL, federation), topology.path(7), rounds=5, privacy=privacy, baselines=False
    )
    _, pooled = trained(MODEL, federation, rounds=5)
    for name, value in pooled.items():
        assert np.array_equal(run.models["peer3"][name].numpy(), value), name


def test_margins_are_those_of_scikit_learn_on_the_same_bins():
    federation = shared_out(FEATURES, TARGETS, classes=2, peers=3)
    learner, tensors = trained(MODEL, federation, rounds=5)
    codes = MODEL.bins(tensors).codes(FEATURES).T
    oracle = HistGradientBoostingClassifier(
        max_iter=5, max_leaf_nodes=None, max_depth=3, min_samples_leaf=1, early_stopping=False
    ).fit(codes, TARGETS)
    own = learner.model.predicted(tensors, learner.own("all").train)[:, 1]
    order = federation.pooled("all").train["all"]
    assert np.abs(own - oracle.decision_function(codes[order])).max() < 1e-7


def test_bins_need_no_total():
    federation = shared_out(FEATURES, TARGETS, classes=2, peers=3).pooled("all")
    sketched = Boosting(features=6, classes=2, rounds=5, max_leaf_nodes=0, max_depth=3, max_bins=32, least=1)
    assert questions(sketched, federation) - questions(MODEL, federation) == 2
    assert "how many samples have each value" not in MODEL.shown({"edges": "even"})
    assert "how many samples have each value" in MODEL.shown({})


def test_levels_and_missing_values_have_bins_that_follow_from_the_declaration():
    fields = (Field("age", missing=math.nan), Field("sex", ("f", "m")), Field("ward", ("a", "b", "c")))
    seen = TreeFeatures.of(6, fields, categorical=["ward"])
    bins = even_bins(seen, fields, {"age": [0, 100]}, max_bins=4)
    assert bins.missing.tolist() == [True, False, False, False]
    assert bins.counts.tolist() == [3, 1, 1, 2]
    assert bins.cuts.tolist() == [[25, 50, 75], [0.5, 0, 0], [0.5, 0, 0], [0.5, 1.5, 0]]
    assert np.flatnonzero(bins.known[3]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"edges": "exact"}, r'edges is "exact"; set it to "sketch" or "even" \(exact quantiles are values of single'),
        ({"edges": "even"}, 'bounds: those of "x0" are missing'),
        ({"edges": "even", "bounds": {"x0": [1.0, 0.0]}}, r'"x0" are \[1\.0, 0\.0\]; write \[low, high\]'),
        ({"edges": "even", "bounds": {"y": [0.0, 1.0]}}, 'there is no number "y"; choose from x0'),
        ({"bounds": {"x0": [0.0, 1.0]}}, 'bounds has no effect with the sketch; leave it out, or set edges = "even"'),
        ({"edges": "even", "bounds": {}, "categorical_features": [0]}, 'the category "x0" needs declared levels'),
    ],
)
def test_edges_that_do_not_fit_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        Boosting(features=1, classes=2, rounds=1, **options)
