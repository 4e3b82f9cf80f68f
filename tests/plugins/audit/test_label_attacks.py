"""Labels follow from gradients and parts of a split network, unless they were changed before anything left."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.label_attacks import SLACK, attack_labels, guess_labels
from p2pfl.plugins.vertical import split_training
from p2pfl.plugins.vertical.private_messages import collect
from p2pfl.plugins.vertical.split_learner import SplitLearner
from p2pfl.privacy.keys import SeededSource
from vertical_experiments import changed


def attacked(**options):
    """Return the claims of attacks on a split network of breast cancer by name."""
    experiment = changed(
        data={"name": "breast_cancer"},
        model={"name": "split_network", "options": options},
        learning={"optimizer": "adam", "rate": 0.01},
    )
    return {each.name: each for each in attack_labels(plan(read(experiment | {"rounds": 4})), fresh=SeededSource)}


@pytest.mark.slow
def test_labels_that_are_shown_follow_from_gradients_and_from_a_completed_network():
    claims = attacked(labels="shown")
    assert claims["gradients show labels"].measured < 0.05
    assert claims["a completed network shows labels"].measured < 0.1
    assert not any(each.broken for each in claims.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gradients show changed labels alone", "a completed network shows changed labels alone"]
)
def test_labels_of_a_coin_are_guessed_no_better_than_randomised_response_allows(name):
    """A changed label that gradients show is as good a guess as there is, so one standard error is due to chance."""
    claim, bound = attacked(label_epsilon=1.0)[name], math.e / (1 + math.e)
    error = (claim.allowed - bound) / SLACK
    assert claim.measured <= bound + error < claim.allowed


@pytest.mark.slow
def test_labels_that_are_not_changed_break_the_claim_of_protection(monkeypatch):
    monkeypatch.setattr(SplitLearner, "_labels", lambda self, _: self.parties.party(self.parties.label).targets)
    claims = attacked(label_epsilon=1.0)
    assert claims["gradients show changed labels alone"].broken


@pytest.mark.slow
def test_an_embedding_of_few_numbers_shows_a_share_of_the_columns_at_most():
    claim = attacked(labels="shown", width=3)["a prediction is a few equations"]
    assert "3 numbers" in claim.sentence
    assert 0.05 < claim.measured <= claim.allowed < 0.2


@pytest.mark.slow
def test_embeddings_of_each_party_by_itself_would_be_twice_the_equations(monkeypatch):
    def collect_apart(answer, *, size, to, among):
        first = yield from collect(answer, size=size, to=to, among=among[:1])
        if len(among) == 1:
            return first
        rest = yield from collect_apart(answer, size=size, to=to, among=among[1:])
        return SimpleNamespace(receiver=to, read=lambda label: first.read(label) + rest.read(label))

    monkeypatch.setattr(split_training, "collect", collect_apart)
    claim = attacked(labels="shown", width=3)["a prediction is a few equations"]
    assert claim.broken


def test_guesses_count_where_they_are_judged():
    labels = np.arange(90) % 2 == 1
    shown = np.where(labels, 1.0, -1.0)[:, None]
    shown[:45] = 0.0
    late = np.arange(90) >= 45
    assert guess_labels(shown, labels, seed=0, judged=late)[0] == 1.0
    assert guess_labels(shown, labels, seed=0, judged=~late)[0] == 0.5


def test_other_runs_have_no_gradients_of_labels():
    assert attack_labels(plan(read("digits")), fresh=SeededSource) == []
