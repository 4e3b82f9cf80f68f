"""Rounds of a live peer: which it plays, what it keeps and reports of each, and why it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal, cast

from p2pfl.algorithms import Algorithm, ReadingAlgorithm, State, Statistics, learn, start
from p2pfl.core.errors import BudgetError, CoverError, OutdatedError, UndecidedError
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.tensors import torch
from p2pfl.data.readings import DataPosition
from p2pfl.experiment import Plan
from p2pfl.experiment.growing_data import GrowingData
from p2pfl.experiment.timetable import Position, Timetable
from p2pfl.network.peer.change_exchange import ChangeExchange
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.joining.late_arrival import ForgetMoments, LateArrival, SkipTraining
from p2pfl.network.peer.masking.model_protection import ModelProtection
from p2pfl.network.peer.masking.round_attempts import Attempts, RetryAttempt, StopReachedError
from p2pfl.network.peer.neighbourhoods.factory import round_neighbourhood
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.pauses import AsleepError, Pauses
from p2pfl.network.peer.round_totals import RetryRound
from p2pfl.network.peer.storage.best import BestModel
from p2pfl.network.peer.storage.checkpoint import Best, Checkpoint, ends_with_checkpoint, rounds_apart
from p2pfl.network.peer.storage.writer import Keeper
from p2pfl.network.peer.threads import Threaded
from p2pfl.network.protocol.interface.effects import Play
from p2pfl.network.protocol.interface.requests import NextRound, Stop, Tolerate, Turn
from p2pfl.privacy.keys import Source
from p2pfl.results import Record
from p2pfl.results.evidence import Witness
from p2pfl.results.notices.alarms import find_alarm
from p2pfl.results.notices.kinds import (
    AcceptanceWithheld,
    DataOutdated,
    DataRead,
    DataUnreadable,
    LearningStopped,
    ModelsRefused,
    Notice,
)
from p2pfl.results.records import late_senders
from p2pfl.results.spending.meter import Meter
from p2pfl.results.summary import assess


@dataclass
class Alarms:
    """Alarms of one peer about models under masks whose loss rises steeply.

    A member may have left half of its masks in them.

    Parameters
    ----------
    peer
        Name of the peer.
    notify
        Called with each alarm; nothing is looked at without it.
    """

    peer: str
    notify: Callable[[Notice], None] | None
    _scores: Mapping[str, float] | None = None  # after the last round

    def look(self, *, round: int, scores: Mapping[str, float], best: tuple[int, str | None] | None) -> None:
        """Raise an alarm if the loss rose steeply in a round.

        Parameters
        ----------
        round, best
            As in :func:`p2pfl.results.notices.alarms.find_alarm`.
        scores
            After the round.
        """
        before, self._scores = self._scores, scores
        if self.notify is None:
            return
        alarm = find_alarm(self.peer, round=round, before=before, now=scores, best=best)
        if alarm is not None:
            self.notify(alarm)


@dataclass(frozen=True)
class PeerParts:
    """Parts of a live peer that its rounds and its end need.

    Parameters
    ----------
    name, plan
        The peer, and the plan that it plays, with its features scaled.
    statistics
        Statistics of the features that all peers agreed on; ``None`` without them.
    data
        Rows with which it begins, and when it reads them again.
    connection, hiding
        Connection to the neighbours, and protection of the models.
    keeper, best
        Its store, and its best model.
    meter, source
        Meter of its privacy cost, and source of private noise.
    training
        Learner, in a thread.
    notify, observe
        Called with each notice, and with each round's record and state.
    introduce
        Reports the neighbours that are new.
    now
        Returns the seconds since 1970.
    alarms
        Alarms about models under masks.
    witness
        Notes the evidence of the rounds; ``None`` where nothing is kept.
    changes
        Changes of the swarm, one of which may end the run early; ``None`` where nobody may change it.
    """

    name: str
    plan: Plan
    statistics: Statistics | None
    data: GrowingData
    connection: Connection
    hiding: ModelProtection
    keeper: Keeper
    best: BestModel
    meter: Meter
    source: Source
    training: Threaded
    notify: Callable[[Notice], None]
    observe: Callable[[Record, State], None]
    introduce: Callable[[], None]
    now: Callable[[], float]
    alarms: Alarms
    witness: Witness | None
    changes: ChangeExchange | None


@dataclass(frozen=True)
class FirstRound:
    """Round with which a peer goes on.

    Parameters
    ----------
    round
        Its number.
    checkpoint
        Checkpoint to continue from; ``None`` at the beginning.
    over
        True if an earlier incarnation promised to release nothing more.
    new
        True if the run goes on from models of which this peer has none, so that it is late even in the first round.
    """

    round: int
    checkpoint: Checkpoint | None
    over: bool
    new: bool = False

    @property
    def late(self) -> bool:
        """True if others have models of rounds that this peer has not played."""
        return self.round > self.done or (self.new and self.checkpoint is None)

    @property
    def done(self) -> int:
        """Rounds whose parameters the peer has."""
        return 0 if self.checkpoint is None else self.checkpoint.round


class Rounds:
    """Rounds of one incarnation of a peer.

    Parameters
    ----------
    parts, first
        Parts of the peer, and the round with which it goes on.

    Attributes
    ----------
    state, done
        State after the last round, and the number of rounds whose parameters the peer has.
    next
        Round after the last that was begun.
    ended
        ``"played"`` once all rounds are played, or the reason why the peer stopped; ``None`` before.
    wakes
        Time in seconds since 1970 at which a device that sleeps comes back; ``None`` for others.
    """

    def __init__(self, parts: PeerParts, first: FirstRound) -> None:
        self.parts, self.first = parts, first
        checkpoint = first.checkpoint
        self.state = start(parts.plan.learner, (parts.name,)) if checkpoint is None else checkpoint.state
        self.done = self._saved = first.done
        self.next = first.round
        self.ended: Literal["played", "budget", "partners", "undecided", "asleep"] | None = None
        self.wakes: float | None = None
        self.outdated = False
        span = getattr(parts.plan.algorithm, "fragments", 1) if first.late else 0
        self._late = range(first.round, first.round + span)
        self._apart = rounds_apart(parts.plan)  # from one checkpoint to the next
        self._refused = set[str]()  # neighbours of whose unusable models people have been told
        self._improving: torch.Tensor | None = None  # 1 if the last round had a better model than all before, [1, 1]
        self._judged: tuple[dict[str, float], float | None] | None = None  # scores before the round was recorded
        self._outdated = False  # people have been told that the data file has changed
        self.data = parts.data.scaled(parts.plan, parts.statistics)
        self.pauses = Pauses(
            Timetable.of(parts.plan.experiment.transport.pace),
            now=parts.now,
            connection=parts.connection,
            position=None if checkpoint is None else checkpoint.pace,
        )

    async def play(self) -> None:
        """Play the rounds, as far as the budget, the partners and the verdicts permit."""
        parts, plan, first = self.parts, self.parts.plan, self.first
        parts.hiding.begin(parts.connection)
        parts.connection.submit(Tolerate(plan.experiment.transport.hurry))  # before and after, peers wait for all
        rounds = range(0) if first.over else parts.meter.since(first.round)
        if parts.changes is not None:
            parts.changes.begin(first.round, done=first.done)
        try:
            self.state = await self._learn(rounds)
        except AsleepError as asleep:  # the others go on, and this peer comes back
            self.ended, self.wakes = "asleep", asleep.wakes
            if self.done:
                await self._save(self.state)
        except (BudgetError, CoverError, UndecidedError) as error:  # the others go on
            self.ended = "undecided" if isinstance(error, UndecidedError) else "partners"
            self.outdated = isinstance(error, OutdatedError)
            if isinstance(error, BudgetError):
                self.ended = "budget"
            parts.notify(LearningStopped(peer=parts.name, reason=self.ended, message=str(error)))
            if self.ended != "undecided":  # else it can be resumed, and release again
                await parts.connection.ask(Stop())
        else:
            self.ended = "played"
            if self.done:
                await self._save(self.state)  # from here on nobody can go on from an older one
            parts.keeper.note_rounds(max(self.done, self.first.round))
            parts.connection.submit(Tolerate(None))

    def _take(self, data: GrowingData) -> None:
        """Train and evaluate on these data from here on."""
        self.data, self.parts = data, replace(self.parts, plan=data.plan)
        self.parts.training.learner = data.plan.learner
        self.parts.meter.samples.follow(data.plan.learner)

    async def _before(self, round: int, state: State) -> None:
        """Wait until a round may begin, and read the peer's data again."""
        await self.pauses.before(round)
        if self.parts.changes is not None:
            await self.parts.changes.before(round)
        await self.read_again(round, state)

    async def read_again(self, round: int, state: State) -> None:
        """Read the peer's data again before a round, if that is due; data that cannot be read are kept as they were."""
        before = self.data
        if before.files and not self._outdated:
            self._outdated = bool(await asyncio.to_thread(before.outdated))
            if self._outdated:
                self.parts.notify(DataOutdated(peer=self.parts.name, round=round))
        if not before.due(round):
            return
        data, failed = await asyncio.to_thread(before.again, round)
        for peer, message in failed.items():
            self.parts.notify(DataUnreadable(peer=peer, round=round, message=message))
        if data.read == before.read:
            self.data = data
            return
        self._take(data)
        for peer, change in (await asyncio.to_thread(data.changes, before, state.rows)).items():
            self.parts.notify(DataRead(peer=peer, round=round, **asdict(change)))

    async def _learn(self, rounds: range) -> State:
        """Return the state after the last round, or after that with which the condition to stop held."""
        parts, plan, first = self.parts, self.parts.plan, self.first
        try:
            return await learn(
                self._repeat(ForgetMoments(plan.played, plan.asked.algorithm.moments, rounds=self._late)),
                SkipTraining(parts.training, rounds=self._late) if first.late else parts.training,
                self.state,
                rounds=_turns(parts.connection, plan, rounds, changes=parts.changes),
                neighbourhood=self._attempt,
                private=lambda net, round: self.protect(net, round=round),
                observe=self._after,
                stop=None if parts.hiding.attempts is not None else plan.stop,  # attempts settle it as well
                judge=None if plan.experiment.learning.patience is None else self._judge,
            )
        except StopReachedError:
            return self.state

    # ------------------------------------------------------------------ neighbourhoods

    def neighbourhood(self, round: int) -> LiveNeighbourhood:
        """Return the neighbourhood of a round, without protection."""
        return self._begun(round, None)

    def _attempt(self, round: int) -> LiveNeighbourhood:
        """Return the neighbourhood of a round, with its attempts where the members of a round commit it together."""
        attempts = self.parts.hiding.attempts
        return self.neighbourhood(round) if attempts is None else self._begun(round, attempts)

    def _begun(self, round: int, attempts: Attempts | None) -> LiveNeighbourhood:
        parts, self.next = self.parts, round + 1
        parts.training.seconds = 0.0
        net = round_neighbourhood(
            parts.plan, parts.connection, parts.hiding, round=round, total_round=round + 1, attempts=attempts
        )
        net.witness = parts.witness
        net.idle_clock = parts.training.idle_clock
        return net

    def _repeat(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm, whose rounds are played again where totals or attempts fail."""
        attempts, repeated = self.parts.hiding.attempts, cast("Algorithm", RetryRound(algorithm))
        if attempts is not None:
            repeated = RetryAttempt(repeated, attempts, improving=lambda: self._improving)
        return ReadingAlgorithm(repeated, self._before)

    def protect(self, net: LiveNeighbourhood, *, round: int) -> Neighbourhood:
        """Return the neighbourhood of a round, with the privacy mode, attack and robust rule of the experiment."""
        plan = self.parts.plan
        hidden = self.parts.hiding.private(net, round=round)
        safe = plan.contested(hidden, round=round, observer=net, elsewhere=asyncio.to_thread)
        return LateArrival(safe, net, masked=plan.masked) if round in self._late else safe

    # ------------------------------------------------------------------ after a round

    async def _after(self, round: int, state: State, net: LiveNeighbourhood) -> None:
        parts = self.parts
        self.state, self.done = state, round + 1
        parts.introduce()  # those who came late, or by new edges
        for neighbour in sorted({*net.refused} - self._refused):
            self._refused.add(neighbour)
            parts.notify(ModelsRefused(peer=parts.name, neighbour=neighbour, round=round))
        for member, when, times in parts.connection.session.take_withheld():
            parts.notify(AcceptanceWithheld(peer=parts.name, neighbour=member, round=when, times=times))
        judged, self._judged = self._judged, None
        kept = parts.best.best
        scores, spent = await asyncio.to_thread(self._measure, round, state) if judged is None else judged
        self._alarm(round, scores, kept)
        report = state.report
        record = Record(
            peer=net.name,
            round=net.round,
            scores=scores,
            training_loss=float(report.loss) if report is not None and report.steps else None,
            distance=net.distance,
            bytes_out=parts.connection.bytes_out,
            bytes_in=parts.connection.bytes_in,
            seconds_training=parts.training.seconds,
            seconds_waiting=net.seconds_waiting,
            received=net.received,
            missed=net.missed,
            awaited=late_senders(net.waits),
            privacy_spent=spent,
            update=parts.training.update,
            mixed=state.mixed,
        )
        parts.observe(record, state)
        if parts.witness is not None:
            membership = parts.connection.session.membership
            incarnations = {peer: membership.up[peer].incarnation for peer in membership.present}
            parts.witness.play(state.rows[0], round=round, spent=spent, incarnations=incarnations, public=state.mixed)
        if ends_with_checkpoint(round, apart=self._apart, rounds=parts.plan.experiment.horizon):
            await self._save(state)

    async def _judge(self, round: int, state: State) -> torch.Tensor:
        """Keep a round's model if it is the best so far; return whether this peer still finds such models."""
        parts = self.parts
        self._judged = await asyncio.to_thread(self._measure, round, state)
        self._improving = parts.best.improvement(round, patience=parts.plan.experiment.learning.patience or 0)
        return self._improving

    def _measure(self, round: int, state: State) -> tuple[dict[str, float], float | None]:
        """Return the scores of a model and the epsilon spent so far, and keep the best model; all can take long."""
        parts, since = self.parts, self.data.judged.get(self.parts.name, 0)
        scores = {name: float(each[0]) for name, each in assess(parts.plan, state.rows, (parts.name,)).items()}
        loss = scores.get("validation_loss")
        parts.best.consider(parts.plan, state.rows, round=round, validation=loss, since=since)
        return scores, parts.meter.spent

    def _alarm(self, round: int, scores: dict[str, float], kept: Best | None) -> None:
        """Report a loss under masks that rises steeply, and the best model that was kept before."""
        parts = self.parts
        if not parts.plan.masked:
            return
        best = None if kept is None else (kept.round, parts.best.place)
        parts.alarms.look(round=round, scores=scores, best=best)

    async def _save(self, state: State) -> None:
        """Begin to write the checkpoint of the last round, unless it is written already, or kept nowhere."""
        parts = self.parts
        if self._saved != self.done and parts.keeper.store is not None:
            self._saved = self.done
            own = parts.plan.owned(state.rows[0], peer=parts.name)
            checkpoint = checkpoint_of(
                parts.connection,
                state,
                round=self.done,
                statistics=parts.statistics,
                data=self.data.position(parts.name),
                pace=self.pauses.position,
            )
            await parts.keeper.save(checkpoint, partial(parts.plan.saved, peer=parts.name), own=own)


def checkpoint_of(
    connection: Connection,
    state: State,
    *,
    round: int,
    statistics: Statistics | None,
    data: DataPosition | None = None,
    pace: Position | None = None,
) -> Checkpoint:
    """Return what a peer needs to begin a round as if it had never been away."""
    session = connection.session
    page, rows = session.ledgers.page()
    out, in_ = connection.bytes_out, connection.bytes_in
    return Checkpoint(session.shared.me.peer, round, state, page, rows, out, in_, statistics, data, pace)


def _turns(connection: Connection, plan: Plan, rounds: range, *, changes: ChangeExchange | None) -> Iterator[int]:
    """Yield the rounds that a peer plays: all, unless it is slow, or a change ends the run, or others went on."""
    due = rounds.start

    def end() -> int:
        last = None if changes is None else changes.last
        return rounds.stop if last is None else min(last, rounds.stop)

    together = plan.topology.period == 1 and not plan.topology.at(0).directed
    for round in rounds:
        if round < due:
            continue
        if round >= end():
            return
        connection.submit(Turn(round))
        yield round
        if not plan.asynchronous:
            apart = 1 if together else plan.flood_steps
            answer = connection.submit(NextRound(apart=apart, last=end() - 1))
            due = answer.round if isinstance(answer, Play) else round + 1
