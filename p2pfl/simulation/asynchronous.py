"""Asynchronous simulation: rows that travel for several cycles, and mailboxes of the newest rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from p2pfl.core.codecs import Zstd
from p2pfl.core.neighbourhood import Contribution, ReceivedModels, Released, refuse_mix, refuse_total
from p2pfl.core.rows import Rows, draw, to_device
from p2pfl.privacy.normal_stream import Ints
from p2pfl.simulation.resuming.travelling import Travelling, codes
from p2pfl.simulation.sharding import Arriving, Shard
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood, sizes
from p2pfl.topology import Weights


class Flight:
    """Rows of all peers that are still on their way.

    For each edge only the newest arrived row is kept, as in a mailbox; older rows are dropped, so no row is received
    twice, nor after a newer one. Rows that arrive at an absent peer wait for it. A process holds the rows of its own
    peers, and knows of all rows when they arrive; only those that arrive at peers of other processes travel there.

    Parameters
    ----------
    weights
        Mixing weights of each gossip step of a period.
    seed, faults
        Seed and probabilities of losses, delays and absences, drawn by key.
    shard
        Peers that this process simulates; all of them by default.
    left
        Rows that are on their way at the beginning, from a checkpoint.
    """

    def __init__(
        self,
        weights: Sequence[Weights],
        *,
        seed: int,
        faults: Faults,
        shard: Shard | None = None,
        left: Travelling | None = None,
    ) -> None:
        self.seed = seed
        self.faults = faults
        self.shard = shard or Shard(weights[0].peers)
        self.count = len(weights[0].peers)
        self._pairs = edges_of(weights)  # [U]
        self._edges = [np.searchsorted(self._pairs, _edges(each)) for each in weights]  # [E] each
        self._newest = np.full(len(self._pairs), -1)  # [U]: gossip step of the newest row that has arrived
        self._pair = np.empty(0, np.int64)  # [Q]: edge of each row on its way,
        self._sent = np.empty(0, np.int64)  # the gossip step in which it was sent,
        self._due = np.empty(0, np.int64)  # and the one by which it arrives
        self._codes = np.empty(0, np.int64)  # [K]: gossip step * N + sender of all rows of earlier gossip steps
        self._rows: Rows = torch.empty(0, 0)  # those of local peers
        self._number = 0
        if left is not None:
            self._restore(left)

    @property
    def travelling(self) -> Travelling:
        """Rows that are on their way now, as a checkpoint keeps them; nothing here changes them later."""
        queue = (self._codes, self._pair, self._sent, self._due, self._newest.copy(), np.array([self._number]))
        return Travelling(self._rows, *map(torch.from_numpy, queue))

    def _restore(self, left: Travelling) -> None:
        self._pair, self._sent, self._due = left.edge.numpy(), left.sent.numpy(), left.due.numpy()
        self._newest, self._number = left.newest.numpy().copy(), int(left.step)
        self._codes, self._rows = left.code.numpy(), left.rows

    def receive(self, rows: Rows, there: torch.Tensor, *, round: int, step: int) -> Arriving:
        """Send the rows of the local peers ``[R, L]``, and deliver the rows that wait for them, the own row first.

        Parameters
        ----------
        rows
            Rows of the local peers.
        there
            All peers that are present, ``[N]`` bool; no others send or receive.
        round, step
            Round and gossip step of the draws.
        """
        present = there.numpy()
        self._send(present, round=round, step=step)
        arrived = self._due <= self._number  # [Q]
        np.maximum.at(self._newest, self._pair[arrived], self._sent[arrived])
        self._keep(self._sent >= self._newest[self._pair])
        listener, sender = np.divmod(self._pairs[self._pair], self.count)  # [Q]
        received = (self._due <= self._number) & present[listener]  # [Q]
        now = np.arange(self.count)
        known = np.concatenate([self._codes, self._number * self.count + now])  # [M], sorted
        wanted = np.searchsorted(known, self._sent[received] * self.count + sender[received])
        to = np.concatenate([now, listener[received]])  # [E]
        model = np.concatenate([len(self._codes) + now, wanted])  # [E]
        order = np.argsort(to, kind="stable")
        found = self.shard.arriving(self._parts(rows), known % self.count, to=to[order], model=model[order])
        self._keep(~received)
        self._store(known, found.rows)
        self._number += 1
        return found

    def _send(self, present: np.ndarray[tuple[int], np.dtype[np.bool_]], *, round: int, step: int) -> None:
        edges = self._edges[(round + step) % len(self._edges)]  # [E]
        lost = draw(self.seed, f"loss {step}", round=round).random(len(edges)) < self.faults.loss  # [E]
        took = draw(self.seed, f"delay {step}", round=round).geometric(1 / (1 + self.faults.delay), len(edges)) - 1
        sent = present[self._pairs[edges] % self.count] & ~lost  # [E]
        self._pair = np.concatenate([self._pair, edges[sent]])
        self._sent = np.concatenate([self._sent, np.full(int(sent.sum()), self._number)])
        self._due = np.concatenate([self._due, self._number + took[sent]])

    def _parts(self, rows: Rows) -> list[Rows]:
        """Return the local rows of earlier gossip steps, which nothing here holds any more, and those of this one."""
        before, self._rows = self._rows, rows[:0]
        return [before.to(rows.device), rows] if len(before) else [rows]

    def _keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        self._pair, self._sent, self._due = self._pair[kept], self._sent[kept], self._due[kept]

    def _store(self, before: Ints, rows: Rows) -> None:
        """Store the local rows that are still on their way, and no others.

        Parameters
        ----------
        before
            Codes of all rows until now, ``[M]``.
        rows
            Rows, of which those that this process holds come first.
        """
        self._codes = codes(self._sent, self._pairs[self._pair], peers=self.count)  # [K]
        old, new = (each[self.shard.held(each % self.count)[self.shard.rank]] for each in (before, self._codes))
        self._rows = rows[to_device(torch.from_numpy(np.searchsorted(old, new)), rows.device)]


class AsynchronousStackedNeighbourhood(StackedNeighbourhood):
    """One cycle of all peers of the flight's shard.

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
        super().__init__(weights, round=round, seed=seed, faults=faults, zstd=zstd, shard=flight.shard)
        self.flight = flight

    @property
    def travelling(self) -> Travelling:
        """Rows on their way after the last gossip step."""
        return self.flight.travelling

    async def mix(self, released: Released) -> Released:
        """Raise an error, as rows of different ages cannot be mixed by fixed weights."""
        del released
        raise refuse_mix()

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the newest row of each neighbour that arrived since the last call, all with equal weights."""
        there = self.faults.present(self.everyone, seed=self.seed, round=self.round)  # [N]
        found = self.flight.receive(released.values, there, round=self.round, step=self.step)
        self.step += 1
        sent = sizes(released, zstd=self.zstd)  # [R]
        self.count_bytes(sent * to_device(self.shard.own(there), sent.device))
        counts = np.bincount(found.to, minlength=len(self.peers))  # [R]
        self.received += torch.from_numpy(counts) - 1
        names = tuple(self.everyone[number] for number in found.sender.tolist())
        listener, place, weights = (torch.from_numpy(each) for each in (found.to, found.place, 1 / counts[found.to]))
        return ReceivedModels(found.rows, listener, place, weights, names)

    async def total(
        self, contribution: Contribution, *, size: int, bits: int = 64, change: float | None = None
    ) -> Ints:
        """Raise an error, as a total waits for all peers."""
        del contribution, size, bits, change
        raise refuse_total()


def edges_of(weights: Sequence[Weights]) -> Ints:
    """Return the edges of all gossip steps of a period, each as receiver * N + sender, ``[U]``, ascending.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, path
    >>> edges_of([metropolis(path(3))]).tolist()
    [1, 3, 5, 7]
    """
    found: Ints = np.unique(np.concatenate([_edges(each) for each in weights]))
    return found


def _edges(weights: Weights) -> Ints:
    """Return the edges of one gossip step, each as receiver * N + sender."""
    matrix = weights.matrix.tocoo()
    others = (matrix.row != matrix.col) & (matrix.data != 0)
    found: Ints = matrix.row[others].astype(np.int64) * len(weights.peers) + matrix.col[others]
    return found
