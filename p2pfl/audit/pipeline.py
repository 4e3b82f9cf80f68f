"""What is attacked: the release, as peers run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.data import Federation
from p2pfl.identity import Source
from p2pfl.learning import TorchLearner
from p2pfl.neighbourhood import Neighbourhood, Public, Released, settled
from p2pfl.privacy import Masks, Settings, private, swarm_secrets
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import Topology, Weights

Floats = npt.NDArray[np.float64]

Fresh = Callable[[int], Source]
"""Makes the source of secrets of the run of that number: of nothing it gives may anything depend but chance."""

Train = Callable[[Federation], TorchLearner]
"""Makes the learner of an experiment on other data."""

OPEN = "nothing hidden"
"""The observer of rows that nothing hides."""

RUN = "audit"
"""Name of the runs that are attacked."""


@dataclass(frozen=True)
class Pipeline:
    """Everything between the rows of all peers and what others see of them, under the keys of one run.

    Nothing here is a model of the release: it is :func:`p2pfl.privacy.private` around a stacked
    neighbourhood, with masks from the real key exchange. Whatever is wrong there is attacked here.

    Parameters
    ----------
    settings
        What hides the rows.
    graph
        Who shares masks with whom.
    weights
        Along which rows are mixed.
    source
        Of all keys.
    masks
        Those of all peers; ``None`` where there are none.
    """

    settings: Settings
    graph: Topology
    weights: Sequence[Weights]
    source: Source
    masks: Masks | None

    @classmethod
    def keyed(cls, settings: Settings, *, graph: Topology, weights: Sequence[Weights], source: Source) -> Pipeline:
        """Exchange keys as the peers of a new run do.

        Examples
        --------
        >>> from p2pfl.identity import SeededSource
        >>> from p2pfl.topology import metropolis, ring
        >>> graph = ring(4)
        >>> of = {"graph": graph, "weights": [metropolis(graph)], "source": SeededSource(7)}
        >>> Pipeline.keyed(Settings(clip=1.0, mask=3.0), **of).masks.deviation
        3.0
        """
        masks = None
        if settings.mask > 0:
            secrets = swarm_secrets(graph, source=source, run=RUN)
            masks = Masks(secrets, deviation=settings.mask, bits=settings.bits, topology=graph)
        return cls(settings, graph, weights, source, masks)

    @property
    def peers(self) -> tuple[str, ...]:
        """Whose rows these are."""
        return self.graph.peers

    def round(self, number: int) -> Neighbourhood:
        """The neighbourhood that an algorithm would talk to in a round."""
        return self.hidden(StackedNeighbourhood(self.weights, round=number, seed=0), round=number)

    def hidden(self, net: Neighbourhood, *, round: int) -> Neighbourhood:
        """Wrap any neighbourhood as the peers' own are wrapped."""
        return private(net, settings=self.settings, masks=self.masks, source=self.source, round=round)

    def masks_at(self, ends: Sequence[str], *, round: int, size: int, attempt: int = 0) -> Floats:
        """What the masks of all edges at some peers add to each row, ``[N, P]``: known to those peers."""
        known = set(ends)
        touched = tuple(edge for edge in self.graph.edges if not known.isdisjoint(edge))
        if self.masks is None or not touched:
            return np.zeros((len(self.peers), size))
        shared = replace(self.masks, topology=Topology(self.peers, touched))
        points = shared.sums(self.peers, round=round, size=size, attempt=attempt)
        return np.asarray(points * 2.0**-self.settings.bits, np.float64)


def release(net: Neighbourhood, rows: Floats, *, since: Floats) -> Released:
    """Release ``[N, P]`` rows through a neighbourhood that waits for nobody."""
    return settled(net.release(torch.from_numpy(rows), since=Public(torch.from_numpy(since))))


def numbers(released: Released) -> Floats:
    """What can be read in what was released, ``[N, P]``."""
    values: Floats = released.values.to(torch.float64).numpy()
    return values
