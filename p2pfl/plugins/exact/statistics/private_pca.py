""":class:`PrivatePCA`, principal components with differential privacy of samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import LearningError
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Round, Tensors
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.elementary import product
from p2pfl.plugins.exact.regression.private_design import Design, moments, products
from p2pfl.plugins.exact.statistics.pca import PCA


@dataclass(frozen=True, kw_only=True)
class PrivatePCA(PCA):
    r"""Principal components of the features of all peers, from one total of products that takes private noise.

    A sample has the row z: each number scaled by its public bounds to [-1, 1], each level but the last of its column,
    and 1. The total :math:`\sum z z^T` contains the number of samples and the sums, too. A sample changes it by a norm
    of at most :math:`1 + K`, with K columns. The last level of a column is what the others leave.

    Parameters
    ----------
    features, components, standardise
        As in :class:`PCA`.
    bounds
        Public bounds ``[low, high]`` of each column of numbers by name.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> PrivatePCA(features=2, bounds={"x0": [0, 1], "x1": [0, 1]}).change
    3.0

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang, Analyze Gauss: optimal bounds for privacy-preserving principal component
    analysis, STOC 2014.
    """

    name: ClassVar[str] = "private_pca"
    shows: ClassVar[str] = "with private noise, sums and products of all pairs of features within their public bounds"
    checks: ClassVar[str] = ""
    traits: ClassVar[ModelTraits] = ModelTraits(noisy=True, predicts=False, test=0.0, command="components")

    bounds: dict[str, list[float]]
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.design  # check the bounds

    @cached_property
    def design(self) -> Design:
        """Rows of samples."""
        return Design.of(self.bounds, features=self.features, fields=self.fields, number=False)

    @property
    def change(self) -> float:
        """L2 norm of what one sample adds to the total: the squared norm of its row."""
        return float(np.rint(self.design.longest**2))

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Return the model as it is, since noise hides small cells."""
        del check
        yield from ()
        return tensors

    def row_sums(self, tensors: Tensors) -> None:
        """Return nothing, since noise hides single rows."""
        del tensors

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take the total; further rounds take none."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        total, _ = yield from self.design.total(
            lambda rows, weights, _: products(rows) * weights[:, None],
            own,
            size=self.design.width * (self.design.width + 1) // 2,
            change=self.change,
            radius=self.design.longest,
        )
        return Outcome(self._estimated(total), over=True)

    def _estimated(self, sums: Floats) -> Tensors:
        """Return the components that noisy sums give."""
        table = moments(sums, size=self.design.width)
        samples = int(np.rint(table[-1, -1]))
        if samples < 2:
            raise LearningError(
                "the noise exceeds the number of samples, so there are no principal components; take part with more "
                "samples, or set a larger privacy.epsilon"
            )
        inner = np.clip(table[:-1, -1] / samples, -1.0, 1.0)
        spread = table[:-1, :-1] / samples - inner[:, None] * inner[None, :]
        back, base = self._back()
        mean = base + product(back, inner[:, None])[:, 0]
        return self._decomposed(samples, mean, product(product(back, spread), back.T))

    def _back(self) -> tuple[Floats, Floats]:
        """Return the matrix ``[F, Q - 1]`` and the shift that turn numbers of a row into features."""
        design = self.design
        back = np.zeros((self.features, design.width - 1))
        base = design.middle.copy()
        back[design.kept, np.arange(design.width - 1)] = design.half[design.kept]
        for field, where in located(self.features, self.fields):
            if field.levels is not None:
                last = where.stop - 1
                back[last, (design.kept >= where.start) & (design.kept < last)], base[last] = -1.0, 1.0
        return back, base
