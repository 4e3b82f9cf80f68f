""":class:`TimeRoles`: columns of a model of times that have a role, and are no features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.plugins.exact.columns import located


@dataclass(frozen=True)
class TimeRoles:
    """Columns of strata and of times of entry.

    Parameters
    ----------
    features
        Number of features of the data, columns with a role included.
    levels
        Names of the strata.
    strata
        Features of the column of strata; all samples are one stratum if ``None``.
    entry
        Position of the column of times of entry; all samples enter at the begin if ``None``.
    kinds
        Features of the column of kinds of events, of which the first is none.
    failure
        Position of the kind of event of interest.
    clusters
        Features of the column that names the cluster of a row, such as a person.

    Examples
    --------
    >>> fields = (Field("age"), Field("from"), Field("site", ("north", "south")))
    >>> roles = TimeRoles.of(4, fields, strata="site", entry="from")
    >>> roles.kept.tolist(), roles.levels, roles.stratum(np.array([[61.0, 2.0, 0.0, 1.0]])).tolist()
    ([0], ('north', 'south'), [1])
    """

    features: int
    levels: tuple[str, ...] = ("all",)
    strata: slice | None = None
    entry: int | None = None
    kinds: slice | None = None
    failure: int = 1
    clusters: slice | None = None

    @classmethod
    def of(
        cls,
        features: int,
        fields: Sequence[Field] | None,
        *,
        strata: str | None,
        entry: str | None,
        cause: str | None = None,
        failure: str | None = None,
        cluster: str | None = None,
    ) -> Self:
        """Return the roles of columns with some names.

        Raises
        ------
        ModelError
            There is no such column, or no feature is left.
        """
        columns = located(features, fields)
        leveled = {field.name: (field.levels, where) for field, where in columns if field.levels is not None}
        numbers = {field.name: where.start for field, where in columns if field.levels is None}
        if strata is not None and strata not in leveled:
            raise _unknown("strata", f'column with levels "{strata}"', leveled)
        if entry is not None and entry not in numbers:
            raise _unknown("entry", f'column of numbers "{entry}"', numbers)
        if cause is not None and (cause not in leveled or cause == strata):
            raise _unknown("cause", f'column with levels "{cause}" without another role', leveled)
        events, kinds = leveled[cause] if cause is not None else ((), None)
        if failure not in (events or ())[1:] and (cause is not None or failure is not None):
            raise _unknown("failure", f'kind of event "{failure}"', (events or ())[1:])
        places = {field.name: where for field, where in columns}
        if cluster is not None and (cluster not in places or cluster in {strata, entry, cause}):
            raise _unknown("cluster", f'column "{cluster}" without another role', [*places])
        levels, where = leveled[strata] if strata is not None else (("all",), None)
        late = None if entry is None else numbers[entry]
        chosen = events.index(failure) if events and failure else 1
        clusters = None if cluster is None else places[cluster]
        roles = cls(features, levels, where, late, kinds, chosen, clusters)
        if not len(roles.kept):
            raise ModelError("model.options: every column has a role, so no feature is left; declare one more column")
        return roles

    @property
    def kept(self) -> Ints:
        """Positions of the features, ``[p]``."""
        taken = {self.entry}
        for each in (self.strata, self.kinds, self.clusters):
            taken |= set(range(each.start, each.stop)) if each else set()
        return np.array([index for index in range(self.features) if index not in taken], np.int64)

    @property
    def unscaled(self) -> tuple[int, ...]:
        """Positions of the columns that must keep their units."""
        return () if self.entry is None else (self.entry,)

    def stratum(self, features: npt.NDArray[Any]) -> Ints:
        """Return the stratum of each sample ``[n]``: the level whose feature is largest, also where they are scaled."""
        if self.strata is None:
            return np.zeros(len(features), np.int64)
        return np.asarray(features[:, self.strata].argmax(axis=1).astype(np.int64))

    def groups(self, features: npt.NDArray[Any]) -> Ints:
        """Return the number of the cluster of each row, ``[n]``; one cluster without a column of them."""
        if self.clusters is None:
            return np.zeros(len(features), np.int64)
        own = features[:, self.clusters]
        codes = own.argmax(axis=1) if own.shape[1] > 1 else np.unique(own[:, 0], return_inverse=True)[1]
        return np.asarray(codes, np.int64)

    def diverted(self, features: npt.NDArray[Any], event: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return whether each sample with some event has another one than that of interest, ``[n]``."""
        if self.kinds is None:
            return np.zeros(len(features), np.bool_)
        return np.asarray(event & (features[:, self.kinds].argmax(axis=1) != self.failure))

    def entered(self, features: npt.NDArray[Any]) -> Floats | None:
        """Return the time at which each sample enters, ``[n]``; ``None`` if all enter at the begin."""
        return None if self.entry is None else features[:, self.entry].astype(np.float64)

    def check(self, peer: str, features: npt.NDArray[Any], targets: npt.NDArray[Any]) -> None:
        """Refuse samples that leave before they enter.

        Raises
        ------
        DataError
            There is one.
        """
        entered = self.entered(features)
        if entered is not None and not ((entered >= 0) & (entered < np.abs(targets))).all():
            raise DataError(
                f"{peer} has rows whose time is not after that of model.options.entry, or that enter before 0; correct "
                "them, or leave them out"
            )


def _unknown(option: str, what: str, known: Sequence[str] | dict[str, Any]) -> ModelError:
    return ModelError(f"model.options.{option}: there is no {what}; choose from {', '.join(known) or 'none'}")
