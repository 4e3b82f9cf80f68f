"""A run directory as the state of its swarm: now, or at any time of a run that has ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

from p2pfl.errors import InputError, P2PFLError
from p2pfl.experiment.file.reading import kept
from p2pfl.experiment.outline import built, loaded
from p2pfl.peer.storage.lock import PEER, RUN, alive
from p2pfl.report.run import table_of
from p2pfl.report.swarm.state import Entry, Setting, Swarm
from p2pfl.report.swarm.timeline import beginning, merged, setting_of
from p2pfl.topology.drawing import positions
from p2pfl.watch.following import Following

Stage = Literal["running", "ended", "interrupted"]
"""Whether a run goes on: it has no summary and its processes live; it has one; neither."""

DRAWN = 300
"""Largest number of peers whose graph is drawn; more are shown as cells."""

SETTLED = timedelta(seconds=0.2)
"""Age of a line from which all lines that were written before it are taken to be in the files."""

QUIET = 10.0
"""Seconds without a line after which a run whose processes are gone counts as interrupted."""


class Feed:
    """State of the swarm of a run directory.

    Parameters
    ----------
    folder
        The run directory.
    now
        Returns the time in UTC.
    sink
        Called with each record and notice that is new.

    Attributes
    ----------
    setting, places
        What the events do not repeat, and where peers are drawn.
    sink
        As given.
    timed
        Whether its lines have times; those of a simulation have none.
    swarm
        State after all lines that were read.
    summary
        Content of ``summary.json``; empty until it exists.

    Raises
    ------
    InputError
        The folder is not a run directory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sink: Callable[[Entry], None] | None = None,
    ) -> None:
        if not (folder / "experiment.toml").is_file():
            raise InputError(f"{folder} is not a run directory with experiment.toml; check the path")
        self.folder = folder
        self.setting, self.places = _setting(folder)
        self._now = now
        self.sink = sink
        self._following = Following(folder)
        self._began: datetime | None = None
        self.timed = False
        self._held: list[Entry] = []
        self._replay: Replay | None = None
        self.swarm = Swarm(self.setting)
        self.summary: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Begin to read."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the files."""
        self.close()

    @property
    def unread(self) -> int:
        """Number of lines that could not be read."""
        return self._following.unread

    def refresh(self) -> None:
        """Read what is new."""
        now = self._now()
        news = self._following.everything()
        if news.reset:
            self._start_again()
        self._take(news.entries, now=now)
        if not self.summary:
            self.summary = table_of(self.folder / "summary.json", what="a summary")

    def close(self) -> None:
        """Close the files."""
        self._following.close()

    @property
    def stage(self) -> Stage:
        """State of the run: live or ended."""
        if self.summary:
            return "ended"
        locks = [path for name in (RUN, PEER) if (path := self.folder / name).exists()]
        dead = bool(locks) and not any(alive(path) for path in locks)
        return "interrupted" if dead and self._elapsed() - self.swarm.at > QUIET else "running"

    @property
    def at(self) -> float:
        """Present time of the run in seconds since its start; that of its last event once it is over."""
        return max(self.swarm.at, self._elapsed()) if self.stage == "running" else self.swarm.at

    @property
    def began(self) -> datetime | None:
        """Start of the run in UTC, if its files have it."""
        return self._began

    def replay(self) -> Replay:
        """Return the whole run, for the state at any time of it."""
        if self._replay is None or self._replay.count < self.swarm.count:
            self._replay = Replay(self.folder, self.setting)
        return self._replay

    def _start_again(self) -> None:
        self.swarm, self.summary, self._began, self._held = Swarm(self.setting), {}, None, []

    def _take(self, entries: list[Entry], *, now: datetime) -> None:
        """Apply entries in the order of their times.

        Two files are read one after the other, so an entry of this very moment is held until the next look, which
        finds what was written before it to the other file. One of the future is of another machine's clock.
        """
        if self._began is None and entries:
            self._began = beginning(_began(self.folder), entries)
            self.timed = any(entry.time is not None for entry in entries)
        fresh = [entry for entry in entries if entry.time is not None and now - SETTLED < entry.time <= now]
        held, self._held = self._held, fresh
        late = {id(entry) for entry in fresh}
        ready = [*held, *(entry for entry in entries if id(entry) not in late)]
        for at, entry in merged(ready, began=self._began):
            self.swarm.apply(at, entry)
            if self.sink is not None:
                self.sink(entry)

    def _elapsed(self) -> float:
        """Return the seconds since the start; a simulation knows only its rounds."""
        if self._began is None or not self.timed:
            return 0.0
        return (self._now() - self._began).total_seconds()


class Replay:
    """State of a swarm at any time of its run.

    Parameters
    ----------
    folder
        The run directory.
    setting
        What the events do not repeat.

    Attributes
    ----------
    span
        Time of the last event, in seconds since the start of the run.
    """

    def __init__(self, folder: Path, setting: Setting) -> None:
        self._setting = setting
        with Following(folder) as following:
            entries = following.everything().entries
        began = beginning(_began(folder), entries)
        self._timeline = merged(entries, began=began)
        self.count = len(self._timeline)
        self.span = self._timeline[-1][0] if self._timeline else 0.0
        self._swarm, self._next = Swarm(setting), 0

    def swarm(self, at: float) -> Swarm:
        """Return the state at a time; going on from the last time asked for is fast."""
        if self._next and at < self._swarm.at:
            self._swarm, self._next = Swarm(self._setting), 0
        while self._next < self.count and self._timeline[self._next][0] <= at:
            self._swarm.apply(*self._timeline[self._next])
            self._next += 1
        return self._swarm


def _setting(folder: Path) -> tuple[Setting, dict[str, tuple[float, float]]]:
    """Return what events do not repeat, and where peers are drawn; without a graph if it cannot be made again."""
    experiment = kept(folder / "experiment.toml", whole=False)
    try:
        setting = setting_of(experiment)
        drawn = len(setting.peers) <= DRAWN
        return setting, positions((loaded(experiment) or built(experiment)).union) if drawn else {}
    except P2PFLError:  # a graph file of another place
        epsilon = experiment.privacy.epsilon
        return Setting(name=experiment.name, rounds=experiment.rounds, epsilon=epsilon), {}


def _began(folder: Path) -> str | None:
    found = table_of(folder / "provenance.json", what="the provenance of a run").get("began")
    return found if isinstance(found, str) else None
