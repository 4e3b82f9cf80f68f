""":class:`Neighbourhood`, the only interface between an algorithm and other peers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Required, TypedDict, TypeVar, Unpack

from p2pfl.core.codecs import Coded
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import PrivacyError, RunError
from p2pfl.core.rows import Rows, blockwise, distances, repeated, to_device
from p2pfl.core.tensors import torch

Contribution = Callable[[str], Ints]
"""Function that returns the private integers ``[K]`` which a peer adds to a total; it may run in a thread."""


@dataclass(frozen=True, eq=False)
class Public:
    """Public parameters: the agreed start, and results computed from released rows alone.

    The distance of a release from public parameters is bounded, so these may depend on a peer's data only through
    its earlier releases. They therefore have their own type: :func:`p2pfl.algorithms.start` and
    :attr:`Released.public` make one, :func:`derived` computes with them, and ``release(since=...)``,
    ``average(own=...)`` and ``State(public=...)`` take nothing else. ``tests/test_public_type.py`` lists the files that
    make one in another way.

    Parameters
    ----------
    rows
        ``[R, P]``.
    """

    rows: Rows


def derived(function: Callable[..., Rows], *public: Public) -> Public:
    """Compute with public parameters; the result is public as well.

    Parameters
    ----------
    function
        Function of the rows of ``public``. Everything else that it uses must also be public: settings, numbers of
        rounds, released rows.
    public
        Arguments of the function.

    Returns
    -------
    Public
        Result of the function.

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
    return Public(function(*(check_public(each, "an argument of derived").rows for each in public)))


def check_public(value: object, what: str) -> Public:
    """Return a value after checking that it is public.

    Raises
    ------
    PrivacyError
        The value is not a :class:`Public`.
    """
    if not isinstance(value, Public):
        raise PrivacyError(
            f"{what} must be public parameters, but it is of type {type(value).__name__}; pass state.public, "
            "released.public, or a result of derived()"
        )
    return value


@dataclass(frozen=True)
class Recipient:
    """The one peer that receives a total, while all others learn nothing.

    Parameters
    ----------
    peer
        Name of the peer.
    take
        Function that is called with the total, ``[size]``, at this peer alone.
    among
        Names of the peers that contribute; ``None`` for all. Others go on without a message. A total of one peer is a
        message to the recipient, which nobody else can read.
    """

    peer: str
    take: Callable[[Ints], None] = field(repr=False)
    among: tuple[str, ...] | None = None


class PublicContribution:
    """Contribution to a total that all peers could compute: integers made of public parameters, which need no masks.

    Parameters
    ----------
    public
        Public parameters ``[R, P]``.
    peers
        Names of the R peers.
    encode
        Function that returns the integers ``[K]`` of the parameters ``[P]`` of one peer. Everything else that it uses
        must also be public.

    Examples
    --------
    >>> import numpy as np
    >>> from p2pfl.core.encodings import wide
    >>> of = PublicContribution(Public(torch.ones(1, 1)), ("ada",), lambda row: wide(row.numpy()))
    >>> of("ada")
    array([            0, 1099511627776])
    """

    def __init__(self, public: Public, peers: Sequence[str], encode: Callable[[torch.Tensor], Ints]) -> None:
        self._rows, self._peers, self._encode = check_public(public, "a contribution without masks").rows, peers, encode

    def __call__(self, peer: str) -> Ints:
        """Return the integers of one peer, ``[K]``."""
        return self._encode(self._rows[self._peers.index(peer)])


