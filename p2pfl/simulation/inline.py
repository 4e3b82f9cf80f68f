"""A learner for all rows at once, some of which may be absent or in rounds of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Unpack

import torch

from p2pfl.learning import Fitted, Fitting, Learner, Report, Sloping
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
    count
        Called with the round and who trained, before anything that follows from training is returned.

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
        count: Callable[[int, list[bool]], None] | None = None,
    ) -> None:
        self.learner = learner
        self.present = present
        self.clock = clock
        self.turns = turns
        self.count = count
        self.seconds = 0.0
        self.update: torch.Tensor | None = None
        self.diversity: float | None = None

    async def fit(self, rows: Rows, **how: Unpack[Fitting]) -> Fitted:
        """Train all rows but those of absent peers."""
        begun = self.clock()
        trained, reports = rows, list[Report]()
        for own, here in self._turns(how["round"], how.get("active")):
            how["round"], how["active"] = own, here
            fitted = self.learner.fit(trained, **how)
            if self.count is not None:
                self.count(own, here.tolist())
            trained, how["memory"] = fitted.rows, fitted.memory
            reports.append(fitted.report)
        fitted = replace(fitted, report=reduce(_both, reports))
        self.seconds += self.clock() - begun
        self.update = distances(fitted.rows, rows).squeeze(-1)  # [N]
        self.diversity = _diversity(self.update, mean=fitted.rows.mean(0) - rows.mean(0))
        return fitted

    async def gradient(self, rows: Rows, **how: Unpack[Sloping]) -> Rows:
        """Gradients of all rows but those of absent peers."""
        begun = self.clock()
        found = list[Rows]()
        for own, here in self._turns(how["round"], how.get("active")):
            how["round"], how["active"] = own, here
            found.append(self.learner.gradient(rows, **how))
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


def _both(one: Report, other: Report) -> Report:
    """Of all who trained in either; the others say nothing."""
    return Report(one.loss + other.loss, one.steps + other.steps)


def _diversity(update: torch.Tensor, *, mean: torch.Tensor) -> float | None:
    r"""How differently those who trained were moved: :math:`\overline{\lVert u_k \rVert^2} / \lVert \bar u \rVert^2`.

    The gradient diversity of Yin et al. (AISTATS 2018), times N.
    """
    trained = int((update > 0).sum())
    common = float(norms(mean)) ** 2 * (len(update) / max(trained, 1)) ** 2  # ``mean`` is over all, idle ones too
    return float(update.square().sum()) / trained / common if common else None
