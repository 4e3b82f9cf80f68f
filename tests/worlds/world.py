"""One seed, one history: the peers of a swarm in a world of their own."""

from __future__ import annotations

import asyncio
import gc
import zlib
from collections import Counter, deque
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from p2pfl.algorithms import State
from p2pfl.core.draws import draw
from p2pfl.core.errors import P2PFLError, StorageError
from p2pfl.core.rows import raw
from p2pfl.experiment import Plan
from p2pfl.network.peer import Peer
from p2pfl.network.peer.masking.round_attempts import MAX_ATTEMPTS
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import decode
from p2pfl.network.transport.channel import KEEPALIVE
from p2pfl.network.transport.lasting import LastingTransport
from p2pfl.network.virtual.clock import WHO, StuckError
from p2pfl.network.virtual.timed_learner import Timed
from p2pfl.network.virtual.virtual_network import NOBODY
from p2pfl.privacy.keys import Roster, SeededSource
from p2pfl.results import Record
from p2pfl.results.notices.kinds import JoinsLate, Notice
from worlds.disk import Mounted, WorldDisk
from worlds.faults import DISKS, Death, History
from worlds.insiders import Insider, meddle
from worlds.invariants import InvariantError, Watch
from worlds.keys import FastIdentity
from worlds.network import FaultyLoop, FaultyTransport
from worlds.settings import Setting
from worlds.verdict import End, Ended, verdict

FOLDER = Path("peers")
"""Where every peer has its files, on its own disk."""

ANOTHER = 2**40
"""Between the seeds of two lives' secrets."""

MOST_EVENTS = 2_000_000
"""Callbacks of a world that still goes somewhere."""

RECENT = 64
"""Messages that a stranger remembers, to repeat them."""


Entry = tuple[float, str, str, str, str | bytes]
"""Entry of a log: the time, the kind of event, the peer, the topic, and a detail or payload."""


def line_of(entry: Entry) -> str:
    """Return an entry of a log as a line, which a few worlds of many need."""
    when, kind, who, topic, detail = entry
    if isinstance(detail, bytes):
        size = f"{len(detail)} " if kind == "accept" else ""
        detail = f"{size}{zlib.crc32(detail):08x}"
    return f"{when:.9f} {kind} {who} {topic} {detail}"


@dataclass(frozen=True)
class Outcome:
    """What became of a world.

    Attributes
    ----------
    seed, setting, kinds
        Which it was, and which kinds of fault it had.
    failure
        What must not have happened, empty if all is well.
    entries
        All that happened on the network, and to whom.
    events, seconds
        Callbacks that ran, and virtual seconds that passed.
    faults
        How often which happened.
    """

    seed: int
    setting: Setting
    kinds: frozenset[str]
    failure: str
    entries: tuple[Entry, ...]
    events: int
    seconds: float
    faults: Counter[str]

    @property
    def log(self) -> list[str]:
        """The entries as lines."""
        return [line_of(entry) for entry in self.entries]

    @property
    def digest(self) -> str:
        """A checksum of the log."""
        return f"{zlib.crc32(chr(10).join(self.log).encode()):08x}"


@dataclass
class Life:
    """A process of a peer.

    Attributes
    ----------
    joined
        Whether it is connected to the broker.
    announced
        When it first announced itself.
    """

    peer: Peer
    task: asyncio.Task[None]
    disk: Mounted | None
    joined: bool = False
    announced: float | None = None


