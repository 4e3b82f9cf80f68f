"""The release as peers run it, which the attacks target, and the observers of the guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch

from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, run_without_loop
from p2pfl.data import Federation
from p2pfl.experiment import Experiment
from p2pfl.experiment.file.reading import check, plain
from p2pfl.learning import TorchLearner
from p2pfl.privacy import Masks, Settings, private, swarm_secrets
from p2pfl.privacy.accounting.accountant import Adjacency, Guarantee, account
from p2pfl.privacy.accounting.leakage import NoiseCover
from p2pfl.privacy.keys import Source
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import Topology, Weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Fresh = Callable[[int], Source]
"""Function that makes the source of secrets of the run of that number; results may depend on it by chance only."""

FIRST_RUN = 1000
"""Number of the first run whose noise is looked at; those of the games have lower ones."""

Train = Callable[[Federation], TorchLearner]
"""Function that makes the learner of an experiment on other data."""

OPEN_OBSERVER = "nothing hidden"
"""Observer of unprotected updates."""

UNBOUNDED_NORM = 1.0
"""Norm of the update in question if nothing bounds it."""

RUN_NAME = "audit"
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
        return self.hide(StackedNeighbourhood(self.weights, round=number, seed=0), round=number)

    def hide(self, net: Neighbourhood, *, round: int) -> Neighbourhood:
        """Wrap any neighbourhood as peers wrap their own."""
        return private(net, settings=self.settings, masks=self.masks, source=self.source, round=round)

    def masks_at(self, ends: Sequence[str], *, round: int, size: int, attempt: int = 0) -> Floats:
        """Return the sum of the masks of all edges at some peers for each row, ``[N, P]``, which those peers know."""
        peers = set(ends)
        touched = tuple(edge for edge in self.graph.edges if not peers.isdisjoint(edge))
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

    def with_settings(
        self,
        *,
        clip: float | None = None,
        noise: float | None = None,
        mask: float | None = None,
        participation: float | None = None,
    ) -> Target:
        """Return the target under other settings; ``None`` keeps one."""
        own = self.settings
        changed = replace(
            own,
            clip=own.clip if clip is None else clip,
            noise=own.noise if noise is None else noise,
            mask=own.mask if mask is None else mask,
            participation=own.participation if participation is None else participation,
        )
        return replace(self, settings=changed)

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
            secrets = swarm_secrets(self.graph, source=source, run=RUN_NAME)
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


@dataclass(frozen=True)
class Observer:
    r"""Observer, with its knowledge and the bound on what it can learn.

    Parameters
    ----------
    name
        Name in words.
    colluders
        Peers that share everything with the observer: their models, their noise, the masks of their edges.
    victim
        Peer with the weakest protection.
    promised
        The accountant's :math:`\mu` of one release; infinite without a guarantee.
    graph, settings
        Mask graph and settings of the noise.
    adjacency
        Adjacency of the guarantee.

    Examples
    --------
    >>> from p2pfl.privacy.accounting.accountant import account
    >>> from p2pfl.topology import ring
    >>> settings = Settings(mask=4.0)
    >>> given = account(ring(8), clip=math.inf, noise=0.0, mask=4.0)
    >>> broker = Observer.of(given, graph=ring(8), settings=settings)
    >>> broker.promised, broker.partner, round(broker.bound, 4)  # sqrt(7 / 8) / 4
    (inf, 'peer1', 0.2339)
    """

    name: str
    colluders: tuple[str, ...]
    victim: str
    promised: float
    graph: Topology = field(repr=False)
    settings: Settings = field(repr=False)
    adjacency: Adjacency = "zero-out"

    @classmethod
    def of(cls, guarantee: Guarantee, *, graph: Topology, settings: Settings) -> Observer:
        """Return the observer of one round's guarantee."""
        names = guarantee.observer, guarantee.colluders, guarantee.peer
        return cls(*names, guarantee.mu, graph, settings, guarantee.adjacency)

    @property
    def alone(self) -> bool:
        """True if the observer attacks one peer with the help of all others; any peer may then be the victim."""
        return len(self.colluders) >= len(self.graph.peers) - 1

    @property
    def ends(self) -> tuple[str, ...]:
        """Peers whose masks the observer knows while it attacks the ``watched``."""
        return self.graph.peers if self.alone else self.colluders

    @cached_property
    def watched(self) -> Ints:
        """Numbers of the attacked peers, ``[H]``."""
        out = () if self.alone else self.colluders
        return np.array([row for row, peer in enumerate(self.graph.peers) if peer not in out], dtype=np.int64)

    @cached_property
    def partner(self) -> str | None:
        """Peer that may own the update instead of the victim, if only masks hide it: then only their sum is visible."""
        if self.settings.noise or not self.settings.mask or self.alone:
            return None
        near = [peer for peer in self.graph.neighbours(self.victim) if peer not in self.colluders]
        return near[0] if near else None

    @property
    def question(self) -> str:
        """Question that the observer has to answer, in words."""
        if self.partner is not None:
            return f"whose an update was, {self.victim}'s or {self.partner}'s"
        if self.adjacency == "replace":
            return f"which of two opposite updates {self.victim} released"
        return f"whether {self.victim} released its update"

    @cached_property
    def contrast(self) -> Floats:
        """Effect of the change in question on each watched row, ``[H]``: on the victim's, and on a partner's if any."""
        change = np.zeros(len(self.graph.peers))  # [N]
        change[self.graph.peers.index(self.victim)] = 1.0
        if self.partner is not None:
            change[self.graph.peers.index(self.partner)] = -1.0
        return np.asarray(change[self.watched])

    @cached_property
    def length(self) -> float:
        """Norm of the change in question, for the game: the largest of the adjacency, or 1 if nothing bounds it."""
        clip = UNBOUNDED_NORM if math.isinf(self.settings.clip) else self.settings.clip
        return clip * (2.0 if self.adjacency == "replace" else 1.0)

    @cached_property
    def bound(self) -> float:
        r"""Bound on what the observer can learn of the change in question, as :math:`\mu` of one release.

        It is the guarantee if there is one; otherwise, for a change of norm 1, the bound that the noise gives, and with
        masks alone the bound that they give: :math:`\mu^2 = R_{uv} / m^2`, R the effective resistance of the
        honest mask graph between victim u and partner v.
        """
        if math.isfinite(self.promised):
            return self.promised
        if self.settings.noise:
            settings = self.settings
            return account(
                self.graph,
                clip=UNBOUNDED_NORM if math.isinf(settings.clip) else settings.clip,
                noise=settings.noise,
                mask=settings.mask,
                adjacency=self.adjacency,
                colluders=self.colluders,
            ).mu
        if self.partner is None:
            return math.inf
        return self.length * math.sqrt(self.contrast @ self._inverse @ self.contrast)

    @cached_property
    def statistic(self) -> Floats:
        r"""Weights of the watched rows that show the change best, ``[H]``: :math:`\Sigma^+ c`."""
        if self.partner is not None:
            return np.asarray(self._inverse @ self.contrast)
        return np.asarray(self.combination @ self.contrast)

    @cached_property
    def combination(self) -> Floats:
        r"""Weights of the rows that show the change of one peer best: :math:`\Sigma^{-1}` of the watched, ``[H, H]``.

        Without private noise the inverse is infinite, and the sum over a component, in which masks cancel,
        shows the change without any noise.
        """
        precision = self._cover.precision()  # [H, H]
        return np.where(np.isinf(precision), 1.0, precision)

    def sees(self, pipeline: Pipeline, released: Released, *, round: int, attempt: int = 0) -> Floats:
        """Return the watched rows less the masks that the observer knows, ``[H, P]``."""
        values = numbers(released)
        masks = pipeline.masks_at(self.ends, round=round, size=values.shape[-1], attempt=attempt)
        seen: Floats = (values - masks)[self.watched]
        return seen

    @cached_property
    def _cover(self) -> NoiseCover:
        """Noise that protects the watched."""
        mask = 0.0 if self.alone else self.settings.mask
        cover = NoiseCover.of(self.graph, noise=self.settings.noise, mask=mask)
        masks = scipy.sparse.csr_array(cover.masks[self.watched][:, self.watched])
        return NoiseCover(tuple(self.graph.peers[row] for row in self.watched), cover.own[self.watched], masks)

    @cached_property
    def _inverse(self) -> Floats:
        """Pseudo-inverse of the Laplacian of the masks, ``[H, H]``."""
        masks = self._cover.masks.toarray()  # [H, H]
        return np.asarray(np.linalg.pinv(np.diag(masks.sum(axis=1)) - masks, hermitian=True))
