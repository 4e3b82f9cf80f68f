"""Pauses of a live peer between its rounds, by the timetable of the run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from p2pfl.experiment.timetable import Position, Timetable
from p2pfl.network.peer.connection import Connection
from p2pfl.network.protocol.interface.requests import Pause, Turn
from p2pfl.network.protocol.session.shared import PULSE

LOOK = 60.0
"""Seconds after which a peer that pauses reads its clock again, which people and networks set."""


class Pauses:
    """Pauses of one peer, and its position in the timetable.

    While it pauses, the peer answers whoever joins, comes back or lacks something.

    Parameters
    ----------
    table
        Timetable of the run.
    now
        Function that returns the seconds since 1970.
    connection
        Connection to the neighbours.
    position
        Position of the last incarnation; ``None`` at the beginning.

    Attributes
    ----------
    position
        Present position.
    """

    def __init__(
        self, table: Timetable, *, now: Callable[[], float], connection: Connection, position: Position | None
    ) -> None:
        self.table, self.now, self.connection = table, now, connection
        self.position = position or Position()
        self._first = True

    async def before(self, round: int) -> None:
        """Wait until a round may begin, or until a neighbour has begun it."""
        table, connection = self.table, self.connection
        if self._first and table.pauses:
            await self._meet(round)
        paused = False
        while (seconds := self._left()) > 0 and not self._follows(round):
            paused = True
            connection.submit(Pause(seconds))
            await connection.until(lambda: self._follows(round), by=connection.clock() + min(seconds, LOOK))
        if paused:
            connection.submit(Pause(0.0))
            connection.submit(Turn(round))  # what the pause took is no time of a neighbour
        self._first = False
        self.position = msgspec.structs.replace(self.position, began=self.now())

    def _left(self) -> float:
        """Return the seconds until the next round may begin."""
        now = self.now()
        own = self.table.due(began=self.position.began, now=now) - now
        session = self.connection.session
        if not (self._first and session.pauses):
            return own
        pauses = session.shared.timeouts.pauses.values()  # the others are between two rounds
        return max(own, min(pauses, default=0.0) - self.connection.clock())

    def _follows(self, round: int) -> bool:
        """Return whether this peer begins a round because a neighbour has."""
        if not self.connection.session.has_begun(round):
            return False
        return self._first or self.table.follows(began=self.position.began, now=self.now())

    async def _meet(self, round: int) -> None:
        """Give the neighbours of a peer that joins the time of a few heartbeats to state that they pause."""
        session = self.connection.session
        if session.shared.progress.running:
            by = self.connection.clock() + 3 * PULSE
            await self.connection.until(lambda: session.pauses or session.has_begun(round), by=by)
