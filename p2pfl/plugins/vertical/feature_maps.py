r"""Kernels as local maps: each party replaces its columns by functions of them, and the model stays linear in these.

The model is additive over parties, so products of functions of two parties are missing. On public data they are not
missed: logistic regressions of mapped columns are as good as with the joint kernel.

Landmarks and frequencies are drawn in secret: who knew them could compute columns from enough sums of products.

References
----------
Williams and Seeger, Using the Nyström method to speed up kernel machines, NIPS 2000; Rahimi and Recht, Random features
for large-scale kernel machines, NIPS 2007; Eilers and Marx, Flexible smoothing with B-splines and penalties, 1996.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Field
from p2pfl.data.parties import IN_TABLE
from p2pfl.plugins.exact.additive.base_learners import DEGREE, spline_weights
from p2pfl.plugins.exact.columns import labels_of
from p2pfl.plugins.exact.tensor_model import Shapes
from p2pfl.privacy.keys import KEY_BYTES
from p2pfl.privacy.normal_stream import normals

Kind = Literal["nystroem", "fourier", "spline"]

KINDS: tuple[Kind, ...] = ("nystroem", "fourier", "spline")
"""Maps by name."""

LEAST_FUNCTIONS = DEGREE + 1
"""Least number of functions, those of one cubic spline."""

FLAT = 1e-10
"""Share of the largest eigenvalue below which a direction of landmarks is rounding."""

Draw = Callable[[str, int], bytes]
"""Function that returns as many secret bytes for a purpose."""


@dataclass(frozen=True)
class MapOptions:
    """A map that an option names, such as ``nystroem:100``.

    Parameters
    ----------
    kind
        ``nystroem`` or ``fourier`` for the Gaussian kernel of all columns; ``spline`` for functions of each number.
    functions
        Number of functions; of each number with ``spline``.

    Raises
    ------
    ModelError
        There is no such map, or it has too few functions.
    """

    kind: Kind
    functions: int

    def __post_init__(self) -> None:
        if self.functions < LEAST_FUNCTIONS:
            raise ModelError(
                f"model.options.maps has {self.kind}:{self.functions}, which are too few functions; give at least "
                f"{LEAST_FUNCTIONS}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the map that a text names.

        Examples
        --------
        >>> MapOptions.parse("fourier:100")
        MapOptions(kind='fourier', functions=100)
        """
        name, _, number = text.partition(":")
        kind = next((each for each in KINDS if each == name), None)
        if kind is None or not number.isdecimal():
            raise ModelError(
                f'model.options.maps has "{text}", which names no map; write one such as "nystroem:100", "fourier:100" '
                'or "spline:10"'
            )
        return cls(kind, int(number))


