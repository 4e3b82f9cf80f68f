"""Saved statistics as results with the names of the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p2pfl.core.errors import InputError
from p2pfl.data.description import Description as Meaning
from p2pfl.results.models.model_file import SavedModel, exact_model


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
    return exact_model(about, saved.fields)


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
