""":class:`Interactions`, which columns may split a tree together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import ModelError
from p2pfl.plugins.exact.tree_features import TreeFeatures

KEY = "model.options.interaction_cst"
"""Option that names the sets."""

SIZES = {"no_interactions": 1, "pairwise": 2}
"""Numbers of columns that may split together, by name."""


@dataclass(frozen=True)
class Interactions:
    """Sets of columns; the columns above a node and the one that splits it are in one of the sets.

    Parameters
    ----------
    columns
        Column of each feature, ``[F]``.
    sets
        Sets of columns. Together they have all columns.
    size
        Any set of so many columns is one of the sets; 0 if the sets are given.

    Examples
    --------
    >>> pairs = Interactions.of(TreeFeatures.of(3, None, categorical=None), [["x0", "x1"], ["x1", "x2"]])
    >>> pairs.allowed(frozenset({0}), np.arange(3)).tolist(), pairs.allowed(frozenset({1}), np.arange(3)).tolist()
    ([0, 1], [0, 1, 2])
    """

    columns: tuple[int, ...]
    sets: tuple[frozenset[int], ...] = ()
    size: int = 0

    @classmethod
    def of(cls, seen: TreeFeatures, constraints: Sequence[Sequence[str | int]] | str) -> Interactions:
        """Return the sets of some constraints.

        Parameters
        ----------
        seen
            Features of the trees.
        constraints
            Lists of names or positions of columns, ``"pairwise"`` or ``"no_interactions"``. Columns in none of the
            lists are one further set.

        Raises
        ------
        ModelError
            A column does not exist, or the constraints are another text.
        """
        columns = tuple(seen.columns)
        if isinstance(constraints, str):
            if constraints not in SIZES:
                raise ModelError(
                    f'{KEY} is "{constraints}"; set it to "pairwise", "no_interactions" or lists of columns'
                )
            return cls(columns, size=SIZES[constraints])
        sets = [frozenset(_position(column, seen.column_names) for column in each) for each in constraints]
        rest = frozenset(range(len(seen.column_names))).difference(*sets)
        return cls(columns, tuple(sets) + ((rest,) if rest else ()))

    def allowed(self, used: frozenset[int], features: Ints) -> Ints:
        """Return those of some features that may split a node.

        Parameters
        ----------
        used
            Features of the splits above it.
        features
            Features to choose from.
        """
        above = {self.columns[feature] for feature in used}
        if len(above) < self.size or not above:
            return features
        sets = [above] if self.size else [each for each in self.sets if above <= each]
        together = np.fromiter(frozenset[int]().union(*sets), np.int64)
        found: Ints = features[np.isin(np.asarray(self.columns)[features], together)]
        return found


def _position(column: str | int, names: Sequence[str]) -> int:
    position = names.index(column) if column in names else column
    if not isinstance(position, int) or not 0 <= position < len(names):
        raise ModelError(
            f"{KEY}: there is no column {column!r}; write names of columns, or positions from 0 to {len(names) - 1}"
        )
    return position
