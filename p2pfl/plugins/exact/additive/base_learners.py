"""Base learners of additive models, functions of one column each with a penalty, and the torch module of their sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import FloatArray
from p2pfl.plugins.exact.elementary import added, cholesky, eigen
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModule

DEGREE = 3
"""Degree of splines."""

OWN = "own"
"""Name of the coefficients of a peer's own effects."""

HALVINGS = 200
"""Steps of the bisection, until no float lies between the ends."""


@dataclass(frozen=True)
class BaseLearner:
    """A base learner.

    Parameters
    ----------
    column
        Name of its column.
    kind
        ``spline``, ``linear`` or ``onehot``.
    index
        Number of its first feature.
    size
        Number of its coefficients.
    """

    column: str
    kind: str
    index: int
    size: int

    def basis(self, features: FloatArray, *, low: float, high: float) -> Floats:
        """Return the values of its functions, ``[n, size]``; values beyond the ends are moved to them.

        Parameters
        ----------
        features
            ``[n, F]``.
        low, high
            Ends of the column; without meaning where its values are levels.
        """
        if self.kind == "onehot":
            return features[:, self.index : self.index + self.size].astype(np.float64)
        values = np.clip(features[:, self.index].astype(np.float64), low, high)
        if self.kind == "linear":
            return np.column_stack([np.ones(len(values)), values])
        return splines(values, low=low, high=high, size=self.size)

    @property
    def penalty(self) -> Floats:
        """Penalty of its coefficients, ``[size, size]``: second differences of splines, squares of levels."""
        if self.kind == "onehot":
            return np.eye(self.size)
        if self.kind == "linear":
            return np.zeros((self.size, self.size))
        differences = np.diff(np.eye(self.size), n=2, axis=0)
        return np.asarray((differences[:, :, None] * differences[:, None, :]).sum(axis=0))  # whole numbers: exact


def splines(values: Floats, *, low: float, high: float, size: int) -> Floats:
    """Return cubic B-splines with equally spaced knots, ``[n, size]``; the last interval contains its end.

    Examples
    --------
    >>> splines(np.array([0.0, 1.0]), low=0.0, high=1.0, size=4).round(3).tolist()
    [[0.167, 0.667, 0.167, 0.0], [0.0, 0.167, 0.667, 0.167]]

    References
    ----------
    Eilers and Marx, Flexible smoothing with B-splines and penalties, Statistical Science 11, 1996.
    """
    intervals = size - DEGREE
    position = (values - low) / ((high - low) / intervals) if high > low else np.zeros_like(values)
    first = np.clip(np.floor(position), 0, intervals - 1).astype(np.int64)
    rest = position - first
    basis = np.zeros((len(values), size))
    for offset, weight in enumerate(spline_weights(rest)):
        basis[np.arange(len(values)), first + offset] = weight
    return basis


def spline_weights(rest: Any) -> tuple[Any, Any, Any, Any]:
    """Return the values of the four splines that are not zero, by the share of the interval, an array or a tensor."""
    return (
        (1 - rest) ** 3 / 6,
        (3 * rest**3 - 6 * rest**2 + 4) / 6,
        (-3 * rest**3 + 3 * rest**2 + 3 * rest + 1) / 6,
        rest**3 / 6,
    )


def penalty_for(gram: Floats, penalty: Floats, *, df: float) -> float:
    r"""Return the penalty :math:`\lambda` with which a learner has ``df`` degrees of freedom; 0 if it has fewer anyway.

    .. math:: 2 \operatorname{tr} S - \operatorname{tr} S^T S = \text{df}, \qquad S = Z (Z^T Z + \lambda K)^{-1} Z^T

    from the eigenvalues of :math:`L^{-1} K L^{-T}` with :math:`Z^T Z = L L^T` (Demmler and Reinsch).

    Parameters
    ----------
    gram, penalty
        :math:`Z^T Z` and K, ``[size, size]``.
    df
        Degrees of freedom.

    Examples
    --------
    >>> round(penalty_for(np.diag([4.0, 4.0]), np.eye(2), df=1.5), 9)
    4.0
    """
    scale = 1 / np.sqrt(np.where(np.diag(gram) > 0, np.diag(gram), 1.0))
    factor, dependent = cholesky(gram * scale[:, None] * scale[None, :])
    size, rank = len(gram), len(gram) - len(dependent)
    if rank <= df:
        return 0.0
    kept = [index for index in range(size) if index not in dependent]
    inner = _solved(factor, _solved(factor, penalty * scale[:, None] * scale[None, :]).T)
    curvatures = np.maximum(eigen(inner[np.ix_(kept, kept)])[0], 0.0)
    return bisected(lambda strength: freedom(curvatures, strength), df=df)


def freedom(curvatures: Floats, strength: float) -> float:
    """Return the degrees of freedom of a penalty, from the eigenvalues of its matrix."""
    shares = 1 / (1 + strength * curvatures)
    return added(2 * shares - shares * shares)


def bisected(freedom_of: Callable[[float], float], *, df: float) -> float:
    """Return where a falling function of the penalty reaches ``df``."""
    low, high = 0.0, 1.0
    while freedom_of(high) > df and high < 1e15:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if freedom_of(middle) > df else (low, middle)
    return high


def _solved(factor: Floats, right: Floats) -> Floats:
    """Return the solution of a lower triangular system, row by row."""
    solution = np.zeros_like(right)
    for row in range(len(factor)):
        rest = right[row].copy()
        for column in range(row):
            rest = rest - factor[row, column] * solution[column]
        solution[row] = rest / factor[row, row]
    return solution


class AdditiveModel(TensorModule):
    """Sum of functions of single columns.

    Parameters
    ----------
    shapes
        Shapes of the tensors.
    learners
        Base learners.
    binary
        True if outputs are logits of two classes.
    own
        True if there are coefficients of a peer's own effects, which are added to the shared ones.
    """

    offset: torch.Tensor
    coefficients: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, shapes: Shapes, learners: Sequence[BaseLearner], *, binary: bool, own: bool = False) -> None:
        super().__init__(shapes | ({OWN: shapes["coefficients"]} if own else {}))
        self.learners, self.binary, self._own = tuple(learners), binary, own

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits ``[n, 2]``, or predicted means ``[n, 1]``, for features ``[n, F]``."""
        wide = features.flatten(1).double()
        predictor = self.offset.expand(wide.shape[0])  # an export follows shape, not len
        for number, learner in enumerate(self.learners):
            predictor = predictor + self._effect(number, learner, wide)
        if self.binary:
            return torch.stack([torch.zeros_like(predictor), predictor], dim=1)
        return predictor.unsqueeze(1)

    def _effect(self, number: int, learner: BaseLearner, features: torch.Tensor) -> torch.Tensor:
        own = self.coefficients[number]  # [W]
        if self._own:
            own = own + self.get_buffer(OWN)[number]
        if learner.kind == "onehot":
            return features[:, learner.index : learner.index + learner.size] @ own[: learner.size]
        low, high = self.low[number], self.high[number]
        values = torch.minimum(torch.maximum(features[:, learner.index], low), high)
        if learner.kind == "linear":
            return own[0] + own[1] * values
        intervals = learner.size - DEGREE
        position = (values - low) / ((high - low) / intervals).clamp_min(1e-300)
        first = position.floor().clamp(0, intervals - 1)
        rest = position - first
        weights = spline_weights(rest)
        return sum(
            (weight * own[first.long() + offset] for offset, weight in enumerate(weights)), torch.zeros_like(values)
        )
