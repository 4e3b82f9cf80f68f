"""From ``topology.heal`` to a graph that closes over whoever is missing, and what it does not go with."""

from __future__ import annotations

from p2pfl import topology as graphs
from p2pfl.errors import ExperimentError, TopologyError
from p2pfl.experiment.schema import TRACKED, Experiment

"""Codecs of differences from what neighbours have already."""

KEPT = {
    "choco": "keeps sums of its neighbours' copies",
    "power_gossip": "keeps a vector for each edge",
    "robust_sgp": "keeps running totals of each neighbour",
    "relay_sgd": "passes sums along the edges of a tree",
}
"""What algorithms keep of edges, which others cannot take over."""


def healer(experiment: Experiment) -> graphs.Healing | None:
    """The graph that heals; ``None`` where the graph stays as it is.

    Raises
    ------
    ExperimentError
        The graph cannot heal, or what is kept of its edges does not bear that these change.

    Examples
    --------
    >>> from p2pfl.experiment.schema import Topology
    >>> found = healer(Experiment(topology=Topology(kind="ring", peers=4, heal=True)))
    >>> found.over(["peer0", "peer1", "peer3"]).neighbours("peer3")
    ('peer0', 'peer1')
    """
    wanted = experiment.topology
    if not wanted.heal:
        return None
    if why := _misfit(experiment):
        raise ExperimentError(f"topology.heal: expected false {why}, got true: leave out one of the two")
    try:
        return graphs.healing(wanted.kind, peers=wanted.peers, seed=experiment.seed, degree=wanted.degree)
    except TopologyError as error:
        raise ExperimentError(f"topology.heal: {error}") from None


def _misfit(experiment: Experiment) -> str:
    """With what edges that change do not go, and why; empty if with everything."""
    learning, gossip, codec = experiment.learning, experiment.gossip, experiment.compression.name
    if experiment.topology.file is not None:
        return "with topology.file, which says who hears whom and not who would if somebody were missing"
    if experiment.topology.kind == "complete":
        return "with complete, where whoever is left hears everybody anyway"
    if experiment.privacy.mode == "secagg":
        return (
            'with privacy.mode = "secagg", where a term is masked for those whom its receiver hears, which all senders '
            "must know alike"
        )
    if gossip.weights is not None:
        return f'with gossip.weights = "{gossip.weights}", as an edge that heals weighs alike whoever is missing'
    if why := KEPT.get(learning.algorithm):
        return f"with {learning.algorithm}, which {why}"
    if codec in TRACKED:
        return f'with compression.name = "{codec}", which sends differences from what neighbours have already'
    return ""
