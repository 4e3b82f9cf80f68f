"""The promises of an algorithm, checked where it runs, so that live peers do not wait for what cannot arrive."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from traceback import walk_tb
from types import coroutine
from typing import Any, TypeVar, Unpack

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, train_while
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import (
    Contribution,
    Neighbourhood,
    Public,
    ReceivedModels,
    Released,
    TotalOptions,
    check_later,
    mix_steps,
)
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.learning import Fitted, Fitting, Learner, Sloping

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Number types of rows that are no points of a grid."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class CheckedAlgorithm:
    """An algorithm whose rounds end with an error at the first promise that they break.

    A row travels in a message whose size all peers know before the first round. A longer row, one with NaN or one of
    another type is refused by every receiver, so live peers would wait for it in vain; here its sender refuses it, in
    simulations too. A round may wait for its neighbourhood and its learner alone, because only these have deadlines.

    Parameters
    ----------
    algorithm
        Algorithm that plays the rounds.
    name
        Name of its class, for messages.
    size, beside
        Parameters of a model, and the numbers that a message may contain beside them.
    dtype
        Number type of the parameters.
    """

    algorithm: Algorithm
    name: str
    size: int
    beside: int
    dtype: torch.dtype

    def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> Coroutine[Any, Any, State]:
        """Run one round; nothing here holds the state, so the algorithm can free it."""
        waits = _Waits()
        watched = CheckedNeighbourhood(net, self, waits)
        shape, dtype = state.rows.shape, state.rows.dtype
        played = self.algorithm.round(state, CheckedLearner(learner, waits), watched, round)
        return self._play(played, waits, shape, dtype)

    async def _play(
        self, played: Coroutine[Any, Any, State], waits: _Waits, shape: Sequence[int], dtype: torch.dtype
    ) -> State:
        if not isinstance(played, Coroutine):
            raise RunError(f"{self.name}: round is a plain function; define it by `async def round`")
        after = await _drive(played, waits, self.name)
        if not isinstance(after, State):
            raise RunError(f"{self.name}: round returned {type(after).__name__}; return the State after the round")
        if after.rows.shape != shape or after.rows.dtype != dtype:
            raise RunError(
                f"{self.name}: round returned rows {_describe(after.rows)} of a model that was "
                f"{[*shape]} of {_dtype_name(dtype)}; return rows of the same shape and type"
            )
        return after

    def check(self, rows: object, peers: Sequence[str], *, whole: bool, to: str) -> None:
        """Refuse rows that no peer could receive.

        Parameters
        ----------
        rows
            What the algorithm passed.
        peers
            Names of the local peers, which have a row each.
        whole
            True if rows are points of a grid, which are whole numbers.
        to
            Name of the method to which it passed them.
        """
        if not isinstance(rows, torch.Tensor):
            raise RunError(f"{self.name}: {to} got {type(rows).__name__} in place of a tensor of rows; pass a tensor")
        if rows.dim() != 2 or len(rows) != len(peers):
            raise RunError(
                f"{self.name}: {to} got a tensor of shape {[*rows.shape]}, not a row for each of {len(peers)} local "
                "peers; work on the last axis, and never reduce or index the first"
            )
        if rows.dtype not in ((torch.int64,) if whole else FLOATS):
            raise RunError(
                f"{self.name}: {to} got rows of {_dtype_name(rows.dtype)}, which do not travel; "
                "pass floating-point numbers"
            )
        self._check_room(rows, torch.int64 if whole else self.dtype, to=to)

    def _check_room(self, rows: Rows, dtype: torch.dtype, *, to: str) -> None:
        """Refuse rows that are longer than a message."""
        length, room = rows.shape[-1] * rows.element_size(), (self.size + self.beside) * dtype.itemsize
        if length > room:
            needed = -(-length // dtype.itemsize) - self.size
            raise RunError(
                f"{self.name}: {to} got rows {_describe(rows)} for a model of {self.size} parameters of "
                f"{_dtype_name(dtype)}, which do not fit into a message; declare a property `beside` that returns the "
                f"numbers sent beside a model, here {needed}"
            )

    def check_finite(self, rows: Rows, net: Neighbourhood, *, to: str) -> None:
        """Refuse rows with NaN or infinity, at the end of the round where that waits for a device."""
        total = rows.sum(dtype=torch.float64 if rows.dtype == torch.float64 else torch.float32)

        def refuse() -> None:
            if not math.isfinite(float(total)):
                raise RunError(
                    f"{self.name}: {to} got rows with NaN or infinity; check what the algorithm divides by, or set a "
                    "smaller learning.rate"
                )

        if rows.device.type != "cpu":
            check_later(net, refuse)  # of huge numbers, too: their sum is infinite
        elif not (math.isfinite(float(total)) or bool(rows.isfinite().all())):
            refuse()


@dataclass
class _Waits:
    """Number of calls of a neighbourhood or a learner that an algorithm waits for."""

    depth: int = 0

    async def within(self, call: Awaitable[Result]) -> Result:
        """Wait for a call."""
        self.depth += 1
        try:
            return await call
        finally:
            self.depth -= 1


@coroutine
def _drive(played: Coroutine[Any, Any, Result], waits: _Waits, name: str) -> Generator[Any, Any, Result]:
    """Run a round, and end it if it waits for anything but its neighbourhood and its learner."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            awaited = played.send(answer) if error is None else played.throw(error)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        except (RuntimeError, AttributeError) as missing:
            if _asks_for_a_loop(missing):
                raise _own_wait(name) from missing
            raise
        if not waits.depth:
            played.close()
            raise _own_wait(name)
        answer, error = None, None
        try:
            answer = yield awaited
        except BaseException as raised:  # noqa: BLE001 (the round decides what to do with it)
            error = raised


