"""Models that are public functions of exact totals: all peers compute the same one, that of their pooled data."""

from typing import TYPE_CHECKING

from p2pfl.core.lazily import lazily

if TYPE_CHECKING:
    from p2pfl.plugins.exact.additive.componentwise import Componentwise
    from p2pfl.plugins.exact.boosting import Boosting
    from p2pfl.plugins.exact.forest import RandomForest
    from p2pfl.plugins.exact.learner import ExactLearner
    from p2pfl.plugins.exact.model import ExactModel, Outcome, Own, Part
    from p2pfl.plugins.exact.models import EXACT
    from p2pfl.plugins.exact.random_boosting import RandomBoosting
    from p2pfl.plugins.exact.regression.glm import GLM
    from p2pfl.plugins.exact.regression.lasso import Lasso
    from p2pfl.plugins.exact.regression.private_glm import PrivateGLM
    from p2pfl.plugins.exact.statistics.description import Description
    from p2pfl.plugins.exact.statistics.kaplan_meier import KaplanMeier
    from p2pfl.plugins.exact.statistics.pca import PCA
    from p2pfl.plugins.exact.statistics.private_description import PrivateDescription
    from p2pfl.plugins.exact.statistics.private_kaplan_meier import PrivateKaplanMeier
    from p2pfl.plugins.exact.statistics.private_pca import PrivatePCA
    from p2pfl.plugins.exact.survival.cox import Cox

_HOMES = {
    "Boosting": "boosting",
    "Componentwise": "additive.componentwise",
    "Cox": "survival.cox",
    "Description": "statistics.description",
    "EXACT": "models",
    "ExactLearner": "learner",
    "ExactModel": "model",
    "GLM": "regression.glm",
    "KaplanMeier": "statistics.kaplan_meier",
    "Lasso": "regression.lasso",
    "Outcome": "model",
    "Own": "model",
    "PCA": "statistics.pca",
    "Part": "model",
    "PrivateDescription": "statistics.private_description",
    "PrivateGLM": "regression.private_glm",
    "PrivateKaplanMeier": "statistics.private_kaplan_meier",
    "PrivatePCA": "statistics.private_pca",
    "RandomBoosting": "random_boosting",
    "RandomForest": "forest",
}

__getattr__ = lazily(__name__, _HOMES)

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
