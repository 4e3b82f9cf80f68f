"""A run directory as the state of its swarm: now, or at any time of a run that has ended."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, Self

from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.experiment import Experiment
from p2pfl.experiment.file.reading import read_kept
from p2pfl.plugins.watch.run_tail import Following
from p2pfl.results.lock import PEER_LOCK, RUN_LOCK, alive
from p2pfl.results.run_files import table_of
from p2pfl.results.swarm.state import Entry, Setting, Swarm
from p2pfl.results.swarm.timeline import find_start, merge_entries, setting_of

SETTLED_AGE = timedelta(seconds=0.2)
"""Age of a line from which all lines that were written before it are taken to be in the files."""

QUIET_SECONDS = 10.0
"""Seconds without a line after which a run whose processes are gone counts as interrupted."""

MAX_DRAWN_PEERS = 300
"""Peers up to which the graph is drawn; more are shown as cells."""

Stage = Literal["running", "ended", "interrupted"]
"""State of a run: it has no summary and its processes live; it has one; neither."""

Places = dict[str, tuple[float, float]]
"""Positions of the peers in the drawing; empty if there are too many."""


def graph_of(experiment: Experiment, *, trusted: bool = True) -> tuple[Setting, Places]:
    """Return the facts that the events of an experiment do not repeat, and the positions of its peers.

    Code that an experiment names is imported only if it is ``trusted``.

    Raises
    ------
    P2PFLError
        The topology cannot be built or read.
    """
    from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415 (imports networkx)
    from p2pfl.topology.networkx_graphs import positions  # noqa: PLC0415

    setting = setting_of(experiment, trusted=trusted)
    return setting, positions(built(experiment, trusted=trusted).union) if len(setting.peers) <= MAX_DRAWN_PEERS else {}


class Timeline:
    """Events in the order of their times, and the states that they lead to.

    Parameters
    ----------
    setting
        Facts that the events do not repeat.

    Examples
    --------
    >>> timeline = Timeline(Setting(peers=("ada",)))
    >>> timeline.span, timeline.swarm(3.0).count
    (0.0, 0)
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._events: list[tuple[float, Entry]] = []
        self._swarm, self._next = Swarm(setting), 0

    @property
    def span(self) -> float:
        """Time of the last event in seconds since the start of the run."""
        return self._events[-1][0] if self._events else 0.0

    def extend(self, events: Iterable[tuple[float, Entry]]) -> None:
        """Take events with their times; they may be earlier than some that are here."""
        self._events = sorted([*self._events, *events], key=itemgetter(0))
        self._swarm, self._next = Swarm(self._setting), 0

    def swarm(self, at: float) -> Swarm:
        """Return the state at a time; it is valid until the next call."""
        until = bisect.bisect_right(self._events, at, key=itemgetter(0))
        if until < self._next:
            self._swarm, self._next = Swarm(self._setting), 0
        for event in self._events[self._next : until]:
            self._swarm.apply(*event)
        self._next = until
        return self._swarm


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
    sink
        As given.
    observed
        False: times count from the start of the run.
    timed
        True if its lines have times; those of a simulation have none.
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
        trust_code: bool = False,
    ) -> None:
        if not (folder / "experiment.toml").is_file():
            raise InputError(f"{folder} is not a run directory with experiment.toml; check the path")
        self.folder = folder
        self._trusted = trust_code
        self._experiment = read_kept(folder / "experiment.toml", whole=False)
        self._now = now
        self.sink = sink
        self._stack = ExitStack()
        self._following = self._stack.enter_context(Following(folder))
        self._past: Following | None = None
        self._began: datetime | None = None
        self.timed = self.observed = False
        self._delayed: list[Entry] = []
        self._swarm: Swarm | None = None
        self.summary: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Begin to read."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the files."""
        self.close()

    @property
    def setting(self) -> Setting:
        """Facts that the events do not repeat."""
        return self._graph[0]

    @property
    def places(self) -> Places:
        """Places of the peers; none if the graph cannot be made again."""
        return self._graph[1]

    @property
    def swarm(self) -> Swarm:
        """State after all lines that were read."""
        if self._swarm is None:
            self._swarm = Swarm(self.setting)
        return self._swarm

    @cached_property
    def _timeline(self) -> Timeline:
        return Timeline(self.setting)

    @property
    def unread(self) -> int:
        """Number of lines that could not be read."""
        return self._following.unread

    def refresh(self) -> None:
        """Read what is new."""
        now = self._now()
        for news in self._following.batches():
            if news.reset:
                self._start_again()
            self._take(news.entries, now=now)
        if not self.summary:
            self.summary = table_of(self.folder / "summary.json", what="a summary")
            if self.summary and not self.timed:
                self.swarm.end()

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    @property
    def stage(self) -> Stage:
        """State of the run: live or ended."""
        if self.summary:
            return "ended"
        locks = [path for name in (RUN_LOCK, PEER_LOCK) if (path := self.folder / name).exists()]
        dead = bool(locks) and not any(alive(path) for path in locks)
        return "interrupted" if dead and self._elapsed() - self.swarm.at > QUIET_SECONDS else "running"

    @property
    def at(self) -> float:
        """Present time of the run in seconds since its start; that of its last event once it is over."""
        return max(self.swarm.at, self._elapsed()) if self.stage == "running" else self.swarm.at

    @property
    def began(self) -> datetime | None:
        """Start of the run in UTC, if its files have it."""
        return self._began

    def replay(self) -> Timeline:
        """Return the whole run, for the state at any time of it; after the first call, only what is new is read."""
        if self._past is None:
            self._past = self._stack.enter_context(Following(self.folder))
        news = self._past.read_new()
        if news.reset:
            self._timeline = Timeline(self.setting)
        if news.entries:
            began = self._began or find_start(_read_start(self.folder), news.entries)
            self._timeline.extend(merge_entries(news.entries, began=began))
        return self._timeline

    @cached_property
    def _graph(self) -> tuple[Setting, Places]:
        """Return the facts that events do not repeat, and the positions of peers."""
        try:
            return graph_of(self._experiment, trusted=self._trusted)
        except P2PFLError:  # a graph file of another place, or a function
            wanted = self._experiment
            return Setting(
                name=wanted.name, rounds=0 if wanted.endless else wanted.horizon, epsilon=wanted.privacy.epsilon
            ), {}

    def _start_again(self) -> None:
        self._swarm, self.summary, self._began, self._delayed = None, {}, None, []

    def _take(self, entries: list[Entry], *, now: datetime) -> None:
        """Apply entries in the order of their times.

        Two files are read one after the other. A recent entry therefore waits until the next look, which finds earlier
        entries of the other file. An entry with a time in the future, by the clock of another machine, does not wait.
        """
        if self._began is None and entries:
            self._began = find_start(_read_start(self.folder), entries)
            self.timed = any(entry.time is not None for entry in entries)
        fresh = [entry for entry in entries if entry.time is not None and now - SETTLED_AGE < entry.time <= now]
        delayed, self._delayed = self._delayed, fresh
        late = {id(entry) for entry in fresh}
        ready = [*delayed, *(entry for entry in entries if id(entry) not in late)]
        for at, entry in merge_entries(ready, began=self._began):
            self.swarm.apply(at, entry)
            if self.sink is not None:
                self.sink(entry)

    def _elapsed(self) -> float:
        """Return the seconds since the start; a simulation knows only its rounds."""
        if self._began is None or not self.timed:
            return 0.0
        return (self._now() - self._began).total_seconds()


def _read_start(folder: Path) -> str | None:
    began = table_of(folder / "provenance.json", what="the provenance of a run").get("began")
    return began if isinstance(began, str) else None
