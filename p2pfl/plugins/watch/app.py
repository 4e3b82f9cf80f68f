"""The application: the page, its data, a stream of changes, and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from p2pfl.core.errors import P2PFLError
from p2pfl.plugins.watch import frames
from p2pfl.plugins.watch.access import Guard
from p2pfl.plugins.watch.feed import Feed, Stage
from p2pfl.plugins.watch.prometheus import MEDIA_TYPE, exposition
from p2pfl.results.swarm.state import Swarm

if TYPE_CHECKING:
    from p2pfl.plugins.watch.live_swarm import LiveFeed

T = TypeVar("T")

STATIC_FOLDER = Path(__file__).parent / "static"

LOOK_SECONDS = 0.25
"""Seconds between two looks at the files while somebody watches, where a look is short."""

MAX_LOOK_SECONDS = 2.0
"""Seconds between two looks where each takes long."""

LOOK_SHARE = 0.01
"""Share of the time that a page may look, unless it looks every :data:`MAX_LOOK_SECONDS` seconds."""

REST_SECONDS = 5.0
"""Seconds between two looks while nobody watches."""

HEARTBEAT_SECONDS = 10.0
"""Seconds after which a comment keeps a silent stream open."""

MAX_CURVES = 16
"""Largest number of peers whose curves are asked for at once."""


Moment = tuple[int, Stage, int]
"""Number of events, stage and whole second: the state that a page shows does not change within it."""


class Server:
    """Answers to requests about one feed.

    Parameters
    ----------
    feed
        State of the swarm.
    replay
        Speed with which the page begins to replay the run; ``None`` shows its present.
    """

    def __init__(self, feed: Feed | LiveFeed, *, replay: float | None = None) -> None:
        self._feed = feed
        self._replay = replay
        self._looked = 0.0
        self._thread = ThreadPoolExecutor(1, "feed")
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End all streams, so that the server can end."""
        self._ended.set()

    async def close(self) -> None:
        """Close what is left when the server has ended."""
        await asyncio.to_thread(self._thread.shutdown)

    async def attend(self) -> None:
        """Read what is new even if no page is open: at once for a sink, otherwise now and then, so that it is bounded.

        Raises
        ------
        P2PFLError
            A feed with a sink cannot be read.
        """
        sink = self._feed.sink is not None
        while not self._ended.is_set():
            with contextlib.suppress(*(() if sink else (P2PFLError,))):  # a page reports it once somebody looks
                await self._read(lambda: None)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), LOOK_SECONDS if sink else REST_SECONDS)

    async def page(self, request: Request) -> Response:  # noqa: ARG002 (what routes are called with)
        """Return the page."""
        return FileResponse(STATIC_FOLDER / "index.html")

    async def about(self, request: Request) -> Response:  # noqa: ARG002
        """Return the facts that do not change, and whether there is something to replay."""
        return JSONResponse(await self._read(self._about))

    async def frame(self, request: Request) -> Response:
        """Return the state of the swarm, now or at a time."""
        at = _seconds(request)
        return JSONResponse(await self._read(lambda: self._frame(at)))

    async def curves(self, request: Request) -> Response:
        """Return a score over rounds, until now or a time."""
        at, score = _seconds(request), request.query_params.get("score")
        peers = request.query_params.getlist("peer")[:MAX_CURVES]

        def read() -> dict[str, Any]:
            swarm = self._swarm(at)
            return asdict(swarm.history.curves(score or swarm.metric or "", peers=peers))

        return JSONResponse(await self._read(read))

    async def lanes(self, request: Request) -> Response:
        """Return the recent activities of peers, until now or a time."""
        at = _seconds(request)
        peers = request.query_params.getlist("peer")[:MAX_CURVES]

        def read() -> dict[str, Any]:
            now = self._feed.at if at is None else at
            return frames.lanes(self._swarm(at), now=now, seconds=frames.LANE_SECONDS, peers=peers)

        return JSONResponse(await self._read(read))

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002
        """Return the metrics for Prometheus."""
        feed = self._feed
        text = await self._read(lambda: exposition(feed.swarm, now=feed.at, stage=feed.stage))
        return Response(text, media_type=MEDIA_TYPE)

    async def stream(self, request: Request) -> Response:  # noqa: ARG002
        """Return the changes of the state as server-sent events; the first is the whole state."""
        return StreamingResponse(self._changes(), media_type="text/event-stream")

    async def _changes(self) -> AsyncIterator[str]:
        try:
            before: dict[str, Any] = {}
            seen: Moment | None = None
            sent = time.monotonic()
            while not self._ended.is_set():
                began = time.monotonic()
                seen, now = await self._read(partial(self._newer, seen))
                changes = frames.changes(before, now) if now is not None else {}
                if now is not None and changes.keys() - {"at"}:
                    changes |= {"at": now["at"], "whole": not before}
                    yield f"id: {now['count']}\ndata: {json.dumps(changes, allow_nan=False)}\n\n"
                    before, sent = now, time.monotonic()
                elif time.monotonic() - sent > HEARTBEAT_SECONDS:
                    yield ": nothing new\n\n"
                    sent = time.monotonic()
                await asyncio.sleep(min(max(LOOK_SECONDS, (time.monotonic() - began) / LOOK_SHARE), MAX_LOOK_SECONDS))
        except P2PFLError as error:
            yield f"event: failure\ndata: {json.dumps(str(error))}\n\n"

    async def _read(self, make: Callable[[], T]) -> T:
        """Read what is new and make an answer, in the one thread that uses the feed."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, make)

    def _work(self, make: Callable[[], T]) -> T:
        if time.monotonic() - self._looked >= LOOK_SECONDS:  # no other request has just done so
            self._feed.refresh()
            self._looked = time.monotonic()
        return make()

    def _about(self) -> dict[str, Any]:
        feed = self._feed
        over = feed.stage != "running" or self._replay is not None
        began = None if feed.began is None else feed.began.isoformat()
        facts: dict[str, Any] = {"began": began, "timed": feed.timed, "speed": self._replay, "unread": feed.unread}
        timeline = feed.replay() if over else None
        facts |= {"observed": feed.observed, "span": None if timeline is None else timeline.span}
        return frames.about(feed.setting, feed.places) | facts

    def _newer(self, seen: Moment | None) -> tuple[Moment, dict[str, Any] | None]:
        """Return the present moment, and its state unless the page has seen that moment."""
        moment = self._feed.swarm.count, self._feed.stage, int(self._feed.at)
        return moment, None if moment == seen else self._frame(None)

    def _frame(self, at: float | None) -> dict[str, Any]:
        return frames.frame(self._swarm(at), now=self._feed.at if at is None else at, stage=self._feed.stage)

    def _swarm(self, at: float | None) -> Swarm:
        timeline = None if at is None else self._feed.replay()
        return self._feed.swarm if at is None or timeline is None else timeline.swarm(at)


def application(server: Server, *, token: str, port: int) -> Starlette:
    """Return the application.

    Parameters
    ----------
    server
        Answers to its requests.
    token
        Token that a request must have.
    port
        Port of the server.
    """
    routes = [
        Route("/", server.page),
        Route("/api/about", server.about),
        Route("/api/frame", server.frame),
        Route("/api/curves", server.curves),
        Route("/api/lanes", server.lanes),
        Route("/api/stream", server.stream),
        Route("/metrics", server.metrics),
        Mount("/static", StaticFiles(directory=STATIC_FOLDER)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, port=port)],
        exception_handlers={P2PFLError: _fail},
    )


def _fail(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Answer that the files of the run cannot be read."""
    return PlainTextResponse(f"{error}\n", 503)


def _seconds(request: Request) -> float | None:
    """Return the time that a request asks about; ``None`` for the present."""
    try:
        at = float(request.query_params["at"])
    except (KeyError, ValueError):
        return None
    return at if 0.0 <= at < 1e12 else None
