"""What a topology will cost, before anything runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from p2pfl import topology as graphs
from p2pfl.report.plots import blank, keep


def find(source: str, *, peers: int, degree: int, seed: int) -> graphs.Topology | graphs.Schedule:
    """Read a graph file, or build a kind."""
    if Path(source).suffix or Path(source).is_file():
        return graphs.load(source)
    return graphs.build(source, peers=peers, degree=degree, seed=seed)


def facts(topology: graphs.Topology | graphs.Schedule) -> dict[str, Any]:
    """Degrees, diameter, spectral gap and steps to consensus of a topology."""
    graphs.check_connected(topology)
    weights = [graphs.metropolis(topology.at(phase)) for phase in range(topology.period)]
    degrees = sorted(len(topology.union.neighbours(peer)) for peer in topology.peers)
    rho = graphs.contraction(weights)
    result: dict[str, Any] = {
        "peers": len(topology.peers),
        "edges": len(topology.union.edges),
        "period": topology.period,
        "degree": f"{degrees[0]} to {degrees[-1]}" if degrees[0] < degrees[-1] else f"{degrees[0]}",
        "diameter": graphs.diameter(topology),
        "spectral gap": 1 - rho,
        "steps to 1e-3": graphs.steps(weights, tolerance=1e-3) if rho < 1 else None,
        "steps to 1e-6": graphs.steps(weights, tolerance=1e-6) if rho < 1 else None,
    }
    if topology.period == 1 and not topology.at(0).directed and 0 < rho < 1:
        result["steps to 1e-3, chebyshev"] = graphs.chebyshev_steps(rho, tolerance=1e-3)
    return result


def draw(topology: graphs.Topology | graphs.Schedule, path: str) -> None:
    """Draw the union of a topology's edges on a circle."""
    figure = blank(width=6, height=6)
    topology = topology.union
    count = len(topology.peers)
    place = {
        peer: (math.cos(2 * math.pi * index / count), math.sin(2 * math.pi * index / count))
        for index, peer in enumerate(topology.peers)
    }
    axes = figure.add_subplot()
    for a, b in topology.edges:
        axes.plot(*zip(place[a], place[b], strict=True), color="0.7", linewidth=1, zorder=1)
    axes.scatter(*zip(*place.values(), strict=True), s=max(10, 400 / count * 4), zorder=2)
    if count <= 40:
        for peer, (x, y) in place.items():
            axes.annotate(peer, (1.15 * x, 1.15 * y), ha="center", va="center", fontsize=8)
    axes.set_aspect("equal")
    axes.set_axis_off()
    keep(figure, path)
