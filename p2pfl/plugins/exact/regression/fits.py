"""Coefficients of a regression that has converged, with standard errors, tests and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from p2pfl.core.explanations import FittedCoefficient, FittedRegression, finite
from p2pfl.data.description import Field
from p2pfl.plugins.exact.model import ExactModel, Tensors
from p2pfl.plugins.exact.regression.coefficients import coefficients
from p2pfl.plugins.exact.regression.glm import GLM

FACTS = {
    "glm": ("samples", "deviance", "null_deviance", "saturated", "dispersion", "steps", "converged"),
    "private_glm": ("samples", "dispersion", "noise", "ridge", "steps", "converged"),
    "lasso": ("samples", "deviance", "null_deviance", "chosen", "converged"),
    "cox": ("samples", "events", "likelihood", "null_likelihood", "steps", "converged"),
}
"""Numbers of a fit by the name of its model."""


def fitted(
    model: ExactModel, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]
) -> FittedRegression | None:
    """Return the coefficients of a regression; ``None`` of another model, or of one that has not converged.

    Parameters
    ----------
    model
        The model.
    tensors
        Its tensors.
    fields
        Columns of its table.
    classes
        Names of the classes; empty for a regression of numbers.
    """
    name = model.name
    if name not in FACTS:
        return None
    estimated = tuple(key for key in ("alpha", "alpha_error") if name == "glm" and key in tensors)
    facts = {key: float(tensors[key][0]) for key in (*FACTS[name], *estimated)}
    if not facts["converged"]:
        return None
    names = [
        label
        for field in fields
        for label in ([field.name] if field.levels is None else [f"{field.name}: {level}" for level in field.levels])
    ]
    beta = tensors["weight"][0]
    if name == "private_glm":
        beta, names = np.append(beta, tensors["bias"]), [*names, "(intercept)"]
    if isinstance(model, GLM):
        beta, names = model.stacked(tensors), model.labels(names, tuple(classes))
    if name == "lasso":
        intercept = isinstance(model, GLM) and model.fit_intercept
        found = tuple(FittedCoefficient(label, value) for label, value in zip(names, beta.tolist(), strict=True))
        return FittedRegression(name, found, finite(facts), errors="none", path=_path(tensors, intercept=intercept))
    penalty = facts["ridge"] if name == "private_glm" else float(getattr(model, "ridge", 0.0))
    found = tuple(coefficients(beta, tensors["covariance"], names, penalised=penalty > 0))
    if name == "glm":
        facts = _with_aic(facts, tensors["covariance"], penalised=penalty > 0)
    errors = "private" if name == "private_glm" else "posterior" if penalty > 0 else "likelihood"
    return FittedRegression(name, found, finite(facts), errors=errors)


def _with_aic(facts: Mapping[str, float], covariance: np.ndarray, *, penalised: bool) -> dict[str, float]:
    """Return the facts with Akaike's criterion; without it where a dispersion makes programs differ, or a ridge."""
    saturated = facts["saturated"]
    found = {key: value for key, value in facts.items() if key != "saturated"}
    if math.isnan(saturated) or penalised:
        return found
    used = int((np.diag(covariance) > 0).sum()) + ("alpha" in facts)
    return found | {"aic": facts["deviance"] - 2 * saturated + 2 * used}


def _path(tensors: Tensors, *, intercept: bool) -> tuple[Mapping[str, float], ...]:
    """Return the penalties of a path; a validation deviance is left out where there were no such data."""
    found = []
    columns = (tensors[key].tolist() for key in ("penalties", "deviances", "validation"))
    for beta, penalty, deviance, validation in zip(tensors["path"], *columns, strict=True):
        used = int((beta[: len(beta) - intercept] != 0).sum())
        each = {"lambda": penalty, "features": used, "deviance": deviance}
        found.append(each if math.isnan(validation) else each | {"validation": validation})
    return tuple(found)
