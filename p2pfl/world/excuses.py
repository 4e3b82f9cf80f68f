"""Whether a neighbour may have stayed away: from when each of two was there, and what kept them apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

Span = tuple[float, float]
"""From when to when, in seconds of the world."""

MEET = 30.0
"""Seconds in which two that are both there have met, whatever the broker drops: as long as a claim is repeated."""


class Stay(Protocol):
    """How somebody was there."""

    @property
    def spans(self) -> Sequence[Span]:
        """When its lives were connected."""

    @property
    def killed(self) -> bool:
        """Whether the last ended for good before its time."""

    @property
    def error(self) -> BaseException | None:
        """What the last ended with."""


def excuse(other: Stay, mine: Span, *, apart: Iterable[Span], met: bool = False) -> str:
    """Why a neighbour need not have been there for a peer at the end of its life; empty if it must have.

    What counts is the neighbour's last life in that time, of which alone it can be said that it did not come.

    Parameters
    ----------
    other
        The neighbour.
    mine
        The life of the peer that missed it.
    apart
        When either of them could not speak.
    met
        Whether they have met, so that nothing but its end, or that it seemed to have come, explains that it is away.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> mine, ended = (100.0, 220.0), {"killed": False, "error": None}
    >>> excuse(SimpleNamespace(spans=[(0.0, 90.0)], **ended), mine, apart=[])
    'had ended'
    >>> long = SimpleNamespace(spans=[(0.0, 150.0)], **ended)
    >>> excuse(long, mine, apart=[]), excuse(long, mine, apart=[], met=True)
    ('', 'had ended')
    """
    before = [span for span in other.spans if span[0] < mine[1]]
    if not before:
        return "was not there yet"
    last = before[-1]
    shared = last if not met else (max(last[0], mine[1] - MEET), last[1])
    if max(together(shared, mine, apart=apart), default=0.0) >= MEET:
        return ""
    if last[1] >= mine[1]:
        return "could not speak"
    if last[1] > mine[0] and not met:
        return "was there too briefly"
    if last != other.spans[-1]:
        return "was down"
    if other.killed:
        return "was killed"
    return "had ended" if other.error is None else "had failed"


def together(one: Span, other: Span, *, apart: Iterable[Span]) -> list[float]:
    """The stretches of time that two spans have in common, without those in between.

    Examples
    --------
    >>> together((0.0, 10.0), (2.0, 20.0), apart=[(3.0, 5.0), (4.0, 6.0)])
    [1.0, 4.0]
    """
    start, end = max(one[0], other[0]), min(one[1], other[1])
    found = []
    for begin, over in sorted(apart):
        if start < min(begin, end):
            found.append(min(begin, end) - start)
        start = max(start, over)
    return [*found, end - start] if start < end else found
