"""From an experiment to its plan: what is named is built, and what does not go together is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, Averaging, Gossip, Stop
from p2pfl.data import Federation, federate
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.compression import codec
from p2pfl.experiment.contest import attack, misled, rule
from p2pfl.experiment.exchanges import exchanges, flood
from p2pfl.experiment.healing import healer
from p2pfl.experiment.learners import algorithm, expected_update, learner
from p2pfl.experiment.mixing import mixing
from p2pfl.experiment.outline import built, check_peers, hidden, loaded
from p2pfl.experiment.protection import sizes_masks
from p2pfl.experiment.resolved import Plan
from p2pfl.experiment.rules import check
from p2pfl.experiment.schema import Experiment
from p2pfl.experiment.sums import check_live, masses, sized, summed
from p2pfl.learning import Learner


def plan(experiment: Experiment, *, only: Sequence[str] | None = None) -> Plan:
    """Resolve an experiment.

    Parameters
    ----------
    experiment
        Validated settings.
    only
        The peers at hand; all by default.

    Raises
    ------
    InputError
        If a graph is disconnected, a split impossible, a model does not fit, a name unknown.
    """
    gossip, asked = experiment.gossip, Composition.of(experiment)
    check(asked)
    given = loaded(experiment)
    names = graphs.ring(experiment.topology.peers).peers if given is None else given.peers  # as all kinds call them
    check_peers(experiment, names, only or ())
    private = ":" in experiment.data.name or experiment.data.name == "synthetic"  # peers own their data
    federation = _federation(experiment, names, only)  # before the graph: too many peers are noticed sooner
    lies = attack(experiment, names, live=only is not None)
    federation = misled(federation, lies)
    mean_samples, everybody = None, federation
    if not private:  # everybody can tell all sizes
        everybody = federation if only is None else _federation(experiment, names, None)
        mean_samples = float(everybody.samples(names).double().mean())
    heals = healer(experiment)
    topology = heals.whole if heals is not None else built(experiment) if given is None else given
    graphs.check_connected(topology)
    weights = mixing(experiment, topology, heals)
    check(asked.on(topology, weights))
    bears = rule(experiment, topology)
    trained = learner(experiment, federation)
    diameter = flood(topology)
    averaging = partial(
        _algorithm, experiment, topology, weights, trained, mean_samples=mean_samples, diameter=diameter
    )
    heavy = gossip.acceleration == "heavy_ball"
    sums, weighed = None, (1.0, 1.0)
    if asked.mode.sums:
        steps, rho = exchanges(experiment, topology, weights)  # no masks stay in the rows
        added, counted = averaging(gossip=Gossip(steps, rho, heavy_ball=heavy)), trained
        if only is not None:
            check_live(experiment, added)
            counted = sized({} if private else dict(zip(names, everybody.samples(names).tolist(), strict=True)))
        sums = summed(experiment, weights, added, counted, exchanges=steps)
        weighed = masses(added, counted, names)
    update = None
    if sizes_masks(experiment.privacy):
        update = expected_update(experiment, trained, mean_samples=mean_samples)
    protection = hidden(experiment, topology, weights, sizes=trained.layout.sizes, update=update, sums=sums)
    rounds = Gossip(*exchanges(experiment, topology, weights, protection), heavy_ball=heavy)
    chosen = averaging(gossip=rounds)
    return Plan(
        experiment,
        topology,
        weights,
        federation,
        trained,
        chosen,
        protection,
        rounds,
        diameter,
        None if experiment.learning.stop is None else Stop(experiment.learning.stop, diameter),
        codec(experiment, length=trained.layout.size, dtype=trained.dtype),
        masses=weighed,
        rule=bears,
        attack=lies,
        healing=heals,
    )


def data_folder() -> Path | None:
    """Where the user keeps his data sets: the environment's ``P2PFL_DATA``."""
    folder = os.environ.get("P2PFL_DATA")
    return Path(folder) if folder else None


def _federation(experiment: Experiment, peers: tuple[str, ...], only: Sequence[str] | None) -> Federation:
    data = experiment.data
    return federate(
        data.name,
        peers=peers,
        only=only,
        split=data.split,
        seed=experiment.seed,
        test=data.test,
        validation=data.validation,
        alpha=data.alpha,
        shards_per_peer=data.shards,
        exponent=data.exponent,
        column=data.column,
        data_dir=data_folder(),
        options=data.options,
    )


def _algorithm(
    experiment: Experiment,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    learner: Learner,
    *,
    mean_samples: float | None,
    diameter: int,
    gossip: Gossip,
) -> Algorithm:
    """What an algorithm may ask for by the names of its parameters."""
    learning, peers = experiment.learning, topology.peers
    average = Averaging(
        peers,
        experiment.seed,
        gossip,
        weighted=learning.weighted,
        mean_samples=mean_samples,
        diameter=diameter,
        fraction=learning.fraction,
        dropped=learning.stragglers if learning.drop_stragglers else 0.0,
    )
    given = {
        "average": average,
        "gossip": gossip,
        "topology": topology,
        "weights": weights,
        "layout": learner.layout,
        "seed": experiment.seed,
        "rounds": experiment.rounds,
    }
    return algorithm(learning.algorithm, options=learning.algorithm_options, given=given)
