"""Peers in one process that are killed, and what their next incarnations make of the run."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from p2pfl.algorithms import State
from p2pfl.experiment import Experiment, plan
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.incarnations import Incarnations
from p2pfl.network.peer.storage.checkpoint import CheckpointStore, Former
from p2pfl.network.transport import Transport
from p2pfl.privacy.keys import Identity, SeededSource, Source
from p2pfl.results import Record
from p2pfl.results.notices.kinds import Notice
from swarms import Ended
from waiting import wait_until


class RestartablePeers:
    """The incarnations of an experiment's peers over one transport, with their files in one folder."""

    def __init__(
        self,
        experiment: Experiment,
        transport: Transport,
        folder: Path,
        *,
        source: Source | None = None,
        again: bool = False,
        now: Callable[[], datetime] | None = None,
    ):
        """``again``: peers that could not complete a round begin again, as those of ``p2pfl run`` do."""
        self.again, self.clock = again, now
        self.experiment = experiment
        self.transport = transport
        self.folder = folder
        self.source = source or SeededSource(5)
        self.names = plan(experiment).topology.peers
        self.now: dict[str, Peer] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.ended: dict[str, Ended] = {}
        self.records: dict[str, list[Record]] = {name: [] for name in self.names}
        self.notices: list[Notice] = []
        self.count = 0

    def start(
        self, *names: str, resume: bool = False, at: int | None = None, incarnation: int | None = None, keys: int = 1
    ) -> None:
        """Begin an incarnation of each, numbered by count unless given, with identities from a seed."""
        for name in names or self.names:
            self.count += 1
            store = CheckpointStore(self.folder, name)
            anew = not resume and self.count > len(self.names)  # who comes back with nothing has lost its keys
            begin = partial(
                self._peer,
                name,
                source=SeededSource(100 + self.count) if anew else self.source,
                identity=Identity.generate(SeededSource(keys), peer=name),
                store=store,
            )
            former = store.former().at(at) if resume else None
            peer = begin(former, self.count if incarnation is None else incarnation)
            incarnations = Incarnations(begin, self._play, store, self.notices.append, peer)
            self.tasks[name] = asyncio.create_task(self._live(incarnations))

    def _peer(self, name: str, former: Former | None, incarnation: int, **given: Any) -> Peer:
        self.now[name] = Peer(
            name,
            plan(self.experiment, only=[name]),
            transport=self.transport,
            incarnation=incarnation,
            observe=lambda record, _state: self.records[record.peer].append(record),
            notice=self.notices.append,
            former=former,
            now=self.clock,
            **given,
        )
        return self.now[name]

    async def _play(self, peer: Peer) -> State:
        async with peer:
            return await peer.run()

    async def _live(self, incarnations: Incarnations) -> None:
        if self.again:
            state = await incarnations.run()
        else:
            state = await self._play(incarnations.peer)
        self.ended[incarnations.peer.name] = Ended(incarnations.peer, state, self.records[incarnations.peer.name])

    async def until(self, when: Callable[[dict[str, Peer]], bool]) -> None:
        """Wait until a condition holds of the present peers."""

        def failed():
            return [task for task in self.tasks.values() if task.done() and task.exception()]

        await wait_until(lambda: when(self.now) or failed(), "peers are where the test needs them")
        if not when(self.now):
            await failed()[0]

    async def kill(self, *names: str, silently: bool = False) -> None:
        """Kill peers at once; silently if the broker does not notice."""
        for name in names or self.names:
            channel = self.now[name].connection.channel
            if silently:
                channel.will = None
            channel.abort()
            self.tasks[name].cancel()
        await asyncio.gather(*(self.tasks[name] for name in names or self.names), return_exceptions=True)

    async def end(self) -> dict[str, Ended]:
        """Wait until all present peers have ended."""
        await asyncio.gather(*self.tasks.values())
        return self.ended


def begun(peer: Peer) -> bool:
    """Whether a peer takes part in rounds."""
    return peer.joined is not None and peer.session.shared.first is not None


class HeldTraining:
    """Trains when it is told to."""

    update = None

    def __init__(self, peer, *, round):
        self.training, self.learner, self.round = peer.training, peer.training.learner, round
        self.reached, self.go, self.seconds = asyncio.Event(), asyncio.Event(), 0.0
        peer.training = self

    def idle_clock(self):
        return self.training.idle_clock()

    async def fit(self, rows, *, round, **settings):
        if round == self.round:
            self.reached.set()
            await self.go.wait()
        return await self.training.fit(rows, round=round, **settings)
