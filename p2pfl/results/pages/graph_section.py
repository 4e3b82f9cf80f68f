"""Section on the topology: a drawing, the spectrum of its weights, and the consensus that peers reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from p2pfl.core.errors import InputError
from p2pfl.results.facts import Block, BlockGroup, FactTable, Figure, pairs
from p2pfl.results.formats import exchanged
from p2pfl.results.pages.gains import MOST_PEERS
from p2pfl.results.plots import graph
from p2pfl.results.records import Record, by_round
from p2pfl.results.run import Run
from p2pfl.results.run_files import apart_by_masks

if TYPE_CHECKING:
    from p2pfl.topology import Schedule, Topology, Weights

LARGEST = 1024
"""Peers up to which the topology is built again; a larger one takes seconds."""


def neighbourhoods(run: Run) -> list[Block | None]:
    """Return the topology of a run, its spectrum and the observed consensus; nothing for more than 1,024 peers."""
    from p2pfl.experiment.parts.gossip_parts import mixing  # noqa: PLC0415
    from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415 (imports networkx)

    settings = run.experiment.topology
    if not settings.files and settings.peers > LARGEST:
        return []
    try:
        topology = built(run.experiment)
        weights = mixing(run.experiment, topology)
    except InputError as error:
        return [f"The topology is not shown: {error}."]  # its file may be where the run was
    union = topology.union
    if len(union.peers) > LARGEST:
        return []
    facts = pairs("Graph and consensus", _facts(run, topology, weights))
    if len(union.peers) > MOST_PEERS:
        return [facts]
    rows = [[peer, ", ".join(union.senders(peer))] for peer in union.peers]
    twin = FactTable("Neighbours by peer", ("peer", "receives from"), rows, text=2)
    return [
        BlockGroup([_drawing(union, run.attackers), facts], "beside"),
        BlockGroup([twin], "details", "the neighbours of each peer"),
    ]


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


def _drawing(topology: Topology, attackers: frozenset[str]) -> Figure:
    kind = "directed edges from senders to receivers" if topology.directed else "edges in both directions"
    attack = f" {len(attackers)} of them attack, in another colour." if attackers else ""
    about = (
        f"{len(topology.peers)} peers and {len(topology.edges)} {kind}.{attack} The list below names the neighbours."
    )
    return Figure("Peers and their edges", about, partial(graph, topology, attackers=attackers))
