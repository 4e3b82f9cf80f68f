"""Models by name."""

from collections.abc import Callable, Mapping

from p2pfl.plugins.exact.additive.componentwise import Componentwise
from p2pfl.plugins.exact.boosting import Boosting
from p2pfl.plugins.exact.forest import RandomForest
from p2pfl.plugins.exact.model import ExactModel
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
