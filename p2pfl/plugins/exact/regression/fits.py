"""Coefficients of a regression that has converged, with standard errors, tests and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.explanations import Explained, FittedCoefficient, FittedRegression, finite
from p2pfl.data.data_description import Field
from p2pfl.learning.exact_model import Tensors
from p2pfl.plugins.exact.regression.coefficients import coefficients


def converged(tensors: Tensors, keys: Sequence[str]) -> dict[str, float] | None:
    """Return some numbers of a fit, ``converged`` among them; ``None`` if it has not converged."""
    facts = {key: float(tensors[key][0]) for key in keys}
    return facts if facts["converged"] else None


def labels_of(fields: Sequence[Field]) -> list[str]:
    """Return the names of the features of a table's columns for a list of coefficients.

    Examples
    --------
    >>> labels_of([Field("age"), Field("sex", ("f", "m"))])
    ['age', 'sex: f', 'sex: m']
    """
    return [
        label
        for field in fields
        for label in ([field.name] if field.levels is None else [f"{field.name}: {level}" for level in field.levels])
    ]


def with_errors(
    model: str,
    beta: Floats,
    tensors: Tensors,
    labels: Sequence[str],
    facts: Mapping[str, float],
    *,
    ridge: float,
    errors: str | None = None,
) -> Explained:
    """Return coefficients with standard errors from the tensor ``covariance``.

    Parameters
    ----------
    model
        Name of the model.
    beta, labels
        Coefficients and their names.
    tensors, facts
        Tensors of the model, and further numbers to print.
    ridge
        Penalty.
    errors
        Kind of the standard errors; by default ``posterior`` with a penalty, else ``likelihood``.
    """
    kind = errors or ("posterior" if ridge > 0 else "likelihood")
    listed = tuple(coefficients(beta, tensors["covariance"], labels, penalised=ridge > 0))
    return Explained(regression=FittedRegression(model, listed, finite(facts), errors=kind))


def with_aic(facts: Mapping[str, float], covariance: Floats, *, penalised: bool) -> dict[str, float]:
    """Return the facts with Akaike's criterion; without it where a dispersion makes programs differ, or a ridge."""
    saturated = facts["saturated"]
    kept = {key: value for key, value in facts.items() if key != "saturated"}
    if math.isnan(saturated) or penalised:
        return kept
    used = int((np.diag(covariance) > 0).sum()) + ("alpha" in facts)
    return kept | {"aic": facts["deviance"] - 2 * saturated + 2 * used}


def path_of(
    model: str, beta: Floats, tensors: Tensors, labels: Sequence[str], facts: Mapping[str, float], *, intercept: bool
) -> Explained:
    """Return the coefficients of a chosen penalty, and the path of penalties.

    A validation deviance is left out where there were no such data.
    """
    path = []
    columns = (tensors[key].tolist() for key in ("penalties", "deviances", "validation"))
    for each, penalty, deviance, validation in zip(tensors["path"], *columns, strict=True):
        used = int((each[: len(each) - intercept] != 0).sum())
        step = {"lambda": penalty, "features": used, "deviance": deviance}
        path.append(step if math.isnan(validation) else step | {"validation": validation})
    listed = tuple(FittedCoefficient(label, value) for label, value in zip(labels, beta.tolist(), strict=True))
    return Explained(regression=FittedRegression(model, listed, finite(facts), errors="none", path=tuple(path)))
