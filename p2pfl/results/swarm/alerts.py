"""Alerts: what needs attention in a swarm, as one pure function of its events for terminals, pages and exporters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from p2pfl.results.formats import listed
from p2pfl.results.notices.alarms import raised
from p2pfl.results.notices.grouping import alike, repeated
from p2pfl.results.notices.kinds import Alarm, Notice, PeerSilent, Severity, kind_of
from p2pfl.results.swarm.blocking import blockages, parting, waits_of
from p2pfl.results.swarm.headline import blocked_since, patience, why_blocked
from p2pfl.results.swarm.state import Swarm

NAMED = 3
"""Largest number of slow neighbours that an alert names."""


@dataclass(frozen=True)
class Alert:
    """Something that needs attention.

    Attributes
    ----------
    kind
        Kind of the notice behind it, or ``blocked``, ``hung``, ``gone``, ``parted``, ``late`` or
        ``budget_nearly_spent``.
    severity
        Urgency.
    peer
        Peer that reports it or that it is about.
    at
        Start, in seconds since the start of the run; of several that repeat each other, that of the last.
    sentence
        Sentence on what happened, and advice; of several, that of the last, with their number.
    over
        True if it has passed.
    count
        Number of notices that repeat each other, see :func:`p2pfl.results.notices.grouping.alike`.
    began
        Start of the first of several; ``None`` for one.
    """

    kind: str
    severity: Severity
    peer: str
    at: float
    sentence: str
    over: bool = False
    count: int = 1
    began: float | None = None

    @property
    def first(self) -> float:
        """Begin of the first of several."""
        return self.at if self.began is None else self.began


def alerts(swarm: Swarm, *, now: float) -> list[Alert]:
    """Return all alerts: alarms first, the newest of each severity first.

    Parameters
    ----------
    swarm
        State of the swarm.
    now
        Seconds since the start of the run.
    """
    stuck = [*_blocked(swarm, now=now), *_silent(swarm, now=now), *_gone(swarm), *_parted(swarm)]
    entries = [*_harm(swarm), *_notices(swarm), *stuck, *_late(swarm), *_budgets(swarm)]
    return sorted(entries, key=lambda alert: (alert.severity != "alarm", -alert.at, alert.peer, alert.kind))


def _harm(swarm: Swarm) -> Iterator[Alert]:
    """Yield what harms the result, with whether it is over."""
    times = [at for at, notice in swarm.alarms if isinstance(notice, Alarm)]
    alarms = raised(notice for _, notice in swarm.alarms)
    yield from _grouped([(at, alarm, alarm.cancelled) for at, alarm in zip(times, alarms, strict=True)])
    yield from _grouped(
        [
            (at, notice, swarm.peers[notice.peer].failure is None)  # it was resumed
            for at, notice in swarm.alarms
            if not isinstance(notice, Alarm) and notice.severity == "alarm"
        ]
    )


def _notices(swarm: Swarm) -> Iterator[Alert]:
    return _grouped([(at, notice, notice.severity == "resolved") for at, notice in swarm.notices])


def _grouped(entries: Sequence[tuple[float, Notice, bool]]) -> Iterator[Alert]:
    """Yield an alert for each group of notices that repeat each other; given are times, notices and what is over."""
    for over in (False, True):
        those = [(at, notice) for at, notice, done in entries if done is over]
        for numbers in alike(notice for _, notice in those):
            group = [those[number][1] for number in numbers]
            first, last, latest = those[numbers[0]][0], those[numbers[-1]][0], group[-1]
            sentence = f"{str(latest).removeprefix('ALARM: ')}{repeated(group)}"
            kind = kind_of(type(latest).__name__)
            yield Alert(kind, latest.severity, latest.peer, last, sentence, over, count=len(group), began=first)


def _blocked(swarm: Swarm, *, now: float) -> Iterator[Alert]:
    limit = patience(swarm)
    for blockage in blockages(waits_of(swarm)):
        since = blocked_since(swarm, blockage)
        if now - since >= limit:
            first, sentence = blockage.blockers[0], why_blocked(swarm, blockage, tone="blocked", now=now)
            sentence = sentence if blockage.cycle else sentence.removeprefix(f"{first} ")
            yield Alert("blocked", "alarm", first, since + limit, f"{sentence}; look at the logs and the broker")


def _silent(swarm: Swarm, *, now: float) -> Iterator[Alert]:
    for peer in swarm.peers.values():
        if peer.activity == "silent" and peer.silent_since is not None:
            sentence = str(PeerSilent(peer=peer.name, seconds=now - peer.silent_since))
            yield Alert("hung", "alarm", peer.name, peer.silent_since, sentence)


def _gone(swarm: Swarm) -> Iterator[Alert]:
    if not any(peer.activity in {"learning", "waiting"} for peer in swarm.peers.values()):
        return  # peers leave at the end
    for peer in swarm.peers.values():
        if peer.activity == "gone":
            since = peer.last if peer.lost_at is None else peer.lost_at
            sentence = "is gone; look at its log, and start it again with --resume"
            yield Alert("gone", "warning", peer.name, since or 0.0, sentence)


def _parted(swarm: Swarm) -> Iterator[Alert]:
    if (partition := parting(swarm)) is not None:
        groups = "; ".join(listed(group) for group in partition.groups[:3])
        more = "" if len(partition.groups) <= 3 else f"; and {len(partition.groups) - 3} more"
        sentence = (
            f"the peers fall into {len(partition.groups)} groups that do not reach each other ({groups}{more}); check "
            "the brokers and the bridges between them"
        )
        yield Alert("parted", "alarm", partition.groups[0][0], partition.since, sentence)


def _late(swarm: Swarm) -> Iterator[Alert]:
    for name, at in swarm.late.items():
        peer = swarm.peers[name]
        slow = sorted(peer.late, key=lambda each: (-peer.late[each], each))
        more = f" and {len(slow) - NAMED} others" if len(slow) > NAMED else ""
        late, of = peer.late.total(), peer.late.total() + peer.received
        sentence = (
            f"{late} of {of} models did not arrive in time, those of {listed(slow[:NAMED])}{more}; find out what slows "
            "this down, or raise transport.patience"
        )
        yield Alert("late", "warning", name, at, sentence)


def _budgets(swarm: Swarm) -> Iterator[Alert]:
    for name, at in swarm.nearly_spent.items():
        spent, budget = swarm.peers[name].epsilon or 0.0, swarm.setting.epsilon or 0.0
        sentence = f"epsilon {spent:.3g} of privacy.epsilon = {budget:g} is spent; the peer stops before it spends more"
        yield Alert("budget_nearly_spent", "warning", name, at, sentence)
