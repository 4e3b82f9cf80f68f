"""Protection of an experiment's updates and its guarantee: noise, mask graph, budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from p2pfl import topology as graphs
from p2pfl.errors import ExperimentError
from p2pfl.experiment import schema
from p2pfl.experiment.catalogue import mode_traits
from p2pfl.experiment.modes import Mode, mode_of
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.accountant import Guarantee, account, sensitivity, table
from p2pfl.privacy.accounting.calibration import calibrate
from p2pfl.privacy.accounting.colluders import parted
from p2pfl.privacy.accounting.isolation import isolated
from p2pfl.privacy.accounting.spending import Cost, affordable, per_round, spent
from p2pfl.privacy.accounting.totals import calibrated as calibrated_total
from p2pfl.privacy.accounting.totals import guarantee as guarantee_of_total
from p2pfl.privacy.mask_size import mask_deviation, residual

if TYPE_CHECKING:
    from p2pfl.privacy.accounting.sums import Sums  # it needs torch, and most experiments have none

CLIP = 1.0
"""Default bound of an update's norm if an epsilon is set."""

AVERAGED = 1e-2
"""Share of a disagreement that gossip leaves when the number of steps is chosen to average masks out."""

SLACK = 1e-6
"""Share by which an epsilon may be exceeded, because calibrated noise meets it up to rounding."""

ENOUGH = 10_000
"""Gossip steps that average out any masks; calibration assumes them if the tolerance determines the steps."""


