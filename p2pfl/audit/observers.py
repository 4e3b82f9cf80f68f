"""Who attacks: the observers of the guarantee, what they know, and what they can learn at most."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse

from p2pfl.audit.pipeline import Floats, Pipeline, numbers
from p2pfl.neighbourhood import Released
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.accountant import Adjacency, Guarantee, account
from p2pfl.privacy.accounting.leakage import Cover
from p2pfl.topology import Topology

Ints = npt.NDArray[np.int64]

UNIT = 1.0
"""Norm of the update in question where nothing bounds it."""


@dataclass(frozen=True)
class Observer:
    r"""Who looks, what he knows besides, and what he can learn at most.

    Parameters
    ----------
    name
        In words.
    colluders
        Peers that tell him everything: their rows, their noise, the masks of their edges.
    victim
        Who is worst off.
    promised
        The accountant's :math:`\mu` of one release; infinite where nothing is promised.
    graph, settings
        Masks and noise.
    adjacency
        Of the guarantee.

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
        """The observer of one round's guarantee."""
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
        """Whether he attacks one peer with the help of all others; any peer in turn, then."""
        return len(self.colluders) >= len(self.graph.peers) - 1

    @property
    def ends(self) -> tuple[str, ...]:
        """Peers the masks of whose edges he knows, when he attacks the ``watched``."""
        return self.graph.peers if self.alone else self.colluders

    @cached_property
    def watched(self) -> Ints:
        """Numbers of the peers that he attacks, ``[H]``."""
        out = () if self.alone else self.colluders
        return np.array([row for row, peer in enumerate(self.graph.peers) if peer not in out], dtype=np.int64)

    @cached_property
    def partner(self) -> str | None:
        """Who may have had the victim's update, where masks are all that hides it: then only their sum is seen."""
        if self.settings.noise or not self.settings.mask or self.alone:
            return None
        near = [peer for peer in self.graph.neighbours(self.victim) if peer not in self.colluders]
        return near[0] if near else None

    @property
    def question(self) -> str:
        """What he has to tell, in words."""
        if self.partner is not None:
            return f"whose an update was, {self.victim}'s or {self.partner}'s"
        if self.adjacency == "replace":
            return f"which of two opposite updates {self.victim} released"
        return f"whether {self.victim} released its update"

    @cached_property
    def contrast(self) -> Floats:
        """What the change in question is in each watched row, ``[H]``: the victim's, or to a partner and from it."""
        change = np.zeros(len(self.graph.peers))  # [N]
        change[self.graph.peers.index(self.victim)] = 1.0
        if self.partner is not None:
            change[self.graph.peers.index(self.partner)] = -1.0
        return np.asarray(change[self.watched])

    @cached_property
    def length(self) -> float:
        """Norm of the change in question, for the game: what the adjacency allows, or 1 where nothing bounds it."""
        clip = UNIT if math.isinf(self.settings.clip) else self.settings.clip
        return clip * (2.0 if self.adjacency == "replace" else 1.0)

    @cached_property
    def bound(self) -> float:
        r"""What he can learn of the change in question, as :math:`\mu` of one release.

        Where something is promised, that; else, for a change of norm 1, what the noise allows, and with
        masks alone what they allow: :math:`\mu^2 = R_{uv} / m^2`, R the effective resistance of the
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
        r"""How he weighs the watched rows to see the change best, ``[H]``: :math:`\Sigma^+ c`."""
        if self.partner is not None:
            return np.asarray(self._inverse @ self.contrast)
        return np.asarray(self.combination @ self.contrast)

    @cached_property
    def combination(self) -> Floats:
        r"""How he weighs the rows to tell one peer's change best: :math:`\Sigma^{-1}` of the watched, ``[H, H]``.

        Without private noise that is infinite, and the sum over a component, in which masks cancel,
        shows the change without any noise.
        """
        precision = self._cover.precision()  # [H, H]
        return np.where(np.isinf(precision), 1.0, precision)

    def sees(self, pipeline: Pipeline, released: Released, *, round: int, attempt: int = 0) -> Floats:
        """What is left of the watched rows when he has subtracted the masks that he knows, ``[H, P]``."""
        values = numbers(released)
        known = pipeline.masks_at(self.ends, round=round, size=values.shape[-1], attempt=attempt)
        seen: Floats = (values - known)[self.watched]
        return seen

    @cached_property
    def _cover(self) -> Cover:
        """The noise that covers the watched."""
        cover = Cover.of(self.graph, noise=self.settings.noise, mask=self.settings.mask)
        if self.alone:
            cover = cover.without(self.graph.peers)
        masks = scipy.sparse.csr_array(cover.masks[self.watched][:, self.watched])
        return Cover(tuple(self.graph.peers[row] for row in self.watched), cover.own[self.watched], masks)

    @cached_property
    def _inverse(self) -> Floats:
        """Pseudo-inverse of the masks' Laplacian, ``[H, H]``."""
        masks = self._cover.masks.toarray()  # [H, H]
        return np.asarray(np.linalg.pinv(np.diag(masks.sum(axis=1)) - masks, hermitian=True))
