"""Pauses of a live peer between its rounds, by the timetable of the run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from p2pfl.core.errors import PeerError, RunError
from p2pfl.experiment.timetable import Position, Timetable
from p2pfl.network.peer.connection import Connection
from p2pfl.network.protocol.interface.requests import Pause, Turn
from p2pfl.network.protocol.session.shared import PULSE

CLOCK_PERIOD = 60.0
"""Seconds after which a peer that pauses or sleeps reads its clock again, which people and networks set."""


class AsleepError(PeerError):
    """Error for a device that sleeps, and leaves the others until then.

    Attributes
    ----------
    wakes
        Time at which it wakes, in seconds since 1970.
    """

    def __init__(self, wakes: float) -> None:
        super().__init__(f"the device sleeps until {wakes:.0f} s after 1970")
        self.wakes = wakes


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
        self._joins = True  # it follows the others, which know when the round begins
        self._before: int | None = None  # bytes before the last round

    async def before(self, round: int) -> None:
        """Wait until a round may begin, or until a neighbour has begun it.

        Raises
        ------
        AsleepError
            This device does not take part in it.
        RunError
            Several rounds in a row took more bytes than the device may send and receive on a day.
        """
        table, connection = self.table, self.connection
        if not (table.pauses or table.sleeps):
            return  # without a reading of the clock, which a checkpoint would keep
        if self._before is not None:
            self._count(self._total - self._before)
        elif table.pauses:
            await self._meet(round)
        paused = False
        while (seconds := self._left()) > 0 and not self._follows(round):
            self._stay_awake(self.now() + seconds)
            paused = True
            connection.submit(Pause(seconds))
            await connection.until(lambda: self._follows(round), by=connection.clock() + min(seconds, CLOCK_PERIOD))
        if paused:
            connection.submit(Pause(0.0))
            connection.submit(Turn(round))  # what the pause took is no time of a neighbour
        self._stay_awake(self.now())
        self._joins = False
        self.position = msgspec.structs.replace(self.position, began=self.now())
        self._before = self._total

    @property
    def _total(self) -> int:
        """Bytes that the device has sent and received in the run."""
        return self.connection.bytes_out + self.connection.bytes_in

    def _count(self, took: int) -> None:
        """Record the bytes that the last round took."""
        self.position = self.position.after(took)
        limit = self.table.bytes
        if limit is not None and (excess := self.position.excess(limit)) is not None:
            raise RunError(
                f"each of the last rounds took {excess:,} bytes or more, and transport.pace.bytes permits {limit:,} a "
                "day; raise it, or take a smaller model or fewer neighbours"
            )

    def _stay_awake(self, due: float) -> None:
        """Raise an error if this device sleeps when the next round may begin."""
        wakes = self.table.wakes(due, position=self.position, total=self._total)
        if wakes > due:
            raise AsleepError(wakes)

    def _left(self) -> float:
        """Return the seconds until the next round may begin; record the time, as the clock may have been set."""
        now = self.now()
        began, self.position = self.position.began, self.position.at(self._total, now=now)
        self._joins |= began != self.position.began  # the clock was ahead, and nothing else says when it began
        own = self.table.due(began=self.position.began, now=now) - now
        session = self.connection.session
        if not (self._joins and session.pauses):
            return own
        pauses = session.shared.timeouts.pauses.values()  # the others are between two rounds
        return max(own, min(pauses, default=0.0) - self.connection.clock())

    def _follows(self, round: int) -> bool:
        """Return whether this peer begins a round because a neighbour has."""
        if not self.connection.session.has_begun(round):
            return False
        return self._joins or self.table.follows(began=self.position.began, now=self.now())

    async def _meet(self, round: int) -> None:
        """Wait a few heartbeats, in which the neighbours of a peer that joins can state that they pause."""
        session = self.connection.session
        if session.shared.running:
            by = self.connection.clock() + 3 * PULSE
            await self.connection.until(lambda: session.pauses or session.has_begun(round), by=by)
