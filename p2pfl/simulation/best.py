"""The best model of each peer of a simulation, judged by its own validation data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch

from p2pfl.core.rows import Rows

PREFIX = "best."
"""Beginning of the names of tensors in a checkpoint."""


@dataclass
class BestModels:
    """Best models so far, with as many rows as the process has peers.

    Attributes
    ----------
    rows
        Parameters ``[R, P]`` on the CPU.
    losses
        Validation losses ``[R]`` float64; infinity where there is none yet.
    rounds
        Rounds that they come from, ``[R]`` int64, counted from 0; -1 where there is none yet.
    """

    rows: Rows
    losses: torch.Tensor
    rounds: torch.Tensor

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Return the best models before the first round, of peers with the parameters ``[R, P]``."""
        count = len(rows)
        none = torch.full((count,), torch.inf, dtype=torch.float64)  # [R]
        return cls(rows.detach().cpu().clone(), none, torch.full((count,), -1))

    def consider(self, rows: Rows, losses: torch.Tensor, *, rounds: torch.Tensor) -> None:
        """Take the models of a round where they are better; where they are equal, the earlier one stays.

        Parameters
        ----------
        rows
            Parameters ``[R, P]``; they are copied.
        losses
            Validation losses ``[R]``; NaN for peers that have no such data or were not evaluated.
        rounds
            Round of each peer, ``[R]``; -1 for none.
        """
        losses = losses.cpu().double()
        better = (losses < self.losses) & (rounds >= 0)  # [R]
        where = better.nonzero().squeeze(-1)  # [K]
        self.rows.index_copy_(0, where, rows.index_select(0, where.to(rows.device)).to(self.rows))
        self.losses = torch.where(better, losses, self.losses)
        self.rounds = torch.where(better, rounds, self.rounds)

    def improving(self, round: int, *, patience: int) -> torch.Tensor:
        """Return 1 for each peer whose best model is less than ``patience`` rounds old, and 0 otherwise, ``[R, 1]``.

        A peer without validation data has no best model, and holds nobody back.
        """
        young = (self.rounds >= 0) & (round - self.rounds < patience)  # [R]
        return young.unsqueeze(-1).double()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by their names in a checkpoint."""
        return {PREFIX + "rows": self.rows, PREFIX + "losses": self.losses, PREFIX + "rounds": self.rounds}

    def copy(self) -> Self:
        """Return what further rounds do not change."""
        return type(self)(self.rows.clone(), self.losses, self.rounds)

    @classmethod
    def taken(cls, tensors: dict[str, torch.Tensor]) -> Self | None:
        """Take the best models out of the tensors of a checkpoint, if there are any."""
        given: Mapping[str, torch.Tensor] = {
            name: tensors.pop(PREFIX + name) for name in ("rows", "losses", "rounds") if PREFIX + name in tensors
        }
        return cls(**given) if given else None
