"""Models of columns at different peers, as the learner of a vertical run asks for them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.core.explanations import Explained
from p2pfl.data.parties import IN_TABLE, Party
from p2pfl.data.sources import nearest
from p2pfl.learning.additive import Questions
from p2pfl.plugins.exact.regression.families import FAMILIES
from p2pfl.plugins.exact.tensor_model import Shapes
from p2pfl.plugins.vertical.aligned_table import AlignedTable, StandardisedColumns, check_complete
from p2pfl.plugins.vertical.block import FACTS, Block, describe_block, describe_run
from p2pfl.plugins.vertical.elastic_net import PathFit, PathOptions, fit_path
from p2pfl.plugins.vertical.feature_maps import MapOptions
from p2pfl.plugins.vertical.gram import JoinedDesign, JoinedTable
from p2pfl.plugins.vertical.hidden_rows import fit_hidden
from p2pfl.plugins.vertical.label_protection import RandomisedResponse, changed_labels
from p2pfl.plugins.vertical.linear import check_ridge, fit_linear
from p2pfl.plugins.vertical.newton import NewtonOptions, fit_newton
from p2pfl.plugins.vertical.party_roles import PartyRoles, check_coefficients
from p2pfl.plugins.vertical.private_messages import collect
from p2pfl.plugins.vertical.statement import VerticalRun
from p2pfl.plugins.vertical.whole import WholeFit, fit_whole, fit_whole_path, score, score_names
from p2pfl.privacy.keys import Source

STEPS = 8
"""Steps of noisy Newton, in each of which the label holder sees a linear predictor of each training row."""

SCORE_TENSORS = ("scores", "alone_scores")
"""Tensors of the label holder that its file leaves out."""

FRACTION = 2.0**32
"""Points of the grid of linear predictors in a unit."""

MAX_PREDICTOR = 2.0**20
"""Largest part of a linear predictor."""


OwnColumns = Callable[[AlignedTable, str], StandardisedColumns]
"""Function that returns the columns of a local party, or functions of them."""


class FitResult(Protocol):
    """Result of a fit, as the modules that ask for it return it."""

    @property
    def figures(self) -> Mapping[str, float]:
        """Public numbers by name."""
        ...

    @property
    def own(self) -> Callable[[str], Mapping[str, Floats]]:
        """Function that returns the part of a local party, such as coefficients, errors and an intercept."""
        ...


class RegressionResult(FitResult, Protocol):
    """Result of the fit of a regression."""

    @property
    def design(self) -> JoinedDesign:
        """Public shape of the joined table."""
        ...


@dataclass(frozen=True, eq=False)
class VerticalFit:
    """Result of a fit, with its public numbers.

    Parameters
    ----------
    fitted
        The result.
    figures
        Public numbers by name.
    """

    fitted: FitResult
    figures: Mapping[str, float]

    def weight(self, peer: str) -> Floats:
        """Return the coefficients of a local party in units of the deviations of its columns, ``[a]``.

        They are 0 of a column that others determine.
        """
        return np.nan_to_num(self.fitted.own(peer)["coefficients"])

    def errors(self, peer: str) -> Floats:
        """Return their standard errors, ``[a]``; 0 of a column that others determine, NaN where there are none."""
        own = self.fitted.own(peer)
        if "errors" not in own:
            return np.where(np.isnan(own["coefficients"]), 0.0, math.nan)
        return np.nan_to_num(own["errors"])

    def bias(self, peer: str) -> tuple[float, float]:
        """Return the intercept at the means of all columns, and its standard error; asked of the label holder alone."""
        own = self.fitted.own(peer)
        return float(own["intercept"][0]), float(own.get("intercept_error", [math.nan])[0])

    def value(self, peer: str) -> float:
        """Return the share of a local party of the explained variance; NaN where it is not known."""
        return float(self.fitted.own(peer).get("value", [math.nan])[0])


class ColumnModel(Protocol):
    """Model of columns at different peers.

    Attributes
    ----------
    figures
        Names of the public numbers.
    scores
        Names of the scores, which the label holder has; empty for a statistic.
    """

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the public numbers."""
        ...

    @property
    def predictors(self) -> int:
        """Number of linear predictors of each training row that the label holder usually sees."""
        ...

    @property
    def noisy(self) -> bool:
        """True if all but the last of them have noise."""
        ...

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores, which the label holder has; empty for a statistic."""
        ...

    @property
    def statement(self) -> Callable[..., VerticalRun]:
        """Function that makes the statement of who learns what from public facts of a run."""
        ...

    @property
    def received(self) -> str:
        """The part of a model without steps that a party receives, in words."""
        ...

    @property
    def published(self) -> str:
        """The part of the model that every peer learns, in words."""
        ...

    def check(self, peer: str, party: Party, roles: PartyRoles) -> None:
        """Refuse the table of a local party, before anything leaves."""
        ...

    def kept(self, tensors: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Return the tensors that the file of a party holds."""
        ...

    def described(self, party: Party | None, *, label: bool) -> Mapping[str, Any]:
        """Return the description in the file of a party, or, without one, what all may know."""
        ...

    def explained(self, tensors: Mapping[str, Floats], party: Party, *, label: bool) -> Explained | None:
        """Return the coefficients of the columns of a party, for display."""
        ...


