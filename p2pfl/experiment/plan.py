"""What an experiment resolves to: the parts that peers and simulations are made of."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, Averaging, FedAvg, Gossip, Stop
from p2pfl.data import Federation, federate
from p2pfl.errors import ExperimentError
from p2pfl.experiment.algorithms import known
from p2pfl.experiment.learners import algorithm, learner
from p2pfl.experiment.protection import Protection, protection
from p2pfl.experiment.reading import flat
from p2pfl.experiment.schema import Experiment
from p2pfl.identity import Source
from p2pfl.learning import Learner
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.privacy.examples import worst
from p2pfl.privacy.stream import VERSION

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
    steps
        Exchanges a round.
    """

    experiment: Experiment
    topology: graphs.Topology | graphs.Schedule
    weights: tuple[graphs.Weights, ...]
    federation: Federation
    learner: Learner
    algorithm: Algorithm
    protection: Protection
    steps: int
    stop: Stop | None

    @property
    def masked(self) -> bool:
        """Whether pairwise masks are on."""
        return self.protection.settings.mask > 0

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
        settings = {
            key: str(value)
            for key, value in flat(self.experiment).items()
            if not key.startswith(("transport.", "trust.", "simulation.", "topology.")) and key not in SAME
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
            "mask_graph": _digest(repr(self.protection.graph.edges).encode()),
            "noises": str(self.protection.settings),
            "data.options": str({key: value for key, value in options.items() if key != "path"}),
            "samples": str(getattr(getattr(self.algorithm, "average", None), "mean_samples", None)),
            "steps": str(self.steps),
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
    mean_samples = None
    if not private:  # everybody can tell all sizes
        everybody = federation if only is None else _federation(experiment, names, None)
        mean_samples = float(everybody.samples(names).double().mean())
    topology = _topology(experiment) if loaded is None else loaded
    graphs.check_connected(topology)
    weights = tuple(_weights(experiment, topology.at(phase)) for phase in range(topology.period))
    trained = learner(experiment, federation)
    _check_hiding(experiment)
    if experiment.data.scale:
        check_scale(experiment)
    hidden = protection(
        experiment.privacy,
        topology,
        weights,
        size=trained.layout.size,
        rounds=experiment.rounds,
        seed=experiment.seed,
        steps=1 if stepwise and gossip.steps is None else gossip.steps,
    )
    steps, rho = _steps(experiment, topology, weights, hidden)
    return Plan(
        experiment,
        topology,
        weights,
        federation,
        trained,
        _algorithm(experiment, topology, weights, trained, mean_samples=mean_samples, gossip=Gossip(steps, rho)),
        hidden,
        steps,
        None if experiment.learning.stop is None else Stop(experiment.learning.stop, flood(topology)),
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
    )


def _weights(experiment: Experiment, topology: graphs.Topology) -> graphs.Weights:
    kind = experiment.gossip.weights
    if kind == "metropolis":
        return graphs.metropolis(topology)
    if kind == "max_degree":
        return graphs.max_degree(topology)
    try:
        matrix = np.load(kind) if kind.endswith(".npy") else np.loadtxt(kind, ndmin=2)
    except (OSError, ValueError) as error:
        raise ExperimentError(
            f'gossip.weights: expected "metropolis", "max_degree" or a file with a matrix, got "{kind}": {error}'
        ) from None
    return graphs.given(topology, matrix)


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
    hidden: Protection,
) -> tuple[int, float | None]:
    """Exchanges a round, and rho where they are accelerated."""
    gossip = experiment.gossip
    accelerated = gossip.acceleration == "chebyshev"
    if accelerated and (topology.period > 1 or topology.at(0).directed):
        raise ExperimentError(
            "gossip.acceleration: expected a constant, undirected topology for chebyshev, got a schedule or a "
            'directed one: use acceleration = "none"'
        )
    if accelerated and abs(weights[0].matrix - weights[0].matrix.T).max() > 1e-12:
        raise ExperimentError(
            "gossip.acceleration: expected symmetric weights for chebyshev, got others: "
            'use acceleration = "none", or gossip.weights = "metropolis"'
        )
    rho = graphs.contraction(weights[:1]) if accelerated else None
    share = experiment.learning.fraction * hidden.settings.participation
    if gossip.steps is not None:
        if rho is not None and experiment.learning.fraction < 1:
            _check_masses(gossip.steps, rho, share=experiment.learning.fraction, peers=len(topology.peers))
        return gossip.steps, rho
    if known(experiment.learning.algorithm).everybody:
        return 1, rho
    # What is left of the masks is divided by the mean mass, which is the share of peers that take part.
    tolerance = gossip.tolerance / max(1.0, hidden.scale / share)
    if rho is not None:
        return graphs.chebyshev_steps(rho, tolerance=tolerance), rho
    return graphs.steps(weights, tolerance=tolerance), None


