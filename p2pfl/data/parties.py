"""Parties: peers that have different columns of the same people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Description, Field, FloatArray, feature_names

CommonRows = Literal["common", "labelled", "hidden"]
"""Rows that a model learns from: those of all parties, all of the label holder, or common ones that nobody knows."""


IN_TABLE = Field("in table", ("yes", "no"))
"""Column of a party that may lack rows of the label holder; all rows of its table say yes."""


@dataclass(frozen=True, eq=False)
class Party:
    """Private table of one party.

    Parameters
    ----------
    features
        All rows of the table, ``[n, a]`` float64 in the units of the table, with NaN for a missing value where its
        column says so; a level is 1 in its column. The label holder may have no columns.
    keys
        For each agreed key, the value of every row; ``None`` where a part is missing or another row has the same.
    description
        Meaning of the features and of the target.
    target
        Classes ``[n]`` int64 or numbers ``[n]`` float64; ``None`` unless the party is the label holder.
    notes
        Sentences on the table for its owner alone.
    name
        Name of the party.
    bottom
        Module of its columns in a split network, if the owner names one.
    file
        Path of the table; ``None`` for columns that are dealt out.

    Examples
    --------
    >>> import numpy as np
    >>> fields = Field("sex", ("f", "m")), Field("age")
    >>> ada = Party(np.array([[1.0, 0, 31], [0, 1, 44]]), (("17", "18"),), Description(columns=fields))
    >>> ada.columns
    ('sex=f', 'sex=m', 'age')
    """

    features: FloatArray
    keys: tuple[tuple[str | None, ...], ...]
    description: Description = field(default_factory=Description)
    target: npt.NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    name: str = ""
    bottom: str | None = None
    file: Path | None = None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the features, ``[a]``."""
        return tuple(feature_names(self.features.shape[1], self.description.columns))

    @property
    def fields(self) -> tuple[Field, ...]:
        """Meaning of the columns; numbers where nothing is known."""
        return self.description.columns or tuple(Field(name) for name in self.columns)

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the features, and last of the target at the label holder."""
        return self.columns if self.target is None else (*self.columns, self.description.target or "target")

    @property
    def targets(self) -> npt.NDArray[Any]:
        """Targets of the label holder.

        Raises
        ------
        DataError
            The party is another one.
        """
        if self.target is None:
            raise DataError("this table has no target; name its column by target in the file that declares columns")
        return self.target

    @property
    def may_lack(self) -> bool:
        """True if the party may lack rows, so that its last column is :data:`IN_TABLE`."""
        return (self.description.columns or (None,))[-1] == IN_TABLE


@dataclass(frozen=True, eq=False)
class Parties:
    """Peers that have different columns of the same people.

    Everything but the tables is public and agreed.

    Parameters
    ----------
    names
        Names of all parties, sorted; the helper is none.
    label
        The label holder, which has the target.
    helper
        Peer without a table that deals random numbers and matches pseudonyms; ``None`` if there is none.
    keys
        Names of the keys, in the order in which rows are matched.
    own
        Tables of the local parties.
    least
        Least number of common rows.
    rows
        Rows that a model learns from.
    sizes
        Agreed numbers of rows, by party; those of others are not checked.
    """

    names: tuple[str, ...]
    label: str
    helper: str | None
    keys: tuple[str, ...]
    own: Mapping[str, Party] = field(repr=False)
    least: int
    rows: CommonRows = "common"
    sizes: Mapping[str, int] = field(default_factory=dict)

    def party(self, peer: str) -> Party:
        """Return the table of a local party."""
        return self.own[peer]
