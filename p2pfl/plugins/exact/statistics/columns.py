"""Columns of a description: the features, then the target, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.learning.exact_model import Own, Part


@dataclass(frozen=True)
class Columns:
    """Numbers of a sample that are described.

    Parameters
    ----------
    features
        Number of features.
    classes
        Number of classes, each of which is a column of zeros and ones; the target is one column if ``None``.
    event
        True if the target is a time that is negative without the event, as of a table with ``event``; it makes two
        columns.
    """

    features: int
    classes: int | None
    event: bool = False

    def __len__(self) -> int:
        return self.features + (self.classes or 1) + self.event

    def values(self, own: Own, *, whole: bool) -> npt.NDArray[np.float32]:
        """Return the columns of the samples of a peer, its test part only if ``whole``, ``[n, K]``."""
        parts = [own.train, own.validation, *([own.test] if whole and own.test is not None else [])]
        return np.concatenate([self._part(part) for part in parts])

    def _part(self, part: Part) -> npt.NDArray[np.float32]:
        if self.classes is not None:
            target = np.eye(self.classes, dtype=np.float32)[part.targets.astype(np.int64)]
        elif self.event:
            target = np.column_stack([np.abs(part.targets), ~np.signbit(part.targets)])
        else:
            target = part.targets[:, None]
        return np.concatenate([part.features, target.astype(np.float32)], axis=1)
