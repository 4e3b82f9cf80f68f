"""Interface of models of columns at different peers, which the learner of a vertical run calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.explanations import Explained
from p2pfl.data.parties import Party
from p2pfl.learning.additive import Questions
from p2pfl.plugins.exact.tensor_model import Shapes
from p2pfl.plugins.vertical.aligned_table import AlignedTable
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.statement import VerticalRun
from p2pfl.privacy.keys import Source

SCORES, ALONE_SCORES = SCORE_TENSORS = ("scores", "alone_scores")
"""Tensors of the label holder that its file leaves out: scores of all columns, and of its own alone."""


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
