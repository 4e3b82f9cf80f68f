r"""Kernels as local maps: each party replaces its columns by functions of them, and the model stays linear in these.

The model is additive over parties, so products of functions of two parties are missing. On public data they are not
missed: logistic regressions of mapped columns are as good as with the joint kernel.

References
----------
Williams and Seeger, Using the Nyström method to speed up kernel machines, NIPS 2000; Rahimi and Recht, Random features
for large-scale kernel machines, NIPS 2007; Eilers and Marx, Flexible smoothing with B-splines and penalties, 1996.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats
from p2pfl.core.errors import DataError, ModelError
from p2pfl.plugins.exact.additive.base_learners import splines

Kind = Literal["nystroem", "fourier", "spline"]

KINDS: tuple[Kind, ...] = ("nystroem", "fourier", "spline")
"""Maps by name."""

LEAST_FUNCTIONS = 4
"""Least number of functions, those of one cubic spline."""

FLAT = 1e-10
"""Share of the largest eigenvalue below which a direction of landmarks is rounding."""


@dataclass(frozen=True)
class MapOptions:
    """A map that an option names, such as ``nystroem:100``.

    Parameters
    ----------
    kind
        ``nystroem`` or ``fourier`` for the Gaussian kernel of all columns; ``spline`` for functions of each column.
    functions
        Number of functions; of each column with ``spline``.

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


@dataclass(frozen=True, eq=False)
class FeatureMap:
    r"""Functions of the columns of one party, fitted to its training rows; private.

    With standardised columns x and :math:`\gamma = 1/a`, ``nystroem`` has :math:`k(x, L)\, k(L, L)^{-1/2}` for
    landmarks L among its rows, ``fourier`` has :math:`\sqrt{2/D} \cos(\omega^T x + b)` with
    :math:`\omega \sim N(0, 2 \gamma)`, and ``spline`` has cubic B-splines of each column.

    Parameters
    ----------
    options
        Kind and number of functions.
    arrays
        Numbers of the map by name: ``mean`` and ``deviation`` of the columns, ``[a]``; ``landmarks`` ``[m, a]`` and
        ``root`` ``[m, D]``; ``frequencies`` ``[a, D]`` and ``phases`` ``[D]``; ``low`` and ``high`` ``[a]``.
    """

    options: MapOptions
    arrays: Mapping[str, Floats]

    @classmethod
    def fit(cls, options: MapOptions, columns: Floats, *, seed: int, peer: str) -> Self:
        """Return the map of training rows.

        Parameters
        ----------
        options, columns
            Kind, and columns ``[n, a]``.
        seed, peer
            Seed of the experiment and name of the party, from which draws follow.

        Raises
        ------
        DataError
            There are no columns, or values are missing.

        Examples
        --------
        >>> rows = np.random.default_rng(1).normal(size=(60, 3))
        >>> FeatureMap.fit(MapOptions("spline", 5), rows, seed=7, peer="ada").apply(rows).shape
        (60, 12)
        """
        rows, width = columns.shape
        if not width or not rows or not np.isfinite(columns).all():
            raise DataError(
                f"{peer} has no columns or missing values, which have no {options.kind} map; give the columns a rule "
                "`missing`, or leave the party out of model.options.maps"
            )
        deviation = columns.std(axis=0)
        arrays = {"mean": columns.mean(axis=0), "deviation": np.where(deviation > 0, deviation, 1.0)}
        scaled = (columns - arrays["mean"]) / arrays["deviation"]
        rng = draw(seed, f"feature map {options.kind}", peer)
        if options.kind == "spline":
            arrays |= {"low": scaled.min(axis=0), "high": scaled.max(axis=0)}
        elif options.kind == "fourier":
            frequencies = rng.normal(size=(width, options.functions)) * np.sqrt(2 / width)
            arrays |= {"frequencies": frequencies, "phases": rng.uniform(0, 2 * np.pi, options.functions)}
        else:
            landmarks = np.unique(scaled[rng.permutation(rows)[: options.functions]], axis=0)
            values, vectors = np.linalg.eigh(_kernel(landmarks, landmarks))
            kept = values > FLAT * values[-1]
            arrays |= {"landmarks": landmarks, "root": vectors[:, kept] / np.sqrt(values[kept])}
        return cls(options, arrays)

    def apply(self, columns: Floats) -> Floats:
        """Return the functions of rows, ``[n, D]``, of old rows as of new ones."""
        arrays = self.arrays
        scaled = (columns - arrays["mean"]) / arrays["deviation"]
        if self.options.kind == "fourier":
            waves = np.cos(scaled @ arrays["frequencies"] + arrays["phases"])
            return np.asarray(waves * np.sqrt(2 / self.options.functions))
        if self.options.kind == "nystroem":
            return _kernel(scaled, arrays["landmarks"]) @ arrays["root"]
        parts = []
        for column, low, high in zip(scaled.T, arrays["low"].tolist(), arrays["high"].tolist(), strict=True):
            if high > low:
                inside = np.clip(column, low, high)  # beyond the training rows functions stay as they end
                parts.append(
                    splines(inside, low=low, high=high, size=self.options.functions)[:, 1:]
                )  # they add up to 1
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(columns), 0))

    @property
    def functions(self) -> int:
        """Number of functions D of all columns."""
        return int(self.apply(self.arrays["mean"][None]).shape[1])


def _kernel(one: Floats, other: Floats) -> Floats:
    """Return the Gaussian kernel of standardised rows, ``[n, m]``."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    return np.asarray(np.exp(-np.maximum(squares, 0.0) / one.shape[1]))
