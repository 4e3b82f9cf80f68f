"""Clients that come and go and take their time: who is invited to a round of a simulation, and whose model counts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Ints

MS = 1000
"""Ticks of the clock of devices in a second; whole numbers, so that a replay ends at the same tick."""

LONGEST = 2**32 // MS
"""Length of a trace in seconds that is refused: 49.7 days."""

NEVER = 2**62
"""A tick that no run reaches."""

SLOWEST = 2**40
"""Ticks of the slowest client, 35 years; rounds of such clients end before :data:`NEVER`, too."""

MAX_PERMUTED = 100_000
"""Largest number of peers for which a draw permutes all of them; beyond it, its time grows with the number of
participants only."""


def count_invited(count: int, invited: float) -> int:
    """Return how many clients are invited so that some count; products such as ``100 * 1.1`` are decimal ones.

    Examples
    --------
    >>> count_invited(100, 1.1), count_invited(10, 1.25)
    (110, 13)
    """
    return math.ceil(round(count * invited, 9))


def ticks(seconds: Sequence[float]) -> Ints:
    """Return times in whole ticks, each the nearest one."""
    return np.rint(np.asarray(seconds, np.float64) * MS).astype(np.int64)


def _lasting(seconds: float) -> int:
    """Return the ticks after which a duration is over."""
    return math.ceil(min(seconds * MS, SLOWEST))


def choose(seed: int, everyone: int, count: int, *, round: int) -> Ints:
    """Return the places of those that are drawn for a round out of ``everyone``, in the order of the draw."""
    generator = draw(seed, "participants", round=round)
    chosen: Ints
    if everyone > MAX_PERMUTED:
        chosen = generator.choice(everyone, count, replace=False)
    else:
        chosen = generator.permutation(everyone)[:count]
    return chosen


@dataclass(frozen=True, eq=False)
class Trace:
    """Times at which clients are available, over and over again, in ticks; it holds 12 bytes for each interval.

    Parameters
    ----------
    owner
        Number of the client of each interval, ``[M]``.
    on, off
        Its beginning and its end, ``[M]``.
    period
        Ticks after which the trace repeats.
    listed
        Clients whose times the trace states, ``[N]`` bool; the others are always available.

    Examples
    --------
    >>> trace = Trace.of([0, 1, 1], [0, 5, 8], [6, 10, 10], peers=3)
    >>> trace.leaves(5_000).tolist()[:2], trace.leaves(15_000).tolist()[:2], trace.next(6_500)
    ([6000, 10000], [16000, 20000], 10000)
    """

    owner: Ints
    on: Ints
    off: Ints
    period: int
    listed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    @classmethod
    def of(cls, clients: Sequence[int], on: Sequence[float], off: Sequence[float], *, peers: int) -> Self:
        """Return the trace of intervals in seconds, which repeats after the last end; those that touch become one."""
        owner = np.asarray(clients, np.int64)
        begin, end = ticks(on), ticks(off)
        period, listed = int(end.max(initial=0)), np.zeros(peers, bool)
        listed[owner] = True
        real = end > begin
        owner, begin, end = owner[real], begin[real], end[real]
        order = np.lexsort((begin, owner))
        owner, begin, end = owner[order], begin[order], end[order]
        shift = owner * (period + 1)  # a client's times begin after the end of those before it
        reach = np.maximum.accumulate(end + shift)
        first = np.flatnonzero(np.append(True, (begin + shift)[1:] > reach[:-1]))
        last = np.append(first[1:], len(owner)) - 1
        ends = (reach - shift)[last].astype(np.uint32)
        return cls(owner[first].astype(np.int32), begin[first].astype(np.uint32), ends, period, listed)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the intervals, by which a run that goes on tells whether its trace is the same."""
        parts = (self.owner, self.on, self.off, self.listed)
        return hashlib.sha256(b"".join([str(self.period).encode(), *(part.tobytes() for part in parts)])).hexdigest()

    def leaves(self, now: int) -> Ints:
        """Return the tick at which each client becomes unavailable, ``[N]``; 0 for those that are so already."""
        turn, phase = divmod(now, self.period)
        leaves = np.where(self.listed, 0, NEVER)
        here = (self.on <= phase) & (phase < self.off)
        leaves[self.owner[here]] = self.off[here] + np.int64(turn * self.period)
        over = here & (self.off == self.period)  # goes on at the beginning of the next period
        if over.any():
            early, again = self.on == 0, np.zeros(len(self.listed), np.int64)
            again[self.owner[early]] = self.off[early]
            again[again == self.period] = NEVER
            leaves[self.owner[over]] += again[self.owner[over]]
        return np.minimum(leaves, NEVER)

    def next(self, now: int) -> int:
        """Return the next tick at which an interval begins."""
        turn, phase = divmod(now, self.period)
        later = self.on[self.on > phase]
        if len(later):
            return turn * self.period + int(later.min())
        return (turn + 1) * self.period + int(self.on.min())


