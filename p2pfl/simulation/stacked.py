"""Neighbourhood of all rows at once: a sparse matrix product that never waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Self, TypedDict

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.codecs import Zstd
from p2pfl.core.draws import draw
from p2pfl.core.encodings import Ints, check_contribution, wrap
from p2pfl.core.errors import P2PFLError, PeerError, TopologyError
from p2pfl.core.neighbourhood import (
    Contribution,
    Public,
    PublicContribution,
    ReceivedModels,
    Recipient,
    Released,
    check_public,
    measure_step,
    release_bare,
    step_by_step,
)
from p2pfl.core.rows import Rows, raw
from p2pfl.experiment import Plan
from p2pfl.experiment.schema import SimulationSettings
from p2pfl.experiment.swarm_agreement import masks_of
from p2pfl.privacy.total_masks import TotalMasks
from p2pfl.simulation.mixing import Mixer, at_once
from p2pfl.simulation.sharding import Shard
from p2pfl.topology import Schedule, Topology, Tree, Weights, spanning, tree_to, weights_among


@dataclass(frozen=True)
class Faults:
    """Faults of a simulated network.

    Attributes
    ----------
    loss
        Probability that a receiver misses a neighbour's row in a gossip step.
    absence
        Probability that a peer is absent in a round: it neither sends nor receives.
    partners
        Mask graph, ``[N, N]``; a peer without any present partner is absent as well. The others settle each round
        without those that are absent, as live peers do: with weights that keep the mean of their models.
    delay
        Mean number of cycles that a row travels, geometric; for asynchronous algorithms only.
    slow, pace
        Share of slow peers, and the number of cycles of the others in one of theirs; for asynchronous algorithms only.
    cycles
        Number of its own cycles that each peer makes; ``None`` without a limit.
    """

    loss: float = 0.0
    absence: float = 0.0
    partners: scipy.sparse.csr_array | None = None
    delay: float = 0.0
    slow: float = 0.0
    pace: int = 10
    cycles: int | None = None

    @classmethod
    def of(cls, settings: SimulationSettings, *, asynchronous: bool) -> Self:
        """Return the faults of an experiment; devices slow the cycles of peers that do not wait for each other."""
        made = cls(settings.loss, settings.absence, delay=settings.delay)
        if not asynchronous or settings.devices is None:
            return made
        return replace(made, slow=settings.devices.stragglers, pace=int(settings.devices.slowdown))

    def turns(self, peers: Sized, *, seed: int, round: int) -> torch.Tensor:
        """Return the own cycle that each peer ends in a round, ``[N]`` int64; -1 if none, or none is left."""
        own, early = divmod(round + 1, self.pace)
        late = draw(seed, "slow").random(len(peers)) < self.slow  # [N]
        turns = np.where(late, -1 if early else own - 1, round)
        return torch.from_numpy(np.where(turns < (self.cycles or math.inf), turns, -1))

    def present(self, peers: Sized, *, seed: int, round: int) -> torch.Tensor:
        """Return the peers present in a round, ``[N]`` bool; a slow peer is present where a cycle of its own ends."""
        if not self.absence and not self.slow:
            return torch.ones(len(peers), dtype=torch.bool)
        there = draw(seed, "absence", round=round).random(len(peers)) >= self.absence
        if self.slow:
            there &= self.turns(peers, seed=seed, round=round).numpy() >= 0
        if self.partners is not None and not there.all():
            there &= self.partners @ there > 0
        return torch.from_numpy(there)

    def senders(self, weights: scipy.sparse.csr_array, *, seed: int, round: int, step: int) -> scipy.sparse.csr_array:
        """Return the weights of the received rows; the receiver's own row gets the weight of the others."""
        if not self.loss and not self.absence:
            return weights
        count = weights.shape[0]
        listener = np.repeat(np.arange(count), np.diff(weights.indptr))  # [E]
        sender = weights.indices
        absent = ~self.present(range(count), seed=seed, round=round).numpy()  # [N]
        lost = draw(seed, f"loss {step}", round=round).random(len(sender)) < self.loss  # [E]
        lost = (lost | absent[listener] | absent[sender]) & (listener != sender)
        data = np.where(lost, 0.0, weights.data)
        missed = np.bincount(listener, weights=np.where(lost, weights.data, 0.0), minlength=count)  # [N]
        received = scipy.sparse.csr_array((data, sender, weights.indptr), shape=weights.shape)
        received = scipy.sparse.csr_array(received + scipy.sparse.diags_array(missed))
        received.eliminate_zeros()
        received.sort_indices()
        return received


