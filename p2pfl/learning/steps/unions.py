"""Full batches of rows that share samples: each group of samples is read once for all rows that hold it.

The gradient of a row is the sum over its groups. The rows of a group share its features, so that one product serves
all of them and no features are copied for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from p2pfl.core.rows import to_device
from p2pfl.data import IntArray
from p2pfl.learning.steps.batching import Batch, BatchSchedule
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.sample_groups import Group


def groups_of(schedule: BatchSchedule, features: torch.Tensor, targets: torch.Tensor) -> list[Group] | None:
    """Return the groups of samples of rows; ``None`` if batches are not whole, or groups of samples do not pay.

    Their samples are copied once for all rounds, so the data are held twice.
    """
    part = schedule.part
    if not (schedule.widths == part.counts).all() or len(schedule.counts) < 2 or part.groups is None:
        return None
    if part.gathered is None:
        places = [to_device(torch.from_numpy(group.positions), features.device) for group in part.groups]
        part.gathered = [
            Group(features.index_select(0, place).unsqueeze(0), targets.index_select(0, place).unsqueeze(0), group)
            for place, group in zip(places, part.groups, strict=True)
        ]
    return part.gathered


@dataclass(frozen=True)
class _UnionPiece:
    """Samples of a group, and the rows of the block that hold them."""

    group: Group
    places: IntArray  # [k], ascending
    where: torch.Tensor  # the same, on the device
    weights: torch.Tensor  # [k, 1]: one over the number of samples of the row


class Unions:
    """Batches of a block of rows, as unions of groups of samples.

    Parameters
    ----------
    groups
        Groups of the samples of all rows.
    counts
        Number of samples of each of them, ``[R]``.
    chosen
        The rows of the block, ``[K]``.
    """

    def __init__(self, groups: Sequence[Group], *, counts: IntArray, chosen: IntArray) -> None:
        places = np.full(len(counts), len(chosen))
        places[chosen] = np.arange(len(chosen))
        self._pieces = []
        for group in groups:
            device, kind, shared = group.features.device, group.features.dtype, group.shared
            inside = places[shared.rows]
            order = np.argsort(inside)[: np.count_nonzero(inside < len(chosen))]  # [k]
            if len(order):
                weights = torch.from_numpy(shared.times[order] / counts[shared.rows[order]]).to(kind)  # [k]
                self._pieces.append(
                    _UnionPiece(
                        group,
                        inside[order],
                        to_device(torch.from_numpy(inside[order]), device),
                        to_device(weights, device).unsqueeze(1),
                    )
                )

    def gradient(self, engine: Kernels, parts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return mean losses of the first K rows of the block, ``[K]``, and their gradients, ``[K, *shape]`` each."""
        losses = parts[0].new_zeros(len(parts[0]))  # [K]
        sums = [torch.zeros_like(part) for part in parts]
        for piece in self._pieces:
            count = int(np.searchsorted(piece.places, len(losses)))
            if count:
                where = piece.where[:count]
                batch = Batch(piece.group.features, piece.group.targets, piece.weights[:count], None)
                found, gradients = engine.gradient([part.index_select(0, where) for part in parts], batch)
                losses.index_add_(0, where, found)
                for total, gradient in zip(sums, gradients, strict=True):
                    total.index_add_(0, where, gradient)
        return losses, sums
