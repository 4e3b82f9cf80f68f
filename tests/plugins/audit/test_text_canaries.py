"""Canaries in text: random sequences that a small Llama learns, with and without noise that hides them."""

import html
import math
from importlib.util import find_spec

import builds
import numpy as np
import pytest

from p2pfl.experiment import plan, read
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.plugins.audit.attacks.text_canaries import _exposures, _result
from p2pfl.plugins.audit.audit import Effort, attack_texts, audit
from p2pfl.plugins.audit.audit_page import audit_page
from p2pfl.plugins.audit.pipeline import OPEN_OBSERVER
from p2pfl.plugins.audit.statistical_tests import BOUNDS_PER_OBSERVER
from p2pfl.privacy.accounting.examples import SampledSteps, compose_epsilon

MISSING = [name for name in ("transformers", "peft") if find_spec(name) is None]
language = [
    pytest.mark.slow,
    pytest.mark.xdist_group("language"),  # one process imports transformers
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


NOISY = ["learning.example_noise=8.0", "learning.max_norm=1.0"]


def attacked(*changes, table=TABLE, **rounds):
    resolved = plan(read(table, changes=changes))
    return {each.observer: each for each in attack_texts(resolved, fresh=builds.fresh, **rounds)}


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
        found = attacked(*NOISY)[OPEN_OBSERVER]
        resolved = plan(read(TABLE, changes=NOISY))
        assert found.delta == resolved.experiment.privacy.delta == 1e-5
        assert found.bound == resolved.examples(3)["epsilon"]
        assert found.certain_bound == resolved.examples(3, delta=found.certain_delta)["epsilon"]
        assert found.epsilon < found.bound < found.ceiling
        assert found.certain < found.certain_bound < found.certain_ceiling
        assert found.figures["verdict"] == "holds"
        assert not found.broken
        assert found.exposure < found.most / 2

    def test_an_epsilon_above_all_that_guesses_could_prove_is_not_tested(self):
        found = attacked("learning.example_noise=1.0", "learning.max_norm=1.0", rounds=1)[OPEN_OBSERVER]
        assert found.bound > found.ceiling > 3
        assert found.figures["verdict"] == "not tested"
        assert f"could prove {found.ceiling:.2f} at most" in found.sentence

    @pytest.mark.parametrize(
        "changes",
        [
            ["learning.algorithm=fedavg", "learning.fraction=0.1"],  # the peer trains in more rounds than are planned
            ["data.options.first=100"],  # another peer has fewer samples, which are in more batches
        ],
    )
    def test_the_bound_is_the_cost_of_the_attacked_peer_in_the_attacked_rounds(self, changes):
        changes = [*NOISY, "learning.epochs=1", *changes]  # what is compared is stated, whatever was learned
        resolved = plan(read(TABLE, changes=changes))
        learner, peers = resolved.learner.bare, resolved.topology.peers
        victim = peers[int(np.argmax(learner.samples(peers)))]
        own = compose_epsilon({SampledSteps(8.0, *learner.cost(victim)): 2}, delta=1e-5)
        found = attacked(*changes, rounds=2)[OPEN_OBSERVER]
        assert found.bound == pytest.approx(own)
        assert found.bound != pytest.approx(resolved.examples(2)["epsilon"], rel=0.01)

    def test_texts_in_the_data_of_trainers_are_found_and_hidden_by_noise(self, tmp_path):
        """The epsilon is that of a site, for all texts of a peer together."""
        options = f"learning.learner.options.folder={tmp_path}"
        shown = attacked(options, table=TRAINERS)[OPEN_OBSERVER]
        assert shown.exposure > shown.most - 2
        assert shown.epsilon > 1
        hidden = self.hidden_trainers(options)
        assert len(hidden) == 2
        for found in hidden:
            assert 0.1 < found.bound < found.ceiling
            assert found.epsilon < found.bound
            assert found.certain < found.certain_bound < found.certain_ceiling
            assert found.figures["verdict"] == "holds"
            assert found.exposure < found.most / 2

    def test_private_noise_that_is_stated_and_missing_is_noticed_in_the_data_of_trainers(self, tmp_path, monkeypatch):
        builds.missing_noise(monkeypatch)
        for found in self.hidden_trainers(f"learning.learner.options.folder={tmp_path}"):
            assert found.broken
            assert found.figures["verdict"] == "broken"

    def hidden_trainers(self, *changes):
        found = attacked(*changes, "privacy.mode=independent", "privacy.epsilon=0.1", table=TRAINERS)
        return [each for name, each in found.items() if name != OPEN_OBSERVER]

    def test_the_page_of_an_audit_of_trainers_has_the_texts_and_says_what_was_not_tried(self, tmp_path):
        options = f"learning.learner.options.folder={tmp_path}"
        least = Effort(trials=1000, canaries=40, rounds=1, shadows=2, samples=1, keys=100, live=0)
        found = audit(plan(read(TRAINERS, changes=[options])), fresh=builds.fresh, effort=least)
        assert not found.broken
        shown = audit_page(found)
        assert "Canaries in text" in shown
        assert "Not tried: the samples are the learner's own" in html.unescape(shown)
        assert found.results()["texts"][0]["exposure"] > 2
        bounds = (len(found.games) + 2 * len(found.canaries)) / len(found.promises) + 1  # texts share theirs
        assert bounds <= BOUNDS_PER_OBSERVER

    def test_noise_that_is_stated_and_missing_is_noticed(self, monkeypatch):
        monkeypatch.setattr(ExamplePrivateLearner, "hide", lambda _, total, **__: total)
        found = attacked(*NOISY)[OPEN_OBSERVER]
        assert found.delta == 1e-5
        assert found.certain_bound < 1 < found.certain
        assert found.broken
        assert found.figures["verdict"] == "broken"
        assert found.fault.startswith("nothing hidden tells planted texts too well: epsilon is above ")


def test_exposure_is_the_rank_among_texts_that_were_not_there():
    scores, there = np.array([9.0, 4.0, 3.0, 2.0, 0.5]), np.array([True, False, False, False, True])
    assert _exposures(scores, there).tolist() == [2.0, 0.0]


@pytest.mark.parametrize(
    ("right", "stated", "verdict"),
    [(1.0, 2.0, "broken"), (0.5, 2.0, "holds"), (1.0, 3.0, "not tested"), (0.5, 3.0, "not tested")],
)
@pytest.mark.parametrize("delta", [1e-5, 1e-4])
def test_all_guesses_break_what_they_can_prove_at_any_usual_delta_and_test_no_more(right, stated, verdict, delta):
    there = np.arange(256) % 2 == 0
    scores = there + np.where(np.arange(256) % 4 < 2, 0.0, 4.0 * (right - 1) * (2 * there - 1)) + np.arange(256) / 1e6
    found = _result("neighbour", scores, there, bound=lambda _: stated, delta=delta, tests=15)
    assert found.figures["verdict"] == verdict
    assert found.broken == (verdict == "broken")
    assert f"{found.ceiling:.2f}" == found.figures["provable"]
    assert found.certain <= found.certain_ceiling < found.ceiling


def test_the_verdict_compares_at_a_delta_that_uses_up_a_thousandth_of_the_significance():
    there = np.arange(256) % 2 == 0
    asked = []

    def bound(delta):
        asked.append(delta)
        return 1.0

    found = _result("neighbour", there + 0.0, there, bound=bound, delta=1e-5, tests=15)
    assert asked == [1e-5, found.certain_delta]
    assert 2 * found.count * found.certain_delta == pytest.approx(1e-3 * 0.001 / 15)
