"""Models that are public functions of exact totals: all peers compute the same one, that of their pooled data."""

from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.learning.exact_model import ExactModel, Outcome, Own, Part
from p2pfl.plugins.exact.additive.componentwise import Componentwise
from p2pfl.plugins.exact.boosting import Boosting
from p2pfl.plugins.exact.forest import RandomForest
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

__all__ = [
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
