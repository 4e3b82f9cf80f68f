"""The plan of one peer, given or put together from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import Plan
from p2pfl.experiment.composing import compose
from p2pfl.learning import Learner


def composed(
    name: str,
    algorithm: Plan | Algorithm,
    learner: Learner | None,
    topology: graphs.Topology | graphs.Schedule | graphs.NetworkxGraph | None,
    *,
    parts: Mapping[str, Any],
) -> Plan:
    """Return the plan of a peer.

    Raises
    ------
    ExperimentError
        A part is missing, or the topology does not have the peer.
    """
    if isinstance(algorithm, Plan):
        return algorithm
    if learner is None or topology is None:
        raise ExperimentError("a peer needs a learner and a topology beside its algorithm; pass both")
    topology = graphs.as_topology(topology)
    if name not in topology.peers:
        some = ", ".join(topology.peers[:8])
        raise ExperimentError(f'"{name}" is no peer of the topology; its peers are {some}')
    return compose(algorithm, learner, topology, live=True, **parts)
