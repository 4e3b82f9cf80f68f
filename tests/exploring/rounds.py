"""Members of attempts at rounds of several gossip steps, which report and come to outcomes: the explorer's model.

A member sends its model of a gossip step once it has those of its neighbours of the step before, may give up at any
time, and begins a limited number of ballots on others' reports. Messages may be lost, late and repeated; a member that
is dead makes no move any more, and any member may be. A member may restart: it forgets its part in the attempt, asks to
be a member, and becomes one when most members admit it. Disks do not block: crashes and writes of agreements are
explored in :mod:`exploring.members`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from exploring.explorer import Explorer
from exploring.members import copied, frozen
from p2pfl.network.protocol.agreement.agreement_effects import Effect, Send, StoreRecord
from p2pfl.network.protocol.agreement.attempt_reports import FAILED, AttemptOutcome, complete
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.wire.verdict_messages import Place, draw_committee

PAIR = {"ada": ("bob",), "bob": ("ada",)}
"""Neighbours of two peers."""

LINE = {"ada": ("bob",), "bob": ("ada", "eve"), "eve": ("bob",)}
"""Neighbours of three peers, of which two share no edge."""

TRIANGLE = {"ada": ("bob", "eve"), "bob": ("ada", "eve"), "eve": ("ada", "bob")}
SQUARE = {
    name: tuple(each for each in ("ada", "bob", "dan", "eve") if each != name) for name in ("ada", "bob", "dan", "eve")
}
"""Complete graphs."""

LATER = 1e9
"""Time at which every ballot is due."""

FRESH: dict[str, Any] = {
    "sent": 0,
    "got": frozenset(),
    "masked": b"",
    "said": b"",
    "told": frozenset(),
    "doubted": frozenset(),
}
"""State of a member at the beginning of an attempt."""

Sent = list[tuple[str, Any]]


FIRST = Place(0, 0)
LAST = Place(1, 1)
"""Attempt after which members make no move any more."""


@dataclass(frozen=True)
class Player:
    """Member of an attempt, in a state.

    Parameters
    ----------
    name, graph, steps
        Name of the member, neighbours of each member, and gossip steps of the attempt.
    machine
        Its settlement of the attempt; ``None`` while it asks to be a member.
    place, members
        Attempt, and who takes part in it.
    lives
        Incarnation of each peer, as far as it knows.
    sent
        Number of gossip steps of which it has sent its model.
    got
        Models that it has received, by sender and gossip step.
    masked
        Incarnations of the members under which it has masked its model; empty before.
    said
        Its report; empty before.
    told
        Members that have admitted it, and what they have told.
    doubted
        Members that it takes to be gone.
    ballots, restarts
        Members that it may still doubt, and restarts.
    past
        Attempts that it knows the outcome of, with the members and the outcome.
    """

    name: str
    graph: dict[str, tuple[str, ...]]
    steps: int
    machine: Settlement | None
    place: Place = FIRST
    members: tuple[str, ...] = ()
    lives: tuple[tuple[str, int], ...] = ()
    sent: int = 0
    got: frozenset[tuple[str, int]] = frozenset()
    masked: bytes = b""
    said: bytes = b""
    told: frozenset[tuple[str, Place, tuple[str, ...]]] = frozenset()
    doubted: frozenset[str] = frozenset()
    ballots: int = 0
    restarts: int = 0
    past: tuple[tuple[Place, tuple[str, ...], Any], ...] = ()

    @cached_property
    def key(self) -> Hashable:
        here = self.name, self.place, self.members, self.lives, self.sent, self.got, self.masked, self.said, self.told
        rest = self.ballots, self.restarts, self.past
        if self.machine is None:
            return here, rest
        machine = vars(self.machine)
        fields = sorted(set(machine) - {"sign", "committee", "agreement"})
        parts = [_fixed(machine[name]) for name in fields]
        return here, rest, self.doubted, frozen(self.machine.agreement), *parts

    @property
    def life(self) -> int:
        """Its incarnation."""
        return dict(self.lives)[self.name]

    @property
    def beside(self) -> tuple[str, ...]:
        """Its neighbours among the members."""
        return tuple(each for each in self.graph[self.name] if each in self.members)

    def has(self, step: int) -> bool:
        """Return whether it has all models of a gossip step."""
        return all((each, step) in self.got for each in self.beside)

    @property
    def concluded(self) -> AttemptOutcome | None:
        """Outcome at this member; ``None`` before."""
        return conclude(self.machine) if self.said and self.machine is not None else None

    def moves(self) -> Iterable[Hashable]:
        if self.restarts:
            yield "restarts"
        if self.machine is None or self.place > LAST:
            return
        if self.concluded is not None:
            yield "goes on"
            return
        if self.said:
            if self.ballots:
                yield from (("doubts", each) for each in self.members if each not in {self.name, *self.doubted})
            return
        yield "gives up"
        if self.sent < self.steps and (not self.sent or self.has(self.sent - 1)):
            yield "sends"
        if self.sent == self.steps and self.has(self.steps - 1):
            yield "is complete"

    def after(self, move: Hashable) -> list[tuple[Player, Sent]]:
        if move == "restarts":
            lives = tuple((peer, life + (peer == self.name)) for peer, life in self.lives)
            again = replace(self, machine=None, lives=lives, restarts=self.restarts - 1, members=(), **FRESH)
            return [(again, [(each, ("join", again.life)) for each in self.graph if each != self.name])]
        if move == "goes on":
            return [self.goes_on(self.concluded)]
        if move == "sends":
            model = [(each, ("model", self.place, self.sent, self.life)) for each in self.beside]
            masked = self.masked or bytes(life for peer, life in self.lives if peer in self.members)
            return [(replace(self, sent=self.sent + 1, masked=masked), model)]
        after = replace(self, machine=duplicate(self.machine))
        if isinstance(move, tuple):
            after = replace(after, ballots=self.ballots - 1, doubted=self.doubted | {move[1]})
            effects = after.machine.doubt(gone=after.doubted, slow=(), now=0.0)
            return [after.done([*effects, *after.machine.tick(now=LATER)])]
        value = complete(self.masked, joins=self.joins) if move == "is complete" else FAILED
        after = replace(after, said=value)
        return [after.done(after.machine.report(value, now=0.0))]

    @property
    def joins(self) -> int | None:
        """Place of the first peer that has restarted and is no member."""
        lives = dict(self.lives)
        return next((at for at, peer in enumerate(self.graph) if lives[peer] and peer not in self.members), None)

    def goes_on(self, found: AttemptOutcome) -> tuple[Player, Sent]:
        """Return this member in the next attempt."""
        past = (*self.past, (self.place, self.members, found))
        round, attempt = self.place
        place = Place(round + 1, attempt) if found.committed else Place(round, attempt + 1)
        members, sent = found.members, []
        if found.joins is not None:
            peer = list(self.graph)[found.joins]
            members = tuple(sorted({*members, peer}))
            sent = [(peer, ("admitted", place, members))]
        if self.name not in members:
            return replace(self, machine=None, past=past), []
        return replace(self.at(place, members), past=past), sent

    def at(self, place: Place, members: tuple[str, ...]) -> Player:
        """Return this peer at the beginning of an attempt."""
        machine = Settlement(self.name, place, members, draw_committee(members, place, swarm="explored"))
        return replace(self, place=place, members=members, machine=machine, **FRESH)

    def receives(self, sender: str, message: Any) -> tuple[Player, Sent] | None:
        match message:
            case ("join", life):
                lives = tuple((peer, max(known, life if peer == sender else 0)) for peer, known in self.lives)
                return replace(self, lives=lives), []
            case ("admitted", place, members) if self.machine is None and place > self.place:
                told = self.told | {(sender, place, members)}
                tellers = {each for each, *rest in told if rest == [place, members]}
                others = {*members} - {self.name}
                agreed = 2 * len(tellers & others) > len(others)
                return (self.at(place, members) if agreed else replace(self, told=told)), []
            case ("model", place, step, life) if place == self.place and self.machine is not None:
                known = dict(self.lives)[sender] == life
                return (replace(self, got=self.got | {(sender, step)}), []) if known else None
            case tuple():
                return None
        if self.machine is None or message.subject != self.place:
            return None
        after = replace(self, machine=duplicate(self.machine))
        return after.done(after.machine.receive(sender, message, now=0.0))

    def done(self, effects: list[Effect]) -> tuple[Player, Sent]:
        """Return this member after it has stored what it is to store, and what it sends."""
        sent, effects = [], [*effects]
        while effects:
            match effects.pop(0):
                case StoreRecord():
                    effects += self.machine.finish_write(now=0.0)
                case Send(to, message):
                    sent += [(each, message) for each in to]
        return self, sent


def conclude(machine: Settlement) -> AttemptOutcome | None:
    """Return the outcome at a member; ``None`` before."""
    return machine.outcome


def duplicate(machine: Settlement) -> Settlement:
    """Return a settlement that goes on by itself."""
    other = copy.copy(machine)
    for name, value in vars(other).items():
        if isinstance(value, (set, dict)):
            setattr(other, name, value.copy())
    other.agreement = copied(machine.agreement)
    return other


def _fixed(value: Any) -> Hashable:
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return frozenset(value) if isinstance(value, set) else value


def players(
    graph: dict[str, tuple[str, ...]],
    *,
    steps: int,
    ballots: dict[str, int],
    restarts: Collection[str] = (),
    returned: str = "",
) -> dict[str, Player]:
    """Return the members of an attempt that has begun; one may have been dropped before, and be back."""
    lives = tuple((name, 0) for name in graph)
    members = tuple(name for name in graph if name != returned)
    found = {}
    for name in graph:
        rest = {"ballots": ballots.get(name, 0), "restarts": int(name in restarts or name == returned)}
        peer = Player(name, graph, steps, None, lives=lives, **rest)
        place = Place(0, 1) if returned else Place(0, 0)
        found[name] = replace(peer, place=place) if name == returned else peer.at(place, members)
    return found


def wrong(actors: tuple[Player, ...]) -> str:
    """Return what is wrong with the members: two outcomes or memberships, or a commit without all models."""
    outcomes: dict[Place, Any] = {}
    groups: dict[Place, tuple[str, ...]] = {}
    for actor in actors:
        now = [] if actor.machine is None else [(actor.place, actor.members, actor.concluded)]
        for place, members, found in (*actor.past, *now):
            if groups.setdefault(place, members) != members:
                return "two sets of members"
            if found is not None and outcomes.setdefault(place, found) != found:
                return "two outcomes"
    return next((why for each in outcomes if (why := incomplete(actors, each, outcomes[each], groups[each]))), "")


def incomplete(actors: tuple[Player, ...], place: Place, found: AttemptOutcome, members: tuple[str, ...]) -> str:
    """Return why an attempt must not count, as far as its members are still in it."""
    there = tuple(each for each in actors if each.place == place and each.machine is not None)
    lacking = [each.name for each in there if each.name in found.members and not each.has(each.steps - 1)]
    if found.committed and lacking:
        return f"a round counts that {', '.join(lacking)} cannot complete"
    half = halves(there, members) if found.committed and len(there) == len(members) else ""
    return f"a round counts with half of the mask of {half}" if half else ""


def halves(actors: tuple[Player, ...], members: tuple[str, ...]) -> str:
    """Return two neighbours of which the members have models of one, and the other has sent nothing."""
    sent, known = {actor.name for actor in actors if actor.sent}, {actor.name for actor in actors}
    there = {*members} | {sender for actor in actors if actor.name in members for sender, _ in actor.got}
    edges = ((each, other) for each in sorted(there & sent) for other in actors[0].graph[each] if other in known)
    return next((f"{each} and {other}" for each, other in edges if other not in sent), "")


def explorer(
    *,
    graph: dict[str, tuple[str, ...]] = LINE,
    steps: int = 2,
    ballots: dict[str, int] | None = None,
    restarts: Collection[str] = (),
    returned: str = "",
    most: int = 200_000,
) -> Explorer:
    """Return what explores attempts of a few peers."""
    made = players(graph, steps=steps, ballots=ballots or {}, restarts=restarts, returned=returned)
    return Explorer(dict(made), wrong, lambda _: "", most=most)