class MappedColumns(NamedTuple):
    """Encoded columns of a party that a map replaces, and those that stay.

    Attributes
    ----------
    options
        The map.
    replaced, linear
        Positions of both among the encoded columns; no last level is in the second.
    labels
        Names of the functions and of the columns that stay.
    """

    options: MapOptions
    replaced: Ints
    linear: Ints
    labels: tuple[str, ...]

    @classmethod
    def of(cls, options: MapOptions, columns: Sequence[Field]) -> Self:
        """Return the division of columns: splines replace numbers, other maps all but the indicator of rows.

        Examples
        --------
        >>> fields = Field("sex", ("f", "m")), Field("age")
        >>> MappedColumns.of(MapOptions("spline", 4), fields).labels
        ('age spline 1', 'age spline 2', 'age spline 3', 'sex: f')
        """
        names, replaced, linear, start = labels_of(columns), list[int](), list[int](), 0
        for column in columns:
            places = range(start, start + (1 if column.levels is None else len(column.levels)))
            start = places.stop
            stays = column == IN_TABLE or (options.kind == "spline" and column.levels is not None)
            (linear if stays else replaced).extend(places[:-1] if stays else places)
        if options.kind == "spline":
            labels = [f"{names[each]} spline {number}" for each in replaced for number in range(1, options.functions)]
        else:
            labels = [f"{options.kind} {number + 1}" for number in range(options.functions)]
        labels += [names[each] for each in linear]
        return cls(options, np.array(replaced, np.int64), np.array(linear, np.int64), tuple(labels))

    @property
    def shapes(self) -> Shapes:
        """Shapes of the numbers of the map by name."""
        width, functions = len(self.replaced), self.options.functions
        shapes: dict[str, tuple[int, ...]] = {"map_mean": (width,), "map_deviation": (width,)}
        if self.options.kind == "spline":
            return Shapes(shapes | {"map_low": (width,), "map_high": (width,)})
        if self.options.kind == "fourier":
            return Shapes(shapes | {"map_frequencies": (width, functions), "map_phases": (functions,)})
        return Shapes(shapes | {"map_landmarks": (functions, width), "map_root": (functions, functions)})

    def fit(self, columns: Floats, draw: Draw, *, peer: str) -> dict[str, Floats]:
        r"""Return the numbers of the map of training rows; private.

        With standardised columns x and :math:`\gamma = 1/a`, ``nystroem`` has :math:`k(x, L)\, k(L, L)^{-1/2}` for
        landmarks L among the rows, ``fourier`` has :math:`\sqrt{2/D} \cos(\omega^T x + b)` with
        :math:`\omega \sim N(0, 2 \gamma)`, and ``spline`` has cubic B-splines of each column.

        Parameters
        ----------
        columns
            Encoded columns ``[n, F]``.
        draw
            Source of the party's secret bytes.
        peer
            Name of the party.

        Raises
        ------
        DataError
            There is no column to replace, or there are fewer rows than landmarks.
        """
        own, functions = columns[:, self.replaced], self.options.functions
        rows, width = own.shape
        if not width:
            raise DataError(
                f"{peer} has no column that a {self.options.kind} map replaces; leave {peer} out of model.options.maps"
            )
        deviation = own.std(axis=0)
        mean, deviation = own.mean(axis=0), np.where(deviation > 0, deviation, 1.0)
        numbers = {"map_mean": mean, "map_deviation": deviation}
        scaled = (own - mean) / deviation
        if self.options.kind == "spline":
            return numbers | {"map_low": scaled.min(axis=0), "map_high": scaled.max(axis=0)}
        if self.options.kind == "fourier":
            frequencies = normals(draw("frequencies", KEY_BYTES), width * functions).reshape(width, functions)
            phases = np.frombuffer(draw("phases", 8 * functions), "<u8") * (2 * np.pi / 2**64)
            return numbers | {"map_frequencies": frequencies * np.sqrt(2 / width), "map_phases": phases}
        if rows < functions:
            raise DataError(
                f"{peer} has {rows} common training rows, fewer than the {functions} landmarks of its map; lower "
                "their number in model.options.maps"
            )
        order = np.argsort(np.frombuffer(draw("landmarks", 8 * rows), "<u8"), kind="stable")
        landmarks = scaled[order[:functions]]
        values, vectors = np.linalg.eigh(_kernel(torch.from_numpy(landmarks), torch.from_numpy(landmarks)).numpy())
        kept = values > FLAT * values[-1]
        return numbers | {
            "map_landmarks": landmarks,
            "map_root": np.where(kept, vectors / np.sqrt(np.where(kept, values, 1.0)), 0.0),
        }

    def apply(self, columns: Floats, numbers: Mapping[str, Floats]) -> Floats:
        """Return the functions of rows and the columns that stay, ``[n, D]``; those of few landmarks may be zero.

        Examples
        --------
        >>> rows, fields = np.random.default_rng(1).normal(size=(60, 3)), [Field(name) for name in "abc"]
        >>> columns = MappedColumns.of(MapOptions("spline", 5), fields)
        >>> columns.apply(rows, columns.fit(rows, lambda _, size: bytes(size), peer="ada")).shape
        (60, 12)
        """
        tensors = {name: torch.from_numpy(np.ascontiguousarray(numbers[name])) for name in self.shapes}
        return self.transform(torch.from_numpy(np.ascontiguousarray(columns)), tensors).numpy()

    def transform(self, columns: torch.Tensor, numbers: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return what :meth:`apply` does, of tensors."""
        scaled = (columns[:, self.replaced.tolist()] - numbers["map_mean"]) / numbers["map_deviation"]
        functions = self.options.functions
        if self.options.kind == "fourier":
            waves = torch.cos(scaled @ numbers["map_frequencies"] + numbers["map_phases"])
            mapped = waves * np.sqrt(2 / functions)
        elif self.options.kind == "nystroem":
            mapped = _kernel(scaled, numbers["map_landmarks"]) @ numbers["map_root"]
        else:
            mapped = _splines(scaled, numbers["map_low"], numbers["map_high"], size=functions)
        return torch.cat([mapped, columns[:, self.linear.tolist()]], dim=1)


def _kernel(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the Gaussian kernel of standardised rows, ``[n, m]``."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2 * one @ other.T
    return torch.exp(-squares.clamp_min(0.0) / one.shape[1])


def _splines(values: torch.Tensor, low: torch.Tensor, high: torch.Tensor, *, size: int) -> torch.Tensor:
    """Return all but the first of the cubic B-splines of each column, which add up to 1, ``[n, a (size - 1)]``.

    Beyond the training rows functions stay as they end; those of a constant column are constant.
    """
    intervals = size - DEGREE
    inside = torch.minimum(torch.maximum(values, low), high)
    place = (inside - low) / ((high - low) / intervals).clamp_min(1e-300)
    first = place.floor().clamp(0, intervals - 1)
    weights = torch.stack(spline_weights(place - first), dim=-1)  # [n, a, 4]
    places = first.long()[..., None] + torch.arange(DEGREE + 1)
    basis = torch.zeros(*values.shape, size, dtype=values.dtype).scatter(-1, places, weights)
    return basis[..., 1:].flatten(1)
