"""The state of a swarm as JSON for the page, without a clock or a server."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.results.swarm.alerts import alerts
from p2pfl.results.swarm.headline import estimate_remaining, headline
from p2pfl.results.swarm.lanes import busiest
from p2pfl.results.swarm.state import PeerState, Setting, Swarm

MAX_ALERTS = 100
"""Largest number of alerts of a frame; the newest and those that are not over come first."""

MAX_EDGES = 3000
"""Largest number of edges that the page draws; of more, it shows waits alone."""

MAX_SENTENCE = 2000
"""Most characters of a sentence."""

MAX_LANES = 40
"""Largest number of lanes that are shown at once."""

LANE_SECONDS = 300.0
"""Length of the lanes in seconds."""

MAX_WAITS = 8
"""Largest number of neighbours of a wait that a frame names."""


def about(setting: Setting, coordinates: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Return the facts that do not change: names, graph and positions of the peers.

    Parameters
    ----------
    setting
        Facts that the events do not repeat.
    coordinates
        Places of the peers; empty if they are shown as cells.
    """
    number = {peer: index for index, peer in enumerate(setting.peers)}
    few = len(setting.edges) <= MAX_EDGES
    return {
        "name": setting.name,
        "epsilon": setting.epsilon,
        "peers": list(setting.peers),
        "places": [coordinates[peer] for peer in setting.peers] if coordinates else [],
        "edges": [[number[a], number[b]] for a, b in setting.edges] if coordinates and few else [],
    }


def frame(swarm: Swarm, *, now: float, stage: str) -> dict[str, Any]:
    """Return the state of a swarm.

    Parameters
    ----------
    swarm
        State of the swarm.
    now
        Seconds since the start of the run.
    stage
        State of the run, see :data:`p2pfl.plugins.watch.feed.Stage`.
    """
    summary = headline(swarm, now=now)
    entries = alerts(swarm, now=now)
    entries = [each for each in entries if not each.over] + [each for each in entries if each.over]
    peers = swarm.peers.values()
    rounds = [peer.rounds for peer in peers if peer.phase is not None]
    return {
        "at": round(now, 3),
        "stage": stage,
        "count": swarm.count,
        "metric": swarm.metric,
        "scores": swarm.history.names,
        "headline": {"tone": summary.tone, "sentence": summary.sentence[:MAX_SENTENCE], "peers": list(summary.peers)},
        "counts": dict(Counter(peer.activity for peer in peers)),
        "horizon": swarm.rounds,
        "rounds": [min(rounds), statistics.median(rounds), max(rounds)] if rounds else None,
        "remaining": None if (left := estimate_remaining(swarm)) is None else round(left),
        "bytes": sum(peer.bytes_out for peer in peers),
        "peers": {peer.name: values(peer, swarm.metric) for peer in peers},
        "alerts": [
            {
                "kind": each.kind,
                "severity": each.severity,
                "peer": each.peer,
                "at": round(each.at, 3),
                "sentence": each.sentence[:MAX_SENTENCE],
                "over": each.over,
                "count": each.count,
                "first": round(each.first, 3),
            }
            for each in entries[:MAX_ALERTS]
        ],
        "alerts_more": max(0, len(entries) - MAX_ALERTS),
    }


def values(peer: PeerState, metric: str | None) -> dict[str, Any]:
    """Return the values of a peer on the page."""
    names = ("activity", "rounds", "missed", "last", "since", "usual", "waiting_since")
    return {name: getattr(peer, name) for name in names} | {
        "score": None if metric is None else finite(peer.scores.get(metric)),
        "loss": finite(peer.scores.get("loss")),
        "sent": peer.bytes_out,
        "received": peer.bytes_in,
        "epsilon": finite(peer.epsilon),
        "waits_for": list(peer.waits_for[:MAX_WAITS]),
        "waits_for_more": max(0, len(peer.waits_for) - MAX_WAITS),
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences of a frame from the one before; of the peers, those that differ.

    Examples
    --------
    >>> changes({"at": 1, "peers": {"a": [1], "b": [2]}}, {"at": 1, "peers": {"a": [1], "b": [3]}})
    {'peers': {'b': [3]}}
    """
    changed = {key: value for key, value in now.items() if key != "peers" and before.get(key) != value}
    rows = before.get("peers", {})
    peers = {name: row for name, row in now["peers"].items() if rows.get(name) != row}
    return changed | ({"peers": peers} if peers else {})


def lanes(swarm: Swarm, *, now: float, seconds: float, peers: Sequence[str] = ()) -> dict[str, Any]:
    """Return the activities of peers in the last seconds.

    Parameters
    ----------
    swarm
        State of the swarm.
    now
        Seconds since the start of the run.
    seconds
        Length of the lanes.
    peers
        Peers that are asked for; by default those that lost most time, in the order of the experiment.
    """
    since = max(0.0, now - seconds)
    names = [name for name in peers if name in swarm.peers]
    names = names or busiest(swarm.lanes, [*swarm.peers], since=since, until=now, most=MAX_LANES)
    return {
        "since": round(since, 3),
        "until": round(now, 3),
        "more": max(0, len(swarm.peers) - len(names)),
        "lanes": {
            name: [
                [each.doing, round(each.began, 3), round(each.ended, 3)]
                for each in swarm.lanes.of(name, since=since, until=now)
            ]
            for name in names[:MAX_LANES]
        },
    }


def finite(value: float | None) -> float | None:
    """Return a number, or ``None`` for one that JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def text(swarm: Swarm, *, now: float, most: int = 40) -> Sequence[str]:
    """Return the state of a swarm as lines for a terminal.

    Parameters
    ----------
    swarm
        State of the swarm.
    now
        Seconds since the start of the run.
    most
        Largest number of peers that are listed.
    """
    summary = headline(swarm, now=now)
    lines = [summary.sentence]
    lines += [f"{each.severity}: {each.peer}: {each.sentence}" for each in alerts(swarm, now=now) if not each.over]
    listed = list(swarm.peers.values())
    for peer in listed[:most]:
        score = peer.scores.get(swarm.metric) if swarm.metric is not None else None
        score_text = "" if score is None else f", {swarm.metric} {score:.3f}"
        waits = f" for {', '.join(peer.waits_for)}" if peer.waits_for else ""
        lines.append(f"{peer.name}: {peer.activity}{waits}, {peer.rounds} rounds{score_text}")
    return [*lines, *([f"and {len(listed) - most} more peers"] if len(listed) > most else [])]
