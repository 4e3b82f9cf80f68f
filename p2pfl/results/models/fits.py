"""Coefficients of a saved regression."""

from __future__ import annotations

from p2pfl.core.errors import InputError
from p2pfl.core.explanations import FittedRegression
from p2pfl.plugins.exact.regression.fits import FACTS, fitted
from p2pfl.results.models.model_file import SavedModel, exact_model


def fit(saved: SavedModel) -> FittedRegression:
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
    found = fitted(exact_model(saved.about, saved.fields), tensors, fields=saved.fields, classes=saved.names)
    if found is None:
        raise InputError(f"{saved.path} has not converged; train more rounds")
    return found
