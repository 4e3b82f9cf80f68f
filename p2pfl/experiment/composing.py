"""A run put together in Python, from the same parts that an experiment file names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from p2pfl import topology as graphs
from p2pfl.algorithms import UNSET, Algorithm, Averaging, Local, average_of
from p2pfl.algorithms.robust import Attack, Krum, NearestMixed, Rule
from p2pfl.core.codecs import Codec, Half
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.core.imports import kind_of
from p2pfl.core.tensors import TORCH_INSTALLED, torch
from p2pfl.core.traits import UNDECLARED, CodecTraits, ModeTraits, RuleTraits
from p2pfl.data import Federation, check_positions, no_data
from p2pfl.experiment import schema
from p2pfl.experiment.catalogue import ALGORITHMS, CODECS, RULES, codec_traits, declared_traits, rule_traits
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.file.reading import check as read_table
from p2pfl.experiment.file.reading import read
from p2pfl.experiment.modes import Mode, mode_of, section
from p2pfl.experiment.parts.codec_parts import FILLED
from p2pfl.experiment.parts.gossip_parts import mixing_weights
from p2pfl.experiment.parts.learner_parts import own_options
from p2pfl.experiment.parts.option_tables import parameters_of
from p2pfl.experiment.resolved import Plan
from p2pfl.experiment.resolving import GIVEN, Parts, assemble
from p2pfl.experiment.schema import Experiment
from p2pfl.experiment.settings_rules import check
from p2pfl.learning import Adjustable, Federated, Learner, learner_traits
from p2pfl.learning.step_learner import StepLearner
from p2pfl.topology.graph import brief


class RunParts(TypedDict, total=False):
    """Arguments of :func:`compose` by which a run differs from the default; see there."""

    rounds: int
    seed: int
    privacy: Mode | None
    codec: Codec | None
    rule: Rule | None
    attack: Attack | None
    settings: Mapping[str, Any] | None


AVERAGED = ("algorithm", "algorithm_options", "weighted", "fraction")
"""Settings of ``learning`` that an algorithm has itself."""

TRAINED = (
    *("optimizer", "rate", "options", "max_norm", "schedule", "batch", "epochs", "steps"),
    *("learner", "loss", "augment", "metrics", "device", "dtype"),
)
"""Settings of ``learning`` that a learner has itself."""


def compose(
    algorithm: Algorithm,
    learner: Learner,
    topology: graphs.Topology | graphs.Schedule | graphs.NetworkxGraph,
    *,
    rounds: int = 10,
    seed: int = 0,
    name: str = "run",
    privacy: Mode | None = None,
    codec: Codec | None = None,
    rule: Rule | None = None,
    attack: Attack | None = None,
    settings: Mapping[str, Any] | None = None,
    live: bool = False,
    unaccounted: bool = False,
) -> Plan:
    """Put a run together from its parts.

    Parameters
    ----------
    algorithm
        How peers learn from each other. The run fills in what it leaves open: peers, topology, seed, gossip steps.
    learner
        Local training and the data of the peers.
    topology
        Topology, all peers of which belong to the learner; or a networkx graph, whose nodes name the peers.
    rounds
        Number of rounds.
    seed
        Seed of everything that must be reproducible; a learner without a seed receives this one.
    name
        Name of the run, which is part of the topics of live peers.
    privacy, codec, rule, attack
        Privacy mode, codec of the models, robust rule that replaces averages, and attack; none by default.
    settings
        Further keys of an experiment file, such as ``{"gossip": {"steps": 3}, "transport": {"patience": 5.0}}``.
    live
        True if each peer has its own plan and knows only its own data.
    unaccounted
        True if the plan may stay outside of the account, see :func:`p2pfl.experiment.accounts.admitted`.

    Returns
    -------
    Plan
        What :func:`p2pfl.simulate`, :func:`p2pfl.live` and :class:`p2pfl.Peer` run.

    Raises
    ------
    InputError
        Parts do not work together; the message names the corresponding key of the experiment file.

    Examples
    --------
    >>> import torch
    >>> from p2pfl.algorithms import FedAvg
    >>> from p2pfl.learning import TorchLearner
    >>> data = {peer: (torch.eye(4), torch.tensor([0, 1, 0, 1])) for peer in graphs.ring(4).peers}
    >>> made = compose(FedAvg(epochs=5), TorchLearner(torch.nn.Linear(4, 2), data), graphs.ring(4), rounds=3)
    >>> made.experiment.horizon, made.learner.epochs
    (3, 5)
    """
    topology = graphs.as_topology(topology)
    _check_parts(algorithm, learner)
    if isinstance(learner.bare, Federated):
        held_out = learner_traits(learner).gradients  # statistics hold no samples out
        check_positions(learner.bare.federation, apart=held_out)
    learner = _adjust(algorithm, learner, seed=seed)
    experiment = _settings(algorithm, learner, topology, name=name, rounds=rounds, seed=seed, settings=settings or {})
    experiment = _with_parts(experiment, privacy=privacy, codec=codec, rule=rule, attack=attack)
    mode = mode_of(experiment.privacy) if privacy is None else privacy
    asked = Composition(
        experiment,
        declared_traits(algorithm, UNDECLARED),
        declared_traits(mode, ModeTraits()),
        codec_traits(experiment.compression.name) if codec is None else declared_traits(codec, CodecTraits()),
        rule_traits(experiment.robustness.rule) if rule is None else declared_traits(rule, RuleTraits()),
        learner=learner_traits(learner),
        live=live,
    )
    check(asked)
    graphs.check_connected(topology)
    weights = mixing_weights(experiment, topology)
    check(asked.on(topology, weights))
    if not live:
        check_data(learner, topology)
    federation = _federation(learner, topology)
    sizes: dict[str, int] | None = {} if live else None
    parts = Parts(asked, mode, topology, weights, federation, learner, sizes=sizes, unaccounted=unaccounted)
    return assemble(parts, lambda given: bound(algorithm, given), codec=codec, rule=rule, attack=attack)


def wanted_experiment(
    experiment: str | Path | Experiment | Mapping[str, Any] | Plan | Algorithm,
    learner: Learner | None,
    topology: graphs.Topology | graphs.Schedule | graphs.NetworkxGraph | None,
    *,
    peers: int | None,
    parts: RunParts,
) -> Experiment | Plan | partial[Plan]:
    """Return what to run: a plan as it is, an experiment as it is read, or :func:`compose` with an algorithm's parts.

    Parameters
    ----------
    experiment, learner, topology, peers, parts
        Arguments of :func:`p2pfl.simulate`.

    Raises
    ------
    InputError
        The learner or the topology of an algorithm is missing, or an argument would have no effect.
    TypeError
        There is no such argument.
    """
    if unknown := [name for name in parts if name not in RunParts.__annotations__]:
        raise TypeError(f"{unknown[0]!r} is no argument of a run; leave it out")
    defined = isinstance(experiment, str | Path | Experiment | Mapping | Plan)
    given = {"learner": learner, "topology": topology, **parts} if defined else {}
    given |= {} if defined and not isinstance(experiment, Plan) else {"peers": peers}
    if idle := [name for name, value in given.items() if value is not None]:
        where = "is part of what runs already" if len(idle) == 1 else "are parts of what runs already"
        raise InputError(f"{', '.join(idle)} {where}; set the key of the experiment, or the argument of p2pfl.compose")
    if isinstance(experiment, Plan):
        return experiment
    if isinstance(experiment, str | Path | Experiment | Mapping):
        return check_end(read(experiment, changes=[] if peers is None else [f"topology.peers={peers}"]))
    if learner is None or topology is None:
        raise InputError("an algorithm alone cannot run; pass a learner and a topology beside it")
    return partial(compose, experiment, learner, graphs.as_topology(topology), **parts)


def check_end(experiment: Experiment) -> Experiment:
    """Return an experiment that ends by itself.

    Raises
    ------
    InputError
        It has rounds without an end.
    """
    if experiment.endless:
        raise InputError(
            'rounds = "endless" is for p2pfl run and p2pfl peer, which go on until they are stopped; set rounds to a '
            "number here, as with --set rounds=100"
        )
    return experiment


def check_live(made: Plan) -> Plan:
    """Return a plan whose peers may run live, each on its own.

    Raises
    ------
    InputError
        Its parts work in a simulation alone.
    """
    check(replace(made.asked, live=True))
    return made


def _check_parts(algorithm: object, learner: object) -> None:
    """Refuse parts that are none, such as a class in place of an object."""
    if isinstance(algorithm, type):
        raise ExperimentError(
            f"the algorithm is the class {algorithm.__name__}; pass an object, {algorithm.__name__}()"
        )
    if isinstance(learner, type) or (TORCH_INSTALLED and isinstance(learner, torch.nn.Module)):
        given = f"the class {learner.__name__}" if isinstance(learner, type) else kind_of(learner)
        raise ExperimentError(f"the learner is {given}; pass an object, such as p2pfl.TorchLearner(model, data)")


def bound(algorithm: Algorithm, given: Mapping[str, Any]) -> Algorithm:
    """Return an algorithm with the parameters of a run filled in.

    Parameters
    ----------
    algorithm
        The algorithm. An average without peers and unset gossip are filled in; topologies, weights, layouts, seeds and
        numbers of rounds are always replaced by those of the run.
    given
        Values by the names of parameters.

    Returns
    -------
    Algorithm
        The complete algorithm.

    Examples
    --------
    >>> from p2pfl.algorithms import DPSGD, Gossip
    >>> [bound(algorithm, {"gossip": Gossip(3)}).gossip.steps for algorithm in (DPSGD(), DPSGD(Gossip(2)))]
    [3, 2]
    """
    if not is_dataclass(algorithm) or isinstance(algorithm, type):
        return algorithm
    made: Any = algorithm
    own = {field.name for field in fields(made)}
    values = {key: value for key, value in given.items() if key in own}
    if "gossip" in values and made.gossip is not UNSET:
        del values["gossip"]
    if "average" in values:
        values["average"] = _choose_averaging(made.average, values["average"])
    filled: Algorithm = replace(made, **values)
    return filled


def _choose_averaging(wanted: Averaging, given: Averaging) -> Averaging:
    if wanted.peers:
        return wanted
    gossip = given.gossip if wanted.gossip is UNSET else wanted.gossip
    mean = given.mean_samples if wanted.mean_samples is None else wanted.mean_samples
    return replace(
        wanted,
        peers=given.peers,
        seed=given.seed,
        gossip=gossip,
        mean_samples=mean,
        graph=given.graph,
        devices=given.devices,
    )


def _adjust(algorithm: Algorithm, learner: Learner, *, seed: int) -> Learner:
    """Return the learner with the seed of a run, and with the work that the algorithm asks for."""
    traits = declared_traits(algorithm, UNDECLARED)
    epochs, steps = (algorithm.epochs, algorithm.steps) if isinstance(algorithm, Local) else (None, None)
    if not isinstance(learner, Adjustable):
        if epochs is not None or steps is not None:
            raise ExperimentError(
                f"{type(learner).__name__} trains as much as its own loop says; leave out epochs and steps of "
                f"{type(algorithm).__name__}"
            )
        return learner
    if epochs is None and steps is None and learner.settings.get("steps") is None:
        steps = traits.default_steps
    made: Learner = learner.adjusted(seed=seed, epochs=epochs, steps=steps, full_batch=traits.full_batch)
    return made


def _settings(
    algorithm: Algorithm,
    learner: Learner,
    topology: graphs.Topology | graphs.Schedule,
    *,
    name: str,
    rounds: int,
    seed: int,
    settings: Mapping[str, Any],
) -> Experiment:
    """Return the settings that say what the parts do, as neighbours compare them."""
    average = average_of(algorithm) or Averaging()
    learning: dict[str, Any] = dict(learner.settings) if isinstance(learner, Adjustable) else {}
    learning |= {"algorithm": ALGORITHMS.name_of(algorithm), "algorithm_options": _options(algorithm)}
    learning |= {"weighted": average.weighted, "fraction": average.fraction}
    if average.dropped:
        learning["stragglers"] = {"share": average.dropped, "drop": True}
    gossip: dict[str, Any] = {}
    chosen = average.gossip if average_of(algorithm) else getattr(algorithm, "gossip", UNSET)
    if chosen is not UNSET:
        gossip["steps"] = chosen.steps
    table: dict[str, Any] = {"name": name, "rounds": rounds, "seed": seed, "learning": learning, "gossip": gossip}
    table["topology"] = {"kind": "own", "peers": len(topology.peers)}
    module = getattr(learner, "model", None) if isinstance(learner, StepLearner) else None
    if module is not None:
        kind = type(module)
        table["model"] = {"name": f"{kind.__module__}:{kind.__qualname__}"}
    _check_settings(settings, learner)
    for key, value in settings.items():
        table[key] = {**table.get(key, {}), **value} if isinstance(value, Mapping) else value
    table["learning"] = {key: value for key, value in table["learning"].items() if value is not None}
    return read_table(table, origin="settings")


def _check_settings(settings: Mapping[str, Any], learner: Learner) -> None:
    """Refuse settings that describe the data, the model or the average, which the learner and the algorithm have."""
    for name, table in settings.items():
        for key in table if isinstance(table, Mapping) else ():
            part = "learner" if name in {"data", "model"} and (name, key) != ("data", "scale") else ""
            part = "algorithm" if name == "learning" and key in AVERAGED else part
            private = (name, key) == ("learning", "example_noise") and learner_traits(learner).gradients
            part = "learner" if private else part  # a rule refuses it for others
            part = "learner" if name == "learning" and key in TRAINED else part
            if part:
                raise ExperimentError(
                    f"settings: {name}.{key} has no effect, because the {part} has its own; leave it out and give "
                    f"it to the {part}"
                )


def _options(algorithm: Algorithm) -> dict[str, Any]:
    """Return an algorithm's own parameters that are plain values, for neighbours to compare."""
    work = {"epochs", "steps"} if isinstance(algorithm, Local) else set()
    own = parameters_of(algorithm, without={*GIVEN, *work}, strict=False)
    name = ALGORITHMS.name_of(algorithm)
    return own_options(name, type(algorithm), options=own, given=GIVEN) if name in ALGORITHMS else own


