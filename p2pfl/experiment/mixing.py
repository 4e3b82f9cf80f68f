"""The weights with which peers mix, and what they allow."""

from __future__ import annotations

import numpy as np

from p2pfl import topology as graphs
from p2pfl.errors import ExperimentError
from p2pfl.experiment.algorithms import known
from p2pfl.experiment.schema import Experiment

RULES = {
    "metropolis": graphs.metropolis,
    "max_degree": graphs.max_degree,
    "push": graphs.push,
}
"""``gossip.weights`` by name; by default those that come with the graph's edges, else Metropolis-Hastings'."""


PUSHING = {"sgp", "robust_sgp", "gossip_learning", "multitask"}
"""Algorithms of which all peers take part and that divide rows by masses all the same, or weigh what they hear."""


def mixing(
    experiment: Experiment, topology: graphs.Topology | graphs.Schedule, healer: graphs.Healing | None = None
) -> tuple[graphs.Weights, ...]:
    """Return the weights of every exchange of a period; a graph that heals has its own.

    Raises
    ------
    ExperimentError
        No file of weights where one is named, masks that would not cancel, or sums that nobody divides.
    """
    if healer is None:
        kind = experiment.gossip.weights
        weights = tuple(_weights(kind, topology.at(phase)) for phase in range(topology.period))
    else:
        weights = healer.weights(topology)
    _check_masks(experiment, weights)
    _check_masses(experiment, weights)
    return weights


def _weights(kind: str | None, topology: graphs.Topology) -> graphs.Weights:
    if kind is None:
        return graphs.natural(topology)
    if kind in RULES:
        return RULES[kind](topology)
    try:
        matrix = np.load(kind) if kind.endswith(".npy") else np.loadtxt(kind, ndmin=2)
    except (OSError, ValueError) as error:
        known = ", ".join(f'"{name}"' for name in RULES)
        raise ExperimentError(
            f'gossip.weights: expected {known} or a file with a matrix, got "{kind}": {error}'
        ) from None
    return graphs.given(topology, matrix)


def _check_masks(experiment: Experiment, weights: tuple[graphs.Weights, ...]) -> None:
    """Masks of pairs add up to zero over all peers, which only weights that keep the sum of all rows preserve."""
    if experiment.privacy.mode == "pairwise" and not all(each.keeps_mean for each in weights):
        raise ExperimentError(
            f'privacy.mode: expected another than "pairwise" on {experiment.topology.kind}, whose weights do not keep '
            "the mean in which masks cancel: change it, or take another kind such as epidemic_oracle"
        )


def _check_masses(experiment: Experiment, weights: tuple[graphs.Weights, ...]) -> None:
    """Weights that keep sums alone scale rows, which must be divided by masses."""
    if all(each.keeps_consensus for each in weights):
        return
    learning = experiment.learning
    if ":" in learning.algorithm:  # one of the user's own is taken at its word
        return
    if known(learning.algorithm).everybody and learning.algorithm not in PUSHING:
        raise ExperimentError(
            f'gossip.weights: expected "push" only with an algorithm that divides by masses, got it with '
            f"{learning.algorithm}, whose peers count alike: take sgp or fedavg, or other weights"
        )
    dropped = learning.drop_stragglers and learning.stragglers > 0
    if learning.algorithm not in PUSHING and not (learning.weighted or learning.fraction < 1 or dropped):
        raise ExperimentError(
            'gossip.weights: expected masses to divide by with "push", got none with learning.weighted = false: '
            "set it to true, or take other weights"
        )
