"""Predict the cost of a topology before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl import topology as graphs
from p2pfl.cli import folders, tables, terminal
from p2pfl.cli.core_commands import TopologyOptions
from p2pfl.core.errors import TopologyError
from p2pfl.experiment.parts.peer_graph import check_kind, is_own, own_graph
from p2pfl.results import plots

TOLERANCES = (1e-3, 1e-6)
"""Fractions of the initial disagreement for which the number of gossip steps is printed."""


MEMORIES = (0.9, 0.99)
"""Decays of the noise in a model, per gossip step, for which the effective number of neighbours is printed."""

MAX_GRADED_PEERS = 1024
"""Largest number of peers for which the effective number of neighbours is computed, which takes seconds."""


def run(options: TopologyOptions) -> int:
    """Run ``p2pfl topology``."""
    topology = find(options)
    figures = facts(topology)
    if options.plot:
        plots.keep(plots.graph(topology.union, side=6), options.plot)
    return terminal.answer(options, figures, lambda results: tables.facts(describe(results)))


def find(options: TopologyOptions) -> graphs.Topology | graphs.Schedule:
    """Read a graph file, call a registered or own function, or build a kind as :func:`p2pfl.topology.build` does."""
    source = options.topology
    given = {key: getattr(options, key) for key in ("degree", "seed", "period")}
    if is_own(source) and not Path(source).is_file():
        folders.accept_references(source)
        return own_graph(source, peers=options.peers, options=given, key="topology")
    if Path(source).suffix or Path(source).is_file():
        return graphs.load(source)
    check_kind(source)
    return graphs.build(source, peers=options.peers, **given)


def facts(topology: graphs.Topology | graphs.Schedule) -> dict[str, Any]:
    """Return degrees, diameter, spectral gap, effective neighbours and gossip steps to consensus of a topology."""
    graphs.check_connected(topology)
    phases = [topology.at(phase) for phase in range(topology.period)]
    rule, weights = _weights(phases)
    degrees = sorted(topology.union.degree(peer) for peer in topology.peers)
    received = np.concatenate([np.diff(phase.adjacency.indptr) for phase in phases])  # [period N]
    rho = graphs.contraction(weights)
    constant = topology.period == 1 and not topology.at(0).directed and 0 < rho < 1
    divided = not all(each.keeps_consensus for each in weights)
    known = None if divided or len(topology.peers) > MAX_GRADED_PEERS else weights
    return {
        "peers": len(topology.peers),
        "edges": topology.union.edge_count,
        "period": topology.period,
        "weights": rule,
        "keeps_mean": all(each.keeps_mean for each in weights),
        "degree": [degrees[0], degrees[-1]],
        "received": [int(received.min()), int(received.max())],
        "diameter": graphs.diameter(topology),
        "spectral_gap": 1 - rho,
        "remainder": None if divided else graphs.remainder(weights),
        "effective_neighbours": {
            f"{decay}": None if known is None else graphs.effective_neighbours(known, decay=decay) for decay in MEMORIES
        },
        "steps": {
            f"{tolerance:.0e}": graphs.steps(weights, tolerance=tolerance) if _contracts(weights, rho) else None
            for tolerance in TOLERANCES
        },
        "chebyshev_steps": {
            f"{tolerance:.0e}": graphs.chebyshev_steps(rho, tolerance=tolerance) if constant else None
            for tolerance in TOLERANCES
        },
    }


def _weights(phases: Sequence[graphs.Topology]) -> tuple[str, list[graphs.Weights]]:
    """Return the default of an experiment and its name; sums if nothing else is possible."""
    rule = "edges" if any(phase.weights for phase in phases) else "metropolis"
    try:
        return rule, [graphs.natural(phase) for phase in phases]
    except TopologyError:
        return "push", [graphs.push(phase) for phase in phases]


def _contracts(weights: Sequence[graphs.Weights], rho: float) -> bool:
    """Return whether gossip converges; weights that are not doubly stochastic may first drive models apart."""
    return rho < 1 or not all(each.keeps_mean and each.keeps_consensus for each in weights)


def describe(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts as text."""
    turns = results["period"] > 1
    lines = {
        "peers": f"{results['peers']}",
        "edges": f"{results['edges']}",
        "neighbours of a peer": _span(results["degree"]),
    }
    if turns:
        lines["graphs in turn"] = f"{results['period']}"
        lines["models received in a gossip step"] = _span(results["received"])
    lines["diameter"] = f"{results['diameter']}"
    lines["spectral gap of a period" if turns else "spectral gap"] = f"{results['spectral_gap']:.4g}"
    if results["weights"] == "push":
        lines["weights"] = 'gossip.weights = "push": some peers send to more or fewer peers than they receive from'
    elif not results["keeps_mean"]:
        lines["weights"] = "models agree, but not on their exact mean, so pairwise masks are not possible"
    if results["remainder"] is not None:
        lines["a gossip step leaves"] = f"{results['remainder']:.3g} of the squared deviation on average"
    if None not in results["effective_neighbours"].values():
        means = " and ".join(f"{value:.1f}" for value in results["effective_neighbours"].values())
        windows = " and ".join(f"{1 / (1 - float(decay)):.0f}" for decay in results["effective_neighbours"])
        lines["effective neighbours"] = f"{means} for noise that lasts {windows} gossip steps"
    for tolerance, steps in results["steps"].items():
        fewer = results["chebyshev_steps"][tolerance]
        accelerated = "" if fewer is None else f', or {fewer} with gossip.acceleration = "chebyshev"'
        lines[f"gossip steps to {tolerance}"] = "never" if steps is None else f"{steps}{accelerated}"
    return lines


def _span(of: Sequence[int]) -> str:
    low, high = of
    return f"{low}" if low == high else f"{low} to {high}"
