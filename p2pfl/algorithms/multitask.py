"""Multi-task learning: whom a peer resembles is learned along with its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.neighbourhood import Heard, Neighbourhood
from p2pfl.rows import Rows
from p2pfl.traits import Traits

COMPARES = "compares the rows that it hears one by one"


@dataclass(frozen=True)
class MultiTask:
    r"""Models and relations in turn: each peer is pulled towards those neighbours that it resembles.

    .. math::

        w_k = \arg\min_{w \in \Delta} \sum_l w_l \frac{\lVert x_k - x_l \rVert^2}{d_k} + \nu \lVert w \rVert^2,
        \qquad x_k \leftarrow x_k - \eta \Bigl(\nabla F_k(x_k) + \mu \sum_l w_{kl} (x_k - x_l)\Bigr)

    over the neighbours l that were heard, with :math:`d_k` the mean squared distance to them: so
    :math:`\nu` has no unit, and the relations are the projection of :math:`-\lVert x_k - x_l \rVert^2 / (2 \nu d_k)`
    onto the simplex. The paper's alternating scheme; its relations are symmetric with a logarithm that keeps
    degrees positive, ours are each peer's own distribution, which one peer finds from what it hears.

    Parameters
    ----------
    pull
        :math:`\mu`; at 0 everybody learns alone.
    spread
        :math:`\nu`: small for few relations, large for the plain mean of the neighbours.

    References
    ----------
    Zantedeschi, Bellet and Tommasi, Fully decentralized joint learning of personalized models and
    collaboration graphs, AISTATS 2020, section 3.
    """

    traits: ClassVar[Traits] = Traits(
        needs_gradients="corrects every gradient",
        full_participation=True,
        weighs_neighbours=True,
        single_step=True,
        silent_rounds=True,
        personal=True,
        nonlinear=COMPARES,
        no_privacy=COMPARES,
        no_compression=COMPARES,
        needs_plain_averages="weighs the rows that it hears by a rule of its own",
    )
    pull: Annotated[float, Meta(ge=0)] = 1.0
    spread: Annotated[float, Meta(gt=0)] = 0.5

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One exchange, the relations in closed form, and local training."""
        released = await net.release(state.rows, since=state.public)
        heard = await net.hear(released)
        kin, related = self.kin(heard, own=state.rows)  # [R, P], [R, 1]

        def pulled(rows: Rows, indices: torch.Tensor) -> Rows:
            return self.pull * related.to(rows)[indices] * (rows - kin.to(rows)[indices])

        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory, correction=pulled)
        return State(fitted.rows, released.public, fitted.memory, report=fitted.report)

    def kin(self, heard: Heard, *, own: Rows) -> tuple[Rows, torch.Tensor]:
        """The mean of the neighbours by one's relations to them, ``[R, P]``, and whether there are any, ``[R, 1]``."""
        others = heard.sender != heard.listener  # [E]
        listener, sender = heard.listener[others], heard.sender[others]  # [F]
        weights = relations(
            (own[listener] - heard.rows[sender]).double().square().sum(-1), listener, count=len(own), spread=self.spread
        )  # [F]
        mean = torch.zeros_like(own).index_add_(0, listener, heard.rows[sender] * weights.to(own).unsqueeze(-1))
        related = torch.zeros(len(own), 1, dtype=own.dtype).index_fill_(0, listener, 1)  # [R, 1]
        return mean, related


def relations(squares: torch.Tensor, listener: torch.Tensor, *, count: int, spread: float) -> torch.Tensor:
    r"""Weights of edges ``[F]``: a listener's minimise :math:`\sum_l w_l s_l / \bar s + \nu \lVert w \rVert^2`.

    Parameters
    ----------
    squares, listener
        ``[F]``: s, and whose each is, sorted by listener.
    count
        R, how many listeners there are.
    spread
        :math:`\nu`.

    Examples
    --------
    >>> relations(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), count=2, spread=0.5)
    tensor([1., 0., 1.])

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra, Efficient projections onto the l1-ball for learning in
    high dimensions, ICML 2008, Figure 1.
    """
    degrees = torch.bincount(listener, minlength=count)  # [R]
    place = torch.arange(len(listener)) - (degrees.cumsum(0) - degrees)[listener]  # [F], among one's own
    means = torch.zeros(count, dtype=squares.dtype).index_add_(0, listener, squares) / degrees.clamp_min(1)  # [R]
    tiny = torch.finfo(squares.dtype).tiny
    values = squares.new_full((count, max(1, int(degrees.max()) if count else 1)), -torch.inf)  # [R, D]
    values[listener, place] = -squares / (2 * spread * means.clamp_min(tiny)[listener])
    ordered = values.sort(descending=True).values  # [R, D]
    ranks = torch.arange(1, values.shape[1] + 1)  # [D]
    excess = (ordered.cumsum(-1) - 1) / ranks  # [R, D]
    kept = (ordered > excess).sum(-1, keepdim=True).clamp_min(1)  # [R, 1]
    return (values - excess.gather(-1, kept - 1)).clamp_min(0)[listener, place]  # [F]
