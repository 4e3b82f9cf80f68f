"""Mixing weights from ``gossip.weights``."""

from __future__ import annotations

import numpy as np

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.schema import Experiment

RULES = {
    "metropolis": graphs.metropolis,
    "max_degree": graphs.max_degree,
    "push": graphs.push,
}
"""``gossip.weights`` by name; by default those that come with the graph's edges, else Metropolis-Hastings'."""


def mixing(experiment: Experiment, topology: graphs.Topology | graphs.Schedule) -> tuple[graphs.Weights, ...]:
    """Return the weights of each gossip step of a period.

    Raises
    ------
    ExperimentError
        The file of weights is missing or holds no matrix.
    """
    kind = experiment.gossip.weights
    return tuple(_weights(kind, topology.at(phase)) for phase in range(topology.period))


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
            f'gossip.weights is "{kind}", which is no file with a matrix ({error}); set it to {known} or to such a file'
        ) from None
    return graphs.given(topology, matrix)
