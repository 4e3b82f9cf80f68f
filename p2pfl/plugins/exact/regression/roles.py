""":class:`Roles`, columns of a table that are no features of a regression: offsets, exposures and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.plugins.exact.columns import located

WEIGHTS = ("freq_weights", "var_weights")
"""Roles that predictions do not need."""

ROLES = ("offset", "exposure", *WEIGHTS)
"""Roles by the name of their option, which statsmodels uses as well."""


@dataclass(frozen=True)
class Roles:
    """Positions of the columns of numbers that have a role, and of the features.

    Parameters
    ----------
    features
        Number of features of the data, columns with a role included.
    places
        Position of each column with a role, by the name of the role.

    Examples
    --------
    >>> roles = Roles.of(3, None, {"offset": "x1", "exposure": None})
    >>> roles.kept.tolist(), roles.offsets(np.array([[1, 7, 3]], np.float32)).tolist()
    ([0, 2], [7.0])
    """

    features: int
    places: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, features: int, fields: Sequence[Field] | None, names: dict[str, str | None]) -> Self:
        """Return the roles of columns.

        Parameters
        ----------
        features
            Number of features of the data.
        fields
            Columns of the table; ``None`` if its features are ``x0``, ``x1`` and so on.
        names
            Name of a column by role.

        Raises
        ------
        ModelError
            A column does not exist, has levels, or has two roles.
        """
        places = {field.name: where.start for field, where in located(features, fields) if field.levels is None}
        chosen = {role: name for role, name in names.items() if name is not None}
        for role, name in chosen.items():
            if name not in places:
                raise ModelError(
                    f'model.options.{role}: there is no column of numbers "{name}"; choose from '
                    f"{', '.join(places) or 'none'}"
                )
        if len({*chosen.values()}) < len(chosen):
            raise ModelError(f"model.options: {', '.join(chosen)} name one column twice; name another column")
        if len(chosen) == features:
            raise ModelError("model.options: every column has a role, so no feature is left; declare one more column")
        return cls(features, tuple((role, places[name]) for role, name in chosen.items()))

    @property
    def kept(self) -> Ints:
        """Positions of the features."""
        taken = {place for _, place in self.places}
        return np.array([place for place in range(self.features) if place not in taken], np.int64)

    def place(self, role: str) -> int | None:
        """Return the position of the column with a role; ``None`` if there is none."""
        return dict(self.places).get(role)

    @property
    def shifted(self) -> bool:
        """True if there is an offset or an exposure."""
        return self.place("offset") is not None or self.place("exposure") is not None

    @property
    def weighted(self) -> bool:
        """True if samples have weights."""
        return any(self.place(role) is not None for role in WEIGHTS)

    def offsets(self, features: npt.NDArray[np.float32]) -> Floats:
        """Return what is added to the linear predictor of each sample, ``[n]``."""
        found = np.zeros(len(features))
        if (place := self.place("offset")) is not None:
            found = features[:, place].astype(np.float64)
        if (place := self.place("exposure")) is not None:
            found = found + np.log(features[:, place].astype(np.float64))
        return found

    def weights(self, features: npt.NDArray[np.float32]) -> Floats:
        """Return the weight of each sample, ``[n]``."""
        found = np.ones(len(features))
        for role in WEIGHTS:
            if (place := self.place(role)) is not None:
                found = found * features[:, place].astype(np.float64)
        return found

    def count(self, features: npt.NDArray[np.float32]) -> int:
        """Return the number of samples, each as many times as its frequency says."""
        place = self.place("freq_weights")
        return len(features) if place is None else int(features[:, place].astype(np.int64).sum())

    def check(self, peer: str, features: npt.NDArray[np.float32]) -> None:
        """Refuse values that a role does not allow.

        Raises
        ------
        DataError
            An exposure or a weight is not positive, or a frequency is no whole number.
        """
        for role, place in self.places:
            values = features[:, place]
            if role == "exposure" and not (values > 0).all():
                raise self._refused(peer, role, "a number that is not positive")
            if role == "var_weights" and not (values > 0).all():
                raise self._refused(peer, role, "a weight that is not positive; leave these samples out")
            if role == "freq_weights" and not ((values >= 0) & (values == np.floor(values))).all():
                raise self._refused(
                    peer, role, "a number that is no count; name whole numbers, or use model.options.var_weights"
                )

    def _refused(self, peer: str, role: str, what: str) -> DataError:
        remedy = "" if ";" in what else "; correct it"
        return DataError(f"{peer} has in the column of model.options.{role} {what}{remedy}")
