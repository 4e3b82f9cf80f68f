"""The section ``[privacy]``: from what is wanted to noise, masks and their partners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError
from p2pfl.core.traits import ModeTraits
from p2pfl.experiment import schema
from p2pfl.experiment.catalogue import MODELS
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.modes import Mode
from p2pfl.experiment.protection import Protection, fewest_partners
from p2pfl.experiment.schema import Experiment
from p2pfl.experiment.site_policy import stated_least
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.accountant import Guarantee, calibrate_total, sensitivity
from p2pfl.privacy.accounting.calibration import calibrate
from p2pfl.privacy.accounting.colluders import find_parted_peers
from p2pfl.privacy.accounting.spending import per_round
from p2pfl.privacy.mask_size import mask_deviation, residual

if TYPE_CHECKING:
    from p2pfl.algorithms import Averaging
    from p2pfl.privacy.accounting.sum_leakage import Sums  # it needs torch, and most experiments have none

CLIP = 1.0
"""Default bound of an update's norm if an epsilon is set."""

AVERAGED = 1e-2
"""Share of a disagreement that gossip leaves when the number of steps is chosen to average masks out."""

ENOUGH = 10_000
"""Gossip steps that average out any masks; calibration assumes them if the tolerance determines the steps."""

STANDARDISED = frozenset({"breast_cancer", "diabetes", "wine"})
"""Public data sets whose columns are scaled by the training samples of all peers."""

GIVEN_SCALING = "given the scaling of this public data set, which its training samples determine"
"""Condition of a guarantee that covers no statistics of the features."""


def protect(
    asked: Composition,
    mode: Mode,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    *,
    size: int,
    update: float | None = None,
    sums: Sums | None = None,
) -> Protection:
    """Return the protection of an experiment's models.

    Parameters
    ----------
    asked, topology, weights
        Parts of a :class:`p2pfl.experiment.resolved.Plan`.
    mode
        Privacy mode.
    size
        P, the number of parameters.
    update
        Root mean square of a parameter's update, if masks are sized from it.
    sums
        Sums that others see in the mode ``secagg``.

    Returns
    -------
    Protection
        The resolved section ``[privacy]``.
    """
    experiment, traits = asked.experiment, asked.algorithm
    stepwise = traits.full_participation
    protected = protection(
        experiment.privacy,
        mode,
        topology,
        weights,
        size=size,
        rounds=experiment.horizon,
        steps=1 if stepwise and experiment.gossip.steps is None else experiment.gossip.steps,
        update=update,
        sums=sums,
        totals=_total_facts(experiment, topology.peers) if traits.additive else "",
    )
    return replace(protected, given=_condition(experiment))


def _condition(experiment: Experiment) -> str:
    """Return the condition of a guarantee on a public data set whose scaling depends on samples, in words."""
    data, samples = experiment.data, bool(experiment.learning.example_noise)
    hospitals = data.name == "fed_heart" and (samples or data.options.get("scaling") == "pooled")
    return GIVEN_SCALING if hospitals or data.name in STANDARDISED else ""


def _total_facts(experiment: Experiment, peers: Sequence[str]) -> str:
    """Return what the totals of a model show, as its class says, which may depend on its options."""
    name = experiment.model.name
    kind = MODELS.kind(name) if name in MODELS or ":" in name else None
    shown = getattr(kind, "shown", None)
    facts: str = getattr(kind, "shows", "") if shown is None else shown(experiment.model.options)
    facts = facts or "whatever the model asks for"
    if experiment.data.options.get("key_across"):
        facts = f"how many persons several peers have (a peer that enters a single key learns of that person), {facts}"
    cells: str = getattr(kind, "checks", "")
    if not cells:
        return facts
    sites = (stated_least(experiment, peer) for peer in peers) if experiment.data.owned else ()
    least = max([experiment.model.options.get("least", getattr(kind, "least", 1)), *sites])
    if least == 1:
        return f"{facts}; with model.options.least = 1, nothing prevents that one person is alone in {cells}"
    return (
        f"{facts}; 0 people are alone in {cells}, as a check, which shows no counts, stops or merges those of 1 to "
        f"{least - 1} people before anything else leaves, if peers follow the protocol and no two of them collude"
    )


