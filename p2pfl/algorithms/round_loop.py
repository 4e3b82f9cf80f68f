"""Rounds of a run, the same for a live peer and for a simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State, change
from p2pfl.algorithms.gossip import maximum
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.tensors import torch

Net = TypeVar("Net", bound=Neighbourhood)


@dataclass(frozen=True)
class StopCondition:
    r"""Condition that stops a run: no model moves any more, or no peer's validation loss has improved for some rounds.

    Peers flood the largest number of all of them over the graph, so all of them stop in the same round: how far their
    released models moved, and 1 if their best model is younger than ``patience`` rounds, 0 otherwise. They do so from
    the second round on, because the first release of an algorithm may be the model with which all peers begin.

    Parameters
    ----------
    change
        Distance of a model; ``None`` for any.
    steps
        Gossip steps of the flood, at least the diameter of the graph.
    patience
        Rounds without a better model after which a peer no longer holds the others back; ``None`` if peers do not judge
        their models.

    Examples
    --------
    >>> StopCondition(0.01, steps=4).change
    0.01
    """

    change: float | None
    steps: int
    patience: int | None = None

    def moved(self, before: State, after: State) -> torch.Tensor | None:
        """Return how far the models moved in a round, ``[R, 1]``; ``None`` if that does not matter."""
        return None if self.change is None else change(before, after)

    async def reached(
        self,
        net: Neighbourhood,
        *,
        moved: torch.Tensor | None,
        improving: torch.Tensor | None,
        steps: int | None = None,
    ) -> bool:
        """Return whether all peers stop after a round, which all of them answer alike.

        Parameters
        ----------
        net
            Neighbourhood that carries the flood.
        moved
            How far the models moved in the round, ``[R, 1]``; ``None`` without ``change``.
        improving
            ``[R, 1]``: 1 where a peer still finds better models; ``None`` without ``patience``.
        steps
            Gossip steps of the flood, if others than planned.
        """
        criteria = [each for each in (moved, improving) if each is not None]
        columns = torch.cat([each.to(criteria[0].device, torch.float64) for each in criteria], dim=1)  # [R, K]
        limits = [limit for limit, each in ((self.change, moved), (1.0, improving)) if each is not None]
        largest = await maximum(net, columns, steps=self.steps if steps is None else steps)  # [R, K]
        return bool((largest < torch.tensor(limits, dtype=torch.float64).to(largest)).all(dim=0).any())


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
    judge: Callable[[int, State], Awaitable[torch.Tensor]] | None = None,
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
    judge
        Coroutine function that judges the models after each round, and returns ``[R, 1]``: 1 where a peer still finds
        better ones. Needed for a condition with ``patience``.

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
        improving = None if judge is None else await judge(round, state)  # [R, 1]
        if stop is not None and before is not None:
            done = await stop.reached(net, moved=stop.moved(before, state), improving=improving)
        await observe(round, state, net)
        if done or state.over:
            break
    return state
