"""Training and hiding in threads, so that the event loop never misses a heartbeat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, Unpack

from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, Wrapped, run_without_loop
from p2pfl.core.rows import Rows, distances
from p2pfl.core.tensors import torch
from p2pfl.learning import Fitted, Fitting, Learner, Sloping

Result = TypeVar("Result")

SMALL_RELEASE = 1 << 12
"""Numbers of a release that is hidden in the event loop: with 127 mask partners in 5 ms, with four in .2 ms."""


class Threaded:
    """A learner that trains in a thread, so that the event loop never misses a heartbeat.

    Parameters
    ----------
    learner
        Trains.
    count
        Called in the thread with the round and who trained, before anything that follows from training is returned.
    """

    def __init__(self, learner: Learner, *, count: Callable[[int, list[bool] | None], None] | None = None) -> None:
        self.learner = learner
        self.count = count
        self.seconds = 0.0  # of training in threads, without the wait for one
        self._begun: float | None = None  # loop time at which the training that runs was asked for
        self._trained = 0.0  # loop time from there to the ends of earlier ones
        self.update: float | None = None  # how far the last training moved the row

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Train the rows."""
        fitted, self.update = await self._train(partial(self._fit, rows, **options))
        return fitted

    def _fit(self, rows: Rows, **options: Unpack[Fitting]) -> tuple[Fitted, float]:
        fitted = self.learner.fit(rows, **options)
        if self.count is not None:
            active = options.get("active")
            self.count(options["round"], None if active is None else active.tolist())
        return fitted, float(distances(fitted.rows, rows))

    async def train_while(
        self, training: Coroutine[Any, Any, Fitted], exchange: Coroutine[Any, Any, Result]
    ) -> tuple[Fitted, Result]:
        """Train in a thread while models are exchanged; an exchange that fails ends with the training."""
        exchanging = asyncio.ensure_future(exchange)
        try:
            fitted = await training
        except BaseException:
            exchanging.cancel()
            await asyncio.wait([exchanging])
            if not exchanging.cancelled():
                exchanging.exception()  # the training's error is the first one
            raise
        return fitted, await exchanging

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return gradients of the rows."""
        return await self._train(partial(self.learner.gradient, rows, **options))

    async def _train(self, work: Callable[[], Result]) -> Result:
        """Work in a thread and count the seconds, unless it fails."""
        loop = asyncio.get_running_loop()
        clock: Callable[[], float] = getattr(loop, "thread_time", time.perf_counter)  # virtual loops have their own

        def timed() -> tuple[Result, float]:
            begun = clock()
            result = work()
            return result, clock() - begun

        self._begun = loop.time()
        try:
            result, seconds = await asyncio.to_thread(timed)
            self.seconds += seconds
            self._trained += loop.time() - self._begun
        finally:
            self._begun = None
        return result

    def idle_clock(self) -> float:
        """Return a time that stands still during training."""
        now = asyncio.get_running_loop().time()
        return (now if self._begun is None else self._begun) - self._trained


class ThreadedNeighbourhood(Wrapped):
    """A neighbourhood that hides rows in a thread, unless they are small: masks of large rows take a while.

    Parameters
    ----------
    net
        Whose ``release`` waits for nobody.
    prepare
        Awaited before each release, outside of the thread.
    """

    def __init__(self, net: Neighbourhood, *, prepare: Callable[[], Awaitable[object]]) -> None:
        super().__init__(net)
        self.prepare = prepare

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Hide the rows."""
        await self.prepare()
        if rows.shape[-1] <= SMALL_RELEASE:
            return await self._net.release(rows, since=since, masses=masses)
        return await asyncio.to_thread(lambda: run_without_loop(self._net.release(rows, since=since, masses=masses)))
