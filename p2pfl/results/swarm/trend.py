"""Peers whose loss rises during the run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from p2pfl.results.records import Record

FEWEST = 5
"""Number of rounds before which no trend is seen."""

ROWS = 3
"""Number of rounds in a row in which the loss rises."""

WORSE = 2.0
"""Ratio of the loss to its lowest value from which the loss counts as rising."""


@dataclass(frozen=True)
class Course:
    """Course of the loss of one peer.

    Attributes
    ----------
    rounds
        Number of rounds.
    lowest, last
        Lowest value so far, and the last one.
    rising
        Number of last rounds in a row in which it rose.
    """

    rounds: int = 0
    lowest: float = math.inf
    last: float = math.inf
    rising: int = 0

    def after(self, loss: float) -> Course:
        """Return the course after one more round."""
        rising = self.rising + 1 if not loss <= self.last else 0  # NaN rises
        return Course(self.rounds + 1, min(self.lowest, loss), loss, rising)

    @property
    def diverges(self) -> bool:
        """True if the loss is no number, or has risen for some rounds to a multiple of its lowest value."""
        if self.rounds and not math.isfinite(self.last):
            return True
        return self.rounds >= FEWEST and self.rising >= ROWS and self.last > WORSE * self.lowest

    @property
    def recovered(self) -> bool:
        """True if the loss is near its lowest value again."""
        return self.last <= (1 + WORSE) / 2 * self.lowest


@dataclass
class Trends:
    """Courses of the losses of all peers.

    Attributes
    ----------
    diverging
        By peer whose loss diverges: when this was seen first.

    Examples
    --------
    >>> trends = Trends()
    >>> facts = {"peer": "ada", "training_loss": None, "distance": 0.0, "bytes_out": 0, "bytes_in": 0, "received": 2}
    >>> facts |= {"seconds_training": 0.0, "seconds_waiting": 0.0}
    >>> for t, loss in enumerate([2.0, 1.0, 1.5, 2.5, 4.0]):
    ...     trends.take(float(t), Record(round=t, scores={"loss": loss}, **facts))
    >>> trends.diverging, trends.course("ada").lowest
    ({'ada': 4.0}, 1.0)
    """

    diverging: dict[str, float] = field(default_factory=dict)
    _courses: dict[str, Course] = field(default_factory=dict)

    def course(self, peer: str) -> Course:
        """Return the course of a peer."""
        return self._courses.get(peer, Course())

    def take(self, at: float, record: Record) -> None:
        """Take the record of a round."""
        if (loss := record.scores.get("loss")) is None:
            return
        course = self.course(record.peer).after(loss)
        self._courses[record.peer] = course
        if course.diverges:
            self.diverging.setdefault(record.peer, at)
        elif course.recovered:
            self.diverging.pop(record.peer, None)
