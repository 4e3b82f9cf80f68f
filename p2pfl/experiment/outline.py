"""Facts behind a guarantee, without data or torch: topology, mixing weights and size of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError
from p2pfl.core.traits import Traits
from p2pfl.experiment.catalogue import MODELS, mode_traits, traits_of
from p2pfl.experiment.parts.gossip_steps import steps_of_round
from p2pfl.experiment.parts.masks_and_noise import protection, sizes_masks
from p2pfl.experiment.parts.own_graph import is_own, own_graph
from p2pfl.experiment.parts.weights import mixing
from p2pfl.experiment.protection import Protection
from p2pfl.experiment.rules.rule import Composition
from p2pfl.experiment.rules.table import check
from p2pfl.experiment.schema import CompressionSettings, Experiment, LearningSettings, ModelSettings, SimulationSettings

if TYPE_CHECKING:
    from p2pfl.experiment.resolved import Plan
    from p2pfl.privacy.accounting.sum_leakage import Sums

SHAPES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "digits": ((1, 8, 8), 10),
    "breast_cancer": ((30,), 2),
    "wine": ((13,), 3),
    "diabetes": ((10,), 1),
    "mnist": ((1, 28, 28), 10),
    "fashion_mnist": ((1, 28, 28), 10),
}
"""Shape of a sample and number of a model's outputs, for data sets that never change."""

FREE = ("rate", "batch", "epochs", "steps", "stragglers", "drop_stragglers", "fraction", "weighted", "device", "dtype")
"""Keys of ``[learning]`` that are valid for every graph and model."""


STANDARDISED = frozenset({"breast_cancer", "diabetes", "wine"})
"""Public data sets whose columns are scaled by the training samples of all peers."""

GIVEN_SCALING = "given the scaling of this public data set, which its training samples determine"
"""Condition of a guarantee that covers no statistics of the features."""


@dataclass(frozen=True)
class Outline:
    """Parts of an experiment that determine its guarantee.

    Attributes
    ----------
    experiment
        Settings.
    topology
        Topology.
    protection
        Protection of the models.
    gossip_steps
        Gossip steps per round.
    whole
        The plan, if only a plan could determine the other parts.
    """

    experiment: Experiment
    topology: graphs.Topology | graphs.Schedule
    protection: Protection
    gossip_steps: int
    whole: Plan | None = None


