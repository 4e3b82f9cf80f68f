"""What an experiment resolves to: the parts that peers and simulations are made of."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, Averaging, Compressed, FedAvg, Gossip, Stop
from p2pfl.compression import Codec, Zstd
from p2pfl.data import Federation, federate
from p2pfl.errors import ExperimentError
from p2pfl.experiment.agreement import check_agreeing
from p2pfl.experiment.algorithms import known
from p2pfl.experiment.asynchrony import asynchronous, check_waiting
from p2pfl.experiment.compression import codec
from p2pfl.experiment.contest import attack, misled, rule
from p2pfl.experiment.learners import algorithm, learner
from p2pfl.experiment.mixing import mixing
from p2pfl.experiment.protection import Protection, protection
from p2pfl.experiment.reading import flat
from p2pfl.experiment.schema import Experiment
from p2pfl.experiment.sums import check_live, masses, ring_width, sized, summed
from p2pfl.identity import Source
from p2pfl.learning import Learner
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.neighbourhood import Neighbourhood
from p2pfl.privacy import secagg
from p2pfl.privacy.examples import worst
from p2pfl.privacy.stream import VERSION
from p2pfl.robust import Attack, Rule, attacked, robust
from p2pfl.robust.net import Told, Work, here
from p2pfl.rows import Rows

SAME = (
    "learning.device",
    "learning.precision",
    "data.options",
    "model.pretrained",
    "gossip.weights",
    "topology.file",
    "privacy.budget",
)
"""Keys in which peers may differ: where it runs, and paths, whose content is compared instead."""


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
        return Compressed(self.algorithm, self.codec, wanted.gamma, wanted.refresh)

    @property
    def zstd(self) -> Zstd | None:
        """What squeezes the bytes of a row; ``None`` where nothing does."""
        return Zstd() if self.experiment.compression.zstd else None

    @property
    def asynchronous(self) -> bool:
        """Whether peers are in cycles of their own and wait for nobody."""
        return asynchronous(self.algorithm)

    @property
    def masked(self) -> bool:
        """Whether pairwise masks are on."""
        return self.protection.settings.mask > 0

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
        if wanted.mode == "none":
            return self.experiment
        mask = settings.mask if wanted.mode == "pairwise" else wanted.mask
        given = msgspec.structs.replace(wanted, clip=settings.clip, noise=settings.noise, mask=mask)
        return msgspec.structs.replace(self.experiment, privacy=given)

    @property
    def source(self) -> Source | None:
        """Where what hides single samples comes from; ``None`` where nothing does."""
        return self.learner.source if isinstance(self.learner, ExamplePrivateLearner) else None

    def drawing(self, source: Source) -> Plan:
        """The same, with what hides single samples from elsewhere than the operating system's secrets."""
        if not isinstance(self.learner, ExamplePrivateLearner):
            return self
        return replace(self, learner=self.learner.drawing(source))

    def examples(self, rounds: int) -> dict[str, Any] | None:
        """What the first rounds promise the samples of the peer that is worst off; ``None`` where nothing does.

        That a peer may have been absent is not counted.
        """
        learner = self.learner
        if not isinstance(learner, ExamplePrivateLearner) or not isinstance(self.algorithm, FedAvg):
            return None
        peers, delta = self.federation.peers, self.experiment.privacy.delta
        active = [self.algorithm.average.participants(peers, round=round).tolist() for round in range(rounds)]
        times = {peer: sum(here) for peer, *here in zip(peers, *active, strict=True)}
        costs = ((rate, steps * times[peer]) for peer, (rate, steps) in ((each, learner.cost(each)) for each in peers))
        found, rate, steps = worst(costs, noise=learner.noise, delta=delta)
        return {
            "epsilon": found,
            "delta": delta,
            "sampling_rate": rate,
            "steps": steps,
            "noise_multiplier": learner.noise,
            "clip": learner.clip,
        }

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
        start = self.learner.state_dict(self.learner.start(self.topology.peers[:1])[0])  # what is frozen, too
        return settings | {
            "topology": _digest(edges.encode()),
            "weights": _digest(b"".join(weights.matrix.data.tobytes() for weights in self.weights)),
            "model": _digest(repr(self.learner.layout).encode()),
            "start": _digest(
                b"".join(
                    tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in start.values()
                )
            ),
            "features": str(self.federation.dataset.shape),
            "masks": VERSION,
            "sums": "none" if self.protection.sums is None else f"{secagg.VERSION} {self.ring}",
            "mask_graph": _digest(repr(self.protection.graph.edges).encode()),
            "noises": str(self.protection.settings),
            "data.options": str({key: value for key, value in options.items() if key != "path"}),
            "samples": str(getattr(getattr(self.algorithm, "average", None), "mean_samples", None)),
            "steps": str(self.gossip.steps),
            "classes": str(self.federation.dataset.classes),
        }


