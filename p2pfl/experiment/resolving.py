"""From an experiment to its plan: what is named is built, and what does not go together is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, Averaging, Gossip, Stop
from p2pfl.data import Federation, federate
from p2pfl.errors import ExperimentError
from p2pfl.experiment.agreement import check_agreeing
from p2pfl.experiment.algorithms import known
from p2pfl.experiment.asynchrony import asynchronous, check_waiting
from p2pfl.experiment.compression import codec
from p2pfl.experiment.contest import attack, misled, rule
from p2pfl.experiment.exchanges import exchanges, flood
from p2pfl.experiment.healing import healer
from p2pfl.experiment.learners import algorithm, learner
from p2pfl.experiment.mixing import mixing
from p2pfl.experiment.plan import Plan
from p2pfl.experiment.protection import protection
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
    gossip, stepwise = experiment.gossip, known(experiment.learning.algorithm).everybody
    loaded = _loaded(experiment)
    names = graphs.ring(experiment.topology.peers).peers if loaded is None else loaded.peers  # as all kinds call them
    if only is not None and (unknown := sorted(set(only) - set(names))):
        some = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ExperimentError(f'expected a peer of "{experiment.name}", got "{unknown[0]}": its peers are {some}')
    private = ":" in experiment.data.name or experiment.data.name == "synthetic"  # peers own their data
    federation = _federation(experiment, names, only)  # before the graph: too many peers are noticed sooner
    lies = attack(experiment, names, live=only is not None)
    federation = misled(federation, lies)
    mean_samples, everybody = None, federation
    if not private:  # everybody can tell all sizes
        everybody = federation if only is None else _federation(experiment, names, None)
        mean_samples = float(everybody.samples(names).double().mean())
    heals = healer(experiment)
    topology = heals.whole if heals is not None else _topology(experiment) if loaded is None else loaded
    graphs.check_connected(topology)
    weights = mixing(experiment, topology, heals)
    bears = rule(experiment, topology)
    trained = learner(experiment, federation)
    _check_hiding(experiment)
    check_agreeing(experiment)
    diameter = flood(topology)
    averaging = partial(
        _algorithm, experiment, topology, weights, trained, mean_samples=mean_samples, diameter=diameter
    )
    heavy = gossip.acceleration == "heavy_ball"
    sums, weighed = None, (1.0, 1.0)
    if experiment.privacy.mode == "secagg":
        steps, rho = exchanges(experiment, topology, weights)  # no masks stay in the rows
        added, counted = averaging(gossip=Gossip(steps, rho, heavy_ball=heavy)), trained
        if only is not None:
            check_live(experiment, added)
            counted = sized({} if private else dict(zip(names, everybody.samples(names).tolist(), strict=True)))
        sums = summed(experiment, weights, added, counted, exchanges=steps)
        weighed = masses(added, counted, names)
    hidden = protection(
        experiment.privacy,
        topology,
        weights,
        size=trained.layout.size,
        layers=trained.layout.sizes,
        rounds=experiment.rounds,
        seed=experiment.seed,
        steps=1 if stepwise and gossip.steps is None else gossip.steps,
        sums=sums,
    )
    rounds = Gossip(*exchanges(experiment, topology, weights, hidden), heavy_ball=heavy)
    chosen = averaging(gossip=rounds)
    check_waiting(experiment, asynchronous=asynchronous(chosen))
    return Plan(
        experiment,
        topology,
        weights,
        federation,
        trained,
        chosen,
        hidden,
        rounds,
        diameter,
        None if experiment.learning.stop is None else Stop(experiment.learning.stop, diameter),
        codec(experiment, length=trained.layout.size, dtype=trained.dtype, period=topology.period),
        masses=weighed,
        rule=bears,
        attack=lies,
        healing=heals,
    )


def data_folder() -> Path | None:
    """Where the user keeps his data sets: the environment's ``P2PFL_DATA``."""
    folder = os.environ.get("P2PFL_DATA")
    return Path(folder) if folder else None


def _loaded(experiment: Experiment) -> graphs.Topology | graphs.Schedule | None:
    """The graph of a file, or of several in turn, one for each exchange."""
    settings = experiment.topology
    if settings.file is None:
        return None
    if isinstance(settings.file, str):
        return graphs.load(settings.file)
    return graphs.Schedule(tuple(graphs.load(file) for file in settings.file))


def _topology(experiment: Experiment) -> graphs.Topology | graphs.Schedule:
    settings = experiment.topology
    return graphs.build(
        settings.kind,
        peers=settings.peers,
        seed=experiment.seed,
        degree=settings.degree,
        rewire=settings.rewire,
        probability=settings.probability,
        rows=settings.rows,
        branching=settings.branching,
        clusters=settings.clusters,
        inside=settings.inside,
        every=settings.every,
        period=settings.period,
    )


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


def _check_hiding(experiment: Experiment) -> None:
    name = experiment.learning.algorithm
    why, mode, late = known(name).bare, experiment.privacy.mode, experiment.learning.stragglers
    if why and mode != "none":
        raise ExperimentError(
            f'privacy.mode: expected "none" with {name}, which {why}, got "{mode}": change the mode or the algorithm'
        )
    if mode == "pairwise" and late and (why := known(name).steady):
        raise ExperimentError(
            f"learning.stragglers: expected 0 with {name} under masks, which {why}, so that they would not cancel, got "
            f'{late:g}: set it to 0, or privacy.mode to "none"'
        )
