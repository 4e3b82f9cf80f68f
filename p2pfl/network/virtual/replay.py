"""Replay of the log of a live peer's session: the same peer receives the same at the same moments, in virtual time.

What it sends is discarded; what it receives and draws comes from the log, and its rounds train and end when they
did. It makes the same decisions, under a debugger as often as needed, and ends with the same parameters.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgspec
import torch

from p2pfl.core.errors import InputError, RunError
from p2pfl.core.process import threads
from p2pfl.core.rows import Rows
from p2pfl.experiment import check, plan
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.session_log import (
    Ended,
    Line,
    LoggedDraw,
    LoggedEnd,
    LoggedEnter,
    LoggedPeer,
    LoggedReceived,
    checksum,
)
from p2pfl.network.peer.storage.credentials import credentials
from p2pfl.network.transport import Will
from p2pfl.network.transport.channel import Message, Payload
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.network.virtual.timed_learner import Timed
from p2pfl.privacy.keys import FirstUse, Roster
from p2pfl.results import Record
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.notices.wording import sentence

MOMENT = 0.001
"""Virtual seconds for the consequences of the last line of a recording without an end."""

AFTER = 600.0
"""Timeout in virtual seconds for a peer to end after the last message."""


@dataclass(frozen=True)
class Contents:
    """Contents of a log.

    Attributes
    ----------
    about
        Description of the peer.
    drawn, entered, received, ended
        Secrets, the beginning, arrivals and ended rounds.
    last
        Checksum of the final parameters; empty if the peer was killed, or has not ended yet.
    cut
        True if the file ends in an incomplete line, which is left out.
    """

    about: LoggedPeer
    drawn: tuple[LoggedDraw, ...]
    entered: LoggedEnter
    received: tuple[LoggedReceived, ...]
    ended: tuple[Ended, ...]
    last: str
    cut: bool = False

    @property
    def until(self) -> float:
        """Time of the last event, in seconds since the start."""
        timed: tuple[LoggedEnter | LoggedReceived | Ended, ...] = (self.entered, *self.received, *self.ended)
        return max(each.at for each in timed)


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    Attributes
    ----------
    records, notices
        Records and notices of the peer.
    row
        Checksum of the final parameters.
    same
        True if it equals the checksum of the recording.
    ended
        True if the recording has an end; if not, the replay has no final parameters.
    cut
        True if the recording ends in an incomplete line, which was left out.
    seconds
        Virtual seconds.
    """

    records: tuple[Record, ...]
    notices: tuple[str, ...]
    row: str
    same: bool
    ended: bool
    cut: bool
    seconds: float


class _EndError(RunError):
    """End of the draws in a recording that stopped early."""


def contents(path: Path) -> Contents:
    """Read a recording.

    Raises
    ------
    InputError
        The file is not a recording, or other users can read it.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path}: other users can read this recording; run chmod 600 {path}")
        lines, cut = _lines(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); name a file of recordings/") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: a line is not part of a recording ({error}); record it again") from None
    by: dict[type, list[Any]] = defaultdict(list)
    for line in lines:
        by[type(line)].append(line)
    if not by[LoggedPeer] or not by[LoggedEnter]:
        raise InputError(f"{path}: the recording has {len(lines)} lines, but no peer that joined; record it again")
    last = by[LoggedEnd][0].row if by[LoggedEnd] else ""
    timed = by[LoggedEnter][0], tuple(by[LoggedReceived]), tuple(by[Ended])
    return Contents(by[LoggedPeer][0], tuple(by[LoggedDraw]), *timed, last, cut)


def _lines(data: bytes) -> tuple[list[Line], bool]:
    """Return all lines, and whether an incomplete one follows, which a killed peer may have been writing."""
    *whole, rest = data.split(b"\n")
    lines = [msgspec.json.decode(line, type=Line) for line in whole]
    if rest:
        try:
            lines.append(msgspec.json.decode(rest, type=Line))
        except msgspec.DecodeError:
            return lines, True
    return lines, False


def replayed(path: Path) -> Replayed:
    """Replay a recording as far as it reaches; its run directory has the identity of the peer.

    Raises
    ------
    InputError
        The file is not a recording, or the identity is missing.
    RunError
        The peer does not end, or draws other bytes than those recorded.
    """
    found = contents(path)
    records, notices = list[Record](), list[str]()
    ended = bool(found.last)

    async def life(peer: Peer) -> str:
        async with asyncio.timeout(found.until + (AFTER if ended else MOMENT)), peer:
            state = await peer.run()
        return checksum(state.rows)

    loop = VirtualLoop()
    with threads(found.about.threads), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop()  # closed in any case from here on
        peer = _peer(found, path.parent.parent, loop, records=records, notices=notices)
        try:
            row = runner.run(life(peer))
        except (TimeoutError, _EndError):
            if ended:
                raise RunError(f"the peer waits instead of ending as recorded: {peer.progress}") from None
            row = ""
    return Replayed(tuple(records), tuple(notices), row, row == found.last, ended, found.cut, loop.now)


def _peer(found: Contents, folder: Path, loop: VirtualLoop, *, records: list[Record], notices: list[str]) -> Peer:
    """Return the peer as recorded, with simulated connections."""
    about = found.about
    try:
        table = tomllib.loads(about.experiment)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the experiment of the recording is not valid TOML ({error}); record it again") from None
    resolved = plan(
        check(table, origin="the recording"), only=[about.peer], unaccounted=True
    )  # nothing leaves a replay
    keys = Path(resolved.experiment.trust.keys or folder / "keys")
    if not (keys / f"{about.peer}.pem").exists():
        raise InputError(f"the identity of {about.peer} is not in {keys}; put it back")
    identity = credentials(resolved.experiment.trust, peer=about.peer, folder=keys).identity

    def notice(event: Notice) -> None:
        notices.append(sentence(event))

    return Peer(
        about.peer,
        replace(resolved, learner=Paced(resolved.learner, found.ended, loop=loop)),
        transport=ReplayedTransport(found, loop),
        source=ReplayedSource(found.drawn, ended=bool(found.last)),
        identity=identity,
        trust=FirstUse() if about.roster is None else Roster(about.roster),
        incarnation=about.incarnation,
        observe=lambda record, _: records.append(record),
        notice=notice,
    )


class Paced(Timed):
    """Learner that trains as long as recorded, and ends rounds at the recorded times.

    Parameters
    ----------
    learner
        Learner that does the work.
    ended
        Recorded ends of rounds.
    loop
        Event loop in virtual time.
    """

    def __init__(self, learner: Any, ended: tuple[Ended, ...], *, loop: VirtualLoop) -> None:
        left = {each.round: each.training for each in ended}
        super().__init__(learner, takes=lambda _, round: left.pop(round, 0.0), spend=loop.spent)  # all at once
        self._loop, self._left = loop, left
        self._ends = {each.round: each.at for each in ended}

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return the scores once the round is over."""
        ends = max((at for round, at in self._ends.items() if round not in self._left), default=0.0)
        self._loop.spent(max(0.0, ends - self._loop.spent(0.0)))
        return super().evaluate(rows, peers=peers, part=part)


