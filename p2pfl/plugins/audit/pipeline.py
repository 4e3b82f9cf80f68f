"""The release as peers run it, which the attacks target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, run_without_loop
from p2pfl.data import Federation
from p2pfl.experiment import Experiment
from p2pfl.experiment.file.reading import check, plain
from p2pfl.learning import TorchLearner
from p2pfl.privacy import Masks, Settings, private, swarm_secrets
from p2pfl.privacy.keys import Source
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import Topology, Weights

Floats = npt.NDArray[np.float64]

Fresh = Callable[[int], Source]
"""Function that makes the source of secrets of the run of that number; results may depend on it by chance only."""

FIRST_RUN = 1000
"""Number of the first run whose noise is looked at; those of the games have lower ones."""

Train = Callable[[Federation], TorchLearner]
"""Function that makes the learner of an experiment on other data."""

OPEN = "nothing hidden"
"""Observer of unprotected updates."""

RUN = "audit"
"""Name of the attacked runs."""


@dataclass(frozen=True)
class Pipeline:
    """Path from the rows of all peers to what others see of them, under the keys of one run.

    Nothing in it models the release: it is :func:`p2pfl.privacy.private` around a stacked
    neighbourhood, with masks from the real key exchange. The attacks find whatever is wrong there.

    Parameters
    ----------
    settings
        Settings that protect the models.
    graph
        Mask graph.
    weights
        Mixing weights.
    source
        Source of all keys.
    masks
        Masks of all peers, or ``None``.
    """

    settings: Settings
    graph: Topology
    weights: Sequence[Weights]
    source: Source
    masks: Masks | None

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the peers in row order."""
        return self.graph.peers

    def round(self, number: int) -> Neighbourhood:
        """Return the neighbourhood of an algorithm in one round."""
        return self.hidden(StackedNeighbourhood(self.weights, round=number, seed=0), round=number)

    def hidden(self, net: Neighbourhood, *, round: int) -> Neighbourhood:
        """Wrap any neighbourhood as peers wrap their own."""
        return private(net, settings=self.settings, masks=self.masks, source=self.source, round=round)

    def masks_at(self, ends: Sequence[str], *, round: int, size: int, attempt: int = 0) -> Floats:
        """Return the sum of the masks of all edges at some peers for each row, ``[N, P]``, which those peers know."""
        known = set(ends)
        touched = tuple(edge for edge in self.graph.edges if not known.isdisjoint(edge))
        if self.masks is None or not touched:
            return np.zeros((len(self.peers), size))
        shared = replace(self.masks, topology=Topology(self.peers, touched))
        points = shared.sums(self.peers, round=round, size=size, attempt=attempt)
        return np.asarray(points * 2.0**-self.settings.bits, np.float64)


@dataclass(frozen=True)
class Target:
    """Release that is attacked: settings and graph of an experiment, in runs that each have their own keys.

    Parameters
    ----------
    settings
        Settings that protect the models.
    graph
        Mask graph.
    weights
        Mixing weights.
    fresh
        Function that makes the source of secrets of each run.
    seed
        Seed of coins, directions and samples.
    """

    settings: Settings
    graph: Topology
    weights: Sequence[Weights]
    fresh: Fresh
    seed: int = 0

    def using(self, **changes: Any) -> Target:
        """Return the target under other settings."""
        return replace(self, settings=replace(self.settings, **changes))

    def run(self, number: int) -> Pipeline:
        """Exchange keys as the peers of a new run do, and return the pipeline.

        Examples
        --------
        >>> from p2pfl.privacy.keys import SeededSource
        >>> from p2pfl.topology import metropolis, ring
        >>> graph = ring(4)
        >>> Target(Settings(clip=1.0, mask=3.0), graph, [metropolis(graph)], SeededSource).run(7).masks.deviation
        3.0
        """
        settings, source, masks = self.settings, self.fresh(number), None
        if settings.mask > 0:
            secrets = swarm_secrets(self.graph, source=source, run=RUN)
            masks = Masks(secrets, deviation=settings.mask, bits=settings.bits, topology=self.graph)
        return Pipeline(settings, self.graph, self.weights, source, masks)


def drop_budget(experiment: Experiment) -> Experiment:
    """Return an experiment without a budget, and without the data file beside which one may lie.

    Its plan cannot be made anew; a meter that is given it neither reads an account nor writes into one.
    """
    table = plain(experiment)
    for section, key in (("privacy", "budget"), ("privacy", "epsilon"), ("data", "options")):
        table[section].pop(key, None)
    return check(table)


def release(net: Neighbourhood, rows: Floats, *, since: Floats) -> Released:
    """Release ``[N, P]`` rows through a neighbourhood that does not wait."""
    return run_without_loop(net.release(torch.from_numpy(rows), since=Public(torch.from_numpy(since))))


def numbers(released: Released) -> Floats:
    """Return the readable numbers of a release, ``[N, P]``."""
    values: Floats = released.values.to(torch.float64).numpy()
    return values