def _with_parts(
    experiment: Experiment, *, privacy: Mode | None, codec: Codec | None, rule: Rule | None, attack: Attack | None
) -> Experiment:
    """Return the settings with the sections that say what other parts do."""
    if privacy is not None:
        experiment = msgspec.structs.replace(experiment, privacy=section(privacy))
    if codec is not None:
        name = codec.kind if isinstance(codec, Half) else CODECS.name_of(codec)
        options = parameters_of(codec, without=FILLED)
        given = experiment.compression
        compression = msgspec.structs.replace(given, name=name, options=given.options | options)
        experiment = msgspec.structs.replace(experiment, compression=compression)
    if rule is not None:
        robustness = _robustness(rule)
        experiment = msgspec.structs.replace(experiment, robustness=robustness)
    if attack is not None:
        attacking = schema.AttackSettings(name=attack.name, peers=tuple(sorted(attack.attackers)))
        experiment = msgspec.structs.replace(experiment, attack=attacking)
    return experiment


def _robustness(rule: Rule) -> schema.RobustnessSettings:
    """Return the section ``[robustness]`` of a rule."""
    nearest = isinstance(rule, NearestMixed)
    made = rule.rule if isinstance(rule, NearestMixed) else rule
    options = parameters_of(made, without=["several"]) | ({"nearest": True} if nearest else {})
    name = "multi_krum" if isinstance(made, Krum) and made.several else RULES.name_of(made)
    return schema.RobustnessSettings(rule=name, options=options)


def check_data(learner: Learner, topology: graphs.Topology | graphs.Schedule) -> None:
    """Refuse a learner that knows the data of its peers, but not of all peers of a topology.

    Raises
    ------
    ExperimentError
        Peers of the topology have no data; the message names them, and whose data there are.
    """
    bare = learner.bare
    if not isinstance(bare, Federated):
        return
    peers = bare.federation.train
    if lacking := [peer for peer in topology.peers if peer not in peers]:
        others = sorted({*peers} - {*topology.peers}) or sorted(peers)
        raise ExperimentError(
            f"the topology has the peers {brief(lacking)}, of which the learner has no data, and the learner has data "
            f"of {brief(others)}; name both alike, for instance by topology.named(sorted(map(str, data)))"
        )


def _federation(learner: Learner, topology: graphs.Topology | graphs.Schedule) -> Federation:
    """Return the data of the peers of a topology, as far as the learner knows it."""
    bare = learner.bare
    if not isinstance(bare, Federated):
        return no_data(topology.peers)
    here = [peer for peer in topology.peers if peer in bare.federation.train]
    if not here:
        check_data(learner, topology)
    return bare.federation.of(*here)
