"""All interleavings of a few actors that send each other messages, with equal states merged.

Messages form a set that only grows: each can arrive at any later moment, never, or more than once, in any order. That
covers loss, delay, repetition and overtaking. What one actor does depends on its own state and one event alone, so each
such transition of the real code runs once; the exploration combines them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol


class Actor(Protocol):
    """One peer with its disk, in a state."""

    @property
    def key(self) -> Hashable:
        """Equal for equal states."""
        ...

    def moves(self) -> Iterable[Hashable]:
        """Return what can happen to it other than that a message comes."""
        ...

    def after(self, move: Hashable) -> list[tuple[Actor, list[tuple[str, Any]]]]:
        """Return the states that can follow a move, each with the messages that are sent, to whom."""
        ...

    def receives(self, sender: str, message: Any) -> tuple[Actor, list[tuple[str, Any]]] | None:
        """Return what follows a message; ``None`` while no message can come."""
        ...


State = tuple[int, ...]
"""Of each actor the number of its state, and last the messages that were sent, as the bits of one number."""

Step = tuple[int, Hashable]
"""Of which actor, and a move, or the number of a message that it receives."""


class ViolationError(AssertionError):
    """An invariant does not hold in a state that was reached.

    Parameters
    ----------
    why
        What is wrong.
    trace
        A shortest way there.
    """

    def __init__(self, why: str, trace: list[str]) -> None:
        super().__init__("\n".join([why, *trace]))
        self.why, self.trace = why, trace


@dataclass
class Explorer:
    """Breadth-first search over all states.

    Parameters
    ----------
    actors
        By name, in their first states.
    check_actors, check_messages
        Return what is wrong with the states of all actors, and with all messages that were sent; or an empty text.
    most
        States after which it stops, without a verdict on the rest.
    enemy
        Returns what an enemy can send, given all messages that were sent; all of it can arrive from then on.

    Attributes
    ----------
    states, transitions
        How many were seen.
    complete
        Whether no state is left.
    """

    actors: dict[str, Actor]
    check_actors: Callable[[tuple[Any, ...]], str]
    check_messages: Callable[[tuple[Any, ...]], str]
    most: int = 10_000_000
    enemy: Callable[[list[tuple[str, str, Any]]], Iterable[tuple[str, str, Any]]] | None = None
    states: int = 0
    transitions: int = 0
    complete: bool = False
    _seen: dict[State, tuple[State, Step] | None] = field(default_factory=dict)
    _locals: list[Actor] = field(default_factory=list)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _messages: dict[tuple[str, str, Any], int] = field(default_factory=dict)
    _sent: list[tuple[str, str, Any]] = field(default_factory=list)  # by number
    _to: dict[str, int] = field(default_factory=dict)  # by receiver, the bits of messages to it
    _followed: dict[tuple[int, Hashable], list[tuple[int, int]]] = field(default_factory=dict)
    _moves: dict[int, tuple[Hashable, ...]] = field(default_factory=dict)
    _inert: dict[int, int] = field(default_factory=dict)  # by state of an actor, the bits of messages without effect
    _joined: dict[int, int] = field(default_factory=dict)  # messages, with those of the enemy
    _fine: set[Hashable] = field(default_factory=set)  # states of all actors, and sets of messages, that were checked

    @property
    def messages(self) -> int:
        """How many different messages were sent."""
        return len(self._sent)

    @property
    def behaviours(self) -> int:
        """How many transitions of the real code ran."""
        return len(self._followed)

    def run(self) -> Explorer:
        """Visit all states.

        Raises
        ------
        ViolationError
            One of them violates an invariant.
        """
        self._to = dict.fromkeys(self.actors, 0)
        first: State = (*(self._number(actor) for actor in self.actors.values()), self._with_enemy(0))
        self._seen[first] = None
        self._verify(first)
        queue = deque([first])
        while queue and len(self._seen) < self.most:
            state = queue.popleft()
            for new, step in self._next(state):
                self.transitions += 1
                if new not in self._seen:
                    self._seen[new] = state, step
                    queue.append(new)
                    self._verify(new)
        self.states, self.complete = len(self._seen), not queue
        return self

    def _next(self, state: State) -> Iterator[tuple[State, Step]]:
        """Return what can follow a state in one step."""
        messages = state[-1]
        for place, name in enumerate(self.actors):
            local = state[place]
            for step in self._steps(local, messages & self._to[name]):
                for follower, sent in self._follow(name, local, step):
                    after = self._with_enemy(messages | sent)
                    yield (*state[:place], follower, *state[place + 1 : -1], after), (place, step)

    def _steps(self, local: int, messages: int) -> Iterator[Hashable]:
        """Return the moves of an actor, and its messages that change anything."""
        moves = self._moves.get(local)
        if moves is None:
            moves = self._moves[local] = tuple(self._locals[local].moves())
        yield from moves
        messages &= ~self._inert.get(local, 0)
        while messages:
            lowest = messages & -messages
            yield lowest.bit_length() - 1
            messages ^= lowest

    def _follow(self, name: str, local: int, step: Hashable) -> list[tuple[int, int]]:
        """Return the states of an actor that follow a step, each with the bits of what it sends."""
        known = self._followed.get((local, step))
        if known is None:
            actor = self._locals[local]
            if isinstance(step, int):
                sender, _, message = self._sent[step]
                answer = actor.receives(sender, message)
                outcomes = [] if answer is None else [answer]
            else:
                outcomes = actor.after(step)
            known = [(self._number(each), self._bits(name, sent)) for each, sent in outcomes]
            self._followed[local, step] = known
            if isinstance(step, int) and known in ([], [(local, 0)]):
                self._inert[local] = self._inert.get(local, 0) | 1 << step
        return known

    def _number(self, actor: Actor) -> int:
        key = actor.key
        if key not in self._numbers:
            self._numbers[key] = len(self._locals)
            self._locals.append(actor)
        return self._numbers[key]

    def _bits(self, sender: str, sent: list[tuple[str, Any]]) -> int:
        bits = 0
        for to, message in sent:
            bits |= 1 << self._letter(sender, to, message)
        return bits

    def _letter(self, sender: str, to: str, message: Any) -> int:
        number = self._messages.setdefault((sender, to, message), len(self._sent))
        if number == len(self._sent):
            self._sent.append((sender, to, message))
            self._to[to] = self._to.get(to, 0) | 1 << number
        return number

    def _with_enemy(self, messages: int) -> int:
        """Return messages, with those that the enemy can send once they were sent."""
        if self.enemy is None:
            return messages
        known = self._joined.get(messages)
        if known is None:
            sent = [each for number, each in enumerate(self._sent) if messages >> number & 1]
            known = messages
            for letter in self.enemy(sent):
                known |= 1 << self._letter(*letter)
            self._joined[messages] = self._joined[known] = known
        return known

    def _verify(self, state: State) -> None:
        """Check the states of all actors, and what was sent; each only once."""
        *locals_, messages = state
        actors, said = tuple(locals_), ("sent", messages)
        wrong = ""
        if actors not in self._fine:
            wrong = self.check_actors(tuple(self._locals[each] for each in actors))
        if said not in self._fine:
            among = tuple(each for number, (*_, each) in enumerate(self._sent) if messages >> number & 1)
            wrong = wrong or self.check_messages(among)
        if wrong:
            raise ViolationError(wrong, self._trace(state))
        self._fine |= {actors, said}

    def _trace(self, state: State) -> list[str]:
        names, trace = list(self.actors), []
        while (step := self._seen[state]) is not None:
            state, (place, move) = step
            what = f"receives {self._sent[move][2]}" if isinstance(move, int) else move
            trace.append(f"{names[place]} {what}")
        return trace[::-1]
