"""Turns of the members of a committee to begin ballots: one in each cycle, and longer ones in each further cycle."""

from __future__ import annotations

MAX_DOUBLINGS = 6
"""Maximum number of doublings of the turn of a proposer."""


def turn(number: int, seats: int) -> int:
    """Return the number of pauses from the turn of ballot 1 up to that of another one.

    Parameters
    ----------
    number
        Number of the ballot, from 1 on.
    seats
        Number of members of the committee, each of which has one turn in each cycle.

    Examples
    --------
    >>> [turn(number, 3) for number in range(1, 8)]
    [0, 1, 2, 3, 5, 7, 9]
    """
    cycle, rank = divmod(number - 1, seats)
    doublings = min(cycle, MAX_DOUBLINGS)
    length = 1 << doublings
    return seats * (length - 1) + ((cycle - doublings) * seats + rank) * length
