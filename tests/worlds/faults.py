"""What goes wrong in a world, drawn by key from its seed.

Each seed first draws which kinds of fault there are at all: histories with few kinds at a time reach states that a
history with a little of everything hides (swarm testing).

References
----------
A. Groce, C. Zhang, E. Eide, Y. Chen, J. Regehr, "Swarm testing", ISSTA 2012.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.network.transport.channel import KEEPALIVE
from worlds.network import Clock, Conditions, Restart

KINDS = (
    "latency",
    "bandwidth",
    "loss",
    "duplication",
    "overtaking",
    "cuts",
    "pauses",
    "long pauses",
    "clocks",
    "stragglers",
    "deaths",
    "crashes",
    "lost disks",
    "full disks",
    "torn writes",
    "forgeries",
    "half-open connections",
    "broker restarts",
    "broker restarts that forget",
)
"""What the peers promise to survive."""

DISKS = frozenset({"crashes", "full disks", "torn writes"})
"""Where there are any of these, peers keep checkpoints."""

SETTLED = 3.0
"""Seconds after which all have joined: before, a cut is a broker that cannot be reached, which ends a peer at once."""


@dataclass(frozen=True)
class Pause:
    """A process that stands still, as one that is swapped out or stopped."""

    peer: str
    at: float
    seconds: float


@dataclass(frozen=True)
class Death:
    """A process that ends between two awaits.

    Attributes
    ----------
    event
        After how many callbacks of the peer, in all its lives.
    silent
        Whether the power goes with it, so that the broker learns of it by the keepalive only, and the disk loses what
        was not synced.
    back
        Seconds until it is started again; it is not where there are none.
    bare
        Whether that is on another device, with its identity and nothing else.
    """

    peer: str
    event: int
    silent: bool
    back: float | None = None
    bare: bool = False


@dataclass(frozen=True)
class Full:
    """A disk on which there is no room for a while."""

    peer: str
    at: float
    seconds: float


@dataclass(frozen=True)
class Forgery:
    """A stranger's publish: what somebody said, changed or on somebody else's topic.

    Attributes
    ----------
    after
        Accepted messages before it.
    kind
        ``noise``, ``replay`` (as it was), ``moved`` (on another's topic), ``flipped`` (one bit).
    """

    after: int
    kind: str


@dataclass(frozen=True)
class History:
    """All that goes wrong in one world.

    Attributes
    ----------
    kinds
        Of which there are any.
    """

    kinds: frozenset[str]
    conditions: dict[str, Conditions]
    clocks: dict[str, Clock]
    takes: dict[str, float]
    pauses: tuple[Pause, ...] = ()
    deaths: tuple[Death, ...] = ()
    forgeries: tuple[Forgery, ...] = ()
    restarts: tuple[Restart, ...] = ()
    full: tuple[Full, ...] = ()

    def apart(self, peer: str) -> tuple[tuple[float, float], ...]:
        """When a peer stands still, is cut off, or has no broker."""
        still = ((pause.at, pause.at + pause.seconds) for pause in self.pauses if pause.peer == peer)
        down = ((restart.at, restart.at + restart.down) for restart in self.restarts)
        return (*still, *down, *self.conditions[peer].cuts)

    @property
    def quiet(self) -> float:
        """From when on nothing more goes wrong at a known time."""
        cuts = [end for each in self.conditions.values() for _, end in each.cuts if end < float("inf")]
        pauses = [pause.at + pause.seconds for pause in self.pauses]
        full = [full.at + full.seconds for full in self.full]
        return max([0.0, *cuts, *pauses, *full, *(restart.at + restart.down for restart in self.restarts)])


def history(seed: int, *, peers: Sequence[str], patience: float, kinds: Sequence[str] = KINDS) -> History:
    """Draw the faults of a seed.

    Parameters
    ----------
    seed
        Names the history.
    peers
        To whom it happens.
    patience
        Of the peers in seconds: cuts and pauses stay below it, so that nobody need be given up.
    kinds
        That may be drawn; each is, in half of the seeds.
    """
    some = draw(seed, "world kinds")
    chosen = frozenset(kind for kind in kinds if some.random() < 0.5)
    restarts = _restarts(seed, chosen)
    return History(
        chosen,
        {peer: _conditions(seed, peer, peers, chosen, patience=patience) for peer in peers},
        {peer: _clock(seed, peer) for peer in peers} if "clocks" in chosen else {},
        {peer: _takes(seed, peer, chosen, patience=patience) for peer in peers},
        _pauses(seed, peers, chosen, patience=patience),
        (
            *(_deaths(seed, peers) if "deaths" in chosen else ()),
            *(_crashes(seed, peers, chosen) if "crashes" in chosen else ()),
        ),
        _forgeries(seed) if "forgeries" in chosen else (),
        restarts,
        _full(seed, peers) if "full disks" in chosen else (),
    )


def _conditions(seed: int, peer: str, peers: Sequence[str], kinds: frozenset[str], *, patience: float) -> Conditions:
    some = draw(seed, "world conditions", peer)
    latency, jitter = 10 ** some.uniform(-4, -0.5, size=2)
    up, down = 10 ** some.uniform(3.5, 6, size=2)
    loss, twice, overtaken = some.uniform(0, (0.3, 0.3, 0.5))
    narrow = "bandwidth" in kinds
    return Conditions(
        latency=float(latency) if "latency" in kinds else 0.001,
        jitter=float(jitter) if "latency" in kinds else 0.0,
        up=float(up) if narrow else float("inf"),
        down=float(down) if narrow else float("inf"),
        loss=float(loss) if "loss" in kinds else 0.0,
        twice=float(twice) if "duplication" in kinds else 0.0,
        overtaken=float(overtaken) if "overtaking" in kinds else 0.0,
        cuts=_cuts(seed, peer, peers, kinds, patience=patience),
    )


def _cuts(
    seed: int, peer: str, peers: Sequence[str], kinds: frozenset[str], *, patience: float
) -> tuple[tuple[float, float], ...]:
    """Partitions cut a side off together; half-open connections are cuts that outlast the keepalive."""
    cuts = []
    longest = min(0.8 * patience, 1.4 * KEEPALIVE)
    if "cuts" in kinds:
        some = draw(seed, "world cuts")
        for _ in range(int(some.integers(1, 4))):
            start, length = some.uniform(SETTLED, 20.0), some.uniform(0.1, longest)
            if some.random(len(peers))[list(peers).index(peer)] < 0.5:
                cuts.append((float(start), float(start + length)))
    if "half-open connections" in kinds:
        some = draw(seed, "world half-open", peer)
        if some.random() < 0.5:
            start = float(some.uniform(SETTLED, 20.0))
            cuts.append((start, start + float(some.uniform(1.5, 3.0)) * KEEPALIVE))
    return tuple(sorted(cuts))


def _clock(seed: int, peer: str) -> Clock:
    some = draw(seed, "world clock", peer)
    return Clock(float(some.uniform(0.9, 1.1)), float(some.uniform(0.0, 1e6)))


def _takes(seed: int, peer: str, kinds: frozenset[str], *, patience: float) -> float:
    some = draw(seed, "world training", peer)
    usual, slow = some.uniform(0.001, 0.1), some.uniform(0.1, 0.5) * patience
    return float(slow if "stragglers" in kinds and some.random() < 0.3 else usual)


def _pauses(seed: int, peers: Sequence[str], kinds: frozenset[str], *, patience: float) -> tuple[Pause, ...]:
    """Long ones are longer than anybody waits."""
    some, found = draw(seed, "world pauses"), list[Pause]()
    for kind, factor in (("pauses", (0.0, 0.8)), ("long pauses", (1.0, 3.0))):
        for _ in range(int(some.integers(1, 4)) if kind in kinds else 0):
            who, at = peers[int(some.integers(len(peers)))], float(some.uniform(0.1, 20.0))
            found.append(Pause(who, at, max(0.1, float(some.uniform(*factor)) * patience)))
    return tuple(found)


def _deaths(seed: int, peers: Sequence[str]) -> tuple[Death, ...]:
    """Of all but two peers at most."""
    some = draw(seed, "world deaths")
    count = int(some.integers(1, max(2, len(peers) - 1)))
    who: np.ndarray[tuple[int], np.dtype[np.int64]] = some.permutation(len(peers))[:count]
    return tuple(
        Death(peers[int(index)], int(10 ** some.uniform(1.0, 3.0)), bool(some.random() < 0.5)) for index in who
    )


def _crashes(seed: int, peers: Sequence[str], kinds: frozenset[str]) -> tuple[Death, ...]:
    """Each is started again, soon or late; one peer may crash more than once."""
    some, lost = draw(seed, "world crashes"), 0.3 if "lost disks" in kinds else 0.0
    return tuple(
        Death(
            peers[int(some.integers(len(peers)))],
            int(10 ** some.uniform(1.0, 3.2)),
            bool(some.random() < 0.5),
            float(10 ** some.uniform(-1.0, 1.5)),
            bool(some.random() < lost),
        )
        for _ in range(int(some.integers(1, 5)))
    )


def _full(seed: int, peers: Sequence[str]) -> tuple[Full, ...]:
    some = draw(seed, "world full disks")
    return tuple(
        Full(peer, float(some.uniform(0.0, 20.0)), float(some.uniform(0.1, 20.0)))
        for peer in peers
        if some.random() < 0.3
    )


def _forgeries(seed: int) -> tuple[Forgery, ...]:
    some = draw(seed, "world forgeries")
    kinds = ("noise", "replay", "moved", "flipped")
    whens = sorted(int(when) for when in some.integers(1, 400, size=int(some.integers(1, 30))))
    return tuple(Forgery(when, kinds[int(some.integers(len(kinds)))]) for when in whens)


def _restarts(seed: int, kinds: frozenset[str]) -> tuple[Restart, ...]:
    some = draw(seed, "world restarts")
    kept = "broker restarts that forget" not in kinds
    if kept and "broker restarts" not in kinds:
        return ()
    count = int(some.integers(1, 4))
    return tuple(
        Restart(float(some.uniform(SETTLED, 30.0)), float(some.uniform(0.1, 5.0)), kept, bool(some.random() < 0.5))
        for _ in range(count)
    )
