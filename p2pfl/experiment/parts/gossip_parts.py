"""Mixing weights from ``gossip.weights``, the gossip steps of a round, and how many carry a message to all peers."""

from __future__ import annotations

import math

import numpy as np

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.protection import Protection
from p2pfl.experiment.schema import Experiment

WEIGHTS = {
    "metropolis": graphs.metropolis,
    "max_degree": graphs.max_degree,
    "push": graphs.push,
}
"""``gossip.weights`` by name; by default those that come with the graph's edges, else Metropolis-Hastings'."""


def mixing_weights(experiment: Experiment, topology: graphs.Topology | graphs.Schedule) -> tuple[graphs.Weights, ...]:
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
    if kind in WEIGHTS:
        return WEIGHTS[kind](topology)
    try:
        matrix = np.load(kind) if kind.endswith(".npy") else np.loadtxt(kind, ndmin=2)
    except (OSError, ValueError) as error:
        known = ", ".join(f'"{name}"' for name in WEIGHTS)
        raise ExperimentError(
            f'gossip.weights is "{kind}", which is no file with a matrix ({error}); set it to {known} or to such a file'
        ) from None
    return graphs.given(topology, matrix)


def steps_of_round(
    asked: Composition,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    hidden: Protection | None = None,
) -> tuple[int, float | None]:
    """Return the number of gossip steps per round, and rho if they are accelerated; secure sums make one.

    Raises
    ------
    ExperimentError
        No peer would take part in a round, or accelerated weights might be too close to zero.
    """
    experiment, traits = asked.experiment, asked.algorithm
    gossip = experiment.gossip
    if asked.mode.sums:
        return 1, None
    rho = graphs.contraction(weights[:1]) if gossip.acceleration == "chebyshev" else None
    share = _taking_part(experiment) * (1.0 if hidden is None else hidden.settings.participation)
    if gossip.steps is not None:
        if rho is not None and (part := _taking_part(experiment)) < 1:
            tolerance = _near_one(share=part, peers=len(topology.peers))
            _check_masses(experiment, fewest=graphs.chebyshev_steps(rho, tolerance=tolerance), share=part)
        return gossip.steps, rho
    if traits.full_participation or traits.single_step:
        return 1, rho
    # What is left of the masks is divided by the mean mass, which is the share of peers that take part.
    tolerance = gossip.tolerance / max(1.0, 0.0 if hidden is None else hidden.scale / share)
    if rho is not None:
        return graphs.chebyshev_steps(rho, tolerance=tolerance), rho
    return graphs.steps(weights, tolerance=tolerance), None


def _taking_part(experiment: Experiment) -> float:
    """Return the share of the peers that takes part in a round, on average."""
    learning = experiment.learning
    if learning.dropped == 1:
        raise ExperimentError(
            "learning.stragglers = { share = 1, drop = true } leaves no peer in any round; lower the share, or leave "
            "out drop"
        )
    return learning.fraction * (1 - learning.dropped)


def _near_one(*, share: float, peers: int) -> float:
    """Return the share of a disagreement at which no weight is close to zero.

    Weights of 1 at a share C of N peers lie within C / 2 of their mean once their disagreement, of norm
    sqrt(C N), has shrunk to that.
    """
    return math.sqrt(share / peers) / 2


def _check_masses(experiment: Experiment, *, fewest: int, share: float) -> None:
    """Refuse too few accelerated steps: they leave weights close to zero, and models are divided by them."""
    gossip = experiment.gossip
    if gossip.steps is not None and gossip.steps < fewest:
        raise ExperimentError(
            f"gossip.steps is {gossip.steps}, and {gossip.acceleration} needs at least {fewest} where a share of "
            f"{share:g} of the peers takes part; raise it, leave it out, or set gossip.acceleration to none"
        )