def protection(
    wanted: schema.PrivacySettings,
    mode: Mode,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    *,
    size: int,
    rounds: int,
    steps: int | None,
    update: float | None = None,
    sums: Sums | None = None,
    totals: str = "",
) -> Protection:
    """Resolve the section ``[privacy]``.

    Parameters
    ----------
    wanted, mode
        The section, and the mode that it names.
    topology, weights
        Topology and mixing weights.
    size
        P, the number of parameters.
    rounds
        Number of releases.
    steps
        Gossip steps per round; ``None`` if their number is chosen so that masks average out.
    update
        Root mean square of a parameter's update, see :func:`p2pfl.privacy.mask_size.update_size`; needed if
        :func:`sizes_masks` is true.
    sums
        Sums that others see in the mode ``secagg``.
    totals
        Facts that totals show, if they alone leave peers.

    Returns
    -------
    Protection
        The protection, with calibrated noise if the section sets an epsilon and no noise.

    Raises
    ------
    ExperimentError
        Keys contradict each other.
    """
    if wanted.epsilon is not None and wanted.noise and math.isinf(wanted.clip) and not totals:
        raise ExperimentError(
            f"privacy.noise = {wanted.noise:g} guarantees nothing while the norm of updates is unbounded; set "
            "privacy.clip"
        )
    traits = mode.traits
    graph = topology.union
    if wanted.mask_graph == "complete":  # any two peers can agree on a key through the broker
        graph = graphs.complete(len(graph.peers)).named(graph.peers)
    claimed = wanted.epsilon is not None or _claims(wanted) or bool(totals and wanted.noise)
    if traits.masks and claimed and (few := find_parted_peers(graph, colluders=wanted.colluders)):
        raise ExperimentError(
            f"privacy.colluders = {wanted.colluders} could separate {' and '.join(few)} from all other peers, and "
            'masks must hide each peer among at least three honest ones; set privacy.mask_graph to "complete", add '
            'peers, lower privacy.colluders, or set privacy.mode to "independent"'
        )
    mask = 0.0
    if traits.masks:
        _check_partners(wanted, graph, claimed=claimed)
        mask = _mask(wanted, mode.traits, graph, weights, size=size, steps=steps, update=update)
    settings = Settings(
        clip=wanted.clip,
        noise=wanted.noise,
        mask=mask,
        bits=wanted.bits,
        participation=wanted.participation,
    )
    whole = None
    if not traits.hides:
        settings = Settings()
    elif totals:
        settings = _noisy_totals(wanted, settings, peers=len(graph.peers), rounds=rounds)
    elif sums is not None and wanted.epsilon is not None and not wanted.noise:
        settings = _settings_of_sums(wanted, settings, sums, size=size, rounds=rounds)
    elif wanted.epsilon is not None and not wanted.noise:
        settings, whole = _calibrate(
            wanted, mode.traits, settings, graph, weights, size=size, rounds=rounds, steps=steps
        )
    protection = Protection(wanted, mode, settings, graph, size, rounds, calibrated=whole, sums=sums, totals=totals)
    if wanted.epsilon is not None and not protection.affordable:
        raise ExperimentError(
            f"privacy.epsilon = {wanted.epsilon:g} does not suffice for one round, which costs "
            f"{protection.total({protection.cost: 1}):.3g} with noise {settings.noise:g} and clip {settings.clip:g}; "
            "leave out privacy.noise to calibrate it"
        )
    return protection


def sizes_masks(wanted: schema.PrivacySettings, mode: ModeTraits) -> bool:
    """Return whether the deviation of the masks follows from the size of an update."""
    return mode.masks and wanted.mask is None and wanted.epsilon is None and not _claims(wanted)


def _check_partners(wanted: schema.PrivacySettings, graph: graphs.Topology, *, claimed: bool) -> None:
    """Refuse a mask graph in which a peer can never have enough partners."""
    needed = fewest_partners(wanted, claimed=claimed)
    fewest, peer = min((graph.degree(peer), peer) for peer in graph.peers)
    if fewest < needed and wanted.mask != 0:
        why = "privacy.colluders + 1" if wanted.partners is None else "privacy.partners"
        raise ExperimentError(
            f"privacy.partners: each peer needs {needed} mask partners ({why}) and the mask graph gives {peer} only "
            f'{fewest}; take a denser topology or privacy.mask_graph = "complete", or set privacy.partners = {fewest}'
        )


def check_company(asked: Composition, average: Averaging | None, protected: Protection) -> None:
    """Refuse masks alone where so few peers count in a round that their mean shows a model.

    Parameters
    ----------
    asked
        The settings, and the traits of the parts.
    average
        Average of the algorithm, whose rounds are all known before the first; ``None`` if all peers count.
    protected
        Protection of the models.

    Raises
    ------
    ExperimentError
        A peer that counts and its colluders would learn a model that they do not hold; or nobody can say so, because
        the rounds have no end.
    """
    experiment = asked.experiment
    bare = protected.settings.mask and not protected.claimed and not experiment.learning.example_noise
    if average is None or not average.partial or not asked.mode.masks or asked.algorithm.additive or not bare:
        return
    needed = experiment.privacy.colluders + 2
    if experiment.endless and not average.alike:
        raise ExperimentError(
            f'rounds = "endless" does not work with privacy.mode = "{experiment.privacy.mode}" without a clip and '
            "noise where another number of peers counts in each round, as with stragglers that are dropped, because "
            "some round would have too few; set rounds to a number, or privacy.clip and privacy.noise"
        )
    few, round = average.fewest(experiment.horizon, enough=needed)
    if few < needed:
        one = "1 peer counts" if few == 1 else f"{few} peers count"
        raise ExperimentError(
            f'privacy.mode = "{experiment.privacy.mode}" without a clip and noise hides a model among at least '
            f"{needed} peers that count (privacy.colluders + 2), and {one} in round {round}; set privacy.clip and "
            "privacy.noise, or let more peers count in each round"
        )


