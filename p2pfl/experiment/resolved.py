"""What an experiment resolves to: the parts that peers and simulations are made of."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, Compressed, Gossip, Stop, average_of, shared_of
from p2pfl.compression import Codec, Zstd
from p2pfl.data import Federation
from p2pfl.errors import ExperimentError
from p2pfl.experiment.catalogue import declared
from p2pfl.experiment.file.reading import flat
from p2pfl.experiment.protection import Protection
from p2pfl.experiment.schema import Experiment
from p2pfl.experiment.sums import ring_width
from p2pfl.identity import Source
from p2pfl.learning import Learner
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.neighbourhood import Neighbourhood
from p2pfl.privacy.accounting.examples import Sampling, worst_off
from p2pfl.privacy.mask_size import residual
from p2pfl.privacy.stream import VERSION
from p2pfl.robust import Attack, Rule, attacked, robust
from p2pfl.robust.net import Told, Work, here
from p2pfl.rows import Rows
from p2pfl.secagg import protocol as secagg

SAME = (
    "learning.device",
    "learning.precision",
    "data.options",
    "model.pretrained",
    "gossip.weights",
    "topology.file",
    "privacy.budget",
    "privacy.partners",
)
"""Keys in which peers may differ: where it runs, how few partners are enough for it, and paths, whose content is
compared instead."""


@dataclass(frozen=True)
class Plan:
    """An experiment, resolved.

    Attributes
    ----------
    experiment
        Its settings.
    topology, weights
        Who hears whom, and one matrix of mixing weights for each exchange of the period.
    federation
        The data of the peers at hand.
    learner, algorithm, stop
        What the peers at hand do.
    protection
        What hides their rows.
    gossip
        The exchanges of a round.
    diameter
        Exchanges in which a word of anybody reaches everybody.
    codec
        What makes rows small; ``None`` where they travel whole.
    rule, attack
        What takes the place of averages; who lies. ``None`` where nothing and nobody does.
    masses
        The smallest and the largest by which rows count in sums.
    healing
        The same graph over any of its peers; ``None`` where it stays as it is.
    sized
        Number and L2 norm of the initial parameters that the default mask was sized from, see :func:`size_and_norm`;
        ``None`` where it does not depend on them.

    Raises
    ------
    ExperimentError
        The mask was sized for another model than the learner's.
    """

    experiment: Experiment
    topology: graphs.Topology | graphs.Schedule
    weights: tuple[graphs.Weights, ...]
    federation: Federation
    learner: Learner
    algorithm: Algorithm
    protection: Protection
    gossip: Gossip
    diameter: int
    stop: Stop | None
    codec: Codec | None = None
    masses: tuple[float, float] = (1.0, 1.0)
    rule: Rule | None = None
    attack: Attack | None = None
    healing: graphs.Healing | None = None
    sized: tuple[int, float] | None = None

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

    def contested(
        self,
        hidden: Neighbourhood,
        *,
        round: int,
        told: Told,
        elsewhere: Callable[[Work], Awaitable[Rows]] = here,
    ) -> Neighbourhood:
        """A round's neighbourhood in which liars lie and rows are mixed by the rule.

        Parameters
        ----------
        hidden
            Carries the rows, hidden as they are to be.
        round
            Of what liars draw.
        told
            Is told how far rows moved.
        elsewhere
            Where the rule is computed.
        """
        lied = attacked(hidden, self.attack, round=round, told=told)
        return robust(lied, self.rule, told=told, elsewhere=elsewhere)

    @property
    def honest(self) -> tuple[str, ...]:
        """All peers but liars."""
        liars = frozenset[str]() if self.attack is None else self.attack.liars
        return tuple(peer for peer in self.topology.peers if peer not in liars)

    @property
    def played(self) -> Algorithm:
        """The algorithm, over compressed exchanges where those are asked for."""
        if self.codec is None:
            return self.algorithm
        wanted = self.experiment.compression
        even = all(weights.keeps_consensus for weights in self.weights)
        return Compressed(self.algorithm, self.codec, wanted.gamma, wanted.refresh, even=even)

    @property
    def zstd(self) -> Zstd | None:
        """What squeezes the bytes of a row; ``None`` where nothing does."""
        return Zstd() if self.experiment.compression.zstd else None

    @property
    def asynchronous(self) -> bool:
        """Whether peers are in cycles of their own and wait for nobody."""
        return declared(self.algorithm).asynchronous

    @property
    def shared(self) -> int:
        """Return how many numbers of a row leave a peer."""
        return shared_of(self.algorithm, self.learner.layout.size)

    @property
    def masked(self) -> bool:
        """Whether pairwise masks are on."""
        return self.protection.settings.mask > 0

    @cached_property
    def residual(self) -> float:
        """Deviation that the masks of a peer that dies leave in a parameter of a survivor."""
        steps = self.gossip.steps
        return self.protection.settings.mask * residual(self.protection.graph, self.weights, steps=steps)

    @cached_property
    def ring(self) -> int:
        """Bits of the ring in which rows are added up where peers are given sums alone."""
        settings = self.protection.settings
        return ring_width(
            self.experiment,
            self.weights,
            start=float(self.learner.start(self.topology.peers[:1]).abs().max()),
            clip=settings.clip,
            noise=settings.noise,
            rounds=self.experiment.rounds,
            masses=self.masses,
        )

    @property
    def pinned(self) -> Experiment:
        """The experiment with its noises given, as they were calibrated: nobody need look for them again."""
        settings, wanted = self.protection.settings, self.experiment.privacy
        traits = self.protection.mode.traits
        if not traits.hides:
            return self.experiment
        mask = settings.mask if traits.masks else wanted.mask
        given = msgspec.structs.replace(wanted, clip=settings.clip, noise=settings.noise, mask=mask)
        return msgspec.structs.replace(self.experiment, privacy=given)

    @property
    def source(self) -> Source | None:
        """Where what hides single samples comes from; ``None`` where nothing does."""
        learner = self.learner.bare
        return learner.source if isinstance(learner, ExamplePrivateLearner) else None

    def drawing(self, source: Source) -> Plan:
        """The same, with what hides single samples from elsewhere than the operating system's secrets."""
        return replace(self, learner=self.learner.drawing(source))

    def examples(
        self, rounds: int, *, played: Mapping[str, Mapping[Sampling, int]] | None = None
    ) -> dict[str, Any] | None:
        """Return what rounds promise the samples of the peer that is worst off; ``None`` where nothing is promised.

        Parameters
        ----------
        rounds
            The first so many, each played once by everybody who is drawn for it.
        played
            What was really played instead: by peer, how many rounds had which steps, rounds that were played again
            and earlier runs included.
        """
        learner = self.learner.bare
        if not isinstance(learner, ExamplePrivateLearner) or not declared(self.algorithm).private_examples:
            return None
        delta = self.experiment.privacy.delta
        found = worst_off((self._sampled(learner, rounds) if played is None else played).values(), delta=delta)
        return found | {"delta": delta, "clip": learner.clip}

    def _sampled(self, learner: ExamplePrivateLearner, rounds: int) -> dict[str, dict[Sampling, int]]:
        """By peer, the steps of the first rounds; that a peer may be absent is not counted."""
        average = average_of(self.algorithm)
        assert average is not None  # noqa: S101 (whoever declares private examples averages)
        peers = self.federation.peers
        active = [average.participants(peers, round=round).tolist() for round in range(rounds)]
        times = {peer: sum(here) for peer, *here in zip(peers, *active, strict=True)}
        return {peer: {Sampling(learner.noise, *learner.cost(peer)): times[peer]} for peer in peers}

    @property
    def facts(self) -> dict[str, str]:
        """What neighbours must agree on, each as text: all that changes the mathematics, nothing else."""
        usual = flat(Experiment())  # left out, for hellos are short
        settings = {
            key: str(value)
            for key, value in flat(self.experiment).items()
            if not key.startswith(("transport.", "trust.", "simulation.", "topology.", "attack."))
            and key not in SAME
            and usual.get(key) != value
        }
        options = self.experiment.data.options
        edges = repr([self.topology.at(phase).edges for phase in range(self.topology.period)])
        settings |= {} if self.healing is None else {"topology.heal": "True"}
        start = self.learner.state_dict(self.learner.start(self.topology.peers[:1])[0])  # what is frozen, too
        return settings | {
            "topology": _digest(edges.encode()),
            "weights": _digest(b"".join(weights.matrix.data.tobytes() for weights in self.weights)),
            "model": _digest(repr(self.learner.layout).encode()),
            "start": _digest(b"".join(_raw(tensor) for tensor in start.values())),
            "features": str(self.federation.dataset.shape),
            "keys": "epochs-v1",
            "masks": VERSION,
            "sums": "none" if self.protection.sums is None else f"{secagg.VERSION} {self.ring}",
            "mask_graph": _digest(repr(self.protection.graph.edges).encode()),
            "noises": str(self.protection.settings),
            "data.options": str({key: value for key, value in options.items() if key != "path"}),
            "samples": str(getattr(average_of(self.algorithm), "mean_samples", None)),
            "steps": str(self.gossip.steps),
            "classes": str(self.federation.dataset.classes),
        }


def size_and_norm(learner: Learner) -> tuple[int, float]:
    """Return the number of a learner's initial parameters and their L2 norm, the same for all peers."""
    start = learner.start(("",))
    return start.shape[1], float(start.double().norm())


def _raw(tensor: torch.Tensor) -> bytes:
    """A tensor's numbers as they lie in memory."""
    return bytes(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


def _digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
