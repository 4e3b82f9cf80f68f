"""A live peer's recording, played again: the same peer hears the same at the same moments, in virtual time.

What it says goes nowhere; what it hears and draws comes from the recording, and its rounds train and end when they did.
So it decides what it decided, under a debugger as often as one likes, and ends in the same row.
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

from p2pfl.errors import InputError, RunError
from p2pfl.experiment import check, plan
from p2pfl.identity import FirstUse, Roster
from p2pfl.peer import Notice, Peer
from p2pfl.peer.launch.recorder import About, Came, Drawn, Ended, Joined, Last, Line, checksum
from p2pfl.peer.storage.credentials import credentials
from p2pfl.report import Record
from p2pfl.rows import Rows
from p2pfl.transport import Will
from p2pfl.transport.channel import Message, Payload
from p2pfl.virtual.clock import VirtualLoop
from p2pfl.virtual.learner import Timed

MOMENT = 0.001
"""Virtual seconds for what the last line of a recording without an end sets off."""

AFTER = 600.0
"""Virtual seconds after the last message in which a peer must have ended."""


@dataclass(frozen=True)
class Tape:
    """A recording, read.

    Attributes
    ----------
    about
        Who it was.
    drawn, joined, came, ended
        What it drew and heard.
    last
        The checksum of its last row; empty if it did not come so far: it was killed, or is not through yet.
    cut
        Whether the file ends in a part of a line, which is left out.
    """

    about: About
    drawn: tuple[Drawn, ...]
    joined: tuple[Joined, ...]
    came: tuple[Came, ...]
    ended: tuple[Ended, ...]
    last: str
    cut: bool = False

    @property
    def until(self) -> float:
        """When the last of it was, in seconds since the beginning."""
        timed: tuple[Joined | Came | Ended, ...] = (*self.joined, *self.came, *self.ended)
        return max(each.at for each in timed)


@dataclass(frozen=True)
class Replayed:
    """What came of it.

    Attributes
    ----------
    records, notices
        As the peer told them.
    row
        The checksum of its last row.
    same
        Whether that is the row of the recording.
    ended
        Whether the recording has an end; if not, the peer was played as far as it reaches, and has no last row.
    cut
        Whether the recording ended in a part of a line, which was left out.
    seconds
        Virtual ones.
    """

    records: tuple[Record, ...]
    notices: tuple[str, ...]
    row: str
    same: bool
    ended: bool
    cut: bool
    seconds: float


class _EndError(RunError):
    """Nothing more was drawn before the recording stopped."""


def tape(path: Path) -> Tape:
    """Read a recording.

    Raises
    ------
    InputError
        It is none, or open to others.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path}: expected a recording that only its owner can read: run chmod 600 {path}")
        lines, cut = _lines(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: expected a recording, got: {error.strerror}: name a file of recordings/") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: expected a recording, got a line that is none: {error}") from None
    by: dict[type, list[Any]] = defaultdict(list)
    for line in lines:
        by[type(line)].append(line)
    if not by[About] or not by[Joined]:
        raise InputError(f"{path}: expected a recording of a peer that joined, got {len(lines)} lines without that")
    last = by[Last][0].row if by[Last] else ""
    return Tape(by[About][0], tuple(by[Drawn]), tuple(by[Joined]), tuple(by[Came]), tuple(by[Ended]), last, cut)


def _lines(data: bytes) -> tuple[list[Line], bool]:
    """All lines, and whether there is a part of one more: a peer that is killed may be writing it."""
    *whole, rest = data.split(b"\n")
    lines = [msgspec.json.decode(line, type=Line) for line in whole]
    if rest:
        try:
            lines.append(msgspec.json.decode(rest, type=Line))
        except msgspec.DecodeError:
            return lines, True
    return lines, False


def replayed(path: Path) -> Replayed:
    """Play a recording again, as far as it reaches; its run directory has the peer's identity.

    Raises
    ------
    InputError
        It is no recording, or its identity is gone.
    RunError
        The peer does not end, or draws or does what it had not.
    """
    found = tape(path)
    torch.set_num_threads(found.about.threads)
    records, notices = list[Record](), list[str]()
    ended = bool(found.last)

    async def life(peer: Peer) -> str:
        async with asyncio.timeout(found.until + (AFTER if ended else MOMENT)), peer:
            state = await peer.run()
        return checksum(state.rows)

    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop()  # whatever happens now, it is closed
        peer = _peer(found, path.parent.parent, loop, records=records, notices=notices)
        try:
            row = runner.run(life(peer))
        except (TimeoutError, _EndError):
            if ended:
                raise RunError(f"expected the peer to end as it did, but it waits: {peer.progress}") from None
            row = ""
    return Replayed(tuple(records), tuple(notices), row, row == found.last, ended, found.cut, loop.now)


