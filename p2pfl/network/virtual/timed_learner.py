"""Learners that take virtual time."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Self, Unpack

from p2pfl.core.draws import draw
from p2pfl.core.rows import Layout, Rows
from p2pfl.core.tensors import torch
from p2pfl.data import Federation
from p2pfl.learning import Correction, Fitted, Fitting, Learner, Memory, Report, Sloping
from p2pfl.learning.learner import ChecksCells
from p2pfl.privacy.keys import Source

Takes = Callable[[str, int], float]
"""Function that returns the seconds that a peer trains in a round."""

Spend = Callable[[float], object]
"""Function that takes the virtual seconds which a function in a thread lasts."""


class Timed:
    """Learner that takes a given virtual time, whatever its real time.

    Parameters
    ----------
    learner
        Learner that does the work.
    takes
        Duration of a round.
    spend
        Method ``spent`` of the event loop.
    """

    def __init__(self, learner: Learner, *, takes: Takes, spend: Spend) -> None:
        self.learner = learner
        self.takes = takes
        self.spend = spend

    def __getattr__(self, name: str) -> Any:
        """Return what the learner that does the work has under this name."""
        return getattr(self.learner, name)

    def on(self, federation: Federation) -> Timed:
        """Return the learner on other data, with the same durations."""
        return Timed(self.learner.on(federation), takes=self.takes, spend=self.spend)

    def drawing(self, source: Source) -> Timed:
        """Return the learner with other secrets, with the same durations."""
        return Timed(self.learner.drawing(source), takes=self.takes, spend=self.spend)

    def checking_cells(self, source: Source, *, peers: Sequence[str], least: int) -> Timed:
        """Return the learner that looks for small cells if it can, with the same durations."""
        if not isinstance(self.learner, ChecksCells):
            return self
        checking = self.learner.checking_cells(source, peers=peers, least=least)
        return Timed(checking, takes=self.takes, spend=self.spend)

    def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Train, and report the duration."""
        self.spend(max(self.takes(peer, options["round"]) for peer in options["peers"]))
        return self.learner.fit(rows, **options)

    def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return gradients, and report the duration."""
        self.spend(max(self.takes(peer, options["round"]) for peer in options["peers"]))
        return self.learner.gradient(rows, **options)


class Goals:
    r"""Learner without costs: in round 0 each peer moves to its goal, and later it does not move.

    The rest is pure averaging with a known result: the mean of the goals. Losses are
    :math:`\tfrac12 \lVert x - g_k \rVert^2` in round 0, of which :meth:`gradient` is the gradient, and 0 later.

    Parameters
    ----------
    layout, dtype
        Layout and number type of the parameters.
    seed
        Seed of the goals.
    """

    def __init__(self, layout: Layout, *, dtype: torch.dtype, seed: int) -> None:
        self.layout = layout
        self.dtype = dtype
        self.seed = seed

    @property
    def bare(self) -> Self:
        """The learner itself."""
        return self

    def on(self, federation: Federation) -> Self:
        """Return the learner itself, as goals do not depend on data."""
        del federation
        return self

    def drawing(self, source: Source) -> Self:
        """Return the learner itself, as goals are not secret."""
        del source
        return self

    def goal(self, peer: str) -> torch.Tensor:
        """Return the goal of a peer, ``[P]``: numbers of few bits, so that their sums are exact."""
        numbers = draw(self.seed, "goal", peer).integers(-(2**16), 2**16, size=self.layout.size)  # [P]
        return torch.from_numpy(numbers).to(self.dtype) / 2**12

    def start(self, peers: Sequence[str]) -> Rows:
        """Return zeros for every peer, ``[R, P]``."""
        return torch.zeros(len(peers), self.layout.size, dtype=self.dtype)

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return some number of samples for each peer, ``[R]``."""
        return torch.tensor([1 + zlib.crc32(peer.encode()) % 7 for peer in peers])

    def rate(self, round: int) -> float:
        """Return one, a whole step to the goal, in the first round, and zero later."""
        return float(round == 0)

    def fit(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
        correction: Correction | None = None,
    ) -> Fitted:
        """Move to the goals in round 0; a step in a later round moves nothing but counts."""
        del memory, correction
        gone = torch.full((len(peers),), round == 0)
        if active is not None:
            gone &= active
        goals = torch.stack([self.goal(peer) for peer in peers])  # [R, P]
        after = torch.where(gone.unsqueeze(-1), goals, rows)  # [R, P]
        steps = torch.ones(len(peers), dtype=torch.int64) if active is None else active.to(torch.int64)
        return Fitted(after, {}, Report(torch.zeros(len(peers), dtype=torch.float64), steps))

    def gradient(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        step: int = 0,
        whole: bool = False,
        active: torch.Tensor | None = None,
    ) -> Rows:
        """Return the vectors from the goals to the rows in round 0, ``[R, P]``."""
        del step, whole, active
        goals = torch.stack([self.goal(peer) for peer in peers])  # [R, P]
        return (rows - goals) * float(round == 0)

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return the squared distance of the rows from their goals as the loss."""
        del part
        goals = torch.stack([self.goal(peer) for peer in peers])  # [R, P]
        return {"loss": ((rows - goals).to(torch.float64) ** 2).sum(-1)}

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the row as it is."""
        return {"row": row}
