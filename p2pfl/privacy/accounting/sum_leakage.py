r"""Leakage of sums over neighbourhoods: the linear view of their receivers.

Peer u releases, in round t, a change under private noise of deviation s; a receiver sees sums of what was
released, :math:`y = A (\Delta + s z)`. So with P the projector onto the rows of A, restricted to the columns
of honest peers, rounds :math:`1 \dots T` are :math:`\mu`-GDP for u with

.. math:: \mu^2 = \frac{S^2}{s^2} \sum_{t, t'} |P_{ut, ut'}|
          \le \frac{S^2}{s^2}\, T \max_t \sum_{t'} |P_{ut, ut'}|, \qquad \mu^2 \le \frac{S^2}{s^2}\, T .

For one sum of weights :math:`W_{rj}` over honest contributors H that is
:math:`P_{uu} = W_{ru}^2 / \sum_{j \in H} W_{rj}^2`: one over their number where all weigh alike. Every further
sum is one more row of A: as many different sums as there are honest peers give everything but private noise
away when colluders add them up, so a round has one gossip step. What a receiver knows of itself is subtracted;
peers that collude put their rows together.

The last term is what private noise alone gives, the local floor. Where the view is too large to look at, the
guarantee is that floor. That senders round their terms to the grid is not counted, beyond the rounding of the
release. Rounds are correlated, for rows that were mixed are released again: that they may be added up although
updates depend on what was mixed before is the adaptive theorem of MAFALDA.

References
----------
E. Cyffers et al., MAFALDA, arXiv 2510.17480. A. Koskela, T. Kulkarni, arXiv 2505.19969: sums over neighbourhoods.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.core.neighbourhood import Contribution, Public, ReceivedModels, Released, TotalOptions, run_without_loop
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.privacy.accounting.accountant import Adjacency, Guarantee, name_observer, sensitivity
from p2pfl.privacy.accounting.colluders import Search
from p2pfl.privacy.accounting.leakage import Floats, find_first_highest, whiten
from p2pfl.topology import Weights

MAX_EFFORT = 1e9
"""Largest work, in multiplications over a constant, that is spent on the views of all sets of colluders."""

MAX_COLLUDER_SETS = 2000
"""Sets of colluders that are looked at one by one; beyond, those around each receiver."""

_WHOLE_TOLERANCE = 1e-9
"""Distance from one within which a leak counts as one."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Knowledge that peers can have of the releases of all peers, by receiver.

    Parameters
    ----------
    peers
        N of them.
    seen
        ``[S, N, T, N]``: sum, receiver, round, peer: the factor of what that peer released in that round in the
        sum, with at most one sum for each round; ``None`` where that is too large, and only the local floor is stated.
    """

    peers: tuple[str, ...]
    seen: Floats | None
    _worst_sets: dict[int, tuple[tuple[str, ...], Floats, Search]] = field(default_factory=dict, init=False, repr=False)

    def leaks(self, colluders: Collection[str]) -> Floats:
        r"""Return the leak of each peer in a round, ``[N]``: :math:`\mu^2 s^2 / S^2`, at most 1.

        That of a colluder is zero: it has no secrets.

        Raises
        ------
        InputError
            A colluder is no peer.

        Examples
        --------
        A sum with weights 1/2, 1/4 and 1/4 that a fourth peer is given:

        >>> seen = np.zeros((1, 4, 1, 4))
        >>> seen[0, 3, 0] = [0.5, 0.25, 0.25, 0.0]
        >>> Sums(("ada", "bob", "cleo", "dan"), seen).leaks({"dan"}).round(3).tolist()
        [0.667, 0.167, 0.167, 0.0]
        """
        if strangers := sorted({*colluders} - {*self.peers}):
            raise InputError(f'colluder "{strangers[0]}" is not one of the {len(self.peers)} peers; check its name')
        together = [row for row, peer in enumerate(self.peers) if peer in colluders]
        if not together:
            return np.zeros(len(self.peers))
        leaks = np.ones(len(self.peers))  # [N]
        leaks[together] = 0.0
        if self.seen is None or len(together) >= len(self.peers) - 1:
            return leaks
        honest = np.flatnonzero(leaks)
        view = self.seen[:, together][..., honest]  # [S, C, T, H]
        rows = view.reshape(-1, view.shape[2] * len(honest))  # [M, T * H]
        whitened, outside = whiten(rows, rows)
        parts = whitened.reshape(len(whitened), view.shape[2], len(honest))  # [rank, T, H]
        grams = np.abs(np.einsum("rsh,rth->hst", parts, parts)).sum(-1).max(-1)  # [H]
        bare = outside.reshape(view.shape[2], len(honest)).any(0)  # [H]
        leaks[honest] = np.where(bare, 1.0, np.minimum(1.0, grams))
        return leaks

    def find_exposed(self, count: int) -> tuple[tuple[str, ...], str] | None:
        """Return receivers who together can solve for a peer's row, and that peer; ``None`` if none can.

        Parameters
        ----------
        count
            Number of receivers that combine their sums.
        """
        if self.seen is None:
            return None
        for together in self.sets(count)[0]:
            leaks = self.leaks({self.peers[row] for row in together})
            if leaks.max() >= 1 - _WHOLE_TOLERANCE:
                return tuple(self.peers[row] for row in together), self.peers[find_first_highest(leaks)]
        return None

    def sets(self, count: int) -> tuple[list[tuple[int, ...]], Search]:
        """Return the sets of colluders to look at: all, or each receiver with those whose sums are most like its."""
        n = len(self.peers)
        if self.seen is None or count == 1 or math.comb(n, count) <= MAX_COLLUDER_SETS:
            return list(itertools.combinations(range(n), count)), "enumerated"
        receivers = (self.seen != 0).any(axis=(0, 2)).astype(np.float64)  # [N, N]
        shared = receivers @ receivers.T  # [N, N]
        np.fill_diagonal(shared, np.inf)
        nearest = np.argsort(-shared, axis=1, kind="stable")[:, :count]  # [N, count]
        return sorted({tuple(sorted(row)) for row in nearest.tolist()}), "searched"

    def guarantee(
        self,
        *,
        clip: float,
        noise: float,
        bits: int = 20,
        adjacency: Adjacency = "zero-out",
        colluders: int = 1,
        size: int | None = None,
    ) -> Guarantee:
        """Return the cost of one round against the worst so many receivers, whatever the number of rounds.

        Parameters
        ----------
        clip, noise, bits, adjacency, size
            As in :func:`p2pfl.privacy.accounting.accountant.account`.
        colluders
            Number of peers that combine what they see and know; with none, what the broker sees: nothing.

        Examples
        --------
        >>> seen = np.zeros((1, 5, 1, 5))
        >>> seen[0, 4, 0, :4] = 0.25
        >>> given = Sums(tuple("abcde"), seen).guarantee(clip=1.0, noise=0.5)
        >>> given.mu, given.local
        (1.0, 2.0)
        """
        change = sensitivity(clip=clip, adjacency=adjacency, bits=bits, size=size)
        local = change / noise if noise else math.inf
        together, leaks, search = self._worst(colluders)
        leak = float(leaks.max())
        return Guarantee(
            observer=name_observer(colluders, everyone=len(self.peers) - 1),
            colluders=tuple(sorted(together)),
            adjacency=adjacency,
            mu=local * math.sqrt(leak) if leak else 0.0,
            local=local,
            peer=self.peers[find_first_highest(leaks)],
            search=search,
        )

    def leak(self, colluders: int) -> float:
        """Return the largest leak of a round against the worst so many receivers."""
        return float(self._worst(colluders)[1].max())

    def _worst(self, count: int) -> tuple[tuple[str, ...], Floats, Search]:
        """Return the colluders that together learn most of one peer, and the leaks of all."""
        if count not in self._worst_sets:
            self._worst_sets[count] = self._search(count)
        return self._worst_sets[count]

    def _search(self, count: int) -> tuple[tuple[str, ...], Floats, Search]:
        n = len(self.peers)
        if count == 0 or count >= n - 1:
            everyone = self.peers[1:] if count else ()
            return everyone, self.leaks(everyone), "exact"
        sets, search = self.sets(count)
        if self.seen is None or len(sets) * self._work(count) > MAX_EFFORT:
            floor = Sums(self.peers, None)
            return self.peers[:count], floor.leaks(self.peers[:count]), "exact"
        each = ({self.peers[row] for row in rows} for rows in sets)
        leaks, together = max(((self.leaks(those), tuple(those)) for those in each), key=lambda pair: pair[0].max())
        return together, leaks, search

    def _work(self, count: int) -> float:
        """Return the amount of work for one set of colluders."""
        if self.seen is None:
            return 0.0
        rows = self.seen.shape[0] * count
        return float(rows**2 * self.seen.shape[2] * self.seen.shape[3])


def watch(
    weights: Weights, act: Callable[[FactorNeighbourhood, int], Coroutine[Any, Any, None]], *, rounds: int
) -> Sums:
    """Return the view of each peer of rounds, recorded while they run on rows of factors, ``[N, T * N]``.

    Whatever is done with what was mixed is in it, exactly.

    Parameters
    ----------
    weights
        Of every gossip step.
    act
        One round with one gossip step; what it releases is weighted, and what is new of each peer is one more factor.
    rounds
        T of them.

    Examples
    --------
    >>> from p2pfl.topology import complete, metropolis
    >>> async def act(net, round):
    ...     zeros = torch.zeros(4, 4, dtype=torch.float64)
    ...     await net.mix(await net.release(zeros, since=Public(zeros)))
    >>> watch(metropolis(complete(4)), act, rounds=1).leaks({"peer0"}).round(3).tolist()
    [0.0, 0.333, 0.333, 0.333]
    """
    seen: list[Rows] = []
    for round in range(rounds):
        run_without_loop(act(FactorNeighbourhood(weights, round, seen), round))
    count = len(weights.peers)
    return Sums(weights.peers, torch.stack(seen).view(len(seen), count, rounds, count).numpy())


@dataclass
class FactorNeighbourhood:
    """A neighbourhood whose rows are factors, and that keeps what everybody is given; :func:`watch` makes it."""

    weights: Weights
    round: int
    seen: list[Rows]

    @property
    def peers(self) -> tuple[str, ...]:
        """All peers."""
        return self.weights.peers

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Record the weighted old values, and the new ones of each peer."""
        del rows  # its difference from what was there is what is new
        values = since.rows.clone() if masses is None else since.rows * masses
        count = len(values)
        values[:, self.round * count : (self.round + 1) * count] += torch.eye(count, dtype=values.dtype)
        return Released(values, masses)

    async def mix(self, released: Released) -> Released:
        """Record the factors of the sum that each peer receives."""
        rows = self.weights.rows
        mixed = torch.from_numpy(rows @ released.values.numpy())  # [N, T * N]
        self.seen.append(mixed)
        masses = None if released.masses is None else torch.from_numpy(rows @ released.masses.numpy())
        return Released(mixed, masses)

    async def receive(self, released: Released) -> ReceivedModels:
        """Return public numbers, which are not sums."""
        rows = self.weights.rows
        sender = torch.from_numpy(rows.indices).long()  # [E]
        return ReceivedModels(released.values, torch.from_numpy(rows.rows), sender, torch.from_numpy(rows.data))

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Raise an error, as totals are no sums over neighbourhoods.

        Raises
        ------
        PrivacyError
            Always.
        """
        del contribution, options
        raise PrivacyError(
            "what sums over neighbourhoods show is not known for algorithms that also take totals; set privacy.mode to "
            '"pairwise" or "none"'
        )