def _claims(wanted: schema.PrivacySettings) -> bool:
    return wanted.noise > 0 and not math.isinf(wanted.clip)


def _mask(
    wanted: schema.PrivacySettings,
    mode: ModeTraits,
    graph: graphs.Topology,
    weights: tuple[graphs.Weights, ...],
    *,
    size: int,
    steps: int | None,
    update: float | None,
) -> float:
    """Return the deviation of a mask: as set, as large as a clipped update, or sized from an update."""
    if wanted.mask is not None:
        return wanted.mask
    if not sizes_masks(wanted, mode) or update is None:  # without an update no models are released, only totals
        return CLIP if math.isinf(wanted.clip) else wanted.clip
    rounds = graphs.steps(weights, tolerance=AVERAGED) if steps is None else steps
    return mask_deviation(update, size=size, residual=residual(graph, weights, steps=rounds), bits=wanted.bits)


def _noisy_totals(wanted: schema.PrivacySettings, settings: Settings, *, peers: int, rounds: int) -> Settings:
    """Return settings with the noise that keeps ``wanted.epsilon`` over rounds of one total each."""
    noise = wanted.noise
    if wanted.epsilon is not None and not noise:
        mu = per_round(epsilon=wanted.epsilon, delta=wanted.delta, rounds=rounds)
        noise = calibrate_total(mu, peers=peers, colluders=wanted.colluders, adjacency=wanted.adjacency)
    return replace(settings, noise=noise, clip=CLIP if noise else settings.clip)


def _settings_of_sums(
    wanted: schema.PrivacySettings, settings: Settings, sums: Sums, *, size: int, rounds: int
) -> Settings:
    """Return settings with the noise that keeps ``wanted.epsilon`` over all rounds for peers that receive sums."""
    assert wanted.epsilon is not None  # noqa: S101 (asked by the caller)
    clip = CLIP if math.isinf(wanted.clip) else wanted.clip
    mu = per_round(epsilon=wanted.epsilon, delta=wanted.delta, rounds=rounds)
    unit = sums.guarantee(
        clip=clip,
        noise=1.0,
        bits=wanted.bits,
        adjacency=wanted.adjacency,
        colluders=min(wanted.colluders, len(sums.peers) - 1),
        size=size,
    )
    return replace(settings, clip=clip, noise=unit.mu / mu)


def _calibrate(
    wanted: schema.PrivacySettings,
    mode: ModeTraits,
    settings: Settings,
    graph: graphs.Topology,
    weights: tuple[graphs.Weights, ...],
    *,
    size: int,
    rounds: int,
    steps: int | None,
) -> tuple[Settings, Guarantee | None]:
    """Return settings with the least costly noise that keeps ``wanted.epsilon``, and the guarantee of one round."""
    assert wanted.epsilon is not None  # noqa: S101 (asked by the caller)
    clip = CLIP if math.isinf(wanted.clip) else wanted.clip
    mu = per_round(epsilon=wanted.epsilon, delta=wanted.delta, rounds=rounds, probability=settings.participation)
    if not mode.masks:
        change = sensitivity(clip=clip, adjacency=wanted.adjacency, bits=wanted.bits, size=size)
        return replace(settings, clip=clip, noise=change / mu), None
    calibration = calibrate(
        graph,
        weights[0] if steps is not None and len(weights) == 1 else None,
        mu=mu,
        clip=clip,
        rounds=rounds,
        steps=ENOUGH if steps is None else steps,
        colluders=wanted.colluders,
        adjacency=wanted.adjacency,
        bits=wanted.bits,
        size=size,
    )
    given, room = calibration.guarantee, 1.0
    if wanted.departures == "go_on" and settings.participation == 1:  # one round may cost its local floor: squares add
        room = math.sqrt((rounds - 1 + (given.local / given.mu) ** 2) / rounds)
    one = replace(given, mu=given.mu / room, local=given.local / room)
    return replace(settings, clip=clip, noise=calibration.noise * room, mask=calibration.mask * room), one
