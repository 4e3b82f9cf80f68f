"""95 % intervals of what a peer gains by learning together, from both of its models on the same test samples."""

from __future__ import annotations

import math

import numpy as np

from p2pfl.core.tensors import torch
from p2pfl.learning import Learner, metrics
from p2pfl.learning.learner import Predicts
from p2pfl.learning.losses import PerSample
from p2pfl.learning.set_scores import SetScore
from p2pfl.results.comparisons.intervals import compare_paired, newcombe
from p2pfl.results.content import GainInterval

MIN_BOOTSTRAP_SAMPLES = 20
"""Smallest number of samples whose bootstrap gives an interval."""

SCORE_TOLERANCE = 1e-3
"""A recorded score and that of the model at hand may differ by this much."""


def share_interval(together: float, alone: float, *, count: int) -> GainInterval | None:
    """Return the interval of the gain of a share of ``count`` samples; ``None`` if a share is not a number."""
    low, high = newcombe(together, alone, count)
    return None if math.isnan(low) else GainInterval(low, high, "newcombe")


def gain_interval(
    learner: Learner,
    peer: str,
    *,
    metric: str,
    alone: torch.Tensor,
    together: torch.Tensor,
    recorded: float,
    seed: int,
    peers: int = 1,
) -> GainInterval | None:
    """Return the interval of the gain of a score; ``None`` where nothing sound can be computed.

    Parameters
    ----------
    learner
        Learner that scored the models.
    peer
        Peer on whose test samples they are compared.
    metric
        Name of the score.
    alone, together
        Models ``[P]`` that the peer trained alone and with the others.
    recorded
        Score of ``together`` as it was recorded: of another model the interval would mean nothing.
    seed
        Seed of the bootstrap.
    peers
        Number of peers whose intervals are computed; with many there are fewer bootstrap samples.
    """
    bare = learner.bare
    if not isinstance(bare, Predicts) or metric not in bare.scoring:
        return None
    score = bare.scoring[metric]
    before, targets = bare.outputs(alone, peer=peer)
    after, _ = bare.outputs(together, peer=peer)
    if not len(targets):
        return None
    if isinstance(score, SetScore):
        return _bootstrap_interval(score, (before, after), targets, recorded=recorded, seed=seed, peers=peers)
    return _paired_interval(score, (before, after), targets, recorded=recorded)


Pair = tuple[torch.Tensor, torch.Tensor]
"""Outputs of the model that was trained alone, and of the one that was learned together."""


def _paired_interval(score: PerSample, outputs: Pair, targets: torch.Tensor, *, recorded: float) -> GainInterval | None:
    alone, together = (score(each, targets).double().numpy() for each in outputs)  # [n]
    if not _same(float(together.mean()), recorded):
        return None
    if set(np.unique([alone, together])) <= {0.0, 1.0}:
        return share_interval(float(together.mean()), float(alone.mean()), count=len(targets))
    difference, _ = compare_paired(together.tolist(), alone.tolist())
    if difference.half is None or not math.isfinite(difference.half):
        return None
    return GainInterval(difference.mean - difference.half, difference.mean + difference.half, "paired t")


def _bootstrap_interval(
    score: SetScore, outputs: Pair, targets: torch.Tensor, *, recorded: float, seed: int, peers: int
) -> GainInterval | None:
    def of(each: torch.Tensor, chosen: torch.Tensor) -> float:
        return score.score([score.kept(each[chosen], targets[chosen])])

    def gain(_: metrics.Floats, chosen: metrics.Ints) -> float:
        rows = torch.from_numpy(chosen)
        return of(outputs[1], rows) - of(outputs[0], rows)

    count = len(targets)
    everyone = np.arange(count)
    if count < MIN_BOOTSTRAP_SAMPLES or not _same(of(outputs[1], torch.from_numpy(everyone)), recorded):
        return None
    draws = metrics.affordable(count * peers)
    low, high = metrics.intervals({"gain": gain}, np.empty(count), everyone, seed=seed, draws=draws)["gain"]
    return None if math.isnan(low) else GainInterval(low, high, "bootstrap", draws)


def _same(value: float, recorded: float) -> bool:
    """Return whether two scores are those of one model; numbers that are not finite have no interval."""
    return math.isclose(value, recorded, rel_tol=SCORE_TOLERANCE, abs_tol=SCORE_TOLERANCE)
