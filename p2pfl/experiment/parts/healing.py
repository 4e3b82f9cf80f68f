"""A graph that heals over missing peers, from ``topology.heal``."""

from __future__ import annotations

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError, TopologyError
from p2pfl.experiment.schema import Experiment


def healer(experiment: Experiment) -> graphs.Healing | None:
    """Return the graph that heals over missing peers; ``None`` if ``topology.heal`` is false.

    Raises
    ------
    ExperimentError
        The graph cannot heal.

    Examples
    --------
    >>> from p2pfl.experiment.schema import TopologySettings
    >>> found = healer(Experiment(topology=TopologySettings(kind="ring", peers=4, heal=True)))
    >>> found.over(["peer0", "peer1", "peer3"]).neighbours("peer3")
    ('peer0', 'peer1')
    """
    wanted = experiment.topology
    if not wanted.heal:
        return None
    try:
        return graphs.healing(str(wanted.kind), peers=wanted.peers, seed=experiment.seed, degree=wanted.degree)
    except TopologyError as error:
        raise ExperimentError(f"topology.heal: {error}") from None