def plan(experiment: Experiment, *, only: Sequence[str] | None = None) -> Plan:
    """Resolve an experiment.

    Parameters
    ----------
    experiment
        Validated settings.
    only
        The peers at hand; all by default.

    Raises
    ------
    InputError
        If a graph is disconnected, a split impossible, a model does not fit, a name unknown.
    """
    gossip, stepwise = experiment.gossip, known(experiment.learning.algorithm).everybody
    loaded = _loaded(experiment)
    names = graphs.ring(experiment.topology.peers).peers if loaded is None else loaded.peers  # as all kinds call them
    if only is not None and (unknown := sorted(set(only) - set(names))):
        some = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ExperimentError(f'expected a peer of "{experiment.name}", got "{unknown[0]}": its peers are {some}')
    private = ":" in experiment.data.name or experiment.data.name == "synthetic"  # peers own their data
    federation = _federation(experiment, names, only)  # before the graph: too many peers are noticed sooner
    lies = attack(experiment, names, live=only is not None)
    federation = misled(federation, lies)
    mean_samples, everybody = None, federation
    if not private:  # everybody can tell all sizes
        everybody = federation if only is None else _federation(experiment, names, None)
        mean_samples = float(everybody.samples(names).double().mean())
    topology = _topology(experiment) if loaded is None else loaded
    graphs.check_connected(topology)
    weights = mixing(experiment, topology)
    bears = rule(experiment, topology)
    trained = learner(experiment, federation)
    _check_hiding(experiment)
    check_agreeing(experiment)
    diameter = _flood(topology)
    averaging = partial(
        _algorithm, experiment, topology, weights, trained, mean_samples=mean_samples, diameter=diameter
    )
    heavy = gossip.acceleration == "heavy_ball"
    sums, weighed = None, (1.0, 1.0)
    if experiment.privacy.mode == "secagg":
        steps, rho = _steps(experiment, topology, weights)  # no masks stay in the rows
        added, counted = averaging(gossip=Gossip(steps, rho, heavy_ball=heavy)), trained
        if only is not None:
            check_live(experiment, added)
            counted = sized({} if private else dict(zip(names, everybody.samples(names).tolist(), strict=True)))
        sums = summed(experiment, weights, added, counted, exchanges=steps)
        weighed = masses(added, counted, names)
    hidden = protection(
        experiment.privacy,
        topology,
        weights,
        size=trained.layout.size,
        layers=trained.layout.sizes,
        rounds=experiment.rounds,
        seed=experiment.seed,
        steps=1 if stepwise and gossip.steps is None else gossip.steps,
        sums=sums,
    )
    rounds = Gossip(*_steps(experiment, topology, weights, hidden), heavy_ball=heavy)
    chosen = averaging(gossip=rounds)
    check_waiting(experiment, asynchronous=asynchronous(chosen))
    return Plan(
        experiment,
        topology,
        weights,
        federation,
        trained,
        chosen,
        hidden,
        rounds,
        diameter,
        None if experiment.learning.stop is None else Stop(experiment.learning.stop, diameter),
        codec(experiment, length=trained.layout.size, dtype=trained.dtype, period=topology.period),
        masses=weighed,
        rule=bears,
        attack=lies,
    )


def data_folder() -> Path | None:
    """Where the user keeps his data sets: the environment's ``P2PFL_DATA``."""
    folder = os.environ.get("P2PFL_DATA")
    return Path(folder) if folder else None


def _loaded(experiment: Experiment) -> graphs.Topology | graphs.Schedule | None:
    """The graph of a file, or of several in turn, one for each exchange."""
    settings = experiment.topology
    if settings.file is None:
        return None
    if isinstance(settings.file, str):
        return graphs.load(settings.file)
    return graphs.Schedule(tuple(graphs.load(file) for file in settings.file))


def _topology(experiment: Experiment) -> graphs.Topology | graphs.Schedule:
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


def _federation(experiment: Experiment, peers: tuple[str, ...], only: Sequence[str] | None) -> Federation:
    data = experiment.data
    return federate(
        data.name,
        peers=peers,
        only=only,
        split=data.split,
        seed=experiment.seed,
        test=data.test,
        validation=data.validation,
        alpha=data.alpha,
        shards_per_peer=data.shards,
        exponent=data.exponent,
        column=data.column,
        data_dir=data_folder(),
        options=data.options,
    )


