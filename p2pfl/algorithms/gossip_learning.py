"""Gossip learning: each peer runs cycles of its own and does not wait for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.core.neighbourhood import Neighbourhood, ReceivedModels, Released
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class GossipLearning:
    r"""Train, send, and merge the models received since then, weighted by how long each has been trained.

    .. math:: x_i \leftarrow \frac{t_i x_i + \sum_j t_j x_j}{t_i + \sum_j t_j}, \qquad
              t_i \leftarrow \max(t_i, \max_j t_j)

    over the newest model of each neighbour that has arrived since the last cycle, each at most once. The age t of a
    model is the number of optimiser steps on its longest line of descent; it is sent with the model. With one model
    at a time this is the paper's merge. A straggler does not slow other peers: its models are missing for a while,
    have little weight when they arrive, and one cycle brings it up to date.

    A peer sends its model to all neighbours at once, which costs one message. Schedules with one neighbour per gossip
    step (``one_peer_exponential``; ``epidemic_local`` with ``degree = 1`` is the paper's peer sampling) reach one.

    Examples
    --------
    >>> GossipLearning().traits.asynchronous
    True

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
    """Numbers that are sent beside a model: its age."""

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one cycle."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        before = state.extra.get("age", state.rows.new_zeros(len(net.peers), 1, dtype=torch.float64))  # [R, 1]
        ages = before + to_device(fitted.report.steps, before.device).to(before).unsqueeze(-1)  # [R, 1]
        released = await net.release(fitted.rows, since=state.public)
        own = torch.cat([released.values, ages.to(released.values)], dim=-1)  # [R, P + 1]
        rows, ages = merge_models(await net.receive(Released(own)), own)
        return State(rows, Released(rows).public, fitted.memory, {"age": ages}, fitted.report)


def merge_models(received: ReceivedModels, own: Rows) -> tuple[Rows, torch.Tensor]:
    """Return the mean of received models weighted by their ages, and the largest age.

    Parameters
    ----------
    received
        Received models with their ages in the last place, ``[S, P + 1]``, including the receiver's own.
    own
        Own models ``[R, P + 1]``, which remain where all ages are zero.

    Returns
    -------
    rows, ages
        ``[R, P]`` and ``[R, 1]`` float64.

    Examples
    --------
    >>> own = torch.tensor([[4.0, 1.0]])
    >>> rows = torch.tensor([[4.0, 1.0], [8.0, 3.0]])
    >>> both = ReceivedModels(rows, torch.tensor([0, 0]), torch.arange(2), torch.ones(2) / 2)
    >>> [each.tolist() for each in merge_models(both, own)]
    [[[7.0]], [[3.0]]]
    """
    listener, sender, _ = received.beside()  # [E]
    ages = received.rows[sender, -1].to(torch.float64).clamp_min(0)  # [E]
    total = ages.new_zeros(len(own)).index_add(0, listener, ages)  # [R]
    shares = ages / total.where(total > 0, 1.0)[listener]  # [E]
    mean: Rows = torch.nn.functional.embedding_bag(  # sums edge by edge, and holds no row a second time
        sender,
        received.rows,
        torch.searchsorted(listener, torch.arange(len(own), device=listener.device)),
        mode="sum",
        per_sample_weights=shares.to(received.rows),
    )
    rows = torch.where(total.unsqueeze(-1) > 0, mean, own)[:, :-1]  # [R, P]
    oldest = torch.zeros_like(total).scatter_reduce(0, listener, ages, "amax")  # [R]
    return rows, oldest.unsqueeze(-1)
