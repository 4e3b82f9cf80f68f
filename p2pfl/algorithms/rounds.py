"""The rounds of a run, the same for one live peer and for all simulated ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, change
from p2pfl.algorithms.gossip import maximum
from p2pfl.neighbourhood import Neighbourhood

Net = TypeVar("Net", bound=Neighbourhood)


@dataclass(frozen=True)
class Stop:
    r"""Stop when no peer's released row moved by more than ``change`` in a round.

    The largest move is flooded over the graph in ``steps`` exchanges (its diameter), so that all
    peers take the same decision in the same round.
    """

    change: float
    steps: int


async def learn(
    algorithm: Algorithm,
    learner: AsyncLearner,
    state: State,
    *,
    rounds: Iterable[int],
    neighbourhood: Callable[[int], Net],
    private: Callable[[Net, int], Neighbourhood],
    observe: Callable[[int, State, Net], Awaitable[None]],
    stop: Stop | None = None,
) -> State:
    """Run rounds of an algorithm.

    Parameters
    ----------
    algorithm, learner, state
        What is learned, by whom, and from where.
    rounds
        Their numbers, each asked for when the one before has ended.
    neighbourhood
        Makes the neighbourhood of a round.
    private
        Wraps it in what hides the rows.
    observe
        Awaited after each round.
    stop
        An optional end before the last round.
    """
    for round in rounds:
        net = neighbourhood(round)
        before = state
        state = await algorithm.round(state, learner, private(net, round), round)
        done = False
        if stop is not None:
            moved = await maximum(net, change(before, state), steps=stop.steps)  # [R, 1]
            done = bool((moved < stop.change).all())
        await observe(round, state, net)
        if done:
            break
    return state
