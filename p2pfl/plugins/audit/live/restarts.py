"""Attacks on short live runs: releases before and after a restart."""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.experiment import Plan, check
from p2pfl.experiment import plan as resolve
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.worker import live
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.peer.storage.credentials import credentials
from p2pfl.network.transport import MemoryTransport, Transport
from p2pfl.plugins.audit import statistical_tests
from p2pfl.plugins.audit.claims import LIVE, ExactClaim, claim
from p2pfl.plugins.audit.live.tap import (
    EncryptionRecord,
    Tap,
    TappedPlan,
    TappedRelease,
    record_ciphers,
)
from p2pfl.plugins.audit.noise_claims import Noise
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.privacy.keys import Identity, SecretSource

Result = TypeVar("Result")

RING_PEERS = 6
"""Number of peers of the watched ring, in which neighbours share masks."""

ROUND_COUNT = 10
"""Number of rounds of each run."""

RELEASE_SIZE = 4096
"""Length of a release."""

REPEATED_ROUND = 1
"""Round that is released again after a restart."""

PAYLOAD_BLOCK = 16
"""Length in bytes of the blocks of payload that no two runs may share."""


def check_releases(settings: Settings, *, rounds: int = ROUND_COUNT) -> list[ExactClaim]:
    """Run the same peers twice, and once more with a restart, and check all their releases.

    Parameters
    ----------
    settings
        Settings that protect the models.
    rounds
        Number of rounds of each of the first two runs.
    """
    tap, sealed = Tap(), EncryptionRecord()
    plan = TappedPlan.of(short(settings, kind="ring", peers=RING_PEERS, rounds=rounds), tap, size=RELEASE_SIZE)
    brief = TappedPlan.of(
        short(settings, kind="ring", peers=RING_PEERS, rounds=REPEATED_ROUND + 2), tap, size=RELEASE_SIZE
    )
    with record_ciphers(lambda *encrypted: sealed.note(tap.run, *encrypted)):
        for run in range(2):
            tap.run = run
            _run_in_folder(lambda folder: launch_peers(plan, folder))
        tap.run = 2
        costs = _run_in_folder(lambda folder: interrupt_run(brief, folder, round=REPEATED_ROUND))
    peers = plan.topology.peers
    before, after, again = (np.array(_turns(tap.table(runs), peers)) for runs in ([2], [3], [4]))
    return [
        *_check_noise(np.array(_turns(tap.table([0, 1]), peers)), settings),
        *_check_freshness(before, after, settings),
        *_check_freshness(np.concatenate([before, after]), again, settings, of=" from a copy"),
        *([_check_charges(tap.table([2, 3]), costs, brief)] if brief.protection.claimed else []),
        claim(LIVE, "live peers draw new keys", len(tap.keys[0] & tap.keys[1])),
        fresh_bytes(tap),
        *sealings(sealed),
    ]


def sealings(sealed: EncryptionRecord) -> list[ExactClaim]:
    """Check the keys and nonces under which peers encrypted, in two runs and over restarts.

    Parameters
    ----------
    sealed
        Record of what peers encrypted. Runs 0 and 1 are two runs of one experiment; in run 2 they are killed, and
        they resume in run 3, and in run 4 once more from a copy.
    """
    shared = len(sealed.keys(0) & sealed.keys(1)) if sealed.keys(0) and sealed.keys(1) else math.inf
    return [
        claim(LIVE, "live peers encrypt under new keys", shared),
        claim(LIVE, "no key and nonce encrypt twice", sealed.count_repeats()),
    ]


def fresh_bytes(tap: Tap) -> ExactClaim:
    """Compare the payloads of two runs, block by block."""
    first, second = (
        {
            frame[start : start + PAYLOAD_BLOCK]
            for frame in tap.frames[run]
            for start in range(64, len(frame) - PAYLOAD_BLOCK, PAYLOAD_BLOCK)
        }
        - {bytes(PAYLOAD_BLOCK)}  # padding of the message that tests whether a broker accepts large ones
        for run in range(2)
    )
    return claim(LIVE, "live peers seal anew", len(first & second))