class TotalArguments(TypedDict):
    """Arguments of :class:`StackedNeighbourhood` for totals."""

    graph: Topology | Schedule
    masks: TotalMasks | None


def total_arguments(plan: Plan) -> TotalArguments:
    """Return over which edges the peers of a plan take totals, and which masks hide their contributions."""
    return {"graph": plan.topology, "masks": masks_of(plan)}


class StackedNeighbourhood:
    """One round of all peers: ``W @ Y``.

    Parameters
    ----------
    weights
        One matrix for each gossip step of a period.
    round
        Round number; gossip step ``k`` of round ``t`` uses the topology at ``t + k``.
    seed, faults
        Seed and probabilities of faults, drawn by key.
    zstd
        Compression of a row, of which only the size is used.
    graph
        Edges over which peers take totals; without it there are none.
    masks
        Masks that would hide the contributions to a total, as live peers check them; they cancel and are not drawn.
    mixer
        Products with ``weights``; the neighbourhoods of a simulation share one.
    shard
        Peers that this process simulates; all of them by default.

    Attributes
    ----------
    last
        Rows before and after the last gossip step, until ``distance`` is read.
    postponed
        Checks that wait for the device, until :meth:`check` runs them; ``None`` if each runs at once.
    """

    def __init__(
        self,
        weights: Sequence[Weights],
        *,
        round: int,
        seed: int,
        faults: Faults | None = None,
        zstd: Zstd | None = None,
        graph: Topology | Schedule | None = None,
        masks: TotalMasks | None = None,
        mixer: Mixer | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.weights = weights
        self.shard = shard or Shard(weights[0].peers)
        self.mixer = mixer or Mixer(weights)
        self.graph = graph
        self.masks = masks
        self.round = round
        self.seed = seed
        self.faults = faults or Faults()
        self.zstd = zstd
        self.step = 0
        self.postponed: list[Callable[[], None]] | None = None
        self._bytes_out = torch.zeros(len(self.peers), dtype=torch.int64)
        self._sizes = list[torch.Tensor]()
        self.received = torch.zeros(len(self.peers), dtype=torch.int64)
        self.last: tuple[Released, Released] | None = None
        self._distance = torch.zeros(len(self.peers), dtype=torch.float64)

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the R peers that this process simulates."""
        return self.shard.peers

    @property
    def everyone(self) -> tuple[str, ...]:
        """Names of all peers."""
        return self.weights[0].peers

    @property
    def bytes_out(self) -> torch.Tensor:
        """Bytes that each peer has sent, ``[R]`` int64; reading it waits for the device."""
        while self._sizes:
            self._bytes_out += self._sizes.pop().cpu()
        return self._bytes_out

    def count_bytes(self, sizes: torch.Tensor) -> None:
        """Count the bytes that each peer sends, ``[R]``; those that a device computes are read later."""
        if sizes.device.type == "cpu":
            self._bytes_out += sizes
        else:
            self._sizes.append(sizes)

    def check_later(self, check: Callable[[], None]) -> None:
        """Postpone a check to the end of the round, if somebody then calls :meth:`check`."""
        if self.postponed is None:
            check()
        else:
            self.postponed.append(check)

    def check(self) -> None:
        """Run the postponed checks in their order, which waits for the device."""
        checks, self.postponed = self.postponed or [], None
        for check in checks:
            check()

    @property
    def distance(self) -> torch.Tensor:
        """Distance by which the last gossip step moved each model, ``[N]`` float64; zero before the first.

        It is computed when it is read, which takes as long as a gossip step and happens once per round. Until then
        ``last`` holds the rows before and after the step, and nothing may change them in place.
        """
        if self.last is not None:
            before, after = self.last
            self._distance, self.last = measure_step(Released(before.level, before.masses), after), None
        return self._distance

    def record_step(self, before: Released, after: Released) -> None:
        """Store the rows before and after a gossip step, from which ``distance`` is computed."""
        self.last = before, after

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release the rows without protection."""
        check_public(since, "since")  # as in protected neighbourhoods
        return release_bare(rows, masses)

    async def mix(self, released: Released) -> Released:
        """Replace every row by the weighted average of the rows that its peer receives."""
        self.last = None  # frees the rows before the step before
        matrix = self._exchange(released)
        mixed = self.shard.mixed(self.mixer, matrix, released.values)  # [R, P]
        after = Released(mixed, self.mix_masses(matrix, released.masses))
        self.record_step(released, after)
        return after

    def mix_steps(self, released: Released, omegas: Sequence[float]) -> Coroutine[Any, Any, Released]:
        """Take several gossip steps: all but the last as one product where that is faster."""
        if self._is_constant and at_once(self.weights[0].matrix, steps=len(omegas) - 1):
            return self._mix_at_once(released, omegas)
        return step_by_step(self, released, omegas)

    async def _mix_at_once(self, released: Released, omegas: Sequence[float]) -> Released:
        matrix, early = self.weights[0].matrix, tuple(omegas[:-1])
        now = self.mixer.power(matrix, early, like=released.values)(released)
        self._account(released, matrix)
        self._account(now, matrix, times=len(early) - 1)
        if omegas[-1] == 1:
            del released  # frees these rows before the last step allocates their successors
            return await self.mix(now)
        previous = self.mixer.power(matrix, early[:-1], like=released.values)(released)
        del released
        return (await self.mix(now)).combine(omegas[-1], 1 - omegas[-1], previous)

    @property
    def _is_constant(self) -> bool:
        """True if all gossip steps have the same weights, and cost bytes that do not depend on the numbers."""
        faults = self.faults
        return (
            type(self).mix is StackedNeighbourhood.mix
            and len(self.weights) == 1
            and self.shard.workers == 1
            and not (faults.loss or faults.absence or self.zstd)
        )

    def mix_masses(self, matrix: scipy.sparse.csr_array, masses: torch.Tensor | None) -> torch.Tensor | None:
        """Return the sample weights after a gossip step, ``[R, 1]``; ``None`` if there are none."""
        if masses is None:
            return None
        near = self.shard.near(matrix, masses)
        return torch.from_numpy(near.matrix @ near.rows.numpy())

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the received rows, as edges."""
        near = self.shard.near(self._exchange(released), released.values)
        matrix = near.matrix
        listener = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))  # [E]
        return ReceivedModels(
            near.rows,
            torch.from_numpy(listener).long(),
            torch.from_numpy(matrix.indices).long(),
            torch.from_numpy(matrix.data),
            near.peers,
        )

    async def total(
        self,
        contribution: Contribution,
        *,
        size: int,
        bits: int = 64,
        change: float | None = None,
        to: Recipient | None = None,
    ) -> Ints:
        """Add up what the peers that are present contribute; masks would cancel and are not drawn.

        Raises
        ------
        TopologyError
            There is no graph, or the peers that are present are not connected.
        PrivacyError
            An integer is so large that a total could wrap around, or masks could not hide the contributions.
        """
        del change
        if self.graph is None:
            raise TopologyError("totals are taken over the edges of a graph; give this neighbourhood one")
        there = self.faults.present(self.everyone, seed=self.seed, round=self.round).tolist()
        present = tuple(compress(self.everyone, there))
        if to is None:
            tree, among = spanning(self.graph, among=present), present
            if self.masks is not None and not isinstance(contribution, PublicContribution):
                self.masks.check(among)
        else:
            among = self.everyone if to.among is None else to.among
            if missing := sorted({to.peer, *among} - {*present}):
                raise PeerError(
                    f"{to.peer} cannot receive a total while {missing[0]} is missing; start {missing[0]} again"
                )
            tree = tree_to(self.graph, root=to.peer, among=among)
            if self.masks is not None and not isinstance(contribution, PublicContribution):
                self.masks.check_recipient(to.peer, among)
        here, refused = {*self.peers}, None
        total = np.zeros(size, np.int64)  # [K]
        try:
            for peer in (each for each in among if each in here):
                values = contribution(peer)  # [K]
                participants = len(among) if to is None else None
                check_contribution(values, peer=peer, size=size, participants=participants, bits=bits)
                total += values
        except P2PFLError as error:  # processes that wait for this one must know
            refused = error
        total = self.shard.total(total, refused=refused)
        self._count_total(tree, size=size, bits=bits, down=to is None)
        if to is None:
            return total
        if to.peer in here:
            to.take(wrap(total, bits))
        return np.zeros(0, np.int64)

    def _count_total(self, tree: Tree, *, size: int, bits: int, down: bool) -> None:
        """Count the bytes of a total: one up of everybody but the root, one down of everybody with children."""
        sent = [(peer in tree.parents) + (down and bool(tree.children(peer))) for peer in self.peers]
        self.count_bytes(torch.tensor(sent) * (size * bits // 8))

    def _exchange(self, released: Released) -> scipy.sparse.csr_array:
        """Return the weights of this gossip step, and count its bytes."""
        weights = self.weights[(self.round + self.step) % len(self.weights)]
        present = self.faults.present(self.everyone, seed=self.seed, round=self.round)  # [N]
        if self.faults.partners is not None and self.graph is not None and not present.all():
            members = tuple(compress(self.everyone, present.tolist()))
            matrix = weights_among(self.graph.at(self.round + self.step), weights, members).matrix
        else:
            matrix = self.faults.senders(weights.matrix, seed=self.seed, round=self.round, step=self.step)
        self._account(released, matrix)
        return matrix

    def _account(self, released: Released, matrix: scipy.sparse.csr_array, *, times: int = 1) -> None:
        """Count gossip steps, their bytes and the models that peers receive in them."""
        self.step += times
        self.count_bytes(times * sizes(released, zstd=self.zstd))
        self.received += times * (self.shard.own(torch.from_numpy(np.diff(matrix.indptr))) - 1)


def sizes(released: Released, *, zstd: Zstd | None, margin: float = 0.0) -> torch.Tensor:
    """Return the bytes of a peer's numbers on the wire, ``[N]``: integers travel in four bytes where they fit.

    Those of integers are on the device of the rows, and all others on the CPU. Integers may be larger by ``margin``.
    """
    count = len(released.rows)
    if zstd is not None:
        return torch.tensor([_compressed_size(released, index, zstd=zstd) for index in range(count)])
    if released.coded is not None:
        return torch.full((count,), released.coded.size)
    length = released.rows.shape[-1] * released.rows.element_size()
    if released.grid is None:
        return torch.full((count,), length)
    low, high = released.rows.amin(-1), released.rows.amax(-1)  # [N]
    bounds = torch.iinfo(torch.int32)
    return torch.where((low >= bounds.min + margin) & (high <= bounds.max - margin), length // 2, length)


def _compressed_size(released: Released, index: int, *, zstd: Zstd) -> int:
    """Return the bytes of one row after compression; it travels uncompressed if that is no larger."""
    data = raw(released.row(index))
    return min(len(data), len(zstd.squeeze(data)))