class VerticalModel(ColumnModel, Protocol):
    """Model of columns at different peers that takes one round."""

    def fit(self, table: AlignedTable, roles: PartyRoles, source: Source) -> Questions[VerticalFit]:
        """Return the questions of the fit."""
        ...

    def mean_loss(self, fit: VerticalFit) -> float | None:
        """Return the mean training loss, if it is public."""
        ...

    def shapes(self, party: Party, *, label: bool) -> Shapes:
        """Return the shapes of the private tensors of a party."""
        ...

    def own(self, peer: str, table: AlignedTable, fit: VerticalFit) -> Mapping[str, Floats]:
        """Return the private tensors of a party, but for scores."""
        ...

    def score(
        self, table: AlignedTable, roles: PartyRoles, fit: VerticalFit
    ) -> Questions[Callable[[], Mapping[str, Floats]]]:
        """Ask for what scores of the test rows take, and return the function by which the label holder reads them."""
        ...

    def pooled(
        self, table: AlignedTable, own: Mapping[str, Mapping[str, Floats]]
    ) -> tuple[dict[str, float], float | None]:
        """Return the scores of all columns in one place, and how far the parts differ from that model at most."""
        ...


def joined_table(
    table: AlignedTable, roles: PartyRoles, columns: OwnColumns = AlignedTable.standardised
) -> JoinedTable:
    """Return the training rows of all parties with their standardised columns."""
    return JoinedTable(
        roles,
        len(table.trained),
        lambda peer: columns(table, peer).train,
        lambda _: table.targets().astype(np.float64),
    )


def hidden_table(table: AlignedTable, roles: PartyRoles, columns: OwnColumns) -> JoinedTable:
    """Return the rows of two parties of which nobody knows whether they are common, those of test at the end."""
    order = np.concatenate([table.trained, table.held_out])

    def both(peer: str) -> Floats:
        own = columns(table, peer)
        return np.concatenate([own.train, own.test])

    return JoinedTable(
        roles,
        table.rows,
        both,
        lambda _: np.concatenate([table.targets(), table.targets(test=True)]).astype(np.float64),
        presence=lambda peer: table.present(peer)[order].astype(np.float64),
    )


def joined_columns(
    table: AlignedTable, columns: OwnColumns = AlignedTable.standardised, *, test: bool = False
) -> Floats:
    """Return the columns of all parties side by side, where they are in one place, ``[n, sum of a]``."""
    parts = [columns(table, peer) for peer in table.parties.names]
    return np.concatenate([each.test if test else each.train for each in parts], axis=1)


