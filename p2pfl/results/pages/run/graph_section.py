"""Section on the topology: a drawing, the spectrum of its weights, and the consensus that peers reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from p2pfl.core.errors import InputError
from p2pfl.results.formats import exchanged
from p2pfl.results.pages.markup import Markup, join, tag
from p2pfl.results.pages.parts import MOST_PEERS, beside, details, pairs, table
from p2pfl.results.pages.svg import WIDTH, drawing
from p2pfl.results.reading import apart_by_masks
from p2pfl.results.records import Record, by_round
from p2pfl.results.run import Run

if TYPE_CHECKING:
    from p2pfl.topology import Schedule, Topology, Weights

LARGEST = 1024
"""Peers up to which the topology is built again; a larger one takes seconds."""

NAMED = 24
"""Peers up to which a drawing has names."""

SIDE, MARGIN, DOT = WIDTH, 70, 7
"""Width and height of a drawing, space around it for names, and radius of a peer."""


def neighbourhoods(run: Run) -> Markup | None:
    """Return the topology of a run, its spectrum and the observed consensus; ``None`` for more than 1,024 peers."""
    from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415 (imports networkx)
    from p2pfl.experiment.parts.weights import mixing  # noqa: PLC0415

    settings = run.experiment.topology
    if not settings.files and settings.peers > LARGEST:
        return None
    try:
        topology = built(run.experiment)
        weights = mixing(run.experiment, topology)
    except InputError as error:
        return tag("p", f"The topology is not shown: {error}.")  # its file may be where the run was
    union = topology.union
    if len(union.peers) > LARGEST:
        return None
    facts = pairs("Graph and consensus", _facts(run, topology, weights))
    if len(union.peers) > MOST_PEERS:
        return facts
    return join([beside(_drawing(union, run.attackers), facts), _twin(union)])


def _facts(run: Run, topology: Topology | Schedule, weights: Sequence[Weights]) -> dict[str, object]:
    union = topology.union
    degrees = sorted(len(union.neighbours(peer)) for peer in union.peers)
    facts: dict[str, object] = {
        "peers": len(union.peers),
        "edges": len(union.edges),
        "neighbours of a peer": f"{degrees[0]}" if degrees[0] == degrees[-1] else f"{degrees[0]} to {degrees[-1]}",
    }
    if topology.period > 1:
        facts["graphs in turn"] = topology.period
    steps = run.summary.get("steps")
    if steps is not None:
        facts["in a round"] = exchanged(steps)
    if weights and steps:
        facts |= _predicted(weights, steps)
    seen = _observed(run.honest)
    if seen is not None and steps:
        masked = apart_by_masks(run.summary, run.experiment)
        facts["observed: the last step moves"] = "hidden by masks" if masked else f"{seen:.2g} times the training"
    return facts


def _predicted(weights: Sequence[Weights], steps: int) -> dict[str, object]:
    """Return the spectral gap, and the largest share of the disagreement that a round leaves."""
    from p2pfl import topology as graphs  # noqa: PLC0415 (imports networkx)

    left = graphs.contraction([weights[step % len(weights)] for step in range(steps)])
    return {
        "spectral gap" if len(weights) == 1 else "spectral gap of a period": f"{1 - graphs.contraction(weights):.4g}",
        "predicted: a round leaves at most": f"{left:.2g} of the disagreement",
    }


def _observed(records: Sequence[Record]) -> float | None:
    """Return the distance of the last gossip step over that of training: the median of all rounds and peers."""
    found = [
        record.distance / record.update
        for each in by_round(records).values()
        for record in each
        if record.update and record.received
    ]
    return statistics.median(found) if found else None


def _drawing(topology: Topology, attackers: frozenset[str]) -> Markup:
    from p2pfl.topology.drawing import positions  # noqa: PLC0415 (imports networkx)

    half = (SIDE - 2 * MARGIN) / 2
    places = {
        peer: (round(SIDE / 2 + x * half, 1), round(SIDE / 2 + y * half, 1))
        for peer, (x, y) in positions(topology).items()
    }
    parts = [_edge(*places[a], *places[b], arrow=topology.directed) for a, b in topology.edges]
    parts += [
        tag("circle", cx=x, cy=y, r=DOT, class_="c6" if peer in attackers else "c0") for peer, (x, y) in places.items()
    ]
    if len(places) <= NAMED:
        parts += [_name(peer, *place) for peer, place in places.items()]
    kind = "directed edges from senders to receivers" if topology.directed else "edges in both directions"
    attack = f" {len(attackers)} of them attack, in another colour." if attackers else ""
    about = f"{len(places)} peers and {len(topology.edges)} {kind}.{attack} The list below names the neighbours."
    image = drawing("graph", "Topology", about, [*([_head()] if topology.directed else []), *parts], height=SIDE)
    return tag("figure", tag("figcaption", "Peers and their edges"), image, class_="graph")


def _edge(x1: float, y1: float, x2: float, y2: float, *, arrow: bool) -> Markup:
    end = "url(#arrow)" if arrow else None
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="axis", marker_end=end)


def _head() -> Markup:
    """Return the head of an arrow, which ends before the circle of a peer."""
    shape = tag("path", d="M0 0 L8 4 L0 8 z", class_="plain")
    return tag("marker", shape, id="arrow", refX=8 + DOT, refY=4, markerWidth=8, markerHeight=8, orient="auto")


def _name(peer: str, x: float, y: float) -> Markup:
    """Return the name of a peer on the side that faces away from the centre."""
    across, down = x - SIDE / 2, y - SIDE / 2
    anchor = "middle" if abs(across) < SIDE / 10 else "start" if across > 0 else "end"
    aside = {"middle": 0, "start": DOT + 4, "end": -DOT - 4}[anchor]
    below = (DOT + 14 if down > 0 else -DOT - 5) if anchor == "middle" else 4
    return tag("text", peer if len(peer) <= 12 else f"{peer[:11]}…", x=x + aside, y=y + below, text_anchor=anchor)


def _twin(topology: Topology) -> Markup:
    """Return the graph as a table, for readers who do not see it."""
    rows = [[peer, ", ".join(topology.senders(peer))] for peer in topology.peers]
    return details("the neighbours of each peer", table("Neighbours by peer", ("peer", "receives from"), rows, text=2))
