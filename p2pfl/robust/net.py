"""Neighbourhood that mixes by a robust aggregation rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import torch

from p2pfl.errors import RunError
from p2pfl.neighbourhood import Neighbourhood, ReceivedModels, Released, Wrapped
from p2pfl.robust.rules import ClippedGossip, Rule
from p2pfl.rows import Rows, placed

Work = Callable[[], Rows]
"""Function that computes rows, which may take a while."""


class StepObserver(Protocol):
    """Observer that records how far a gossip step moves each model."""

    def record_step(self, before: Released, after: Released) -> None:
        """Record the rows ``[R, P]`` before and after a gossip step."""
        ...


async def here(work: Work) -> Rows:
    """Compute at once, in this thread."""
    return work()


def robust(
    net: Neighbourhood,
    rule: Rule | None,
    *,
    observer: StepObserver | None = None,
    elsewhere: Callable[[Work], Awaitable[Rows]] = here,
) -> Neighbourhood:
    """Wrap a neighbourhood so that it mixes by a rule.

    A rule receives models as they were released, with equal weights or those of the graph: a sample weight is a claim,
    which a Byzantine peer would inflate. A peer that receives too few models for the rule keeps its own.

    Parameters
    ----------
    net
        Neighbourhood to wrap.
    rule
        Rule; with ``None``, or ClippedGossip without attackers, the neighbourhood itself returns.
    observer
        Observer that records how far each gossip step moves the models.
    elsewhere
        Function that runs the computation: a live peer uses a thread.

    Returns
    -------
    Neighbourhood
        The wrapped neighbourhood.
    """
    if rule is None or rule == ClippedGossip(0):
        return net
    return RobustNeighbourhood(net, rule, observer=observer, elsewhere=elsewhere)


class RobustNeighbourhood(Wrapped):
    """Neighbourhood that mixes by a rule; :func:`robust` makes it and explains the parameters."""

    def __init__(
        self,
        net: Neighbourhood,
        rule: Rule,
        *,
        observer: StepObserver | None,
        elsewhere: Callable[[Work], Awaitable[Rows]],
    ) -> None:
        super().__init__(net)
        self._rule = rule
        self._observer = observer
        self._elsewhere = elsewhere

    async def mix(self, released: Released) -> Released:
        """Aggregate the received models by the rule.

        Raises
        ------
        RunError
            The rows carry sample weights.
        """
        if released.masses is not None:
            raise RunError(
                "a robust rule does not accept sample weights, which a Byzantine peer could inflate; set "
                'learning.weighted = false, or robustness.rule = "none"'
            )
        received = await self._net.receive(released)
        own = released.values
        mixed = Released(await self._elsewhere(lambda: by_rule(self._rule, received, own)))  # [R, P]
        if self._observer is not None:
            self._observer.record_step(released, mixed)
        return mixed


def by_rule(rule: Rule, received: ReceivedModels, own: Rows) -> Rows:
    """Aggregate the models that each receiver has, one receiver after the other, ``[R, P]``."""
    back, own, known = own.device, own.cpu(), received.rows.cpu()  # one copy: a rule takes many small steps
    out = torch.empty_like(own)  # [R, P]
    for index, (senders, weights) in enumerate(around(received, len(own))):
        if 1 + len(senders) < rule.fewest:
            out[index] = own[index]
            continue
        rows = torch.cat([own[index : index + 1], known[senders].to(own)])  # [n, P]
        share = torch.cat([1 - weights.sum(0, keepdim=True), weights])  # [n]
        out[index] = rule(rows, share)
    return placed(out, back)


def weighted(received: ReceivedModels, own: Rows) -> Rows:
    """Return the weighted average of the models that each receiver has, ``[R, P]``."""
    back, own, rows = own.device, own.cpu(), received.rows.cpu()
    out = torch.empty_like(own)  # [R, P]
    for index, (senders, weights) in enumerate(around(received, len(own))):
        out[index] = own[index] * float(1 - weights.sum()) + weights.to(own) @ rows[senders].to(own)  # [P]
    return placed(out, back)


def around(received: ReceivedModels, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return, for each of ``count`` receivers, the indices and weights of the models of others; its own gets the rest.

    They are in the order of the senders' names, so that a rule breaks ties in the same way wherever it runs.
    """
    ends = torch.searchsorted(received.listener, torch.arange(count + 1))  # [R + 1]
    names = received.peers or tuple(map(str, range(len(received.rows))))
    place = torch.tensor(sorted(range(len(names)), key=names.__getitem__)).argsort()  # [S]
    found = []
    for index in range(count):
        span = slice(int(ends[index]), int(ends[index + 1]))
        senders, weights = received.sender[span], received.weights[span]
        order = place[senders].argsort()
        order = order[senders[order] != index]
        found.append((senders[order], weights[order]))
    return found
