"""Runs of one algorithm whose training and messages the contract of algorithms watches and replaces."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import nn

from p2pfl.algorithms import Algorithm, State, learn, start
from p2pfl.core.draws import draw
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import P2PFLError, RunError, foremost
from p2pfl.core.neighbourhood import (
    Contribution,
    Neighbourhood,
    Public,
    PublicContribution,
    ReceivedModels,
    Released,
    TotalOptions,
    Wrapped,
    run_without_loop,
)
from p2pfl.core.rows import Rows
from p2pfl.core.traits import UNDECLARED, Traits
from p2pfl.experiment import Plan
from p2pfl.experiment.catalogue import declared_traits
from p2pfl.experiment.composing import compose
from p2pfl.experiment.modes import Mode
from p2pfl.learning import Fitted, Fitting, Learner, Sloping, TorchLearner
from p2pfl.network.peer import Peer
from p2pfl.network.transport.memory import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import StackedNeighbourhood, simulate
from p2pfl.testing.contract import ContractError, require
from p2pfl.topology import Schedule, Topology

SEED = 7
FEATURES, CLASSES = 5, 3


@dataclass(frozen=True)
class Call:
    """One call of a neighbourhood.

    Attributes
    ----------
    kind
        Which method was called.
    round
        Round of the call.
    rows, masses
        Arguments: of a total the integers if they are public, and otherwise their number and width.
    since
        Public parameters of a release.
    released
        Result of a release or a total, or the models that were mixed or received.
    """

    kind: Literal["release", "mix", "receive", "total"]
    round: int
    rows: Rows
    masses: torch.Tensor | None
    since: Rows | None
    released: Released


class RecordingNeighbourhood(Wrapped):
    """Neighbourhood that notes its calls, and may answer releases and totals from a script.

    Parameters
    ----------
    net, round
        Neighbourhood that carries the rows, and its round.
    calls
        List to which each call is appended.
    script
        Answers to the releases and totals of all rounds; each is removed when it is used. ``None`` for those of
        ``net``.
    """

    def __init__(self, net: Neighbourhood, round: int, *, calls: list[Call], script: list[Released] | None) -> None:
        super().__init__(net)
        self.number, self.calls, self.script = round, calls, script

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release rows, or return the next release of the script."""
        released = self._answer(await self._net.release(rows, since=since, masses=masses))
        self.calls.append(Call("release", self.number, rows.clone(), masses, since.rows.clone(), released))
        return released

    async def mix(self, released: Released) -> Released:
        """Mix released rows; equal ones have a memory each, so that what an algorithm writes into shows."""
        self._note("mix", released)
        mixed = await self._net.mix(released)
        return replace(mixed, rows=mixed.rows.contiguous())

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the received rows."""
        self._note("receive", released)
        return await self._net.receive(released)

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Take a total, or return the next one of the script."""
        totals = await self._net.total(contribution, **options)
        answer = self._answer(Released(torch.from_numpy(totals).unsqueeze(0)))
        passed = torch.tensor([[options["size"], options.get("bits", 64)]])
        if isinstance(contribution, PublicContribution):
            passed = torch.from_numpy(np.stack([contribution(peer) for peer in self.peers]))
        self.calls.append(Call("total", self.number, passed, None, None, answer))
        total: Ints = answer.rows[0].numpy()
        return total

    def _answer(self, released: Released) -> Released:
        """Return what was released, or the next answer of the script."""
        if self.script is None:
            return released
        require(bool(self.script), "how often it releases or takes totals depends on what training returned")
        return self.script.pop(0)

    def _note(self, kind: Literal["mix", "receive"], released: Released) -> None:
        self.calls.append(Call(kind, self.number, released.values.clone(), released.masses, None, released))


@dataclass
class Trainer:
    """Training of all rows, whose result ``change(rows, before, round)`` may replace.

    Attributes
    ----------
    learner
        Learner that trains.
    change
        Function of trained rows, or of gradients, and of the rows from which they come.
    gradients
        True if the algorithm took or corrected gradients.
    """

    learner: Learner
    change: Callable[[Rows, Rows, bool], Rows] | None = None
    gradients: bool = field(default=False, init=False)

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Train rows."""
        self.gradients |= options.get("correction") is not None
        fitted = self.learner.fit(rows, **options)
        if self.change is None:
            return fitted
        changed = self.change(fitted.rows, rows, False).clone()  # the algorithm may write into it
        active = options.get("active")
        return replace(fitted, rows=changed if active is None else torch.where(active.unsqueeze(-1), changed, rows))

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return gradients."""
        self.gradients = True
        slopes = self.learner.gradient(rows, **options)
        return slopes if self.change is None else self.change(slopes, rows, True)


