"""The only thing an algorithm may talk to: those whose rows it hears."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from p2pfl.compression import Coded
from p2pfl.errors import PrivacyError, RunError
from p2pfl.rows import Rows, distances, narrowed


@dataclass(frozen=True, eq=False)
class Public:
    """Parameters that everybody could have seen: the agreed start, and what follows from released rows alone.

    A release is bounded by how far it is from public parameters, so that these must depend on a peer's data only by
    what that peer released before. Therefore they are a type of their own: :func:`p2pfl.algorithms.start` and
    :attr:`Released.public` make one, :func:`derived` computes with them, and ``release(since=...)``,
    ``average(own=...)`` and ``State(public=...)`` take nothing else. ``tests/test_public_type.py`` lists the files that
    make one in another way.

    Parameters
    ----------
    rows
        ``[R, P]``.
    """

    rows: Rows


def derived(function: Callable[..., Rows], *given: Public) -> Public:
    """Compute with public parameters; the result is public, too.

    Parameters
    ----------
    function
        Of the rows of ``given``. What else it uses must be public as well: settings, numbers of rounds, released rows.
    given
        What it is computed from.

    Returns
    -------
    Public
        What the function returned.

    Raises
    ------
    PrivacyError
        An argument is not public.

    Examples
    --------
    >>> start, mean = Public(torch.zeros(1, 3)), Public(torch.ones(1, 3))
    >>> derived(lambda before, now: torch.lerp(before, now, 0.5), start, mean).rows.tolist()
    [[0.5, 0.5, 0.5]]
    """
    return Public(function(*(checked(each, "an argument of derived").rows for each in given)))


def checked(value: object, what: str) -> Public:
    """Return a value that must be public.

    Raises
    ------
    PrivacyError
        It is not a :class:`Public`.
    """
    if not isinstance(value, Public):
        raise PrivacyError(
            f"{what} must be public parameters, but is {type(value).__name__}; pass state.public, released.public, or "
            "what derived() computes from them"
        )
    return value


@dataclass(frozen=True)
class Released:
    r"""Rows that may be seen by others; only a :class:`Neighbourhood` makes them.

    Sample weights are homogeneous coordinates: beside the row :math:`w_k x_k` travels the public
    mass :math:`w_k`, both are mixed alike, and :meth:`average` divides once, at the end.

    Parameters
    ----------
    rows
        ``[R, P]`` floats, or int64 points of the grid :math:`2^{-\text{grid}}`.
    masses
        ``[R, 1]`` float64, or ``None`` where every peer counts alike.
    grid
        Fraction bits of fixed-point rows; ``None`` for floats.
    dtype
        What fixed-point rows become when they are read as numbers.
    chain
        Which release of the round they come from; a live neighbourhood's own note.
    coded
        The bytes as which the rows travel; ``None`` where they travel as they are.
    apart
        Where the rows are differences: how far, before them, the neighbours' average was from the own row, ``[R, P]``.
    """

    rows: Rows
    masses: torch.Tensor | None = None
    grid: int | None = None
    dtype: torch.dtype = torch.float32
    chain: int | None = None
    coded: Coded | None = None
    apart: Rows | None = None

    @property
    def values(self) -> Rows:
        """The rows as floats, ``[R, P]``."""
        if self.grid is None:
            return self.rows
        return (self.rows.to(torch.float64) * 2.0**-self.grid).to(self.dtype)  # [R, P]

    @property
    def level(self) -> Rows:
        """From what the result of mixing is as far as the own row is from its neighbours' average, ``[R, P]``."""
        return self.values if self.apart is None else self.values - self.apart

    def row(self, index: int) -> torch.Tensor:
        """One row as it travels: its codes, integers as narrow as they fit, or the numbers themselves."""
        return narrowed(self.rows[index]) if self.coded is None else self.coded.data(index)

    @property
    def public(self) -> Public:
        """The rows as everybody could have seen them; weighted ones are divided by :meth:`average`."""
        return Public(self.values)

    def average(self, own: Public) -> Public:
        """Return rows over masses, ``[R, P]``; where no positive mass was heard, ``own`` stays.

        Raises
        ------
        PrivacyError
            ``own`` is not public.
        """
        return Public(self.mean(checked(own, "own").rows))

    def mean(self, own: Rows) -> Rows:
        """Return rows over masses as :meth:`average` does; ``own`` may be private here, and so may what comes back."""
        values = self.values
        if self.masses is None:
            return values
        positive = self.masses > 0  # [R, 1]
        share = torch.where(positive, self.masses, 1.0)
        return torch.where(positive, (values / share).to(values.dtype), own)  # [R, P]

    def combine(self, a: float, b: float, other: Released) -> Released:
        """``a * self + b * other``: what is public may be combined freely."""
        masses = None
        if self.masses is not None and other.masses is not None:
            masses = a * self.masses + b * other.masses
        return Released(a * self.values + b * other.values, masses, chain=self.chain)


