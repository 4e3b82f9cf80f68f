"""From the sections ``[robustness]`` and ``[attack]`` to a rule and an attack, and what they do not go with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from p2pfl import topology as graphs
from p2pfl.data import Federation
from p2pfl.errors import ExperimentError
from p2pfl.experiment import schema
from p2pfl.experiment.algorithms import known
from p2pfl.experiment.schema import TRACKED, Experiment
from p2pfl.robust import (
    Attack,
    ClippedGossip,
    Krum,
    Median,
    NearestMixed,
    Rule,
    SelfCentredClipping,
    TrimmedMean,
)
from p2pfl.robust.attacks import ALL, flipped
from p2pfl.rows import draw

LEFT = "corrects for what the last average has left, which must be one"
LINEAR = {
    "scaffold": "needs control variates that add up to zero",
    "fednova": "mixes numbers of steps beside rows",
    "multitask": "weighs the rows that it hears by a rule of its own",
    "propagation": "mixes models that differ on purpose",
    "ifca": "mixes rows of several models with masses that say whose they are",
    "gradient_tracking": "needs trackers whose sum stays that of the gradients",
    "d2": LEFT,
    "exact_diffusion": LEFT,
    "sgp": "divides sums by masses",
    "robust_sgp": "sends running totals that are divided by masses",
    "relay_sgd": "sends sums of rows",
    "power_gossip": "mixes differences of rows along directions of its own",
    "gossip_learning": "weighs the rows that it hears by the ages that come with them",
}
"""Why exchanges of an algorithm must be plain averages of true rows; one of the user's own is taken at its word."""


def rule(experiment: Experiment, topology: graphs.Topology | graphs.Schedule) -> Rule | None:
    """The robust rule of an experiment; ``None`` where rows are averaged.

    Parameters
    ----------
    experiment
        With its section ``[robustness]``.
    topology
        On which everybody must hear enough others.

    Raises
    ------
    ExperimentError
        It does not go with the privacy, the algorithm, the masses, the acceleration or the codec, or some peer hears so
        few that liars might be the majority.

    Examples
    --------
    >>> wanted = schema.Robustness(rule="trimmed_mean")
    >>> rule(Experiment(robustness=wanted, learning=schema.Learning(weighted=False)), graphs.ring(4))
    TrimmedMean(attackers=1)
    """
    wanted = experiment.robustness
    if wanted.rule == "none":
        return None
    _check(experiment, key="robustness.rule", value=wanted.rule)
    made = _made(wanted)
    fewest = max(made.fewest, 2 * wanted.attackers + 1)
    for phase in range(topology.period):
        graph = topology.at(phase)
        peer = min(graph.peers, key=lambda each: len(graph.hears(each)))
        if (count := 1 + len(graph.hears(peer))) < fewest:
            raise ExperimentError(
                f"robustness.attackers: expected every peer to have at least {fewest} rows, its own included, to bear "
                f"{wanted.attackers} with {wanted.rule}, got {count} for {peer}: take a denser topology, or fewer"
            )
    return made


def _made(wanted: schema.Robustness) -> Rule:
    clips = wanted.rule in {"clipped_gossip", "self_centred_clipping"}
    if wanted.nearest and clips:
        raise ExperimentError(
            f"robustness.nearest: expected false with {wanted.rule}, whose centre is the own row as it is, got true: "
            "leave it out, or take another rule"
        )
    if (wanted.rule == "self_centred_clipping") != (wanted.radius is not None):
        needed = "a number" if wanted.radius is None else "none"
        raise ExperimentError(
            f"robustness.radius: expected {needed} with {wanted.rule}, got "
            f"{'none' if wanted.radius is None else f'{wanted.radius:g}'}: only self_centred_clipping takes one, and "
            "needs it"
        )
    f = wanted.attackers
    made: Rule
    match wanted.rule:
        case "clipped_gossip":
            return ClippedGossip(f)
        case "self_centred_clipping":
            return SelfCentredClipping(wanted.radius or 0.0)
        case "trimmed_mean":
            made = TrimmedMean(f)
        case "median":
            made = Median(f)
        case name:
            made = Krum(f, several=name == "multi_krum")
    return NearestMixed(made, f) if wanted.nearest else made


