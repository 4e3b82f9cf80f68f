"""Resolved experiments: the parts of which peers and simulations are made."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from p2pfl import topology as graphs
from p2pfl.algorithms import (
    Algorithm,
    CheckedAlgorithm,
    Compressed,
    Gossip,
    StopCondition,
    average_of,
    count_extra,
    count_shared,
)
from p2pfl.algorithms.robust import Attack, Rule, add_attack, robust
from p2pfl.algorithms.robust.attacks import Sums, sum_locally
from p2pfl.algorithms.robust.net import StepObserver, Work, compute_here
from p2pfl.core.codecs import Codec, Zstd
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits
from p2pfl.data import Federation
from p2pfl.experiment.accounts import admitted
from p2pfl.experiment.catalogue import STATES
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.file.reading import flat
from p2pfl.experiment.former_models import FormerModels
from p2pfl.experiment.neighbourhood_sums import ring_width
from p2pfl.experiment.protection import Protection
from p2pfl.experiment.schema import Experiment
from p2pfl.experiment.site_policy import stated_least
from p2pfl.experiment.swarm_change import order_of
from p2pfl.learning import Learner, learner_traits
from p2pfl.learning.learner import ChecksCells, KeepsModels, KeepsOwn, ProtectsSamples, SharesBase
from p2pfl.learning.models import MODELS
from p2pfl.learning.steps.optimisers import Recipe
from p2pfl.privacy.accounting.examples import SampledSteps, worst_off
from p2pfl.privacy.keys import Source
from p2pfl.privacy.mask_size import residual
from p2pfl.privacy.normal_stream import VERSION
from p2pfl.privacy.secagg import protocol as secagg

if TYPE_CHECKING:
    from p2pfl.learning.modules.trained_part import DividedModel

SAME = (
    "learning.device",
    "data.options",
    "model.options",
    "model.pretrained",
    "gossip.weights",
    "privacy.budget",
    "privacy.partners",
)
"""Keys in which peers may differ: devices, the number of partners that suffices, and paths, whose content is compared
instead."""


@dataclass(frozen=True)
class Plan:
    """Resolved experiment.

    Attributes
    ----------
    asked
        Settings, and facts of all parts.
    topology, weights
        Topology, and one matrix of mixing weights for each gossip step of the period.
    federation
        Data of the local peers.
    learner, algorithm, stop
        Learner of the local peers.
    protection
        Protection of their models.
    gossip
        Gossip steps of a round.
    codec
        Codec of the models; ``None`` if they are sent whole.
    rule, attack
        Robust rule that replaces averages, and the attack; ``None`` if there is none.
    masses
        Smallest and largest weight of a model in sums.
    sized
        Number and L2 norm of the initial parameters from which the default mask was computed, see
        :func:`size_and_norm`; ``None`` if it does not depend on them.
    accounted
        True if no account of the data lacks the plan, see :func:`p2pfl.experiment.accounts.admitted`.
    unaccounted
        True if the plan may stay outside of the account.
    unpinned
        Settings before the calibrated noise was written out, see :attr:`pinned`; ``None`` if they are the same.

    Raises
    ------
    ExperimentError
        The mask was computed for another model than the learner's.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> plan(read({"data": {"name": "wine"}, "topology": {"peers": 4}})).honest
    ('peer0', 'peer1', 'peer2', 'peer3')
    """

    asked: Composition
    topology: graphs.Topology | graphs.Schedule
    weights: tuple[graphs.Weights, ...]
    federation: Federation
    learner: Learner
    algorithm: Algorithm
    protection: Protection
    gossip: Gossip
    stop: StopCondition | None
    codec: Codec | None = None
    masses: tuple[float, float] = (1.0, 1.0)
    rule: Rule | None = None
    attack: Attack | None = None
    sized: tuple[int, float] | None = None
    accounted: bool = True
    unaccounted: bool = False
    unpinned: Experiment | None = None

    def __post_init__(self) -> None:
        if self.sized is None:
            return
        size, norm = size_and_norm(self.learner)
        if size != self.sized[0] or not math.isclose(norm, self.sized[1], rel_tol=1e-6):
            raise ExperimentError(
                "privacy.mask: the default was computed for the model of the experiment, which has "
                f"{self.sized[0]} parameters of norm {self.sized[1]:.3g}, and this learner starts from {size} of norm "
                f"{norm:.3g}; set privacy.mask to the deviation of a mask"
            )

    @property
    def experiment(self) -> Experiment:
        """Settings."""
        return self.asked.experiment

    @property
    def written(self) -> Experiment:
        """Settings as the user has written them, which approvals and accounts name."""
        return self.unpinned or self.experiment

    @property
    def validates(self) -> bool:
        """True if peers judge their models on a validation part."""
        return self.experiment.data.validation > 0 or self.federation.validates

    @cached_property
    def flood_steps(self) -> int:
        """Gossip steps after which a number reaches all peers."""
        return graphs.flood_steps(self.topology)

    def contested(
        self,
        hidden: Neighbourhood,
        *,
        round: int,
        observer: StepObserver,
        elsewhere: Callable[[Work], Awaitable[Rows]] = compute_here,
        together: Sequence[str] | None = None,
        sums: Sums = sum_locally,
    ) -> Neighbourhood:
        """Return the neighbourhood of a round in which Byzantine peers attack and the robust rule mixes models.

        Parameters
        ----------
        hidden
            Neighbourhood that carries the protected models.
        round
            Number of the round, for draws of the attack.
        observer
            Callback that receives how far models moved.
        elsewhere
            Function that computes the rule, for instance in a thread.
        together
            Peers among which any may attack; the local ones by default.
        sums
            Function that adds up over all processes that simulate peers.

        Returns
        -------
        Neighbourhood
            The wrapped neighbourhood; ``hidden`` itself without a rule and an attack.
        """
        attacking = add_attack(hidden, self.attack, round=round, observer=observer, together=together, sums=sums)
        return robust(attacking, self.rule, observer=observer, elsewhere=elsewhere)

    @cached_property
    def honest(self) -> tuple[str, ...]:
        """Names of all peers that do not attack."""
        if self.attack is None:
            return self.topology.peers
        return tuple(peer for peer in self.topology.peers if peer not in self.attack.attackers)

    @property
    def played(self) -> Algorithm:
        """The algorithm, over compressed gossip if there is a codec; it ends at a promise that it breaks."""
        played = self.algorithm
        if self.codec is not None:
            options = self.experiment.compression.options
            even = all(weights.keeps_consensus for weights in self.weights)
            gamma, refresh = options.get("gamma"), options.get("refresh")
            played = Compressed(played, self.codec, gamma, refresh, even=even, period=len(self.weights))
        name, size = type(self.algorithm).__name__, self.learner.layout.size
        return CheckedAlgorithm(played, name, size, count_extra(self.algorithm), self.learner.dtype)

    @property
    def zstd(self) -> Zstd | None:
        """Lossless compression of the bytes of a model; ``None`` if there is none."""
        return Zstd() if self.experiment.compression.zstd else None

    @property
    def asynchronous(self) -> bool:
        """True if peers run cycles of their own and do not wait for others."""
        return self.asked.algorithm.asynchronous

    @property
    def shared(self) -> int:
        """Number of parameters that leave a peer."""
        return count_shared(self.algorithm, self.learner.layout.size)

    @property
    def commits(self) -> bool:
        """True if the members of a round commit it together, so that no masks of a missing peer stay."""
        return self.masked and not self.asked.algorithm.additive

    @property
    def masked(self) -> bool:
        """True if pairwise masks are on."""
        return self.protection.settings.mask > 0

    @property
    def apart_by_masks(self) -> bool:
        """True if the last gossip step of a round moves models by masks above all: it is the one that receives them."""
        return self.masked and self.gossip.steps == 1

    @cached_property
    def residual(self) -> float:
        """Deviation that the masks of a peer that disappears leave in a parameter of a survivor."""
        steps = self.gossip.steps
        return self.protection.settings.mask * residual(self.protection.graph, self.weights, steps=steps)

    @cached_property
    def ring(self) -> int:
        """Bits of the ring in which secure sums add models up."""
        settings = self.protection.settings
        return ring_width(
            self.asked,
            self.weights[0],
            start=float(self.learner.start(self.topology.peers[:1]).abs().max()),
            clip=settings.clip,
            noise=settings.noise,
            rounds=self.experiment.horizon,
            masses=self.masses,
        )

    @property
    def pinned(self) -> Experiment:
        """The experiment with the calibrated noise written out, so that it need not be calibrated again."""
        settings, wanted = self.protection.settings, self.experiment.privacy
        traits = self.protection.mode.traits
        if not traits.hides:
            return self.experiment
        if self.asked.algorithm.additive:  # masks of totals are uniform, and their noise has units of its own
            given = msgspec.structs.replace(wanted, noise=settings.noise)
        else:
            mask = settings.mask if traits.masks else wanted.mask
            given = msgspec.structs.replace(wanted, clip=settings.clip, noise=settings.noise, mask=mask)
        return msgspec.structs.replace(self.experiment, privacy=given)

    @property
    def source(self) -> Source | None:
        """Source of the noise that hides single samples; ``None`` if there is none."""
        learner = self.learner.bare
        return learner.source if isinstance(learner, ProtectsSamples) else None

    def drawing(self, source: Source, *, unaccounted: bool = False, live: bool = False) -> Plan:
        """Return the plan of a run that draws its secrets from a source, and may stay outside of the account.

        A ``live`` peer hides its samples from the others. What a total singles out has as many samples as the policy
        beside the data of each peer wants.
        """
        protection = replace(self.protection, secret=source.secret)
        outside = self.unaccounted or unaccounted
        peers = self.topology.peers if live else ()
        learner = self.learner.drawing(source)
        if isinstance(learner, ChecksCells):
            least = max((stated_least(self.experiment, peer) for peer in self.federation.peers), default=1)
            learner = learner.checking_cells(source, peers=peers, least=least)
        made = replace(self, learner=learner, protection=protection, unaccounted=outside)
        return _admitted_again(made)

    def continuing(self, *, secret: bool) -> Plan:
        """Return the plan of a run whose earlier rounds drew from a secret source, or from one that was none."""
        protection = replace(self.protection, secret=self.protection.secret and secret)
        return _admitted_again(replace(self, protection=protection))

    @property
    def claims(self) -> bool:
        """True if a guarantee, of peers or of samples, rests on draws of the run that nobody may know."""
        return self.protection.claimed or hides_samples(self.learner, self.asked.algorithm)

    @property
    def recomputable(self) -> bool:
        """True if there would be a guarantee, but whoever knows the seed can compute the draws that it rests on."""
        return self.claims and not self.protection.secret

    def examples(
        self,
        rounds: int,
        *,
        played: Mapping[str, Mapping[SampledSteps, int]] | None = None,
        delta: float | None = None,
    ) -> dict[str, Any] | None:
        """Return the guarantee for single samples of the peer that is worst off; ``None`` if there is none.

        Noise that can be computed again guarantees nothing.

        Parameters
        ----------
        rounds
            Number of rounds, which each participant plays once.
        played
            Rounds that were really played, instead: for each peer the number of rounds by their sampling, including
            repeated rounds and earlier runs.
        delta
            Another delta than ``privacy.delta``.

        Returns
        -------
        dict or None
            The guarantee with ``delta`` and ``clip``.
        """
        learner = self.learner.bare
        if not isinstance(learner, ProtectsSamples) or not hides_samples(learner, self.asked.algorithm):
            return None
        if self.recomputable:
            return None
        delta = self.experiment.privacy.delta if delta is None else delta
        guarantee = worst_off((self._sampled(learner, rounds) if played is None else played).values(), delta=delta)
        return guarantee | {"delta": delta, "clip": learner.clip}

    def _sampled(self, learner: ProtectsSamples, rounds: int) -> dict[str, dict[SampledSteps, int]]:
        """Return the sampling of the first rounds by peer, as if no peer were absent."""
        average = average_of(self.algorithm)
        assert average is not None  # noqa: S101 (whoever declares private examples averages)
        peers = self.federation.peers
        active = [average.participants(peers, round=round).tolist() for round in range(rounds)]
        times = {peer: sum(here) for peer, *here in zip(peers, *active, strict=True)}
        return {peer: {SampledSteps(learner.noise, *learner.cost(peer)): times[peer]} for peer in peers}

    @property
    def kept_states(self) -> int:
        """Further numbers for each parameter that the algorithm and the optimiser keep."""
        return STATES.get(self.experiment.learning.algorithm, 0) + self.optimiser_states

    @property
    def optimiser_states(self) -> int:
        """Further numbers for each parameter that the optimiser keeps."""
        recipe: Recipe | None = getattr(self.learner.bare, "recipe", None)
        return 0 if recipe is None else recipe.states

    @property
    def frozen(self) -> DividedModel | None:
        """The model, if files of its models leave frozen tensors out; ``None`` if they are whole.

        p2pfl builds its own models from their file alone, so those are whole.
        """
        learner = self.learner.bare
        divided: DividedModel | None = getattr(learner, "divided", None)
        if divided is None or self.experiment.model.name in MODELS:
            return None
        return divided if divided.constants else None

    def saved(self, row: torch.Tensor, *, peer: str) -> dict[str, torch.Tensor]:
        """Return the tensors of a model ``[P]`` that the file of a peer contains."""
        learner = self.learner.bare
        if isinstance(learner, KeepsModels):
            return learner.kept(row, peer=peer)
        return self._public(row)

    def _public(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.learner.state_dict(row) if self.frozen is None else self.frozen.trained_tensors(row)

    def owned(self, row: torch.Tensor, *, peer: str) -> dict[str, torch.Tensor]:
        """Return the tensors of a model ``[P]`` with the effects of a peer's own; nothing if it has none."""
        learner = self.learner.bare
        return learner.owned(row, peer=peer) if isinstance(learner, KeepsOwn) else {}

    @property
    def facts(self) -> dict[str, str]:
        """Facts on which neighbours must agree, each as text: all that changes the mathematics, nothing else."""
        usual = _usual_settings()  # left out, because announcements are short
        settings = {
            key: str(value)
            for key, value in flat(self.experiment).items()
            if not key.startswith(
                ("transport.", "trust.", "telemetry.", "simulation.", "topology.", "attack.", "evaluation.")
            )
            and key not in SAME
            and usual.get(key) != value
            and (key, value) != ("learning.dtype", "mixed")  # parameters are those of float32
        }
        options = self.experiment.data.options
        model = {key: value for key, value in self.experiment.model.options.items() if key != "path"}
        settings |= {"model.options": str(model)} if model else {}
        start = self._public(self.learner.start(self.topology.peers[:1])[0])
        owner = self.learner.bare if self.frozen is None else self.frozen
        base = owner.base if isinstance(owner, SharesBase) else ""  # of what is left out
        if not learner_traits(self.learner).private:  # whose sizes nobody else knows
            settings["model"] = _digest(repr(self.learner.layout).encode())
            settings["start"] = _digest(b"".join([*map(_raw, start.values()), base.encode()]))
        pace = self.experiment.transport.pace
        if pace is not None and (pace.every or pace.hours):  # those of all peers
            settings["pace"] = f"{pace.every} {pace.hours}"
        if (order := order_of(self.experiment)) is not None:
            settings["start"] = order.change.start
        elif (former := FormerModels.of(self.experiment)) is not None:
            settings["start"] = former.identity(self.federation.peers)
        return settings | {
            "topology": digest_edges([self.topology.at(phase).edges for phase in range(self.topology.period)]),
            "weights": _digest(b"".join(weights.rows.data.tobytes() for weights in self.weights)),
            "features": _features(self.federation),
            "keys": "epochs-v1",
            "masks": VERSION,
            "sums": "none" if self.protection.sums is None else f"{secagg.VERSION} {self.ring}",
            "mask_graph": _digest(repr(self.protection.graph.edges).encode()),
            "noises": str(self.protection.settings),
            "data.options": _options({key: value for key, value in options.items() if key != "path"}),
            "samples": str(getattr(average_of(self.algorithm), "mean_samples", None)),
            "steps": str(self.gossip.steps),
            "classes": str(self.federation.dataset.classes),
        }


