"""Short live runs in one process, which a tap watches."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from p2pfl.algorithms import State
from p2pfl.core.encodings import Ints
from p2pfl.core.neighbourhood import Neighbourhood, Released
from p2pfl.experiment import Plan, check
from p2pfl.experiment import plan as resolve
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.worker import live
from p2pfl.network.peer.masking.mask_cover import Cover
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.rounds import FirstRound, Rounds
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.peer.storage.credentials import credentials
from p2pfl.network.transport import MemoryTransport, Transport
from p2pfl.plugins.audit.live.tap import Tapped, subtract_public
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.privacy.keys import Identity, SecretSource

DEADLINE = 120.0
"""Timeout of a short run in seconds."""


def short(
    settings: Settings,
    *,
    kind: str,
    peers: int,
    rounds: int,
    adjacency: str = "zero-out",
    algorithm: str = "fedavg",
    mode: str = "pairwise",
) -> Plan:
    """Return the plan of a short run whose models are protected by ``settings``.

    Parameters
    ----------
    settings
        Settings that protect the models.
    kind, peers
        Kind and size of the topology, which is also the mask graph.
    rounds
        Number of rounds.
    adjacency
        Adjacency of the guarantee.
    algorithm
        Name of the algorithm.
    mode
        Privacy mode, with which masks are added.
    """
    privacy: dict[str, Any] = {"mode": mode, "bits": settings.bits, "adjacency": adjacency}
    if mode == "pairwise":
        privacy |= {"mask": settings.mask} if settings.mask else {"mode": "independent", "noise": settings.noise}
    table = {
        "name": "audit",
        "rounds": rounds,
        "topology": {"kind": kind, "peers": peers},
        "data": {"name": "wine"},
        "model": {"name": "linear"},
        "learning": {"device": "cpu", "weighted": False, "algorithm": algorithm},
        "gossip": {"steps": 1},
        "privacy": privacy,
    }
    made = resolve(check(table))
    return replace(made, protection=replace(made.protection, settings=settings, found=None))


async def launch_peers(plan: Tapped, folder: Path) -> None:
    """Run all peers of a plan as ``p2pfl peer`` runs them, each with a fresh identity.

    Parameters
    ----------
    plan
        Plan that shows its releases to its tap, which also listens to the broker.
    folder
        Run directory.
    """
    (folder / "peers").mkdir(exist_ok=True)
    transport = MemoryTransport(lose=plan.tap.overhear)
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
        for name in plan.topology.peers:
            owned = credentials(plan.experiment.trust, peer=name)
            how: dict[str, Any] = {"urls": (), "folder": folder, "owned": owned, "notify": lambda _: None}
            tasks.create_task(live(plan, name, transport=transport, **how))


async def interrupt_run(plan: Tapped, folder: Path, *, round: int) -> dict[str, Mapping[Cost, int]]:
    """Kill all peers once all have sent the models of a round, and let them resume with that round, twice.

    The second time they resume from copies of their folders, with the same incarnation as the first time: so do peers
    whose disks are restored from a backup.

    Parameters
    ----------
    plan
        Plan as in :func:`launch_peers`. Releases after each restart count as another run.
    folder
        Folder of checkpoints and journals.
    round
        Round that is released once more after each restart.

    Returns
    -------
    dict
        By peer, the charges of the first incarnation and of the one that resumed first.
    """
    names = plan.topology.peers
    identities = {name: Identity.generate(SecretSource(), peer=name) for name in names}
    original, copy = folder / "original", folder / "copy"
    original.mkdir()

    def peers(transport: Transport, disk: Path, *, resume: bool) -> list[Peer]:
        stores = {name: CheckpointStore(disk, name) for name in names}
        return [
            Peer(
                name,
                plan,
                transport=transport,
                identity=identities[name],
                incarnation=2 if resume else 1,
                store=stores[name],
                former=stores[name].former().at(round) if resume else None,
            )
            for name in names
        ]

    async with asyncio.timeout(DEADLINE):
        transport = MemoryTransport()
        first = peers(transport, original, resume=False)
        tasks = [asyncio.create_task(_run(peer)) for peer in first]
        while not all(peer.mailbox.gossip_step > (round, 0) for peer in first):  # until all models arrived
            if failed := [task for task in tasks if task.done()]:
                await failed[0]
            await asyncio.sleep(0)
        for peer, task in zip(first, tasks, strict=True):
            peer.connection.channel.abort()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.copytree(original, copy)
        plan.tap.run += 1
        second = peers(transport, original, resume=True)
        await _run_all(second)
        plan.tap.run += 1
        await _run_all(peers(MemoryTransport(), copy, resume=True))
    return {peer.name: peer.meter.costs for peer in second}


@dataclass
class SettlementResult:
    """Result of a run in which one peer did not share its last mask with another.

    Attributes
    ----------
    public
        By peer, the public model after all rounds, ``[1, P]``.
    paid
        By peer, what it then released beyond that model, ``[P]`` points of the grid.
    costs
        By peer, its charges.
    """

    public: dict[str, State] = field(default_factory=dict)
    paid: dict[str, Ints] = field(default_factory=dict)
    costs: dict[str, Mapping[Cost, int]] = field(default_factory=dict)


async def overlook_mask(plan: Tapped, *, round: int) -> SettlementResult:
    """Let the first peer release a round without the mask that it shares with the second one.

    Parameters
    ----------
    plan
        Plan of at least three peers under masks.
    round
        Last round.
    """
    found, names = SettlementResult(), plan.topology.peers

    async def one(name: str, incarnation: int) -> None:
        peer = SettlingPeer(
            name,
            plan,
            transport=transport,
            incarnation=incarnation,
            observe=lambda record, state: found.public.update({record.peer: state}),
        )
        peer.settlement, peer.last = found, round
        peer.overlooks = names[1] if name == names[0] else ""
        await _run(peer)
        found.costs[name] = peer.meter.costs

    transport = MemoryTransport()
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
        for incarnation, name in enumerate(names):
            tasks.create_task(one(name, incarnation))
    return found


async def _run(peer: Peer) -> None:
    async with peer:
        await peer.run()


async def _run_all(peers: Sequence[Peer]) -> None:
    async with asyncio.TaskGroup() as group:
        for peer in peers:
            group.create_task(_run(peer))


class SettlingPeer(Peer):
    """Peer that shows what it releases after the last round; the one that ``overlooks`` another masks without it."""

    settlement: SettlementResult
    last: int
    overlooks: str

    def rounds_from(self, first: FirstRound) -> Rounds:
        """Return rounds that show what is released after the last one."""
        rounds = SettlingRounds(super().rounds_from(first).parts, first)
        rounds.settlement, rounds.last, rounds.overlooks = self.settlement, self.last, self.overlooks
        return rounds


class SettlingRounds(Rounds):
    """Rounds of a :class:`SettlingPeer`."""

    settlement: SettlementResult
    last: int
    overlooks: str

    def contested(self, net: LiveNeighbourhood, *, round: int) -> Neighbourhood:
        """Return the neighbourhood of a round; in the last one, the masks leave out the overlooked peer."""
        hiding = self.parts.hiding
        if self.overlooks and round == self.last and hiding.cover is not None:
            hiding.cover = Overlooking(hiding.cover, self.overlooks)
        return super().contested(net, round=round)

    def neighbourhood(self, round: int) -> LiveNeighbourhood:
        """Return the neighbourhood of a round; after the last one, it shows what is released."""
        net = super().neighbourhood(round)
        if round > self.last:
            mix = net.mix
            object.__setattr__(net, "mix", lambda released: self._shown(released, mix))
        return net

    async def _shown(self, released: Released, mix: Callable[[Released], Any]) -> Released:
        if released.grid is not None:
            name = self.parts.name
            self.settlement.paid[name] = subtract_public(released, self.settlement.public[name].public)
        mixed: Released = await mix(released)
        return mixed


class Overlooking(Cover):
    """Masks of a peer that takes another peer for absent."""

    def __init__(self, cover: Cover, other: str) -> None:
        super().__init__(cover.masks, cover.ledger, places=cover.places)
        self.other = other

    def partners(
        self, round: int, *, present: frozenset[str], departed: frozenset[str] = frozenset()
    ) -> frozenset[str]:
        """Return the partners without the other peer."""
        return super().partners(round, present=present - {self.other}, departed=departed - {self.other})