def _check_charges(
    releases: Sequence[TappedRelease], costs: Mapping[str, Mapping[Cost, int]], plan: Plan
) -> ExactClaim:
    """Check that every release is charged, including those that a restart repeats."""
    cost = plan.protection.cost.mu
    made = Counter(
        each.peer for each in releases if each.run == releases[-1].run or each.round <= REPEATED_ROUND
    )  # and sent
    lacking = max(
        made[name] - sum(count * each.mu**2 for each, count in spent.items()) / cost**2 for name, spent in costs.items()
    )
    return claim(LIVE, "every release is charged", lacking, 1e-9)


def _check_noise(points: Ints, settings: Settings) -> list[ExactClaim]:
    """Check the releases ``[turns, N, P]`` and, where masks cancel over the ring, the noise that remains."""
    unit, count = 2.0**settings.bits, points.shape[1]
    whole = math.hypot(settings.noise, math.sqrt(2) * settings.mask) * unit
    rows = points.reshape(-1, points.shape[-1])
    ring = count if settings.mask else 1
    what = "mask" if not settings.noise else "mask with noise" if settings.mask else "private noise"
    claims = Noise(what, LIVE, rows, whole, ring).claims()
    if settings.mask:
        left = points.sum(axis=1)  # [turns, P]: masks cancel
        if settings.noise:
            claims += Noise("private noise", LIVE, left, settings.noise * unit * math.sqrt(count)).claims()
        else:
            claims.append(claim(LIVE, "live masks cancel", np.abs(left).max()))
    return claims


def _check_freshness(before: Ints, after: Ints, settings: Settings, *, of: str = "") -> list[ExactClaim]:
    """Predict the releases after a restart, or one ``of`` a kind, from those before it, ``[turns, N, P]`` each.

    Each must have masks and noise of its own.
    """
    unit, count = 2.0**settings.bits, after.shape[1]
    whole = math.hypot(settings.noise, math.sqrt(2) * settings.mask) * unit
    earlier, later = (points.reshape(-1, points.shape[-1]) for points in (before, after))
    claims = [claim(LIVE, "releases after a restart{of} are fresh", *_predict(earlier, later, expected=whole), of=of)]
    if settings.mask and settings.noise:
        old, new = before.sum(axis=1), after.sum(axis=1)  # [turns, P]: masks cancel
        shares = _predict(old, new, expected=settings.noise * unit * math.sqrt(count))
        claims.append(claim(LIVE, "noise after a restart{of} is fresh", *shares, of=of))
    return claims


def _predict(old: Ints, new: Ints, *, expected: float) -> tuple[float, float]:
    """Return the largest share of a row's deviation that other rows explain, and the share that may be chance."""
    rows = old.T.astype(np.float64)  # [P, K]
    targets = new.T.astype(np.float64)  # [P, M]
    left = targets - rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]
    freedom = rows.shape[0] - rows.shape[1]
    deviations = np.sqrt(np.square(left).sum(axis=0) / freedom)  # [M]
    lacking = float(1 - deviations.min() / expected)
    return lacking, statistical_tests.normal(tests=len(new)) / math.sqrt(2 * freedom)


def _turns(releases: Sequence[TappedRelease], peers: Sequence[str]) -> list[list[Ints]]:
    """Return the points of all peers for each run and round that all of them released, in the order of ``peers``."""
    turns: dict[tuple[int, int], dict[str, Ints]] = {}
    for each in releases:
        turns.setdefault((each.run, each.round), {})[each.peer] = each.points
    return [[points[peer] for peer in peers] for points in turns.values() if len(points) == len(peers)]


def _run_in_folder(run: Callable[[Path], Coroutine[Any, Any, Result]]) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder)))


RUN_TIMEOUT = 120.0
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
    return replace(made, protection=replace(made.protection, settings=settings, calibrated=None))


async def launch_peers(plan: TappedPlan, folder: Path) -> None:
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
    async with asyncio.timeout(RUN_TIMEOUT), asyncio.TaskGroup() as tasks:
        for name in plan.topology.peers:
            owned = credentials(plan.experiment.trust, peer=name)
            running = live(plan, name, urls=(), folder=folder, transport=transport, owned=owned, notify=lambda _: None)
            tasks.create_task(running)


async def interrupt_run(plan: TappedPlan, folder: Path, *, round: int) -> dict[str, Mapping[Cost, int]]:
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

    async with asyncio.timeout(RUN_TIMEOUT):
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


async def _run(peer: Peer) -> None:
    async with peer:
        await peer.run()


async def _run_all(peers: Sequence[Peer]) -> None:
    async with asyncio.TaskGroup() as group:
        for peer in peers:
            group.create_task(_run(peer))
