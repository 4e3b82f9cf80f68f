"""From the sections ``[robustness]`` and ``[attack]`` to a rule and an attack."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta

from p2pfl import topology as graphs
from p2pfl.algorithms.robust import Attack, NearestMixed, Rule
from p2pfl.algorithms.robust.attacks import MODEL_BASED_ATTACKS, flip_labels
from p2pfl.core.draws import draw
from p2pfl.core.errors import ExperimentError
from p2pfl.data import Federation
from p2pfl.experiment import schema
from p2pfl.experiment.catalogue import ATTACKS, RULES, rule_traits
from p2pfl.experiment.parts.option_tables import checked_options, parameter_types
from p2pfl.experiment.schema import Experiment

ATTACKERS = 1
"""Received models that may be Byzantine, by default."""


def rule(experiment: Experiment, topology: graphs.Topology | graphs.Schedule) -> Rule | None:
    """Return the robust rule of an experiment; ``None`` if models are averaged.

    Parameters
    ----------
    experiment
        Experiment with the section ``[robustness]``.
    topology
        Topology, on which each peer must receive enough models.

    Returns
    -------
    Rule or None
        The rule.

    Raises
    ------
    ExperimentError
        A peer receives so few models that malicious ones might be the majority.

    Examples
    --------
    >>> wanted = schema.RobustnessSettings(rule="trimmed_mean")
    >>> rule(Experiment(robustness=wanted, learning=schema.LearningSettings(weighted=False)), graphs.ring(4))
    TrimmedMean(attackers=1)
    """
    wanted = experiment.robustness
    if wanted.rule == "none":
        return None
    made = _made(wanted)
    attackers = wanted.options.get("attackers", ATTACKERS)
    fewest = max(made.fewest, 2 * attackers + 1)
    for phase in range(topology.period):
        graph = topology.at(phase)
        peer = min(graph.peers, key=lambda each: len(graph.senders(each)))
        if (count := 1 + len(graph.senders(peer))) < fewest:
            raise ExperimentError(
                f"robustness.options.attackers = {attackers} with {wanted.rule} needs at least {fewest} models at each "
                f"peer, its own included, and {peer} has only {count}; choose a denser topology, or lower it"
            )
    return made


def _made(wanted: schema.RobustnessSettings) -> Rule:
    options = {"attackers": ATTACKERS} | rule_options(wanted)
    nearest = options.pop("nearest", False)
    made: Rule = RULES.make(wanted.rule, options)
    return NearestMixed(made, options["attackers"]) if nearest else made


def rule_options(wanted: schema.RobustnessSettings) -> dict[str, Any]:
    """Return ``robustness.options``, checked against what the rule takes.

    Raises
    ------
    ExperimentError
        An option is unknown or missing, or its value has another type.
    """
    traits = rule_traits(wanted.rule)
    if traits is None:
        return {}
    kind = RULES.kind(wanted.rule)
    types = parameter_types(kind, without=["attackers", "several"])
    parameters = inspect.signature(kind).parameters
    needed = [name for name in types if parameters[name].default is inspect.Parameter.empty]
    if missing := [name for name in needed if name not in wanted.options]:
        raise ExperimentError(f"robustness.options.{missing[0]} is missing, and {wanted.rule} needs it; set it")
    types |= {"attackers": Annotated[int, Meta(ge=0)]} | ({} if traits.centred else {"nearest": bool})
    return checked_options(wanted.options, types, key="robustness.options", name=wanted.rule)


def attack(experiment: Experiment, peers: Sequence[str], *, live: bool) -> Attack | None:
    """Return the attack of an experiment; ``None`` if all peers are honest.

    Parameters
    ----------
    experiment
        Experiment with the section ``[attack]``.
    peers
        All peers, including those that attack.
    live
        True if Byzantine peers know only their own models.

    Returns
    -------
    Attack or None
        The attack.

    Raises
    ------
    ExperimentError
        The attack names unknown peers, needs the models of others, or leaves fewer than two honest peers.
    """
    wanted = experiment.attack
    if wanted.name == "none":
        return None
    if live and wanted.name in MODEL_BASED_ATTACKS:
        raise ExperimentError(
            f'attack.name = "{wanted.name}" needs the models of all honest peers, which live peers do not know; use '
            "p2pfl simulate, or choose another attack"
        )
    named = wanted.peers if isinstance(wanted.peers, tuple) else ()
    if unknown := sorted(set(named) - set(peers)):
        raise ExperimentError(
            f'attack.peers contains "{unknown[0]}", which is not a peer of the experiment; correct it'
        )
    attacking = attackers(experiment, peers)
    if len(peers) - len(attacking) < 2:
        raise ExperimentError(
            f"the attack leaves {len(peers) - len(attacking)} of {len(peers)} peers honest; lower or "
            "shorten attack.peers until at least two are"
        )
    kind = ATTACKS.kind(wanted.name)
    function = None if kind is Attack else kind
    return Attack(wanted.name, attacking, len(peers), wanted.scale, experiment.seed, function)


def attackers(experiment: Experiment, peers: Sequence[str]) -> frozenset[str]:
    """Return the names of the peers that attack, as the experiment names or draws them among all peers."""
    wanted = experiment.attack
    if wanted.name == "none":
        return frozenset()
    if isinstance(wanted.peers, tuple):
        return frozenset(wanted.peers)
    count = max(int(wanted.peers > 0), int(wanted.peers * len(peers) + 0.5))
    drawn = draw(experiment.seed, "liars").permutation(len(peers))[:count]
    return frozenset(peers[index] for index in drawn)


def mislead(federation: Federation, attack: Attack | None) -> Federation:
    """Return the data of all peers, with flipped labels at the peers that attack by ``label_flip``.

    Raises
    ------
    ExperimentError
        The data have no classes.
    """
    if attack is None or attack.name != "label_flip":
        return federation
    dataset = federation.dataset
    if dataset.classes is None:
        raise ExperimentError(
            'attack.name = "label_flip" needs data with classes, and these have none; choose another attack'
        )
    targets = dataset.targets.clone()
    for peer in attack.attackers & set(federation.train):
        own = federation.train[peer]
        targets[own] = flip_labels(targets[own], classes=dataset.classes)
    return replace(federation, dataset=replace(dataset, targets=targets))
