"""Features of models from totals that a formula makes of the columns of a table."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from p2pfl.core.errors import DataError, ExperimentError
from p2pfl.data import Federation
from p2pfl.data.data_description import Field, feature_names
from p2pfl.data.tables.formula import Formula, SplineField
from p2pfl.experiment.catalogue import MODELS, traits_of
from p2pfl.experiment.schema import Experiment
from p2pfl.learning.exact_model import ExactModel

FORMULA = "formula"
"""Option of a model from totals: its features as a formula of the columns of the table."""


def formula_of(name: str, options: Mapping[str, Any], fields: Sequence[Field]) -> Formula:
    """Return the formula in the options of a model, with the columns that other options name beside it.

    Parameters
    ----------
    name, options
        Name and options of the model.
    fields
        Columns of the table.

    Raises
    ------
    ExperimentError
        The model has no columns.
    ModelError
        The formula is not one.
    """
    kind = MODELS.kind(name)
    if (
        not (isinstance(kind, type) and issubclass(kind, ExactModel))
        or "fields" not in inspect.signature(kind).parameters
    ):
        raise ExperimentError(f"model.options.formula has no effect with {name}; leave it out, or take glm or cox")
    kept = [options[option] for option in kind.column_options if options.get(option) is not None]
    formula = Formula.of(options[FORMULA], fields, kept=kept)
    for field in formula.fields:
        if isinstance(field, SplineField) and not kind.places_knots:
            raise ExperimentError(
                f"model.options.formula: {name} does not find the knots of {field.spline}; write knots=[...] and "
                "range=[low, high], or take glm or cox"
            )
    return formula


def with_formula(experiment: Experiment, federation: Federation) -> Federation:
    """Return a federation with the features that the formula of a model makes; the same without a formula.

    Raises
    ------
    ExperimentError
        The features have other units than the table, or the formula has another target.
    ModelError
        The formula is not one.
    DataError
        A feature is not finite, such as the logarithm of zero.
    """
    text = experiment.model.options.get(FORMULA)
    if text is None or not traits_of(experiment.learning.algorithm).additive:
        return federation
    dataset, description = federation.dataset, federation.dataset.description
    scaled = bool(np.any(np.asarray(description.mean) != 0) or np.any(np.asarray(description.deviation) != 1))
    if not isinstance(text, str) or description.columns is None or scaled or experiment.data.scale:
        raise ExperimentError(
            'model.options.formula needs the columns of a table in their units; use data.name = "table" without '
            "data.scale, and write the formula as text"
        )
    formula = formula_of(experiment.model.name, experiment.model.options, description.columns)
    if formula.target not in {"", description.target}:
        raise ExperimentError(
            f'model.options.formula has "{formula.target}" on its left side, and the target of the table is '
            f'"{description.target}"; write one of them in both'
        )
    features = formula.apply(dataset.features.flatten(1))
    known = ~dataset.features.flatten(1).isnan().any(dim=1)
    wrong = ~features[known].isfinite().all(dim=0)
    if wrong.any():
        name = feature_names(formula.features, formula.fields)[int(wrong.nonzero()[0])]
        raise DataError(
            f"model.options.formula: {name} is not finite for some rows, as the logarithm of zero is; change the "
            "formula, or correct the rows"
        )
    described = replace(description, columns=formula.fields, table=description.columns, mean=0.0, deviation=1.0)
    return replace(federation, dataset=replace(dataset, features=features, description=described))
