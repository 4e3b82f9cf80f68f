""":class:`Block`, the part of a regression that one party keeps: coefficients of its own columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.explanations import Explained, FittedRegression, finite
from p2pfl.core.tensors import torch
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Description, Field, feature_names
from p2pfl.data.parties import IN_TABLE
from p2pfl.learning.exact_model import Owns, Part, Round, Tensors
from p2pfl.plugins.exact.columns import labels_of
from p2pfl.plugins.exact.regression.families import Response, response
from p2pfl.plugins.exact.regression.fits import coefficients
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModel, TensorModule
from p2pfl.plugins.vertical.feature_maps import MapOptions, MappedColumns
from p2pfl.results.models.model_description import describe_inputs

NAME = "vertical_block"
"""Name of the model in a file."""

FACTS = ("samples", "held_out", "deviance", "null_deviance", "dispersion", "all_coefficients", "steps", "value")
"""Numbers of a fit that every party has; the value is its share of the explained deviance."""

RATIOS = {"binomial": "odds ratio", "poisson": "rate ratio", "gamma": "ratio of means"}
"""Meaning of the exponential of a coefficient, by family."""


class LearnsTogether:
    """The round of a part of a model, which learns with those of the other parties alone."""

    known_to_all: ClassVar[tuple[str, ...]] = ()

    def known_to_both(self, tensors: Tensors, peer: str) -> Sequence[Floats]:
        """Return what the label holder and a feature holder both know of the model.

        Parameters
        ----------
        tensors, peer
            Part of one of both, and name of the feature holder.
        """
        del peer
        return [tensors[name] for name in self.known_to_all]

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Raise :class:`ModelError`, as a part learns with the others alone.

        Raises
        ------
        ModelError
            Always.
        """
        del tensors, own
        raise ModelError('a part of a vertical model learns with the others alone; set data.name = "vertical"')
        yield


@dataclass(frozen=True, kw_only=True)
class PartModel(LearnsTogether, TensorModel):
    """Part of a model that one party keeps.

    Parameters
    ----------
    label
        True for the label holder.
    fields
        Columns of the party.
    """

    shows: ClassVar[str] = "nothing by itself"

    label: bool = False
    fields: tuple[Field, ...] | None = None

    @property
    def predicts_alone(self) -> bool:
        """True for the label holder, whose file has its own model alone."""
        return self.label

    @property
    def may_lack(self) -> bool:
        """True if the party could lack rows, so that its last column says whether it has one."""
        return (self.fields or (None,))[-1] == IN_TABLE

    @property
    def training_only(self) -> tuple[str, ...]:
        """Names of the columns that a table for predictions may lack."""
        return (IN_TABLE.name,) if self.may_lack else ()