def _steps(
    experiment: Experiment,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    hidden: Protection | None = None,
) -> tuple[int, float | None]:
    """Exchanges a round, and rho where they are accelerated."""
    gossip = experiment.gossip
    fewest = {"chebyshev": graphs.chebyshev_steps, "heavy_ball": graphs.heavy_ball_steps}.get(gossip.acceleration)
    accelerated = fewest is not None
    if accelerated and (topology.period > 1 or topology.at(0).directed):
        raise ExperimentError(
            f"gossip.acceleration: expected a constant, undirected topology for {gossip.acceleration}, got a schedule "
            'or a directed one: use acceleration = "none"'
        )
    if accelerated and not weights[0].symmetric:
        raise ExperimentError(
            f"gossip.acceleration: expected symmetric weights for {gossip.acceleration}, got others: "
            'use acceleration = "none", or gossip.weights = "metropolis"'
        )
    rho = graphs.contraction(weights[:1]) if accelerated else None
    share = _taking_part(experiment) * (1.0 if hidden is None else hidden.settings.participation)
    if gossip.steps is not None:
        if fewest and rho is not None and (part := _taking_part(experiment)) < 1:
            tolerance = _near_one(share=part, peers=len(topology.peers))
            _check_masses(experiment, fewest=fewest(rho, tolerance=tolerance), share=part)
        return gossip.steps, rho
    if known(experiment.learning.algorithm).everybody:
        return 1, rho
    # What is left of the masks is divided by the mean mass, which is the share of peers that take part.
    tolerance = gossip.tolerance / max(1.0, 0.0 if hidden is None else hidden.scale / share)
    if fewest and rho is not None:
        return fewest(rho, tolerance=tolerance), rho
    return graphs.steps(weights, tolerance=tolerance), None


def _taking_part(experiment: Experiment) -> float:
    """Share of the peers that take part in a round, on average."""
    learning = experiment.learning
    if learning.drop_stragglers and learning.stragglers == 1:
        raise ExperimentError(
            "learning.stragglers: expected less than 1 with learning.drop_stragglers, got 1, so that nobody ever takes "
            "part: lower it, or keep them"
        )
    return learning.fraction * (1 - learning.stragglers if learning.drop_stragglers else 1.0)


def _near_one(*, share: float, peers: int) -> float:
    """What disagreement leaves no mass near zero.

    Masses of 1 at a share C of N peers lie within C / 2 of their mean once their disagreement, of norm
    sqrt(C N), has shrunk to that.
    """
    return math.sqrt(share / peers) / 2


def _check_masses(experiment: Experiment, *, fewest: int, share: float) -> None:
    """Accelerated weights may be negative: too few steps leave masses near zero, and rows are divided by them."""
    gossip = experiment.gossip
    if gossip.steps is not None and gossip.steps < fewest:
        raise ExperimentError(
            f"gossip.steps: expected at least {fewest} with {gossip.acceleration} where a share of {share:g} of the "
            f"peers take part, got {gossip.steps}: raise it, leave it out, or set gossip.acceleration to none"
        )


def _algorithm(
    experiment: Experiment,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    learner: Learner,
    *,
    mean_samples: float | None,
    diameter: int,
    gossip: Gossip,
) -> Algorithm:
    """What an algorithm may ask for by the names of its parameters."""
    learning, peers = experiment.learning, topology.peers
    average = Averaging(
        peers,
        experiment.seed,
        gossip,
        weighted=learning.weighted,
        mean_samples=mean_samples,
        diameter=diameter,
        fraction=learning.fraction,
        dropped=learning.stragglers if learning.drop_stragglers else 0.0,
    )
    given = {
        "average": average,
        "gossip": gossip,
        "topology": topology,
        "weights": weights,
        "layout": learner.layout,
        "seed": experiment.seed,
        "rounds": experiment.rounds,
    }
    return algorithm(learning.algorithm, options=learning.algorithm_options, given=given)


def _check_hiding(experiment: Experiment) -> None:
    name = experiment.learning.algorithm
    why, mode = known(name).bare, experiment.privacy.mode
    if why and mode != "none":
        raise ExperimentError(
            f'privacy.mode: expected "none" with {name}, which {why}, got "{mode}": change the mode or the algorithm'
        )


def _flood(topology: graphs.Topology | graphs.Schedule) -> int:
    """Exchanges after which everybody has heard from everybody, from whichever phase they begin."""
    if isinstance(topology, graphs.Topology):
        return graphs.diameter(topology)
    hears = [topology.at(phase).adjacency.astype(np.float32) for phase in range(topology.period)]
    longest = 0
    for first in range(topology.period):
        told = np.eye(len(topology.peers), dtype=bool)  # [N, N]: whom each has heard of
        steps = 0
        while not told.all():
            told |= hears[(first + steps) % topology.period] @ told.astype(np.float32) > 0
            steps += 1
        longest = max(longest, steps)
    return longest


def _raw(tensor: torch.Tensor) -> bytes:
    """A tensor's numbers as they lie in memory."""
    return bytes(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


def _digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
