"""Asynchronous simulation: rows that travel for several cycles, and mailboxes of the newest rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from p2pfl.compression import Zstd
from p2pfl.neighbourhood import Contribution, ReceivedModels, Released, unmixed, untotalled
from p2pfl.privacy.stream import Ints
from p2pfl.rows import Rows, draw, placed
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood, sizes
from p2pfl.topology import Weights


class Flight:
    """Rows of all peers that are still on their way.

    For each edge only the newest arrived row is kept, as in a mailbox; older rows are dropped, so no row is received
    twice, nor after a newer one. Rows that arrive at an absent peer wait for it.

    Parameters
    ----------
    weights
        Mixing weights of each gossip step of a period.
    seed, faults
        Seed and probabilities of losses, delays and absences, drawn by key.
    """

    def __init__(self, weights: Sequence[Weights], *, seed: int, faults: Faults) -> None:
        self.seed = seed
        self.faults = faults
        self.count = len(weights[0].peers)
        found = [_edges(each) for each in weights]  # [E] each: listener * N + sender
        self._pairs = np.unique(np.concatenate(found))  # [U]
        self._edges = [np.searchsorted(self._pairs, each) for each in found]
        self._newest = np.full(len(self._pairs), -1)  # [U]: gossip step of the newest row that has arrived
        self._pair = np.empty(0, np.int64)  # [Q]: edge of each row on its way,
        self._sent = np.empty(0, np.int64)  # the gossip step in which it was sent,
        self._due = np.empty(0, np.int64)  # and the one by which it arrives
        self._codes = np.empty(0, np.int64)  # [K]: gossip step * N + sender of
        self._rows: Rows | None = None  # [K, L], rows of earlier gossip steps
        self._number = 0

    def receive(self, rows: Rows, there: torch.Tensor, *, round: int, step: int) -> tuple[Rows, Ints, Ints, Ints]:
        """Send the rows of all peers that are ``there``, ``[N]`` bool, and deliver the rows that wait for them.

        Returns
        -------
        rows, senders, listener, place
            Available rows ``[S, L]`` and their senders; receivers and places of received rows, ``[E]`` each, the own
            row first.
        """
        present = there.numpy()
        self._send(present, round=round, step=step)
        arrived = self._due <= self._number  # [Q]
        np.maximum.at(self._newest, self._pair[arrived], self._sent[arrived])
        self._keep(self._sent >= self._newest[self._pair])
        listener, sender = np.divmod(self._pairs[self._pair], self.count)  # [Q]
        received = (self._due <= self._number) & present[listener]  # [Q]
        codes = np.concatenate([self._codes, self._number * self.count + np.arange(self.count)])  # [K + N], sorted
        at_hand = rows if self._rows is None else torch.cat([self._rows, rows])  # [K + N, L]
        wanted = np.searchsorted(codes, self._sent[received] * self.count + sender[received])
        to = np.concatenate([np.arange(self.count), listener[received]])  # [E]
        place = np.concatenate([len(self._codes) + np.arange(self.count), wanted])  # [E]
        order = np.argsort(to, kind="stable")
        self._keep(~received)
        self._store(codes, at_hand)
        self._number += 1
        return at_hand, codes % self.count, to[order], place[order]

    def _send(self, present: np.ndarray[tuple[int], np.dtype[np.bool_]], *, round: int, step: int) -> None:
        edges = self._edges[(round + step) % len(self._edges)]  # [E]
        lost = draw(self.seed, f"loss {step}", round=round).random(len(edges)) < self.faults.loss  # [E]
        took = draw(self.seed, f"delay {step}", round=round).geometric(1 / (1 + self.faults.delay), len(edges)) - 1
        sent = present[self._pairs[edges] % self.count] & ~lost  # [E]
        self._pair = np.concatenate([self._pair, edges[sent]])
        self._sent = np.concatenate([self._sent, np.full(int(sent.sum()), self._number)])
        self._due = np.concatenate([self._due, self._number + took[sent]])

    def _keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        self._pair, self._sent, self._due = self._pair[kept], self._sent[kept], self._due[kept]

    def _store(self, codes: Ints, rows: Rows) -> None:
        """Store the rows that are still on their way, and no others."""
        self._codes = np.unique(self._sent * self.count + self._pairs[self._pair] % self.count)  # [K]
        places = placed(torch.from_numpy(np.searchsorted(codes, self._codes)), rows.device)
        self._rows = rows[places] if len(places) else None


class AsynchronousStackedNeighbourhood(StackedNeighbourhood):
    """One cycle of all peers.

    Parameters
    ----------
    weights, round, seed, faults, zstd
        Arguments of :class:`StackedNeighbourhood`.
    flight
        Rows on their way, which persist between cycles.
    """

    def __init__(
        self,
        weights: Sequence[Weights],
        *,
        round: int,
        seed: int,
        faults: Faults,
        flight: Flight,
        zstd: Zstd | None = None,
    ) -> None:
        super().__init__(weights, round=round, seed=seed, faults=faults, zstd=zstd)
        self.flight = flight

    async def mix(self, released: Released) -> Released:
        """Raise an error, as rows of different ages cannot be mixed by fixed weights."""
        del released
        raise unmixed()

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the newest row of each neighbour that arrived since the last call, all with equal weights."""
        there = self.faults.present(self.peers, seed=self.seed, round=self.round)  # [N]
        rows, whose, listener, place = self.flight.receive(released.values, there, round=self.round, step=self.step)
        self.step += 1
        sent = sizes(released, zstd=self.zstd)  # [N]
        self.count_bytes(sent * placed(there, sent.device))
        counts = np.bincount(listener, minlength=len(self.peers))  # [N]
        self.received += torch.from_numpy(counts) - 1
        names = tuple(self.peers[index] for index in whose.tolist())
        weights = torch.from_numpy(1 / counts[listener])  # [E]
        return ReceivedModels(rows, torch.from_numpy(listener), torch.from_numpy(place), weights, names)

    async def total(
        self, contribution: Contribution, *, size: int, bits: int = 64, change: float | None = None
    ) -> Ints:
        """Raise an error, as a total waits for all peers."""
        del contribution, size, bits, change
        raise untotalled()


def _edges(weights: Weights) -> Ints:
    """Return the edges of one gossip step, each as receiver * N + sender."""
    matrix = weights.matrix.tocoo()
    others = (matrix.row != matrix.col) & (matrix.data != 0)
    found: Ints = matrix.row[others].astype(np.int64) * len(weights.peers) + matrix.col[others]
    return found
