"""What an algorithm is: one coroutine a round, its state explicit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Unpack, runtime_checkable

import torch

from p2pfl.learning import Correction, Fitted, Fitting, Learner, Memory, Report, Sloping
from p2pfl.neighbourhood import Neighbourhood, Public, checked, derived
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
    known
        What else everybody could have seen, by name; each ``[R, ...]``.
    memory
        The optimiser's tensors, where they outlive a round; each ``[R, ...]``.
    extra
        The algorithm's own, by name; each ``[R, ...]``.
    report
        What training had to say of the last round; not saved.
    """

    rows: Rows
    public: Public
    memory: Memory | None = None
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)
    report: Report | None = field(default=None, compare=False)
    known: Mapping[str, Public] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked(self.public, "the public part of a state")
        for name, value in self.known.items():
            checked(value, f'"{name}", which a state names as known to all,')

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything to be saved beside the model, by name."""
        known = {name: value.rows for name, value in self.known.items()}
        groups = {"memory": self.memory or {}, "extra": self.extra, "known": known}
        named = {f"{group}.{name}": value for group, each in groups.items() for name, value in each.items()}
        return {"public": self.public.rows, **named}

    @staticmethod
    def restore(rows: Rows, tensors: Mapping[str, torch.Tensor]) -> State:
        """The inverse of :meth:`tensors`."""

        def group(prefix: str) -> dict[str, torch.Tensor]:
            found = (name for name in tensors if name.startswith(prefix))
            return {name.removeprefix(prefix): tensors[name] for name in found}

        known = {name: Public(value) for name, value in group("known.").items()}
        return State(rows, Public(tensors["public"]), group("memory.") or None, group("extra."), known=known)

    def where(self, present: torch.Tensor, before: State) -> State:
        """The rows of those who are ``present``, ``[R]`` bool, as they are; the others' as they were before."""

        def chosen(after: torch.Tensor, former: torch.Tensor) -> torch.Tensor:
            here = present.to(after.device).view(-1, *[1] * (after.dim() - 1))  # [R, 1, ...]
            return torch.where(here, after, former)

        extra = {name: chosen(value, before.extra.get(name, value)) for name, value in self.extra.items()}
        known = {name: derived(chosen, value, before.known.get(name, value)) for name, value in self.known.items()}
        rows, public = chosen(self.rows, before.rows), derived(chosen, self.public, before.public)
        return State(rows, public, self.memory, extra, self.report, known)


class AsyncLearner(Protocol):
    """A :class:`~p2pfl.learning.Learner` whose training may run elsewhere: inline, or in a thread."""

    @property
    def learner(self) -> Learner:
        """The learner itself."""
        ...

    async def fit(self, rows: Rows, **how: Unpack[Fitting]) -> Fitted:
        """Train ``[R, P]`` rows, each on its own data, as :meth:`p2pfl.learning.Learner.fit` says."""
        ...

    async def gradient(self, rows: Rows, **how: Unpack[Sloping]) -> Rows:
        """Gradients ``[R, P]`` as :meth:`p2pfl.learning.Learner.gradient` says."""
        ...


class Algorithm(Protocol):
    """How peers learn from each other, written once for one row and for all.

    A class declares what it needs and offers by an attribute ``traits`` (:class:`p2pfl.traits.Traits`); one that
    declares nothing is taken as :data:`p2pfl.traits.UNDECLARED`. What else it may have, :mod:`p2pfl.algorithms.parts`
    says, and for the release that pays masks after the last round :mod:`p2pfl.algorithms.settlement`.
    """

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One turn; what it returns is all that is kept."""
        ...


@runtime_checkable
class Accounting(Protocol):
    """An algorithm whose state says what each peer gave each neighbour.

    What was given and is not back is on its way, or with the neighbour: so whoever is left can tell what is lost with
    one that vanished, and a peer that comes back goes on from what it had.
    """

    def given(self, state: State, *, peers: tuple[str, ...], to: str) -> torch.Tensor:
        """What peers gave one of all beyond what they had of it, ``[R, P + 1]``: values, and a mass."""
        ...


def always(terms: Rows) -> Correction:
    """A correction that does not depend on where a row stands: ``terms``, ``[R, P]``."""
    return lambda _, indices: terms[indices.to(terms.device)]


def start(learner: Learner, peers: tuple[str, ...]) -> State:
    """The common start of all peers, which is public."""
    rows = learner.start(peers)
    return State(rows, Public(rows))


def change(before: State, after: State) -> torch.Tensor:
    r"""How far a round moved what is public, ``[R, 1]``: :math:`\lVert x_{t+1} - x_t \rVert_2`."""
    return norms(after.public.rows - before.public.rows)
