"""State of a swarm: what each peer does, as a fold over records and notices, without a clock."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from p2pfl.results.notices.kinds import (
    STALLED_REMEDY,
    ChangeTaken,
    LossRose,
    Notice,
    PeerAnnounced,
    PeerFailed,
    PeerFinished,
    PeerResponded,
    PeerSilent,
    PhaseBegan,
    PresenceChanged,
    WaitBegan,
    WaitEnded,
)
from p2pfl.results.records import Record
from p2pfl.results.swarm.history import History
from p2pfl.results.swarm.lanes import Lanes

Entry = Record | Notice
"""A line of ``metrics.jsonl`` or ``events.jsonl``."""

Activity = Literal[
    "unseen",
    "present",
    "joining",
    "gathering",
    "learning",
    "waiting",
    "paused",
    "asleep",
    "offline",
    "silent",
    "leaving",
    "finished",
    "failed",
    "gone",
]
"""Activity of a peer, see :attr:`PeerState.activity`."""

ABSENT_ACTIVITIES = {"silent", "gone", "failed"}
"""Activities of a peer that certainly blocks the peers that wait for it, and from which no models come."""

RECENT_ROUNDS = 20
"""Number of last rounds of a peer from which its usual duration of a round follows."""

LATE_SHARE = 0.02
"""Share of missed models of a peer from which it counts as late."""

MIN_COUNTED_MODELS = 50
"""Number of models of a peer below which no share is taken."""

NEARLY_SPENT_SHARE = 0.8
"""Share of the privacy budget from which it counts as nearly spent."""

KEPT_NOTICES = 500
"""Number of last notices that the state keeps."""

KEPT_ALARMS = 5000
"""Number of last alarms, and of the events that end them, that the state keeps."""


@dataclass(frozen=True)
class Setting:
    """Parts of an experiment that its events do not repeat.

    Attributes
    ----------
    name
        Name of the experiment.
    peers
        Names of all peers.
    edges
        Pairs of neighbours, or of sender and receiver where the topology is directed.
    rounds
        Number of rounds.
    epsilon
        Privacy budget; ``None`` without one.
    """

    name: str = "experiment"
    peers: tuple[str, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    rounds: int = 0
    epsilon: float | None = None


@dataclass
class PeerState:
    """State of one peer; all times are seconds since the start of the run.

    Attributes
    ----------
    name
        Name of the peer.
    phase
        Phase that it reported last; ``None`` if it has reported nothing.
    rounds
        Number of rounds that it has ended.
    scores
        Scores of its last round.
    bytes_out, bytes_in
        Bytes sent and received.
    received, missed
        Number of models that it has used, and of models that did not arrive in time.
    late
        Of the models that did not arrive in time, those of neighbours that are there, by neighbour.
    epsilon
        Epsilon spent so far; ``None`` without a claim.
    last
        Time of the last line about it; ``None`` if there is none.
    since
        Time at which its present round began; ``None`` before the first.
    waits_for
        Neighbours that it waits for.
    waiting_since
        Time at which its wait began; ``None`` if it does not wait.
    connected
        True if it reaches the broker.
    failure
        Message of the error that ended it; ``None`` if it has not failed.
    announced
        Status of its announcement on the broker; ``None`` if nobody has seen one.
    lost_at
        Time at which a neighbour lost it last; ``None`` if none has.
    silent_since
        Time of its last message, if it is silent; ``None`` otherwise.
    recent
        Records of its last rounds.
    horizon
        Number of rounds of its run as it states it, 0 without an end; ``None`` if it is that of the experiment.
    """

    name: str
    phase: str | None = None
    rounds: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    bytes_out: int = 0
    bytes_in: int = 0
    received: int = 0
    missed: int = 0
    epsilon: float | None = None
    last: float | None = None
    since: float | None = None
    horizon: int | None = None
    waits_for: tuple[str, ...] = ()
    waiting_since: float | None = None
    connected: bool = True
    failure: str | None = None
    finished: bool = False
    announced: str | None = None
    silent_since: float | None = None
    lost_at: float | None = None
    seen_by: set[str] = field(default_factory=set)
    lost_by: set[str] = field(default_factory=set)
    late: Counter[str] = field(default_factory=Counter)
    durations: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_ROUNDS))
    recent: deque[Record] = field(default_factory=lambda: deque(maxlen=RECENT_ROUNDS))
    _median: float | None = None  # of the durations; None until somebody asks

    @property
    def activity(self) -> Activity:
        """Activity of the peer: as it reports itself, or ``present`` and ``gone`` as its neighbours report it.

        ``waiting`` and ``offline`` are waits for neighbours and for the broker, ``silent`` is a peer that is connected
        and sends nothing, ``unseen`` is one of which there is no line at all. ``paused`` is between two rounds,
        ``asleep`` a device that has left the others until its next hours.
        """
        if self.failure is not None:
            return "failed"
        if self.finished:
            return "finished"
        if self.phase in {"leaving", "done", "asleep"}:
            return "asleep" if self.phase == "asleep" else "leaving"
        if self.announced == "dead" or (self.lost_by and not self.seen_by):
            return "gone"
        if self.silent_since is not None:
            return "silent"
        if self.waiting_since is not None:
            return "waiting" if self.connected else "offline"
        match self.phase:
            case "joining" | "gathering" | "learning" | "paused":
                return self.phase
            case _:
                return "present" if self.seen_by or self.announced == "up" else "unseen"

    @property
    def usual(self) -> float | None:
        """Median duration of its last rounds in seconds; ``None`` if fewer than three are known."""
        if self._median is None and len(self.durations) > 2:
            self._median = statistics.median(self.durations)
        return self._median

    def add_duration(self, seconds: float) -> None:
        """Take the duration of a round."""
        self.durations.append(seconds)
        self._median = None


class Swarm:
    """State of a swarm after some events.

    Parameters
    ----------
    setting
        Facts that the events do not repeat.

    Attributes
    ----------
    peers
        State of each peer, by name.
    history
        Scores by round.
    notices
        Last notices that are no news of the course, with their times.
    alarms
        Last notices of alarms and of their end, with their times.
    lanes
        Activities of each peer over time.
    late, nearly_spent
        By peer: when it exceeded :data:`LATE_SHARE`, and when it had spent :data:`NEARLY_SPENT_SHARE` of its budget.
    at
        Time of the last event.
    count
        Number of events.

    Examples
    --------
    >>> swarm = Swarm(Setting(peers=("ada", "bob"), rounds=5))
    >>> swarm.apply(0.0, PhaseBegan(peer="ada", phase="learning", round=0))
    >>> swarm.apply(4.0, WaitBegan(peer="ada", round=0, neighbours=("bob",)))
    >>> [(peer.name, peer.activity) for peer in swarm.peers.values()]
    [('ada', 'waiting'), ('bob', 'unseen')]
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.peers = {name: PeerState(name) for name in setting.peers}
        self.history = History()
        self.lanes = Lanes()
        self.notices: deque[tuple[float, Notice]] = deque(maxlen=KEPT_NOTICES)
        self.alarms: deque[tuple[float, Notice]] = deque(maxlen=KEPT_ALARMS)
        self.late: dict[str, float] = {}
        self.nearly_spent: dict[str, float] = {}
        self.metric: str | None = None
        self.at = 0.0
        self.count = 0

    def apply(self, at: float, entry: Entry) -> None:
        """Take an event.

        Parameters
        ----------
        at
            Seconds since the start of the run.
        entry
            The event.
        """
        peer = self.peers.setdefault(entry.peer, PeerState(entry.peer))
        self.at, self.count = max(self.at, at), self.count + 1
        peer.last = at
        if isinstance(entry, Record):
            self._record(at, peer, entry)
        else:
            self._notice(at, peer, entry)
        moved = (*entry.came, *entry.left) if isinstance(entry, PresenceChanged) else ()
        since = peer.waiting_since if isinstance(entry, WaitBegan) and peer.waiting_since is not None else at
        for name in (entry.peer, *moved):
            self.lanes.note(since, name, self.peers[name].activity)

    @property
    def rounds(self) -> int:
        """Number of rounds, 0 without an end: that of the experiment, or of most peers that state one."""
        stated = Counter(peer.horizon for peer in self.peers.values() if peer.horizon is not None)
        [(rounds, count)] = stated.most_common(1) or [(self.setting.rounds, 0)]
        return rounds if 2 * count > stated.total() else self.setting.rounds

    def end(self) -> None:
        """Take note that a simulation is over, whose peers do not report it themselves."""
        for peer in self.peers.values():
            peer.finished = peer.finished or peer.activity == "learning"

    def _record(self, at: float, peer: PeerState, record: Record) -> None:
        if peer.phase is None:  # a simulation has no phases
            peer.phase = "learning"
        if peer.since is not None and record.round >= peer.rounds:
            peer.add_duration((at - peer.since) / (record.round + 1 - peer.rounds))  # telemetry merges fast rounds
        peer.rounds, peer.since, peer.scores = record.round + 1, at, record.scores or peer.scores
        peer.waits_for, peer.waiting_since, peer.connected = (), None, True  # an ended round waits for nobody
        peer.bytes_out, peer.bytes_in = record.bytes_out, record.bytes_in
        peer.received, peer.missed = peer.received + record.received, peer.missed + len(record.missed)
        peer.recent.append(record)
        peer.epsilon = record.privacy_spent
        if self.metric is None:
            self.metric = next((name for name in record.scores if "loss" not in name), next(iter(record.scores), None))
        self.history.add(record)
        self._count_missed(at, peer, record)
        budget = self.setting.epsilon
        if budget is not None and peer.epsilon is not None and peer.epsilon >= NEARLY_SPENT_SHARE * budget:
            self.nearly_spent.setdefault(peer.name, at)

    def _count_missed(self, at: float, peer: PeerState, record: Record) -> None:
        """Count the models that are late; those of a neighbour that is absent have another reason."""
        absent = {
            name for name in record.missed if name in self.peers and self.peers[name].activity in ABSENT_ACTIVITIES
        }
        peer.late.update(name for name in record.missed if name not in absent)
        due = peer.received + peer.late.total()
        if due >= MIN_COUNTED_MODELS and peer.late.total() > LATE_SHARE * due:
            self.late.setdefault(peer.name, at)

    def _notice(self, at: float, peer: PeerState, notice: Notice) -> None:
        match notice:
            case PhaseBegan():
                peer.phase, peer.failure, peer.finished, peer.since = notice.phase, None, False, at
                peer.rounds = max(peer.rounds, notice.round)
            case WaitBegan():
                peer.waiting_since = max(0.0, at - STALLED_REMEDY) if peer.waiting_since is None else peer.waiting_since
                peer.waits_for, peer.connected = notice.neighbours, notice.connected
            case WaitEnded():
                peer.waits_for, peer.waiting_since, peer.connected = (), None, True
            case PresenceChanged():
                self._presence(at, notice)
            case PeerFinished():
                peer.finished, peer.scores = True, notice.scores
            case PeerFailed():
                peer.failure = notice.message
                self.alarms.append((at, notice))
            case LossRose():
                self.alarms.append((at, notice))
            case ChangeTaken() if notice.last is not None:
                peer.horizon = notice.last
            case _:
                self._apply_observation(at, peer, notice)

    def _apply_observation(self, at: float, peer: PeerState, notice: Notice) -> None:
        """Take what an observer sees from outside of the peer, and warnings."""
        match notice:
            case PeerAnnounced():
                peer.horizon = peer.horizon if notice.rounds is None else notice.rounds
                peer.announced, peer.finished = notice.status, notice.status == "left" and notice.done
                peer.phase = "leaving" if notice.status == "left" else peer.phase
            case PeerSilent():
                peer.silent_since = at - notice.seconds
            case PeerResponded():
                peer.silent_since = None
            case _ if notice.severity != "info":
                self.notices.append((at, notice))
            case _:
                pass

    def _presence(self, at: float, notice: PresenceChanged) -> None:
        for name in notice.came:
            other = self.peers.setdefault(name, PeerState(name))
            other.seen_by.add(notice.peer)
            other.lost_by.discard(notice.peer)
        for name in notice.left:
            other = self.peers.setdefault(name, PeerState(name))
            other.seen_by.discard(notice.peer)
            other.lost_by.add(notice.peer)
            other.lost_at = at


def swarm_of(setting: Setting, entries: Iterable[tuple[float, Entry]]) -> Swarm:
    """Return the state after some events with their times."""
    swarm = Swarm(setting)
    for at, entry in entries:
        swarm.apply(at, entry)
    return swarm
