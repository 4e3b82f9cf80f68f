"""Attempts at a round: its parameters count once all members have received all models, or it is played again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar, Unpack

from p2pfl.algorithms import Algorithm, AsyncLearner, State, StopCondition, train_while
from p2pfl.core.errors import OutdatedError, PeerError, PrivacyError, TopologyError, UndecidedError
from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, Wrapped
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.learning import Fitted, Fitting, Sloping
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.mask_cover import MaskCover
from p2pfl.network.protocol.interface.effects import Concluded, Undecided
from p2pfl.network.protocol.interface.requests import ReportAttempt, Try
from p2pfl.network.protocol.ledgers.mask_slots import Slot
from p2pfl.privacy import Masks
from p2pfl.results.spending.meter import Meter
from p2pfl.topology import Schedule, Topology, Weights, check_connected, flood_steps, weights_among

Result = TypeVar("Result")

MAX_ATTEMPTS = 8
"""Attempts at one round: the same update under m independent masks is hidden as under one of deviation 1 / sqrt(m)."""

EARLIEST_STOP = 2
"""First round before which peers may stop: the first release may be the model with which all begin."""

STEPS_OF_HALF = 2**15
"""Gossip steps of half an attempt at least: a flood of the condition to stop, if there is one, takes the first half."""


class AgainError(PeerError):
    """Error for an attempt that has failed; the round is played again among those that are left."""


class StopReachedError(PeerError):
    """Error for a round that is not played, because all members know that they stop before it."""


def steps_of_half(period: int) -> int:
    """Return the gossip steps of half an attempt on a schedule, whose graphs are those of the first steps again."""
    return -(-STEPS_OF_HALF // period) * period


def first_step(half: int, *, attempts: int, floods: bool) -> int:
    """Return the first gossip step of a round's models after failed attempts; ``floods`` if a flood precedes them.

    Examples
    --------
    >>> first_step(steps_of_half(3), attempts=1, floods=True)
    98307
    """
    return half * (2 * attempts + int(floods))


@dataclass
class Attempts:
    """Attempts of one peer at its rounds.

    Parameters
    ----------
    connection
        Connection to the neighbours.
    cover
        Masks of this peer's releases.
    masks
        Function that returns the masks with all partners that were met.
    meter
        Meter of what this peer's updates cost.
    topology, weights
        Graph of all peers, and the planned weights of its gossip steps.
    stop
        Condition to stop before the last round, if any.
    goes_on
        True if a round without a missing peer is played again; otherwise this peer ends.
    members
        Peers that take part, sorted.
    attempt
        Number of the attempt, which grows during the run.
    """

    connection: Connection
    cover: MaskCover
    masks: Callable[[], Masks]
    meter: Meter
    topology: Topology | Schedule
    weights: Sequence[Weights]
    stop: StopCondition | None
    goes_on: bool
    members: tuple[str, ...]
    attempt: int
    _round: int = -1
    _first: int = 0  # attempt with which the round began
    _charged: bool = False  # True once the update of the round is charged
    _known: bytes = b""  # incarnations of the members when this peer chose its masks
    _rows: dict[tuple[tuple[str, ...], int], dict[str, float]] = field(default_factory=dict)  # by members and phase
    flooding: bool = False

    @property
    def _me(self) -> str:
        return self.cover.slots.peer

    @property
    def floods(self) -> bool:
        """True if members flood at the beginning of the attempt whether they stop."""
        return self.stop is not None and self._round >= EARLIEST_STOP

    @property
    def step(self) -> int:
        """First gossip step of the flood or of the models: those of later attempts at a round have later numbers."""
        half = steps_of_half(self.topology.period)
        return first_step(half, attempts=self.attempt - self._first, floods=self.floods and not self.flooding)

    @property
    def abandoned(self) -> bool:
        """True if another member has reported that the attempt has failed."""
        return self.connection.session.shared.abandoned

    def begin(self, round: int) -> None:
        """Begin the present attempt at a round, before anything of it is sent.

        Raises
        ------
        UndecidedError
            A peer is missing, and this one is to end then.
        """
        gone = ", ".join(sorted({*self.topology.peers} - {*self.members}))
        if gone and not self.goes_on:
            raise UndecidedError(f"{gone} is gone, so round {round} cannot be played; start the run again")
        if round != self._round:
            self._round, self._first = round, self.attempt
            self._charged = self.cover.alone = False
        self.cover.attempt = self.attempt
        self._known = b""
        self.connection.submit(Try(round, self.attempt, self.members))

    def row(self, phase: int) -> dict[str, float]:
        """Return the weights of a gossip step among the members, which conserve their mean.

        They are as planned; without some peers those of Metropolis, or of push-sum where edges do not weigh alike at
        both ends.
        """
        here = self.members, phase
        if here not in self._rows:
            weights = self.weights[phase]
            if self.members != self.topology.peers:
                weights = weights_among(self.topology.at(phase), weights, self.members)
            self._rows[here] = weights.row(self._me)
        return dict(self._rows[here])

    async def stops(self, net: Neighbourhood, *, moved: torch.Tensor | None, improving: torch.Tensor | None) -> bool:
        """Flood at the beginning of an attempt whether the members stop, which all of them answer alike if it counts.

        Parameters
        ----------
        net
            Neighbourhood of the round.
        moved, improving
            Of the round before, as in :meth:`~p2pfl.algorithms.StopCondition.reached`; a peer that does not know them,
            because it has begun with this round, holds the others back.
        """
        if self.stop is None or not self.floods:
            return False
        unknown = torch.full((1, 1), torch.inf, dtype=torch.float64)
        self.flooding = True
        try:
            return await self.stop.reached(
                net,
                moved=None if self.stop.change is None else unknown if moved is None else moved,
                improving=None if self.stop.patience is None else unknown if improving is None else improving,
                steps=self.stop.steps if self.members == self.topology.peers else flood_steps(self._among()),
            )
        finally:
            self.flooding = False

    def _among(self) -> Topology | Schedule:
        """Return the graph of the members."""
        return self.topology.without({*self.topology.peers} - {*self.members})

    async def check(self, round: int) -> None:
        """End the attempt before this peer releases anything in it, if it cannot count any more."""
        self.cover.masks = self.masks()
        if self.abandoned or self.cover.strangers(round, members=frozenset(self.members)):
            await self.fail()

    async def pay(self, round: int, charge: Callable[..., None]) -> None:
        """Charge the update of the round, before the first attempt that releases it.

        Parameters
        ----------
        round
            Round.
        charge
            Function that charges an update, as :meth:`~p2pfl.results.spending.meter.Meter.charge` does.

        Raises
        ------
        BudgetError
            The update would cost more than is left of the budget.
        """
        await self.check(round)  # nothing is charged for what does not leave
        covered = self.cover.covers(round, members=frozenset(self.members))
        if not self._charged:
            self.cover.alone |= not covered
            if self.meter.claims:
                await asyncio.to_thread(charge, whole=not self.cover.alone)
            else:
                charge(whole=not self.cover.alone)
            self._charged = True

    async def hide(self, round: int) -> None:
        """Choose fresh masks for the release of the attempt, unless it has failed already."""
        await self.check(round)
        self.cover.decide(round, members=frozenset(self.members))
        self._known = self.connection.session.membership.incarnations(self.members)

    async def fail(self) -> NoReturn:
        """Report that this peer cannot complete the attempt.

        Raises
        ------
        AgainError
            The round is played again.
        OutdatedError
            The round counts all the same, and this peer ends.
        """
        await self.report(complete=False)
        raise OutdatedError(
            f"round {self._round} counts although {self._me} has reported that it failed, because its files are older "
            "than what it has sent, as in a restored backup, or more members are malicious than a committee tolerates; "
            "end all peers and start the run again without --resume, or with files of the same moment at all"
        )

    async def report(self, *, complete: bool) -> None:
        """Report the end of the attempt, and return once all members keep its parameters.

        Raises
        ------
        AgainError
            The attempt has failed, and the round is played again.
        BudgetError
            The failed attempt has cost more than was left of the budget; what it cost is recorded.
        UndecidedError
            The verdicts are not known in time, the others continue without this peer, or this peer is to end now.
        """
        answer = await self.connection.ask(ReportAttempt(complete, self._known if complete else b""))
        if not isinstance(answer, Concluded):
            await self._expose()
            missing = ", ".join(sorted(answer.peers if isinstance(answer, Undecided) else ()))
            raise UndecidedError(
                f"round {self._round} cannot be completed at {self._me}, because no majority answered about {missing} "
                "in time; start the missing peers and the run again, or raise transport.patience if none is missing"
            )
        before, self.members = self.members, answer.members
        gone = ", ".join(sorted({*before} - {*answer.members}))
        if self._me not in answer.members:
            await self._expose()
            raise UndecidedError(
                f"{self._me} was cut off in round {self._round}, and the others continue without it; start the run "
                "again to take part in all rounds"
            )
        if answer.committed:
            return
        self._check(gone, answer.failed)
        await self._expose()
        self.meter.check(self._round)  # nothing of the next attempt has left
        self.attempt += 1
        raise AgainError(f"attempt {self.attempt - 1} at round {self._round} has failed")

    def _check(self, gone: str, failed: str | None) -> None:
        """Raise an error if the round cannot be played again; ``failed`` names the member that lacked a model first."""
        if gone:
            why = f"{gone} is missing"
        elif failed is not None:
            why = f"{failed} has not received all models in time, or has restarted"
        else:
            why = "a peer has restarted"
        if not self.goes_on:
            raise UndecidedError(
                f"round {self._round} did not complete, because {why}; start the run again, "
                'or set privacy.departures to "go_on" if the update of such a peer may become visible'
            )
        try:
            check_connected(self._among())
        except TopologyError:
            raise UndecidedError(
                f"round {self._round} cannot be played again without {gone}, because the others are no longer "
                "connected; start the missing peers and the run again, or choose a topology with more edges"
            ) from None
        if self.attempt - self._first + 1 >= MAX_ATTEMPTS:
            raise UndecidedError(
                f"round {self._round} has failed {MAX_ATTEMPTS} times, the last one because {why}; "
                "check the network, and start the run again"
            )

    async def _expose(self) -> None:
        """Record that the others may see the update of this round under its private noise alone, before they can.

        An update that is not charged has not left; its first release is charged so.
        """
        if not self.goes_on:
            return
        if self._charged and not self.cover.alone:
            self.meter.correct(self._round)
            self.cover.charged.add(Slot(self.attempt, self._round))  # last: the journal may be written meanwhile
        self.cover.alone = True
        await self.connection.durable()


class RetryAttempt:
    """Algorithm whose rounds are played again until an attempt counts; each attempt has the same noisy update.

    Parameters
    ----------
    algorithm, attempts
        Algorithm of the peer, and its attempts.
    improving
        Function that returns ``[1, 1]``: 1 if the peer still found a better model in the round before; ``None`` if that
        is not known.
    """

    def __init__(
        self, algorithm: Algorithm, attempts: Attempts, *, improving: Callable[[], torch.Tensor | None] = lambda: None
    ) -> None:
        self.algorithm, self.attempts, self.improving = algorithm, attempts, improving
        self._moved: torch.Tensor | None = None

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round, from the state before it in each attempt.

        Raises
        ------
        StopReachedError
            The members stop before this round.
        """
        once, attempts = CachedTraining(learner), self.attempts
        while True:
            attempts.begin(round)
            try:
                stops = await attempts.stops(net, moved=self._moved, improving=self.improving())
                after = state if stops else await self.algorithm.round(state, once, net, round)
                await attempts.report(complete=True)
            except AgainError:
                once.rewind()
            else:
                break
        if stops:
            raise StopReachedError(f"the condition to stop held after round {round - 1}")
        self._moved = None if attempts.stop is None else attempts.stop.moved(state, after)
        return after


