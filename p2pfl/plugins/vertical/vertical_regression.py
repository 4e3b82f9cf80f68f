"""Regressions of columns at different peers: what their fits share, from checks to scores."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
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
from p2pfl.plugins.vertical.aligned_table import (
    AlignedTable,
    OwnColumns,
    StandardisedColumns,
    check_complete,
    hidden_table,
    joined_columns,
    joined_table,
)
from p2pfl.plugins.vertical.block import FACTS, Block, describe_block, describe_run
from p2pfl.plugins.vertical.feature_maps import MapOptions
from p2pfl.plugins.vertical.gram import JoinedDesign, JoinedTable
from p2pfl.plugins.vertical.hidden_rows import fit_hidden
from p2pfl.plugins.vertical.linear import check_ridge
from p2pfl.plugins.vertical.party_roles import PartyRoles, check_coefficients
from p2pfl.plugins.vertical.private_messages import collect
from p2pfl.plugins.vertical.statement import VerticalRun
from p2pfl.plugins.vertical.vertical_models import ALONE_SCORES, SCORE_TENSORS, SCORES, FitResult, VerticalFit
from p2pfl.plugins.vertical.whole import WholeFit, score, score_names
from p2pfl.privacy.keys import Source

STEPS = 8
"""Steps of noisy Newton, in each of which the label holder sees a linear predictor of each training row."""

FRACTION = 2.0**32
"""Points of the grid of linear predictors in a unit."""

MAX_PREDICTOR = 2.0**20
"""Largest part of a linear predictor."""


class RegressionResult(FitResult, Protocol):
    """Result of the fit of a regression."""

    @property
    def design(self) -> JoinedDesign:
        """Public shape of the joined table."""
        ...


def check_targets(peer: str, party: Party, family: str) -> None:
    """Refuse targets that a family does not allow; called at the label holder, before anything leaves.

    Raises
    ------
    DataError
        A target is none of the family.
    """
    target = party.targets
    if family == "binomial" and np.issubdtype(target.dtype, np.integer) and int(target.max(initial=0)) > 1:
        raise DataError(f'{peer} has {int(target.max()) + 1} classes, but family = "binomial" takes two; merge them')
    if family != "binomial" and party.description.classes is not None:
        raise DataError(f'{peer} has classes, which family = "{family}" does not take; set it to "binomial"')
    if wrong := FAMILIES[family]().valid(target):
        raise DataError(f"{peer} has {wrong} among its targets, which {family} does not allow; choose another family")


def _sum_predictors(
    table: AlignedTable, roles: PartyRoles, fit: VerticalFit, columns: OwnColumns
) -> Questions[Callable[[], Floats]]:
    """Send the label holder the sum of the others' linear predictors of the test rows, ``[n]``."""

    def answer(peer: str) -> Ints:
        part = columns(table, peer).test @ fit.weight(peer)
        if part.size and not np.abs(part).max() < MAX_PREDICTOR:
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
        check_targets(peer, party, self.family)

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
            return {ALONE_SCORES: np.array([named[name] for name in self.scores])}

        if table.parties.rows == "hidden":  # the solver has sent them
            none = np.full(len(self.scores), math.nan)
            return lambda: {SCORES: fit.fitted.own(roles.label).get(SCORES, none), **alone()}
        foreign = yield from _sum_predictors(table, roles, fit, self.columns)

        def scores() -> Mapping[str, Floats]:
            own = self.columns(table, roles.label).test
            predictor = own @ fit.weight(roles.label) + fit.bias(roles.label)[0] + foreign()
            named = score(predictor, table.targets(test=True), family=self.family)
            return {SCORES: np.array([named[name] for name in self.scores]), **alone()}

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
