"""Saved statistics and regressions as results with the names of the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p2pfl.core.errors import InputError
from p2pfl.core.explanations import FittedRegression
from p2pfl.data.data_description import Description as Meaning
from p2pfl.results.models.model_file import SavedModel

REGRESSIONS = ("glm", "private_glm", "lasso", "cox")
"""Models of p2pfl that have coefficients."""


def model_of(saved: SavedModel, *, names: Sequence[str], command: str) -> Any:
    """Return the model that a file describes, one of some names.

    Raises
    ------
    InputError
        It is another model.
    """
    about = saved.about
    if about.model.name not in names:
        raise InputError(
            f'{saved.path} is a model {about.model.name}; "p2pfl {command}" takes an experiment, or a model with '
            f'model.name = "{names[0]}"'
        )
    return saved.exact


def regression_of(saved: SavedModel) -> FittedRegression:
    """Return the coefficients of a saved regression.

    Raises
    ------
    InputError
        The model has no coefficients, or has not converged.
    """
    name = saved.about.model.name
    if saved.exact is None or saved.exact.traits.command != "coefficients":
        raise InputError(
            f"{saved.path} is a model {name}, which has no standard errors; train one of {', '.join(REGRESSIONS)}"
        )
    explained = saved.exact.explained(tensors_of(saved), fields=saved.fields, classes=saved.names)
    if explained is None or explained.regression is None:
        raise InputError(f"{saved.path} has not converged; train more rounds")
    return explained.regression


def tensors_of(saved: SavedModel) -> Mapping[str, np.ndarray]:
    """Return the numbers of a saved model."""
    return {key: value.numpy() for key, value in saved.module.state_dict().items()}


def meaning_of(saved: SavedModel) -> Meaning:
    """Return names and units of the columns of a saved model."""
    inputs, outputs = saved.about.inputs, saved.about.outputs
    return Meaning(
        raw=inputs.raw,
        columns=saved.fields,
        mean=np.asarray(inputs.mean),
        deviation=np.asarray(inputs.deviation),
        classes=outputs.class_names,
        target=outputs.target,
        target_mean=outputs.mean,
        target_deviation=outputs.deviation,
    )