class CachedTraining:
    """Learner that trains the same parameters once per round, so that all attempts release the same update.

    Parameters
    ----------
    learner
        Learner of the peer.
    """

    def __init__(self, learner: AsyncLearner) -> None:
        self.learner = learner.learner
        self._training = learner
        self._kept: list[tuple[Rows, Fitted]] = []
        self._next = 0

    def rewind(self) -> None:
        """Begin another attempt."""
        self._next = 0

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Train, or return what training the same parameters in an earlier attempt gave."""
        number, self._next = self._next, self._next + 1
        if number < len(self._kept) and torch.equal(self._kept[number][0], rows):
            return self._kept[number][1]
        fitted = replace(await self._training.fit(rows, **options), owned=False)  # another attempt returns it again
        self._kept[number:] = [(rows, fitted)]
        return fitted

    def train_while(
        self, training: Coroutine[Any, Any, Fitted], exchange: Coroutine[Any, Any, Result]
    ) -> Coroutine[Any, Any, tuple[Fitted, Result]]:
        """Train during an exchange as the learner itself does."""
        return train_while(self._training, training, exchange)

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return gradients of the rows."""
        return await self._training.gradient(rows, **options)


class MaskedRelease(Wrapped):
    """Neighbourhood of a round that releases the same noisy update in each attempt, under fresh masks.

    Parameters
    ----------
    net
        Neighbourhood whose releases have private noise and masks.
    attempts
        Attempts of the peer.
    round
        Round.
    """

    def __init__(self, net: Neighbourhood, attempts: Attempts, *, round: int) -> None:
        super().__init__(net)
        self._attempts, self._round = attempts, round
        self._bare: Released | None = None  # without masks; it never leaves
        self._released = -1  # attempt of the last release

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release the update, or in a later attempt what it was, under the masks of the attempt."""
        attempts, bare = self._attempts, self._bare
        if attempts.attempt == self._released:
            raise PrivacyError(
                "the algorithm releases two models in a round, and masks hide one; release them as one model, or set "
                'privacy.mode to "independent"'
            )
        self._released = attempts.attempt
        if bare is None:
            released = await self._net.release(rows, since=since, masses=masses)
            self._bare = self._mask(released, -1)
            return released
        await attempts.hide(self._round)
        size = bare.rows.shape[-1]
        await asyncio.to_thread(attempts.cover.sums, self.peers, round=self._round, size=size)
        return self._mask(bare, 1)

    def _mask(self, released: Released, sign: int) -> Released:
        masks = torch.from_numpy(sign * self._attempts.cover.drawn).to(released.rows.device)  # [1, P]
        return Released(released.rows + masks, released.masses, grid=released.grid, dtype=released.dtype)
