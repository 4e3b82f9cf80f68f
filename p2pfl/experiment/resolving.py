"""Build the plan of an experiment, and refuse parts that do not work together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, Averaging, Gossip, StopCondition, average_of
from p2pfl.algorithms.averaging import REFERENCE_SAMPLES
from p2pfl.algorithms.robust import Attack, Rule
from p2pfl.core.codecs import Codec
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import ExperimentError, P2PFLError, TopologyError
from p2pfl.core.tensors import torch
from p2pfl.data import Federation, federate, no_data
from p2pfl.experiment.accounts import admitted, data_folder
from p2pfl.experiment.catalogue import ADDITIVE, model_traits
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.former_settings import check_former_runs
from p2pfl.experiment.modes import Mode, mode_of
from p2pfl.experiment.neighbourhood_sums import check_live, masses, neighbourhood_sums, sized
from p2pfl.experiment.partitionings import name_of, partitioning
from p2pfl.experiment.parts.codec_parts import codec
from p2pfl.experiment.parts.device_parts import devices
from p2pfl.experiment.parts.formula_parts import with_formula
from p2pfl.experiment.parts.gossip_parts import mixing_weights, steps_of_round
from p2pfl.experiment.parts.learner_parts import algorithm, check_names, expected_update, learner, takes_data
from p2pfl.experiment.parts.masks_and_noise import check_company, protect, sizes_masks
from p2pfl.experiment.parts.option_tables import checked_options
from p2pfl.experiment.parts.peer_graph import built, check_peers, load_graph, peer_names, remaining
from p2pfl.experiment.parts.robustness_parts import attack, mislead, rule
from p2pfl.experiment.resolved import Plan, hides_samples, size_and_norm
from p2pfl.experiment.schema import DataSettings, Experiment, Number, Positive
from p2pfl.experiment.settings_rules import check
from p2pfl.learning import Learner, learner_traits

GIVEN = ("average", "gossip", "topology", "weights", "layout", "seed", "rounds")
"""Parameters of algorithms that a run fills in."""


class Share(Protocol):
    """Part of the peers of a simulation that several processes share."""

    peers: tuple[str, ...]

    def total(self, integers: Ints, /, *, refused: P2PFLError | None = None) -> Ints:
        """Return the sums of integers of all processes, or raise the error of the first that refuses."""


def plan(
    experiment: Experiment,
    *,
    only: Sequence[str] | None = None,
    live: bool = False,
    divide: Callable[[Sequence[graphs.Weights]], Share] | None = None,
    unaccounted: bool = False,
    data: Federation | None = None,
) -> Plan:
    """Resolve an experiment, unless the account of its data cannot count what it spends.

    Parameters
    ----------
    experiment
        Validated settings.
    only
        Names of the local peers, which run live; all by default.
    live
        True if all peers run live, each on its own.
    divide
        Function that returns the part of this process, given the mixing weights, in a simulation that several processes
        share: it holds the data of no other peers. All processes must call it.
    unaccounted
        True if the plan may stay outside of the account, see :func:`p2pfl.experiment.accounts.admitted`.
    data
        Data of all peers where they have been read before, as :func:`federated` returns them.

    Returns
    -------
    Plan
        What peers and simulations run.

    Raises
    ------
    InputError
        A graph is disconnected, a split is impossible, a model does not fit the data, a name is unknown, or the
        account of the data cannot count what the plan spends.
    """
    live = live or only is not None
    asked = Composition.of(experiment, live=live)
    check(asked)
    check_former_runs(experiment, live=live)
    check_names(experiment, given=GIVEN)
    given = load_graph(experiment)
    names = peer_names(experiment) if given is None else given.peers
    rest = remaining(experiment, names)
    check_peers(experiment, rest, only or ())
    reads, absent = takes_data(experiment), len(names) > len(rest)
    federation = no_data(only or rest)
    if reads and divide is None:  # a lack of samples is found before a large graph is made
        federation = data or federate_data(experiment, names, rest if only is None and absent else only)
    topology = built(experiment) if given is None else given
    topology = topology.without(experiment.learning.without) if absent else topology
    graphs.check_connected(topology)
    weights = mixing_weights(experiment, topology)
    check(asked.on(topology, weights))
    share = None if divide is None else divide(weights)
    if reads and share is not None:
        federation = federate_data(experiment, names, share=share)
    attacker = attack(experiment, names, live=live)
    federation = mislead(federation, attacker)
    mean_samples, samples = None, dict[str, int]()
    if reads and not experiment.data.owned:  # everybody can tell all sizes
        everybody = federation if only is None else federate_data(experiment, names)
        counts = everybody.samples(rest)
        mean_samples, samples = float(counts.double().mean()), dict(zip(rest, counts.tolist(), strict=True))
    robust_rule = rule(experiment, topology)
    trained = learner(experiment, federation)
    mode = mode_of(experiment.privacy)
    sizes = samples if live else None
    parts = Parts(asked, mode, topology, weights, federation, trained, mean_samples, sizes, unaccounted)
    make = partial(algorithm, experiment.learning.algorithm, options=experiment.learning.algorithm_options)
    made = codec(experiment, length=trained.layout.size, dtype=trained.dtype)
    return assemble(parts, lambda given: make(given=given), codec=made, rule=robust_rule, attack=attacker)


@dataclass(frozen=True)
class Parts:
    """Parts of a plan, before the gossip steps of a round are known.

    Parameters
    ----------
    asked
        The settings, and the traits of the parts.
    mode
        Privacy mode.
    topology, weights, federation, learner
        Parts of a :class:`p2pfl.experiment.resolved.Plan`.
    mean_samples
        Mean number of samples of a peer, if all peers know it.
    sizes
        Numbers of samples of all peers that a live peer knows; ``None`` in a simulation, which has all data.
    unaccounted
        True if the plan may stay outside of the account of its data.
    """

    asked: Composition
    mode: Mode
    topology: graphs.Topology | graphs.Schedule
    weights: tuple[graphs.Weights, ...]
    federation: Federation
    learner: Learner
    mean_samples: float | None = None
    sizes: Mapping[str, int] | None = None
    unaccounted: bool = False


def assemble(
    parts: Parts,
    make: Callable[[Mapping[str, Any]], Algorithm],
    *,
    codec: Codec | None = None,
    rule: Rule | None = None,
    attack: Attack | None = None,
) -> Plan:
    """Put the parts of a plan together.

    Parameters
    ----------
    parts
        Parts of the plan.
    make
        Function that returns the algorithm; it receives values by name for the algorithm's parameters.
    codec, rule, attack
        Further parts of a :class:`p2pfl.experiment.resolved.Plan`.

    Returns
    -------
    Plan
        The plan.

    Raises
    ------
    InputError
        Parts do not work together.
    """
    topology, weights, trained = parts.topology, parts.weights, parts.learner
    local = bool(trained.layout.local)
    asked, experiment = parts.asked, parts.asked.experiment
    asked = replace(asked.on(topology, weights), learner=learner_traits(trained), local=local)
    check(asked)
    stop = experiment.learning.stop
    patience = experiment.learning.patience
    if patience is not None and not (experiment.data.validation > 0 or parts.federation.validates):
        raise ExperimentError(
            "learning.patience needs samples to judge models by; set data.validation, such as 0.2, or give the "
            "federation a validation part"
        )
    sums, weighed = None, (1.0, 1.0)
    if asked.mode.sums:
        added, counted = make(_given_parts(parts, Gossip())), trained
        if parts.sizes is not None:
            check_live(experiment, added)
            counted = sized(parts.sizes)
        sums = neighbourhood_sums(experiment, weights[0], added, counted)
        weighed = masses(added, counted, topology.peers)
    update = None
    if sizes_masks(experiment.privacy, asked.mode) and not asked.algorithm.additive:  # masks of totals are uniform
        update = expected_update(experiment, asked.algorithm, trained, mean_samples=parts.mean_samples)
    protection = protect(asked, parts.mode, topology, weights, size=trained.layout.size, update=update, sums=sums)
    if (divided := partitioning(experiment.data)) is not None:
        disclosure = divided.disclosed(experiment, parts.federation, topology.peers)
        protection = replace(protection, totals=disclosure.statement, learned=disclosure.learned)
    rounds = Gossip(*steps_of_round(asked, topology, weights, protection))
    bare = codec is None and sums is None and protection.settings.neutral
    if parts.mean_samples is None and bare and trained.dtype != torch.float16:  # whose small numbers lose digits
        parts = replace(parts, mean_samples=REFERENCE_SAMPLES)
    made, size = make(_given_parts(parts, rounds)), trained.layout.size
    if (fragments := getattr(made, "fragments", 1)) > size:
        raise ExperimentError(
            f"fragments = {fragments} is more than the {size} parameters of the model; set it to {size} or less"
        )
    _check_meetings(fragments, topology, steps=rounds.steps)
    check_company(asked, average_of(made), protection)
    accounted = admitted(
        experiment,
        topology.peers if parts.sizes is None else parts.federation.peers,  # a simulation may hold a part of the data
        of_peers=protection.claimed and not protection.totals,
        of_samples=bool(protection.claimed and protection.totals) or hides_samples(trained, asked.algorithm),
        unaccounted=parts.unaccounted,
    )
    return Plan(
        asked,
        topology,
        weights,
        parts.federation,
        trained,
        made,
        protection,
        rounds,
        None if stop is patience is None else StopCondition(stop, graphs.flood_steps(topology), patience),
        codec,
        masses=weighed,
        rule=rule,
        attack=attack,
        sized=None if update is None else size_and_norm(trained),
        accounted=accounted,
        unaccounted=parts.unaccounted,
    )


def _check_meetings(fragments: int, topology: graphs.Topology | graphs.Schedule, *, steps: int) -> None:
    """Check that the graphs on which each fragment of a model is mixed connect the peers, in all its rounds."""
    if not isinstance(topology, graphs.Schedule) or fragments == 1:
        return
    period = topology.period
    for fragment in range(fragments):
        rounds = range(fragment, fragment + fragments * period, fragments)
        met = sorted({(round + step) % period for round in rounds for step in range(steps)})
        try:
            graphs.check_connected(graphs.Schedule(tuple(topology.topologies[each] for each in met)))
        except TopologyError:
            raise ExperimentError(
                f"fragments = {fragments} does not work with {period} graphs that take turns and gossip.steps = "
                f"{steps}, because fragment {fragment + 1} meets {len(met)} of them, which do not connect all peers; "
                "choose fragments that share no factor with the number of graphs, or more gossip steps"
            ) from None


def federate_data(
    experiment: Experiment,
    peers: tuple[str, ...],
    only: Sequence[str] | None = None,
    share: Share | None = None,
    *,
    reading: int = 0,
) -> Federation:
    """Return the data of an experiment.

    Parameters
    ----------
    experiment
        Experiment with the section ``[data]``.
    peers
        Names of all peers.
    only, share
        Names of the local peers, or those among several processes; all by default.
    reading
        Round before which data that grow are read.
    """
    divided = partitioning(experiment.data)
    if divided is not None:
        if share is not None:
            raise ExperimentError(
                f"{WORKERS} do not work with {name_of(experiment.data)}, because a total goes to one peer of one "
                "process; leave --workers out"
            )
        return divided.federate(experiment, peers=peers, only=only)
    data, options = experiment.data, split_options(experiment.data)
    if data.refresh is not None and share is not None:
        raise ExperimentError(
            f"{WORKERS} do not work with data.refresh, because each peer reads its own data again; leave --workers out"
        )
    exact = experiment.learning.algorithm == ADDITIVE
    federation = federate(
        data.name,
        peers=peers,
        only=only if share is None else share.peers,
        total=None if share is None else share.total,
        split=data.split,
        seed=experiment.seed,
        test=Composition.of(experiment).test_share,
        validation=data.validation,
        alpha=options.get("alpha", 0.3),
        shards_per_peer=options.get("shards", 2),
        exponent=options.get("exponent", 1.5),
        column=options.get("column"),
        data_dir=data_folder(),
        options=options_of(experiment),
        dtype=torch.float64 if exact and not model_traits(experiment.model.name).single else torch.float32,
        reading=None if data.refresh is None else reading,
    )
    return with_formula(experiment, federation)


WORKERS = "several workers"
"""Processes among which the peers of a simulation are divided, in words."""

SPLIT_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "dirichlet": {"alpha": Positive},
    "shards": {"shards": Number},
    "power_law": {"exponent": Positive},
    "column": {"column": str},
}
"""Options of each split, with their types."""


def split_options(data: DataSettings) -> dict[str, Any]:
    """Return ``data.split_options``, checked against what the split takes; a user's function may take all but a column.

    Raises
    ------
    ExperimentError
        An option is unknown, or its value has another type.
    """
    own = {name: kind for types in SPLIT_OPTIONS.values() for name, kind in types.items() if name != "column"}
    types = own if ":" in data.split else SPLIT_OPTIONS.get(data.split, {})
    return checked_options(data.split_options, types, key="data.split_options", name=data.split)


def options_of(experiment: Experiment) -> Mapping[str, Any]:
    """Return the options of the loader: under a claim a shared table is not scaled by what its samples are.

    Everybody's samples move the mean and the deviation of a column, and with them everybody's updates; the accountant
    counts a peer's own update alone. So columns have public bounds under a claim, or keep their units.
    """
    options = experiment.data.options
    return {**options, "bounds": {}} if Composition.of(experiment).unscaled else options


def _given_parts(parts: Parts, gossip: Gossip) -> dict[str, Any]:
    """Return the values that an algorithm can receive, by the names of its parameters."""
    experiment, learning = parts.asked.experiment, parts.asked.experiment.learning
    average = Averaging(
        parts.topology.peers,
        experiment.seed,
        gossip,
        weighted=learning.weighted,
        mean_samples=parts.mean_samples,
        graph=parts.topology,
        fraction=learning.fraction,
        dropped=learning.dropped,
        devices=devices(parts.asked.clients, parts.topology.peers, parts.learner, seed=experiment.seed),
    )
    return {
        "average": average,
        "gossip": gossip,
        "topology": parts.topology,
        "weights": parts.weights,
        "layout": parts.learner.layout,
        "seed": experiment.seed,
        "rounds": experiment.horizon,
    }
