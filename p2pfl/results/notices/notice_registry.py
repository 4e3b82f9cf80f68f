"""All kinds of notices."""

from __future__ import annotations

from p2pfl.results.notices import course, damage, device, neighbour_notices, observing
from p2pfl.results.notices.kinds import Notice, kind_of

DEFINED = (course, damage, device, neighbour_notices, observing)
"""Modules that define notices."""


def kinds() -> dict[str, type[Notice]]:
    """Return all classes of notices that occur, by kind.

    Examples
    --------
    >>> sorted(kinds())[:3]
    ['announcement_ahead', 'awaits_return', 'best_model_damaged']
    """
    pending, found = [Notice], list[type[Notice]]()
    while pending:
        one = pending.pop()
        below = one.__subclasses__()
        found += [] if below else [one]
        pending += below
    return {kind_of(one.__name__): one for one in sorted(found, key=lambda one: one.__name__)}