def _own_wait(name: str) -> RunError:
    """Return the error of a round that waits for anything but its neighbourhood and its learner."""
    return RunError(
        f"{name}: round waits for something of its own, for which there is no deadline; await the methods of "
        "net and learner alone, one after the other"
    )


def _asks_for_a_loop(error: BaseException) -> bool:
    """Return whether a round failed where it asked asyncio for the event loop, which a simulation does not have.

    asyncio has no class of its own for these errors, and some of its methods use ``None`` in place of the loop.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    if any(frame.f_code is _Waits.within.__code__ for frame in frames):
        return False  # the neighbourhood or the learner asked
    inside = str(frames[-1].f_globals.get("__name__")).partition(".")[0] == "asyncio"
    return inside or error.args == ("no running event loop",)


class CheckedNeighbourhood:
    """Neighbourhood that refuses what no peer could receive.

    No method holds the rows while it waits, so that the wrapped neighbourhood can free them.

    Parameters
    ----------
    net
        Neighbourhood to wrap.
    algorithm
        Algorithm that talks to it.
    waits
        Count of the calls that it waits for.
    """

    def __init__(self, net: Neighbourhood, algorithm: CheckedAlgorithm, waits: _Waits) -> None:
        self._net, self._algorithm, self._waits = net, algorithm, waits

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the R local peers."""
        return self._net.peers

    def release(
        self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None
    ) -> Coroutine[Any, Any, Released]:
        """Release as the wrapped neighbourhood does."""
        self._algorithm.check(rows, self.peers, whole=False, to="net.release")
        self._algorithm.check_finite(rows, self._net, to="net.release")
        return self._waits.within(self._net.release(rows, since=since, masses=masses))

    def mix(self, released: Released) -> Coroutine[Any, Any, Released]:
        """Mix as the wrapped neighbourhood does."""
        self._check(released, to="net.mix")
        return self._waits.within(self._net.mix(released))

    def mix_steps(self, released: Released, omegas: Sequence[float]) -> Coroutine[Any, Any, Released]:
        """Take gossip steps as the wrapped neighbourhood does."""
        self._check(released, to="net.mix")
        return self._waits.within(mix_steps(self._net, released, omegas))

    def receive(self, released: Released) -> Coroutine[Any, Any, ReceivedModels]:
        """Receive as the wrapped neighbourhood does."""
        self._check(released, to="net.receive")
        return self._waits.within(self._net.receive(released))

    def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Coroutine[Any, Any, Ints]:
        """Add up as the wrapped neighbourhood does."""
        return self._waits.within(self._net.total(contribution, **options))

    def check_later(self, check: Callable[[], None]) -> None:
        """Check as the wrapped neighbourhood does."""
        check_later(self._net, check)

    def _check(self, released: object, *, to: str) -> None:
        """Refuse released rows that no peer could receive."""
        algorithm = self._algorithm
        if not isinstance(released, Released):
            raise RunError(
                f"{algorithm.name}: {to} got {type(released).__name__}; pass what net.release returned, or "
                "Released(rows) of rows that follow from released ones"
            )
        whole = released.grid is not None
        algorithm.check(released.rows, self.peers, whole=whole, to=to)
        if not whole:
            algorithm.check_finite(released.rows, self._net, to=to)


class CheckedLearner:
    """Learner for which a round may wait.

    Parameters
    ----------
    training
        Learner that trains.
    waits
        Count of the calls that the round waits for.
    """

    def __init__(self, training: AsyncLearner, waits: _Waits) -> None:
        self.learner: Learner = training.learner
        self._training, self._waits = training, waits

    def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Coroutine[Any, Any, Fitted]:
        """Train as the wrapped learner does."""
        return self._waits.within(self._training.fit(rows, **options))

    def train_while(
        self, training: Coroutine[Any, Any, Fitted], exchange: Coroutine[Any, Any, Result]
    ) -> Coroutine[Any, Any, tuple[Fitted, Result]]:
        """Train during an exchange as the wrapped learner does."""
        return self._waits.within(train_while(self._training, training, exchange))

    def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Coroutine[Any, Any, Rows]:
        """Return gradients as the wrapped learner does."""
        return self._waits.within(self._training.gradient(rows, **options))


def _describe(rows: torch.Tensor) -> str:
    return f"{[*rows.shape]} of {_dtype_name(rows.dtype)}"


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
