"""Gossip learning: every peer in cycles of its own, and nobody waits for anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.neighbourhood import Heard, Neighbourhood, Released
from p2pfl.rows import Rows
from p2pfl.traits import Traits


@dataclass(frozen=True)
class GossipLearning:
    r"""Train, send, and merge what has come since, by how far each row has been trained.

    .. math:: x_i \leftarrow \frac{t_i x_i + \sum_j t_j x_j}{t_i + \sum_j t_j}, \qquad
              t_i \leftarrow \max(t_i, \max_j t_j)

    over the newest row of each neighbour that has arrived since the cycle before, none of them twice. The age t of
    a row is how many optimiser steps are in it along its longest line; it travels with the row. With one row at a
    time this is the paper's merge. A straggler slows nobody: its rows are missing for a while, and count little when
    they come, and what it is sent brings it up to date in one cycle.

    A row goes to all neighbours at once, which costs one message; under a schedule of topologies of one peer an
    exchange (``one_peer_exponential``; ``epidemic_local`` with ``degree = 1`` is the paper's peer sampling) to one.

    References
    ----------
    Ormándi, Hegedűs and Jelasity, Gossip learning with linear models on fully distributed data, Concurrency and
    Computation 2013, Algorithm 1; Hegedűs, Danner and Jelasity, Decentralized learning works: an empirical comparison
    of gossip learning and federated learning, Journal of Parallel and Distributed Computing 2021, section 3.
    """

    traits: ClassVar[Traits] = Traits(
        full_participation=True,
        weighs_neighbours=True,
        asynchronous=True,
        nonlinear="hears rows one by one",
        no_compression="merges rows of different cycles, which have no common past",
        needs_plain_averages="weighs the rows that it hears by the ages that come with them",
    )

    beside: ClassVar[int] = 1
    """An age goes with the row."""

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One cycle."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        before = state.extra.get("age", torch.zeros(len(net.peers), 1, dtype=torch.float64))  # [R, 1]
        ages = before + fitted.report.steps.to(before).unsqueeze(-1)  # [R, 1]
        released = await net.release(fitted.rows, since=state.public)
        own = torch.cat([released.values, ages.to(released.values)], dim=-1)  # [R, P + 1]
        rows, ages = merged(await net.hear(Released(own)), own)
        return State(rows, Released(rows).public, fitted.memory, {"age": ages}, fitted.report)


def merged(heard: Heard, own: Rows) -> tuple[Rows, torch.Tensor]:
    """Mean of the rows heard by their ages, and the largest of these.

    Parameters
    ----------
    heard
        Rows with their ages in the last place, ``[S, P + 1]``; each listener hears itself, too.
    own
        ``[R, P + 1]``: what stays where nobody has any age.

    Returns
    -------
    rows, ages
        ``[R, P]`` and ``[R, 1]`` float64.

    Examples
    --------
    >>> own = torch.tensor([[4.0, 1.0]])
    >>> both = Heard(torch.tensor([[4.0, 1.0], [8.0, 3.0]]), torch.tensor([0, 0]), torch.arange(2), torch.ones(2) / 2)
    >>> [each.tolist() for each in merged(both, own)]
    [[[7.0]], [[3.0]]]
    """
    ages = heard.rows[heard.sender, -1].to(torch.float64).clamp_min(0)  # [E]
    total = ages.new_zeros(len(own)).index_add(0, heard.listener, ages)  # [R]
    shares = ages / total.where(total > 0, 1.0)[heard.listener]  # [E]
    mean: Rows = torch.nn.functional.embedding_bag(  # sums edge by edge, and holds no row a second time
        heard.sender,
        heard.rows,
        torch.searchsorted(heard.listener, torch.arange(len(own))),
        mode="sum",
        per_sample_weights=shares.to(heard.rows),
    )
    rows = torch.where(total.unsqueeze(-1) > 0, mean, own)[:, :-1]  # [R, P]
    oldest = torch.zeros_like(total).scatter_reduce(0, heard.listener, ages, "amax")  # [R]
    return rows, oldest.unsqueeze(-1)
