"""``p2pfl watch``: the page of a run or of a live swarm, its state as text, and its replay."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pfl.cli import folders
from p2pfl.cli.interrupts import run_until_interrupted
from p2pfl.core.errors import InputError, foremost
from p2pfl.core.imports import import_callable
from p2pfl.core.registry import find_entry_points, load
from p2pfl.plugins.watch import frames
from p2pfl.plugins.watch.feed import Feed
from p2pfl.plugins.watch.watch_commands import WatchOptions
from p2pfl.results.swarm.state import Entry

if TYPE_CHECKING:
    from p2pfl.plugins.watch.live_swarm import LiveFeed

Work = Callable[[], Coroutine[Any, Any, None]]
"""Function that returns a coroutine."""

GROUP = "p2pfl.sinks"
"""Group of entry points of functions for --sink."""

LOOK_SECONDS = 6.0
"""Seconds for which --once looks at a live swarm."""


def run(options: WatchOptions) -> int:
    """Show a run or a live swarm until the command is interrupted, or once."""
    if options.json and not options.once:
        raise InputError("--json prints the state once; add --once")
    if options.speed is not None and not options.replay:
        raise InputError("--speed is that of a replay; add --replay")
    if options.sink:
        folders.accept_references(*options.sink)
    sink = call_sinks(options.sink) if options.sink else None
    if options.name is not None:
        return _swarm(options, name=options.name, sink=sink)
    if options.changes or options.broker:
        raise InputError("--set and --broker are for a live swarm; add --name with the name of an observer")
    with Feed(Path(options.experiment), sink=sink, trust_code=options.trust_code) as feed:
        return _once(feed, options) if options.once else _serve(feed, options)


def call_sinks(names: Sequence[str]) -> Callable[[Entry], None]:
    """Return a function that calls functions of the user with an event.

    An error of one neither stops the others nor the page, and is reported once.

    Parameters
    ----------
    names
        Names of functions, ``package.module:function`` or of an entry point of :data:`GROUP`.

    Raises
    ------
    InputError
        A name has another form, or there is no such function.
    """
    registered = find_entry_points(GROUP)
    sinks = {
        name: load(GROUP, name) if name in registered else import_callable(name, key="--sink", sought="a function")
        for name in names
    }
    failed = set[str]()

    def call(entry: Entry) -> None:
        for name, sink in sinks.items():
            try:
                sink(entry)
            except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
                if name not in failed:
                    failed.add(name)
                    sentence = f"sink {name} failed with {type(error).__name__}: {error}; it is called again"
                    print(f"p2pfl: {sentence}", file=sys.stderr)

    return call


def _swarm(options: WatchOptions, *, name: str, sink: Callable[[Entry], None] | None) -> int:
    """Show a live swarm."""
    from p2pfl.plugins.watch.live_observer import observe_swarm  # noqa: PLC0415 (it needs the broker's client)

    if options.replay:
        raise InputError("--replay is for a run directory; look at a live swarm without it")
    feed, look = observe_swarm(options, name=name, sink=sink)
    if not options.once:
        return _serve(feed, options, beside=look)

    async def looked() -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await look()
        except TimeoutError:
            return

    run_until_interrupted(looked())
    return _once(feed, options)


def _once(feed: Feed | LiveFeed, options: WatchOptions) -> int:
    feed.refresh()
    if options.json:
        print(json.dumps(frames.frame(feed.swarm, now=feed.at, stage=feed.stage), allow_nan=False))
    else:
        print("\n".join(frames.text(feed.swarm, now=feed.at)))
    return 0


def _serve(feed: Feed | LiveFeed, options: WatchOptions, *, beside: Work | None = None) -> int:
    try:
        from p2pfl.plugins.watch.web_server import serve, token_of  # noqa: PLC0415 (needs an extra)
    except ImportError as error:
        raise InputError(
            f'the page needs the package "{error.name}", which is not installed; run pip install "p2pfl-mqtt[watch]", '
            "or print the state with --once"
        ) from None
    token = None if options.token is None else token_of(Path(options.token))
    replay = (options.speed or 1.0) if options.replay else None

    def ready(address: str) -> None:
        print(f"open {address} (Ctrl-C ends it)", file=sys.stderr)

    served = partial(serve, feed, port=options.port, token=token, replay=replay, ready=ready)
    run_until_interrupted(served() if beside is None else _both(served, beside))
    return 0


async def _both(served: Work, beside: Work) -> None:
    """Serve the page and look at the swarm; the first error ends both."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(served())
            tasks.create_task(beside())
    except BaseExceptionGroup as group:
        raise foremost(group) from None