@dataclass(frozen=True)
class Released:
    r"""Rows that others may see; only a :class:`Neighbourhood` makes them.

    Sample weights are homogeneous coordinates: the public weight :math:`w_k` travels beside the row :math:`w_k x_k`,
    both are mixed alike, and :meth:`average` divides once, at the end.

    Parameters
    ----------
    rows
        ``[R, P]`` floats, or int64 points of the grid :math:`2^{-\text{grid}}`.
    masses
        Sample weights ``[R, 1]`` float64 on the CPU, or ``None`` if all peers weigh the same.
    grid
        Fraction bits of fixed-point rows; ``None`` for floats.
    dtype
        Number type of fixed-point rows when they are read.
    chain
        Number of the release in the round, for live neighbourhoods only.
    coded
        Encoded rows as they travel; ``None`` if they travel as they are.
    apart
        For rows that are differences: the earlier distance of the neighbours' average from the own row, ``[R, P]``.
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
        """Rows as floats, ``[R, P]``."""
        if self.grid is None:
            return self.rows
        return (self.rows.to(torch.float64) * 2.0**-self.grid).to(self.dtype)  # [R, P]

    @property
    def level(self) -> Rows:
        """Rows from which the result of mixing is as far as the own row is from its neighbours' average, ``[R, P]``."""
        return self.values if self.apart is None else self.values - self.apart

    def row(self, index: int) -> torch.Tensor:
        """Return one row as it travels, on the CPU: its codes, integers as int32 if they fit, or the numbers."""
        row = self.rows[index] if self.coded is None else self.coded.data(index)
        if row.dtype == torch.int64 and row.numel():
            low, high = torch.aminmax(row)
            bounds = torch.iinfo(torch.int32)
            row = row.to(torch.int32) if low >= bounds.min and high <= bounds.max else row
        return row.detach().cpu().contiguous()

    @property
    def public(self) -> Public:
        """The rows as public parameters; :meth:`average` divides weighted ones."""
        return Public(self.values)

    def average(self, own: Public) -> Public:
        """Return rows divided by their weights, ``[R, P]``; ``own`` replaces rows without a positive weight.

        Raises
        ------
        PrivacyError
            ``own`` is not public.
        """
        return Public(self.mean(check_public(own, "own").rows))

    def mean(self, own: Rows) -> Rows:
        """Return rows divided by their weights as :meth:`average` does; ``own`` and the result may be private."""
        values = self.values
        if self.masses is None:
            return values
        masses = to_device(self.masses[:1] if repeated(self.masses) else self.masses, values.device)
        positive = (masses > 0).expand(len(values), 1)  # [R, 1]
        share = torch.where(masses > 0, masses, 1.0).expand(len(values), 1)  # [R, 1]

        def divide(values: Rows, share: torch.Tensor, positive: torch.Tensor, own: Rows) -> Rows:
            return torch.where(positive, (values / share).to(values.dtype), own)

        return blockwise(divide, values, share, positive, own)  # [R, P]

    def combine(self, a: float, b: float, other: Released) -> Released:
        """Return ``a * self + b * other``; public rows may be combined freely."""
        masses = None
        if self.masses is not None and other.masses is not None:
            masses = a * self.masses + b * other.masses
        return Released(blockwise(lambda x, y: a * x + b * y, self.values, other.values), masses, chain=self.chain)


def release_bare(rows: Rows, masses: torch.Tensor | None) -> Released:
    """Return weighted but unprotected rows, as a neighbourhood without wrappers releases them."""
    if masses is None:
        return Released(rows)
    return Released(blockwise(lambda x, weight: (x * weight).to(x.dtype), rows, to_device(masses, rows.device)), masses)


def measure_step(before: Released, after: Released) -> torch.Tensor:
    """Return the distance by which a gossip step moved the average of rows, ``[R]``; zero without weights."""
    if before.masses is None or after.masses is None:
        return distances(after.values, before.values).squeeze(-1)  # [R]
    positive = (before.masses > 0) & (after.masses > 0)  # [R, 1]
    old, new = torch.where(positive, before.masses, 1.0), torch.where(positive, after.masses, 1.0)
    device = after.rows.device
    far = distances(after.values, before.values, factor=to_device(new / old, device)) / to_device(new, device)  # [R, 1]
    return torch.where(to_device(positive, device), far, 0.0).squeeze(-1)  # [R]


