""":class:`TreeFeatures`, the features that trees split, and which of them are categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.learning.exact_model import Own, Owns, Part
from p2pfl.plugins.exact.columns import located, position_of

CODES = 255
"""A category is a whole number below this one."""

FROM_DTYPE = "from_dtype"
"""Value of ``categorical_features`` that stands for all columns of a table that have levels."""


@dataclass(frozen=True)
class TreeFeatures:
    """Features of trees: those of the data, except that the levels of a category become one feature.

    Parameters
    ----------
    names
        Name of each of the F features.
    places
        By feature the first and the end of its places among the features of the data.
    categorical
        By feature whether its values are categories.
    columns
        By feature the position of its column in the table.

    Examples
    --------
    >>> fields = (Field("age"), Field("ward", ("east", "west")))
    >>> TreeFeatures.of(3, fields, categorical=["ward"]).names
    ('age', 'ward')
    >>> TreeFeatures.of(3, fields, categorical=None).names
    ('age', 'ward=east', 'ward=west')
    """

    names: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    categorical: tuple[bool, ...]
    columns: tuple[int, ...]

    @classmethod
    def of(
        cls, features: int, fields: Sequence[Field] | None, *, categorical: Sequence[str | int] | str | None
    ) -> TreeFeatures:
        """Return the features of trees.

        Parameters
        ----------
        features
            Number of features of the data.
        fields
            Columns of its table; ``None`` if it has none.
        categorical
            Names or positions of the columns whose values are categories, or ``"from_dtype"``.

        Raises
        ------
        ModelError
            A column does not exist.
        """
        known = located(features, fields)
        chosen = _chosen([field for field, _ in known], categorical)
        names, places, flags, columns = list[str](), list[tuple[int, int]](), list[bool](), list[int]()
        for position, (field, where) in enumerate(known):
            joined, levels = position in chosen, field.levels or ()
            if joined and len(levels) > CODES:
                raise ModelError(
                    f'column "{field.name}" has {len(levels)} levels, and a category of trees has at most {CODES}; '
                    "leave it out of model.options.categorical_features"
                )
            one = joined or field.levels is None
            parts = [(where.start, where.stop)] if one else [(at, at + 1) for at in range(where.start, where.stop)]
            places += parts
            flags += [joined] * len(parts)
            columns += [position] * len(parts)
            names += [field.name] if one else [f"{field.name}={level}" for level in levels]
        return cls(tuple(names), tuple(places), tuple(flags), tuple(columns))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def plain(self) -> bool:
        """True if the features are those of the data."""
        return not any(self.categorical)

    def seen(self, part: Part) -> Part:
        """Return samples with the features of trees, kept with the samples."""
        if all(stop == start + 1 for start, stop in self.places):
            return part
        kept: Part | None = part.kept.get("columns")
        if kept is None:
            features = self.joined(torch.from_numpy(np.ascontiguousarray(part.features))).numpy()
            kept = part.kept["columns"] = Part(features, part.targets)
            kept.kept["columns"] = kept
        return kept

    def owned(self, own: Owns) -> Owns:
        """Return the function that returns the samples of a peer with the features of trees.

        Raises
        ------
        DataError
            Later, if a category is not a whole number from 0 to 254.
        """

        def own_of(peer: str) -> Own:
            mine = own(peer)
            train, validation = self.seen(mine.train), self.seen(mine.validation)
            if "categories" not in train.kept:
                self._check(peer, train.features)
                train.kept["categories"] = True
            return Own(train, validation, None if mine.test is None else self.seen(mine.test))

        return own if self.plain else own_of

    def joined(self, features: torch.Tensor) -> torch.Tensor:
        """Return features of trees ``[n, F]`` for those of the data ``[n, D]``: a category is the number of a level."""
        parts = [
            features[:, start:stop] if stop == start + 1 else _position(features[:, start:stop])
            for start, stop in self.places
        ]
        return torch.cat(parts, dim=1)

    def signs(self, constraints: Sequence[int] | Mapping[str, int] | None) -> npt.NDArray[np.int64] | None:
        """Return the direction of each feature, ``[F]``: 1 rising, -1 falling, 0 free; ``None`` if all are free.

        Raises
        ------
        ModelError
            A feature does not exist or is a category, or a direction is another number.
        """
        if constraints is None:
            return None
        given = constraints if isinstance(constraints, Mapping) else dict(zip(self.names, constraints, strict=False))
        key = "model.options.monotonic_cst"
        if not isinstance(constraints, Mapping) and len(constraints) != len(self):
            raise ModelError(f"{key} has {len(constraints)} numbers for {len(self)} features; write one for each")
        signs = np.zeros(len(self), np.int64)
        for name, sign in given.items():
            if name not in self.names:
                raise ModelError(f'{key}: there is no feature "{name}"; choose from {", ".join(self.names[:20])}')
            number = self.names.index(name)
            if sign not in {-1, 0, 1}:
                raise ModelError(f'{key}: "{name}" has the direction {sign}; write 1, -1 or 0')
            if sign and self.categorical[number]:
                raise ModelError(f'{key}: "{name}" is a category, which has no order; leave it out')
            signs[number] = sign
        return signs if signs.any() else None

    def _check(self, peer: str, features: FloatArray) -> None:
        for number in np.flatnonzero(self.categorical):
            values = features[:, number]
            known = values[~np.isnan(values)]
            if ((known < 0) | (known >= CODES) | (known != np.floor(known))).any():
                raise DataError(
                    f'{peer} has a value of the category "{self.names[number]}" that is no whole number from 0 to '
                    f"{CODES - 1}; number the categories, or leave it out of model.options.categorical_features"
                )


def _chosen(fields: Sequence[Field], categorical: Sequence[str | int] | str | None) -> set[int]:
    """Return the positions of the columns whose values are categories."""
    if categorical is None:
        return set()
    if categorical == FROM_DTYPE:
        return {position for position, field in enumerate(fields) if field.levels is not None}
    names, key = [field.name for field in fields], "model.options.categorical_features"
    return {position_of(column, names, key=key) for column in categorical}


def _position(hot: torch.Tensor) -> torch.Tensor:
    """Return the position of the one in each row ``[n, L]``, ``[n, 1]``; NaN in a row without one."""
    position = hot.nan_to_num().argmax(dim=1, keepdim=True).to(hot.dtype)
    return torch.where(hot.nan_to_num().amax(dim=1, keepdim=True) > 0, position, torch.nan)
