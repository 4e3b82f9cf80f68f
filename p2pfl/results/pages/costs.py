"""Sections on what each peer did and what the run cost: time, bytes and seconds of each peer, and of the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from p2pfl.results.facts import Block, BlockGroup, FactTable, Figure, pairs, shortened
from p2pfl.results.formats import exchanged, size
from p2pfl.results.pages.gains import MOST_PEERS
from p2pfl.results.plots import COLOURS, RED, TEAL, bars, blank
from p2pfl.results.run import Run
from p2pfl.results.swarm.headline import seconds as duration
from p2pfl.results.swarm.lanes import Doing, Stretch, busiest
from p2pfl.results.swarm.timeline import swarm_of_run

SENT = {"sent": COLOURS[0]}
SECONDS = {"training": COLOURS[2], "waiting": COLOURS[1], "the rest: mixing, sending and records": TEAL}

MOST_LANES = 40
"""Lanes of a figure."""

LOOKS: dict[Doing, tuple[str, str, float]] = {
    "training": ("trains", COLOURS[2], 0.7),
    "waiting": ("waits", COLOURS[1], 0.25),
    "offline": ("without broker", COLOURS[5], 0.45),
    "away": ("gone, failed or silent", RED, 0.7),
}
"""Words, colour and height of what a lane shows."""

Costs = Mapping[str, Sequence[float]]
"""Bytes sent, bytes received, seconds of training, seconds of waiting, and number of missed models, by peer."""


def costs(run: Run) -> list[Block | None]:
    """Return bytes and seconds by peer and altogether."""
    last = {record.peer: record for record in run.metrics}
    if not last:
        return []
    spent = {peer: [0.0, 0.0, 0.0] for peer in last}
    for record in run.metrics:
        each = record.seconds_training, record.seconds_waiting, len(record.missed)
        spent[record.peer] = [before + now for before, now in zip(spent[record.peer], each, strict=True)]
    found = {peer: [last[peer].bytes_out, last[peer].bytes_in, *spent[peer]] for peer in sorted(last)}
    return [BlockGroup([pairs("The whole run", _totals(run)), _table(found)], "beside"), _bars(run, found)]


def _table(found: Costs) -> FactTable | None:
    forms = [size, size, _seconds, _seconds, _whole]
    used = [any(column) for column in zip(*found.values(), strict=True)]
    rows = [
        [peer, *(form(cost) if shown else "" for form, cost, shown in zip(forms, each, used, strict=True))]
        for peer, each in found.items()
    ]
    heads = ("peer", "sent", "received", "training", "waiting", "missed models")
    return FactTable("By peer", heads, shortened(rows, MOST_PEERS)).dense() if any(used) else None


def _bars(run: Run, found: Costs) -> BlockGroup | None:
    """Return bars of bytes and, of peers with clocks of their own, of seconds; ``None`` for one peer or very many."""
    if not 1 < len(found) <= MOST_PEERS:
        return None
    figures: list[Block | None] = []
    sent = {peer: [each[0]] for peer, each in found.items()}
    if any(each[0] for each in found.values()):
        figures.append(_figure("Bytes sent by peer", sent, SENT, form=size))
    if any(each[3] for each in found.values()):
        wall = run.summary.get("wall_s", 0.0)
        seconds = {peer: [each[2], each[3], max(0.0, wall - each[2] - each[3])] for peer, each in found.items()}
        figures.append(_figure("Seconds by peer", seconds, SECONDS, form=_seconds))
    return BlockGroup(figures, "figures") if figures else None


def _figure(title: str, rows: Costs, parts: Mapping[str, str], *, form: Any) -> Figure:
    longest = max(rows, key=lambda row: sum(rows[row]))
    about = f"{len(rows)} bars; the longest is that of {longest}, {form(sum(rows[longest]))}."
    return Figure(title, about, partial(bars, rows, parts, form=form))


def lanes(run: Run) -> Figure | None:
    """Return what each peer did over time; ``None`` if the events have no times, or all peers only trained."""
    swarm = swarm_of_run(run)
    timed = any(event.time is not None for event in run.events)
    peers = busiest(swarm.lanes, [*swarm.peers], since=0.0, until=swarm.at, most=MOST_LANES)
    found = {peer: swarm.lanes.of(peer, since=0.0, until=swarm.at) for peer in peers}
    lost = {peer: sum(e.ended - e.began for e in each if e.doing != "training") for peer, each in found.items()}
    if not timed or not any(lost.values()):
        return None
    most = max(lost, key=lambda peer: lost[peer])
    said = f"{most} lost most time: {duration(lost[most])} of {duration(swarm.at)} without training."
    more = len(swarm.peers) - len(found)
    note = f"{said} A wait counts from one second on.{f' {more} peers that lost less are not shown.' if more else ''}"
    return Figure("What each peer did", said, partial(_drawn, found, swarm.at), style="wide", note=note)


def _drawn(found: Mapping[str, Sequence[Stretch]], until: float) -> Any:
    from matplotlib.patches import Patch  # noqa: PLC0415 (an extra)

    picture = blank(width=9.6, height=0.9 + 0.2 * len(found))
    axes = picture.subplots()
    for place, stretches in enumerate(found.values()):
        for each in stretches:
            _, colour, high = LOOKS[each.doing]
            span = each.began, max(each.ended - each.began, until / 900)
            axes.broken_barh([span], (place - high / 2, high), color=colour, linewidth=0)
    axes.set_yticks(range(len(found)), [peer[:16] for peer in found])
    axes.set(xlim=(0, until), ylim=(len(found) - 0.4, -0.6), xlabel="seconds since the start")
    axes.grid(visible=False, axis="y")
    handles = [Patch(color=colour, label=word) for word, colour, _ in LOOKS.values()]
    picture.legend(handles=handles, loc="outside lower left", ncols=len(handles))
    return picture


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