@dataclass(frozen=True)
class Invitation:
    """Round of devices.

    Attributes
    ----------
    invited
        Numbers of the clients that are invited, in the order of the draw.
    counted
        Numbers of those whose models count.
    began, ended
        Ticks.
    """

    invited: Ints
    counted: Ints
    began: int
    ended: int


@dataclass(frozen=True, eq=False)
class Devices:
    r"""Devices of all clients.

    A round invites clients that are available, more than it needs, and counts the first models. A model that comes
    after the deadline, or whose client becomes unavailable before, is late. The round ends with the last model that
    counts, or at the deadline if too few come. Without durations it takes a second, so a trace counts rounds.

    Parameters
    ----------
    seconds
        Function that returns the seconds in which a client trains, by its number.
    trace
        When clients are available; always by default.
    invited
        Clients that are invited for each that counts.
    deadline
        Seconds after which a round ends; ``None`` without a limit.
    timeless
        True if no client takes time.

    Examples
    --------
    >>> devices = Devices(float, invited=2.0, deadline=6.0)
    >>> round = devices.invite(0, peers=8, count=2, seed=7, now=0)
    >>> round.invited.tolist(), round.counted.tolist(), round.ended
    ([1, 3, 0, 4], [0, 1], 1000)

    References
    ----------
    Bonawitz et al., Towards federated learning at scale: system design, MLSys 2019, section 2.2.
    """

    seconds: Callable[[int], float]
    trace: Trace | None = None
    invited: float = 1.0
    deadline: float | None = None
    timeless: bool = False

    def invite(self, round: int, *, peers: int, count: int, seed: int, now: int) -> Invitation:
        """Return who is invited to a round of ``count`` clients that begins at a tick, and who counts."""
        wanted = count_invited(count, self.invited)
        limit = NEVER if self.deadline is None else _lasting(self.deadline)
        stays: Ints
        if self.trace is None:
            invited = choose(seed, peers, min(peers, wanted), round=round)
            stays = np.full(len(invited), limit)
        else:
            leaves = self.trace.leaves(now)
            while not (leaves > now).any():
                now = self.trace.next(now)
                leaves = self.trace.leaves(now)
            there = np.flatnonzero(leaves > now)
            invited = there[choose(seed, len(there), min(len(there), wanted), round=round)]
            stays = np.minimum(leaves[invited] - now, limit)
        takes = np.array([_lasting(self.seconds(number)) for number in invited.tolist()])
        reports = np.where(takes <= stays, takes, NEVER)
        first = np.argsort(reports, kind="stable")[:count]
        first = first[reports[first] < NEVER]
        if self.timeless:
            lasted = MS
        elif len(first) == min(count, len(invited)):
            lasted = int(takes[first].max())
        else:  # all that can still come has come, or the deadline has
            lasted = limit if self.deadline is not None else int(np.minimum(takes, stays).max())
        return Invitation(invited, np.sort(invited[first]), now, now + lasted)


class Invitations:
    """Invitations of all rounds of a run, each of which begins where the one before has ended.

    Parameters
    ----------
    devices
        Devices of the clients.
    peers, count
        Number of all clients, and of those that a round wants.
    seed
        Seed of the draws.
    """

    def __init__(self, devices: Devices, *, peers: int, count: int, seed: int) -> None:
        self.devices, self.peers, self.count, self.seed = devices, peers, count, seed
        self._done: list[Invitation] = []

    def at(self, round: int) -> Invitation:
        """Return the invitation of a round; those before it are decided first."""
        while len(self._done) <= round:
            now = self._done[-1].ended if self._done else 0
            here = self.devices.invite(len(self._done), peers=self.peers, count=self.count, seed=self.seed, now=now)
            self._done.append(here)
        return self._done[round]
