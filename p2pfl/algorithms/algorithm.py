"""What an algorithm is: one coroutine a round, its state explicit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from p2pfl.learning import Fitted, Learner, Memory, Report
from p2pfl.neighbourhood import Neighbourhood
from p2pfl.rows import Rows, norms


@dataclass(frozen=True)
class State:
    """All there is to save of a peer between two rounds.

    Attributes
    ----------
    rows
        ``[R, P]``, what the peers would be scored with.
    public
        ``[R, P]``, what everybody could have seen: the rows as last mixed.
    memory
        The optimiser's tensors, where they outlive a round; each ``[R, ...]``.
    report
        What training had to say of the last round; not saved.
    """

    rows: Rows
    public: Rows
    memory: Memory | None = None
    report: Report | None = field(default=None, compare=False)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything to be saved beside the model, by name."""
        memory = {f"memory.{name}": tensor for name, tensor in (self.memory or {}).items()}
        return {"public": self.public, **memory}

    @staticmethod
    def restore(rows: Rows, tensors: Mapping[str, torch.Tensor]) -> State:
        """The inverse of :meth:`tensors`."""
        memory = {
            name.removeprefix("memory."): tensor for name, tensor in tensors.items() if name.startswith("memory.")
        }
        return State(rows, tensors["public"], memory or None)


class AsyncLearner(Protocol):
    """A :class:`~p2pfl.learning.Learner` whose training may run elsewhere: inline, or in a thread."""

    @property
    def learner(self) -> Learner:
        """The learner itself."""
        ...

    async def fit(
        self,
        rows: Rows,
        *,
        peers: tuple[str, ...],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
    ) -> Fitted:
        """Train ``[R, P]`` rows, each on its own data."""
        ...


class Algorithm(Protocol):
    """How peers learn from each other, written once for one row and for all."""

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One turn; what it returns is all that is kept."""
        ...


def start(learner: Learner, peers: tuple[str, ...]) -> State:
    """The common start of all peers, which is public."""
    rows = learner.start(peers)
    return State(rows, rows)


def change(before: State, after: State) -> torch.Tensor:
    r"""How far a round moved what is public, ``[R, 1]``: :math:`\lVert x_{t+1} - x_t \rVert_2`."""
    return norms(after.public - before.public)
