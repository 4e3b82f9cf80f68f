"""One seed, one history: the peers of a swarm in a world of their own."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, deque
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from p2pfl.algorithms import State
from p2pfl.errors import BrokerError, P2PFLError, PeerError, RunError, StorageError
from p2pfl.experiment import Plan
from p2pfl.identity import Identity, Roster, SeededSource
from p2pfl.peer import Notice, Peer
from p2pfl.peer.checkpoint import Store
from p2pfl.rows import draw, raw
from p2pfl.transport.channel import KEEPALIVE
from p2pfl.transport.lasting import Lasting
from p2pfl.world.clock import WHO, StuckError, VirtualLoop
from p2pfl.world.disk import Mounted, WorldDisk
from p2pfl.world.faults import DISKS, Death, History
from p2pfl.world.invariants import InvariantError, Watch
from p2pfl.world.learner import Goals, Timed
from p2pfl.world.network import NOBODY, WorldTransport
from p2pfl.world.settings import Setting

FOLDER = Path("peers")
"""Where every peer has its files, on its own disk."""

ANOTHER = 2**40
"""Between the seeds of two lives' secrets."""

MOST_EVENTS = 2_000_000
"""Callbacks of a world that still goes somewhere."""

RECENT = 64
"""Messages that a stranger remembers, to repeat them."""