def _sum_predictors(
    table: AlignedTable, roles: PartyRoles, fit: VerticalFit, columns: OwnColumns
) -> Questions[Callable[[], Floats]]:
    """Send the label holder the sum of the others' linear predictors of the test rows, ``[n]``."""

    def answer(peer: str) -> Ints:
        part = columns(table, peer).test @ fit.weight(peer)
        if part.size and np.abs(part).max() >= MAX_PREDICTOR:
            raise ModelError(
                f"{peer} has a linear predictor of {np.abs(part).max():.3g}, beyond what a sum can hold; leave out "
                "the column that runs away"
            )
        return np.rint(part * FRACTION).astype(np.int64)

    message = yield from collect(answer, size=len(table.held_out), to=roles.label, among=roles.features)
    return lambda: message.read(roles.label) / FRACTION if len(table.held_out) else np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class VerticalRegression(ABC):
    """Regression of columns at different peers; the target has a family.

    Parameters
    ----------
    family
        ``gaussian``, ``binomial``, ``poisson`` or ``gamma``; parties without labels cannot see which one fits.
    ridge
        Half of this times the squared norm of the coefficients, in units of the deviations of columns, is added to the
        negative log-likelihood.
    alone_column
        True if a party may take part with a single column, which its linear predictors show up to a factor.
    maps
        Maps of the columns of parties, see :mod:`.feature_maps`, such as ``{ ada = "fourier:100" }``.
    """

    name: ClassVar[str]
    run: ClassVar[type[VerticalRun]] = VerticalRun
    with_errors: ClassVar[bool] = True
    published: ClassVar[str] = "the deviance with and without columns, and the dispersion"
    figures: ClassVar[tuple[str, ...]] = FACTS[:-1]

    family: Literal["gaussian", "binomial", "poisson", "gamma"]
    ridge: float = 0.0
    alone_column: bool = False
    maps: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_ridge(self.ridge)
        for peer in self.maps:
            self.map_of(peer)

    @property
    def statement(self) -> Callable[..., VerticalRun]:
        """Function that makes the statement of who learns what from public facts of a run."""
        return partial(self.run, maps=self.maps)

    def map_of(self, peer: str) -> MapOptions | None:
        """Return the map of a party's columns, if it has one."""
        return MapOptions.parse(self.maps[peer]) if peer in self.maps else None

    def columns(self, table: AlignedTable, peer: str) -> StandardisedColumns:
        """Return the columns of a local party, or the functions of its map."""
        return table.standardised(peer, self.map_of(peer))

    @property
    def predictors(self) -> int:
        """Number of linear predictors of each training row that the label holder sees."""
        return 0 if self.family == "gaussian" else STEPS

    @property
    def noisy(self) -> bool:
        """True if all but the last of them have noise."""
        return True

    @property
    def received(self) -> str:
        """The part of a model without steps that a party receives, in words."""
        return "its own coefficients and their covariance, and its share of the explained variance"

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return score_names(self.family)

    def check(self, peer: str, party: Party, roles: PartyRoles) -> None:
        """Refuse missing values, few columns, and targets that the family does not allow."""
        check_complete(peer, party)
        for name in self.maps:
            if name not in roles.parties:
                raise ModelError(
                    f'model.options.maps names "{name}", which is no party; {nearest(name, roles.parties)}'
                )
        if mapped := self.block(party, label=False).mapped:
            check_coefficients(1 + len(mapped.labels), len(party))
        if peer != roles.label:
            own = party.features.shape[1] - (len(IN_TABLE.levels or ()) if party.may_lack else 0)
            roles.check_columns(peer, own, alone_column=self.alone_column)
            return
        target = party.targets
        if self.family == "binomial" and np.issubdtype(target.dtype, np.integer) and int(target.max(initial=0)) > 1:
            raise DataError(
                f'{peer} has {int(target.max()) + 1} classes, but family = "binomial" takes two; merge them'
            )
        if self.family != "binomial" and party.description.classes is not None:
            raise DataError(f'{peer} has classes, which family = "{self.family}" does not take; set it to "binomial"')
        if wrong := FAMILIES[self.family]().valid(target):
            raise DataError(
                f"{peer} has {wrong} among its targets, which {self.family} does not allow; choose another family"
            )

    def fit(self, table: AlignedTable, roles: PartyRoles, source: Source) -> Questions[VerticalFit]:
        """Return the questions of the fit."""
        fitted: RegressionResult
        counts: tuple[int, ...] = (len(table.trained), len(table.held_out))
        if table.parties.rows == "hidden":
            hidden = yield from fit_hidden(
                hidden_table(table, roles, self.columns),
                source,
                test=counts[1],
                ridge=self.ridge,
                common=table.common,
            )
            fitted, counts = hidden.linear, (*hidden.counts, 0)
        else:
            fitted = yield from self.ask(self.joined(table, roles, source), source)
        usual = {"dispersion": 1.0, "steps": 1.0}
        known = {"samples": counts[0], "held_out": counts[1], "all_coefficients": fitted.design.size}
        figures = usual | dict(fitted.figures) | known
        return VerticalFit(fitted, {name: float(figures[name]) for name in self.figures})

    def joined(self, table: AlignedTable, roles: PartyRoles, source: Source) -> JoinedTable:
        """Return the training rows of all parties."""
        del source
        return joined_table(table, roles, self.columns)

    @abstractmethod
    def ask(self, table: JoinedTable, source: Source) -> Questions[RegressionResult]:
        """Return the questions of the fit of the training rows."""

    @abstractmethod
    def whole(self, features: Floats, targets: npt.NDArray[Any]) -> WholeFit:
        """Return the model of columns in one place."""

    def mean_loss(self, fit: VerticalFit) -> float | None:
        """Return the mean deviance of the training rows."""
        return fit.figures["deviance"] / fit.figures["samples"]

    def block(self, party: Party, *, label: bool) -> Block:
        """Return the part of a party, as its file has it."""
        classes = 2 if label and self.family == "binomial" else None
        return Block(
            features=party.features.shape[1],
            classes=classes,
            family=self.family,
            ridge=self.ridge,
            label=label,
            errors=self.with_errors,
            fields=party.description.columns,
            map=self.maps.get(party.name, ""),
        )

    def shapes(self, party: Party, *, label: bool) -> Shapes:
        """Return the shapes of the private tensors of a party."""
        scores = dict.fromkeys(SCORE_TENSORS, (len(self.scores),)) if label else {}
        return self.block(party, label=label).shapes | scores

    def own(self, peer: str, table: AlignedTable, fit: VerticalFit) -> Mapping[str, Floats]:
        """Return the private tensors of a party, but for scores."""
        columns = self.columns(table, peer)
        tensors = {name: np.array([fit.figures[name]]) for name in self.figures} | dict(columns.map)
        tensors |= {"weight": columns.spread(fit.weight(peer)), "error": columns.spread(fit.errors(peer))}
        tensors |= {"mean": columns.mean, "deviation": columns.deviation, "value": np.array([fit.value(peer)])}
        if peer == table.parties.label:
            bias, error = fit.bias(peer)
            alone = self._alone(table)
            tensors |= {"bias": np.array([bias]), "bias_error": np.array([error])}
            tensors |= {"alone_weight": columns.spread(alone.weight), "alone_bias": np.array([alone.bias])}
        return tensors

    def score(
        self, table: AlignedTable, roles: PartyRoles, fit: VerticalFit
    ) -> Questions[Callable[[], Mapping[str, Floats]]]:
        """Ask for the scores of all columns together, and of those of the label holder alone."""

        def alone() -> Mapping[str, Floats]:
            here = table.present(roles.label)[table.held_out]
            predictor = self._alone(table).predictor(self.columns(table, roles.label).test[here])
            named = score(predictor, table.targets(test=True)[here], family=self.family)
            return {"alone_scores": np.array([named[name] for name in self.scores])}

        if table.parties.rows == "hidden":  # the solver has sent them
            none = np.full(len(self.scores), math.nan)
            return lambda: {"scores": fit.fitted.own(roles.label).get("scores", none), **alone()}
        foreign = yield from _sum_predictors(table, roles, fit, self.columns)

        def scores() -> Mapping[str, Floats]:
            own = self.columns(table, roles.label).test
            predictor = own @ fit.weight(roles.label) + fit.bias(roles.label)[0] + foreign()
            named = score(predictor, table.targets(test=True), family=self.family)
            return {"scores": np.array([named[name] for name in self.scores]), **alone()}

        return scores

    def kept(self, tensors: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Return the tensors that the file of a party holds."""
        return {name: value for name, value in tensors.items() if name not in SCORE_TENSORS}

    def described(self, party: Party | None, *, label: bool) -> Mapping[str, Any]:
        """Return the description in the file of a party, or, without one, what all may know."""
        if party is None:
            return describe_run(self.name, {"family": self.family, "ridge": self.ridge})
        return describe_block(self.block(party, label=label), party.description)

    def explained(self, tensors: Mapping[str, Floats], party: Party, *, label: bool) -> Explained | None:
        """Return the coefficients of the columns of a party."""
        return self.block(party, label=label).explained(tensors, fields=party.fields, classes=())

    def pooled(
        self, table: AlignedTable, own: Mapping[str, Mapping[str, Floats]]
    ) -> tuple[dict[str, float], float | None]:
        """Return the scores of all columns in one place, and how far the parts differ from that model at most."""
        common = np.logical_and.reduce([table.present(peer) for peer in table.parties.names])
        if table.parties.rows == "labelled":
            common[:] = True
        train, test = common[table.trained], common[table.held_out]
        whole = self._fitted(joined_columns(table, self.columns)[train], table.targets()[train])
        predictor = whole.predictor(joined_columns(table, self.columns, test=True)[test])
        scores = score(predictor, table.targets(test=True)[test], family=self.family)
        if {*own} != {*table.parties.names}:
            return scores, None
        learned = np.concatenate([own[peer]["weight"][self.columns(table, peer).kept] for peer in table.parties.names])
        known = whole.errors[:-1] > 0
        away = np.abs(learned - whole.weight)
        if not self.with_errors:
            largest = float(np.abs(whole.weight).max(initial=0.0))
            return scores, float(away.max(initial=0.0)) / (largest or 1.0)
        return scores, float((away[known] / whole.errors[:-1][known]).max(initial=0.0))

    def _alone(self, table: AlignedTable) -> WholeFit:
        """Return the model of the label holder's columns alone, of its rows; NaN where they determine none."""
        here = table.present(table.parties.label)[table.trained]
        return self._fitted(self.columns(table, table.parties.label).train[here], table.targets()[here])

    def _fitted(self, features: Floats, targets: npt.NDArray[Any]) -> WholeFit:
        try:
            return self.whole(features, targets)
        except LearningError:
            return WholeFit(np.full(features.shape[1], math.nan), math.nan, np.zeros(features.shape[1] + 1))


@dataclass(frozen=True, kw_only=True)
class VerticalGLM(VerticalRegression):
    """Generalised linear model: linear models from products of columns, others by noisy Newton steps.

    Parameters
    ----------
    predictor_noise
        False to show the label holder exact linear predictors at every step, from which columns nearly follow.
    label_epsilon
        Privacy of each of two classes under randomised response, for which the model corrects; ``None`` to fit the
        labels as they are.
    """

    name: ClassVar[str] = "glm"

    predictor_noise: bool = True
    label_epsilon: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_epsilon is not None:
            RandomisedResponse(self.label_epsilon)  # checks it
        if self.label_epsilon is not None and self.family != "binomial":
            raise ModelError(
                f'model.options.label_epsilon does not work with family = "{self.family}"; set family to "binomial", '
                "or leave label_epsilon out"
            )

    @property
    def statement(self) -> Callable[..., VerticalRun]:
        """Function that makes the statement of who learns what from public facts of a run."""
        return partial(super().statement, label_epsilon=self.label_epsilon)

    def joined(self, table: AlignedTable, roles: PartyRoles, source: Source) -> JoinedTable:
        """Return the training rows of all parties, with targets that are right on average where labels are changed."""
        joined = super().joined(table, roles, source)
        if self.label_epsilon is None:
            return joined
        response = RandomisedResponse(self.label_epsilon)

        @cache
        def target(label: str) -> Floats:
            changed = changed_labels(table.parties, response, source)
            return response.targets(changed[table.positions(label)][table.trained])[:, 1]

        return replace(joined, target=target)

    @property
    def noisy(self) -> bool:
        """True if all but the last predictors have noise."""
        return self.predictor_noise

    def ask(self, table: JoinedTable, source: Source) -> Questions[RegressionResult]:
        """Return the questions of the fit."""
        if self.family == "gaussian":
            return (yield from fit_linear(table, source, ridge=self.ridge))
        newton = NewtonOptions(
            self.family,
            ridge=self.ridge,
            predictor_noise=self.predictor_noise,
            label_epsilon=self.label_epsilon,
        )
        return (yield from fit_newton(table, source, newton))

    def whole(self, features: Floats, targets: npt.NDArray[Any]) -> WholeFit:
        """Return the model of columns in one place."""
        return fit_whole(features, targets, family=self.family, ridge=self.ridge)

    def pooled(
        self, table: AlignedTable, own: Mapping[str, Mapping[str, Floats]]
    ) -> tuple[dict[str, float], float | None]:
        """Return the scores of all columns in one place, and how far the parts differ from that model at most.

        With changed labels, it is the model of the labels as they are, from which the parts differ by design.
        """
        scores, difference = super().pooled(table, own)
        return scores, None if self.label_epsilon is not None else difference


@dataclass(frozen=True, eq=False)
class ChosenFit:
    """Model of a path that validation rows have chosen.

    Parameters
    ----------
    path
        The path.
    """

    path: PathFit

    @property
    def design(self) -> JoinedDesign:
        """Public shape of the joined table."""
        return self.path.design

    @property
    def figures(self) -> Mapping[str, float]:
        """Deviance of the chosen model, and of that without columns."""
        deviances = self.path.deviances
        return {"deviance": float(deviances[self.path.chosen]), "null_deviance": float(deviances[0])}

    @property
    def own(self) -> Callable[[str], Mapping[str, Floats]]:
        """Function that returns the coefficients of a local party, and the label holder's intercept."""
        return lambda peer: {name: np.atleast_1d(each[self.path.chosen]) for name, each in self.path.own(peer).items()}


@dataclass(frozen=True, kw_only=True)
class VerticalLasso(VerticalRegression):
    """Linear model under the elastic net penalty, whose penalty training rows that are set aside choose.

    Parameters
    ----------
    l1_ratio, lambdas, smallest
        Share of the L1 penalty, number of penalties, and the last as a share of the first.
    validation
        Share of the training rows that choose the penalty.
    """

    name: ClassVar[str] = "lasso"
    with_errors: ClassVar[bool] = False
    published: ClassVar[str] = "all penalties, with the deviances of training rows and of those that choose one"

    family: Literal["gaussian"] = "gaussian"
    l1_ratio: float = 1.0
    lambdas: int = 50
    smallest: float = 1e-3
    validation: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge:
            raise ModelError("model.options.ridge has no effect with lasso; leave it out, and set l1_ratio below 1")
        if not 0 < self.validation < 1:
            raise ModelError(
                f"model.options.validation is {self.validation}, but a share of the rows chooses the penalty; set it "
                "between 0 and 1"
            )
        self.path(rows=0)  # checks the others

    @property
    def received(self) -> str:
        """The part of the model that a party receives, in words."""
        return f"its own coefficients at each of {self.lambdas} penalties"

    def path(self, *, rows: int) -> PathOptions:
        """Return the options of the path over some rows."""
        held = int(self.validation * rows)
        return PathOptions(self.l1_ratio, self.lambdas, self.smallest, held)

    def ask(self, table: JoinedTable, source: Source) -> Questions[RegressionResult]:
        """Return the questions of the path."""
        return ChosenFit((yield from fit_path(table, source, self.path(rows=table.rows))))

    def whole(self, features: Floats, targets: npt.NDArray[Any]) -> WholeFit:
        """Return the model of columns in one place."""
        return fit_whole_path(features, targets, self.path(rows=len(features)))
