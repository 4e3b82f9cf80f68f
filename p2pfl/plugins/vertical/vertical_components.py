""":class:`VerticalPCA`, principal components of columns at different peers, and the part that one party keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.data.parties import Party
from p2pfl.learning.additive import Questions
from p2pfl.plugins.exact.elementary import eigen
from p2pfl.plugins.exact.statistics.pca import PCA
from p2pfl.plugins.exact.tensor_model import Shapes
from p2pfl.plugins.vertical.aligned_table import AlignedTable, check_complete
from p2pfl.plugins.vertical.block import describe_part, describe_run
from p2pfl.plugins.vertical.components import Components, decompose
from p2pfl.plugins.vertical.gram import JoinedTable
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.statement import VerticalRun
from p2pfl.plugins.vertical.vertical_models import VerticalFit
from p2pfl.privacy.keys import Source

NAME = "vertical_components"
"""Name of the model in a file."""


@dataclass(frozen=True, kw_only=True)
class ComponentBlock(PCA):
    """Loadings of the columns of one party, and the variances of components, which are public.

    The parameters are those of :class:`p2pfl.plugins.exact.statistics.pca.PCA`.

    Examples
    --------
    >>> ComponentBlock(features=2, components=3).shapes["components"]
    (3, 2)
    """

    name: ClassVar[str] = NAME

    def __post_init__(self) -> None:
        """Accept more components than features, as other parties have columns as well."""

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name; ``whole`` is the sum of all variances."""
        shapes = Shapes(super().shapes)
        return shapes | {"variance": (self.components,), "whole": (1,)}


@dataclass(frozen=True, kw_only=True)
class VerticalPCA:
    """Principal components of the columns of all parties; each learns the loadings of its own columns.

    Parameters
    ----------
    components
        Number of components that are kept.
    standardise
        True if columns are divided by their deviations first.
    alone_column
        True if a party may take part with a single column.
    """

    name: ClassVar[str] = "pca"
    scores: ClassVar[tuple[str, ...]] = ()
    statement: ClassVar[type[VerticalRun]] = VerticalRun
    predictors: ClassVar[int] = 0
    noisy: ClassVar[bool] = False
    received: ClassVar[str] = "the loadings of its own columns"
    published: ClassVar[str] = "the variances of all components"

    components: int = 5
    standardise: bool = False
    alone_column: bool = False

    def __post_init__(self) -> None:
        if self.components < 1:
            raise ModelError(f"model.options.components is {self.components}; set it to at least 1")

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the public numbers."""
        return ("samples", "whole", *(f"variance {number}" for number in range(1, self.components + 1)))

    def check(self, peer: str, party: Party, roles: PartyRoles) -> None:
        """Refuse missing values and few columns."""
        check_complete(peer, party)
        roles.check_columns(peer, party.features.shape[1], alone_column=self.alone_column)

    def fit(self, table: AlignedTable, roles: PartyRoles, source: Source) -> Questions[VerticalFit]:
        """Return the questions of the decomposition."""
        rows = len(table.trained)
        joined = JoinedTable(roles, rows, partial(self._columns, table), lambda _: np.zeros(rows), table.parties.least)
        components = yield from decompose(joined, source, standardise=self.standardise)
        kept = np.zeros(self.components)
        kept[: len(components.variance)] = components.variance[: self.components]
        values = (float(rows), float(components.variance.sum()), *kept.tolist())
        return VerticalFit(_Loadings(components), dict(zip(self.figures, values, strict=True)))

    def mean_loss(self, fit: VerticalFit) -> None:
        """Return nothing, as a statistic has no loss."""
        del fit

    def shapes(self, party: Party, *, label: bool) -> Shapes:
        """Return the shapes of the private tensors of a party."""
        del label
        return self._block(party).shapes

    def own(self, peer: str, table: AlignedTable, fit: VerticalFit) -> Mapping[str, Floats]:
        """Return the private tensors of a party."""
        columns, loadings = table.standardised(peer), fit.fitted.own(peer)["loadings"]
        components = np.zeros((self.components, len(columns.mean)))
        components[: len(loadings), columns.kept] = loadings[: self.components]
        values = np.array([fit.figures[name] for name in self.figures])
        deviation = columns.deviation if self.standardise else np.ones_like(columns.deviation)
        return {
            "samples": values[:1],
            "whole": values[1:2],
            "variance": values[2:],
            "mean": columns.mean,
            "deviation": deviation,
            "components": components,
        }

    def score(
        self, table: AlignedTable, roles: PartyRoles, fit: VerticalFit
    ) -> Questions[Callable[[], Mapping[str, Floats]]]:
        """Return nothing, as a statistic has no scores."""
        del table, roles, fit
        yield from ()
        return dict

    def kept(self, tensors: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Return the tensors that the file of a party holds."""
        return tensors

    def described(self, party: Party | None, *, label: bool) -> Mapping[str, Any]:
        """Return the description in the file of a party, or, without one, what all may know."""
        del label
        options = {"components": self.components, "standardise": self.standardise}
        if party is None:
            return describe_run(self.name, options)
        return describe_part(NAME, options, party.description, features=party.features.shape[1])

    def explained(self, tensors: Mapping[str, Floats], party: Party, *, label: bool) -> None:
        """Return nothing, as components say nothing of a target."""
        del tensors, party, label

    def pooled(
        self, table: AlignedTable, own: Mapping[str, Mapping[str, Floats]]
    ) -> tuple[dict[str, float], float | None]:
        """Return how far the variances differ from those of all columns in one place, relative to the largest."""
        columns = np.concatenate([self._columns(table, peer) for peer in table.parties.names], axis=1)
        moments = np.corrcoef(columns.T) if self.standardise else np.cov(columns.T)
        variance = np.maximum(eigen(moments)[0], 0.0)[: self.components]
        learned = next(iter(own.values()))["variance"][: len(variance)]
        return {}, float(np.abs(learned - variance).max() / (variance.max() or math.inf))

    def _columns(self, table: AlignedTable, peer: str) -> Floats:
        columns = table.standardised(peer)
        return columns.train if self.standardise else columns.train * columns.deviation[columns.kept]

    def _block(self, party: Party) -> ComponentBlock:
        return ComponentBlock(
            features=party.features.shape[1], components=self.components, standardise=self.standardise
        )


@dataclass(frozen=True, eq=False)
class _Loadings:
    """Components as the result of a fit."""

    components: Components

    @property
    def figures(self) -> Mapping[str, float]:
        """Nothing by name."""
        return {}

    def own(self, peer: str) -> Mapping[str, Floats]:
        """Return the loadings of a local party, ``[components, a]``."""
        return {"loadings": self.components.own(peer)}