def attack(experiment: Experiment, peers: Sequence[str], *, live: bool) -> Attack | None:
    """The attack of an experiment; ``None`` where all are honest.

    Parameters
    ----------
    experiment
        With its section ``[attack]``.
    peers
        All peers, of whom some lie.
    live
        Whether liars know no more than their own row.

    Raises
    ------
    ExperimentError
        It does not go with the rest of the experiment, names peers that there are not, or leaves fewer than two honest.
    """
    wanted = experiment.attack
    if wanted.name == "none":
        return None
    if wanted.name != "label_flip":
        _check(experiment, key="attack.name", value=wanted.name)
    if experiment.compression.name != "none" and wanted.name != "label_flip":
        raise ExperimentError(
            f'attack.name: expected "none" or "label_flip" with compression.name = "{experiment.compression.name}", '
            f'whose codes are of true rows, got "{wanted.name}": leave one of the two out'
        )
    if live and wanted.name in ALL:
        raise ExperimentError(
            f'attack.name: live peers need an attack that takes their own parameters alone, got "{wanted.name}", for '
            "which malicious peers must know the parameters of all honest ones: use simulate, or another attack"
        )
    if unknown := sorted(set(wanted.peers) - set(peers)):
        raise ExperimentError(f'attack.peers: expected peers of the experiment, got "{unknown[0]}": correct it')
    count = max(int(wanted.share > 0), int(wanted.share * len(peers) + 0.5))
    drawn = draw(experiment.seed, "liars").permutation(len(peers))[:count]
    liars = frozenset(wanted.peers or (peers[index] for index in drawn))
    if len(peers) - len(liars) < 2:
        raise ExperimentError(
            f"attack.peers: expected at least two honest peers, got {len(peers) - len(liars)} of {len(peers)}: "
            "let fewer lie"
        )
    return Attack(wanted.name, liars, len(peers), wanted.scale, experiment.seed)


def misled(federation: Federation, attack: Attack | None) -> Federation:
    """The same data, but that of liars who flip labels.

    Raises
    ------
    ExperimentError
        There are no labels.
    """
    if attack is None or attack.name != "label_flip":
        return federation
    dataset = federation.dataset
    if dataset.classes is None:
        raise ExperimentError(
            'attack.name: expected another than "label_flip" where no classes are learned, got it: take another attack'
        )
    targets = dataset.targets.clone()
    for peer in attack.liars & set(federation.train):
        own = federation.train[peer]
        targets[own] = flipped(targets[own], classes=dataset.classes)
    return replace(federation, dataset=replace(dataset, targets=targets))


def _check(experiment: Experiment, *, key: str, value: str) -> None:
    if why := _misfit(experiment):
        raise ExperimentError(f'{key}: expected "none" {why}, got "{value}": change one of the two')


def _misfit(experiment: Experiment) -> str:
    """With what neither rules nor lies about rows go, and why; empty if with everything."""
    privacy, gossip, name = experiment.privacy, experiment.gossip, experiment.learning.algorithm
    if privacy.mode == "pairwise":
        return (
            'with privacy.mode = "pairwise", as each row is under masks that only the average of all takes off: no row '
            "can be told from a lie"
        )
    if privacy.mode == "secagg":
        return 'with privacy.mode = "secagg", as peers are given sums and no row that could be looked at'
    if why := LINEAR.get(name):
        return f"with {name}, which {why}"
    if masses := _uneven(experiment):
        return f"with {masses}, as a weight is a claim that a malicious peer would inflate: all weigh alike"
    if gossip.acceleration != "none":
        return f'with gossip.acceleration = "{gossip.acceleration}", which expects linear mixing'
    for key, given in (("learning.consensus", experiment.learning.consensus), ("data.scale", experiment.data.scale)):
        if given:
            return f"with {key}, which takes a plain average that one malicious peer could spoil"
    if experiment.compression.name in TRACKED:
        return f'with compression.name = "{experiment.compression.name}", under which differences travel and no rows'
    return ""


def _uneven(experiment: Experiment) -> str:
    """What gives rows masses; empty if nothing does."""
    privacy, learning = experiment.privacy, experiment.learning
    found = {
        "learning.weighted = true": learning.weighted,
        "learning.fraction below 1": learning.fraction < 1,
        "learning.drop_stragglers": learning.drop_stragglers and learning.stragglers > 0,
    }
    if known(learning.algorithm).everybody:
        found = {}
    found["privacy.participation below 1"] = privacy.mode != "none" and privacy.participation < 1
    found['gossip.weights = "push"'] = experiment.gossip.weights == "push"
    return next((name for name, given in found.items() if given), "")
