"""Section on the topology: a drawing, and the neighbours of each peer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from p2pfl.core.errors import InputError
from p2pfl.results.facts import Block, BlockGroup, FactTable, Figure, pairs
from p2pfl.results.formats import describe_exchange
from p2pfl.results.pages.gains import MAX_LISTED_PEERS
from p2pfl.results.plots import graph
from p2pfl.results.run import Run

if TYPE_CHECKING:
    from p2pfl.topology import Schedule, Topology

MAX_DRAWN_PEERS = 1024
"""Peers up to which the topology is built again; a larger one takes seconds."""


def neighbourhoods(run: Run) -> list[Block | None]:
    """Return the topology of a run; nothing for more than 1,024 peers."""
    from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415 (imports networkx)

    settings = run.experiment.topology
    if not settings.files and settings.count > MAX_DRAWN_PEERS:
        return []
    try:
        topology = built(run.experiment, trusted=run.trusted)
    except InputError as error:
        return [f"The topology is not shown: {error}."]  # its file may be where the run was
    union = topology.union
    if len(union.peers) > MAX_DRAWN_PEERS:
        return []
    facts = pairs("Graph", _facts(run, topology))
    if len(union.peers) > MAX_LISTED_PEERS:
        return [facts]
    rows = [[peer, ", ".join(union.senders(peer))] for peer in union.peers]
    twin = FactTable("Neighbours by peer", ("peer", "receives from"), rows, text=2)
    return [
        BlockGroup([_drawing(union, run.attackers), facts], "beside"),
        BlockGroup([twin], "details", "the neighbours of each peer"),
    ]


def _facts(run: Run, topology: Topology | Schedule) -> dict[str, object]:
    union = topology.union
    degrees = sorted(union.degree(peer) for peer in union.peers)
    facts: dict[str, object] = {
        "peers": len(union.peers),
        "edges": len(union.edges),
        "neighbours of a peer": f"{degrees[0]}" if degrees[0] == degrees[-1] else f"{degrees[0]} to {degrees[-1]}",
    }
    if topology.period > 1:
        facts["graphs in turn"] = topology.period
    steps = run.summary.get("steps")
    if steps is not None:
        facts["in a round"] = describe_exchange(steps)
    return facts


def _drawing(topology: Topology, attackers: frozenset[str]) -> Figure:
    kind = "directed edges from senders to receivers" if topology.directed else "edges in both directions"
    attack = f" {len(attackers)} of them attack, in another colour." if attackers else ""
    about = (
        f"{len(topology.peers)} peers and {len(topology.edges)} {kind}.{attack} The list below names the neighbours."
    )
    return Figure("Peers and their edges", about, partial(graph, topology, attackers=attackers))