def bare(rows: Rows, masses: torch.Tensor | None) -> Released:
    """Rows as they are, weighted but hidden by nothing: what a neighbourhood without wrappers releases."""
    return Released(rows if masses is None else (rows * masses).to(rows.dtype), masses)


def moved(before: Released, after: Released) -> torch.Tensor:
    """How far an exchange moved what the rows average to, ``[R]``: zero at consensus, and where nothing is weighed."""
    if before.masses is None or after.masses is None:
        return distances(after.values, before.values).squeeze(-1)  # [R]
    positive = (before.masses > 0) & (after.masses > 0)  # [R, 1]
    old, new = torch.where(positive, before.masses, 1.0), torch.where(positive, after.masses, 1.0)
    far = distances(after.values, before.values, factor=new / old) / new.to(after.rows.device)  # [R, 1]
    return torch.where(positive.to(far.device), far, 0.0).squeeze(-1)  # [R]


@dataclass(frozen=True)
class Heard:
    """Who heard which released row, edge by edge; each listener hears itself first.

    Attributes
    ----------
    rows
        ``[S, P]``: every released row at hand.
    listener, sender
        ``[E]`` indices into the listener's R rows and into ``rows``, sorted by listener.
    weights
        ``[E]`` float64 mixing weights; those of one listener sum to one.
    peers
        S names: whose rows they are, for rules that remember what each neighbour said before.
    """

    rows: Rows
    listener: torch.Tensor
    sender: torch.Tensor
    weights: torch.Tensor
    peers: tuple[str, ...] = ()


class Neighbourhood(Protocol):
    """One round's view of the others, for the R rows in ``peers``."""

    @property
    def peers(self) -> tuple[str, ...]:
        """Whose R rows these are."""
        ...

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Nothing private leaves but through here.

        ``since`` is what everybody could have seen; only the difference from it is private.
        With ``masses`` the rows are weighted before they are hidden.
        """
        ...

    async def mix(self, released: Released) -> Released:
        """Weighted average with those heard, the own released row included."""
        ...

    async def hear(self, released: Released) -> Heard:
        """The released rows themselves, for rules that are not linear.

        For an algorithm with an attribute ``asynchronous`` nobody waits for anybody: these are then the newest row of
        each neighbour that has arrived since one last asked.
        """
        ...


def unmixed() -> RunError:
    """What an asynchronous neighbourhood says to an algorithm that mixes: there are no weights that all apply."""
    return RunError(
        "expected an algorithm that hears rows one by one where nobody waits for anybody, got one that mixes them: "
        "call net.hear, or leave its attribute asynchronous out"
    )


Result = TypeVar("Result")


def settled(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that waits for nobody, without an event loop.

    Raises
    ------
    RuntimeError
        If it waits after all.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    coroutine.close()
    raise RuntimeError("expected a coroutine that waits for nobody, but it did")