@dataclass(frozen=True)
class ReceivedModels:
    """Received rows edge by edge; each receiver's own row comes first.

    Attributes
    ----------
    rows
        ``[S, P]``: every available released row.
    listener, sender
        ``[E]`` indices into the R rows of receivers and into ``rows``, sorted by receiver, on the CPU.
    weights
        ``[E]`` float64 mixing weights on the CPU; those of one receiver sum to one.
    peers
        Names of the S senders, for rules that remember earlier rows of each neighbour.
    """

    rows: Rows
    listener: torch.Tensor
    sender: torch.Tensor
    weights: torch.Tensor
    peers: tuple[str, ...] = ()

    def beside(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return ``listener``, ``sender`` and ``weights`` on the device of the rows, to compute with them."""
        device = self.rows.device
        return to_device(self.listener, device), to_device(self.sender, device), to_device(self.weights, device)


class TotalOptions(TypedDict, total=False):
    """Keyword arguments of :meth:`Neighbourhood.total`, for wrappers that pass them on."""

    size: Required[int]
    bits: int
    change: float | None
    to: Recipient | None


class Neighbourhood(Protocol):
    """View of the other peers in one round, for the R rows in ``peers``."""

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the R local peers."""
        ...

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release rows; private data leave a peer only through this method.

        ``since`` are the public parameters; only the difference from them is private. With ``masses``, the sample
        weights ``[R, 1]``, the rows are weighted before they are masked.
        """
        ...

    async def mix(self, released: Released) -> Released:
        """Return the weighted average of the received rows, including the own released one."""
        ...

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the received rows themselves, for nonlinear rules.

        For an algorithm with an attribute ``asynchronous``, peers do not wait for each other: the result then has the
        newest row of each neighbour that arrived since the last call.
        """
        ...

    async def total(
        self,
        contribution: Contribution,
        *,
        size: int,
        bits: int = 64,
        change: float | None = None,
        to: Recipient | None = None,
    ) -> Ints:
        """Return the exact sum over all peers of private integers, ``[size]``; every peer gets the same.

        No peer's contribution becomes known: with masks nothing but the total leaves the peers together.

        Parameters
        ----------
        contribution
            ``contribution(peer)`` returns what one of ``peers`` adds, ``[size]``; it is called once for each.
            :mod:`p2pfl.core.encodings` makes integers of numbers. A :class:`PublicContribution` needs no masks.
        size
            Number of integers.
        bits
            The total is taken modulo two to the power of 32 or 64. Every integer must stay below
            :func:`p2pfl.core.encodings.limit` in magnitude, so that no total wraps around; each peer checks its own.
        change
            L2 norm by which the data that a privacy statement protects can change a contribution. Private noise is
            proportional to it, and with private noise a total without it is refused.
        to
            The one peer that receives the total, instead of all: ``to.take`` is called there, and the result is empty
            everywhere. Such a total may wrap around. Masks hide each contribution from the recipient if several of
            ``to.among`` contribute.
        """
        ...


def mix_steps(net: Neighbourhood, released: Released, omegas: Sequence[float]) -> Coroutine[Any, Any, Released]:
    r"""Return a coroutine that takes several gossip steps.

    It is no coroutine function, as nothing may hold the rows before the first step while further ones are taken.

    Parameters
    ----------
    net
        Neighbourhood. If it has a method ``mix_steps(released, omegas)``, such as a simulation, for which several steps
        are one product, that is called.
    released
        The released rows :math:`y_0`.
    omegas
        Coefficients :math:`\omega_1 = 1, \omega_2, \dots` of the steps
        :math:`y_{k+1} = \omega_{k+1} (W y_k - y_{k-1}) + y_{k-1}`.

    Returns
    -------
    Coroutine
        Its result are the rows after the last step.
    """
    at_once: Callable[[Released, Sequence[float]], Coroutine[Any, Any, Released]] | None
    at_once = getattr(net, "mix_steps", None)
    return step_by_step(net, released, omegas) if at_once is None else at_once(released, omegas)


async def step_by_step(net: Neighbourhood, released: Released, omegas: Sequence[float]) -> Released:
    """Return released rows after several gossip steps, as :func:`mix_steps` does, by ``net.mix`` alone."""
    previous = released if any(omega != 1 for omega in omegas) else None  # earlier rows are not kept in vain
    for omega in omegas:
        mixed = await net.mix(released)
        if previous is not None:
            mixed = mixed if omega == 1 else mixed.combine(omega, 1 - omega, previous)
            previous = released
        released = mixed
    return released


def refuse_total() -> RunError:
    """Return the error of an asynchronous neighbourhood for a total, for which all peers would have to wait."""
    return RunError(
        "an asynchronous algorithm cannot take a total, because peers do not wait for each other; leave its attribute "
        "asynchronous out"
    )


class Wrapped:
    """Neighbourhood that does everything as another does; the base of those that change a part of it.

    Parameters
    ----------
    net
        Neighbourhood to wrap.
    """

    def __init__(self, net: Neighbourhood) -> None:
        self._net = net

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the R local peers."""
        return self._net.peers

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release as the wrapped neighbourhood does."""
        return await self._net.release(rows, since=since, masses=masses)

    async def mix(self, released: Released) -> Released:
        """Mix as the wrapped neighbourhood does."""
        return await self._net.mix(released)

    def mix_steps(self, released: Released, omegas: Sequence[float]) -> Coroutine[Any, Any, Released]:
        """Take gossip steps as the wrapped neighbourhood does, one by one where :meth:`mix` does it otherwise."""
        if type(self).mix is not Wrapped.mix:
            return step_by_step(self, released, omegas)
        return mix_steps(self._net, released, omegas)

    def check_later(self, check: Callable[[], None]) -> None:
        """Check as the wrapped neighbourhood does."""
        check_later(self._net, check)

    async def receive(self, released: Released) -> ReceivedModels:
        """Receive as the wrapped neighbourhood does."""
        return await self._net.receive(released)

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Add up as the wrapped neighbourhood does."""
        return await self._net.total(contribution, **options)


def check_later(net: Neighbourhood, check: Callable[[], None]) -> None:
    """Run a check that waits for a device: at the end of the round if the neighbourhood can postpone it, otherwise now.

    Parameters
    ----------
    net
        Neighbourhood. If it has a method ``check_later(check)``, such as a simulation, of which nothing is seen before
        the end of a round, that is called.
    check
        Function that raises an error.
    """
    postpone: Callable[[Callable[[], None]], None] | None = getattr(net, "check_later", None)
    if postpone is None:
        check()
    else:
        postpone(check)


def refuse_mix() -> RunError:
    """Return the error of an asynchronous neighbourhood when an algorithm mixes, as no weights apply to all."""
    return RunError(
        "an asynchronous algorithm cannot mix, because peers do not wait for each other; call net.receive, or "
        "leave its attribute asynchronous out"
    )


Result = TypeVar("Result")


def run_without_loop(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits, without an event loop.

    Raises
    ------
    RuntimeError
        The coroutine waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine waits; run it in an event loop")
