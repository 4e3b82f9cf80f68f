"""The facts behind a guarantee, without data or torch: who sends to which peer, mixing weights, size of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from p2pfl import topology as graphs
from p2pfl.errors import ExperimentError
from p2pfl.experiment.catalogue import mode_traits, traits_of
from p2pfl.experiment.parts.gossip_steps import exchanges
from p2pfl.experiment.parts.weights import mixing
from p2pfl.experiment.protection import Protection, protection, sizes_masks
from p2pfl.experiment.rules.rule import Composition
from p2pfl.experiment.rules.table import check
from p2pfl.experiment.schema import Compression, Experiment, Learning, Model, Simulation
from p2pfl.traits import Traits

if TYPE_CHECKING:
    from p2pfl.experiment.resolved import Plan
    from p2pfl.privacy.accounting.sums import Sums

SHAPES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "digits": ((1, 8, 8), 10),
    "breast_cancer": ((30,), 2),
    "wine": ((13,), 3),
    "diabetes": ((10,), 1),
    "mnist": ((1, 28, 28), 10),
    "fashion_mnist": ((1, 28, 28), 10),
}
"""One sample's features, and how many outputs a model for them has, of the data sets that never differ."""

FREE = ("rate", "batch", "epochs", "steps", "stragglers", "drop_stragglers", "fraction", "weighted", "device", "dtype")
"""Keys of ``[learning]`` that are as good as they read, whatever the graph and the model are."""


@dataclass(frozen=True)
class Outline:
    """What of an experiment its guarantee follows from.

    Attributes
    ----------
    experiment
        Its settings.
    topology
        Who hears whom.
    protection
        What hides their rows.
    exchanges
        Of a round.
    whole
        The plan, where only a plan could tell.
    """

    experiment: Experiment
    topology: graphs.Topology | graphs.Schedule
    protection: Protection
    exchanges: int
    whole: Plan | None = None


def outline(experiment: Experiment) -> Outline | None:
    """Outline an experiment, in a fraction of the time that a plan takes.

    Returns
    -------
    Outline or None
        What :func:`p2pfl.experiment.resolving.plan` gives, before any data are read; ``None`` where something
        besides graphs and noises counts or may be refused, or where only data or a model of one's own say
        how long a row is.

    Raises
    ------
    InputError
        If a graph is disconnected, or keys contradict each other.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> found = outline(read({"model": {"name": "linear"}}))
    >>> found.protection.size, found.exchanges
    (650, 32)
    """
    sizes = _sizes(experiment)
    if sizes is None or not _plain(experiment) or sizes_masks(experiment.privacy):
        return None
    asked = Composition.of(experiment)
    check(asked)
    topology = loaded(experiment) or built(experiment)
    graphs.check_connected(topology)
    weights = mixing(experiment, topology)
    check(asked.on(topology, weights))
    found = hidden(experiment, topology, weights, sizes=sizes)
    return Outline(experiment, topology, found, exchanges(experiment, topology, weights, found)[0])


def loaded(experiment: Experiment) -> graphs.Topology | graphs.Schedule | None:
    """The graph of a file, or of several in turn, one for each exchange."""
    settings = experiment.topology
    if settings.file is None:
        return None
    if isinstance(settings.file, str):
        return graphs.load(settings.file)
    return graphs.Schedule(tuple(graphs.load(file) for file in settings.file))


def built(experiment: Experiment) -> graphs.Topology | graphs.Schedule:
    """The graph of a kind."""
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


def check_peers(experiment: Experiment, names: Sequence[str], only: Sequence[str]) -> None:
    """Refuse peers that an experiment does not have."""
    if unknown := sorted(set(only) - set(names)):
        some = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ExperimentError(f'expected a peer of "{experiment.name}", got "{unknown[0]}": its peers are {some}')


def hidden(
    experiment: Experiment,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    *,
    sizes: tuple[int, ...],
    update: float | None = None,
    sums: Sums | None = None,
) -> Protection:
    """What hides the rows of an experiment.

    Parameters
    ----------
    experiment, topology, weights
        As in :class:`p2pfl.experiment.resolved.Plan`.
    sizes
        How many numbers of a row belong to each tensor of the model.
    update
        Root mean square of a number of an update, where masks are sized to it.
    sums
        What others see in the mode ``secagg``.
    """
    stepwise = traits_of(experiment.learning.algorithm).full_participation
    return protection(
        experiment.privacy,
        topology,
        weights,
        size=sum(sizes),
        layers=sizes,
        rounds=experiment.rounds,
        seed=experiment.seed,
        steps=1 if stepwise and experiment.gossip.steps is None else experiment.gossip.steps,
        update=update,
        sums=sums,
    )


def _plain(experiment: Experiment) -> bool:
    """Whether nothing but graphs and noises counts, so that a plan would refuse nothing more."""
    learning = experiment.learning
    usual = Learning(algorithm=learning.algorithm, **{key: getattr(learning, key) for key in FREE})
    return (
        _unlimited(traits_of(learning.algorithm))
        and learning == usual
        and not mode_traits(experiment.privacy.mode).sums
        and not experiment.data.scale
        and experiment.robustness.rule == experiment.attack.name == "none"
        and experiment.compression == Compression()
        and experiment.simulation == Simulation()
        and experiment.transport.hurry == 1
        and not experiment.topology.heal
    )


def _unlimited(traits: Traits) -> bool:
    """Return True for a plain average of trained models, whose class refuses nothing."""
    plain = Traits(linear=True, convex=True)
    free = ("full_participation", "default_steps", "full_batch", "private_examples")
    return replace(traits, **{key: getattr(plain, key) for key in free}) == plain


def _sizes(experiment: Experiment) -> tuple[int, ...] | None:
    """Return the size of each tensor of the model; ``None`` if only the model itself can tell."""
    model, data = experiment.model, experiment.data
    if data.name not in SHAPES or data.options or model != Model(name=model.name, hidden=model.hidden):
        return None
    shape, outputs = SHAPES[data.name]
    if model.name == "linear":
        return affine([math.prod(shape), outputs])
    if model.name == "mlp":
        return affine([math.prod(shape), *model.hidden, outputs])
    return None


def affine(widths: Sequence[int]) -> tuple[int, ...]:
    """Numbers of the weights and biases of affine maps one after the other.

    Examples
    --------
    >>> affine([64, 32, 10])
    (2048, 32, 320, 10)
    """
    return tuple(size for fan_in, fan_out in pairwise(widths) for size in (fan_in * fan_out, fan_out))