class World:
    """A swarm, its network, and what goes wrong.

    Parameters
    ----------
    seed
        Of all that is drawn.
    setting, plan
        What the peers do.
    history
        What goes wrong.
    insiders
        Malicious members of rounds that are settled, by name.
    """

    def __init__(
        self, seed: int, setting: Setting, plan: Plan, history: History, *, insiders: Sequence[Insider] = ()
    ) -> None:
        self.seed = seed
        self.setting = setting
        self.plan = plan
        self.history = history
        self.entries: list[Entry] = []
        self.faults: Counter[str] = Counter()
        self.ended = {name: Ended() for name in plan.topology.peers}
        self.loop = FaultyLoop(history.clocks)
        self.transport = FaultyTransport(
            self.loop, history.conditions, seed=seed, restarts=history.restarts, log=self._log
        )
        self.transport.received = self._overhear
        self.transport.said = said = dict[str, set[bytes]]()
        self.watch = Watch(said, settles=setting.settles, insiders={each.peer: each for each in insiders})
        self.transport.meddle = partial(meddle, insiders)
        for insider in insiders:
            self.faults[f"insiders: {insider.fault}"] += 1
            self.faults["insiders that collude with the broker"] += insider.colludes
        self.source = SeededSource(seed)
        names = plan.topology.peers
        self.identities = {name: FastIdentity.generate(self.source, peer=name) for name in names}
        self.roster = Roster({name: identity.public for name, identity in self.identities.items()})
        kept = DISKS & history.kinds or setting.settles  # who votes must not forget
        self.disks = {name: self._disk(name) for name in names} if kept else {}
        self._lives: dict[str, Life] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._parted: dict[str, float] = {}  # when the broker had the goodbye of somebody who is not gone yet
        self._expected = 0  # lives that are still to begin
        self._over = asyncio.Event()
        self._ran: Counter[str] = Counter()
        self._deaths = {(death.peer, death.event): death for death in history.deaths}
        self._forgeries = deque(history.forgeries)
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=RECENT)
        self._accepted = 0
        self._random = draw(seed, "world stranger")
        self.bound = self._bound()

    def _bound(self) -> float:
        """Virtual seconds in which everybody has ended: each exchange waits for each other peer at most."""
        settings, plan = self.plan.experiment, self.plan
        gossip_steps = (settings.horizon + 2) * (plan.gossip.steps + 2 * plan.flood_steps + 2)
        each = 2 * settings.transport.patience * (len(plan.topology.peers) + 1) + max(self.history.takes.values())
        again = sum(settings.transport.gathering.seconds + 60.0 + (death.back or 0.0) for death in self.history.deaths)
        again += sum(settings.transport.gathering.seconds + 60.0 for _ in self.history.full)
        attempts = MAX_ATTEMPTS if plan.commits else 1
        return 1.2 * (
            self.history.quiet + settings.transport.gathering.seconds + again + attempts * gossip_steps * each
        )

    def run(self) -> Outcome:
        """Let it happen."""
        self.loop.after = self._after
        failure = ""
        gc.disable()  # asynchronous generators that it finds run callbacks, when other worlds of the process decide
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                try:
                    runner.run(self._happen())
                finally:
                    self.loop.after = None
        except (InvariantError, StuckError) as error:
            failure = str(error)
        finally:
            gc.enable()
        return Outcome(
            self.seed,
            self.setting,
            self.history.kinds,
            failure or self._verdict(),
            tuple(self.entries),
            self.loop.events,
            self.loop.now,
            self.faults + self.transport.counts + self._stored(),
        )

    def _disk(self, name: str) -> WorldDisk:
        full = tuple((each.at, each.at + each.seconds) for each in self.history.full if each.peer == name)
        lies = "torn writes" in self.history.kinds
        return WorldDisk(self.loop, seed=self.seed, name=name, full=full, lies=lies)

    def _stored(self) -> Counter[str]:
        disks = self.disks.values()
        return Counter({"full disks": sum(d.refused for d in disks), "torn writes": sum(d.cut for d in disks)})

    async def _happen(self) -> None:
        for name in self.plan.topology.peers:
            self._begin(name)
        for pause in self.history.pauses:
            self.loop.call_at(pause.at, self._pause, pause.peer, pause.seconds, context=NOBODY)
        await self._over.wait()

    def _begin(self, name: str) -> None:
        """Start a process, which goes on from what it finds on its disk."""
        ended = self.ended[name]
        ended.lives += 1
        ended.error, ended.killed, ended.age = None, False, 0.0
        ended.words.clear()
        disk = Mounted(self.disks[name]) if self.disks else None
        peer = self._peer(name, ended, disk)
        context = Context()
        context.run(WHO.set, name)
        task = self.loop.create_task(self._life(peer, ended), context=context)
        self._lives[name] = Life(peer, task, disk)
        self._running.add(task)
        task.add_done_callback(self._finished, context=NOBODY)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not self._running and not self._expected:
            self._over.set()

    def _again(self, name: str, after: float) -> None:
        """Start the next process of a peer in a while."""
        self._expected += 1

        def begin() -> None:
            self._expected -= 1
            self._log("again", name, "", "")
            self._begin(name)

        self.loop.call_at(self.loop.now + after, begin, context=NOBODY)

    def _peer(self, name: str, ended: Ended, disk: Mounted | None) -> Peer:
        learner = Timed(self.plan.learner, takes=lambda peer, _: self.history.takes[peer], spend=self.loop.spent)
        store = None if disk is None else CheckpointStore(FOLDER, name, disk=disk)
        former = store.former() if store is not None and ended.lives > 1 else None
        if former is None or not former.kept:
            ended.last, ended.trained = None, False
        peer = Peer(
            name,
            replace(self.plan, learner=learner),
            transport=LastingTransport([self.transport]),
            source=SeededSource(self.seed + (ended.lives - 1) * ANOTHER),
            identity=self.identities[name],
            trust=self.roster,
            incarnation=ended.lives,
            observe=lambda record, state: self._observed(ended, record, state),
            notice=lambda notice: self._heard(ended, notice),
            store=store,
            former=former,
        )
        self.watch.adopt(peer)
        return peer

    async def _life(self, peer: Peer, ended: Ended) -> None:
        name, life = peer.name, self._lives[peer.name]
        try:
            async with peer:
                life.joined = True
                self.watch.joined(peer)
                try:
                    ended.state = await peer.run()
                finally:
                    end = self._parted.pop(name, self.loop.now)
                    ended.spans.append((end if life.announced is None else life.announced, end))
                ended.planned = self._planned(peer)
                self._log("done", name, "", f"{zlib.crc32(raw(ended.state.rows[0])):08x}")
        except P2PFLError as error:
            ended.error = error
            killed = name in self.watch.dead  # it is started again, or not, whatever it dies of
            self.watch.dead.add(name)
            self._log("failed", name, "", str(error))
            if not killed and self.disks and isinstance(error, StorageError):
                self._again(name, max(1.0, self.history.quiet - self.loop.now))

    def _planned(self, peer: Peer) -> bool:
        """Whether a peer had all the edges and masks that were planned, to its end."""
        cover = peer.hiding.cover
        return peer.session.edges.topology is self.plan.topology and not (cover is not None and cover.charged)

    def _observed(self, ended: Ended, record: Record, state: State) -> None:
        """A round has ended."""
        if self.setting.settles:
            self.watch.settled.ended(self.watch.peers[record.peer], record.round, state.rows)
        ended.missed += len(record.missed)
        ended.rounds.append(record.round)
        ended.rows = {round: row for round, row in ended.rows.items() if round < record.round}  # a life may go back
        ended.rows[record.round] = state.rows[0].numpy()
        age = float(state.extra["age"][0, 0]) if self.setting.asynchronous else 0.0
        if age < ended.age:
            self.watch.fail(f"the age of the row of {record.peer} fell from {ended.age:g} to {age:g}")
        ended.age = age
        ended.last = state
        ended.trained |= record.training_loss is not None

    def _heard(self, ended: Ended, notice: Notice) -> None:
        ended.left.append(notice)
        ended.words.append(notice)
        ended.late |= isinstance(notice, JoinsLate)
        self._log("notice", notice.peer, "", msgspec.json.encode(notice).decode())

    def _log(self, kind: str, who: str, topic: str, detail: str | bytes) -> None:
        self.entries.append((self.loop.now, kind, who, topic, detail))

    # ------------------------------------------------------------------ what goes wrong

    def _after(self, who: str) -> None:
        if who:
            ran = self._ran[who] = self._ran[who] + 1
            if (who, ran) in self._deaths:
                self._kill(self._deaths.pop((who, ran)))
            life = self._lives[who]
            if life.announced is None:
                self._announced(life)
        self.watch.after(who)
        if self.loop.now > self.bound or self.loop.events > MOST_EVENTS:
            waiting = {name: str(life.peer.progress) for name, life in self._lives.items() if not life.task.done()}
            raise InvariantError(f"after {self.loop.now:.0f} s these have not ended: {waiting}")

    def _announced(self, life: Life) -> None:
        """Note when a process has announced itself: before, it checks its name, and nobody can meet it."""
        if life.joined and life.peer.phase != "joining":
            life.announced = self.loop.now

    def _kill(self, death: Death) -> None:
        """End a process; its device, too, if its power goes."""
        name, life, ended = death.peer, self._lives[death.peer], self.ended[death.peer]
        if name in self.watch.dead or life.task.done() or ended.state is not None:
            return
        back = death.back if self.disks else None
        self.faults["deaths" if back is None else "crashes"] += 1
        ended.killed = back is None
        self.watch.dead.add(name)
        self._log("death", name, "", "silent" if death.silent else "")
        for channel in [each for each in self.transport.broker.channels.values() if each.who == name]:
            if death.silent:
                channel.lose_power()
            else:
                channel.abort()
        if life.joined:
            life.peer.connection.channel.abort()  # it does not join again
        life.task.cancel()
        if life.disk is not None:
            life.disk.gone()
            self.disks[name].crash(power=death.silent)
        if back is not None and death.bare:
            self.faults["lost disks"] += 1
            self.watch.settled.lost = True
            self.disks[name] = self._disk(name)
        if back is not None:
            self._again(name, back)

    def _pause(self, name: str, seconds: float) -> None:
        self.faults["pauses"] += 1
        self._log("pause", name, "", f"{seconds:.3f}")
        self.loop.pause(name, seconds)
        if seconds > 1.5 * KEEPALIVE:  # who stands still says no keepalive either
            for channel in [each for each in self.transport.broker.channels.values() if each.who == name]:
                when = self.loop.now + 1.5 * KEEPALIVE
                self.loop.call_at(when, channel.lose, "nothing came any more", context=NOBODY)

    def _overhear(self, who: str, topic: str, data: bytes) -> None:
        """Note who says goodbye; a stranger listens, and speaks when its time has come."""
        if not who:
            return
        if data and topic.endswith(f"/{who}/state"):
            said = decode(data)
            if isinstance(said, Announcement) and said.status == "left":
                self._parted[who] = self.loop.now
        self._recent.append((topic, data))
        self._accepted += 1
        while self._forgeries and self._forgeries[0].after <= self._accepted:
            forgery = self._forgeries.popleft()
            topic, data = self._forged(forgery.kind)
            self.faults["forgeries"] += 1
            retain = topic.endswith("/state")
            self.loop.call_soon(partial(self._forge, topic, data, retain=retain), context=NOBODY)

    def _forge(self, topic: str, data: bytes, *, retain: bool) -> None:
        self.transport.accept("", topic, data, retain=retain)

    def _forged(self, kind: str) -> tuple[str, bytes]:
        random = self._random

        def one() -> tuple[str, bytes]:
            return self._recent[int(random.integers(len(self._recent)))]

        topic, data = one()
        if kind == "moved":
            topic = one()[0]
        elif kind == "noise":
            data = data[:1] + random.bytes(int(random.integers(0, 200)))
        elif kind == "flipped" and data:
            place, bit = int(random.integers(len(data))), 1 << int(random.integers(8))
            data = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
        return topic, data

    def _verdict(self) -> str:
        """Why this must not have been the end; empty if it may."""
        for name, ended in self.ended.items():
            task = self._lives[name].task
            ended.error = ended.error or (task.exception() if task.done() and not task.cancelled() else None)
        agreed = f"{self.plan.experiment.name}{self.roster.digest}"
        return verdict(
            End(
                self.setting,
                self.plan,
                self.history,
                self.ended,
                self.watch.flows,
                self.watch.moved,
                self.faults,
                source=self.source,
                agreed=agreed,
                belated=self.watch.belated,
                settled=self.watch.settled,
                insiders=self.watch.insiders,
            )
        )
