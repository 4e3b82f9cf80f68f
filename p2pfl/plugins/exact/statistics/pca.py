""":class:`PCA`, principal components from exact totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.tensors import torch
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Description as Meaning
from p2pfl.data.data_description import Field, feature_names
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Part, Round, Tensors, symmetric
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import labels_of
from p2pfl.plugins.exact.design_cells import check_columns
from p2pfl.plugins.exact.elementary import eigen
from p2pfl.plugins.exact.leverage import RowSums
from p2pfl.plugins.exact.tensor_model import DEFAULT_LEAST, Shapes, TensorModel, TensorModule, scalars

MAX_FEATURES = 512
"""Largest number of features, so that the products of all pairs fit into a message."""


@dataclass(frozen=True, kw_only=True)
class PCA(TensorModel):
    """Principal components of the features of all peers.

    One round takes two totals: samples and sums, then products of centred features.

    Parameters
    ----------
    features
        Number of features.
    components
        Number of components that are kept; 0 for all.
    standardise
        True if features are divided by their deviations first.
    least
        Least number of samples of whatever a total singles out, such as a level; 1 if a single one may be shown.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> PCA(features=4, components=2).layout.names[-1]
    'components'

    References
    ----------
    Jolliffe, Principal component analysis, 2002.
    """

    name: ClassVar[str] = "pca"
    shows: ClassVar[str] = "sums and products of all pairs of features"
    checks: ClassVar[str] = "a level, one of two values of a column, or nearly alone in a combination of columns"
    traits: ClassVar[ModelTraits] = ModelTraits(predicts=False, test=0.0, command="components")

    features: int
    components: int = 0
    standardise: bool = False
    least: int = DEFAULT_LEAST
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.components <= self.features:
            raise ModelError(
                f"model.options.components is {self.components}; set it to at most the {self.features} features, or to "
                "0 for all"
            )
        if self.features > MAX_FEATURES:
            raise ModelError(
                f"model.name: pca takes at most {MAX_FEATURES} features, not {self.features}, as totals have the "
                "products of all pairs; choose fewer columns"
            )

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "nothing"

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        width, kept = self.features, self.components or self.features
        return (
            {"samples": (1,)}
            | dict.fromkeys(("mean", "deviation", "variance"), (width,))
            | {"components": (kept, width)}
        )

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Refuse levels and columns of two values that few samples have."""
        yield from check_columns(check, features=self.features, fields=self.fields)
        return tensors

    def row_sums(self, tensors: Tensors) -> RowSums | None:
        """Return the sum of products of all columns."""
        if tensors["samples"][0]:
            return None
        names = feature_names(self.features, self.fields)
        return RowSums.unweighted(lambda part: part.features.astype(np.float64), names)

    def module(self) -> Projection:
        """Return the torch module that projects features."""
        return Projection(self.shapes)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return the projections of samples, ``[n, components]``."""
        centred = (part.features.astype(np.float64) - tensors["mean"]) / tensors["deviation"]
        return np.asarray(centred @ tensors["components"].T)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take both totals; further rounds change nothing."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        width = self.features
        total = yield Question(lambda peer: self._summed(peer, own(peer).train), size=1 + sums.size(width))
        samples = int(total[0])
        if not samples:
            return Outcome(tensors, over=True)
        if samples < 2:
            raise LearningError("one sample has no principal components; take part with more samples")
        mean = sums.numbers(total[1:]) / samples
        upper = np.triu_indices(width)
        products = yield from sums.total(
            lambda peer: self._products(own(peer).train, mean, upper), width * (width + 1) // 2
        )
        covariance = symmetric(products / (samples - 1), size=width)
        return Outcome(self._decomposed(samples, mean, covariance), over=True)

    def _decomposed(self, samples: int, mean: Floats, covariance: Floats) -> Tensors:
        """Return the components that follow from a covariance."""
        deviation = np.ones(self.features)
        if self.standardise:
            spread = np.diag(covariance)
            deviation = np.sqrt(np.where(spread > 0, spread, 1.0))
            covariance = covariance / deviation[:, None] / deviation[None, :]
        variance, vectors = eigen(covariance)
        given = {**scalars(samples=samples), "mean": mean, "deviation": deviation}
        return given | {
            "variance": np.maximum(variance, 0.0),
            "components": vectors[: self.components or self.features],
        }

    def _summed(self, peer: str, part: Part) -> Ints:
        part.check_complete(peer, model=self.name)
        wide = part.features.astype(np.float64)
        return np.concatenate([[len(part)], sums.summed(len(part), self.features, lambda where: wide[where])])

    def _products(self, part: Part, mean: Floats, upper: tuple[Ints, Ints]) -> Ints:
        centred = part.features.astype(np.float64) - mean
        return sums.summed(
            len(part), len(upper[0]), lambda where: centred[where][:, upper[0]] * centred[where][:, upper[1]]
        )


class Projection(TensorModule):
    """Projection of features on components."""

    mean: torch.Tensor
    deviation: torch.Tensor
    components: torch.Tensor

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return projections ``[n, components]`` of features ``[n, F]``."""
        centred = (features.flatten(1).double() - self.mean) / self.deviation
        return centred @ self.components.T


def projected(tensors: Tensors, model: PCA, meaning: Meaning) -> dict[str, Any]:
    """Return the components as JSON values: names of features, variances, their shares of the whole, and loadings."""
    variance = tensors["variance"]
    whole = float(tensors.get("whole", variance).sum())  # a party alone has but some of the components
    return {
        "samples": int(tensors["samples"][0]),
        "standardised": model.standardise,
        "names": labels_of(meaning.columns or ()) or [f"x{number}" for number in range(model.features)],
        "mean": tensors["mean"].tolist(),
        "deviation": tensors["deviation"].tolist(),
        "variance": variance.tolist(),
        "share": (variance / whole if whole > 0 else np.zeros_like(variance)).tolist(),
        "components": tensors["components"].tolist(),
    }
