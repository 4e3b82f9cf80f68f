"""Models of columns that lie in one place, to compare with: of the label holder alone, and of all columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats
from p2pfl.core.tensors import torch
from p2pfl.learning.additive import answer_questions
from p2pfl.learning.exact_model import Own, Part
from p2pfl.learning.metrics import CLASSIFICATION_METRICS, auc, determination
from p2pfl.plugins.exact.regression.families import response
from p2pfl.plugins.exact.regression.glm import GLM
from p2pfl.plugins.exact.regression.lasso import Lasso
from p2pfl.plugins.vertical.elastic_net import PathOptions

MAX_STEPS = 100
"""Most steps of a model of columns in one place."""

SCORES = {"binomial": ("loss", "auc", "accuracy")}
"""Names of the scores of a family."""

NUMBER_SCORES = ("loss", "r2")
"""Names of the scores of other families."""


@dataclass(frozen=True, eq=False)
class WholeFit:
    """Regression of columns in one place.

    Parameters
    ----------
    weight, bias
        Coefficients ``[F]`` and intercept.
    errors
        Standard errors ``[F + 1]``, the intercept last; 0 of a coefficient that others determine.
    """

    weight: Floats
    bias: float
    errors: Floats

    def predictor(self, features: Floats) -> Floats:
        """Return linear predictors ``[n]``."""
        return features @ self.weight + self.bias


def fit_whole(features: Floats, targets: npt.NDArray[Any], *, family: str, ridge: float) -> WholeFit:
    """Return the regression of features ``[n, F]`` in one place, by the steps of the model ``glm``.

    Raises
    ------
    LearningError
        The features separate classes, or the likelihood has no maximum.
    """
    columns, classes = features.shape[1], 2 if family == "binomial" else None
    if not columns:  # a label holder without columns knows the mean
        start = response(family, None, alpha=1.0, classes=classes).start(np.array([targets.mean()]))
        return WholeFit(np.zeros(0), float(start[0]), np.zeros(1))
    model = GLM(
        features=columns, classes=classes, family=family, ridge=ridge, least=1, coefficients_per_sample=math.inf
    )
    part = Part(features, targets.astype(np.int64 if classes else np.float64))
    own = Own(part, Part(features[:0], part.targets[:0]))
    tensors = model.start()
    for _ in range(MAX_STEPS):
        outcome = answer_questions(model.round(tensors, lambda _: own), lambda question: question.answer("all"))
        tensors = outcome.tensors
        if outcome.over:
            break
    beta = model.stacked(tensors)
    return WholeFit(beta[:-1], float(beta[-1]), np.sqrt(np.maximum(np.diag(tensors["covariance"]), 0.0)))


def fit_whole_path(features: Floats, targets: npt.NDArray[Any], options: PathOptions) -> WholeFit:
    """Return the chosen model of a path of elastic nets of columns in one place, by the model ``lasso``.

    Parameters
    ----------
    features, targets
        Columns ``[n, F]``, and targets.
    options
        The path.
    """
    model = Lasso(
        features=features.shape[1],
        classes=None,
        l1_ratio=options.l1_ratio,
        lambdas=options.lambdas,
        smallest=options.smallest,
        least=1,
        coefficients_per_sample=math.inf,
    )
    cut, numbers = len(features) - options.validation, targets.astype(np.float64)
    own = Own(Part(features[:cut], numbers[:cut]), Part(features[cut:], numbers[cut:]))
    outcome = answer_questions(model.round(model.start(), lambda _: own), lambda question: question.answer("all"))
    beta = model.stacked(outcome.tensors)
    return WholeFit(beta[:-1], float(beta[-1]), np.zeros(len(beta)))


def score_names(family: str) -> tuple[str, ...]:
    """Return the names of the scores of a family."""
    return SCORES.get(family, NUMBER_SCORES)


def score_classes(outputs: Floats, targets: npt.NDArray[Any]) -> dict[str, float]:
    """Return the scores of logits ``[n, C]``; NaN without rows.

    The AUC of more than two classes is the mean over classes, each against the rest.

    Examples
    --------
    >>> score_classes(np.eye(3), np.arange(3))["auc"]
    1.0
    """
    if not len(targets):
        return dict.fromkeys(SCORES["binomial"], math.nan)
    chances = torch.from_numpy(outputs).softmax(dim=1).numpy()
    return {name: CLASSIFICATION_METRICS[name](chances, targets) for name in SCORES["binomial"]}


def score(predictor: Floats, targets: npt.NDArray[Any], *, family: str) -> dict[str, float]:
    """Return the scores of linear predictors ``[n]``; NaN without rows.

    Examples
    --------
    >>> score(np.array([-1.0, 1.0]), np.array([0, 1]), family="binomial")["auc"]
    1.0
    """
    if not len(targets):
        return dict.fromkeys(score_names(family), math.nan)
    if family == "binomial":
        loss = np.logaddexp(0.0, np.where(targets == 1, -predictor, predictor)).mean()
        area = auc(predictor, targets == 1) if 0 < int(targets.sum()) < len(targets) else math.nan
        return {"loss": float(loss), "auc": float(area), "accuracy": float(((predictor > 0) == targets).mean())}
    means = response(family, None, alpha=1.0, classes=None).means(predictor[:, None])[:, 0]
    error = float(((means - targets) ** 2).mean())
    return {"loss": error, "r2": determination(error, float(targets.var()))}
