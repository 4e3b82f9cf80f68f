""":class:`ModelHook`, a command of the user that runs after each new model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from p2pfl.network.peer.updates import Event
from p2pfl.results import Record
from p2pfl.results.notices.kinds import HookFailed

HOOK_SECONDS = 300.0
"""Seconds after which the command is ended."""


class ModelHook:
    """Runs a command after each new model of a peer, one at a time.

    While it runs, only the newest model waits. The command reads ``P2PFL_MODEL`` (path), ``P2PFL_ROUND``,
    ``P2PFL_PEER`` and ``P2PFL_SCORES`` (JSON) in its environment. Whatever becomes of it is a notice at most.

    Parameters
    ----------
    command
        Line for the shell; ``None`` to do nothing.
    peer
        Name of the peer.
    notify
        Called with a notice when the command fails.
    seconds
        Deadline of the command.

    Examples
    --------
    >>> async def model_of_a_round(path):
    ...     notices = []
    ...     hook = ModelHook("exit 3", peer="ada", notify=notices.append)
    ...     hook.offer(path, 7)
    ...     await hook.finish()
    ...     return str(notices[0])
    >>> asyncio.run(model_of_a_round(Path("ada.safetensors")))
    'the command of --on-model ended with status 3 after round 7; this peer goes on'
    """

    def __init__(
        self, command: str | None, *, peer: str, notify: Callable[[HookFailed], None], seconds: float = HOOK_SECONDS
    ) -> None:
        self._command, self._peer, self._notify, self._seconds = command, peer, notify, seconds
        self._loop = asyncio.get_running_loop()
        self._record: Record | None = None
        self._next: tuple[Path, int, Mapping[str, float]] | None = None
        self._offered: int | None = None
        self._running: asyncio.Task[None] | None = None

    def observe(self, event: Event) -> None:
        """Remember the scores of the last round."""
        if isinstance(event, Record):
            self._record = event

    def offer_from_thread(self, path: Path, round: int) -> None:
        """Offer a model that another thread has written."""
        self._loop.call_soon_threadsafe(self.offer, path, round)

    def offer(self, path: Path, round: int) -> None:
        """Run the command for a model, or once the present run of it has ended."""
        if self._command is None or round == self._offered:  # the last checkpoint is written again at the end
            return
        self._offered = round
        known = self._record is not None and self._record.round == round
        self._next = path.absolute(), round, self._record.scores if known and self._record else {}
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def finish(self) -> None:
        """Wait until the command has run for the last model."""
        if self._running is not None:
            await self._running

    async def __aenter__(self) -> Self:
        """Begin to take models."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the command if the peer has failed or is interrupted."""
        if kind is not None and self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        while self._next is not None:
            (path, round, scores), self._next = self._next, None
            environment = {
                "P2PFL_MODEL": str(path),
                "P2PFL_ROUND": str(round),
                "P2PFL_PEER": self._peer,
                "P2PFL_SCORES": json.dumps(dict(scores)),
            }
            failure = await self._call(environment)
            if failure:
                self._notify(HookFailed(peer=self._peer, round=round, message=failure))

    async def _call(self, environment: Mapping[str, str]) -> str:
        """Run the command once; return what went wrong, or an empty text."""
        try:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", self._command or ""),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,  # standard output is for the results of the command that p2pfl runs
                env=os.environ | environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"could not be started ({error})"
        try:
            async with asyncio.timeout(self._seconds):
                status = await process.wait()
        except TimeoutError:
            return f"did not end within {self._seconds:g} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return f"ended with status {status}" if status else ""
