"""Coefficients of a saved regression, with standard errors, tests and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from p2pfl.errors import InputError
from p2pfl.exact import GLM
from p2pfl.exact.regression.coefficients import Coefficient, coefficients
from p2pfl.inference.model_file import SavedModel, exact_model

FACTS = {
    "glm": ("samples", "deviance", "null_deviance", "saturated", "dispersion", "steps", "converged"),
    "private_glm": ("samples", "dispersion", "noise", "ridge", "steps", "converged"),
    "lasso": ("samples", "deviance", "null_deviance", "chosen", "converged"),
    "cox": ("samples", "events", "likelihood", "null_likelihood", "steps", "converged"),
}
"""Numbers of a fit by the name of its model."""


@dataclass(frozen=True)
class Fit:
    """A regression.

    Parameters
    ----------
    model
        Name of the model.
    coefficients
        Coefficients in the order of the features, the intercept last.
    facts
        Further numbers by name.
    errors
        Kind of the standard errors: those of the ``likelihood``, or of the ``posterior`` under a ridge penalty;
        ``none`` of the lasso; ``private`` where they include private noise.
    path
        Penalties of a path with the numbers of coefficients that are not zero, and deviances.
    """

    model: str
    coefficients: tuple[Coefficient, ...]
    facts: Mapping[str, float]
    errors: str = "likelihood"
    path: tuple[Mapping[str, float], ...] = ()

    def results(self) -> dict[str, Any]:
        """Return the fit as JSON values, in which what is not a number is ``None``."""
        facts = {key: None if math.isnan(value) else value for key, value in self.facts.items()}
        found = [asdict(each) for each in self.coefficients]
        given = {"path": [dict(each) for each in self.path]} if self.path else {}
        return {"model": self.model, "errors": self.errors, "coefficients": found, **facts, **given}


def fit(saved: SavedModel) -> Fit:
    """Return the coefficients of a saved regression.

    Raises
    ------
    InputError
        The model has no coefficients, or has not converged.
    """
    name = saved.about.model.name
    if name not in FACTS:
        raise InputError(
            f"{saved.path} is a model {name}, which has no standard errors; train one of {', '.join(FACTS)}"
        )
    tensors = {key: value.numpy() for key, value in saved.module.state_dict().items()}
    estimated = tuple(key for key in ("alpha", "alpha_error") if name == "glm" and key in tensors)
    facts = {key: float(tensors[key][0]) for key in (*FACTS[name], *estimated)}
    if not facts["converged"]:
        raise InputError(f"{saved.path} has not converged; train more rounds")
    names = [
        label
        for field in saved.fields
        for label in ([field.name] if field.levels is None else [f"{field.name}: {level}" for level in field.levels])
    ]
    model = exact_model(saved.about, saved.fields)
    beta = tensors["weight"][0]
    if name == "private_glm":
        beta, names = np.append(beta, tensors["bias"]), [*names, "(intercept)"]
    if isinstance(model, GLM):
        beta, names = model.stacked(tensors), model.labels(names, saved.names)
    if name == "glm":
        facts = _with_aic(facts, tensors["covariance"], penalised=float(saved.about.model.options.get("ridge", 0)) > 0)
    if name == "lasso":
        intercept = isinstance(model, GLM) and model.fit_intercept
        found = tuple(Coefficient(name, value) for name, value in zip(names, beta.tolist(), strict=True))
        return Fit(name, found, facts, errors="none", path=_path(tensors, intercept=intercept))
    if name == "private_glm":
        shrunk = facts["ridge"] > 0
        found = tuple(coefficients(beta, tensors["covariance"], names, penalised=shrunk))
        return Fit(name, found, facts, errors="private")
    penalised = float(saved.about.model.options.get("ridge", 0.0)) > 0
    found = tuple(coefficients(beta, tensors["covariance"], names, penalised=penalised))
    return Fit(name, found, facts, errors="posterior" if penalised else "likelihood")


def _with_aic(facts: Mapping[str, float], covariance: np.ndarray, *, penalised: bool) -> dict[str, float]:
    """Return the facts with Akaike's criterion; without it where a dispersion makes programs differ, or a ridge."""
    saturated = facts["saturated"]
    found = {key: value for key, value in facts.items() if key != "saturated"}
    if math.isnan(saturated) or penalised:
        return found
    used = int((np.diag(covariance) > 0).sum()) + ("alpha" in facts)
    return found | {"aic": facts["deviance"] - 2 * saturated + 2 * used}


def _path(tensors: Mapping[str, np.ndarray], *, intercept: bool) -> tuple[Mapping[str, float], ...]:
    """Return the penalties of a path; a validation deviance is left out where there were no such data."""
    found = []
    columns = (tensors[key].tolist() for key in ("penalties", "deviances", "validation"))
    for beta, penalty, deviance, validation in zip(tensors["path"], *columns, strict=True):
        used = int((beta[: len(beta) - intercept] != 0).sum())
        each = {"lambda": penalty, "features": used, "deviance": deviance}
        found.append(each if math.isnan(validation) else each | {"validation": validation})
    return tuple(found)
