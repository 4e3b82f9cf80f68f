"""Devices of a fleet in one process, for tests: each plays its run and those that follow it, as ``p2pfl peer`` does."""

import asyncio
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial

from p2pfl.cli import folders
from p2pfl.cli.running.following import experiment_in, following
from p2pfl.core.errors import SwarmMovedError
from p2pfl.experiment import plan, read
from p2pfl.experiment.changed_run import settings_of
from p2pfl.experiment.swarm_change import SwarmChange, run_digest
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.incarnations import Incarnations
from p2pfl.network.peer.launch.worker import earlier
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.wire.message_codec import change_topic
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import FIRST, Identity, Roster, SeededSource
from p2pfl.results import Run
from p2pfl.results.lock import PEER_LOCK

OPERATOR = Identity(bytes(range(32)))
BEGAN = datetime(2030, 1, 1, tzinfo=UTC)

DEVICE = ContextVar("device", default="")
"""Name of the device whose code is running."""

PATIENCE = 300.0
"""Seconds of virtual time for which a test waits for a device."""


def identity(name):
    return Identity(name.encode().ljust(32, b"."))


def roster_of(names):
    return Roster({name: identity(name).public for name in names}, operator=OPERATOR.public)


class Devices:
    """Devices over one broker in virtual time.

    Parameters
    ----------
    folder
        Folder of their run directories, keys and rosters.
    """

    def __init__(self, folder):
        self.folder, self.transport = folder, MemoryTransport()
        self.starts, self.notices, self.peers, self.begun = 0, [], {}, {}

    def experiment(self, table, names, *changes):
        """Return an experiment of these devices, with their roster."""
        path = self.folder / f"{'-'.join(names)}.toml"
        roster_of(names).write(path)
        named = [f"topology.peers={[*names]!r}", f"trust.roster='{path}'", *changes]
        return read(table, changes=named)

    def runs(self, name):
        """Return the run directories of a device, the oldest first."""
        return sorted((self.folder / name).glob("*/"))

    async def play(self, name, experiment):
        """Play the run of a device, or go on with it, and those that follow; return the last peer."""
        DEVICE.set(name)
        runs = self.runs(name)
        last = runs[-1] if runs else None
        if last is not None and (file := experiment_in(last)) is not None:
            experiment = read(file)
        while True:
            left, peer = False, None
            if last is None or not folders.has_ended(last):
                last = last or self._new(name, experiment)
                try:
                    peer = await self._one(name, experiment, last)
                except SwarmMovedError:
                    left = True
                else:
                    (last / "summary.json").write_text("{}")
            follows = following(last, peer=name, left=left)
            if follows is None:
                return peer
            file, last = follows
            experiment = read(file)

    def _new(self, name, experiment):
        now = BEGAN + timedelta(seconds=len(self.runs(name)))
        folder = self.folder / name / f"{experiment.name}-{now:%Y%m%d-%H%M%S}-{name}"
        folder.mkdir(parents=True)
        Run(experiment, folder=folder)
        (folder / PEER_LOCK).touch()
        self.begun.setdefault(name, []).append(folder)
        self.peers.pop(name, None)
        return folder

    async def _one(self, name, experiment, folder):
        resolved, store = plan(experiment, only=[name]), CheckpointStore(folder / "peers", name)
        self.starts += 100

        def begin(former, incarnation):
            peer = self.peers[name] = Peer(
                name,
                resolved,
                transport=self.transport,
                source=SeededSource(self.starts),
                identity=identity(name),
                trust=Roster.read(experiment.trust.roster),
                incarnation=incarnation,
                notice=self.notices.append,
                store=store,
                former=former,
            )
            peer.training.count = partial(trained, peer.training.count)
            return peer

        def trained(count, *counted):
            asyncio.get_event_loop().spent(1.0)  # in a thread, so that a round takes a second
            count(*counted)

        async def play(peer):
            async with peer:
                return await peer.run()

        former = earlier(folder, name, notify=self.notices.append)
        lives = Incarnations(begin, play, store, self.notices.append, begin(former, FIRST + self.starts))
        await lives.run()
        return lives.peer

    def order(self, before, after, *, last, names, roster=None, number=1):
        """Return what the operator orders for the run of an experiment."""
        run = run_digest(self.peers[names[0]].me.facts)
        made = SwarmChange(
            swarm=before.name,
            number=number,
            run=run,
            settings=settings_of(after),
            roster=roster_of(roster or names).text,
            last=last,
        )
        return made.signed(OPERATOR)

    async def publish(self, change):
        async with self.transport.join("operator") as channel:
            await channel.publish(change_topic(change.swarm), change.encode(), retain=True)

    async def until(self, name, *, round, run=0):
        """Wait until a device has played some rounds of one of its runs."""
        async with asyncio.timeout(PATIENCE):
            while not self._played(name, round=round, run=run):  # noqa: ASYNC110 (virtual time)
                await asyncio.sleep(0.1)  # of virtual time

    def _played(self, name, *, round, run):
        return len(self.begun.get(name, [])) > run and name in self.peers and self.peers[name].done >= round
