""":class:`Regression`, linear predictors of a target: their columns, coefficients and family."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.core.rows import Layout
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field, feature_names
from p2pfl.learning.exact_model import ExactModel, Part, Tensors, zeros
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.elementary import times
from p2pfl.plugins.exact.regression.coefficients import check_ridge
from p2pfl.plugins.exact.regression.disclosure import LEAST, MOST_COEFFICIENTS, check_limits
from p2pfl.plugins.exact.regression.families import FAMILIES, Response, response
from p2pfl.plugins.exact.regression.linear import Linear
from p2pfl.plugins.exact.regression.roles import ROLES, WEIGHTS, Roles

SCALARS = (
    "samples",
    "weight_sum",
    "saturated",
    "objective",
    "deviance",
    "null_deviance",
    "dispersion",
    "decrement",
    "steps",
    "converged",
)
"""Numbers of a fit."""


ESTIMATE = "estimate"
"""Value of ``alpha`` with which it is estimated."""


@dataclass(frozen=True, kw_only=True)
class Regression(ExactModel):
    """Linear predictors with a family; :class:`p2pfl.plugins.exact.regression.glm.GLM` describes the parameters.

    There are K linear predictors: one, or with C > 2 classes C - 1. Coefficients are stacked predictor by predictor,
    the intercept last in each.
    """

    traits: ClassVar[ModelTraits] = ModelTraits(converges=True, command="coefficients")

    features: int
    classes: int | None
    family: str | None = None
    link: str | None = None
    alpha: float | str = 1.0
    offset: str | None = None
    exposure: str | None = None
    freq_weights: str | None = None
    var_weights: str | None = None
    ridge: float = 0.0
    fit_intercept: bool = True
    least: int = LEAST
    coefficients_per_sample: float = MOST_COEFFICIENTS
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        _check_choices(self)

    @property
    def alone(self) -> Self:
        """The model without limits, for a peer that learns alone and shows its totals to nobody."""
        return replace(self, least=1, coefficients_per_sample=math.inf)

    @property
    def chosen(self) -> str:
        """Name of the family."""
        if self.family is not None:
            return self.family
        return "gaussian" if self.classes is None else "binomial" if self.classes <= 2 else "multinomial"

    @property
    def estimates(self) -> bool:
        """True if alpha is estimated."""
        return self.alpha == ESTIMATE

    @cached_property
    def kind(self) -> Response:
        """The family with its link."""
        alpha = self.alpha if isinstance(self.alpha, float | int) else 1.0
        return response(self.chosen, self.link, alpha=alpha, classes=self.classes)

    @cached_property
    def roles(self) -> Roles:
        """Columns that are no features."""
        names = {role: getattr(self, role) for role in ROLES}
        return Roles.of(self.features, self.fields, names)

    @property
    def unscaled(self) -> tuple[int, ...]:
        """Positions of the columns that must keep their units."""
        return tuple(place for _, place in self.roles.places)

    @property
    def training_only(self) -> tuple[str, ...]:
        """Names of the columns of weights, on which predictions do not depend."""
        names = (getattr(self, role) for role in WEIGHTS)
        return tuple(name for name in names if name is not None)

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "numbers" if self.classes is None else "classes"

    @property
    def length(self) -> int:
        """Number of coefficients of a linear predictor, the intercept included and last."""
        return len(self.roles.kept) + self.fit_intercept

    @property
    def width(self) -> int:
        """Number of coefficients."""
        return self.kind.predictors * self.length

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors."""
        shapes = self._linear | {"step": (self.width,)} | self._others
        return Layout(tuple(shapes), tuple(shapes.values()))

    @property
    def _linear(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.kind.predictors, self.features), "bias": (self.kind.predictors,)}

    @property
    def _others(self) -> dict[str, tuple[int, ...]]:
        scalars: dict[str, tuple[int, ...]] = dict.fromkeys(SCALARS, (1,))
        if self.estimates:
            scalars |= dict.fromkeys(("alpha", "alpha_error"), (1,))
        square = (self.width, self.width)
        return {"covariance": square, "moments": square} | scalars

    def module(self) -> Linear:
        """Return the torch module for predictions."""
        shapes = self._linear | {"step": (self.width,)} | self._others
        return Linear(
            self.features,
            family=self.chosen,
            link=self.kind.link,
            exposure=self.roles.place("exposure"),
            shapes=shapes,
        )

    def start(self) -> Tensors:
        """Return the model with zero coefficients."""
        return zeros(self.layout) | self._weighing(np.zeros(self.width))

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, C]``, or predicted means ``[n, 1]``."""
        return self.kind.outputs(self._predictor(self.stacked(tensors), part.features))

    def stacked(self, tensors: Tensors) -> Floats:
        """Return the coefficients, predictor by predictor, ``[width]``."""
        found = tensors["weight"][:, self.roles.kept]
        return (np.column_stack([found, tensors["bias"]]) if self.fit_intercept else found).ravel()

    def label(self, place: int) -> str:
        """Return the name of the feature of a coefficient."""
        names = feature_names(self.features, self.fields)
        found: list[str] = [*(names[each] for each in self.roles.kept.tolist()), "(intercept)"]
        return found[place % self.length]

    def labels(self, features: Sequence[str], classes: Sequence[str]) -> list[str]:
        """Return the names of the coefficients, from those of the features and of the classes."""
        own = [*(features[place] for place in self.roles.kept), *(["(intercept)"] if self.fit_intercept else [])]
        if not self.kind.several:
            return own
        return [f"{each} | {name}" for each in classes[1:] for name in own]

    def _weighing(self, beta: Floats) -> dict[str, Floats]:
        """Return the tensors of coefficients; an offset has the weight 1."""
        stacked = beta.reshape(self.kind.predictors, self.length)
        weight = np.zeros((self.kind.predictors, self.features))
        weight[:, self.roles.kept] = stacked[:, : len(self.roles.kept)]
        if (place := self.roles.place("offset")) is not None:
            weight[:, place] = 1.0
        bias = stacked[:, -1].copy() if self.fit_intercept else np.zeros(self.kind.predictors)
        return {"weight": weight, "bias": bias}

    def _predictor(self, beta: Floats, features: np.ndarray) -> Floats:
        """Return linear predictors ``[n, K]``, added feature by feature, so that no sample depends on another one."""
        kept, wide = self.roles.kept, features.astype(np.float64)
        wide = wide if len(kept) == self.features else wide[:, kept]
        found = [times(wide, each[: len(kept)]) for each in beta.reshape(self.kind.predictors, self.length)]
        stacked = np.stack(found, axis=1)  # [n, K]
        if self.fit_intercept:
            stacked = stacked + beta.reshape(self.kind.predictors, self.length)[:, -1]
        return stacked + self.roles.offsets(features)[:, None] if self.roles.shifted else stacked

    def _design(self, features: np.ndarray) -> Floats:
        wide = features[:, self.roles.kept].astype(np.float64)
        return np.column_stack([wide, np.ones(len(wide))]) if self.fit_intercept else wide

    def _penalty(self) -> Floats:
        found = np.full((self.kind.predictors, self.length), self.ridge)
        if self.fit_intercept:
            found[:, -1] = 0.0
        return found.ravel()

    def _summed(self, part: Part, terms: int, each: Callable[[slice], Floats]) -> Ints:
        """Return the weighted sums of what the samples of a peer add, as integers."""

        def weighted(where: slice) -> Floats:
            return each(where) * self.roles.weights(part.features[where])[:, None]

        return sums.summed(len(part), terms, weighted if self.roles.weighted else each)


def _check_choices(model: Regression) -> None:
    """Refuse options of a regression that do not fit.

    Raises
    ------
    ModelError
        One of them does not; the message says which.
    """
    check_ridge(model.ridge)
    check_limits(model.least, model.coefficients_per_sample)
    if model.family is not None and model.family not in FAMILIES:
        raise ModelError(f'model.options.family is "{model.family}"; choose from {", ".join(FAMILIES)}')
    _check_target(model)
    _check_link(model)
    _check_alpha(model)
    if model.chosen == "multinomial":
        _check_multinomial(model)
    elif model.exposure is not None and model.kind.link.name != "log":
        raise ModelError(
            f"model.options.exposure needs a logarithm as link, which {model.chosen} does not have; take offset"
        )
    _ = model.roles  # checks the columns


def _check_target(model: Regression) -> None:
    fits = {"binomial": model.classes is not None and model.classes <= 2, "multinomial": model.classes is not None}
    if not fits.get(model.chosen, model.classes is None):
        raise ModelError(
            f'model.options.family = "{model.chosen}" does not fit the target; binomial takes two classes, multinomial '
            "more of them, and the others take numbers"
        )


def _check_alpha(model: Regression) -> None:
    if model.estimates and model.chosen != "negative_binomial":
        raise ModelError(
            f'model.options.alpha = "{ESTIMATE}" belongs to negative_binomial, not to {model.chosen}; leave it out'
        )
    if model.estimates or model.chosen != "negative_binomial":
        return
    if isinstance(model.alpha, str) or not 0 < model.alpha < math.inf:
        raise ModelError(
            f'model.options.alpha is {model.alpha}; set it above 0 or to "{ESTIMATE}", or choose the family poisson'
        )


def _check_link(model: Regression) -> None:
    links = FAMILIES[model.chosen]().links
    if model.link is not None and model.link not in links:
        raise ModelError(
            f'model.options.link is "{model.link}", and {model.chosen} takes {" or ".join(links)}; choose one of these'
        )


def _check_multinomial(model: Regression) -> None:
    if model.ridge:
        raise ModelError(
            "model.options.ridge does not work with multinomial, where it would depend on the class that the others "
            "are compared with; leave it out"
        )
    if model.offset is not None or model.exposure is not None:
        raise ModelError(
            "model.options: multinomial takes no offset and no exposure, as there is one for each class; leave it out"
        )
