"""Alerts: what needs attention in a swarm, as one pure function of its events for terminals, pages and exporters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from p2pfl.results.formats import join_names
from p2pfl.results.notices.kinds import LossRose, Notice, PeerSilent, Severity, kind_of
from p2pfl.results.notices.notice_groups import describe_repeats, group_alike
from p2pfl.results.swarm.blockages import blockages, find_partition, waits_of
from p2pfl.results.swarm.headline import blocked_since, patience, why_blocked
from p2pfl.results.swarm.pace_setter import find_pace_setter
from p2pfl.results.swarm.state import Swarm

MAX_NAMED_PEERS = 3
"""Largest number of slow neighbours that an alert names."""


@dataclass(frozen=True)
class Alert:
    """Something that needs attention.

    Attributes
    ----------
    kind
        Kind of the notice behind it, or ``blocked``, ``hung``, ``gone``, ``parted``, ``slow``, ``late`` or
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
        Number of notices that repeat each other, see :func:`p2pfl.results.notices.notice_groups.group_alike`.
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
    stuck = [
        *_blocked_alerts(swarm, now=now),
        *_silent_alerts(swarm, now=now),
        *_gone_alerts(swarm),
        *_partition_alerts(swarm),
    ]
    entries = [
        *_harm_alerts(swarm),
        *_notice_alerts(swarm),
        *stuck,
        *_pace_alerts(swarm),
        *_late_alerts(swarm),
        *_budget_alerts(swarm),
    ]
    return sorted(entries, key=lambda alert: (alert.severity != "alarm", -alert.at, alert.peer, alert.kind))


def _harm_alerts(swarm: Swarm) -> Iterator[Alert]:
    """Yield alerts of harm to the result, also of harm that is over."""
    yield from _group_alerts([(at, notice, False) for at, notice in swarm.alarms if isinstance(notice, LossRose)])
    yield from _group_alerts(
        [
            (at, notice, swarm.peers[notice.peer].failure is None)  # it was resumed
            for at, notice in swarm.alarms
            if not isinstance(notice, LossRose) and notice.severity == "alarm"
        ]
    )


def _notice_alerts(swarm: Swarm) -> Iterator[Alert]:
    return _group_alerts([(at, notice, notice.severity == "resolved") for at, notice in swarm.notices])


def _group_alerts(entries: Sequence[tuple[float, Notice, bool]]) -> Iterator[Alert]:
    """Yield an alert for each group of notices that repeat each other; given are times, notices and what is over."""
    for over in (False, True):
        those = [(at, notice) for at, notice, done in entries if done is over]
        for numbers in group_alike(notice for _, notice in those):
            group = [those[number][1] for number in numbers]
            first, last, latest = those[numbers[0]][0], those[numbers[-1]][0], group[-1]
            sentence = f"{str(latest).removeprefix('ALARM: ')}{describe_repeats(group)}"
            kind = kind_of(type(latest).__name__)
            yield Alert(kind, latest.severity, latest.peer, last, sentence, over, count=len(group), began=first)


def _blocked_alerts(swarm: Swarm, *, now: float) -> Iterator[Alert]:
    limit = patience(swarm)
    for blockage in blockages(waits_of(swarm)):
        since = blocked_since(swarm, blockage)
        if now - since >= limit:
            first, sentence = blockage.blockers[0], why_blocked(swarm, blockage, tone="blocked", now=now)
            sentence = sentence if blockage.cycle else sentence.removeprefix(f"{first} ")
            yield Alert("blocked", "alarm", first, since + limit, f"{sentence}; look at the logs and the broker")


def _silent_alerts(swarm: Swarm, *, now: float) -> Iterator[Alert]:
    for peer in swarm.peers.values():
        if peer.activity == "silent" and peer.silent_since is not None:
            sentence = str(PeerSilent(peer=peer.name, seconds=now - peer.silent_since))
            yield Alert("hung", "alarm", peer.name, peer.silent_since, sentence)


def _gone_alerts(swarm: Swarm) -> Iterator[Alert]:
    if not any(peer.activity in {"learning", "waiting", "paused"} for peer in swarm.peers.values()):
        return  # peers leave at the end
    for peer in swarm.peers.values():
        if peer.activity == "gone":
            since = peer.last if peer.lost_at is None else peer.lost_at
            sentence = "is gone; look at its log, and start it again with --resume"
            yield Alert("gone", "warning", peer.name, since or 0.0, sentence)


def _partition_alerts(swarm: Swarm) -> Iterator[Alert]:
    if (partition := find_partition(swarm)) is not None:
        groups = "; ".join(join_names(group) for group in partition.groups[:3])
        more = "" if len(partition.groups) <= 3 else f"; and {len(partition.groups) - 3} more"
        sentence = (
            f"the peers fall into {len(partition.groups)} groups that do not reach each other ({groups}{more}); check "
            "the brokers and the bridges between them"
        )
        yield Alert("parted", "alarm", partition.groups[0][0], partition.since, sentence)


def _pace_alerts(swarm: Swarm) -> Iterator[Alert]:
    """Name the peer for which all others wait, so that it sets the pace of all."""
    own = [peer for peer in swarm.peers.values() if peer.activity in {"learning", "waiting"}]
    if (setter := find_pace_setter({peer.name: peer.recent for peer in own})) is not None:
        yield Alert("slow", "warning", setter.peer, swarm.peers[setter.peer].last or 0.0, setter.sentence)


def _late_alerts(swarm: Swarm) -> Iterator[Alert]:
    for name, at in swarm.late.items():
        peer = swarm.peers[name]
        slow = sorted(peer.late, key=lambda each: (-peer.late[each], each))
        more = f" and {len(slow) - MAX_NAMED_PEERS} others" if len(slow) > MAX_NAMED_PEERS else ""
        late, of = peer.late.total(), peer.late.total() + peer.received
        sentence = (
            f"{late} of {of} models did not arrive in time, those of {join_names(slow[:MAX_NAMED_PEERS])}{more}; "
            "find out what slows this down, or raise transport.patience"
        )
        yield Alert("late", "warning", name, at, sentence)


def _budget_alerts(swarm: Swarm) -> Iterator[Alert]:
    for name, at in swarm.nearly_spent.items():
        spent, budget = swarm.peers[name].epsilon or 0.0, swarm.setting.epsilon or 0.0
        sentence = f"epsilon {spent:.3g} of privacy.epsilon = {budget:g} is spent; the peer stops before it spends more"
        yield Alert("budget_nearly_spent", "warning", name, at, sentence)
