"""Rounds of a run, the same for a live peer and for a simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, change
from p2pfl.algorithms.gossip import maximum
from p2pfl.neighbourhood import Neighbourhood

Net = TypeVar("Net", bound=Neighbourhood)


@dataclass(frozen=True)
class StopCondition:
    r"""Condition that stops a run: no peer's released model moved by more than ``change`` in a round.

    Peers flood the largest move over the graph, so all of them stop in the same round. They do so from the second round
    on, because the first release of an algorithm may be the model with which all peers begin.

    Parameters
    ----------
    change
        Distance of a model.
    steps
        Gossip steps of the flood, at least the diameter of the graph.

    Examples
    --------
    >>> StopCondition(0.01, steps=4).change
    0.01
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
    stop: StopCondition | None = None,
) -> State:
    """Run rounds of an algorithm.

    Parameters
    ----------
    algorithm, learner
        Algorithm and learner.
    state
        State before the first round.
    rounds
        Numbers of the rounds; the iterator advances when a round has ended.
    neighbourhood
        Function that makes the neighbourhood of a round.
    private
        Function that wraps a neighbourhood in the protection of models.
    observe
        Coroutine function that is awaited after each round.
    stop
        Condition to stop before the last round, if any.

    Returns
    -------
    State
        State after the last round.
    """
    handed = [state]  # no other name holds a state during its round, so the round can free its tensors
    for round in rounds:
        net = neighbourhood(round)
        before = None if stop is None or round == 0 else state
        del state
        state = await algorithm.round(handed.pop(), learner, private(net, round), round)
        handed.append(state)
        done = False
        if stop is not None and before is not None:
            moved = await maximum(net, change(before, state), steps=stop.steps)  # [R, 1]
            done = bool((moved < stop.change).all())
        await observe(round, state, net)
        if done or state.over:
            break
    return state
