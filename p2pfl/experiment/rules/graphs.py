"""Rules of topologies, mixing weights and acceleration."""

from __future__ import annotations

from p2pfl.experiment.rules.rule import SettingsRule, each

MIXED = (
    SettingsRule(
        "gossip.weights",
        lambda it: it.tilted and it.algorithm.full_participation,
        "with {algorithm}, which does not divide by weights",
        "take sgp or fedavg, or other weights",
        '"push"',
    ),
    SettingsRule(
        "gossip.weights",
        lambda it: it.tilted and not it.unequal,
        "with learning.weighted = false, because it divides by the weights of peers",
        "set learning.weighted to true, or take other weights",
        '"push"',
    ),
    SettingsRule(
        "topology.kind",
        lambda it: it.graph and it.graph.period > 1 and it.algorithm.needs_one_graph,
        "with {algorithm}, which {why}",
        "take one graph, such as a ring, or another algorithm",
        "a schedule of {it.graph.period} graphs",
    ),
    SettingsRule(
        "gossip.weights",
        lambda it: it.graph and not it.graph.symmetric and it.algorithm.needs_symmetric_weights,
        "with {algorithm}, which {why}",
        'take an undirected topology with gossip.weights = "metropolis", or another algorithm',
        "an asymmetric matrix",
    ),
    *each(
        (lambda it: it.algorithm.no_acceleration, "with {algorithm}, which {why}"),
        keys=("gossip.acceleration",),
        remedy="leave it out, or take another algorithm",
    ),
    *each(
        (
            lambda it: it.graph and (it.graph.period > 1 or it.graph.directed),
            "on a schedule of topologies or a directed one",
        ),
        (lambda it: it.graph and not it.graph.symmetric, "under weights that are not symmetric"),
        keys=("gossip.acceleration",),
        remedy="leave it out, or change the topology or gossip.weights",
    ),
    *each(
        (
            lambda it: it.live and it.mode.masks,
            (
                'with privacy.mode = "{mode}" and live peers, because a late model cannot be corrected under '
                "acceleration, and its masks would stay in the mean"
            ),
        ),
        keys=("gossip.acceleration",),
        remedy="leave it out, or use p2pfl simulate, where no peer is late",
    ),
)
"""Topologies, weights and acceleration."""
