""":class:`CheckedTreeModel`, models of trees whose first totals single out no few samples by a level or a code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.learning.exact_model import Asked, Own, Owns, Round, Tensors
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact.design_cells import LEFT_OUT, Design, OutcomeCells, check_design
from p2pfl.plugins.exact.tensor_model import DEFAULT_LEAST, Shapes
from p2pfl.plugins.exact.trees.tree_model import TreeModel


@dataclass(frozen=True, kw_only=True)
class CheckedTreeModel(TreeModel):
    """Model of trees that looks for small cells of its roots before its first total.

    Levels that few samples have, or few of a class, count as one, which no tree splits off unless the column is a
    category; then a prediction for them goes where missing values go, but for the first of them. Columns of two values
    of which few samples have one split no tree. Bins of numbers with few samples are one with the next.

    Parameters
    ----------
    least
        Least number of samples of a level by class, of a bin and of a leaf; 1 if a single one may be shown.
    """

    checks: ClassVar[str] = (
        "a level, one of two values of a column, a class among those, a bin or a leaf (counts of values and of bins, "
        "and forests below their roots, show single people)"
    )

    least: int = DEFAULT_LEAST

    @property
    def level_shapes(self) -> Shapes:
        """Shape of the tensor that says which features are one, or left out."""
        return {"levels": (self.features,)}

    def start(self) -> Tensors:
        """Return a model without trees."""
        return {**super().start(), "levels": np.arange(self.features, dtype=np.float64)}

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Merge levels and leave out columns of two values that few samples have, alone or with one class.

        Raises
        ------
        DataError
            Few samples have a class.
        """
        agreed = yield from check.agree()
        if agreed.least == 1:
            return tensors
        design = yield from self._design.find_pairs(agreed)
        outcomes = [f"class {each} of the target" for each in range(self.classes or 1)]
        design = yield from check_design(
            design,
            agreed,
            outcomes=outcomes,
            count=self._count_cells,
            merges=True,
            mergeable=False,
            drops=True,
        )
        return {**tensors, "levels": design.levels.astype(np.float64)}

    def advance(self, tensors: Tensors, own: Owns) -> Round:
        """Run one round on merged levels."""
        return (yield from self.round(tensors, self.merged_own(tensors, own)))

    def merged_own(self, tensors: Tensors, own: Owns) -> Owns:
        """Return the samples of a peer with merged levels."""
        levels = tensors["levels"].astype(np.int64)
        merged = np.bincount(levels[levels != LEFT_OUT], minlength=self.features) > 1
        for _, where in self._design.columns:
            if (where.start, where.stop) not in self.seen.places:  # each level is a feature of its own
                levels[where] = np.where(merged[levels[where]], LEFT_OUT, levels[where])
        return self._design.merging(levels).own(own)

    @property
    def _design(self) -> Design:
        return Design.of(self.features, self.fields, others=False)

    def _count_cells(self, cells: OutcomeCells, own: Own) -> Ints:
        outcome = np.zeros(len(own.train), np.int64) if self.classes is None else own.train.targets
        return cells.count(own.train, outcome)
