"""Learner for all rows at once, some of which may be absent or in their own rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Unpack

import torch

from p2pfl.core.rows import Rows, distances, mean, norms
from p2pfl.learning import Fitted, Fitting, Learner, Report, Sloping
from p2pfl.learning.data_checks import check_losses
from p2pfl.simulation.sharding import Shard


class Inline:
    """Learner that trains in the calling thread.

    Parameters
    ----------
    learner, clock
        Learner that does the work, and clock that times it.
    present
        Function that returns the peers present in a round, ``[N]`` bool.
    turns
        Function that returns each peer's own round, ``[N]`` int64; the common round by default.
    count
        Function called with the own round of each peer that trained, -1 for the others, before the result is returned.
    shard
        Peers that this process simulates; without one they are all.

    Attributes
    ----------
    seconds
        Seconds spent training so far; on an accelerator, with the wait for its work at the end of each round.
    steps
        Number of gradients that all peers have computed so far, of a batch or of all data.
    update
        Distance by which the last training moved each row, ``[N]``.
    """

    def __init__(
        self,
        learner: Learner,
        *,
        present: Callable[[int], torch.Tensor],
        clock: Callable[[], float],
        turns: Callable[[int], torch.Tensor] | None = None,
        count: Callable[[list[int]], None] | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.learner = learner
        self.present = present
        self.clock = clock
        self.turns = turns
        self.count = count
        self.shard = shard
        self.seconds = 0.0
        self.steps = 0
        self.update: torch.Tensor | None = None
        self._mean: torch.Tensor | None = None
        self._unchecked = list[tuple[int, Sequence[str], torch.Tensor]]()

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Train all rows except those of absent peers."""
        trained, reports = rows, list[Report]()
        rounds = torch.full((len(rows),), -1)  # [N]
        for own, here in self._turns(options["round"], options.get("active")):
            options["round"], options["active"] = own, here
            begun = self.clock()
            fitted = self.learner.fit(trained, **options)
            self.seconds += self.clock() - begun
            rounds = rounds.where(~here, own)
            trained, options["memory"] = fitted.rows, fitted.memory
            reports.append(fitted.report)
            if fitted.report.loss.device.type != "cpu":
                self._unchecked.append((own, options["peers"], fitted.report.loss))
        if self.count is not None:
            self.count(rounds.tolist())  # once, because other processes take part
        fitted = replace(fitted, report=reduce(_both, reports))
        self.steps += int(fitted.report.steps.sum())
        self.update = distances(fitted.rows, rows).squeeze(-1)  # [N]
        self._mean = mean(fitted.rows) - mean(rows)  # [P]
        if self.shard is not None and len(rows) != len(self.shard.peers):  # the others do not move
            self._mean *= len(rows) / len(self.shard.peers)
        return fitted

    @property
    def diversity(self) -> float | None:
        """Diversity of the updates of the last training; reading it waits for the device and for other processes."""
        if self.update is None or self._mean is None:
            return None
        update = self.update  # [R] float64
        norms = torch.stack([update.square().sum(), (update > 0).sum().to(update.dtype)]).cpu().tolist()
        count = len(update if self.shard is None else self.shard.peers)
        sums = torch.tensor([*norms, count], dtype=torch.float64)
        if self.shard is None:
            return _diversity(sums, common=self._mean)
        return _diversity(self.shard.sums(sums), common=self.shard.mean(self._mean))

    def check(self) -> None:
        """Check that the training since the last call did not diverge, which waits for the device.

        Raises
        ------
        LearningError
            A loss or a row is no longer finite.
        """
        unchecked, self._unchecked = self._unchecked, []
        begun = self.clock()
        for round, peers, loss in unchecked:
            check_losses(loss.cpu(), peers=peers, round=round)
        self.seconds += self.clock() - begun

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return the gradients of all rows except those of absent peers."""
        begun = self.clock()
        slopes = list[Rows]()
        for own, here in self._turns(options["round"], options.get("active")):
            options["round"], options["active"] = own, here
            slopes.append(self.learner.gradient(rows, **options))
            self.steps += int(here.sum())
        self.seconds += self.clock() - begun
        return reduce(torch.add, slopes)

    def _turns(self, round: int, active: torch.Tensor | None) -> list[tuple[int, torch.Tensor]]:
        """Return the peers that train, ``[N]`` bool, by their own round."""
        present = self.present(round)  # [N]
        here = present if active is None else active & present
        if self.turns is None or not here.any():
            return [(round, here)]
        turns = self.turns(round)  # [N]
        return [(own, here & (turns == own)) for own in sorted(set(turns[here].tolist()))]


def _both(one: Report, other: Report) -> Report:
    """Combine the reports of two disjoint groups of peers."""
    return Report(one.loss + other.loss, one.steps + other.steps)


def _diversity(sums: torch.Tensor, *, common: torch.Tensor) -> float | None:
    r"""Return the diversity of updates: :math:`\overline{\lVert u_k \rVert^2} / \lVert \bar u \rVert^2`.

    It is the gradient diversity of Yin et al. (AISTATS 2018), times N.

    Parameters
    ----------
    sums
        Sum of squared norms, number of rows that trained, and number of rows.
    common
        Mean update of all rows, idle ones too, ``[P]``.
    """
    squares, trained, count = sums.tolist()
    square = float(norms(common)) ** 2 * (count / max(trained, 1)) ** 2
    return squares / trained / square if trained and square else None
