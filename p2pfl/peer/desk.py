"""What all parts of a link share: the line, its clock, news, and saying things without waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection

from p2pfl.peer.line import Line
from p2pfl.protocol.membership import Membership
from p2pfl.protocol.rate_limit import Allowance
from p2pfl.protocol.wire.messages import Message

TICK = 0.01
"""Seconds between two looks at a clock that stands still."""


class News:
    """Wakes everybody who waits for something to change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Something changed."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Until something changes."""
        await self._event.wait()


class Desk:
    """Where one peer's messages are written and opened.

    Parameters
    ----------
    line
        To the broker.
    membership
        Whose messages are told apart; all others are strangers.

    Attributes
    ----------
    refused
        By sender and reason: what was not used.
    tasks
        In which messages are sent that nobody waits for; without them nothing is sent.
    """

    def __init__(self, line: Line, membership: Membership) -> None:
        self.line = line
        line.admit = self._admit
        self.membership = membership
        self.me = membership.me
        self.news = News()
        self.refused: Counter[str] = Counter()
        self.allowance = Allowance()
        self.tasks: asyncio.TaskGroup | None = None
        self._posts: set[asyncio.Task[None]] = set()  # that have not been published yet

    def clock(self) -> float:
        """Seconds in which we could hear: what neighbours do while we have no connection is not their fault."""
        return asyncio.get_running_loop().time() - self.line.channel.away

    async def changed(self, *, by: float) -> None:
        """Until something changes, or a time of the clock, which may stand still."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(by - self.clock(), TICK)):
                await self.news.wait()

    def post(self, place: str, message: Message) -> None:
        """Publish without waiting for it."""
        if self.tasks is not None:
            task = self.tasks.create_task(self.line.publish(place, message))
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    def listen(self, places: Collection[str]) -> None:
        """Subscribe without waiting for it."""
        if places and self.tasks is not None:
            self.tasks.create_task(self.line.listen(*sorted(places)))

    def ignore(self, places: Collection[str]) -> None:
        """Unsubscribe without waiting for it."""
        if places and self.tasks is not None:
            self.tasks.create_task(self.line.ignore(*sorted(places)))

    async def posted(self) -> None:
        """Until all that was posted is published."""
        if self._posts:
            await asyncio.wait(self._posts)

    def refuse(self, sender: str, why: str) -> None:
        """Count what was not used."""
        self.refused[f"{self._known(sender)}: {why}"] += 1

    def _admit(self, sender: str, authentic: bool) -> bool:  # noqa: FBT001 (a callback's)
        """Return whether a message is read: so many of each neighbour, and as many that anybody may have published.

        Announcements and keys are authenticated later and one by one, so those under a neighbour's topic have an
        allowance of their own: whoever floods that topic keeps out no row and no heartbeat.
        """
        known = self._known(sender)
        whose = known if authentic else f"{known} unproven"
        admitted = self.allowance.take(whose, now=asyncio.get_running_loop().time())
        if not admitted:
            self.refuse(sender, "too much")
        return admitted

    def _known(self, sender: str) -> str:
        """A name that no stranger can multiply."""
        return sender if sender in {self.me.peer, *self.membership.known} else "stranger"
