"""Exact models of p2pfl keep the promises of their interface, and broken ones are named."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from p2pfl.experiment.catalogue import MODELS, model_traits
from p2pfl.learning import Outcome, Own, Part, Question
from p2pfl.plugins.exact import GLM
from p2pfl.testing import MODEL_CHECKS, ContractError, check_model

PUBLIC = {f"x{number}": [-3.0, 3.0] for number in range(3)}

OPTIONS = {
    "boosting": {"rounds": 3, "max_leaf_nodes": 4, "min_samples_leaf": 2},
    "random_boosting": {"rounds": 3, "bounds": PUBLIC},
    "forest": {"rounds": 3, "n_estimators": 6},
    "componentwise": {"rounds": 3, "every": 4},
    "cox": {"horizon": 10.0, "least": 1},
    "kaplan_meier": {"horizon": 10.0},
    "private_kaplan_meier": {"horizon": 10.0},
    "private_description": {"bounds": PUBLIC},
    "private_glm": {"rounds": 3, "bounds": PUBLIC},
    "private_pca": {"bounds": PUBLIC},
}
TIMES = {"cox", "kaplan_meier", "private_kaplan_meier"}
CLASSLESS = {"pca", "private_pca"}
ORDERED = {"ordinal"}


def owners(name):
    """Samples of three owners that a model takes."""
    rng = np.random.default_rng(3)

    def part():
        features = rng.normal(size=(30, 3)).astype(np.float32)
        targets = rng.integers(0, 3 if name in ORDERED else 2, 30)
        if name in TIMES:
            targets = np.round(rng.uniform(1, 9, 30), 1) * rng.choice([-1.0, 1.0], 30)
        return Part(features, targets)

    return {peer: Own(part(), part(), part()) for peer in ("ada", "bob", "cyd")}


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("name", [name for name in MODELS if not model_traits(name).steps])  # others need peers
def test_models_of_p2pfl_keep_their_promises(name):
    classes = {} if name in CLASSLESS else {"classes": None if name in TIMES else 3 if name in ORDERED else 2}
    check_model(MODELS.kind(name)(features=3, **classes, **OPTIONS.get(name, {})), owners(name))


@dataclass(frozen=True, kw_only=True)
class Reading(GLM):
    def round(self, tensors, own):
        own("ada")
        return (yield from super().round(tensors, own))


@dataclass(frozen=True, kw_only=True)
class Floating(GLM):
    def round(self, tensors, own):
        total = yield Question(lambda peer: own(peer).train.features[0].astype(float), size=3)
        return Outcome(tensors | {"step": total})


@dataclass(frozen=True, kw_only=True)
class Averaging(GLM):
    def round(self, tensors, own):
        def answer(peer):
            return np.rint(own(peer).train.features.mean(0) * 1000).astype(np.int64)

        total = yield Question(answer, size=3)
        return Outcome({**tensors, "weight": total[None].astype(float)})


@dataclass(frozen=True, kw_only=True)
class Silent(GLM):
    traits = replace(GLM.traits, noisy=True)


@dataclass(frozen=True, kw_only=True)
class Reversed(GLM):
    def predicted(self, tensors, part):
        return -super().predicted(tensors, part)


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Reading, "reads data outside of the answer"),
        (Floating, r"got \(dtype\('float64'\), \(3,\)\) instead of \(dtype\('int64'\), \(3,\)\)"),
        (Averaging, "predictions do not depend on who holds which sample; they differ"),
        (Silent, "a model for private noise asks once a round and bounds the change"),
        (Reversed, "the module predicts as the model does; outputs differ"),
    ],
)
def test_a_broken_promise_is_named(kind, promise):
    with pytest.raises(ContractError, match=promise):
        check_model(kind(features=3, classes=2), owners("glm"))


def test_every_check_is_a_sentence():
    assert all("_" in name for name in MODEL_CHECKS)
