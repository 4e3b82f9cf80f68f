"""The totals of the first boosted tree give away classes of samples, and the attack finds exactly those."""

import numpy as np
import pytest
from sklearn import datasets

from p2pfl.experiment import plan, read
from p2pfl.learning import ExactLearner
from p2pfl.plugins.audit.attacks.first_tree import FirstTree, exposures
from p2pfl.plugins.exact import Boosting
from plugins.exact.tables import shared_out

LOADS = {"two": datasets.load_breast_cancer, "three": datasets.load_wine, "numbers": datasets.load_diabetes}
CLASSES = {"two": 2, "three": 3, "numbers": None}


def first_tree(task, *, peers=6, **options):
    features, targets = LOADS[task](return_X_y=True)
    model = Boosting(features=features.shape[1], classes=CLASSES[task], rounds=1, **options)
    return FirstTree.of(ExactLearner(model, shared_out(features, targets, classes=CLASSES[task], peers=peers)), model)


def experiment(**more):
    table = {
        "topology": {"kind": "ring", "peers": 6},
        "data": {"name": "breast_cancer"},
        "model": {"name": "boosting", "options": {"max_bins": 32}},
        "privacy": {"mode": "pairwise"},
    }
    return plan(read(table | more))


@pytest.mark.parametrize("task", ["two", "three"])
@pytest.mark.parametrize("peers", [["peer1"], ["peer0", "peer3", "peer4"], [f"peer{number}" for number in range(6)]])
def test_the_totals_show_how_many_samples_of_each_class_a_bin_has(task, peers):
    tree = first_tree(task)
    counts, cells = tree.counts(peers), tree.cells(peers)
    targets = np.concatenate([tree.parts[peer].targets for peer in peers])
    true = np.zeros_like(counts)
    for feature in cells:
        np.add.at(true, (feature, targets), 1)
    assert np.array_equal(counts, true)
    known = tree.find_determined(peers)
    for feature in cells:
        place = known[feature]
        assert np.array_equal(counts[feature[place]].argmax(axis=1), targets[place])


def test_of_numbers_only_bins_of_one_sample_give_a_target_away():
    tree = first_tree("numbers")
    counts = tree.counts(["peer0", "peer1"])
    assert np.array_equal(tree.find_determined(["peer0", "peer1"]), counts[:, 0] == 1)


def test_totals_over_more_peers_and_coarser_bins_give_less_away():
    fine, coarse = (
        exposures(experiment()),
        exposures(experiment(model={"name": "boosting", "options": {"max_bins": 4}})),
    )
    for found in (fine, coarse):
        shares = [each.given for each in found]
        assert shares == sorted(shares, reverse=True)
        assert all(each.given <= each.some for each in found)
    assert all(few.given < many.given for few, many in zip(coarse, fine, strict=True))


def test_figures_are_given_for_what_colluders_each_peer_and_everybody_see():
    found = exposures(experiment(privacy={"mode": "pairwise", "mask_graph": "complete", "colluders": 3}))
    seen = {each.peers: each.observer for each in found}
    assert seen == {1: "", 2: "", 3: "3 colluding peers", 4: "", 5: "each peer", 6: "everybody"}
    assert found[-1].samples == sum(len(part) for part in experiment().federation.train.values())


@pytest.mark.parametrize("name", ["forest", "glm"])
def test_other_models_have_no_first_tree_to_attack(name):
    assert exposures(experiment(model={"name": name})) == ()
