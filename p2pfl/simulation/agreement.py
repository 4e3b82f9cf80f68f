"""Agreements of all peers of a simulation before the first round and after the last one."""

from __future__ import annotations

import torch

from p2pfl.algorithms import State, Statistics
from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.data import Federation
from p2pfl.data.federation import standardise
from p2pfl.experiment import Plan
from p2pfl.experiment.resolving import federate_data
from p2pfl.experiment.swarm_agreement import PeersAgreement
from p2pfl.simulation.sharding import Shard
from p2pfl.simulation.stacked import StackedNeighbourhood, total_arguments


def _total_neighbourhood(resolved: Plan, shard: Shard, *, round: int) -> StackedNeighbourhood:
    """Return a neighbourhood for totals before the first round or after the last one, in which nobody is absent."""
    seed = resolved.experiment.seed
    return StackedNeighbourhood(resolved.weights, round=round, seed=seed, shard=shard, **total_arguments(resolved))


def open_statistics(resolved: Plan, shard: Shard, *, sent: torch.Tensor) -> tuple[Plan, Statistics]:
    """Agree on statistics before the first round; peers wait for each other, so there are no faults."""
    net = _total_neighbourhood(resolved, shard, round=0)
    scaled, statistics = run_without_loop(PeersAgreement(resolved).open(net))
    sent.add_(net.bytes_out)
    return scaled, statistics


def close_run(resolved: Plan, shard: Shard, state: State, *, round: int) -> tuple[State, dict[str, float] | None]:
    """Agree on one final model, and on its score on the test data of all peers where it may be published."""
    agreement = PeersAgreement(resolved)
    net = _total_neighbourhood(resolved, shard, round=round)
    state = run_without_loop(agreement.settle(net, state))
    scored = resolved.learner.evaluate(state.rows, peers=net.peers)
    if not scored or not agreement.scored:
        return state, None
    try:
        counts = agreement.tallies(state.rows, peers=net.peers)
        return state, run_without_loop(agreement.score(net, scored, counts, row=state.rows[0]))
    except PrivacyError:  # live peers keep their scores as well, and report why
        return state, None


def everyone(resolved: Plan, statistics: Statistics | None) -> Federation:
    """Return the data of all peers, which a worker reads again, scaled by the statistics that all agreed on."""
    federation = resolved.federation
    if federation.elsewhere is None:
        return federation
    whole = federate_data(resolved.experiment, resolved.topology.peers)
    return (
        whole if statistics is None else standardise(whole, mean=statistics.mean[0], deviation=statistics.deviation[0])
    )
