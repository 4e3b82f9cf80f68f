"""Asynchronous simulation: rows that travel for several cycles, and mailboxes of the newest rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch

from p2pfl.core.codecs import Zstd
from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Contribution, ReceivedModels, Released, TotalOptions, refuse_mix, refuse_total
from p2pfl.core.rows import Rows, to_device
from p2pfl.privacy.normal_stream import Ints
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
        self.seed, self.faults, self.peers = seed, faults, weights[0].peers
        edges = [_edges(each) for each in weights]  # [E] each
        self._pairs: Ints = np.unique(np.concatenate(edges))  # [U]: edges of all steps, as receiver * N + sender
        self._edges = [np.searchsorted(self._pairs, each) for each in edges]
        self._newest = np.full(len(self._pairs), -1)  # [U]: gossip step of the newest row that has arrived
        self._pair = np.empty(0, np.int64)  # [Q]: edge of each row on its way,
        self._sent = np.empty(0, np.int64)  # the gossip step in which it was sent,
        self._due = np.empty(0, np.int64)  # and the one by which it arrives
        self._codes = np.empty(0, np.int64)  # [K]: gossip step * N + sender of all rows of earlier gossip steps
        self._rows: Rows = torch.empty(0, 0)  # [K, L]
        self._number = 0

    def receive(self, rows: Rows, there: torch.Tensor, *, round: int, step: int) -> ReceivedModels:
        """Send the rows ``[N, L]``, and deliver the rows that wait for each peer, the own row first.

        Parameters
        ----------
        rows
            Rows of all peers.
        there
            All peers that are present, ``[N]`` bool; no others send or receive.
        round, step
            Round and gossip step of the draws.
        """
        present, count = there.numpy(), len(self.peers)
        self._send(present, round=round, step=step)
        arrived = self._due <= self._number  # [Q]
        np.maximum.at(self._newest, self._pair[arrived], self._sent[arrived])
        self._keep(self._sent >= self._newest[self._pair])
        listener, sender = np.divmod(self._pairs[self._pair], count)  # [Q]
        received = (self._due <= self._number) & present[listener]  # [Q]
        now = np.arange(count)
        codes = np.concatenate([self._codes, self._number * count + now])  # [M], sorted
        models = rows if not len(self._codes) else torch.cat([self._rows, rows])  # [M, L]
        wanted = np.searchsorted(codes, self._sent[received] * count + sender[received])
        receivers = np.concatenate([now, listener[received]])  # [E]
        model = np.concatenate([len(self._codes) + now, wanted])  # [E]
        order = np.argsort(receivers, kind="stable")
        self._keep(~received)
        self._codes = np.unique(self._sent * count + self._pairs[self._pair] % count)  # [K]
        self._rows = models[to_device(torch.from_numpy(np.searchsorted(codes, self._codes)), rows.device)]
        self._number += 1
        to, row_index = torch.from_numpy(receivers[order]), torch.from_numpy(model[order])
        weights = 1 / torch.bincount(to)[to].double()  # [E]
        names = tuple(self.peers[number] for number in (codes % count).tolist())
        return ReceivedModels(models, to, row_index, weights, names)

    def _send(self, present: np.ndarray[tuple[int], np.dtype[np.bool_]], *, round: int, step: int) -> None:
        edges = self._edges[(round + step) % len(self._edges)]  # [E]
        lost = draw(self.seed, f"loss {step}", round=round).random(len(edges)) < self.faults.loss  # [E]
        took = draw(self.seed, f"delay {step}", round=round).geometric(1 / (1 + self.faults.delay), len(edges)) - 1
        sent = present[self._pairs[edges] % len(self.peers)] & ~lost  # [E]
        self._pair = np.concatenate([self._pair, edges[sent]])
        self._sent = np.concatenate([self._sent, np.full(int(sent.sum()), self._number)])
        self._due = np.concatenate([self._due, self._number + took[sent]])

    def _keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        self._pair, self._sent, self._due = self._pair[kept], self._sent[kept], self._due[kept]


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
        raise refuse_mix()

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the newest row of each neighbour that arrived since the last call, all with equal weights."""
        there = self.faults.present(self.peers, seed=self.seed, round=self.round)  # [N]
        models = self.flight.receive(released.values, there, round=self.round, step=self.step)
        self.step += 1
        sent = sizes(released, zstd=self.zstd)  # [N]
        self.count_bytes(sent * to_device(there, sent.device))
        self.received += torch.bincount(models.listener) - 1
        return models

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Raise an error, as a total waits for all peers."""
        del contribution, options
        raise refuse_total()


def _edges(weights: Weights) -> Ints:
    """Return the edges of one gossip step, each as receiver * N + sender."""
    matrix = weights.matrix.tocoo()
    others = (matrix.row != matrix.col) & (matrix.data != 0)
    codes: Ints = matrix.row[others].astype(np.int64) * len(weights.peers) + matrix.col[others]
    return codes
