""":class:`Dataset`, one data set in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import DataError
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Description, FloatArray

__all__ = ["Dataset", "FloatArray", "IntArray"]

IntArray = npt.NDArray[np.int64]
"""Positions of samples."""


IGNORED = -100
"""Class of a place that counts in no loss and no score, such as a padded token, as in torch and transformers."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features of samples, and the targets to predict from them.

    Parameters
    ----------
    features
        ``[n, *shape]``, float32 or float64, finite, with NaN for a missing value where the description says that it
        stays missing; or int64.
    targets
        ``[n]``: int64 classes ``0 .. classes - 1``, or float32 or float64 numbers. ``[n, ...]`` for several of them in
        a sample, such as the classes of the pixels of a picture; :data:`IGNORED` where a place has none.
    classes
        Number of classes; ``None`` for regression.
    columns
        Original columns of a table, ``[n]`` each, for splits by column.
    description
        Transformation of raw values into these features and targets.

    Raises
    ------
    DataError
        Features or targets are no tensors, the lengths differ, a feature is not a finite number (the message names it),
        or a class is out of range.

    Examples
    --------
    >>> data = Dataset(torch.zeros(3, 1, 8, 8), torch.tensor([0, 1, 1]), classes=2)
    >>> len(data), data.shape
    (3, (1, 8, 8))
    """

    features: torch.Tensor
    targets: torch.Tensor
    classes: int | None
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    description: Description = field(default_factory=Description)

    def __post_init__(self) -> None:
        for name, given in (("features", self.features), ("targets", self.targets)):
            if not torch.is_tensor(given):
                raise DataError(
                    f"the {name} are of type {type(given).__name__}; give a tensor, such as torch.from_numpy({name})"
                )
        if self.targets.shape[:1] != self.features.shape[:1]:
            raise DataError(
                f"targets of shape {tuple(self.targets.shape)} do not match {len(self.features)} samples; give as many "
                "targets as features"
            )
        if self.description.lacking:
            _check_finite(torch.nan_to_num(self.features, nan=0.0, posinf=torch.inf, neginf=-torch.inf))
        else:
            _check_finite(self.features)
        if self.classes is None:
            if not self.targets.isfinite().all():
                raise DataError("the targets contain NaN or infinity; remove those samples")
        elif len(self.counted) and not (self.counted.min() >= 0 and self.counted.max() < self.classes):
            raise DataError(
                f"the classes run from {int(self.counted.min())} to {int(self.counted.max())}, not from 0 to "
                f"{self.classes - 1}; number the classes from 0 and set `classes` to their number"
            )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's features."""
        return tuple(self.features.shape[1:])

    def counts(self, samples: IntArray) -> IntArray:
        """Return how often each class is a target of some samples, ``[C]``; ``[0]`` for numbers.

        Examples
        --------
        >>> Dataset(torch.zeros(3, 1), torch.tensor([0, 1, 1]), classes=2).counts(np.array([1, 2])).tolist()
        [0, 2]
        """
        if self.classes is None:
            return np.zeros(0, np.int64)
        return np.bincount(_counted(self.targets[torch.from_numpy(samples)]).numpy(), minlength=self.classes)

    @property
    def counted(self) -> torch.Tensor:
        """Classes of all samples, or of all their places that have one, ``[N]``."""
        return _counted(self.targets)


def _counted(targets: torch.Tensor) -> torch.Tensor:
    flat = targets.flatten()
    return flat[flat != IGNORED] if targets.dim() > 1 else flat


def _check_finite(features: torch.Tensor) -> None:
    if not features.is_floating_point():
        return
    if features.sum().isfinite():  # one pass without a mask: NaN and infinity stay in every sum
        return
    finite = features.isfinite()
    if finite.all():  # finite, but the sum overflows
        return
    sample, *where = (~finite).nonzero()[0].tolist()
    name = where[0] if len(where) == 1 else tuple(where)
    raise DataError(f"feature {name} contains NaN or infinity, first in sample {sample}; impute or remove these values")
