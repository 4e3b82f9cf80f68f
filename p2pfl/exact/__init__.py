"""Models that are public functions of exact totals: all peers compute the same one, that of their pooled data."""

from collections.abc import Callable, Mapping

from p2pfl.exact.boosting import Boosting
from p2pfl.exact.learner import ExactLearner
from p2pfl.exact.model import ExactModel, Outcome, Own, Part

EXACT: Mapping[str, Callable[..., ExactModel]] = {"boosting": Boosting}
"""Models by name."""

__all__ = ["EXACT", "Boosting", "ExactLearner", "ExactModel", "Outcome", "Own", "Part"]