class ReplayedSource:
    """Source that repeats the recorded draws in order, for each purpose.

    Parameters
    ----------
    drawn
        Recorded draws.
    ended
        True if these are all draws; if not, the peer may draw more than recorded.
    """

    secret = True  # as those of a peer that records itself, which draws from the operating system

    def __init__(self, drawn: tuple[LoggedDraw, ...], *, ended: bool = True) -> None:
        self._ended = ended
        self._left: dict[tuple[str, str, int], deque[bytes]] = defaultdict(deque)
        for each in drawn:
            self._left[each.purpose, each.peer, each.round].append(each.data)

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return the ``size`` recorded bytes."""
        left = self._left[purpose, peer, round]
        if not self._ended and not any(self._left.values()):
            raise _EndError("the recording ends here")
        if not left or len(left[0]) != size:
            raise RunError(
                f"the peer draws {size} bytes of {purpose} in round {round}, which the recording does not "
                "contain; replay it with the version of p2pfl that recorded it"
            )
        return left.popleft()


class ReplayedTransport:
    """Broker that repeats the messages that one peer received.

    Parameters
    ----------
    found
        Contents of the log.
    loop
        Event loop in virtual time.
    """

    def __init__(self, found: Contents, loop: VirtualLoop) -> None:
        self._found, self._loop = found, loop

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator[ReplayedChannel]:
        """Open the channel at the recorded time."""
        del client, will
        entered = self._found.entered
        await asyncio.sleep(entered.at - self._loop.time())
        yield ReplayedChannel(self._found.received, self._loop, limit=entered.limit)


class ReplayedChannel:
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`ReplayedTransport`."""

    def __init__(self, received: tuple[LoggedReceived, ...], loop: VirtualLoop, *, limit: int) -> None:
        self.limit = limit
        self.away = self.grace = 0.0
        self.lost = False
        self._loop = loop
        self._coming = deque(received)

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Discard the message."""
        del topic, data, retain
        await asyncio.sleep(0)

    async def subscribe(self, *filters: str) -> None:
        """Do nothing, as recorded messages arrive in any case."""

    async def unsubscribe(self, *filters: str) -> None:
        """Do nothing, as recorded messages arrive in any case."""

    def abort(self) -> None:
        """Do nothing, as there is no broker."""

    def __aiter__(self) -> Self:
        """Iterate over the recorded messages."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message at its recorded time."""
        if not self._coming:
            await asyncio.Event().wait()  # the peer ends before
        received = self._coming[0]
        await asyncio.sleep(max(0.0, received.at - self._loop.time()))
        self._coming.popleft()
        self.away, self.grace = received.away, received.grace
        return Message(received.topic, received.data, retained=False)
