"""Serve the page on this machine alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from p2pfl.core.errors import InputError
from p2pfl.plugins.watch.access import new_token
from p2pfl.plugins.watch.app import Server, application
from p2pfl.plugins.watch.feed import Feed

if TYPE_CHECKING:
    from p2pfl.plugins.watch.live_swarm import LiveFeed

HOST = "127.0.0.1"
"""Address of the server: nothing outside of this machine reaches it."""

MAX_CONNECTIONS = 64
"""Largest number of connections at once; a browser keeps up to six a page."""

MIN_TOKEN_LENGTH = 16
"""Smallest number of characters of a token that a user chooses."""


class _Server(uvicorn.Server):
    """Server that leaves signals to the command."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ignore all signals."""
        yield


async def serve(
    feed: Feed | LiveFeed, *, port: int, token: str | None, replay: float | None, ready: Callable[[str], object]
) -> None:
    """Serve the page until it is cancelled.

    Parameters
    ----------
    feed
        State of the swarm.
    port
        Port; 0 for a free one.
    token
        Token of the address; a new one by default.
    replay
        Speed with which the page begins to replay the run; ``None`` shows its present.
    ready
        Called with the address of the page.

    Raises
    ------
    InputError
        The port is in use, or a feed with a sink cannot be read.
    """
    token = token or new_token()
    with _listening(port) as listener:
        number = listener.getsockname()[1]
        answers = Server(feed, replay=replay)
        app = application(answers, token=token, port=number)
        running = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
            )
        )
        ready(f"http://{HOST}:{number}/?token={token}")
        tasks = {asyncio.create_task(running.serve(sockets=[listener])), asyncio.create_task(answers.attend())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.should_exit = True
            answers.end()
            await asyncio.gather(*tasks)
            await answers.close()


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise InputError(f"port {port} cannot be used ({error.strerror}); choose another with --port") from None
        listener.listen()
        yield listener


def token_of(path: Path) -> str:
    """Return the token in a file.

    Raises
    ------
    InputError
        The file cannot be read, or has no token that is long enough.
    """
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); name a file with a token") from None
    if len(token) < MIN_TOKEN_LENGTH or not all(each.isalnum() or each in "-_" for each in token):
        raise InputError(
            f"{path} holds no token of at least {MIN_TOKEN_LENGTH} letters, digits, - and _; make one with: openssl "
            "rand -hex 16"
        )
    return token
