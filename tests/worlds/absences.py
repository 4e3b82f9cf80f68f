"""Decide whether neighbours may have stayed away: from when each was there, and what kept them apart.

A peer is there once it has announced itself. Before, it claims its name, and repeats a claim that the broker drops
after up to 7.5 seconds, for 30 seconds at most.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

Span = tuple[float, float]
"""From when to when, in seconds of the world."""

MEET = 10.0
"""Seconds in which two that are both there have met, whatever the broker drops: announcements are
repeated each second."""

NARROW = 30.0
"""The same where lines are narrow, and an announcement waits behind all before it: as long as a claim is repeated."""


class Stay(Protocol):
    """How somebody was there."""

    @property
    def spans(self) -> Sequence[Span]:
        """Times from the announcement of each life to its goodbye, one after the other."""

    @property
    def killed(self) -> bool:
        """Whether the last ended for good before its time."""

    @property
    def error(self) -> BaseException | None:
        """What the last ended with."""


def excuse(other: Stay, mine: Span, *, apart: Collection[Span], met: bool, within: float = MEET) -> str:
    """Why a neighbour was not there when a peer gave up; empty if it must have been.

    Parameters
    ----------
    other
        The neighbour. Of its lives the last in that time counts, of which alone it can be said that it did not come.
    mine
        The life of the peer that gave up.
    apart
        When either of them could not speak.
    met
        Whether they have met, so that nothing but its end, or what looked like it, explains that it is away.
    within
        Seconds in which two that are both there meet.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> long = SimpleNamespace(spans=[(0.0, 150.0)], killed=False, error=None)
    >>> excuse(long, (100.0, 220.0), apart=[], met=False), excuse(long, (100.0, 220.0), apart=[], met=True)
    ('', 'had ended')
    """
    before = [span for span in other.spans if span[0] < mine[1]]
    if not before:
        return "was not there yet"
    start, end = before[-1]
    shared = (max(start, mine[1] - within), end) if met else (start, end)
    if meet([mine], [shared], apart=apart, within=within):
        return ""
    if end >= mine[1]:
        return "could not speak"
    if end > mine[0] and not met:
        return "was there too briefly"
    if (start, end) != other.spans[-1]:
        return "was down"
    if other.killed:
        return "was killed"
    return "had ended" if other.error is None else "had failed"


def meet(*spans: Sequence[Span], apart: Collection[Span], within: float = MEET) -> bool:
    """Whether all were there together, and could speak, for as long as it takes to meet.

    Parameters
    ----------
    spans
        Of each, when it was there, one after the other.
    apart
        When one of them could not speak.
    within
        How many seconds that is.

    Examples
    --------
    >>> meet([(0.0, 100.0)], [(20.0, 90.0)], apart=[(45.0, 55.0), (50.0, 52.0)])
    True
    >>> meet([(0.0, 100.0)], [(20.0, 90.0)], apart=[(29.0, 81.0)])
    False
    """
    common, *others = spans
    for other in others:
        both = ((max(a, c), min(b, d)) for a, b in common for c, d in other)
        common = [(start, end) for start, end in both if start < end]
    for since, until in apart:
        pieces = [piece for start, end in common for piece in ((start, min(end, since)), (max(start, until), end))]
        common = [(start, end) for start, end in pieces if start < end]
    return any(end - start >= within for start, end in common)
