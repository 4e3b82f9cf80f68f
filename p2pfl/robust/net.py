"""A neighbourhood whose mixing is a rule that bears liars."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import torch

from p2pfl.errors import RunError
from p2pfl.neighbourhood import Heard, Neighbourhood, Public, Released
from p2pfl.robust.rules import ClippedGossip, Rule
from p2pfl.rows import Rows

Work = Callable[[], Rows]
"""What computes rows, perhaps for a while."""


class Told(Protocol):
    """Who keeps account of how far a gossip step moved each model."""

    def record_step(self, before: Released, after: Released) -> None:
        """Take note of the rows ``[R, P]`` before and after a gossip step."""
        ...


async def here(work: Work) -> Rows:
    """Do it at once, where we stand."""
    return work()


def robust(
    net: Neighbourhood,
    rule: Rule | None,
    *,
    told: Told | None = None,
    elsewhere: Callable[[Work], Awaitable[Rows]] = here,
) -> Neighbourhood:
    """Wrap a neighbourhood so that its mixing is a rule.

    Rows are given to a rule as they were released, and weigh alike or by the weights of the graph: a mass is a claim,
    which a liar would inflate. A peer that hears too few rows for the rule keeps its own.

    Parameters
    ----------
    net
        Carries the rows.
    rule
        ``None``, or ClippedGossip without attackers, gives the neighbourhood itself back.
    told
        Is told how far rows moved.
    elsewhere
        Where the rule is computed: a live peer does it in a thread.
    """
    if rule is None or rule == ClippedGossip(0):
        return net
    return RobustNeighbourhood(net, rule, told=told, elsewhere=elsewhere)


class RobustNeighbourhood:
    """A neighbourhood that mixes by a rule; :func:`robust` makes it and explains the parameters."""

    def __init__(
        self, net: Neighbourhood, rule: Rule, *, told: Told | None, elsewhere: Callable[[Work], Awaitable[Rows]]
    ) -> None:
        self._net = net
        self._rule = rule
        self._told = told
        self._elsewhere = elsewhere

    @property
    def peers(self) -> tuple[str, ...]:
        """Whose R rows these are."""
        return self._net.peers

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """As the wrapped neighbourhood releases."""
        return await self._net.release(rows, since=since, masses=masses)

    async def hear(self, released: Released) -> Heard:
        """As the wrapped neighbourhood hears."""
        return await self._net.hear(released)

    async def mix(self, released: Released) -> Released:
        """Make one row of those heard.

        Raises
        ------
        RunError
            The rows carry masses.
        """
        if released.masses is not None:
            raise RunError(
                "a robust rule needs models of equal weight, got sample weights, which a malicious peer would inflate: "
                'set learning.weighted = false, or robustness.rule = "none"'
            )
        heard = await self._net.hear(released)
        own = released.values
        mixed = Released(await self._elsewhere(lambda: by_rule(self._rule, heard, own)))  # [R, P]
        if self._told is not None:
            self._told.record_step(released, mixed)
        return mixed


def by_rule(rule: Rule, heard: Heard, own: Rows) -> Rows:
    """What a rule makes of the rows that each listener heard, one listener after the other, ``[R, P]``."""
    out = torch.empty_like(own)  # [R, P]
    for index, (senders, weights) in enumerate(around(heard, len(own))):
        if 1 + len(senders) < rule.fewest:
            out[index] = own[index]
            continue
        rows = torch.cat([own[index : index + 1], heard.rows[senders].to(own)])  # [n, P]
        share = torch.cat([1 - weights.sum(0, keepdim=True), weights])  # [n]
        out[index] = rule(rows, share)
    return out


def weighted(heard: Heard, own: Rows) -> Rows:
    """The plain average of the rows that each listener heard, ``[R, P]``."""
    out = torch.empty_like(own)  # [R, P]
    for index, (senders, weights) in enumerate(around(heard, len(own))):
        out[index] = own[index] * float(1 - weights.sum()) + weights.to(own) @ heard.rows[senders].to(own)  # [P]
    return out


def around(heard: Heard, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For each of ``count`` listeners, which other rows it heard and by what weights; the rest is its own row's.

    They come in the order of their senders' names, so that a rule breaks ties alike wherever it is computed.
    """
    ends = torch.searchsorted(heard.listener, torch.arange(count + 1))  # [R + 1]
    names = heard.peers or tuple(map(str, range(len(heard.rows))))
    place = torch.tensor(sorted(range(len(names)), key=names.__getitem__)).argsort()  # [S]
    found = []
    for index in range(count):
        span = slice(int(ends[index]), int(ends[index + 1]))
        senders, weights = heard.sender[span], heard.weights[span]
        order = place[senders].argsort()
        order = order[senders[order] != index]
        found.append((senders[order], weights[order]))
    return found
