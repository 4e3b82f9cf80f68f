"""Labels follow from the gradients of a split network, unless they were changed before anything left."""

import math

import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.label_attacks import attack_labels
from p2pfl.privacy.keys import SeededSource
from vertical_experiments import changed


def attacked(**options):
    """Return the claims of an attack on a split network of breast cancer."""
    experiment = changed(
        data={"name": "breast_cancer"},
        model={"name": "split_network", "options": options},
        learning={"optimizer": "adam", "rate": 0.01},
    )
    return attack_labels(plan(read(experiment | {"rounds": 4})), fresh=SeededSource)


@pytest.mark.slow
def test_labels_that_are_shown_follow_from_gradients():
    [claim] = attacked(labels="shown")
    assert claim.measured < 0.05
    assert not claim.broken


@pytest.mark.slow
def test_changed_labels_are_guessed_no_better_than_randomised_response_allows():
    [claim] = attacked(label_epsilon=1.0)
    assert claim.measured <= math.e / (1 + math.e) < claim.allowed


def test_other_runs_have_no_gradients_of_labels():
    assert attack_labels(plan(read("digits")), fresh=SeededSource) == []
