"""From the sections ``[robustness]`` and ``[attack]`` to a rule and an attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from p2pfl import topology as graphs
from p2pfl.data import Federation
from p2pfl.errors import ExperimentError
from p2pfl.experiment import schema
from p2pfl.experiment.catalogue import RULES
from p2pfl.experiment.schema import Experiment
from p2pfl.robust import Attack, NearestMixed, Rule
from p2pfl.robust.attacks import ALL, flipped
from p2pfl.rows import draw


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
        A peer receives so few models that malicious ones might be the majority.

    Examples
    --------
    >>> wanted = schema.Robustness(rule="trimmed_mean")
    >>> rule(Experiment(robustness=wanted, learning=schema.Learning(weighted=False)), graphs.ring(4))
    TrimmedMean(attackers=1)
    """
    wanted = experiment.robustness
    if wanted.rule == "none":
        return None
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
    made: Rule = RULES.make(wanted.rule, {"attackers": wanted.attackers, "radius": wanted.radius})
    return NearestMixed(made, wanted.attackers) if wanted.nearest else made


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
        It names peers that there are not, or leaves fewer than two honest.
    """
    wanted = experiment.attack
    if wanted.name == "none":
        return None
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