@dataclass(frozen=True, kw_only=True)
class Block(PartModel):
    r"""Part of a regression that one party keeps.

    With m and s the means and deviations of its columns over the common training rows, the part of the linear predictor
    is :math:`\sum_j (x_j - m_j) / s_j \, \beta_j`; the label holder adds the intercept.

    Parameters
    ----------
    features
        Number of encoded columns.
    classes
        Number of classes, in the file of the label holder; ``None`` elsewhere and for numbers.
    family
        Family of the regression.
    ridge
        Penalty.
    label
        True for the label holder, whose file has the intercept and its own model alone.
    errors
        True if coefficients have standard errors.
    fields
        Columns of the party.
    map
        Map of the columns, such as ``"fourier:100"``; empty for none. Means, deviations and coefficients are those of
        its functions.

    Examples
    --------
    >>> Block(features=2, classes=None, family="binomial").layout.names[:2]
    ('weight', 'error')
    """

    name: ClassVar[str] = NAME
    known_to_all: ClassVar[tuple[str, ...]] = FACTS[:-1]
    traits: ClassVar[ModelTraits] = ModelTraits(converges=True, test=0.0, command="coefficients")

    features: int
    classes: int | None
    family: str
    ridge: float = 0.0
    errors: bool = True
    map: str = ""

    @property
    def mapped(self) -> MappedColumns | None:
        """The columns that a map replaces."""
        if not self.map:
            return None
        fields = self.fields or tuple(Field(name) for name in feature_names(self.features, None))
        return MappedColumns.of(MapOptions.parse(self.map), fields)

    @property
    def kind(self) -> Response:
        """The family with its link."""
        return response(self.family, None, alpha=1.0, classes=self.classes)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        columns, numbers = ["weight", "error", "mean", "deviation"], [*FACTS]
        if self.label:
            columns, numbers = [*columns, "alone_weight"], [*numbers, "bias", "bias_error", "alone_bias"]
        mapped = self.mapped
        width = self.features if mapped is None else len(mapped.labels)
        shapes = {} if mapped is None else mapped.shapes
        return Shapes(dict.fromkeys(columns, (width,)) | dict.fromkeys(numbers, (1,)) | shapes)

    def module(self) -> torch.nn.Module:
        """Return the module of the label holder's own model, or of the part of a linear predictor."""
        return BlockModule(self)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return what :meth:`module` does."""
        features = part.features.astype(np.float64)
        return self.outputs_alone(tensors, features) if self.label else self.predictor_of(tensors, features)[:, None]

    def outputs_together(self, tensors: Tensors, features: Floats, foreign: Floats) -> Floats:
        """Return the outputs of all columns, ``[n, K]``, given the sums of the others' linear predictors, ``[n]``."""
        return self.kind.outputs((self.predictor_of(tensors, features) + foreign)[:, None])

    def outputs_alone(self, tensors: Tensors, features: Floats) -> Floats:
        """Return the outputs of the label holder's own model, ``[n, K]``."""
        alone = self._standardised(tensors, features) @ tensors["alone_weight"] + tensors["alone_bias"]
        return self.kind.outputs(alone[:, None])

    def predictor_of(self, tensors: Tensors, features: Floats) -> Floats:
        """Return the part of the linear predictor of each row, with the intercept at the label holder, ``[n]``."""
        part = self._standardised(tensors, features) @ tensors["weight"]
        return part + tensors["bias"] if self.label else part

    def _standardised(self, tensors: Tensors, features: Floats) -> Floats:
        """Return the columns or functions in units of their deviations."""
        mapped = self.mapped
        own = features if mapped is None else mapped.apply(features, tensors)
        return (own - tensors["mean"]) / tensors["deviation"]

    def absent_predictor(self, tensors: Tensors) -> float:
        """Return the part of the linear predictor of a row that the party lacks; 0 unless it was trained with some."""
        if not self.may_lack:
            return 0.0
        row = np.array(tensors["mean"])  # of columns or functions
        row[-1 if self.map else -2] = 0.0
        if not self.map:
            row[-1] = 1.0
        return float(((row - tensors["mean"]) / tensors["deviation"]) @ tensors["weight"])

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the coefficients of the own columns, in their units; the intercept is that at the means of all."""
        del classes
        if not tensors["samples"][0]:
            return None
        scale = tensors["deviation"]
        beta, errors = tensors["weight"] / scale, tensors["error"] / scale
        mapped = self.mapped
        labels = labels_of(fields) if mapped is None else [*mapped.labels]
        if self.label:
            beta, errors = np.append(beta, tensors["bias"]), np.append(errors, tensors["bias_error"])
            labels = [*labels, "(intercept)"]
        facts = {key: value for key in FACTS if not math.isnan(value := float(tensors[key][0]))}
        freedom = facts["samples"] - facts["all_coefficients"]
        dispersed = self.kind.family.dispersed and not self.ridge
        listed = coefficients(
            beta,
            np.diag(errors**2),
            labels,
            penalised=self.ridge > 0,
            freedom=freedom if dispersed and freedom > 0 else None,
        )
        return Explained(
            regression=FittedRegression(
                f"{self.family} of several parties",
                tuple(listed),
                finite(facts),
                errors="none" if not self.errors else "posterior" if self.ridge else "likelihood",
                freedom=freedom if dispersed else None,
                ratio=RATIOS.get(self.family, ""),
            )
        )


class BlockModule(TensorModule):
    """Torch module of a part.

    Parameters
    ----------
    block
        The part.
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    weight: torch.Tensor
    alone_weight: torch.Tensor
    alone_bias: torch.Tensor

    def __init__(self, block: Block) -> None:
        super().__init__(block.shapes)
        self.mapped = block.mapped
        self.label, self.classes, self.link = block.label, block.classes, block.kind.link

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits or predicted numbers of the label holder's own model, or the part of a linear predictor."""
        if self.mapped is not None:
            features = self.mapped.transform(features, {name: self.get_buffer(name) for name in self.mapped.shapes})
        standardised = (features - self.mean) / self.deviation
        if not self.label:
            return (standardised @ self.weight)[:, None]
        outputs = self.link.tensor((standardised @ self.alone_weight + self.alone_bias)[:, None])
        return outputs if self.classes is None else torch.cat([torch.zeros_like(outputs), outputs], dim=1)


def describe_block(block: Block, meaning: Description) -> dict[str, Any]:
    """Return the description in the file of a party: its own columns, and no name of anybody else's.

    Parameters
    ----------
    block, meaning
        Part of the model, and meaning of the columns of the party.
    """
    options: Mapping[str, Any] = {
        "family": block.family,
        "ridge": block.ridge,
        "label": block.label,
        "errors": block.errors,
        **({"map": block.map} if block.map else {}),
    }
    classes = None if meaning.classes is None or not block.label else list(map(str, meaning.classes))
    target = meaning.target if block.label else None
    return describe_part(NAME, options, meaning, features=block.features, classes=classes, target=target)


def describe_part(
    name: str,
    options: Mapping[str, Any],
    meaning: Description,
    *,
    features: int,
    classes: Sequence[str] | None = None,
    target: str | None = None,
) -> dict[str, Any]:
    """Return the description of the part of a model that one party keeps.

    Parameters
    ----------
    name, options
        Name of the part, and options that build it.
    meaning
        Meaning of the columns of the party.
    features
        Number of encoded columns.
    classes, target
        Names of the classes and of the target, at the label holder.
    """
    return {
        "version": 1,
        "model": {"name": name, "options": dict(options)},
        "task": "regression" if classes is None else "classification",
        "loss": "squared_error" if classes is None else "cross_entropy",
        "data": "vertical",
        "inputs": describe_inputs(meaning, shape=[features]),
        "outputs": {
            "classes": None if classes is None else len(classes),
            "class_names": classes,
            "target": target,
            "mean": 0.0,
            "deviation": 1.0,
        },
    }


def describe_run(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all may know of a model: no column, no class and no scale.

    Parameters
    ----------
    name, options
        Name of the model, and public options.
    """
    raw = "columns of several parties, each of which keeps the part of the model for its own"
    classes = options.get("family") == "binomial" or options.get("task") == "classification"
    return {
        "version": 1,
        "private": True,
        "model": {"name": name, "options": dict(options)},
        "task": "classification" if classes else "regression",
        "loss": "cross_entropy" if classes else "squared_error",
        "data": "vertical",
        "inputs": describe_inputs(Description(raw=raw, declared=True), shape=[]),
        "outputs": {"classes": None, "class_names": None, "target": None, "mean": 0.0, "deviation": 1.0},
    }
