"""What a topology will cost, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p2pfl import topology as graphs
from p2pfl.report.plots import blank, keep

TOLERANCES = (1e-3, 1e-6)
"""Shares of a disagreement that are left after the exchanges that are counted."""


def find(source: str, *, peers: int, degree: int, seed: int) -> graphs.Topology | graphs.Schedule:
    """Read a graph file, or build a kind."""
    if Path(source).suffix or Path(source).is_file():
        return graphs.load(source)
    return graphs.build(source, peers=peers, degree=degree, seed=seed)


def facts(topology: graphs.Topology | graphs.Schedule) -> dict[str, Any]:
    """Degrees, diameter, spectral gap and exchanges to consensus of a topology."""
    graphs.check_connected(topology)
    weights = [graphs.metropolis(topology.at(phase)) for phase in range(topology.period)]
    degrees = sorted(len(topology.union.neighbours(peer)) for peer in topology.peers)
    rho = graphs.contraction(weights)
    constant = topology.period == 1 and not topology.at(0).directed and 0 < rho < 1
    return {
        "peers": len(topology.peers),
        "edges": len(topology.union.edges),
        "period": topology.period,
        "degree": [degrees[0], degrees[-1]],
        "diameter": graphs.diameter(topology),
        "spectral_gap": 1 - rho,
        "steps": {
            f"{tolerance:.0e}": graphs.steps(weights, tolerance=tolerance) if rho < 1 else None
            for tolerance in TOLERANCES
        },
        "chebyshev_steps": {
            f"{tolerance:.0e}": graphs.chebyshev_steps(rho, tolerance=tolerance) if constant else None
            for tolerance in TOLERANCES
        },
    }


def described(found: Mapping[str, Any]) -> dict[str, str]:
    """The facts for people."""
    low, high = found["degree"]
    said = {
        "peers": f"{found['peers']}",
        "edges": f"{found['edges']}",
        "neighbours of a peer": f"{low}" if low == high else f"{low} to {high}",
        "diameter": f"{found['diameter']}",
        "spectral gap": f"{found['spectral_gap']:.4g}",
    }
    if found["period"] > 1:
        said["graphs in turn"] = f"{found['period']}"
    for tolerance, steps in found["steps"].items():
        fewer = found["chebyshev_steps"][tolerance]
        accelerated = "" if fewer is None else f', or {fewer} with gossip.acceleration = "chebyshev"'
        said[f"exchanges to {tolerance}"] = "without end" if steps is None else f"{steps}{accelerated}"
    return said


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
    axes.set(aspect="equal", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
    axes.set_axis_off()
    keep(figure, path)
