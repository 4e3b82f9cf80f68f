"""Models that are public functions of exact totals: all peers compute the same one, that of their pooled data."""

from collections.abc import Callable, Mapping

from p2pfl.exact.boosting import Boosting
from p2pfl.exact.forest import RandomForest
from p2pfl.exact.glm import GLM
from p2pfl.exact.learner import ExactLearner
from p2pfl.exact.model import ExactModel, Outcome, Own, Part
from p2pfl.exact.random_boosting import RandomBoosting
from p2pfl.exact.survival import Cox

EXACT: Mapping[str, Callable[..., ExactModel]] = {
    "boosting": Boosting,
    "random_boosting": RandomBoosting,
    "forest": RandomForest,
    "glm": GLM,
    "cox": Cox,
}
"""Models by name."""

__all__ = [
    "EXACT",
    "GLM",
    "Boosting",
    "Cox",
    "ExactLearner",
    "ExactModel",
    "Outcome",
    "Own",
    "Part",
    "RandomBoosting",
    "RandomForest",
]