@dataclass(frozen=True)
class Outcome:
    """What became of a world.

    Attributes
    ----------
    seed, setting, kinds
        Which it was, and which kinds of fault it had.
    failure
        What must not have happened, empty if all is well.
    log
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
    log: tuple[str, ...]
    events: int
    seconds: float
    faults: Counter[str]

    @property
    def digest(self) -> str:
        """A checksum of the log."""
        return f"{zlib.crc32(chr(10).join(self.log).encode()):08x}"


@dataclass
class Ended:
    """How one peer's last life ended: with a state, an error, or by a death.

    Attributes
    ----------
    lives
        That it has had.
    killed
        Whether the last ended for good before its time.
    missed
        Rows, in all lives.
    left
        What it said of what stays open.
    late
        Whether a life has come later than its last checkpoint: its weight was given up.
    """

    state: State | None = None
    error: BaseException | None = None
    lives: int = 0
    killed: bool = False
    missed: int = 0
    left: list[str] = field(default_factory=list)
    late: bool = False


@dataclass
class Life:
    """A process of a peer."""

    peer: Peer
    task: asyncio.Task[None]
    disk: Mounted | None
    joined: bool = False


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
    """

    def __init__(self, seed: int, setting: Setting, plan: Plan, history: History) -> None:
        self.seed = seed
        self.setting = setting
        self.plan = plan
        self.history = history
        self.lines: list[str] = []
        self.faults: Counter[str] = Counter()
        self.ended = {name: Ended() for name in plan.topology.peers}
        self.loop = VirtualLoop(history.clocks)
        self.transport = WorldTransport(
            self.loop, history.conditions, seed=seed, restarts=history.restarts, log=self._log
        )
        self.transport.heard = self._overhear
        self.transport.said = said = dict[str, set[bytes]]()
        self.watch = Watch(said)
        self.source = SeededSource(seed)
        names = plan.topology.peers
        self.identities = {name: Identity.generate(self.source, peer=name) for name in names}
        self.roster = Roster({name: identity.public for name, identity in self.identities.items()})
        self.disks = {name: self._disk(name) for name in names} if DISKS & history.kinds else {}
        self._lives: dict[str, Life] = {}
        self._running: set[asyncio.Task[None]] = set()
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
        exchanges = (settings.rounds + 2) * (plan.gossip.steps + 2 * plan.diameter + 2)
        each = 2 * settings.transport.patience * (len(plan.topology.peers) + 1) + max(self.history.takes.values())
        again = sum(settings.transport.gather + 60.0 + (death.back or 0.0) for death in self.history.deaths)
        again += sum(settings.transport.gather + 60.0 for _ in self.history.full)
        return 1.2 * (self.history.quiet + settings.transport.gather + again + exchanges * each)

    def run(self) -> Outcome:
        """Let it happen."""
        self.loop.after = self._after
        failure = ""
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                try:
                    runner.run(self._happen())
                finally:
                    self.loop.after = None
        except (InvariantError, StuckError) as error:
            failure = str(error)
        return Outcome(
            self.seed,
            self.setting,
            self.history.kinds,
            failure or self._verdict(),
            tuple(self.lines),
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
        ended.error, ended.killed = None, False
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
        store = None if disk is None else Store(FOLDER, name, disk=disk)
        former = store.former() if store is not None and ended.lives > 1 else None
        peer = Peer(
            name,
            replace(self.plan, learner=learner),
            transport=Lasting([self.transport]),
            source=SeededSource(self.seed + (ended.lives - 1) * ANOTHER),
            identity=self.identities[name],
            trust=self.roster,
            incarnation=ended.lives,
            observe=lambda record, _: self._count(ended, len(record.missed)),
            notice=lambda notice: self._heard(ended, notice),
            store=store,
            former=former,
        )
        self.watch.adopt(peer)
        return peer

    async def _life(self, peer: Peer, ended: Ended) -> None:
        name = peer.name
        try:
            async with peer:
                self._lives[name].joined = True
                self.watch.joined(peer)
                ended.state = await peer.run()
                self._log("done", name, "", f"{zlib.crc32(raw(ended.state.rows[0])):08x}")
        except P2PFLError as error:
            ended.error = error
            self.watch.dead.add(name)
            self._log("failed", name, "", str(error))
            early = isinstance(error, BrokerError) and not self._lives[name].joined
            if early or (self.disks and isinstance(error, StorageError | BrokerError)):  # who starts it does so again
                self.faults["starts that failed"] += isinstance(error, BrokerError)
                self._again(name, max(1.0, self.history.quiet - self.loop.now))

    def _count(self, ended: Ended, missed: int) -> None:
        ended.missed += missed

    def _heard(self, ended: Ended, notice: Notice) -> None:
        ended.left.append(notice.sentence)
        ended.late |= "it comes back in round" in notice.sentence
        self._log("notice", notice.peer, "", notice.sentence)

    def _log(self, kind: str, who: str, topic: str, detail: str) -> None:
        self.lines.append(f"{self.loop.now:.9f} {kind} {who} {topic} {detail}")

    # ------------------------------------------------------------------ what goes wrong

    def _after(self, who: str) -> None:
        if who:
            self._ran[who] += 1
            death = self._deaths.pop((who, self._ran[who]), None)
            if death is not None:
                self._kill(death)
        self.watch.after(who)
        if self.loop.now > self.bound or self.loop.events > MOST_EVENTS:
            waiting = {name: str(life.peer.progress) for name, life in self._lives.items() if not life.task.done()}
            raise InvariantError(f"after {self.loop.now:.0f} s these have not ended: {waiting}")

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
                channel.vanish()
            else:
                channel.abort()
        if life.joined:
            life.peer.link.line.channel.abort()  # it does not join again
        life.task.cancel()
        if life.disk is not None:
            life.disk.gone()
            self.disks[name].crash(power=death.silent)
        if back is not None and death.bare:
            self.faults["lost disks"] += 1
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
        """A stranger listens, and speaks when its time has come."""
        if not who:
            return
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

    # ------------------------------------------------------------------ what must have come of it

    def _verdict(self) -> str:
        """Why this must not have been the end; empty if it may."""
        for name in self.plan.topology.peers:
            ended = self.ended[name]
            if ended.state is None and name not in self._killed:
                if self._excused(name, ended.error):
                    self.faults["ended for want of others"] += 1
                    continue
                task = self._lives[name].task
                error = ended.error or (None if task.cancelled() else task.exception())
                return f"{name} ended with {type(error).__name__}: {error}"
            if ended.missed and not self.history.kinds:
                return f"{name} missed {ended.missed} rows although nothing went wrong"
        if not isinstance(self.plan.learner, Goals):  # only of averaging alone is the result known
            return ""
        if failure := self._accounted(self.plan.learner):
            return failure
        if self._killed or any(ended.state is None or ended.late for ended in self.ended.values()):
            return ""
        if self.setting.running:
            return self._summed()
        return self._averaged() if self.setting.averages else ""

    @property
    def _killed(self) -> set[str]:
        return {name for name, ended in self.ended.items() if ended.killed}

    def _excused(self, name: str, error: BaseException | None) -> bool:
        """Whether what went wrong allows for this: others died, or had ended before it came back."""
        patience = self.plan.experiment.transport.patience
        gone = bool(self._killed) or any(ended.lives > 1 for ended in self.ended.values())
        gone |= any(pause.seconds > patience for pause in self.history.pauses)
        gone |= any(end - start > patience for start, end in self.history.conditions[name].cuts)
        return isinstance(error, PeerError) and "did not come" in str(error) and gone

    def _states(self) -> list[State]:
        states = [self.ended[name].state for name in self.plan.topology.peers]
        found = [state for state in states if state is not None]
        if len(found) != len(states):
            raise RunError("expected all peers to have a state")
        return found

    def _goals(self) -> torch.Tensor:
        goals = self.plan.learner
        if not isinstance(goals, Goals):
            raise RunError("expected a world of goals")
        return torch.stack([goals.goal(name) for name in self.plan.topology.peers])  # [N, P]

    def _averaged(self) -> str:
        """The mean of the rows is that of the goals, unless peers say that it may not be."""
        if not all(weights.symmetric for weights in self.plan.weights) and any(e.missed for e in self.ended.values()):
            return ""  # nothing is conserved along edges that weigh otherwise at their other end
        if any(ended.left for ended in self.ended.values()):
            self.faults["left open"] += 1
            return ""
        rows = torch.cat([state.rows for state in self._states()])  # [N, P]
        off = float((rows.mean(0) - self._goals().mean(0)).abs().max())
        settings = self.plan.protection.settings
        grid = self.plan.experiment.rounds * 2.0**-settings.bits if self.plan.masked else 1e-9  # each release rounds
        if self.plan.protection.sums is not None:
            grid = self.plan.experiment.rounds * len(rows) * 2.0**-settings.bits  # and so does each term
        return "" if off <= grid else f"the mean of the rows is off by {off:.3g}, and nobody said so"

    def _accounted(self, goals: Goals) -> str:
        """A row is its goal and what was moved to it, and what is moved between two that were not lost is the same.

        So whoever dies, the mean of the survivors is that of their goals and of what they had exchanged with the dead.
        """
        plain = not self.plan.masked and all(omega == 1.0 for omega in self.plan.gossip.omegas)
        entered = {}
        for name, ended in self.ended.items():
            flows = None if ended.state is None or ended.late else self.watch.flows(name)
            if ended.state is None or flows is None or not self.setting.averages:
                continue
            entered[name] = flows
            moved = sum((row for each in flows.values() for row in each.values()), np.zeros(1))
            off = float(np.abs(ended.state.rows[0].numpy() - goals.goal(name).numpy() - moved).max())
            if plain and off > 1e-9:
                return f"the row of {name} is off by {off:.3g} from its goal and what was moved to it"
        for one, other in combinations(sorted(entered), 2):
            here, there = entered[one].get(other, {}), entered[other].get(one, {})
            said = any("may have moved" in each for name in (one, other) for each in self.ended[name].left)
            even = here.keys() == there.keys() and all(np.array_equal(here[each], -there[each]) for each in here)
            if not even and not said:
                return f"{one} and {other} ended with different flows, and neither said so"
        return ""

    def _summed(self) -> str:
        """All mass is in a row or on its way: rows, and totals that were sent and not seen."""
        states, topology = self._states(), self.plan.topology.at(0)
        total = np.zeros(self.plan.learner.layout.size + 1)
        index = {name: place for place, name in enumerate(topology.peers)}
        for name, state in zip(topology.peers, states, strict=True):
            mass = state.extra["mass"]
            total += torch.cat([state.rows * mass, mass], -1)[0].numpy()
            for slot, sender in enumerate(topology.hears(name)):
                sent = states[index[sender]].extra["total"][0]
                total += (sent - state.extra["seen"][0, slot]).numpy()
        goals = self._goals()
        wanted = torch.cat([goals.sum(0), torch.tensor([float(len(goals))], dtype=goals.dtype)]).numpy()
        off = float(np.abs(total - wanted).max())
        return "" if off < 1e-9 else f"mass is lost: the sum of rows and of what is on its way is off by {off:.3g}"
