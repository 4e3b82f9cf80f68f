"""How many exchanges a round takes, and in how many a word of anybody reaches everybody."""

from __future__ import annotations

import math

import numpy as np

from p2pfl import topology as graphs
from p2pfl.errors import ExperimentError
from p2pfl.experiment.catalogue import traits_of
from p2pfl.experiment.protection import Protection
from p2pfl.experiment.schema import Experiment


def exchanges(
    experiment: Experiment,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    hidden: Protection | None = None,
) -> tuple[int, float | None]:
    """Exchanges a round, and rho where they are accelerated."""
    gossip = experiment.gossip
    fewest = {"chebyshev": graphs.chebyshev_steps, "heavy_ball": graphs.heavy_ball_steps}.get(gossip.acceleration)
    accelerated = fewest is not None
    rho = graphs.contraction(weights[:1]) if accelerated else None
    share = _taking_part(experiment) * (1.0 if hidden is None else hidden.settings.participation)
    if gossip.steps is not None:
        if fewest and rho is not None and (part := _taking_part(experiment)) < 1:
            tolerance = _near_one(share=part, peers=len(topology.peers))
            _check_masses(experiment, fewest=fewest(rho, tolerance=tolerance), share=part)
        return gossip.steps, rho
    if traits_of(experiment.learning.algorithm).full_participation:
        return 1, rho
    # What is left of the masks is divided by the mean mass, which is the share of peers that take part.
    tolerance = gossip.tolerance / max(1.0, 0.0 if hidden is None else hidden.scale / share)
    if fewest and rho is not None:
        return fewest(rho, tolerance=tolerance), rho
    return graphs.steps(weights, tolerance=tolerance), None


def _taking_part(experiment: Experiment) -> float:
    """Share of the peers that take part in a round, on average."""
    learning = experiment.learning
    if learning.drop_stragglers and learning.stragglers == 1:
        raise ExperimentError(
            "learning.stragglers: expected less than 1 with learning.drop_stragglers, got 1, so that nobody ever takes "
            "part: lower it, or keep them"
        )
    return learning.fraction * (1 - learning.stragglers if learning.drop_stragglers else 1.0)


def _near_one(*, share: float, peers: int) -> float:
    """What disagreement leaves no mass near zero.

    Masses of 1 at a share C of N peers lie within C / 2 of their mean once their disagreement, of norm
    sqrt(C N), has shrunk to that.
    """
    return math.sqrt(share / peers) / 2


def _check_masses(experiment: Experiment, *, fewest: int, share: float) -> None:
    """Accelerated weights may be negative: too few steps leave masses near zero, and rows are divided by them."""
    gossip = experiment.gossip
    if gossip.steps is not None and gossip.steps < fewest:
        raise ExperimentError(
            f"gossip.steps: expected at least {fewest} with {gossip.acceleration} where a share of {share:g} of the "
            f"peers take part, got {gossip.steps}: raise it, leave it out, or set gossip.acceleration to none"
        )


def flood(topology: graphs.Topology | graphs.Schedule) -> int:
    """Exchanges after which everybody has heard from everybody, from whichever phase they begin."""
    if isinstance(topology, graphs.Topology):
        return graphs.diameter(topology)
    hears = [topology.at(phase).adjacency.astype(np.float32) for phase in range(topology.period)]
    longest = 0
    for first in range(topology.period):
        told = np.eye(len(topology.peers), dtype=bool)  # [N, N]: whom each has heard of
        steps = 0
        while not told.all():
            told |= hears[(first + steps) % topology.period] @ told.astype(np.float32) > 0
            steps += 1
        longest = max(longest, steps)
    return longest
