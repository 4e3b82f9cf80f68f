"""``model.json``, the description that is needed to use a saved model on raw values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from p2pfl.data import Dataset
from p2pfl.data.data_description import Description, feature_names
from p2pfl.experiment import Plan
from p2pfl.learning import learner_traits
from p2pfl.learning.learner import ExternalLearner, KeepsPrivate
from p2pfl.results.saved_models import KEY

VERSION = 1
"""Version of the format; readers refuse any other."""

FORMULA = {
    "inputs": "read each text cell as `cells` says: strip it, and compare it in lower case with `missing`; one of the "
    "column's `codes`, and a number outside of its `range` with `outside_missing`, is missing, too; a date is the "
    "number of days `since` another; encode each column in order: a number stays, a text becomes 1 for its level and 0 "
    'for each other level, a missing cell is the column\'s `missing` ("nan" stays missing), a whole number such as '
    "1.0 is the level 1, and a text that is none of the levels is the column's `unknown`; a cell without such a rule "
    "is an error; then input = (encoded - mean) / deviation, reshaped to `shape`",
    "outputs": "the largest output is the class; a predicted number is output * deviation + mean",
}
"""Instructions for applying the numbers, in words for a reader."""


def describe_model(plan: Plan) -> dict[str, Any]:
    """Return the content of ``model.json``.

    Parameters
    ----------
    plan
        Resolved experiment, with the features scaled if the peers agreed on statistics.

    Returns
    -------
    dict
        JSON values; empty for a learner of the user's own that does not describe its model.

    Raises
    ------
    ModelError
        The description of a learner of the user's own is no :class:`p2pfl.OwnModel`.
    """
    bare = plan.learner.bare
    if isinstance(bare, KeepsPrivate):
        return dict(bare.described())
    if isinstance(bare, ExternalLearner) and (own := bare.own_model()) is not None:
        return _content(_built(own.name, own.options), own.data, name="data of its own")
    if not learner_traits(plan.learner).torch_model:
        return {}
    experiment = plan.experiment
    about = _content(_model(plan), plan.federation.dataset, name=experiment.data.name, loss=experiment.learning.loss)
    return about | {"constants": _constants(plan)}


def _content(model: Mapping[str, Any], dataset: Dataset, *, name: str, loss: str | None = None) -> dict[str, Any]:
    """Return the description of a model of samples, by the name of their data set."""
    description = dataset.description
    return {
        "version": VERSION,
        "model": model,
        "constants": None,
        "task": "regression" if dataset.classes is None else "classification",
        "loss": loss or ("squared_error" if dataset.classes is None else "cross_entropy"),
        "data": name,
        "inputs": describe_inputs(description, shape=dataset.shape, whole=not dataset.features.is_floating_point()),
        "outputs": {
            "classes": dataset.classes,
            "class_names": None if description.classes is None else list(description.classes),
            "target": description.target,
            "mean": description.target_mean,
            "deviation": description.target_deviation,
        },
        "formula": FORMULA,
    }


def describe_inputs(description: Description, *, shape: Sequence[int], whole: bool = False) -> dict[str, Any]:
    """Return the part on inputs.

    Parameters
    ----------
    description
        Meaning of the features.
    shape, whole
        Shape of the features of a sample, and whether they are whole numbers.
    """
    table = description.columns if description.table is None else description.table
    return {
        "raw": description.raw,
        "shape": list(shape) if description.table is None else [len(feature_names(0, table))],
        "cells": None
        if description.cells is None
        else asdict(description.cells) | {"missing": list(description.cells.missing)},
        "columns": None if table is None else [_column(column) for column in table],
        "mean": np.asarray(description.mean).tolist(),
        "deviation": np.asarray(description.deviation).tolist(),
        "declared": description.declared,
        "whole": whole,
    }


def describe_file(plan: Plan, peer: str) -> dict[str, Any]:
    """Return the description in the file of a peer's model: that of its own model, or :func:`describe_model`."""
    learner = plan.learner.bare
    return dict(learner.described(peer)) if isinstance(learner, KeepsPrivate) else describe_model(plan)


def _constants(plan: Plan) -> dict[str, Any] | None:
    """Return the frozen tensors that files of models leave out; ``None`` if the files are whole."""
    if plan.frozen is None:
        return None
    return {"digest": plan.frozen.base, "tensors": sorted(plan.frozen.constants), "seed": plan.experiment.seed}


def _column(column: Any) -> dict[str, Any]:
    """Return a column as JSON values, which have no NaN: a missing value that stays missing is "nan"."""
    stays = isinstance(column.missing, float) and np.isnan(column.missing)
    return asdict(column) | ({"missing": "nan"} if stays else {})


def metadata(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata of a safetensors file that holds the content of ``model.json``.

    Examples
    --------
    >>> metadata({"version": 1}), metadata({})
    ({'p2pfl': '{"version": 1}'}, {})
    """
    return {KEY: json.dumps(about, allow_nan=False)} if about else {}


def _model(plan: Plan) -> dict[str, Any]:
    """Return the name and the options that build the model."""
    experiment, model = plan.experiment, plan.experiment.model
    hidden: dict[str, Any] = {"hidden": list(model.hidden)} if model.name in {"mlp", "cnn"} else {}
    if plan.asked.algorithm.additive:
        hidden["rounds"] = experiment.horizon
    return _built(model.name, {**model.options, **hidden}) | ({} if model.norm is None else {"norm": model.norm})


def _built(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what builds a model. TOML has dates and infinity, JSON does not: they become text."""
    return {"name": name, "options": json.loads(json.dumps(dict(options), default=str), parse_constant=str)}
