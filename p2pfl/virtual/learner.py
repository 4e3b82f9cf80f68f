"""Learners that take virtual time."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Sequence
from typing import Self, Unpack

import torch

from p2pfl.data import Federation
from p2pfl.identity import Source
from p2pfl.learning import Correction, Fitted, Fitting, Learner, Memory, Report, Sloping
from p2pfl.rows import Layout, Rows, draw

Takes = Callable[[str, int], float]
"""Seconds that a peer trains in a round."""

Spend = Callable[[float], object]
"""Told of virtual seconds while a function runs in a thread of the world."""


class Timed:
    """A learner that takes the virtual time it is said to take, whatever it takes.

    Parameters
    ----------
    learner
        What it learns.
    takes
        How long.
    spend
        Of the loop that it runs on.
    """

    def __init__(self, learner: Learner, *, takes: Takes, spend: Spend) -> None:
        self.learner = learner
        self.takes = takes
        self.spend = spend

    @property
    def layout(self) -> Layout:
        """Of a row."""
        return self.learner.layout

    @property
    def dtype(self) -> torch.dtype:
        """Of a row's numbers."""
        return self.learner.dtype

    @property
    def bare(self) -> Learner:
        """The learner that takes the time."""
        return self.learner.bare

    def on(self, federation: Federation) -> Self:
        """The learner on other data takes as long."""
        return self._with(self.learner.on(federation))

    def drawing(self, source: Source) -> Self:
        """The learner with other secrets takes as long."""
        return self._with(self.learner.drawing(source))

    def _with(self, learner: Learner) -> Self:
        other = copy.copy(self)
        other.learner = learner
        return other

    def start(self, peers: Sequence[str]) -> Rows:
        """The common start, ``[R, P]``."""
        return self.learner.start(peers)

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """How many samples each peer holds, ``[R]``."""
        return self.learner.samples(peers)

    def rate(self, round: int) -> float:
        """The size of a step."""
        return self.learner.rate(round)

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Scores, which take no virtual time."""
        return self.learner.evaluate(rows, peers=peers, part=part)

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """One row under the model's names."""
        return self.learner.state_dict(row)

    def fit(self, rows: Rows, **how: Unpack[Fitting]) -> Fitted:
        """Train, and say how long that took."""
        self.spend(max(self.takes(peer, how["round"]) for peer in how["peers"]))
        return self.learner.fit(rows, **how)

    def gradient(self, rows: Rows, **how: Unpack[Sloping]) -> Rows:
        """Gradients, and how long they took."""
        self.spend(max(self.takes(peer, how["round"]) for peer in how["peers"]))
        return self.learner.gradient(rows, **how)


class Goals:
    r"""A learner whose training costs nothing: in round 0 each peer moves to its goal, and never again.

    What follows is pure averaging, of which the result is known: the mean of the goals. Losses are
    :math:`\tfrac12 \lVert x - g_k \rVert^2` in round 0, of which :meth:`gradient` is the gradient, and 0 later.

    Parameters
    ----------
    layout, dtype
        Of a row.
    seed
        Of the goals.
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
        """Goals are the same on any data."""
        del federation
        return self

    def drawing(self, source: Source) -> Self:
        """Goals are no secret."""
        del source
        return self

    def goal(self, peer: str) -> torch.Tensor:
        """Where a peer goes, ``[P]``: numbers of few bits, so that sums of them are exact."""
        numbers = draw(self.seed, "goal", peer).integers(-(2**16), 2**16, size=self.layout.size)  # [P]
        return torch.from_numpy(numbers).to(self.dtype) / 2**12

    def start(self, peers: Sequence[str]) -> Rows:
        """Zeros for everybody, ``[R, P]``."""
        return torch.zeros(len(peers), self.layout.size, dtype=self.dtype)

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Some number of samples for each, ``[R]``."""
        return torch.tensor([1 + zlib.crc32(peer.encode()) % 7 for peer in peers])

    def rate(self, round: int) -> float:
        """A whole step to the goal, in the first round."""
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
        """Go to the goals, in round 0; a step in each later round moves nothing, and makes the row older."""
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
        """From the goals to the rows, in round 0, ``[R, P]``."""
        del step, whole, active
        goals = torch.stack([self.goal(peer) for peer in peers])  # [R, P]
        return (rows - goals) * float(round == 0)

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """How far the rows are from their goals; that is for nobody to reach."""
        del part
        goals = torch.stack([self.goal(peer) for peer in peers])  # [R, P]
        return {"loss": ((rows - goals).to(torch.float64) ** 2).sum(-1)}

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The row as it is."""
        return {"row": row}