def outline(experiment: Experiment) -> Outline | None:
    """Outline an experiment, in a fraction of the time that a plan takes.

    Returns
    -------
    Outline or None
        The same facts as :func:`p2pfl.experiment.resolving.plan`, without reading data; ``None`` if something other
        than graphs and noise matters or might be refused, or if only data or a user's own model determine the number
        of parameters.

    Raises
    ------
    InputError
        The graph is disconnected, or keys contradict each other.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> found = outline(read({"model": {"name": "linear"}}))
    >>> found.protection.size, found.gossip_steps
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
    return Outline(experiment, topology, found, steps_of_round(experiment, topology, weights, found)[0])


def loaded(experiment: Experiment) -> graphs.Topology | graphs.Schedule | None:
    """Return the topology of ``topology.file``, of several files in turn, or of a user's function in ``topology.kind``.

    It is ``None`` for the kinds that p2pfl builds.
    """
    settings = experiment.topology
    if settings.file is None:
        own = is_own(settings.kind)
        return own_graph(settings.kind, peers=settings.peers, options=_options(experiment)) if own else None
    if isinstance(settings.file, str):
        return graphs.load(settings.file)
    return graphs.Schedule(tuple(graphs.load(file) for file in settings.file))


def built(experiment: Experiment) -> graphs.Topology | graphs.Schedule:
    """Return the topology that ``topology.kind`` and its keys define."""
    settings = experiment.topology
    return graphs.build(settings.kind, peers=settings.peers, **_options(experiment))


def _options(experiment: Experiment) -> dict[str, Any]:
    """Return the keys of ``[topology]`` from which a builder takes those that it knows, and the seed."""
    keys = ("degree", "rewire", "probability", "rows", "branching", "clusters", "inside", "every", "levels", "period")
    return {"seed": experiment.seed} | {key: getattr(experiment.topology, key) for key in keys}


def check_peers(experiment: Experiment, names: Sequence[str], only: Sequence[str]) -> None:
    """Refuse peers that an experiment does not have.

    Raises
    ------
    ExperimentError
        One of ``only`` is not among ``names``.
    """
    if unknown := sorted(set(only) - set(names)):
        some = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ExperimentError(f'experiment "{experiment.name}" has no peer "{unknown[0]}"; choose one of {some}')


def hidden(
    experiment: Experiment,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    *,
    sizes: tuple[int, ...],
    update: float | None = None,
    sums: Sums | None = None,
) -> Protection:
    """Return the protection of an experiment's models.

    Parameters
    ----------
    experiment, topology, weights
        Parts of a :class:`p2pfl.experiment.resolved.Plan`.
    sizes
        Number of parameters of each tensor of the model.
    update
        Root mean square of a parameter's update, if masks are sized from it.
    sums
        Sums that others see in the mode ``secagg``.

    Returns
    -------
    Protection
        The resolved section ``[privacy]``.
    """
    traits = traits_of(experiment.learning.algorithm)
    stepwise = traits.full_participation
    found = protection(
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
        totals=_shown(experiment) if traits.additive else "",
    )
    return replace(found, given=_condition(experiment))


def _condition(experiment: Experiment) -> str:
    """Return the condition of a guarantee on a public data set whose scaling depends on samples, in words."""
    data, samples = experiment.data, bool(experiment.learning.example_noise)
    hospitals = data.name == "fed_heart" and (samples or data.options.get("scaling") == "pooled")
    return GIVEN_SCALING if hospitals or data.name in STANDARDISED else ""


def _shown(experiment: Experiment) -> str:
    """Return what the totals of a model show, as its class says, which may depend on its options."""
    from p2pfl.learning.exact_model import ExactModel  # noqa: PLC0415 (it needs torch, as such a model does)

    name = experiment.model.name
    kind = MODELS.kind(name) if name in MODELS or ":" in name else None
    if isinstance(kind, type) and issubclass(kind, ExactModel):
        return kind.shown(experiment.model.options)
    return "whatever the model asks for"


def _plain(experiment: Experiment) -> bool:
    """Return whether graphs and noise alone matter, so that a plan would refuse nothing more."""
    learning = experiment.learning
    usual = LearningSettings(algorithm=learning.algorithm, **{key: getattr(learning, key) for key in FREE})
    return (
        _unlimited(traits_of(learning.algorithm))
        and learning == usual
        and not mode_traits(experiment.privacy.mode).sums
        and not experiment.data.scale
        and experiment.robustness.rule == experiment.attack.name == "none"
        and experiment.compression == CompressionSettings()
        and experiment.simulation == SimulationSettings()
        and experiment.transport.hurry == 1
    )


def _unlimited(traits: Traits) -> bool:
    """Return True for a plain average of trained models, whose class refuses nothing."""
    if traits.additive:
        return False
    plain = Traits(linear=True, convex=True)
    free = ("full_participation", "default_steps", "full_batch", "private_examples")
    return replace(traits, **{key: getattr(plain, key) for key in free}) == plain


def _sizes(experiment: Experiment) -> tuple[int, ...] | None:
    """Return the size of each tensor of the model; ``None`` if only the model itself can tell."""
    model, data = experiment.model, experiment.data
    if data.name not in SHAPES or data.options or model != ModelSettings(name=model.name, hidden=model.hidden):
        return None
    shape, outputs = SHAPES[data.name]
    if model.name == "linear":
        return affine([math.prod(shape), outputs])
    if model.name == "mlp":
        return affine([math.prod(shape), *model.hidden, outputs])
    return None


def affine(widths: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the weights and biases of consecutive affine maps.

    Examples
    --------
    >>> affine([64, 32, 10])
    (2048, 32, 320, 10)
    """
    return tuple(size for fan_in, fan_out in pairwise(widths) for size in (fan_in * fan_out, fan_out))
