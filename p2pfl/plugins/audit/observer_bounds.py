"""Observers of the guarantee: what they know, and what they can learn at most."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse

from p2pfl.core.neighbourhood import Released
from p2pfl.plugins.audit.pipeline import Floats, Pipeline, numbers
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.accountant import Adjacency, Guarantee, account
from p2pfl.privacy.accounting.leakage import NoiseCover
from p2pfl.topology import Topology

Ints = npt.NDArray[np.int64]

UNIT = 1.0
"""Norm of the update in question if nothing bounds it."""


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
        return cls(
            guarantee.observer,
            guarantee.colluders,
            guarantee.peer,
            guarantee.mu,
            graph,
            settings,
            guarantee.adjacency,
        )

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
        clip = UNIT if math.isinf(self.settings.clip) else self.settings.clip
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
                clip=UNIT if math.isinf(settings.clip) else settings.clip,
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
        known = pipeline.masks_at(self.ends, round=round, size=values.shape[-1], attempt=attempt)
        seen: Floats = (values - known)[self.watched]
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
