""":class:`Regression`, linear predictors of a target: their columns, coefficients and family."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data.data_description import Field, FloatArray, feature_names
from p2pfl.learning.exact_model import Asked, Own, Part, Tensors
from p2pfl.learning.small_cells import CellCheck, Cells
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.design_cells import Design, OutcomeCells, check_design
from p2pfl.plugins.exact.elementary import times
from p2pfl.plugins.exact.leverage import RowSums, WeightedRows
from p2pfl.plugins.exact.regression.families import FAMILIES, Linear, Response, response
from p2pfl.plugins.exact.regression.fits import LikelihoodModel
from p2pfl.plugins.exact.regression.sandwich import CLASSICAL, CLUSTER, check_errors
from p2pfl.plugins.exact.tensor_model import Shapes

WEIGHTS = ("freq_weights", "var_weights")
"""Roles that predictions do not need."""

ROLES = ("offset", "exposure", *WEIGHTS)
"""Roles by the name of their option, which statsmodels uses as well."""

SCALARS = (
    *("samples", "held_out", "weight_sum", "saturated", "objective", "deviance", "null_deviance"),
    *("dispersion", "decrement", "steps", "converged"),
)
"""Numbers of a fit."""

STEADY = ("gaussian", "gamma")
"""Families whose weights do not change from step to step."""

ESTIMATE = "estimate"
"""Value of ``alpha`` with which it is estimated."""


RATIOS = {
    ("binomial", "logit"): "odds ratio",
    ("multinomial", "logit"): "odds ratio",
    ("ordinal", "logit"): "odds ratio",
    ("poisson", "log"): "rate ratio",
    ("negative_binomial", "log"): "rate ratio",
    ("gamma", "log"): "ratio of means",
}
"""Meaning of the exponential of a coefficient, by family and link."""


@dataclass(frozen=True)
class Roles:
    """Positions of the columns of numbers that have a role, and of the features.

    Parameters
    ----------
    features
        Number of features of the data, columns with a role included.
    places
        Position of each column with a role, by the name of the role.
    clusters
        Positions of the features of the column that names the cluster of a sample.

    Examples
    --------
    >>> roles = Roles.of(3, None, {"offset": "x1", "exposure": None})
    >>> roles.kept.tolist(), roles.offsets(np.array([[1, 7, 3]], np.float32)).tolist()
    ([0, 2], [7.0])
    """

    features: int
    places: tuple[tuple[str, int], ...] = ()
    clusters: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        features: int,
        fields: Sequence[Field] | None,
        names: dict[str, str | None],
        *,
        cluster: str | None = None,
    ) -> Self:
        """Return the roles of columns.

        Parameters
        ----------
        features
            Number of features of the data.
        fields
            Columns of the table; ``None`` if its features are ``x0``, ``x1`` and so on.
        names
            Name of a column of numbers by role.
        cluster
            Name of the column of clusters, which may have levels.

        Raises
        ------
        ModelError
            A column does not exist, has levels, or has two roles.
        """
        columns = {field.name: where for field, where in located(features, fields)}
        if cluster is not None and (cluster not in columns or cluster in names.values()):
            raise ModelError(
                f'model.options.cluster: there is no column "{cluster}" without another role; choose from '
                f"{', '.join(columns)}"
            )
        places = {field.name: where.start for field, where in located(features, fields) if field.levels is None}
        chosen = {role: name for role, name in names.items() if name is not None}
        for role, name in chosen.items():
            if name not in places:
                raise ModelError(
                    f'model.options.{role}: there is no column of numbers "{name}"; choose from '
                    f"{', '.join(places) or 'none'}"
                )
        if len({*chosen.values()}) < len(chosen):
            raise ModelError(f"model.options: {', '.join(chosen)} name one column twice; name another column")
        clusters = () if cluster is None else tuple(range(columns[cluster].start, columns[cluster].stop))
        if len(chosen) + len(clusters) == features:
            raise ModelError("model.options: every column has a role, so no feature is left; declare one more column")
        return cls(features, tuple((role, places[name]) for role, name in chosen.items()), clusters)

    @property
    def kept(self) -> Ints:
        """Positions of the features."""
        taken = {*self.clusters, *(column for _, column in self.places)}
        return np.array([column for column in range(self.features) if column not in taken], np.int64)

    def column(self, role: str) -> int | None:
        """Return the position of the column with a role; ``None`` if there is none."""
        return dict(self.places).get(role)

    @property
    def shifted(self) -> bool:
        """True if there is an offset or an exposure."""
        return self.column("offset") is not None or self.column("exposure") is not None

    @property
    def weighted(self) -> bool:
        """True if samples have weights."""
        return any(self.column(role) is not None for role in WEIGHTS)

    def offsets(self, features: FloatArray) -> Floats:
        """Return what is added to the linear predictor of each sample, ``[n]``."""
        offset = np.zeros(len(features))
        if (column := self.column("offset")) is not None:
            offset = features[:, column].astype(np.float64)
        if (column := self.column("exposure")) is not None:
            offset = offset + np.log(features[:, column].astype(np.float64))
        return offset

    def weights(self, features: FloatArray) -> Floats:
        """Return the weight of each sample, ``[n]``."""
        weights = np.ones(len(features))
        for role in WEIGHTS:
            if (column := self.column(role)) is not None:
                weights = weights * features[:, column].astype(np.float64)
        return weights

    def precisions(self, features: FloatArray) -> Floats:
        """Return what divides the variance of each sample, ``[n]``."""
        column = self.column("var_weights")
        return np.ones(len(features)) if column is None else features[:, column].astype(np.float64)

    def frequencies(self, features: FloatArray) -> Floats:
        """Return how many samples each stands for, ``[n]``."""
        column = self.column("freq_weights")
        return np.ones(len(features)) if column is None else features[:, column].astype(np.float64)

    def groups(self, features: FloatArray) -> Ints:
        """Return the number of the cluster of each sample, ``[n]``; one cluster without a column of them."""
        if len(self.clusters) > 1:
            return np.asarray(features[:, self.clusters].argmax(axis=1))
        if not self.clusters:
            return np.zeros(len(features), np.int64)
        return np.asarray(np.unique(features[:, self.clusters[0]], return_inverse=True)[1], np.int64)

    def count(self, features: FloatArray) -> int:
        """Return the number of samples, each as many times as its frequency says."""
        column = self.column("freq_weights")
        return len(features) if column is None else int(features[:, column].astype(np.int64).sum())

    def check(self, peer: str, features: FloatArray) -> None:
        """Refuse values that a role does not allow.

        Raises
        ------
        DataError
            An exposure or a weight is not positive, or a frequency is no whole number.
        """
        for role, column in self.places:
            values = features[:, column]
            if role == "exposure" and not (values > 0).all():
                raise self._refused(peer, role, "a number that is not positive")
            if role == "var_weights" and not (values > 0).all():
                raise self._refused(peer, role, "a weight that is not positive; leave these samples out")
            if role == "freq_weights" and not ((values >= 0) & (values == np.floor(values))).all():
                raise self._refused(
                    peer, role, "a number that is no count; name whole numbers, or use model.options.var_weights"
                )

    def _refused(self, peer: str, role: str, what: str) -> DataError:
        remedy = "" if ";" in what else "; correct it"
        return DataError(f"{peer} has in the column of model.options.{role} {what}{remedy}")


@dataclass(frozen=True, kw_only=True)
class Regression(LikelihoodModel):
    """Linear predictors with a family; :class:`p2pfl.plugins.exact.regression.glm.GLM` describes the parameters.

    There are K linear predictors: one, or with C > 2 classes C - 1. Coefficients are stacked predictor by predictor,
    the intercept last in each.
    """

    checks: ClassVar[str] = (
        "a level, one of two values of a column, a class, a class among those, or nearly alone in a combination of "
        "columns (two codes of one person are not checked)"
    )
    column_options: ClassVar[tuple[str, ...]] = (*ROLES, "cluster")

    features: int
    classes: int | None
    family: str | None = None
    link: str | None = None
    alpha: float | str = 1.0
    offset: str | None = None
    exposure: str | None = None
    freq_weights: str | None = None
    var_weights: str | None = None
    fit_intercept: bool = True
    errors: str = CLASSICAL
    cluster: str | None = None

    def __post_init__(self) -> None:
        self.check_limits()
        self._check_family()
        self._check_alpha()
        check_errors(self.errors, self.cluster, ridge=self.ridge)
        if self.chosen == "multinomial":
            self._check_multinomial()
        elif self.exposure is not None and self.kind.link.name != "log":
            raise ModelError(
                f"model.options.exposure needs a logarithm as link, which {self.chosen} does not have; take offset"
            )
        _ = self.roles  # checks the columns

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
        """The family with its link; that of alpha = 1 if alpha is estimated."""
        return self.response(self.alpha if isinstance(self.alpha, float | int) else 1.0)

    @property
    def ratio(self) -> str:
        """Meaning of the exponential of a coefficient; empty where it has none."""
        return RATIOS.get((self.chosen, self.kind.link.name), "")

    def response(self, alpha: float) -> Response:
        """Return the family with its link under some alpha."""
        return response(self.chosen, self.link, alpha=alpha, classes=self.classes)

    @cached_property
    def roles(self) -> Roles:
        """Columns that are no features."""
        names = {role: getattr(self, role) for role in ROLES}
        return Roles.of(self.features, self.fields, names, cluster=self.cluster)

    @property
    def unscaled(self) -> tuple[int, ...]:
        """Positions of the columns that must keep their units."""
        return tuple(column for _, column in self.roles.places)

    @property
    def training_only(self) -> tuple[str, ...]:
        """Names of the columns of weights and clusters, on which predictions do not depend."""
        names = (getattr(self, role) for role in (*WEIGHTS, "cluster"))
        return tuple(name for name in names if name is not None)

    @property
    def length(self) -> int:
        """Number of coefficients of a linear predictor, the intercept included and last."""
        return len(self.roles.kept) + self.fit_intercept

    @property
    def width(self) -> int:
        """Number of coefficients."""
        return self.kind.predictors * self.length

    @property
    def _linear(self) -> Shapes:
        predictors = self.kind.predictors
        shapes: Shapes = {"weight": (predictors, self.features), "bias": (predictors,), "step": (self.width,)}
        return shapes | ({"levels": (self.features,)} if self.merges_levels else {}) | self.splines.shapes

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        names = (*SCALARS, *(("alpha", "alpha_error") if self.estimates else ()))
        names = (*names, *(("clusters",) if self.errors == CLUSTER else ()))
        square = (self.width, self.width)
        return self._linear | {"covariance": square, "moments": square} | dict.fromkeys(names, (1,))

    @property
    def design_columns(self) -> Design:
        """Columns that have coefficients."""
        return Design.of(self.features, self.fields, kept=self.roles.kept)

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the samples of which totals are taken by themselves, besides numbers that are not by feature."""
        return ("train",)

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Refuse or merge levels, columns of two values and classes that few samples have."""
        tensors, agreed = yield from self.agree(tensors, check)
        if agreed.least == 1:
            return tensors
        design = yield from self.design_columns.find_pairs(agreed)
        outcomes = [f"class {each} of the target" for each in range(self.classes or 1)]
        design = yield from check_design(
            design, agreed, outcomes=outcomes, count=self._count_cells, merges=self.merges_levels, parts=len(self.parts)
        )
        if self.classes is None and (
            yield from agreed.find(Cells.of({"target": 1}), lambda own: np.array([np.count_nonzero(own.train.targets)]))
        ):
            raise DataError(
                f"fewer than {agreed.least} people have a target other than 0, so the sum of products with the target "
                "would show single people; take another target"
            )
        return {**tensors, "levels": design.levels.astype(np.float64)} if self.merges_levels else tensors

    def _count_cells(self, cells: OutcomeCells, own: Own) -> Ints:
        """Return the number of people of a peer in each cell, by part."""
        counts = []
        for part in (getattr(own, name) for name in self.parts):
            outcome = np.zeros(len(part), np.int64) if self.classes is None else part.targets
            column = self.roles.column("freq_weights")
            weights = None if column is None else np.rint(part.features[:, column]).astype(np.int64)
            counts.append(cells.count(part, outcome, weights))
        return np.concatenate(counts)

    def row_sums(self, tensors: Tensors) -> RowSums | None:
        """Return the sums of products of columns under the weights of the next step."""
        if tensors["converged"][0] or (tensors["samples"][0] and self.chosen in STEADY):
            return None
        merged = self.design_columns.merging(tensors["levels"]) if self.merges_levels else None
        beta, names = self.stacked(tensors), [self.label(column) for column in range(len(self.roles.kept))]

        def rows(own: Own) -> WeightedRows:
            part = self.splines.part(tensors, own.train)
            return self._weighted_rows(part if merged is None else merged.part(part), beta)

        return RowSums(
            rows,
            [*names, *(["(intercept)"] if self.fit_intercept else [])],
            self._products,
        )

    @property
    def _products(self) -> int:
        """Number of sums of products of columns in a total: one for each pair of linear predictors."""
        return self.kind.predictors * (self.kind.predictors + 1) // 2

    def _weighted_rows(self, part: Part, beta: Floats) -> WeightedRows:
        """Return the rows of a peer with their weights at some coefficients."""
        with np.errstate(all="ignore"):  # of values that the first total refuses
            weights = self._information_weights(part, beta) * self.roles.weights(part.features)[:, None]
        return WeightedRows.of(self._design(part.features), weights, self.roles.frequencies(part.features))

    def _information_weights(self, part: Part, beta: Floats) -> Floats:
        """Return the magnitudes of the weights in each sum of products, ``[n, B]``."""
        one, two = np.triu_indices(self.kind.predictors)
        return np.abs(self.kind.derived(part.targets, self._predictor(beta, part.features))[1][:, one, two])

    def module(self) -> Linear:
        """Return the torch module for predictions."""
        exposure = self.roles.column("exposure")
        return Linear(self.shapes, link=self.kind.link, classes=self.classes is not None, exposure=exposure)

    def start(self) -> Tensors:
        """Return the model with zero coefficients."""
        return {**super().start(), **self._weighing(np.zeros(self.width))}

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, C]``, or predicted means ``[n, 1]``."""
        features = self.splines.evaluated(tensors, part.features)
        return self.kind.outputs(self._predictor(self.stacked(tensors), features))

    def stacked(self, tensors: Tensors) -> Floats:
        """Return the coefficients, predictor by predictor, ``[width]``."""
        weight = tensors["weight"][:, self.roles.kept]
        return (np.column_stack([weight, tensors["bias"]]) if self.fit_intercept else weight).ravel()

    def label(self, column: int) -> str:
        """Return the name of the feature of a coefficient."""
        names = feature_names(self.features, self.fields)
        labels: list[str] = [*(names[each] for each in self.roles.kept.tolist()), "(intercept)"]
        return labels[column % self.length]

    def labels(self, features: Sequence[str], classes: Sequence[str]) -> list[str]:
        """Return the names of the coefficients, from those of the features and of the classes."""
        own = [*(features[column] for column in self.roles.kept), *(["(intercept)"] if self.fit_intercept else [])]
        if not self.kind.several:
            return own
        return [f"{each} | {name}" for each in classes[1:] for name in own]

    def _weighing(self, beta: Floats) -> dict[str, Floats]:
        """Return the tensors of coefficients; an offset has the weight 1."""
        stacked = beta.reshape(self.kind.predictors, self.length)
        weight = np.zeros((self.kind.predictors, self.features))
        weight[:, self.roles.kept] = stacked[:, : len(self.roles.kept)]
        if (column := self.roles.column("offset")) is not None:
            weight[:, column] = 1.0
        bias = stacked[:, -1].copy() if self.fit_intercept else np.zeros(self.kind.predictors)
        return {"weight": weight, "bias": bias}

    def _predictor(self, beta: Floats, features: np.ndarray) -> Floats:
        """Return linear predictors ``[n, K]``, added feature by feature, so that no sample depends on another one."""
        kept, wide = self.roles.kept, features.astype(np.float64)
        wide = wide if len(kept) == self.features else wide[:, kept]
        predictors = [times(wide, each[: len(kept)]) for each in beta.reshape(self.kind.predictors, self.length)]
        stacked = np.stack(predictors, axis=1)  # [n, K]
        if self.fit_intercept:
            stacked = stacked + beta.reshape(self.kind.predictors, self.length)[:, -1]
        return stacked + self.roles.offsets(features)[:, None] if self.roles.shifted else stacked

    def _design(self, features: np.ndarray) -> Floats:
        wide = features[:, self.roles.kept].astype(np.float64)
        return np.column_stack([wide, np.ones(len(wide))]) if self.fit_intercept else wide

    def _penalty(self) -> Floats:
        strengths = np.full((self.kind.predictors, self.length), self.ridge)
        if self.fit_intercept:
            strengths[:, -1] = 0.0
        return strengths.ravel()

    def _summed(self, part: Part, terms: int, each: Callable[[slice], Floats]) -> Ints:
        """Return the weighted sums of what the samples of a peer add, as integers."""

        def weighted(where: slice) -> Floats:
            return each(where) * self.roles.weights(part.features[where])[:, None]

        return sums.summed(len(part), terms, weighted if self.roles.weighted else each)

    def _check_family(self) -> None:
        if self.family is not None and self.family not in FAMILIES:
            raise ModelError(f'model.options.family is "{self.family}"; choose from {", ".join(FAMILIES)}')
        fits = {"binomial": self.classes is not None and self.classes <= 2, "multinomial": self.classes is not None}
        if not fits.get(self.chosen, self.classes is None):
            raise ModelError(
                f'model.options.family = "{self.chosen}" does not fit the target; binomial takes two classes, '
                "multinomial more of them, and the others take numbers"
            )
        links = FAMILIES[self.chosen]().links
        if self.link is not None and self.link not in links:
            raise ModelError(
                f'model.options.link is "{self.link}", and {self.chosen} takes {" or ".join(links)}; choose one of '
                "these"
            )

    def _check_alpha(self) -> None:
        if self.estimates and self.chosen != "negative_binomial":
            raise ModelError(
                f'model.options.alpha = "{ESTIMATE}" belongs to negative_binomial, not to {self.chosen}; leave it out'
            )
        if self.estimates or self.chosen != "negative_binomial":
            return
        if isinstance(self.alpha, str) or not 0 < self.alpha < math.inf:
            raise ModelError(
                f'model.options.alpha is {self.alpha}; set it above 0 or to "{ESTIMATE}", or choose the family poisson'
            )

    def _check_multinomial(self) -> None:
        if self.ridge:
            raise ModelError(
                "model.options.ridge does not work with multinomial, where it would depend on the class that the "
                "others are compared with; leave it out"
            )
        if self.offset is not None or self.exposure is not None:
            raise ModelError(
                "model.options: multinomial takes no offset and no exposure, as there is one for each class; leave it "
                "out"
            )
