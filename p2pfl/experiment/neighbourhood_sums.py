"""Sums over neighbourhoods: whether they can hide anything in an experiment, and what they show.

There is one gossip step per round, on one graph, so the weights alone say what the sums of a round show. Over several
rounds, models that were mixed are released again. What a receiver sees then is recorded from the algorithm itself: it
runs on rows that hold, for each peer and round, the factor of what that peer released. So whatever it does with what
was mixed (weights, momentum) is in the view, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from p2pfl.algorithms import Algorithm, Idle, State, average_of, share_all
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Public
from p2pfl.core.tensors import torch
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.schema import Experiment
from p2pfl.learning import ExternalLearner, Learner
from p2pfl.privacy.accounting.sum_leakage import FactorNeighbourhood, Sums, watch
from p2pfl.privacy.normal_stream import MAX_DEVIATIONS, Ints
from p2pfl.privacy.secagg.in_process import senders
from p2pfl.privacy.secagg.protocol import enough, fewest
from p2pfl.privacy.secagg.weighted_sums import width
from p2pfl.topology import Weights

MAX_VIEW_SIZE = 2**24
"""Numbers of a view; a larger one is not looked at, and the local floor takes its place."""


def neighbourhood_sums(experiment: Experiment, weights: Weights, algorithm: Algorithm, learner: Learner) -> Sums:
    """Return what the sums of an experiment reveal to each observer.

    Parameters
    ----------
    experiment
        With ``privacy.mode = "secagg"``.
    weights
        Of every gossip step.
    algorithm, learner
        As in :class:`p2pfl.experiment.resolved.Plan`, with the sizes of all peers' data.

    Raises
    ------
    ExperimentError
        Sums cannot hide single rows there.
    """
    _check_neighbours(weights, colluders=experiment.privacy.colluders)
    wanted, peers = experiment.privacy, len(weights.peers)
    short = peers**2 <= MAX_VIEW_SIZE
    view = Sums(weights.peers, weights.rows.dense[None, :, None, :] if short else None)
    if not short and wanted.colluders > 1:
        raise ExperimentError(
            f'privacy.mode = "secagg" cannot be checked for {peers} peers and privacy.colluders = {wanted.colluders}, '
            "because they have too many sums; set privacy.colluders = 1, take fewer peers, or set privacy.mode to "
            '"pairwise"'
        )
    exposed = view.find_exposed(min(wanted.colluders, peers - 2))
    if exposed is not None:
        _refuse_exposed(*exposed)
    if wanted.epsilon is None and not wanted.noise:
        return view
    rounds = experiment.horizon
    if (peers * rounds) ** 2 > MAX_VIEW_SIZE:
        return Sums(weights.peers, None)
    return _watch_sums(weights, algorithm, learner, rounds=rounds)


def check_live(experiment: Experiment, algorithm: Algorithm) -> None:
    """Refuse what live peers cannot add up.

    Parameters
    ----------
    experiment, algorithm
        As in :func:`summed`, as every single peer knows them.

    Raises
    ------
    ExperimentError
        Learning could begin without a peer whose key others need, or the weights of the sums are unknown.
    """
    average, quorum = average_of(algorithm), experiment.transport.gathering.quorum
    if quorum < 1:
        raise ExperimentError(
            f'transport.gather.quorum = {quorum:g} does not work with privacy.mode = "secagg", whose masks need the '
            'keys of all senders of a sum; set transport.gather.quorum to 1, or privacy.mode to "pairwise"'
        )
    if average is not None and average.weighted and average.mean_samples is None:
        raise ExperimentError(
            'learning.weighted = true does not work with privacy.mode = "secagg" for peers that know the size of their '
            "own data alone, because the protection depends on all sizes; set learning.weighted to false, or "
            'privacy.mode to "pairwise"'
        )


def sized(samples: Mapping[str, int]) -> Learner:
    """Return a learner that knows nothing but how many samples each peer has."""
    return ExternalLearner(lambda row, *, peer, round: row, start=torch.zeros(1), samples=samples)  # noqa: ARG005


def masses(algorithm: Algorithm, learner: Learner, peers: Sequence[str]) -> tuple[float, float]:
    """Return the smallest and the largest mass that peers of an experiment count by."""
    average = average_of(algorithm)
    if average is None or not average.weighted:
        return 1.0, 1.0
    samples = learner.samples(peers).double()
    shares = samples / (average.mean_samples or samples.max())
    return float(shares.min()), float(shares.max())


def least(weights: Weights, *, colluders: int) -> Ints:
    """Return the minimum number of senders whose terms each receiver needs to get their sum, ``[N]``."""
    return np.array([fewest(count, colluders=colluders) for count in senders(weights).tolist()])


def ring_width(
    asked: Composition,
    weights: Weights,
    *,
    start: float,
    clip: float,
    noise: float,
    rounds: int,
    masses: tuple[float, float] = (1.0, 1.0),
) -> int:
    r"""Return the bits of the ring that holds every sum of a run: 32 where the settings bound what rows can become.

    With masses from a to b a round moves the mean of rows by at most :math:`(C + R s) / a`, and what is released
    of it is at most b times as large, and one such move.

    Parameters
    ----------
    asked, weights
        Settings and traits; weights as in :func:`summed`.
    start
        The largest magnitude of a number in the common start.
    clip, noise, rounds
        By how much a row moves in a round, and in how many.
    masses
        The smallest and the largest.
    """
    rows = weights.rows
    sums = np.bincount(rows.rows, weights=rows.data)  # [N]
    convex = asked.algorithm.convex and bool(rows.data.min() >= 0 and sums.max() < 1 + 1e-9)
    heaviest = rows.data[rows.rows != rows.indices].max(initial=0.0)
    terms = int(senders(weights).max())
    low, high = masses
    move = clip + MAX_DEVIATIONS * noise
    largest = heaviest * (high * (start + rounds * move / low) + move) if convex and low > 0 else math.inf
    return width(terms, largest=largest, bits=asked.experiment.privacy.bits)


def _check_neighbours(weights: Weights, *, colluders: int) -> None:
    needed = enough(colluders)
    for peer, received in zip(weights.peers, senders(weights).tolist(), strict=True):
        if 0 < received < needed:
            helped = "" if colluders < 2 else f", {colluders - 1} of which may collude with the receiver"
            raise ExperimentError(
                f'privacy.mode = "secagg" hides a model in a sum of at least {needed} senders{helped}, and {peer} '
                f'receives from {received}; take a denser topology, or set privacy.mode to "pairwise"'
            )


def _refuse_exposed(together: tuple[str, ...], peer: str) -> None:
    who = f"{together[0]} alone" if len(together) == 1 else f"{', '.join(together)} together"
    raise ExperimentError(
        f'privacy.mode = "secagg" does not hide the model of {peer} on this graph, because {who} can compute it from '
        'the sums; lower privacy.colluders, take another topology, or set privacy.mode to "pairwise"'
    )


def _watch_sums(weights: Weights, algorithm: Algorithm, learner: Learner, *, rounds: int) -> Sums:
    """Return what everybody sees of an algorithm in all rounds."""
    rows = torch.zeros(len(weights.peers), rounds * len(weights.peers), dtype=torch.float64)  # [N, T * N]
    state = State(rows, Public(rows))  # factors, not parameters
    algorithm = share_all(algorithm, rows.shape[-1])

    async def act(net: FactorNeighbourhood, round: int) -> None:
        nonlocal state
        state = await algorithm.round(state, Idle(learner), net, round)

    return watch(weights, act, rounds=rounds)