def _peer(found: Tape, folder: Path, loop: VirtualLoop, *, records: list[Record], notices: list[str]) -> Peer:
    """The peer as it was, but for what it is connected to."""
    about = found.about
    try:
        table = tomllib.loads(about.experiment)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"expected a recording with its experiment as TOML, got: {error}: record it anew") from None
    resolved = plan(check(table, origin="the recording"), only=[about.peer])
    keys = Path(resolved.experiment.trust.keys or folder / "keys")
    if not (keys / f"{about.peer}.pem").exists():
        raise InputError(f"expected the identity of {about.peer} in {keys}, got none: put it back")
    identity = credentials(resolved.experiment.trust, peer=about.peer, folder=keys).identity

    def notice(told: Notice) -> None:
        notices.append(told.sentence)

    return Peer(
        about.peer,
        replace(resolved, learner=Paced(resolved.learner, found.ended, loop=loop)),
        transport=TapedTransport(found, loop),
        source=TapedSource(found.drawn, ended=bool(found.last)),
        identity=identity,
        trust=FirstUse() if about.roster is None else Roster(about.roster),
        incarnation=about.incarnation,
        observe=lambda record, _: records.append(record),
        notice=notice,
    )


class Paced(Timed):
    """A learner that trains as long as it did, and is through with a round when it was.

    Parameters
    ----------
    learner
        What it learns.
    ended
        When rounds did.
    loop
        Whose time it takes.
    """

    def __init__(self, learner: Any, ended: tuple[Ended, ...], *, loop: VirtualLoop) -> None:
        left = {each.round: each.training for each in ended}
        super().__init__(learner, takes=lambda _, round: left.pop(round, 0.0), spend=loop.spent)  # all at once
        self._loop, self._left = loop, left
        self._ends = {each.round: each.at for each in ended}

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Scores, once the round was over."""
        ends = max((at for round, at in self._ends.items() if round not in self._left), default=0.0)
        self._loop.spent(max(0.0, ends - self._loop.spent(0.0)))
        return super().evaluate(rows, peers=peers, part=part)


class TapedSource:
    """Draws what was drawn, in order, for each purpose.

    Parameters
    ----------
    drawn
        All of it.
    ended
        Whether the peer drew no more than that; if not, it may go on to draw what is not written down.
    """

    def __init__(self, drawn: tuple[Drawn, ...], *, ended: bool = True) -> None:
        self._ended = ended
        self._left: dict[tuple[str, str, int], deque[bytes]] = defaultdict(deque)
        for each in drawn:
            self._left[each.purpose, each.peer, each.round].append(each.data)

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return the ``size`` bytes that came then."""
        left = self._left[purpose, peer, round]
        if not self._ended and not any(self._left.values()):
            raise _EndError("expected more of the recording, got its end")
        if not left or len(left[0]) != size:
            raise RunError(
                f"expected to draw what was drawn, got a wish for {size} bytes of {purpose} in round {round}: "
                "it is not this version of p2pfl that was recorded, or it does not decide the same again"
            )
        return left.popleft()


class TapedTransport:
    """A broker that says again what one peer heard.

    Parameters
    ----------
    found
        The recording.
    loop
        In virtual time.
    """

    def __init__(self, found: Tape, loop: VirtualLoop) -> None:
        self._found, self._loop = found, loop

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator[TapedChannel]:
        """Open the channel, when it was open."""
        del client, will
        joined = self._found.joined[0]
        await asyncio.sleep(joined.at - self._loop.time())
        yield TapedChannel(self._found.came, self._loop, limit=joined.limit)


class TapedChannel:
    """The :class:`~p2pfl.transport.channel.Channel` of :class:`TapedTransport`."""

    def __init__(self, came: tuple[Came, ...], loop: VirtualLoop, *, limit: int) -> None:
        self.limit = limit
        self.away = self.grace = 0.0
        self.lost = False
        self._loop = loop
        self._coming = deque(came)

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Nobody hears it."""
        del topic, data, retain
        await asyncio.sleep(0)

    async def subscribe(self, *filters: str) -> None:
        """What was subscribed to comes."""

    async def unsubscribe(self, *filters: str) -> None:
        """What comes came."""

    def abort(self) -> None:
        """Nobody is told."""

    def __aiter__(self) -> Self:
        """Iterate over what came."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message, when it came."""
        if not self._coming:
            await asyncio.Event().wait()  # the peer ends before
        came = self._coming[0]
        await asyncio.sleep(max(0.0, came.at - self._loop.time()))
        self._coming.popleft()
        self.away, self.grace = came.away, came.grace
        return Message(came.topic, came.data, came.retained)
