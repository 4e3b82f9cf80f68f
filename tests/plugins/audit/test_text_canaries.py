"""Canaries in text: random sequences that a small Llama learns, with and without noise that hides them."""

import html
import math
from importlib.util import find_spec

import builds
import numpy as np
import pytest

from p2pfl.experiment import plan, read
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.plugins.audit.attacks.text_canaries import _exposures
from p2pfl.plugins.audit.audit import Effort, attack_texts, audit
from p2pfl.plugins.audit.audit_page import audit_page
from p2pfl.plugins.audit.pipeline import OPEN_OBSERVER

MISSING = [name for name in ("transformers", "peft") if find_spec(name) is None]
language = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason="transformers and peft are not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
LLAMA = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 16,
}
TABLE = {
    "rounds": 3,
    "topology": {"kind": "complete", "peers": 2},
    "data": {"name": "tiny_llama:texts", "options": {"count": 300, "classes": 32}, "test": 0.2},
    "model": {"name": "transformers:AutoModelForCausalLM", "options": {"config": LLAMA}},
    "learning": {"device": "cpu", "rate": 0.5, "batch": 16, "epochs": 8},
}


TRAINERS = {
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 2},
    "learning": {"learner": {"name": "tiny_llama:trainer_learner"}},
}


def attacked(*changes, table=TABLE):
    resolved = plan(read(table, changes=changes))
    return {each.observer: each for each in attack_texts(resolved, fresh=builds.fresh)}


class TestOfTinyLlamas:
    pytestmark = language

    def test_texts_that_nothing_hides_are_found(self):
        found = attacked()[OPEN_OBSERVER]
        assert found.auc > 0.95
        assert found.epsilon > 1
        assert found.exposure > found.most - 2
        assert not found.broken
        assert math.isinf(found.bound)

    def test_noise_on_gradients_keeps_what_texts_prove_below_the_stated_epsilon(self):
        changes = ["learning.example_noise=1.0", "learning.max_norm=1.0"]
        found = attacked(*changes)[OPEN_OBSERVER]
        stated = plan(read(TABLE, changes=changes)).examples(3)["epsilon"]
        assert found.bound == stated
        assert found.epsilon < stated
        assert not found.broken
        assert found.exposure < found.most / 2

    def test_texts_in_the_data_of_trainers_are_found_and_hidden_by_noise(self, tmp_path):
        """The epsilon is that of a site, for all texts of a peer together."""
        options = f"learning.learner.options.folder={tmp_path}"
        shown = attacked(options, table=TRAINERS)[OPEN_OBSERVER]
        assert shown.exposure > shown.most - 2
        assert shown.epsilon > 1
        changes = [options, "privacy.mode=independent", "privacy.epsilon=8"]
        for name, found in attacked(*changes, table=TRAINERS).items():
            if name != OPEN_OBSERVER:
                assert found.epsilon < 8 <= found.bound < 100
                assert not found.broken
                assert found.exposure < found.most / 2

    def test_the_page_of_an_audit_of_trainers_has_the_texts_and_says_what_was_not_tried(self, tmp_path):
        options = f"learning.learner.options.folder={tmp_path}"
        least = Effort(trials=1000, canaries=40, rounds=1, shadows=2, samples=1, keys=100, live=0)
        found = audit(plan(read(TRAINERS, changes=[options])), fresh=builds.fresh, effort=least)
        assert not found.broken
        shown = audit_page(found)
        assert "Canaries in text" in shown
        assert "Not tried: the samples are the learner's own" in html.unescape(shown)
        assert found.results()["texts"][0]["exposure"] > 2

    def test_noise_that_is_stated_and_missing_is_noticed(self, monkeypatch):
        monkeypatch.setattr(ExamplePrivateLearner, "hide", lambda _, total, **__: total)
        found = attacked("learning.example_noise=8.0", "learning.max_norm=1.0", "privacy.delta=1e-7")[OPEN_OBSERVER]
        assert found.bound < 1 < found.certain
        assert found.broken
        assert found.fault.startswith("nothing hidden tells planted texts too well: epsilon is above ")


def test_exposure_is_the_rank_among_texts_that_were_not_there():
    scores, there = np.array([9.0, 4.0, 3.0, 2.0, 0.5]), np.array([True, False, False, False, True])
    assert _exposures(scores, there).tolist() == [2.0, 0.0]
