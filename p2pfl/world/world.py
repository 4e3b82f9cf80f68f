"""One seed, one history: the peers of a swarm in a world of their own."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, deque
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from p2pfl.algorithms import State
from p2pfl.errors import P2PFLError, PeerError, RunError
from p2pfl.experiment import Plan
from p2pfl.identity import Identity, Roster, SeededSource
from p2pfl.peer import Notice, Peer
from p2pfl.rows import draw, raw
from p2pfl.world.clock import WHO, StuckError, VirtualLoop
from p2pfl.world.faults import History
from p2pfl.world.invariants import InvariantError, Watch
from p2pfl.world.learner import Goals, Timed
from p2pfl.world.network import NOBODY, WorldTransport
from p2pfl.world.settings import Setting

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
    """How one peer's life ended: with a state, an error, or by a death."""

    state: State | None = None
    error: BaseException | None = None
    killed: bool = False
    missed: int = 0
    left: list[str] = field(default_factory=list)
    """What it said of what stays open."""


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
        self.watch = Watch(self.transport.said)
        self.source = SeededSource(seed)
        names = plan.topology.peers
        self.identities = {name: Identity.generate(self.source, peer=name) for name in names}
        self.roster = Roster({name: identity.public for name, identity in self.identities.items()})
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ran: Counter[str] = Counter()
        self._deaths = {death.peer: death for death in history.deaths}
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
        return 1.2 * (self.history.quiet + settings.transport.gather + exchanges * each)

    def run(self) -> Outcome:
        """Let it happen."""
        self.loop.after = self._after
        failure = ""
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                try:
                    runner.run(self._lives())
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
            self.faults + self.transport.counts,
        )

    async def _lives(self) -> None:
        for name in self.plan.topology.peers:
            context = copy_context()
            context.run(WHO.set, name)
            self._tasks[name] = self.loop.create_task(self._life(name), context=context)
        for pause in self.history.pauses:
            self.loop.call_at(pause.at, self._pause, pause.peer, pause.seconds, context=NOBODY)
        await asyncio.wait(self._tasks.values())

    async def _life(self, name: str) -> None:
        ended = self.ended[name]
        learner = Timed(self.plan.learner, takes=lambda peer, _: self.history.takes[peer], spend=self.loop.spent)
        peer = Peer(
            name,
            replace(self.plan, learner=learner),
            transport=self.transport,
            source=self.source,
            identity=self.identities[name],
            trust=self.roster,
            incarnation=1,
            observe=lambda record, _: self._count(ended, len(record.missed)),
            notice=lambda notice: self._heard(ended, notice),
        )
        self.watch.adopt(peer)
        try:
            async with peer:
                self.watch.joined(peer)
                ended.state = await peer.run()
                self._log("done", name, "", f"{zlib.crc32(raw(ended.state.rows[0])):08x}")
        except P2PFLError as error:
            ended.error = error
            self.watch.dead.add(name)
            self._log("failed", name, "", str(error))

    def _count(self, ended: Ended, missed: int) -> None:
        ended.missed += missed

    def _heard(self, ended: Ended, notice: Notice) -> None:
        ended.left.append(notice.sentence)

    def _log(self, kind: str, who: str, topic: str, detail: str) -> None:
        self.lines.append(f"{self.loop.now:.9f} {kind} {who} {topic} {detail}")

    # ------------------------------------------------------------------ what goes wrong

    def _after(self, who: str) -> None:
        if who:
            self._ran[who] += 1
            death = self._deaths.get(who)
            if death is not None and self._ran[who] == death.event:
                self._kill(who, silent=death.silent)
        self.watch.after(who)
        if self.loop.now > self.bound or self.loop.events > MOST_EVENTS:
            waiting = {
                name: str(self.watch.peers[name].progress) for name, task in self._tasks.items() if not task.done()
            }
            raise InvariantError(f"after {self.loop.now:.0f} s these have not ended: {waiting}")

    def _kill(self, name: str, *, silent: bool) -> None:
        task = self._tasks[name]
        if task.done():
            return
        self.faults["deaths"] += 1
        self.ended[name].killed = True
        self.watch.dead.add(name)
        self._log("death", name, "", "silent" if silent else "")
        for channel in [each for each in self.transport.broker.channels.values() if each.who == name]:
            if silent:
                channel.vanish()
            else:
                channel.abort()
        task.cancel()

    def _pause(self, name: str, seconds: float) -> None:
        self.faults["pauses"] += 1
        self._log("pause", name, "", f"{seconds:.3f}")
        self.loop.pause(name, seconds)

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
            if ended.state is None and name not in self._killed and not self._excused(ended.error):
                task = self._tasks[name]
                error = ended.error or (None if task.cancelled() else task.exception())
                return f"{name} ended with {type(error).__name__}: {error}"
            if ended.missed and not self.history.kinds:
                return f"{name} missed {ended.missed} rows although nothing went wrong"
        known = isinstance(self.plan.learner, Goals)  # only of averaging alone is the result known
        if not known or self._killed or any(ended.state is None for ended in self.ended.values()):
            return ""
        if self.setting.sums:
            return self._summed()
        return self._averaged() if self.setting.averages else ""

    @property
    def _killed(self) -> set[str]:
        return {name for name, ended in self.ended.items() if ended.killed}

    def _excused(self, error: BaseException | None) -> bool:
        """Whether what went wrong allows for this."""
        return isinstance(error, PeerError) and "did not come" in str(error) and bool(self._killed)

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
        return "" if off <= grid else f"the mean of the rows is off by {off:.3g}, and nobody said so"

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
