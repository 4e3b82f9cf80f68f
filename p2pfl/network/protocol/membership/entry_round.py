"""With which round peers go on after some were stopped: decided without a clock or a loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

REACH = 4
"""Gossip steps of the present round that a neighbour sends again to one that comes back."""


def common(kept: Iterable[Collection[int]]) -> int | None:
    """Return the last round from which as many as possible, and more than half, can resume; ``None`` without one.

    Peers without a checkpoint do not count; they join late, as do those without one of that round.

    Examples
    --------
    >>> common([[6, 7], [7, 8], []]), common([[3, 4], [5, 6]]), common([])
    (7, None, None)
    >>> common([[6, 7], [6, 7], [2, 3]]), common([[4, 5], [4, 5], [3, 4], [9]])
    (7, 4)
    """
    asked = [set(rounds) for rounds in kept if rounds]
    holders = Counter(round for rounds in asked for round in rounds)
    last = max(holders, key=lambda round: (holders[round], round), default=None)
    return last if last is not None and 2 * holders[last] > len(asked) else None


def entrance(next_: int, *, others: Iterable[tuple[int, int]], again: bool, paused: bool = False) -> int:
    """Return the round in which a peer takes part again while the others continue.

    Parameters
    ----------
    next_
        The first that it has not finished.
    others
        Places of its neighbours: round and step.
    again
        True if it may play that round as if it had been slow: nothing hidden of it was ever sent. Its neighbours
        repeat what they sent of it.
    paused
        True if all neighbours pause between two rounds: a round in which one of them has made a gossip step is over. A
        peer that played it at their next beat would stay one round behind.

    Examples
    --------
    >>> entrance(5, others=[(5, 2), (4, 9)], again=True), entrance(5, others=[(5, 2)], again=False)
    (5, 6)
    >>> entrance(5, others=[(5, REACH + 1)], again=True), entrance(5, others=[(4, 0)], again=False)
    (6, 6)
    >>> [entrance(5, others=[place], again=True, paused=True) for place in ((4, 2), (5, 0), (5, 2))]
    [5, 5, 6]
    """
    furthest = max(others, default=(0, 0))
    if again and furthest <= (next_, 0 if paused else REACH):
        return next_
    return max(furthest[0], next_ if not again else next_ - 1) + 1