def digest_edges(phases: Sequence[object]) -> str:
    """Return the digest by which peers compare their graphs, of the edges in each phase of a period."""
    return _digest(repr([*phases]).encode())


def _features(federation: Federation) -> str:
    """Return the shape of features and targets as text, and whether features are whole numbers."""
    dataset = federation.dataset
    shape = tuple(dataset.targets.shape[1:])
    whole = "" if dataset.features.is_floating_point() else " whole numbers"
    return f"{dataset.shape}{whole}" + (f", targets {shape}" if shape else "")


def hides_samples(learner: Learner, traits: Traits) -> bool:
    """Return whether training by an algorithm of these traits hides single samples, at a cost that is counted."""
    bare = learner.bare
    return isinstance(bare, ProtectsSamples) and bare.noise > 0 and traits.private_examples


def _admitted_again(plan: Plan) -> Plan:
    """Return a plan, unless its noise follows from a seed and an account of its data cannot count that."""
    if not plan.recomputable:
        return plan
    accounted = admitted(
        plan.experiment,
        plan.federation.peers,
        of_peers=False,
        of_samples=False,
        recomputable=True,
        unaccounted=plan.unaccounted,
    )
    return replace(plan, accounted=accounted)


def size_and_norm(learner: Learner) -> tuple[int, float]:
    """Return the number of a learner's initial parameters and their L2 norm, the same for all peers.

    Tensors that stay with each peer do not count.
    """
    start = learner.start(("",))[:, ~learner.layout.mask(learner.layout.local)]
    return start.shape[1], float(start.double().norm())


def _raw(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor as they lie in memory."""
    return bytes(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


def _options(options: Mapping[str, Any]) -> str:
    """Return the options of the data as text; those that name columns as a digest, so that the names stay home."""
    return (
        f"columns {_digest(json.dumps(options, sort_keys=True, default=str).encode())}"
        if "columns" in options
        else str(options)
    )


@cache  # each peer of a process compares with them
def _usual_settings() -> dict[str, Any]:
    """Return the defaults of all keys."""
    return flat(Experiment())


def _digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
