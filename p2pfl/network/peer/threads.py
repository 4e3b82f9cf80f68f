"""Training and hiding in threads, so that the event loop never misses a heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Unpack

import torch

from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, Wrapped, run_without_loop
from p2pfl.core.rows import Rows, distances
from p2pfl.learning import Fitted, Fitting, Learner, Sloping


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
        self.seconds = 0.0
        self.update: float | None = None  # how far the last training moved the row

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Train the rows."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        fitted, self.update = await asyncio.to_thread(self._fit, rows, **options)
        self.seconds += clock() - begun
        return fitted

    def _fit(self, rows: Rows, **options: Unpack[Fitting]) -> tuple[Fitted, float]:
        fitted = self.learner.fit(rows, **options)
        if self.count is not None:
            active = options.get("active")
            self.count(options["round"], None if active is None else active.tolist())
        return fitted, float(distances(fitted.rows, rows))

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return gradients of the rows."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        slopes = await asyncio.to_thread(self.learner.gradient, rows, **options)
        self.seconds += clock() - begun
        return slopes


class ThreadedNeighbourhood(Wrapped):
    """A neighbourhood that hides rows in a thread: masks of large rows take a while.

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
        return await asyncio.to_thread(lambda: run_without_loop(self._net.release(rows, since=since, masses=masses)))
