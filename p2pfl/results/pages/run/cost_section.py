"""Section on costs: bytes and seconds of each peer, and of the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from p2pfl.results.formats import exchanged, size
from p2pfl.results.pages.bars import Segment, stacked
from p2pfl.results.pages.markup import Markup, join, tag
from p2pfl.results.pages.parts import MOST_PEERS, beside, pairs, table
from p2pfl.results.run import Run

SENT = (Segment("sent", "c0"),)
SECONDS = (Segment("training", "c2"), Segment("waiting", "c1"), Segment("the rest: mixing, sending and records", "c7"))

Costs = Mapping[str, Sequence[float]]
"""Bytes sent, bytes received, seconds of training, seconds of waiting, and number of missed models, by peer."""


def costs(run: Run) -> Markup | None:
    """Return bytes and seconds by peer and altogether."""
    last = {record.peer: record for record in run.metrics}
    if not last:
        return None
    spent = {peer: [0.0, 0.0, 0.0] for peer in last}
    for record in run.metrics:
        each = record.seconds_training, record.seconds_waiting, len(record.missed)
        spent[record.peer] = [before + now for before, now in zip(spent[record.peer], each, strict=True)]
    found = {peer: [last[peer].bytes_out, last[peer].bytes_in, *spent[peer]] for peer in sorted(last)}
    return join([beside(pairs("The whole run", _totals(run)), _table(found)), _bars(run, found)])


def _table(found: Costs) -> Markup | None:
    forms = [size, size, _seconds, _seconds, _whole]
    heads = ["sent", "received", "training", "waiting", "missed models"]
    kept = [place for place in range(len(heads)) if any(each[place] for each in found.values())]
    rows: list[list[object]] = [
        [peer, *(forms[place](each[place]) for place in kept)] for peer, each in list(found.items())[:MOST_PEERS]
    ]
    if len(found) > MOST_PEERS:
        rows.append([f"and {len(found) - MOST_PEERS} more", *[""] * len(kept)])
    return table("By peer", ["peer", *(heads[place] for place in kept)], rows) if kept else None


def _bars(run: Run, found: Costs) -> Markup | None:
    """Return bars of bytes and, of peers with clocks of their own, of seconds; ``None`` for one peer or very many."""
    if not 1 < len(found) <= MOST_PEERS:
        return None
    sent = {peer: [each[0]] for peer, each in found.items()}
    drawn = [stacked(sent, SENT, title="Bytes sent by peer", name="sent", form=size)]
    if any(each[3] for each in found.values()):
        wall = run.summary.get("wall_s", 0.0)
        seconds = {peer: [each[2], each[3], max(0.0, wall - each[2] - each[3])] for peer, each in found.items()}
        drawn.append(stacked(seconds, SECONDS, title="Seconds by peer", name="seconds", form=_seconds))
    shown = [each for each in drawn if each is not None]
    return tag("div", shown, class_="figures") if shown else None


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _totals(run: Run) -> dict[str, str]:
    summary = run.summary
    facts = {"rounds": f"{1 + max(record.round for record in run.metrics)} of {run.experiment.rounds}"}
    if "wall_s" not in summary:
        return facts
    foretold = " (predicted)" if summary.get("predicted") else ""
    facts |= {
        "in a round": exchanged(summary["steps"]),
        "from the first round to the last": f"{summary['wall_s']:.1f} s{foretold}",
        "before the first round": f"{summary['start_s']:.1f} s{foretold}",
        "training of all peers": f"{summary['training_s']:.1f} s",
        "sent by all peers": size(summary["bytes_sent"]),
        "models that came too late": str(summary["missed"]),
    }
    if summary.get("gradients") is not None:
        facts["gradients of all peers"] = f"{summary['gradients']:,}"
    if summary["peer_memory"] is not None:
        facts["private memory of a peer"] = size(summary["peer_memory"])
    return facts
