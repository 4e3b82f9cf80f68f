"""Neighbourhood that mixes by a robust aggregation rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import numpy as np

from p2pfl.algorithms.robust.arithmetic import HELD, average, room
from p2pfl.algorithms.robust.rules import ClippedGossip, Rule, takes_stacks
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Neighbourhood, ReceivedModels, Released, Wrapped
from p2pfl.core.rows import Rows, for_each_block, to_device
from p2pfl.core.tensors import torch

Work = Callable[[], Rows]
"""Function that computes rows, which may take a while."""


class StepObserver(Protocol):
    """Observer that records how far a gossip step moves each model."""

    def record_step(self, before: Released, after: Released) -> None:
        """Record the rows ``[R, P]`` before and after a gossip step."""
        ...


async def compute_here(work: Work) -> Rows:
    """Compute at once, in this thread."""
    return work()


def robust(
    net: Neighbourhood,
    rule: Rule | None,
    *,
    observer: StepObserver | None = None,
    elsewhere: Callable[[Work], Awaitable[Rows]] = compute_here,
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
        mixed = Released(await self._elsewhere(lambda: aggregate_received(self._rule, received, own)))  # [R, P]
        if self._observer is not None:
            self._observer.record_step(released, mixed)
        return mixed


def aggregate_received(rule: Rule, received: ReceivedModels, own: Rows) -> Rows:
    """Aggregate the models that each receiver has, ``[R, P]``, on their device; one with too few keeps its own."""
    if takes_stacks(rule):
        return aggregate_in_blocks(rule, received, own, fewest=rule.fewest)
    there, own, models = own.device, own.cpu(), received.rows.cpu()
    out = own.clone()  # [R, P]
    for listener, sender, weights in sorted(_singles(received, len(own))):
        if 1 + len(sender) >= rule.fewest:
            rows = torch.cat([own[listener : listener + 1], models[sender].to(own)])  # [n, P]
            out[listener] = rule(rows, torch.tensor(weights, dtype=torch.float64))
    return to_device(out, there)


def average_received(received: ReceivedModels, own: Rows) -> Rows:
    """Return the weighted average of the models that each receiver has, ``[R, P]``."""
    return aggregate_in_blocks(average, received, own)


def aggregate_in_blocks(
    function: Callable[[Rows, torch.Tensor], torch.Tensor], received: ReceivedModels, own: Rows, *, fewest: int = 1
) -> Rows:
    """Aggregate the models that each receiver has, in blocks of receivers that have as many.

    Parameters
    ----------
    function
        Function of models ``[R, n, P]`` and weights ``[R, n]`` that returns ``[R, P]``.
    received, own
        Received models, and those of the receivers ``[R, P]``.
    fewest
        Number of models below which a receiver keeps its own.

    Returns
    -------
    torch.Tensor
        ``[R, P]``, on the device of the models.
    """
    out = torch.empty_like(own)  # [R, P]
    for group in groups(received, len(own)):
        listener, sender, weights = (to_device(each, own.device) for each in group)
        count = weights.shape[1]

        def some(
            part: slice,
            listener: torch.Tensor = listener,
            sender: torch.Tensor = sender,
            weights: torch.Tensor = weights,
        ) -> None:
            mine = own.index_select(0, listener[part])  # [K, P]
            if weights.shape[1] >= fewest:
                mine = function(_gather(mine, received.rows, sender[part]), weights[part])
            out.index_copy_(0, listener[part], mine)

        workers = max(1, HELD // max(1, count * own.shape[-1]))  # receivers whose models fit into memory at a time
        for_each_block(some, own[: len(listener)], numbers=room(own.device) // count, workers=workers)
    return out


def _gather(own: Rows, models: Rows, sender: torch.Tensor) -> Rows:
    """Return models ``[K, n, P]``: one's own ``[K, P]``, then those of senders ``[K, n - 1]``.

    In memory the models of one place follow each other, as rules compare places.
    """
    rows = own.new_empty(1 + sender.shape[1], *own.shape)  # [n, K, P]
    rows[0] = own
    rows[1:] = models.index_select(0, sender.mT.flatten()).view(sender.shape[1], *own.shape)
    return rows.transpose(0, 1)


Group = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Receivers ``[K]`` that have n models each, the other senders of these ``[K, n - 1]``, and weights ``[K, n]``."""


def groups(received: ReceivedModels, count: int) -> list[Group]:
    """Return ``count`` receivers by the number of models that they have, on the CPU.

    A receiver's own model comes first and has the weight that the others leave. These are in the order of their names,
    so that a rule breaks ties in the same way wherever it runs.
    """
    listener, sender, weights = (each.numpy() for each in (received.listener, received.sender, received.weights))
    names = received.peers or tuple(map(str, range(len(received.rows))))
    rank = np.empty(len(names), np.int64)  # [S], in the order of names
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    order = np.lexsort((rank[sender], listener))
    order = order[sender[order] != listener[order]]  # [F]
    sender, weights = sender[order], weights[order]
    degrees = np.bincount(listener[order], minlength=count)  # [R]
    begins = np.cumsum(degrees) - degrees  # [R]
    batches = []
    for degree in np.unique(degrees):
        alike = np.flatnonzero(degrees == degree)  # [K]
        edges = begins[alike, None] + np.arange(degree)  # [K, n - 1]
        share = weights[edges]
        share = np.concatenate([1 - share.sum(-1, keepdims=True), share], axis=-1)  # [K, n]
        batches.append((torch.from_numpy(alike), torch.from_numpy(sender[edges]), torch.from_numpy(share)))
    return batches


def _singles(received: ReceivedModels, count: int) -> Iterator[tuple[int, list[int], list[float]]]:
    """Yield each receiver, its other senders and its weights."""
    for group in groups(received, count):
        yield from zip(*(each.tolist() for each in group), strict=True)
