"""The state of a swarm in the text format of Prometheus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

from p2pfl.results.swarm.alerts import alerts
from p2pfl.results.swarm.state import PeerState, Swarm

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of the format."""

Sample = tuple[dict[str, str], float]
"""Labels and a value."""

METRICS: dict[str, tuple[str, str, Callable[[PeerState], float | None]]] = {
    "rounds_total": ("counter", "Rounds that a peer has ended.", lambda peer: peer.rounds),
    "sent_bytes_total": ("counter", "Bytes that a peer has sent.", lambda peer: peer.bytes_out),
    "received_bytes_total": ("counter", "Bytes that a peer has received.", lambda peer: peer.bytes_in),
    "missed_models_total": ("counter", "Models that did not arrive in time.", lambda peer: peer.missed),
    "round_seconds": ("gauge", "Usual duration of a round.", lambda peer: peer.usual),
    "privacy_epsilon": ("gauge", "Epsilon that a peer has spent.", lambda peer: peer.epsilon),
}
"""Kind, description and value of each metric of a peer."""


def exposition(swarm: Swarm, *, now: float, stage: str) -> str:
    """Return all metrics.

    Parameters
    ----------
    swarm
        State of the swarm.
    now
        Seconds since the start of the run.
    stage
        State of the run, see :data:`p2pfl.plugins.watch.feed.Stage`.
    """
    lines: list[str] = []
    for name, kind, help_, samples in _families(swarm, now=now, stage=stage):
        if samples:
            lines += [f"# HELP p2pfl_{name} {help_}", f"# TYPE p2pfl_{name} {kind}"]
            lines += [f"p2pfl_{name}{_labels(labels)} {float(value)!r}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(swarm: Swarm, *, now: float, stage: str) -> Iterator[tuple[str, str, str, list[Sample]]]:
    peers = list(swarm.peers.values())
    states = Counter(peer.activity for peer in peers)
    yield "run_seconds", "gauge", "Seconds since the start of the run.", [({}, now)]
    yield "run_ended", "gauge", "Whether the run is over.", [({}, float(stage != "running"))]
    yield "peers", "gauge", "Peers by what they do.", [({"activity": key}, n) for key, n in sorted(states.items())]
    yield "alerts", "gauge", "Alerts that are not over, by kind.", _alerts(swarm, now=now)
    for name, (kind, help_, value) in METRICS.items():
        values = [(peer.name, value(peer)) for peer in peers]
        yield name, kind, help_, [({"peer": peer}, number) for peer, number in values if number is not None]
    waits = [(peer.name, now if peer.waiting_since is None else peer.waiting_since) for peer in peers]
    about = "Seconds that a peer has waited by now; 0 if it does not."
    yield "waiting_seconds", "gauge", about, [({"peer": peer}, max(0.0, now - since)) for peer, since in waits]
    scores = [(peer.name, name, value) for peer in peers for name, value in sorted(peer.scores.items())]
    labelled = [({"peer": peer, "score": name}, value) for peer, name, value in scores]
    yield "score", "gauge", "Scores of the last round.", labelled


def _alerts(swarm: Swarm, *, now: float) -> list[Sample]:
    open_ = Counter[str]()
    for each in alerts(swarm, now=now):
        if not each.over:
            open_[each.kind] += each.count
    return [({"kind": kind}, count) for kind, count in sorted(open_.items())]


def _labels(labels: dict[str, str]) -> str:
    """Return labels in braces, with their values escaped.

    Examples
    --------
    >>> _labels({"peer": "a"}), _labels({})
    ('{peer="a"}', '')
    """
    inner = ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in labels.items())
    return f"{{{inner}}}" if inner else ""
