"""The interface of algorithms: one coroutine per round, with an explicit state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, Protocol, TypeVar, Unpack

from p2pfl.core.neighbourhood import Neighbourhood, Public, check_public, derived
from p2pfl.core.rows import Rows, norms, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import UNDECLARED
from p2pfl.learning import Correction, Fitted, Fitting, Learner, Memory, Report, Sloping
from p2pfl.learning.learner import BeginsApart

Result = TypeVar("Result")


@dataclass(frozen=True)
class State:
    """State of the local peers between two rounds, which is all that a checkpoint saves.

    Attributes
    ----------
    rows
        Models that are evaluated, ``[R, P]``.
    public
        Public models, ``[R, P]``: those that the last gossip step returned.
    known
        Other public tensors by name, each ``[R, ...]``.
    memory
        Tensors of the optimiser that persist between rounds, each ``[R, ...]``.
    extra
        Tensors of the algorithm by name, each ``[R, ...]``.
    report
        Report of the last round's training; not saved.
    over
        True if the algorithm has ended before the last round, which all peers decide alike; not saved.

    Examples
    --------
    >>> state = State(torch.zeros(1, 3), Public(torch.ones(1, 3)))
    >>> State.restore(state.rows, state.tensors()).public.rows.tolist()
    [[1.0, 1.0, 1.0]]
    """

    rows: Rows
    public: Public
    memory: Memory | None = None
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)
    report: Report | None = field(default=None, compare=False)
    known: Mapping[str, Public] = field(default_factory=dict)
    over: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        check_public(self.public, "the public part of a state")
        for name, value in self.known.items():
            check_public(value, f'"{name}", which a state names as known to all,')

    @property
    def mixed(self) -> bool:
        """True if the models are those that the last gossip step left; reading it may wait for the device."""
        public = self.public.rows
        return self.rows is public or torch.equal(self.rows, public)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors to save beside the models, by name."""
        known_rows = {name: value.rows for name, value in self.known.items()}
        groups = {"memory": self.memory or {}, "extra": self.extra, "known": known_rows}
        named = {f"{group}.{name}": value for group, each in groups.items() for name, value in each.items()}
        return {"public": self.public.rows, **named}

    @staticmethod
    def restore(rows: Rows, tensors: Mapping[str, torch.Tensor]) -> State:
        """Return the state of models and tensors; the inverse of :meth:`tensors`."""

        def group(prefix: str) -> dict[str, torch.Tensor]:
            names = (name for name in tensors if name.startswith(prefix))
            return {name.removeprefix(prefix): tensors[name] for name in names}

        known_models = {name: Public(value) for name, value in group("known.").items()}
        return State(rows, Public(tensors["public"]), group("memory.") or None, group("extra."), known=known_models)

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> State:
        """Return the state with a function of each tensor; one that has several names is computed once.

        Examples
        --------
        >>> rows = torch.ones(2, 3)
        >>> state = State(rows, Public(rows)).map(lambda values: values[:1])
        >>> state.rows.tolist(), state.rows is state.public.rows
        ([[1.0, 1.0, 1.0]], True)
        """
        results: dict[int, torch.Tensor] = {}

        def once(values: torch.Tensor) -> torch.Tensor:
            return results.setdefault(id(values), values if id(values) in results else function(values))

        return replace(
            self,
            rows=once(self.rows),
            public=derived(once, self.public),
            memory=None if self.memory is None else {name: once(value) for name, value in self.memory.items()},
            extra={name: once(value) for name, value in self.extra.items()},
            known={name: derived(once, value) for name, value in self.known.items()},
        )

    def where(self, present: torch.Tensor, before: State) -> State:
        """Return this state for peers that are ``present``, ``[R]`` bool, and the state ``before`` for the others."""

        def chosen(after: torch.Tensor, former: torch.Tensor) -> torch.Tensor:
            here = to_device(present, after.device).view(-1, *[1] * (after.dim() - 1))  # [R, 1, ...]
            return torch.where(here, after, former)

        extra = {name: chosen(value, before.extra.get(name, value)) for name, value in self.extra.items()}
        known_models = {
            name: derived(chosen, value, before.known.get(name, value)) for name, value in self.known.items()
        }
        rows, public = chosen(self.rows, before.rows), derived(chosen, self.public, before.public)
        return State(rows, public, self.memory, extra, self.report, known_models)


class AsyncLearner(Protocol):
    """A :class:`~p2pfl.learning.Learner` whose training is awaited, for instance in a thread."""

    @property
    def learner(self) -> Learner:
        """The underlying learner."""
        ...

    def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Coroutine[Any, Any, Fitted]:
        """Train the models ``[R, P]``, each on its own data, like :meth:`p2pfl.learning.Learner.fit`."""
        ...

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return gradients ``[R, P]`` like :meth:`p2pfl.learning.Learner.gradient`."""
        ...


class Algorithm(Protocol):
    """Algorithm by which peers learn from each other, written once for one model on a device and all of a simulation.

    A class declares what it needs and offers in an attribute ``traits`` (:class:`p2pfl.core.traits.Traits`); without
    it, :data:`p2pfl.core.traits.UNDECLARED` applies. :mod:`p2pfl.algorithms.averaging` describes optional attributes.
    """

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round and return the state after it, which is all that persists."""
        ...


