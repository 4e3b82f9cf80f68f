"""One live peer: it joins, gathers its neighbours, learns its rounds, and says goodbye."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, State, Statistics
from p2pfl.core.errors import ResumeError, RunError, foremost
from p2pfl.experiment import Plan
from p2pfl.experiment.growing_data import GrowingData
from p2pfl.experiment.swarm_agreement import scale
from p2pfl.experiment.timetable import Timetable, first_in, left_of
from p2pfl.learning import Learner
from p2pfl.learning.models import names_models
from p2pfl.network.peer.change_exchange import ChangeExchange
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.end import PeerEnd, end
from p2pfl.network.peer.joining.resumption import (
    Introductions,
    explain_exclusion,
    explain_stranding,
    gather_neighbours,
    rest,
    resume_peer,
)
from p2pfl.network.peer.masking.model_protection import ModelProtection
from p2pfl.network.peer.model_agreement import ModelAgreement
from p2pfl.network.peer.neighbourhoods.factory import round_neighbourhood
from p2pfl.network.peer.pauses import AsleepError
from p2pfl.network.peer.peer_evidence import begin_evidence
from p2pfl.network.peer.rounds import Alarms, FirstRound, PeerParts, Rounds, checkpoint_of
from p2pfl.network.peer.start import JoinedPeer, join, plan_of, start_of
from p2pfl.network.peer.storage.best import BestModel
from p2pfl.network.peer.storage.checkpoint import Checkpoint, CheckpointStore, Former
from p2pfl.network.peer.threads import Threaded
from p2pfl.network.peer.updates import Progress
from p2pfl.network.protocol.incoming.mailbox import Mailbox, Newest
from p2pfl.network.protocol.membership.refusals import text
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.transport import Transport, opened
from p2pfl.network.transport.topic_prefix import below
from p2pfl.privacy.keys import Identity, SecretSource, Source, Trust, fingerprint
from p2pfl.results import Record
from p2pfl.results.evidence import Witness
from p2pfl.results.notices.kinds import (
    DataReplaced,
    JoinsLate,
    NeighboursMissing,
    Notice,
    PeerExcluded,
    ReleasesEnded,
)
from p2pfl.results.spending.ledger import check_runs, record_runs
from p2pfl.results.spending.meter import Meter
from p2pfl.results.spending.stated import BudgetStop

ANYBODY = 1e-9
"""Share of the neighbours of which one is enough."""

MEETING = 10.0
"""Seconds for which a device that sleeps looks for neighbours, however late it is."""


class Peer:
    """One peer of an experiment.

    Parameters
    ----------
    name
        Which of the experiment's peers.
    algorithm
        How peers learn from each other; or the plan of an experiment, resolved for this peer
        (``plan(experiment, only=[name])``), without the three that follow.
    learner, topology
        Learner, algorithm and topology; all peers give the same algorithm and topology.
    parts
        Further arguments of :func:`p2pfl.compose`, such as ``{"rounds": 40, "seed": 7, "privacy": Pairwise()}``.
    transport
        How to reach the broker, or its URL; ``transport.prefix`` of the experiment is added to its topics.
    source
        Source of keys and private noise. Default: the operating system.
    identity, trust
        Key pair of the peer, and trust in the keys of others. Default: an identity for this incarnation alone, and
        trust on first use.
    incarnation
        Number above that of the peer's last start, see :mod:`p2pfl.network.peer.joining.incarnation`. Default: the
        time.
    observe
        Function that is called with each round's record and state.
    notice
        Function that is called with each notice for people, whose text is a sentence.
    store
        Store for what a later incarnation can continue from. Default: none.
    former
        State that an earlier incarnation of this peer left in the store.
    remember
        Function that writes the keys that were trusted on first use, called before anything leaves.
    now
        Clock in UTC, for the account of the data and the timetable of ``transport.pace``.

    Attributes
    ----------
    start
        Identity of this incarnation, and what earlier ones left.
    meter, best, mailbox, training
        Meter of the privacy cost, best model, received models, and the learner in a thread.
    statistics
        Statistics of the features that all peers agreed on; ``None`` without them.
    changes
        Changes of the swarm that its operator has signed; ``None`` if the roster names no operator.

    Examples
    --------
    Inside a coroutine::

        async with Peer("peer0", FedAvg(), learner, topology.ring(8), transport="mqtt://localhost") as peer:
            state = await peer.run()
    """

    def __init__(
        self,
        name: str,
        algorithm: Plan | Algorithm,
        learner: Learner | None = None,
        topology: graphs.Topology | graphs.Schedule | graphs.NetworkxGraph | None = None,
        *,
        transport: Transport | str,
        parts: Mapping[str, Any] | None = None,
        source: Source | None = None,
        identity: Identity | None = None,
        trust: Trust | None = None,
        incarnation: int | None = None,
        observe: Callable[[Record, State], None] | None = None,
        notice: Callable[[Notice], None] | None = None,
        store: CheckpointStore | None = None,
        former: Former | None = None,
        remember: Callable[[], None] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        source = source or SecretSource()
        plan = plan_of(name, algorithm, learner, topology, parts=parts or {}).drawing(source, live=True)
        self.name, self.plan = name, plan
        reached = opened(transport) if isinstance(transport, str) else transport
        self.transport = below(reached, plan.experiment.transport.prefix)
        self.observe, self.notice = observe, notice
        self.start = start = start_of(
            plan,
            name,
            source=source,
            identity=identity,
            trust=trust,
            incarnation=time.time_ns() if incarnation is None else incarnation,
            store=store,
            former=former,
            remember=remember,
        )
        self.keeper, self.membership = start.keeper, start.membership
        self.changes = ChangeExchange.of(start, plan, notify=self._notify)
        journal = start.keeper.journal
        run = f"{start.swarm} {start.me.incarnation:x}"
        self.meter = Meter(plan, [name], run=run, earlier=journal.spent, sampled={name: journal.sampled})
        self._now, self._signer = (
            now or partial(datetime.now, UTC),
            identity if plan.experiment.trust.keys is not None else None,
        )
        if plan.experiment.data.refresh is None or not start.keeper.former.kept:  # else once it has its rows of then
            check_runs(plan, [name], now=self._now())
        self.mailbox = Newest() if plan.asynchronous else Mailbox()
        self.training = Threaded(plan.learner, count=self.meter.samples.count)
        self.best = BestModel(name, store)
        self.statistics: Statistics | None = None
        self.phase = "joining"
        self.joined: JoinedPeer | None = None
        self.rounds: Rounds | None = None
        self.witness: Witness | None = None
        self._ended: PeerEnd | None = None
        self._rested: Checkpoint | None = None  # last model of a peer that releases nothing more
        self._introduce = Introductions(self.membership, self._notify)
        self._stack = AsyncExitStack()

    # ------------------------------------------------------------------ state

    @property
    def connection(self) -> Connection:
        """Connection to the neighbours; available inside ``async with``."""
        return self._inside().connection

    @property
    def session(self) -> Session:
        """Session that makes the decisions; available inside ``async with``."""
        return self._inside().connection.session

    @property
    def hiding(self) -> ModelProtection:
        """Protection of its models; available inside ``async with``."""
        return self._inside().hiding

    def _inside(self) -> JoinedPeer:
        if self.joined is None:
            raise RunError('this peer has not joined; use it inside of "async with"')
        return self.joined

    @property
    def progress(self) -> Progress:
        """Current activity of the peer, and the neighbours for which it waits."""
        connection = None if self.joined is None else self.joined.connection
        connected = connection is None or not connection.channel.lost
        waiting = list[str]()
        if connected and self.phase == "gathering":
            waiting = self.membership.absent
        elif connected and connection is not None and connection.session.blocked:
            waiting = connection.session.missing
        round, present = self.mailbox.gossip_step[0], tuple(sorted(self.membership.present))
        phase = self.phase
        if phase == "learning" and connection is not None and connection.session.shared.pause is not None:
            phase = "paused"
        return Progress(self.name, phase, round, tuple(waiting), present, connected)

    @property
    def me(self) -> Announcement:
        """Announcement of this incarnation."""
        return self.start.me

    @property
    def ended(self) -> PeerEnd:
        """State at the end: common scores, and what stays open; available after ``run``."""
        if self._ended is None:
            raise RunError("this peer has not ended; await its run first")
        return self._ended

    @property
    def done(self) -> int:
        """Number of rounds whose parameters the peer has."""
        if self.rounds is not None:
            return self.rounds.done
        return 0 if self._rested is None else self._rested.round

    @property
    def wakes(self) -> float | None:
        """Time in seconds since 1970 at which a device that sleeps comes back; ``None`` for others."""
        return None if self.rounds is None else self.rounds.wakes

    def clock(self) -> float:
        """Return the seconds since 1970."""
        return self._now().timestamp()

    @property
    def undecided(self) -> bool:
        """True if the peer ended because nobody knows whether its last round counts; it can begin again."""
        return self.rounds is not None and self.rounds.ended == "undecided"

    @property
    def outdated(self) -> bool:
        """True if the peer ended because its files are older than what it has sent; to begin again is in vain."""
        return self.rounds is not None and self.rounds.outdated

    @property
    def followed(self) -> bool:
        """True if a change of the swarm ends this run, so that another one follows it."""
        return self.changes is not None and self.changes.last is not None

    @property
    def stopped(self) -> BudgetStop | None:
        """Stop of the peer by its privacy budget; ``None`` if there was none."""
        return self.meter.stopped(self.done)

    def checkpoint(self, state: State, *, round: int) -> Checkpoint:
        """Return what this peer needs to begin a round as if it had never been away."""
        data = None if self.rounds is None else self.rounds.data.position(self.name)
        pace = None if self.rounds is None else self.rounds.pauses.position
        return checkpoint_of(self.connection, state, round=round, statistics=self.statistics, data=data, pace=pace)

    # ------------------------------------------------------------------ course

    async def __aenter__(self) -> Self:
        """Join the broker."""
        await self.keeper.begin()
        try:
            self.joined = await join(
                self.start,
                self.plan,
                transport=self.transport,
                stack=self._stack,
                mailbox=self.mailbox,
                meter=self.meter,
            )
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Disconnect; after an error without a goodbye, so that the broker notifies the neighbours at once."""
        if error is not None and self.joined is not None:
            self.joined.connection.channel.abort()
        await self._stack.__aexit__(kind, error, traceback)

    async def run(self) -> State:
        """Announce this peer, gather the neighbours, learn all rounds, and say goodbye.

        Raises
        ------
        RunError
            The one reason, whichever part of the peer it came from.
        """
        if self.keeper.former.past:
            return self._rest(rest(self.keeper, self.name))
        connection = self.connection
        try:
            async with asyncio.TaskGroup() as tasks:
                await connection.enter(tasks)
                if self.changes is not None:
                    connection.accompany(self.changes.run(connection))
                self.phase = "gathering"
                await self._gather()
                self._introduce()
                self.phase = "learning"
                first = await self._resume()
                data = await self._find_rows(first)
                self.witness = await asyncio.to_thread(begin_evidence, self.start, self.plan)
                if not self._counted(first):
                    await asyncio.to_thread(record_runs, self.plan, [self.name], now=self._now(), signer=self._signer)
                await self._scale(first)
                self.rounds = self.rounds_from(first, data)
                await self.rounds.play()
                self.plan = self.rounds.parts.plan
                self._ended = await end(self.rounds)
                if self.witness is not None:
                    tensors = self.plan.saved(self._ended.state.rows[0], peer=self.name)
                    self.witness.end(tensors, rounds=self.rounds.done)
                await connection.durable()
                self.phase = "leaving"
                await connection.leave(done=self.rounds.ended == "played" and not self.plan.asynchronous)
                connection.close()
                self._accuse()
        except BaseExceptionGroup as group:
            raise foremost(group) from None
        finally:
            await self.keeper.end()
        self.phase = "done"
        return self._ended.state

    async def _gather(self) -> None:
        """Wait for the neighbours; a device that sleeps goes on with one, or sleeps again.

        Raises
        ------
        AsleepError
            The device met nobody before it sleeps.
        """
        table, connection = Timetable.of(self.plan.experiment.transport.pace), self.connection
        if not table.sleeps:
            try:
                await gather_neighbours(connection, self.keeper, plan=self.plan, notify=self._notify)
            except ResumeError:
                if self.changes is not None:
                    self.changes.check_neighbours(self.membership)
                raise
            return
        seconds = self.plan.experiment.transport.gathering.seconds
        reported = ""
        while True:
            within = min(seconds, max(MEETING, left_of(table.awake, self.clock())))
            error = await connection.gather(quorum=ANYBODY, within=within)
            if error is None:
                return
            refused = "; ".join(map(text, self.membership.refused.values()))
            if refused not in {"", reported}:
                reported, why = refused, f"{refused}; this device waits for other neighbours"
                self._notify(NeighboursMissing(peer=self.name, absent=error.absent, gone=error.gone, message=why))
            if self.membership.over:
                rounds = self.plan.experiment.rounds
                kept = self.keeper.former.kept[0].round if self.keeper.former.kept else 0
                raise ResumeError(explain_stranding(self.membership, kept, rounds=rounds, within=within))
            if (wakes := first_in(table.awake, now := self.clock())) > now:
                await connection.leave(done=False)
                raise AsleepError(wakes)

    def _rest(self, last: Checkpoint) -> State:
        """Return the state of a peer that has promised to release nothing more, so that nobody waits for it."""
        if last.statistics is not None:
            self.plan, self.statistics = scale(self.plan, last.statistics), last.statistics
        lost = self.keeper.journal.released >= last.round
        self._notify(ReleasesEnded(peer=self.name, rounds=last.round, lost=lost))
        self._rested, self._ended = last, PeerEnd(last.state)
        self.phase = "done"
        return last.state

    async def _resume(self) -> FirstRound:
        """Decide from which checkpoint to go on, and with which round."""
        plan, over = self.plan, self.keeper.journal.over
        joins = plan.commits and not over
        if joins and plan.protection.wanted.departures != "go_on" and self.session.shared.running:
            raise ResumeError(explain_exclusion(self.name))
        awake = Timetable.of(plan.experiment.transport.pace).awake
        left = max(MEETING, left_of(awake, self.clock()))
        hours = asyncio.timeout(None if left == math.inf else left)
        try:
            async with hours:
                chosen, number = await resume_peer(self.connection, self.keeper, joins=joins)
        except TimeoutError:  # the members of no round of its hours have admitted this device
            if not hours.expired():
                raise
            await self.connection.leave(done=False)
            raise AsleepError(first_in(awake, self.clock())) from None
        order, own = None if self.changes is None else self.changes.order, plan.experiment.model.pretrained
        new = order is not None and order.late and (own is None or names_models(own))
        first = FirstRound(number, chosen, over, new)
        if first.late and not first.over:
            again = self.keeper.former.journal is not None
            rounds = self.plan.experiment.horizon
            self._notify(JoinsLate(peer=self.name, round=first.round, rounds=rounds, again=again))
        return first

    async def _find_rows(self, first: FirstRound) -> GrowingData:
        """Return the rows with which the peer begins: those of its checkpoint, where it reads data between rounds."""
        data = await asyncio.to_thread(GrowingData.of, self.plan, (self.name,))
        if first.checkpoint is None or first.checkpoint.data is None:
            return data
        data, changed = await asyncio.to_thread(data.resumed, {self.name: first.checkpoint.data})
        self.plan = data.plan
        self.training.learner = self.plan.learner
        self.meter.samples.follow(self.plan.learner)
        if self.name in changed:
            drift, feature = changed[self.name] or (None, None)
            self._notify(DataReplaced(peer=self.name, drift=drift, feature=feature))
        return data

    def _counted(self, first: FirstRound) -> bool:
        """Return whether the account of the data has all totals of the run, which were those of the beginning.

        Its rows were those of then, so the rows of now would look like a run with a few people more.
        """
        checkpoint, grows = first.checkpoint, self.plan.experiment.data.refresh is not None
        shown = checkpoint is not None and checkpoint.statistics is not None
        return grows and shown and first.round > 0 and not self.plan.protection.totals

    async def _scale(self, first: FirstRound) -> None:
        """Agree with all peers on the statistics of the features, and scale them, where the plan asks for that."""
        agreeing = ModelAgreement(self.plan, self.name)
        if agreeing.opening:
            earlier = None if first.checkpoint is None else first.checkpoint.statistics
            net = round_neighbourhood(self.plan, self.connection, self.hiding, round=0, total_round=0, conserving=False)
            self.plan, self.statistics = await agreeing.open(net, first=first.round, earlier=earlier)
            self.training.learner = self.plan.learner

    def rounds_from(self, first: FirstRound, data: GrowingData) -> Rounds:
        """Return the rounds that this incarnation plays, from its first one on, with the rows of its beginning."""
        parts = PeerParts(
            name=self.name,
            plan=self.plan,
            statistics=self.statistics,
            data=data,
            connection=self.connection,
            hiding=self.hiding,
            keeper=self.keeper,
            best=self.best,
            meter=self.meter,
            source=self.start.source,
            training=self.training,
            notify=self._notify,
            observe=self._observe,
            introduce=self._introduce,
            now=self.clock,
            alarms=Alarms(self.name, self.notice),
            witness=self.witness,
            changes=self.changes,
        )
        return Rounds(parts, first)

    def _accuse(self) -> None:
        """Report who was excluded, and keep the proofs."""
        relay = self.connection.relay
        proofs = {} if relay is None else relay.sum_sender.proofs
        for peer, proof in sorted((proofs | self.session.proofs).items()):
            path = self.keeper.accuse(peer, proof)
            round, step = proof.gossip_step
            self._notify(
                PeerExcluded(
                    peer=self.name,
                    neighbour=peer,
                    key=fingerprint(self.membership.up[peer].identity),
                    signed=proof.domain,
                    round=round,
                    step=step,
                    proof=None if path is None else str(path),
                )
            )

    def _notify(self, notice: Notice) -> None:
        if self.notice is not None:
            self.notice(notice)

    def _observe(self, record: Record, state: State) -> None:
        if self.observe is not None:
            self.observe(record, state)
