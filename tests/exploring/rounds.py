"""Members of an attempt at a round of several gossip steps, which report and come to an outcome: the explorer's model.

A member sends its model of a gossip step once it has those of its neighbours of the step before, may give up at any
time, and begins a limited number of ballots on others' reports. Messages may be lost, late and repeated; a member that
is dead makes no move any more, and any member may be. Disks do not block, and nobody restarts: crashes and writes of
agreements are explored in :mod:`exploring.members`.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from exploring.explorer import Explorer
from exploring.members import copied, frozen
from p2pfl.network.protocol.agreement.agreement_effects import Send
from p2pfl.network.protocol.agreement.attempt_reports import FAILED, complete, outcome, report
from p2pfl.network.protocol.agreement.settlement import Effect, Settlement, Write
from p2pfl.network.protocol.wire.verdict_messages import Committee

LINE = {"ada": ("bob",), "bob": ("ada", "eve"), "eve": ("bob",)}
"""Neighbours of three peers, of which two share no edge."""

LATER = 1e9
"""Time at which every ballot is due."""

Sent = list[tuple[str, Any]]


@dataclass(frozen=True)
class Player:
    """Member of an attempt, in a state.

    Parameters
    ----------
    name, graph, steps
        Name of the member, neighbours of each member, and gossip steps of the attempt.
    machine
        Its agreements on all reports.
    sent
        Number of gossip steps of which it has sent its model.
    got
        Models that it has received, by sender and gossip step.
    said
        Its report; empty before.
    ballots
        Ballots that it may still begin.
    """

    name: str
    graph: dict[str, tuple[str, ...]]
    steps: int
    machine: Settlement
    sent: int = 0
    got: frozenset[tuple[str, int]] = frozenset()
    said: bytes = b""
    ballots: int = 0

    @cached_property
    def key(self) -> Hashable:
        machine = self.machine
        agreements = tuple((each, frozen(agreement)) for each, agreement in machine._agreements.items())
        asked = tuple(sorted((release, *sorted(early)) for release, early in machine._early.items()))
        rest = frozenset(machine._doubted), asked, frozenset(machine._requests)
        return self.name, agreements, rest, self.sent, self.got, self.said, self.ballots

    def has(self, step: int) -> bool:
        """Return whether it has all models of a gossip step."""
        return all((each, step) in self.got for each in self.graph[self.name])

    @property
    def verdicts(self) -> dict[str, Any]:
        """Verdicts that it knows, by member."""
        found = {release.peer: self.machine.verdict(release) for release in self.machine.admitted}
        return {peer: value for peer, value in found.items() if value is not None}

    @property
    def concluded(self) -> Any:
        """Outcome at this member; ``None`` before."""
        return outcome(self.verdicts) if len(self.verdicts) == len(self.graph) else None

    def moves(self) -> Iterable[Hashable]:
        if self.said:
            if self.ballots:
                yield from (("doubts", each) for each in self.graph if each not in {self.name, *self.verdicts})
            return
        yield "gives up"
        if self.sent < self.steps and (not self.sent or self.has(self.sent - 1)):
            yield "sends"
        if self.sent == self.steps and self.has(self.steps - 1):
            yield "is complete"

    def after(self, move: Hashable) -> list[tuple[Player, Sent]]:
        if move == "sends":
            model = [(each, ("model", self.sent)) for each in self.graph[self.name]]
            return [(replace(self, sent=self.sent + 1), model)]
        after = replace(self, machine=duplicate(self.machine))
        if isinstance(move, tuple):
            after = replace(after, ballots=self.ballots - 1)
            effects = after.machine.doubts(move[1], now=0.0)
            return [after.done([*effects, *after.machine.tick(now=LATER)])]
        value = complete() if move == "is complete" else FAILED
        after = replace(after, said=value)
        return [after.done(after.machine.releases(report(self.name, 0, 0), value=value, now=0.0))]

    def receives(self, sender: str, message: Any) -> tuple[Player, Sent] | None:
        if isinstance(message, tuple):
            return replace(self, got=self.got | {(sender, message[1])}), []
        after = replace(self, machine=duplicate(self.machine))
        return after.done(after.machine.receives(sender, message, now=0.0))

    def done(self, effects: list[Effect]) -> tuple[Player, Sent]:
        """Return this member after it has stored what it is to store, and what it sends."""
        sent, effects = [], [*effects]
        while effects:
            match effects.pop(0):
                case Write(release):
                    effects += self.machine.finish_write(release, now=0.0)
                case Send(to, message):
                    sent.append((to, message))
        return self, sent


def duplicate(machine: Settlement) -> Settlement:
    """Return agreements that go on by themselves."""
    other = copy.copy(machine)
    for name, value in vars(other).items():
        if isinstance(value, (set, dict)):
            setattr(other, name, value.copy())
    other._agreements = {release: copied(agreement) for release, agreement in machine._agreements.items()}
    other._early = {release: early.copy() for release, early in machine._early.items()}
    other._held = {release: held.copy() for release, held in machine._held.items()}
    return other


def players(graph: dict[str, tuple[str, ...]], *, steps: int, ballots: dict[str, int]) -> dict[str, Player]:
    """Return the members of an attempt that has begun."""
    found = {}
    for name in graph:
        machine = Settlement(name)
        for each in graph:
            machine.admit(report(each, 0, 0), Committee(tuple(graph), owner=each), mixed=False)
        found[name] = Player(name, graph, steps, machine, ballots=ballots.get(name, 0))
    return found


def wrong(actors: tuple[Player, ...]) -> str:
    """Return what is wrong with the members: two verdicts, two outcomes, or a commit without all models or masks."""
    for name in actors[0].graph:
        if len({actor.verdicts[name] for actor in actors if name in actor.verdicts}) > 1:
            return f"two verdicts on the report of {name}"
    outcomes = [actor.concluded for actor in actors if actor.concluded is not None]
    if len({*outcomes}) > 1:
        return "two outcomes"
    for found in outcomes[:1]:
        lacking = [each.name for each in actors if each.name in found.members and not each.has(each.steps - 1)]
        if found.committed and lacking:
            return f"a round counts that {', '.join(lacking)} cannot complete"
        if found.committed and (half := halves(actors, found.members)):
            return f"a round counts with half of the mask of {half}"
    return ""


def halves(actors: tuple[Player, ...], members: tuple[str, ...]) -> str:
    """Return two neighbours of which the members have models of one, and the other has sent nothing."""
    sent = {actor.name for actor in actors if actor.sent}
    there = {*members} | {sender for actor in actors if actor.name in members for sender, _ in actor.got}
    edges = ((each, other) for each in sorted(there & sent) for other in actors[0].graph[each])
    return next((f"{each} and {other}" for each, other in edges if other not in sent), "")


def explorer(*, steps: int = 2, ballots: dict[str, int] | None = None, most: int = 200_000) -> Explorer:
    """Return what explores an attempt of three peers on a line."""
    made = players(LINE, steps=steps, ballots=ballots or {})
    return Explorer(dict(made), wrong, lambda _: "", most=most)