async def train_while(
    learner: AsyncLearner, training: Coroutine[Any, Any, Fitted], exchange: Coroutine[Any, Any, Result]
) -> tuple[Fitted, Result]:
    """Train while models are exchanged; return the results of both.

    Parameters
    ----------
    learner
        Learner. If it has a method ``train_while(training, exchange)``, such as that of a live peer, which trains in a
        thread, that is called. Otherwise one follows the other, with the same result.
    training
        Call of its method ``fit``.
    exchange
        Coroutine that waits for a neighbourhood, and needs no result of the training.
    """
    at_once = getattr(learner, "train_while", None)
    if at_once is not None:
        both: tuple[Fitted, Result] = await at_once(training, exchange)
        return both
    try:
        exchanged = await exchange
    except BaseException:
        training.close()
        raise
    return await training, exchanged


def always(terms: Rows) -> Correction:
    """Return a correction that adds the same ``terms`` ``[R, P]`` to every gradient, whatever the model is."""
    return lambda _, indices: terms[indices.to(terms.device)]


def start(learner: Learner, peers: tuple[str, ...]) -> State:
    """Return the start of peers, which is public: one for all, once in memory, unless each has a model of its own.

    The model with which a peer ended an earlier run of the same algorithm was public there already.
    """
    bare = learner.bare
    rows = bare.begin(peers) if isinstance(bare, BeginsApart) else None  # [R, P]
    if rows is None or (rows == rows[:1]).all():
        rows = (learner.start(peers[:1]) if rows is None else rows[:1]).expand(len(peers), -1)
    return State(rows, Public(rows))


def change(before: State, after: State) -> torch.Tensor:
    r"""Return how far a round moved the public models, ``[R, 1]``: :math:`\lVert x_{t+1} - x_t \rVert_2`."""
    return norms(after.public.rows - before.public.rows)


def lacks_moments(algorithm: object, state: State, *, round: int) -> bool:
    """Return whether a peer comes late, whose change is all that the others have learned: it takes their average."""
    moments = getattr(algorithm, "traits", UNDECLARED).moments
    return round > 0 and not state.extra.keys() >= {*moments}


class ReadingAlgorithm:
    """An algorithm before each round of which something is awaited, such as data that are read again.

    Parameters
    ----------
    algorithm
        The algorithm.
    read
        Coroutine function of the round and the state before it.
    """

    def __init__(self, algorithm: Algorithm, read: Callable[[int, State], Awaitable[None]]) -> None:
        self._algorithm, self._read = algorithm, read

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of the algorithm."""
        await self._read(round, state)
        handed = [state]  # so that the round can free its tensors
        del state
        return await self._algorithm.round(handed.pop(), learner, net, round)


class Idle:
    """A learner that returns all models unchanged.

    Parameters
    ----------
    learner
        Learner of the models.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Return the models unchanged, after zero steps."""
        none = torch.zeros(len(rows))
        return Fitted(rows, dict(options.get("memory") or {}), Report(none.double(), none.long()))

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return zero gradients ``[R, P]``."""
        del options
        return torch.zeros_like(rows)


@dataclass(frozen=True, kw_only=True)
class Local:
    """Parameters of algorithms that define the amount of local training.

    Parameters
    ----------
    epochs
        Passes over the data per round; those of the learner if ``None``.
    steps
        Optimiser steps per round instead of epochs.

    Examples
    --------
    >>> from p2pfl.algorithms import FedAvg
    >>> FedAvg(epochs=5).epochs
    5
    """

    epochs: int | None = None
    steps: int | None = None


THREADS = 4
"""Selections of rows that are kept, one for each thread that trains."""


def select_on_device(rows: Rows) -> Callable[[Rows, torch.Tensor], Rows]:
    """Return a function that selects K of R rows on the device of training, to which it copies them once.

    Steps of the same rows follow each other, so what was selected last is kept, for a few threads.

    Examples
    --------
    >>> select_on_device(torch.tensor([[1.0], [2.0]]))(torch.zeros(1, 1), torch.tensor([1]))
    tensor([[2.]])
    """

    @cache
    def there(device: torch.device, dtype: torch.dtype) -> Rows:
        return rows.to(device, dtype)

    @lru_cache(maxsize=THREADS)
    def selected(indices: torch.Tensor, device: torch.device, dtype: torch.dtype) -> Rows:
        return there(device, dtype).index_select(0, indices)  # [K, P]

    return lambda like, indices: selected(indices, like.device, like.dtype)


def constant(terms: Rows) -> Correction:
    """Return a correction that adds the same terms ``[R, P]`` at every step."""
    return select_on_device(terms)


def proximal(anchor: Rows, *, strength: float) -> Correction | None:
    r"""Return the gradient :math:`\mu (x - a)` of :math:`\frac{\mu}{2} \lVert x - a \rVert^2`; ``None`` if it is zero.

    Parameters
    ----------
    anchor
        a, ``[R, P]``.
    strength
        :math:`\mu`.
    """
    if not strength:
        return None
    home = select_on_device(anchor)
    return lambda rows, indices: torch.sub(rows, home(rows, indices)).mul_(strength)