def _check_masses(steps: int, rho: float, *, share: float, peers: int) -> None:
    """Chebyshev's weights may be negative: too few steps leave masses near zero, and rows are divided by them.

    Masses of 1 at a share C of N peers lie within C / 2 of their mean once their disagreement, of norm
    sqrt(C N), has shrunk to that.
    """
    fewest = graphs.chebyshev_steps(rho, tolerance=math.sqrt(share / peers) / 2)
    if steps < fewest:
        raise ExperimentError(
            f"gossip.steps: expected at least {fewest} with chebyshev where learning.fraction = {share:g} of the peers "
            f"take part, got {steps}: raise it, leave it out, or set gossip.acceleration to none"
        )


def _algorithm(
    experiment: Experiment,
    topology: graphs.Topology | graphs.Schedule,
    weights: tuple[graphs.Weights, ...],
    learner: Learner,
    *,
    mean_samples: float | None,
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
        diameter=flood(topology),
        fraction=learning.fraction,
    )
    given = {
        "average": average,
        "gossip": gossip,
        "topology": topology,
        "weights": weights,
        "layout": learner.layout,
        "seed": experiment.seed,
    }
    return algorithm(learning.algorithm, options=learning.algorithm_options, given=given)


def _check_hiding(experiment: Experiment) -> None:
    name = experiment.learning.algorithm
    why, mode = known(name).bare, experiment.privacy.mode
    if why and mode != "none":
        raise ExperimentError(
            f'privacy.mode: expected "none" with {name}, which {why}, got "{mode}": change the mode or the algorithm'
        )


def check_scale(experiment: Experiment) -> None:
    """Exact statistics are covered by no guarantee, and by private noise alone they are not hidden."""
    privacy = experiment.privacy
    if claims(experiment) or privacy.mode == "independent":
        key = "learning.example_noise" if experiment.learning.example_noise else f'privacy.mode = "{privacy.mode}"'
        raise ExperimentError(
            "data.scale: expected no private noise, whose guarantee does not cover the exact statistics of the "
            f"features, got {key} with it: scale the features by known bounds instead, or leave the noise out"
        )


def claims(experiment: Experiment) -> bool:
    """Whether differential privacy is asked for, of peers or of samples."""
    privacy = experiment.privacy
    noisy = privacy.mode != "none" and (privacy.noise > 0 or privacy.epsilon is not None)
    return noisy or experiment.learning.example_noise > 0


def flood(topology: graphs.Topology | graphs.Schedule) -> int:
    """Exchanges after which everybody has heard from everybody, from whichever phase they begin."""
    if isinstance(topology, graphs.Topology):
        return graphs.diameter(topology)
    hears = [topology.at(phase).adjacency.toarray() > 0 for phase in range(topology.period)]
    longest = 0
    for first in range(topology.period):
        told = np.eye(len(topology.peers), dtype=bool)  # [N, N]: whom each has heard of
        steps = 0
        while not told.all():
            told |= hears[(first + steps) % topology.period].astype(np.float32) @ told.astype(np.float32) > 0
            steps += 1
        longest = max(longest, steps)
    return longest


def _raw(tensor: torch.Tensor) -> bytes:
    """A tensor's numbers as they lie in memory."""
    return bytes(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


def _digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
