"""Models that are public functions of exact totals: all peers compute the same one, that of their pooled data."""

from collections.abc import Callable, Mapping

from p2pfl.exact.additive.componentwise import Componentwise
from p2pfl.exact.boosting import Boosting
from p2pfl.exact.forest import RandomForest
from p2pfl.exact.learner import ExactLearner
from p2pfl.exact.model import ExactModel, Outcome, Own, Part
from p2pfl.exact.random_boosting import RandomBoosting
from p2pfl.exact.regression.glm import GLM
from p2pfl.exact.regression.lasso import Lasso
from p2pfl.exact.regression.private_glm import PrivateGLM
from p2pfl.exact.statistics.description import Description
from p2pfl.exact.statistics.kaplan_meier import KaplanMeier
from p2pfl.exact.statistics.pca import PCA
from p2pfl.exact.statistics.private_description import PrivateDescription
from p2pfl.exact.statistics.private_kaplan_meier import PrivateKaplanMeier
from p2pfl.exact.statistics.private_pca import PrivatePCA
from p2pfl.exact.survival.cox import Cox

EXACT: Mapping[str, Callable[..., ExactModel]] = {
    "boosting": Boosting,
    "random_boosting": RandomBoosting,
    "forest": RandomForest,
    "glm": GLM,
    "private_glm": PrivateGLM,
    "lasso": Lasso,
    "cox": Cox,
    "componentwise": Componentwise,
    "description": Description,
    "private_description": PrivateDescription,
    "kaplan_meier": KaplanMeier,
    "private_kaplan_meier": PrivateKaplanMeier,
    "pca": PCA,
    "private_pca": PrivatePCA,
}
"""Models by name."""

__all__ = [
    "EXACT",
    "GLM",
    "PCA",
    "Boosting",
    "Componentwise",
    "Cox",
    "Description",
    "ExactLearner",
    "ExactModel",
    "KaplanMeier",
    "Lasso",
    "Outcome",
    "Own",
    "Part",
    "PrivateDescription",
    "PrivateGLM",
    "PrivateKaplanMeier",
    "PrivatePCA",
    "RandomBoosting",
    "RandomForest",
]