@dataclass(frozen=True)
class Protection:
    """Protection of the models of a run.

    Attributes
    ----------
    wanted
        Section ``[privacy]`` of the experiment file.
    settings
        Noise and masks, as set or as calibrated to ``wanted.epsilon``.
    graph
        Graph of the mask partners.
    size
        P, the number of parameters.
    rounds
        Number of rounds.
    before
        Costs of earlier runs on the same data.
    found
        Guarantee of one round that calibration computed, so that :attr:`guarantee` need not.
    sums
        What others see if they receive sums over neighbourhoods and no models.
    totals
        What totals show of the data of all peers together, if they alone leave peers; else empty. Then private noise
        is in units of what one sample can change, and the guarantee is for single samples.
    """

    wanted: schema.Privacy
    settings: Settings
    graph: graphs.Topology
    size: int
    rounds: int
    before: Mapping[Cost, int] | None = None
    found: Guarantee | None = None
    sums: Sums | None = None
    totals: str = ""

    @property
    def mode(self) -> Mode:
        """Privacy mode, which wraps the neighbourhoods and states what it promises."""
        return mode_of(self.wanted)

    @property
    def scale(self) -> float:
        """Largest standard deviation of the masks in a parameter of a released model."""
        degree = max(len(self.graph.neighbours(peer)) for peer in self.graph.peers)
        return self.settings.mask * math.sqrt(degree)

    @property
    def claimed(self) -> bool:
        """True if the run claims differential privacy, which needs private noise and a clip."""
        return self.settings.noise > 0 and not math.isinf(self.settings.clip)

    @property
    def partners(self) -> int:
        """Number of mask partners that must be present for a release."""
        return fewest_partners(self.wanted, claimed=self.claimed)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of one round against the broker and the worst ``colluders`` peers."""
        if self.totals:
            return self._totalled(self.wanted.colluders)
        if self.sums is not None:
            return self._summed(min(self.wanted.colluders, len(self.graph.peers) - 1))
        return self.found or account(
            self.graph, colluders=min(self.wanted.colluders, len(self.graph.peers) - 1), **self._numbers
        )

    @property
    def cost(self) -> Cost:
        """Privacy cost of one round."""
        return Cost(self.guarantee.mu, self.settings.participation)

    @property
    def local(self) -> Cost:
        """Privacy cost of one round if all others collude, or if no mask partner is present."""
        return Cost(self.guarantee.local, self.settings.participation)

    @cached_property
    def affordable(self) -> int:
        """Number of rounds that the budget allows; all of them without a budget."""
        if self.wanted.epsilon is None:
            return self.rounds
        return affordable(
            self.cost,
            budget=self.wanted.epsilon * (1 + SLACK),
            delta=self.wanted.delta,
            rounds=self.rounds,
            before=self.before,
        )

    def spent(self, costs: Mapping[Cost, int]) -> float | None:
        """Return epsilon after rounds of these costs; ``None`` if the run claims none."""
        return self.total(Counter(self.before or {}) + Counter(costs)) if self.claimed else None

    def allows(self, costs: Mapping[Cost, int]) -> bool:
        """Return whether rounds of these costs stay within the budget; all do without a budget."""
        if self.wanted.epsilon is None or (costs.keys() == {self.cost} and costs[self.cost] <= self.affordable):
            return True
        spent = self.spent(costs)
        return spent is None or spent <= self.wanted.epsilon * (1 + SLACK)

    def total(self, costs: Mapping[Cost, int]) -> float:
        """Return epsilon of these costs alone."""
        return spent(costs, delta=self.wanted.delta)

    def observers(self) -> list[Guarantee]:
        """Return the guarantee of one round against each observer, ordered by what they know."""
        if self.totals:
            return [self._totalled(count) for count in sorted({0, 1, self.wanted.colluders})]
        if self.sums is not None:
            most = len(self.graph.peers) - 1
            return [self._summed(count) for count in sorted({0, 1, min(self.wanted.colluders, most), most})]
        count = min(self.wanted.colluders, len(self.graph.peers) - 1)
        few = table(self.graph, colluders=min(1, count), **self._numbers)
        if count in {len(each.colluders) for each in few}:
            return few
        return [*few[:-1], self.guarantee, few[-1]]  # the search for the worst set is not repeated

    def isolated(self, given: Guarantee, *, rounds: int) -> tuple[str, dict[Cost, int]]:
        """Return the peer that is worst off if the broker is malicious, and the costs of the rounds in that case.

        The broker makes all mask partners of one peer mask with it alone, see
        :mod:`p2pfl.privacy.accounting.isolation`. Each of them charges its local floor for that, so a budget stops it
        after the rounds that the floor allows.

        Parameters
        ----------
        given
            Guarantee of one round against the same colluders and a broker that only listens.
        rounds
            Number of rounds of the run.

        Returns
        -------
        peer, costs
            Name of the peer, and the number of rounds by their cost.
        """
        peer, mu = given.peer, self.local.mu
        if self.sums is None:
            peer, mu = isolated(self.graph, colluders=len(given.colluders), **self._numbers)
        most = rounds
        if self.wanted.epsilon is not None and self.claimed:
            budget = self.wanted.epsilon * (1 + SLACK)
            most = affordable(self.local, budget=budget, delta=self.wanted.delta, rounds=rounds, before=self.before)
        costs = Counter({Cost(given.mu, self.settings.participation): rounds - most})
        return peer, dict(costs + Counter({Cost(max(mu, given.mu), self.settings.participation): most}))

    def _totalled(self, colluders: int) -> Guarantee:
        """Return the guarantee of one total against a number of peers that receive it."""
        peers, adjacency = self.graph.peers, self.wanted.adjacency
        return guarantee_of_total(peers, noise=self.settings.noise, colluders=colluders, adjacency=adjacency)

    def _summed(self, colluders: int) -> Guarantee:
        """Return the guarantee of one round against a number of peers that receive sums."""
        assert self.sums is not None  # noqa: S101 (asked by the caller)
        numbers = {key: value for key, value in self._numbers.items() if key != "mask"}
        return self.sums.guarantee(colluders=colluders, **numbers)

    def after(self, before: Mapping[Cost, int]) -> Protection:
        """Return the protection on data on which earlier runs have spent these costs."""
        return replace(self, before=before)

    @property
    def _numbers(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "clip": settings.clip,
            "noise": settings.noise,
            "mask": settings.mask,
            "bits": settings.bits,
            "adjacency": self.wanted.adjacency,
            "size": self.size,
        }


def protection(
    wanted: schema.Privacy,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    *,
    size: int,
    rounds: int,
    seed: int,
    steps: int | None,
    layers: tuple[int, ...] = (),
    update: float | None = None,
    sums: Sums | None = None,
    totals: str = "",
) -> Protection:
    """Resolve the section ``[privacy]``.

    Parameters
    ----------
    wanted
        The section.
    topology, weights
        Topology and mixing weights.
    size
        P, the number of parameters.
    rounds
        Number of releases.
    seed
        Seed of random mask graphs.
    steps
        Gossip steps per round; ``None`` if their number is chosen so that masks average out.
    layers
        Number of parameters of each tensor of the model; only clipping by layer needs them.
    update
        Root mean square of a parameter's update, see :func:`p2pfl.privacy.mask_size.update_size`; needed if
        :func:`sizes_masks` is true.
    sums
        What others see in the mode ``secagg``.
    totals
        What totals show, if they alone leave peers.

    Returns
    -------
    Protection
        The protection, with calibrated noise if the section sets an epsilon and no noise.

    Raises
    ------
    ExperimentError
        Keys contradict each other, or layers are clipped by layer and unknown.
    """
    if wanted.epsilon is not None and wanted.noise and math.isinf(wanted.clip) and not totals:
        raise ExperimentError(
            f"privacy.noise = {wanted.noise:g} guarantees nothing while the norm of updates is unbounded; set "
            "privacy.clip"
        )
    traits = mode_traits(wanted.mode)
    if traits.hides and wanted.clipping == "layer" and sum(layers) != size:
        raise ExperimentError(
            f'privacy.clipping = "layer" needs the layers of all {size} parameters, and only {sum(layers)} belong to '
            'known layers; set privacy.clipping to "flat"'
        )
    graph = mask_graph(wanted, topology.union, seed=seed)
    claimed = wanted.epsilon is not None or _claims(wanted) or bool(totals and wanted.noise)
    if traits.masks and claimed and (few := parted(graph, colluders=wanted.colluders)):
        raise ExperimentError(
            f"privacy.colluders = {wanted.colluders} could separate {' and '.join(few)} from all other peers, and "
            'masks must hide each peer among at least three honest ones; set privacy.mask_graph to "circulant", add '
            'peers, lower privacy.colluders, or set privacy.mode to "independent"'
        )
    mask = 0.0
    if traits.masks:
        _check_partners(wanted, graph, claimed=claimed)
        mask = _mask(wanted, graph, weights, size=size, steps=steps, update=update)
    settings = Settings(
        clip=wanted.clip,
        noise=wanted.noise,
        mask=mask,
        bits=wanted.bits,
        participation=wanted.participation,
        layers=layers if wanted.clipping == "layer" else (),
    )
    whole = None
    if not traits.hides:
        settings = Settings()
    elif totals:
        settings = _noisy_totals(wanted, settings, peers=len(graph.peers), rounds=rounds)
    elif sums is not None and wanted.epsilon is not None and not wanted.noise:
        settings = _summed(wanted, settings, sums, size=size, rounds=rounds)
    elif wanted.epsilon is not None and not wanted.noise:
        settings, whole = _calibrated(wanted, settings, graph, weights, size=size, rounds=rounds, steps=steps)
    found = Protection(wanted, settings, graph, size, rounds, found=whole, sums=sums, totals=totals)
    if wanted.epsilon is not None and not found.affordable:
        raise ExperimentError(
            f"privacy.epsilon = {wanted.epsilon:g} does not suffice for one round, which costs "
            f"{found.total({found.cost: 1}):.3g} with noise {settings.noise:g} and clip {settings.clip:g}; leave out "
            "privacy.noise to calibrate it"
        )
    return found


def sizes_masks(wanted: schema.Privacy) -> bool:
    """Return whether the deviation of the masks follows from the size of an update."""
    return mode_traits(wanted.mode).masks and wanted.mask is None and wanted.epsilon is None and not _claims(wanted)


def fewest_partners(wanted: schema.Privacy, *, claimed: bool) -> int:
    """Return how many mask partners a release needs: one more than may collude, unless a guarantee counts them.

    Examples
    --------
    >>> fewest_partners(schema.Privacy(mode="pairwise", colluders=2), claimed=False)
    3
    """
    if wanted.partners is not None:
        return wanted.partners
    return 1 if claimed else wanted.colluders + 1


def _check_partners(wanted: schema.Privacy, graph: graphs.Topology, *, claimed: bool) -> None:
    """Refuse a mask graph in which a peer can never have enough partners."""
    needed = fewest_partners(wanted, claimed=claimed)
    fewest, peer = min((len(graph.neighbours(peer)), peer) for peer in graph.peers)
    if fewest < needed and wanted.mask != 0:
        why = "privacy.colluders + 1" if wanted.partners is None else "privacy.partners"
        raise ExperimentError(
            f"privacy.partners: each peer needs {needed} mask partners ({why}) and the mask graph gives {peer} only "
            f'{fewest}; take a denser topology or privacy.mask_graph = "complete", or set privacy.partners = {fewest}'
        )


def _claims(wanted: schema.Privacy) -> bool:
    return wanted.noise > 0 and not math.isinf(wanted.clip)


def _mask(
    wanted: schema.Privacy,
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
    if not sizes_masks(wanted) or update is None:  # without an update no models are released, only totals
        return CLIP if math.isinf(wanted.clip) else wanted.clip
    rounds = graphs.steps(weights, tolerance=AVERAGED) if steps is None else steps
    return mask_deviation(update, size=size, residual=residual(graph, weights, steps=rounds), bits=wanted.bits)


def mask_graph(wanted: schema.Privacy, topology: graphs.Topology, *, seed: int) -> graphs.Topology:
    """Return the graph of mask partners; any two peers can agree on a key through the broker.

    The number of partners is ``mask_degree``, by default the smallest that leaves the honest peers
    connected: always for ``circulant``, with a probability of failure of one in a million for ``random``.
    """
    peers, kind, degree = topology.peers, wanted.mask_graph, wanted.mask_degree
    if kind == "same":
        return topology
    if kind == "circulant":
        degree = degree or 2 * (wanted.colluders // 2 + 1)
    elif degree is None:
        degree = random_degree(len(peers), colluders=wanted.colluders)
    name = "random_k_out" if kind == "random" else kind
    return graphs.build(name, peers=len(peers), degree=degree, seed=seed).union.named(peers)


def random_degree(peers: int, *, colluders: int) -> int:
    r"""Return how many partners each peer must draw for a random mask graph in which no honest peer is isolated.

    With h honest peers among n, a share :math:`\rho = h / n`, the expected number of those that draw only colluders
    and are drawn only by colluders is :math:`h ((1 - \rho) e^{-\rho})^k`, which should be one in a million:

    .. math:: k \ge \frac{\ln (10^6 h)}{\rho - \ln (1 - \rho)}

    Examples
    --------
    >>> random_degree(100, colluders=50), random_degree(10_000, colluders=1000)
    (15, 8)
    """
    honest = max(1, peers - colluders)
    share = min(1 - 1 / peers, honest / peers)
    return min(math.ceil(math.log(honest / 1e-6) / (share - math.log(1 - share))), peers - 1)


def _noisy_totals(wanted: schema.Privacy, settings: Settings, *, peers: int, rounds: int) -> Settings:
    """Return settings with the noise that keeps ``wanted.epsilon`` over rounds of one total each."""
    noise = wanted.noise
    if wanted.epsilon is not None and not noise:
        mu = per_round(epsilon=wanted.epsilon, delta=wanted.delta, rounds=rounds)
        noise = calibrated_total(mu, peers=peers, colluders=wanted.colluders, adjacency=wanted.adjacency)
    return replace(settings, noise=noise, clip=CLIP if noise else settings.clip)


def _summed(wanted: schema.Privacy, settings: Settings, sums: Sums, *, size: int, rounds: int) -> Settings:
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


def _calibrated(
    wanted: schema.Privacy,
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
    if not mode_traits(wanted.mode).masks:
        change = sensitivity(clip=clip, adjacency=wanted.adjacency, bits=wanted.bits, size=size)
        return replace(settings, clip=clip, noise=change / mu), None
    found = calibrate(
        graph,
        weights[0] if steps is not None and len(weights) == 1 else None,
        epsilon=spent({Cost(mu): rounds}, delta=wanted.delta),
        delta=wanted.delta,
        clip=clip,
        rounds=rounds,
        steps=ENOUGH if steps is None else steps,
        colluders=wanted.colluders,
        adjacency=wanted.adjacency,
        bits=wanted.bits,
        size=size,
    )
    each, all_rounds = math.sqrt(rounds), found.guarantee
    one = replace(all_rounds, mu=all_rounds.mu / each, local=all_rounds.local / each, rounds=1)
    return replace(settings, clip=clip, noise=found.noise, mask=found.mask), one
