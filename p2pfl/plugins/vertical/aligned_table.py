"""The common rows of parties in one order, of which each party sees its own columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Field
from p2pfl.data.parties import IN_TABLE, Parties, Party
from p2pfl.plugins.vertical.feature_maps import MapOptions, MappedColumns
from p2pfl.plugins.vertical.gram import JoinedTable
from p2pfl.plugins.vertical.matching import ABSENT
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.privacy.keys import SecretSource, Source


@dataclass(frozen=True, eq=False)
class StandardisedColumns:
    """Columns of a party over the common rows, in units of their deviation over the training rows.

    Parameters
    ----------
    train, test
        ``[n, a]``, of the columns that an intercept and other levels do not imply.
    mean, deviation
        ``[F]`` of all encoded columns; the deviation of a constant column is 1.
    kept
        Positions of the a columns among the F encoded ones.
    map
        Numbers of the map whose functions the columns are, by name; none without one.
    """

    train: Floats
    test: Floats
    mean: Floats
    deviation: Floats
    kept: Ints
    map: Mapping[str, Floats] = field(default_factory=dict)

    def spread(self, values: Floats) -> Floats:
        """Return numbers of the a columns as those of all encoded columns, 0 elsewhere, ``[F]``."""
        every = np.zeros(len(self.mean))
        every[self.kept] = values
        return every


@dataclass(frozen=True, eq=False)
class AlignedTable:
    """Common rows of all parties, whose training and test rows are drawn by key over the common order.

    Parameters
    ----------
    parties
        Tables of the local parties.
    positions
        Function that returns the rows of a local party in the common order, ``[n]``, with -1 for one that it lacks,
        whose columns are at their means.
    rows
        n, which all know.
    seed, share
        Seed of the draw, and share of the rows that are held out.
    source
        Source of the secret bytes of maps.
    common
        Number of rows that all parties have; ``None`` if nobody has stated it.
    validation
        Share of the other rows that a model is not trained on, and that decide when it stops.
    """

    parties: Parties
    positions: Callable[[str], Ints]
    rows: int
    seed: int
    share: float
    source: Source = field(default_factory=SecretSource)
    common: int | None = None
    validation: float = 0.0
    _columns: Callable[[str, MapOptions | None], StandardisedColumns] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_columns", cache(self._standardised))

    @property
    def held_out(self) -> Ints:
        """Places of the test rows in the common order, sorted."""
        count = int(self.share * self.rows)
        return np.sort(draw(self.seed, "vertical test rows").permutation(self.rows)[:count])

    @property
    def trained(self) -> Ints:
        """Places of the training rows in the common order."""
        return self._learned[0]

    @property
    def validated(self) -> Ints:
        """Places of the validation rows in the common order, which nobody chooses, so they are the last ones."""
        return self._learned[1]

    @property
    def _learned(self) -> tuple[Ints, Ints]:
        rows = np.setdiff1d(np.arange(self.rows), self.held_out)
        count = len(rows) - int(self.validation * len(rows))
        return rows[:count], rows[count:]

    def targets(self, rows: Ints | None = None, *, test: bool = False) -> npt.NDArray[Any]:
        """Return the targets of the training or test rows; asked at the label holder alone; 0 of rows it lacks.

        Parameters
        ----------
        rows
            Places of other rows in the common order.
        test
            True for the test rows.
        """
        label = self.parties.label
        targets = self.parties.party(label).targets
        known = np.where(self.present(label), targets[self.positions(label)], 0)
        return np.asarray(known[(self.held_out if test else self.trained) if rows is None else rows])

    def present(self, peer: str) -> npt.NDArray[np.bool_]:
        """Return whether a local party has each row, ``[n]``."""
        return np.asarray(self.positions(peer) != ABSENT)

    def standardised(self, peer: str, options: MapOptions | None = None) -> StandardisedColumns:
        """Return the columns of a local party, or the functions of a map of them."""
        return self._columns(peer, options)

    def _standardised(self, peer: str, options: MapOptions | None) -> StandardisedColumns:
        party, positions = self.parties.party(peer), self.positions(peer)
        known, trained = self.present(peer), positions[self.trained]
        rows = np.sort(trained[trained != ABSENT])  # the same numbers whatever the common order is
        features, kept = np.asarray(party.features, np.float64), kept_columns(party)
        indicators = len(IN_TABLE.levels or ())
        numbers: Mapping[str, Floats] = {}
        if options is not None:
            columns = MappedColumns.of(options, party.fields)
            numbers = columns.fit(features[rows], partial(self._drawn, peer), peer=peer)
            features = columns.apply(features, numbers)
            kept, indicators = np.arange(features.shape[1]), 1
        mean, deviation = features[rows].mean(axis=0), features[rows].std(axis=0)
        every = np.where(known[:, None], features[positions], mean)  # [n, F]
        if party.may_lack:
            there = np.stack([known, ~known], axis=1)
            every[:, -indicators:] = there[:, :indicators]
            shares = there[self.trained].mean(axis=0)
            mean[-indicators:], deviation[-indicators:] = shares[:indicators], np.sqrt(shares.prod())
        deviation = np.where(deviation > 0, deviation, 1.0)
        standard = (every - mean) / deviation
        train, test = standard[self.trained][:, kept], standard[self.held_out][:, kept]
        return StandardisedColumns(train, test, mean, deviation, kept, numbers)

    def _drawn(self, peer: str, purpose: str, size: int) -> bytes:
        return self.source.bytes(size, purpose=f"feature map, {purpose}", peer=peer)


def kept_columns(party: Party) -> Ints:
    """Return the positions of the columns of a party, without the last level of each.

    Examples
    --------
    >>> from p2pfl.data.data_description import Description, Field
    >>> fields = Field("sex", ("f", "m")), Field("age")
    >>> kept_columns(Party(np.zeros((1, 3)), (("17",),), Description(columns=fields))).tolist()
    [0, 2]
    """
    return kept_features(party.description.columns, party.features.shape[1])


def kept_features(columns: Sequence[Field] | None, features: int) -> Ints:
    """Return the positions of encoded features, without the last level of each column; all without columns."""
    if columns is None:
        return np.arange(features)
    kept = [
        level + 1 < len(each.levels or (0, 0)) or each.levels is None for each in columns for level in _levels(each)
    ]
    return np.flatnonzero(kept)


def _levels(column: Field) -> range:
    return range(1 if column.levels is None else len(column.levels))


def check_complete(peer: str, party: Party) -> None:
    """Refuse missing values; called at their owner, before anything leaves.

    Raises
    ------
    DataError
        A value is missing.
    """
    lacking = np.flatnonzero(np.isnan(party.features).any(axis=0))
    if len(lacking):
        raise DataError(
            f'{peer} has missing values in "{party.columns[lacking[0]]}"; give the column a rule `missing` other than '
            '"nan", or leave such rows out by drop = true'
        )


OwnColumns = Callable[[AlignedTable, str], StandardisedColumns]
"""Function that returns the columns of a local party, or functions of them."""


def joined_table(
    table: AlignedTable, roles: PartyRoles, columns: OwnColumns = AlignedTable.standardised
) -> JoinedTable:
    """Return the training rows of all parties with their standardised columns."""
    return JoinedTable(
        roles,
        len(table.trained),
        lambda peer: columns(table, peer).train,
        lambda _: table.targets().astype(np.float64),
        least=table.parties.least,
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
        least=table.parties.least,
        presence=lambda peer: table.present(peer)[order].astype(np.float64),
    )


def joined_columns(
    table: AlignedTable, columns: OwnColumns = AlignedTable.standardised, *, test: bool = False
) -> Floats:
    """Return the columns of all parties side by side, where they are in one place, ``[n, sum of a]``."""
    parts = [columns(table, peer) for peer in table.parties.names]
    return np.concatenate([each.test if test else each.train for each in parts], axis=1)
