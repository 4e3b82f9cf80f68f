""":class:`TensorModel`, what models from totals have in common: named numbers, of samples that are many enough."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.rows import Layout
from p2pfl.core.tensors import torch
from p2pfl.data.tables.splines import spline_values
from p2pfl.learning.exact_model import Asked, ExactModel, Own, Part, Tensors, zeros
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact.leverage import RowSums

DEFAULT_LEAST = 5
"""Least number of samples of whatever a total singles out."""

SPLINES = "splines"
"""Name of the tensor that has rows of splines by feature, see :mod:`p2pfl.data.tables.splines`."""

Shapes = dict[str, tuple[int, ...]]
"""Shapes of tensors by name."""


class TensorModule(torch.nn.Module):
    """Holder of named numbers, which are saved under their names.

    Parameters
    ----------
    shapes
        Shapes by name.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(tuple(shape), dtype=torch.float64))
        self.splined = SPLINES in shapes

    def inputs(self, features: torch.Tensor) -> torch.Tensor:
        """Return features ``[n, F]`` in double precision, those of splines with their values."""
        flat = features.flatten(1).double()
        if not self.splined:
            return flat
        valued: torch.Tensor = spline_values(flat, self.get_buffer(SPLINES))
        return valued


class TensorModel(ExactModel):
    """Model of named numbers, which start at zero; it predicts a class or a number."""

    classes: int | None

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors."""
        shapes = self.shapes
        return Layout(tuple(shapes), tuple(shapes.values()))

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "numbers" if self.classes is None else "classes"

    def start(self) -> Tensors:
        """Return the numbers of no samples."""
        return zeros(self.layout)

    def row_sums(self, tensors: Tensors) -> RowSums | None:
        """Return the sums of products of columns that the next round shows; ``None`` if it shows none."""
        del tensors
        return None

    def check_rows(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[None]:
        """Refuse columns of which one person could have nearly all of a combination.

        Raises
        ------
        DataError
            One person could.
        """
        sums = self.row_sums(tensors)
        if sums is None:
            return
        agreed = yield from check.agree()
        if agreed.least > 1:
            yield from sums.check(agreed)


class StatisticModule(TensorModule):
    """Numbers that predict nothing.

    Parameters
    ----------
    shapes
        Shapes by name.
    subject
        The statistic with its article, for the error.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]], *, subject: str) -> None:
        super().__init__(shapes)
        self.subject = subject

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Raise :class:`ModelError`, as there is nothing to predict.

        Raises
        ------
        ModelError
            Always.
        """
        del features
        raise ModelError(f"{self.subject} predicts nothing; choose another model")


class Statistic(TensorModel):
    """Model that states something about all data and predicts nothing about a sample."""

    subject: ClassVar[str]
    """The statistic with its article, for errors."""

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "nothing"

    def module(self) -> torch.nn.Module:
        """Return the torch module that holds the tensors; it predicts nothing."""
        return StatisticModule(self.shapes, subject=self.subject)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Raise :class:`ModelError`, as a statistic predicts nothing about a sample.

        Raises
        ------
        ModelError
            Always.
        """
        del tensors, part
        raise ModelError(f"{self.subject} predicts nothing about a sample; choose another model")


def scalars(**values: float) -> dict[str, Floats]:
    """Return numbers as tensors of one element."""
    return {name: np.array([float(value)]) for name, value in values.items()}


def parts_of(own: Own, *, owned: bool) -> list[Part]:
    """Return the parts of a peer that statistics count: the test part, too, if it is the peer's own."""
    return [own.train, own.validation, *([own.test] if owned and own.test is not None else [])]


def check_least(peer: str, samples: int, *, least: int) -> None:
    """Refuse to take part with few samples; a peer without samples adds nothing and may take part.

    Raises
    ------
    DataError
        The peer has too few samples.
    """
    if 0 < samples < least:
        raise DataError(
            f"{peer} has {samples} samples, fewer than model.options.least = {least}, so what it adds would show "
            "single samples; take part with more, or leave this peer out"
        )


def stopped(losses: Floats, patience: int, tol: float) -> bool:
    """Return whether none of the last losses is below the one before them by more than a tolerance, as scikit-learn.

    Parameters
    ----------
    losses
        Losses on the validation parts so far, in their order.
    patience
        Number of the last ones.
    tol
        Tolerance.

    Examples
    --------
    >>> stopped(np.array([3.0, 2.0, 2.0]), 2, 0.1), stopped(np.array([3.0, 3.0, 2.95]), 2, 0.1)
    (False, True)
    """
    return len(losses) > patience and not bool((losses[-patience:] < losses[-patience - 1] - tol).any())


def check_validated(samples: float) -> None:
    """Refuse to stop early without samples to validate on.

    Raises
    ------
    ModelError
        There are none.
    """
    if not samples:
        raise ModelError(
            "model.options.early_stopping needs samples to validate on; set data.validation above 0, or leave "
            "early_stopping out"
        )
