"""One live peer: joins, gathers its neighbours, learns its rounds, says goodbye."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, State, Statistics, learn, start
from p2pfl.core.errors import BudgetError, CoverError, ResumeError, RunError, UndecidedError, foremost
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.experiment import Plan
from p2pfl.experiment.agreement import scaled
from p2pfl.learning import Learner
from p2pfl.network.peer.agreeing import Agreeing
from p2pfl.network.peer.composed import composed
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.ending import left_open, reason_of, remaining, settled
from p2pfl.network.peer.joining.introductions import Introductions, exclusion
from p2pfl.network.peer.joining.late_arrival import LateArrival, SkipTraining
from p2pfl.network.peer.joining.resuming import gathered, left_alone, rest, resumed
from p2pfl.network.peer.joining.sessions import announced, check_remembering, membership_of, restore, session_for
from p2pfl.network.peer.masking.alarming import Alarms
from p2pfl.network.peer.masking.attempts import RetryAttempt
from p2pfl.network.peer.masking.hiding import Hiding
from p2pfl.network.peer.masking.settling import Cover
from p2pfl.network.peer.neighbourhoods.building import attempted, live
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay, sum_relay
from p2pfl.network.peer.round_totals import RetryRound
from p2pfl.network.peer.rounds import recorded, scored, turns
from p2pfl.network.peer.storage.best import BestModel
from p2pfl.network.peer.storage.checkpoint import Checkpoint, Former, Store, checkpointed, rounds_apart
from p2pfl.network.peer.storage.reserving import block
from p2pfl.network.peer.storage.writer import Keeper
from p2pfl.network.peer.threads import Threaded
from p2pfl.network.peer.updates import Progress, progress
from p2pfl.network.protocol.incoming.mailbox import Mailbox, Newest
from p2pfl.network.protocol.interface import requests
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire.codec import encode
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.sealing import MessageCodec
from p2pfl.network.secagg.signing import Seal
from p2pfl.network.transport import Transport, Will, opened
from p2pfl.privacy.keys import ExchangeKey, FirstUse, Identity, Roster, SecretSource, SenderKey, Source, Trust
from p2pfl.results import Record
from p2pfl.results.content import Unsettled
from p2pfl.results.notices.course import JoinsLate, LearningStopped, ReleasesEnded
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.notices.neighbours import ModelsRefused
from p2pfl.results.spending.meter import Meter
from p2pfl.results.spending.stated import BudgetStop


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
        How to reach the broker, or its URL.
    source
        Of keys and private noise; the operating system's secrets by default.
    identity, trust
        Its own key pair, and what decides whose key is whose. By default an identity for this incarnation
        alone, and trust on first use.
    incarnation
        A number above that of the peer's last start, see :mod:`p2pfl.network.peer.joining.incarnation`; the clock's by
    default.
    observe
        Called with each round's record and state.
    notice
        Called with each notice that people should read; :func:`p2pfl.results.notices.wording.sentence` words it.
    store
        Where it keeps what a later incarnation can go on from; nowhere by default.
    former
        What an earlier incarnation of this peer in this run left there.
    remember
        Called before anything leaves, to write the keys that were trusted on first use.

    Attributes
    ----------
    undecided
        True if it ended because it is unknown whether the last round counts, or because a peer is missing for good.

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
        store: Store | None = None,
        former: Former | None = None,
        remember: Callable[[], None] | None = None,
    ) -> None:
        plan = composed(name, algorithm, learner, topology, parts=parts or {})
        self.name = name
        self.transport = opened(transport) if isinstance(transport, str) else transport
        self.source = source or SecretSource()
        self.plan = plan = plan.drawing(self.source)
        self.observe = observe
        self.notice = notice
        check_remembering(plan, self.source, store)
        self.swarm = plan.experiment.name
        incarnation = time.time_ns() if incarnation is None else incarnation
        self.keeper = keeper = Keeper(
            store, former, incarnation=incarnation, peer=name, source=self.source, remember=remember
        )
        self.key = ExchangeKey(keeper.journal.key)
        self.identity = identity or Identity.generate(self.source, peer=name)
        self.trust = trust or FirstUse()
        roster = self.trust.digest if isinstance(self.trust, Roster) else ""
        self.agreed = f"{self.swarm}{roster}"  # what the keys of all edges depend on
        public, rounds = (self.key.public, self.identity.public), [] if former is None else former.rounds
        self.me = announced(name, plan.facts | {"roster": roster}, public, keeper, rounds=rounds)
        self.membership = membership_of(plan, self.me, trust=self.trust)
        self._introduce = Introductions(self.membership, self._notify)
        spent: dict[str, Any] = {"earlier": keeper.journal.spent, "sampled": {name: keeper.journal.sampled}}
        self.meter = Meter(plan, [name], run=f"{self.swarm} {self.me.incarnation:x}", **spent)
        self.mailbox = Newest() if plan.asynchronous else Mailbox()
        self.phase = "joining"
        self._played = False  # all rounds
        self._done = 0  # of them
        self.undecided = False  # or else it can begin again
        self._saved = -1  # how many were done when the last checkpoint was written
        self._apart = rounds_apart(plan)  # from one checkpoint to the next
        self._next = 0  # the round after the last that was begun
        self.statistics: Statistics | None = None
        self.common: dict[str, float] | None = None
        self.unsettled = Unsettled()
        self._refused = set[str]()  # neighbours of whose unusable models people have been told
        self.best = BestModel(name, store)
        self._judged: tuple[dict[str, float], float | None] | None = None  # scores before the round was recorded
        self._alarms = Alarms(name, notice)
        self._agreeing = Agreeing(plan, name)
        self._training = Threaded(plan.learner, count=self.meter.samples.count)
        self._stack = AsyncExitStack()
        self._connection: Connection | None = None
        self._hiding: Hiding | None = None

    @property
    def connection(self) -> Connection:
        """The connection to its neighbours; there is one inside ``async with``."""
        if self._connection is None:
            raise RunError('this peer has not joined; use it inside of "async with"')
        return self._connection

    @property
    def session(self) -> Session:
        """Session that makes the decisions; available inside ``async with``."""
        return self.connection.session

    @property
    def hiding(self) -> Hiding:
        """Protection of its models; available inside ``async with``."""
        if self._hiding is None:
            raise RunError('this peer has not joined; use it inside of "async with"')
        return self._hiding

    @property
    def progress(self) -> Progress:
        """Current activity of the peer, and the neighbours for which it waits."""
        round = self.mailbox.gossip_step[0]
        return progress(self.name, self.phase, round, connection=self._connection, membership=self.membership)

    @property
    def done(self) -> int:
        """Number of rounds whose parameters the peer has."""
        return self._done

    @property
    def stopped(self) -> BudgetStop | None:
        """Stop of the peer by its privacy budget; ``None`` if there was none."""
        return self.meter.stopped(self._done)

    async def __aenter__(self) -> Self:
        """Join the broker and say announcement."""
        await self.keeper.begin()
        sender = SenderKey.draw(self.source, peer=self.name, round=self.me.incarnation)
        envelope = Envelope(self.name, self.me.incarnation, self.key, sender, self.agreed, self.me.nonce)
        codec = MessageCodec(self.swarm, self.me, self.identity, envelope)
        will = Will(codec.topic("state"), encode(codec.announcement("dead")))
        try:
            channel = await self._stack.enter_async_context(
                self.transport.join(f"{self.swarm}-{self.name}-{self.me.incarnation:x}", will=will)
            )
            session = session_for(self.plan, codec, self.membership, self.mailbox, limit=channel.limit)
            restore(session, self.keeper)
            part: SumRelay | None = None
            if self.plan.protection.sums is not None:
                seal = Seal(self.identity, self.membership)
                part = sum_relay(self.plan, self.name, seal=seal, source=self.source, meter=self.meter)
            self._connection = Connection(channel, session, relay=part)
            reached = max((each.round for each in self.keeper.former.kept), default=0)
            given: dict[str, Any] = {"meter": self.meter, "source": self.source, "kept": self.keeper.journal}
            given["reached"] = reached
            self._hiding = Hiding(self.plan, self._connection, agreed=self.agreed, notify=self._notify, **given)
            self._connection.durable = partial(self.keeper.durable, self._hiding)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Disconnect; after an error without a goodbye, so that the broker tells the neighbours at once."""
        if error is not None and self._connection is not None:
            self._connection.channel.abort()
        await self._stack.__aexit__(kind, error, traceback)

    async def run(self) -> State:
        """Gather the neighbours, learn all rounds, say goodbye.

        Raises
        ------
        RunError
            With the one reason, whatever part of the peer it came from.
        """
        if self.keeper.former.past:
            return self._rest(rest(self.keeper, self.name))
        try:
            async with asyncio.TaskGroup() as tasks:
                await self.connection.enter(tasks)
                self.phase = "gathering"
                await gathered(self.connection, self.keeper, experiment=self.plan.experiment, notify=self._notify)
                self._introduce()
                self.phase = "learning"
                state = await self._rounds(*await self._resume())
                await self.connection.durable()
                self.phase = "leaving"
                await self.connection.leave(done=self._played and not self.plan.asynchronous)
                self.connection.close()
                self._accuse()
        except BaseExceptionGroup as group:
            raise foremost(group) from None
        finally:
            await self.keeper.end()
        self.phase = "done"
        return state

    def _rest(self, last: Checkpoint) -> State:
        """Return the state of a peer that has promised to release nothing more, so that nobody waits for it."""
        if last.statistics is not None:
            self.plan, self.statistics = scaled(self.plan, last.statistics), last.statistics
        lost = self.keeper.journal.released >= last.round
        self._notify(ReleasesEnded(peer=self.name, rounds=last.round, lost=lost))
        self._done = last.round
        self.phase = "done"
        return last.state

    async def _resume(self) -> tuple[Checkpoint | None, int]:
        """Decide from which checkpoint to go on, and with which round."""
        chosen, first = await resumed(self.connection, self.keeper)
        if self.plan.commits and self.session.shared.progress.running and not self.keeper.journal.over:
            raise ResumeError(left_alone(self.name))
        if first > (0 if chosen is None else chosen.round) and not self.keeper.journal.over:
            again = self.keeper.former.journal is not None
            rounds = self.plan.experiment.rounds
            self._notify(JoinsLate(peer=self.name, round=first, rounds=rounds, again=again))
        return chosen, first

    def _accuse(self) -> None:
        """Report who was excluded, and keep the proofs."""
        rolls = {} if self.connection.relay is None else self.connection.relay.sum_sender.proofs
        for peer, proof in sorted((rolls | self.session.proofs).items()):
            path = self.keeper.accuse(peer, proof)
            identity = self.membership.up[peer].identity
            self._notify(exclusion(self.name, peer, proof, identity=identity, path=path))

    async def _rounds(self, chosen: Checkpoint | None, first: int) -> State:
        if self._agreeing.opening:
            await self._prepare(chosen, first=first)
        plan, hiding = self.plan, self.hiding
        late, over = first > (0 if chosen is None else chosen.round), self.keeper.journal.over
        hiding.begin()
        self.keeper.reserve(block(plan), hiding, rounds=plan.experiment.rounds)
        self._state = start(plan.learner, (self.name,)) if chosen is None else chosen.state
        self._done = self._saved = 0 if chosen is None else chosen.round
        self._next = first
        self.connection.submit(
            requests.Tolerate(plan.experiment.transport.hurry)
        )  # before and after, every peer waits for all
        try:
            self._state = await learn(
                self._repeated(plan.played),
                SkipTraining(self._training, round=first) if late else self._training,
                self._state,
                rounds=turns(self.connection, plan, range(0) if over else self.meter.since(first)),
                neighbourhood=self._attempted,
                private=lambda net, round: self._contested(net, round=round, late=late and round == first),
                observe=self._after,
                stop=plan.stop,
                judge=None if plan.experiment.learning.patience is None else self._judge,
            )
        except (BudgetError, CoverError, UndecidedError) as error:  # the others go on
            self._notify(LearningStopped(peer=self.name, reason=reason_of(error), message=str(error)))
            self.undecided = isinstance(error, UndecidedError)
            if not self.undecided:  # else it can be resumed, and release again
                await self.connection.ask(requests.Stop())
        else:
            self._played = True
            if self._done:
                await self._save(self._state)  # from here on nobody can go on from an older one
            self.keeper.played(self._next)
            self.connection.submit(requests.Tolerate(None))
            self._state = await self._settle(self._state, None if late and over else hiding.cover)
            if plan.experiment.learning.consensus:
                self._state = await self._close(self._state)
        self.hiding.correct()
        for notice in [*self._left(), *filter(None, [self.meter.overdrawn])]:
            self._notify(notice)
        return self._state

    def _left(self) -> list[Notice]:
        """Return notices of what stays open."""
        self._alarms.settle(self.session.ledgers.masks.uncancelled())
        self.unsettled = remaining(self.connection, self.plan)
        return left_open(self.name, self.unsettled)

    def _notify(self, notice: Notice) -> None:
        if self.notice is not None:
            self.notice(notice)

    async def _settle(self, state: State, cover: Cover | None) -> State:
        """Pay what is owed, masks first, for that takes gossip steps."""
        return await settled(
            state,
            cover,
            plan=self.plan,
            connection=self.connection,
            hiding=self.hiding,
            source=self.source,
            round=self._next,
            neighbourhood=self._neighbourhood,
            notify=self._notify,
        )

    async def _prepare(self, chosen: Checkpoint | None, *, first: int) -> None:
        """Scale the features as all do."""
        earlier = None if chosen is None else chosen.statistics
        net = self._neighbourhood(0, opening=True, conserving=False)
        self.plan, self.statistics = await self._agreeing.open(net, first=first, earlier=earlier)
        self._training.learner = self.plan.learner

    async def _close(self, state: State) -> State:
        """Agree with all peers on one model, and on what it scores on everybody's test data."""
        agreeing = Agreeing(self.plan, self.name)
        state, self.common = await agreeing.close(lambda: self._neighbourhood(self._next), state, notify=self._notify)
        return state

    def _neighbourhood(self, round: int, *, opening: bool = False, conserving: bool = True) -> LiveNeighbourhood:
        """Return the neighbourhood of a round, without protection."""
        self._training.seconds, self._next = 0.0, round + 1
        place = 0 if opening else round + 1
        return live(self.plan, self.connection, self.hiding, round=round, place=place, conserving=conserving)

    def _attempted(self, round: int) -> LiveNeighbourhood:
        """Return the neighbourhood of a round, with its attempts where the members of a round commit it together."""
        if self.hiding.attempts is None:
            return self._neighbourhood(round)
        self._training.seconds, self._next = 0.0, round + 1
        return attempted(self.plan, self.connection, self.hiding, attempts=self.hiding.attempts, round=round)

    def _repeated(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm, whose rounds are played again where totals or attempts fail."""
        attempts, repeating = self.hiding.attempts, RetryRound(algorithm)
        return repeating if attempts is None else RetryAttempt(repeating, attempts)

    def _contested(self, net: LiveNeighbourhood, *, round: int, late: bool) -> Neighbourhood:
        """Return the neighbourhood of a round, with the privacy mode, attack and robust rule of the experiment."""
        hidden = self.hiding.private(net, round=round)
        safe = self.plan.contested(hidden, round=round, observer=net, elsewhere=asyncio.to_thread)
        return LateArrival(safe, net) if late else safe

    def checkpoint(self, state: State, *, round: int) -> Checkpoint:
        """Return what this peer needs to begin a round as if it had never been away."""
        page, rows = self.session.ledgers.page()
        out, in_ = self.connection.bytes_out, self.connection.bytes_in
        return Checkpoint(self.name, round, state, page, rows, out, in_, statistics=self.statistics)

    def _alarm(self, round: int, scores: dict[str, float], net: LiveNeighbourhood) -> None:
        """Report at once that masks in the models did not cancel, and later that they have cancelled."""
        if not self.plan.masked:
            return
        kept, cover = self.best.best, self.hiding.cover
        self._alarms.settle(self.session.ledgers.masks.uncancelled())
        self._alarms.look(
            self.hiding.lost(net.missed),
            slot=None if cover is None else cover.slot,
            round=round,
            scores=scores,
            deviation=lambda: self.plan.residual,
            best=None if kept is None else (kept.round, self.best.place),
        )

    async def _after(self, round: int, state: State, net: LiveNeighbourhood) -> None:
        self._state, self._done = state, round + 1
        self._introduce()  # those who came late, or by new edges
        for neighbour in sorted({*net.refused} - self._refused):
            self._refused.add(neighbour)
            self._notify(ModelsRefused(peer=self.name, neighbour=neighbour, round=round))
        judged, self._judged = self._judged, None
        scores, spent = await asyncio.to_thread(self._measured, state) if judged is None else judged
        self._alarm(round, scores, net)
        record = recorded(self.connection, net, state, training=self._training, scores=scores, spent=spent)
        if self.observe is not None:
            self.observe(record, state)
        if judged is None:  # awaited: it evaluates the model that the next round trains
            loss = scores.get("validation_loss")
            await asyncio.to_thread(self.best.consider, self.plan, state.rows, round=round, validation=loss)
        if checkpointed(round, apart=self._apart, rounds=self.plan.experiment.rounds):
            await self._save(state)

    async def _judge(self, round: int, state: State) -> torch.Tensor:
        """Keep a round's model if it is the best so far; return whether this peer still finds such models."""
        scores, spent = await asyncio.to_thread(self._measured, state)
        self._judged = scores, spent
        loss = scores.get("validation_loss")
        await asyncio.to_thread(self.best.consider, self.plan, state.rows, round=round, validation=loss)
        return self.best.improving(round, patience=self.plan.experiment.learning.patience or 0)

    def _measured(self, state: State) -> tuple[dict[str, float], float | None]:
        """Return the scores of a model and the epsilon spent so far; both can take long."""
        return scored(self.plan, state, self.name), self.meter.spent

    async def _save(self, state: State) -> None:
        """Begin to write the checkpoint of the last round, unless it is written already, or kept nowhere."""
        if self._saved != self._done and self.keeper.store is not None:
            self._saved = self._done
            own = self.plan.owned(state.rows[0], peer=self.name)
            await self.keeper.save(self.checkpoint(state, round=self._done), self.plan.saved, own=own)
