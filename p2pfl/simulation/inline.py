"""A learner for all rows at once, some of which may be absent or in rounds of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import torch

from p2pfl.learning import Correction, Fitted, Learner, Memory, Report
from p2pfl.rows import Rows, distances, norms


class Inline:
    """A learner that trains where it stands.

    Parameters
    ----------
    learner, clock
        What trains, and what times it.
    present
        Who is there in a round, ``[N]`` bool.
    turns
        Which round of its own each peer is in, ``[N]`` int64; that of all by default.

    Attributes
    ----------
    seconds
        Spent training so far.
    update, diversity
        ``[N]``, how far the last training moved each row; and how differently it moved them.
    """

    def __init__(
        self,
        learner: Learner,
        *,
        present: Callable[[int], torch.Tensor],
        clock: Callable[[], float],
        turns: Callable[[int], torch.Tensor] | None = None,
    ) -> None:
        self.learner = learner
        self.present = present
        self.clock = clock
        self.turns = turns
        self.seconds = 0.0
        self.update: torch.Tensor | None = None
        self.diversity: float | None = None

    async def fit(
        self,
        rows: Rows,
        *,
        peers: tuple[str, ...],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
        correction: Correction | None = None,
    ) -> Fitted:
        """Train all rows but those of absent peers."""
        begun = self.clock()
        found, reports = Fitted(rows, memory or {}, Report(torch.zeros(0), torch.zeros(0))), list[Report]()
        for own, here in self._turns(round, active):
            found = self.learner.fit(
                found.rows, peers=peers, round=own, memory=found.memory or None, active=here, correction=correction
            )
            reports.append(found.report)
        self.seconds += self.clock() - begun
        self.update = distances(found.rows, rows).squeeze(-1)  # [N]
        self.diversity = _diversity(self.update, mean=found.rows.mean(0) - rows.mean(0))
        loss, steps = (reduce(torch.add, each) for each in zip(*((r.loss, r.steps) for r in reports), strict=True))
        return replace(found, report=Report(loss, steps))

    async def gradient(
        self,
        rows: Rows,
        *,
        peers: tuple[str, ...],
        round: int,
        step: int = 0,
        whole: bool = False,
        active: torch.Tensor | None = None,
    ) -> Rows:
        """Gradients of all rows but those of absent peers."""
        begun = self.clock()
        found = [
            self.learner.gradient(rows, peers=peers, round=own, step=step, whole=whole, active=here)
            for own, here in self._turns(round, active)
        ]
        self.seconds += self.clock() - begun
        return reduce(torch.add, found)

    def _turns(self, round: int, active: torch.Tensor | None) -> list[tuple[int, torch.Tensor]]:
        """Who trains, ``[N]`` bool, by the round of their own that they are in."""
        present = self.present(round)  # [N]
        here = present if active is None else active & present
        if self.turns is None or not here.any():
            return [(round, here)]
        turns = self.turns(round)  # [N]
        return [(own, here & (turns == own)) for own in sorted(set(turns[here].tolist()))]


def _diversity(update: torch.Tensor, *, mean: torch.Tensor) -> float | None:
    r"""How differently those who trained were moved: :math:`\overline{\lVert u_k \rVert^2} / \lVert \bar u \rVert^2`.

    The gradient diversity of Yin et al. (AISTATS 2018), times N.
    """
    trained = int((update > 0).sum())
    common = float(norms(mean)) ** 2 * (len(update) / max(trained, 1)) ** 2  # ``mean`` is over all, idle ones too
    return float(update.square().sum()) / trained / common if common else None
