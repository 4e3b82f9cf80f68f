"""Sources of the page: a run directory or a live swarm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

from p2pfl.plugins.watch.swarm_timeline import Timeline
from p2pfl.results.swarm.state import Entry, Setting, Swarm

Stage = Literal["running", "ended", "interrupted"]
"""State of a run: it has no summary and its processes live; it has one; neither."""

DRAWN = 300
"""Largest number of peers whose graph is drawn; more are shown as cells."""


class StateSource(Protocol):
    """Interface to the state of a swarm, see :class:`p2pfl.plugins.watch.feed.Feed`."""

    @property
    def setting(self) -> Setting:
        """Parts of the experiment that its events do not repeat."""
        ...

    @property
    def places(self) -> Mapping[str, tuple[float, float]]:
        """Where peers are drawn."""
        ...

    @property
    def sink(self) -> Callable[[Entry], None] | None:
        """Function that is called with each record and notice that is new."""
        ...

    @property
    def swarm(self) -> Swarm:
        """State after all events that were read."""
        ...

    @property
    def summary(self) -> Mapping[str, Any]:
        """Content of ``summary.json``; empty until it exists."""
        ...

    @property
    def stage(self) -> Stage:
        """State of the run."""
        ...

    @property
    def at(self) -> float:
        """Present time in seconds."""
        ...

    @property
    def began(self) -> datetime | None:
        """Time zero in UTC, if it is known."""
        ...

    @property
    def timed(self) -> bool:
        """True if the events have times."""
        ...

    @property
    def observed(self) -> bool:
        """True if times count from when somebody began to look, not from the start of the run."""
        ...

    @property
    def unread(self) -> int:
        """Number of events that could not be read."""
        ...

    def refresh(self) -> None:
        """Read what is new."""
        ...

    def abandon(self) -> None:
        """Stop waiting for the graph, because nobody looks any more."""
        ...

    def replay(self) -> Timeline:
        """Return all events, for the state at any time."""
        ...