@dataclass(frozen=True)
class Played:
    """Result of a run.

    Attributes
    ----------
    states
        The start, and the state after each round.
    calls
        Calls of the neighbourhood.
    trainer
        Learner that trained.
    """

    states: list[State]
    calls: list[Call]
    trainer: Trainer

    def of(self, kind: str) -> list[Call]:
        """Return the calls of one method."""
        return [call for call in self.calls if call.kind == kind]

    @property
    def answers(self) -> list[Released]:
        """Results of releases and totals, in order: all that becomes public."""
        return [call.released for call in self.calls if call.kind in {"release", "total"}]


@dataclass(frozen=True)
class Case:
    """An algorithm under test, with everything else that a run needs.

    Attributes
    ----------
    algorithm
        Algorithm under test.
    learner, topology, rounds, parts
        The other arguments of :func:`p2pfl.compose`.
    """

    algorithm: Algorithm
    learner: Learner
    topology: Topology | Schedule
    rounds: int
    parts: Mapping[str, Any]

    @property
    def traits(self) -> Traits:
        """Traits that the algorithm declares."""
        return declared_traits(self.algorithm, UNDECLARED)

    def plan(self, *, live: bool = False) -> Plan:
        """Return the plan of a run of a fresh copy of the algorithm."""
        settings = {"seed": SEED, "rounds": self.rounds, **self.parts}
        return compose(copy.deepcopy(self.algorithm), self.learner, self.topology, live=live, **settings)

    def under(self, mode: Mode | None) -> Case:
        """Return the case with a privacy mode."""
        return replace(self, parts={**self.parts, "privacy": mode})

    @cached_property
    def plain(self) -> Played:
        """A run of all rounds."""
        return self.play()

    def play(
        self,
        plan: Plan | None = None,
        *,
        begin: State | None = None,
        rounds: range | None = None,
        change: Callable[[Rows, Rows, bool], Rows] | None = None,
        script: Sequence[Released] | None = None,
    ) -> Played:
        """Run rounds of all peers.

        Parameters
        ----------
        plan
            Plan of the run; :meth:`plan` by default.
        begin, rounds
            State to begin from, and the rounds that follow it; the start and all rounds by default.
        change
            Function that replaces what training returns.
        script
            Answers to releases and totals.
        """
        made = self.plan() if plan is None else plan
        trainer = Trainer(made.learner, change)
        begin = begin or start(made.learner, made.topology.peers)
        states, calls = [begin.map(torch.Tensor.contiguous)], list[Call]()
        answers, union = None if script is None else list(script), made.topology.union

        async def observe(_round: int, state: State, _net: StackedNeighbourhood) -> None:
            states.append(state)

        running = learn(
            made.played,
            trainer,
            states[0],
            rounds=range(self.rounds) if rounds is None else rounds,
            neighbourhood=lambda round: StackedNeighbourhood(made.weights, round=round, seed=SEED, graph=union),
            private=lambda net, round: RecordingNeighbourhood(net, round, calls=calls, script=answers),
            observe=observe,
        )
        try:
            run_without_loop(running)
        except RunError as error:
            raise ContractError(f"simulated peers stopped: {error}") from error
        require(not answers, "how often it releases or takes totals depends on what training returned")
        return Played(states, calls, trainer)

    def mean(self, plan: Plan) -> Rows:
        """Return the mean of the final models of :func:`p2pfl.simulate`, ``[P]``."""
        models = simulate(plan, baselines=False, source=SeededSource(SEED)).models.values()
        return torch.stack([torch.cat([tensor.flatten() for tensor in each.values()]) for each in models]).mean(0)

    def live(self) -> dict[str, State]:
        """Return the last state of live peers, which exchange messages in memory and in virtual time."""
        transport, peers = MemoryTransport(), self.topology.peers
        plans = {peer: self.plan(live=True) for peer in peers}

        async def one(name: str) -> State:
            peer = Peer(name, plans[name], transport=transport, source=SeededSource(SEED), incarnation=1)
            async with peer:
                return await peer.run()

        async def swarm() -> dict[str, State]:
            async with asyncio.TaskGroup() as tasks:
                running = {name: tasks.create_task(one(name)) for name in peers}
            return {name: task.result() for name, task in running.items()}

        try:
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                return runner.run(swarm())
        except BaseExceptionGroup as group:
            error = foremost(group)
            if isinstance(error, P2PFLError):
                raise ContractError(f"live peers stopped: {error}") from error
            raise error from None


def classifier(peers: Sequence[str]) -> TorchLearner:
    """Return a small network in double precision, and for each peer samples that no other peer has."""
    model = nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, CLASSES)).double()
    random = draw(SEED, "contract")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(random.normal(scale=0.3, size=tuple(parameter.shape))))
    data = {}
    for number, peer in enumerate(peers):
        targets = random.permutation([index % CLASSES for index in range(15 + 5 * number)])
        features = random.normal(size=(len(targets), FEATURES))
        features[:, :CLASSES] += 2 * (targets[:, None] == range(CLASSES))
        data[peer] = torch.from_numpy(features), torch.from_numpy(targets)
    return TorchLearner(model, data, seed=SEED, rate=0.2, batch=8, device="cpu", dtype=torch.float64)
