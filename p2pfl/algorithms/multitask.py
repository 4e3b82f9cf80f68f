"""Multi-task learning: peers learn which neighbours they resemble along with their models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.core.neighbourhood import Neighbourhood, ReceivedModels
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits

COMPARES = "compares the rows that it hears one by one"


@dataclass(frozen=True)
class MultiTask:
    r"""Models and relations in turn: each peer is pulled towards the neighbours that it resembles.

    .. math::

        w_k = \arg\min_{w \in \Delta} \sum_l w_l \frac{\lVert x_k - x_l \rVert^2}{d_k} + \nu \lVert w \rVert^2,
        \qquad x_k \leftarrow x_k - \eta \Bigl(\nabla F_k(x_k) + \mu \sum_l w_{kl} (x_k - x_l)\Bigr)

    over the neighbours l whose models arrived, with :math:`d_k` the mean squared distance to them. So
    :math:`\nu` has no unit, and the relations are the projection of :math:`-\lVert x_k - x_l \rVert^2 / (2 \nu d_k)`
    onto the simplex. This is the paper's alternating scheme, with other relations: in the paper they are symmetric,
    with a logarithm that keeps degrees positive; here each peer has its own distribution, which it computes from the
    models that it receives.

    Parameters
    ----------
    pull
        :math:`\mu`; at 0 each peer learns alone.
    spread
        :math:`\nu`: small for few relations, large for the plain mean of the neighbours.

    Examples
    --------
    >>> MultiTask(spread=0.1).traits.weighs_neighbours
    True

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
        """Run one round: a gossip step, the relations in closed form, and local training."""
        released = await net.release(state.rows, since=state.public)
        received = await net.receive(released)
        kin, related = self.kin(received, own=state.rows)  # [R, P], [R, 1]

        def pulled(rows: Rows, indices: torch.Tensor) -> Rows:
            return self.pull * related.to(rows)[indices] * (rows - kin.to(rows)[indices])

        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory, correction=pulled)
        return State(fitted.rows, released.public, fitted.memory, report=fitted.report)

    def kin(self, received: ReceivedModels, *, own: Rows) -> tuple[Rows, torch.Tensor]:
        """Return the mean of the neighbours by their relations, ``[R, P]``, and whether there are any, ``[R, 1]``."""
        others = received.sender != received.listener  # [E]
        received = replace(received, listener=received.listener[others], sender=received.sender[others])
        listener, sender, _ = received.beside()  # [F]
        weights = relations(
            (own[listener] - received.rows[sender]).double().square().sum(-1),
            received.listener,
            count=len(own),
            spread=self.spread,
        )  # [F]
        mean = torch.zeros_like(own).index_add_(0, listener, received.rows[sender] * weights.to(own).unsqueeze(-1))
        related = own.new_zeros(len(own), 1).index_fill_(0, listener, 1)  # [R, 1]
        return mean, related


def relations(squares: torch.Tensor, listener: torch.Tensor, *, count: int, spread: float) -> torch.Tensor:
    r"""Return weights that minimise :math:`\sum_l w_l s_l / \bar s + \nu \lVert w \rVert^2` for each receiver.

    Parameters
    ----------
    squares, listener
        Squared distances s ``[F]`` and the receiver of each ``[F]``, sorted by receiver; the receivers on the CPU.
    count
        R, the number of receivers.
    spread
        :math:`\nu`.

    Returns
    -------
    torch.Tensor
        Weights of the edges, ``[F]``.

    Examples
    --------
    >>> relations(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), count=2, spread=0.5)
    tensor([1., 0., 1.])

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra, Efficient projections onto the l1-ball for learning in
    high dimensions, ICML 2008, Figure 1.
    """
    numbers = torch.bincount(listener, minlength=count)  # [R]
    most = max([1, *numbers.tolist()])
    slots = torch.arange(len(listener)) - (numbers.cumsum(0) - numbers)[listener]  # [F], among one's own
    listener, slot, degrees = (to_device(each, squares.device) for each in (listener, slots, numbers))
    means = squares.new_zeros(count).index_add_(0, listener, squares) / degrees.clamp_min(1)  # [R]
    tiny = torch.finfo(squares.dtype).tiny
    values = squares.new_full((count, most), -torch.inf)  # [R, D]
    values[listener, slot] = -squares / (2 * spread * means.clamp_min(tiny)[listener])
    ordered = values.sort(descending=True).values  # [R, D]
    ranks = torch.arange(1, values.shape[1] + 1, device=values.device)  # [D]
    excess = (ordered.cumsum(-1) - 1) / ranks  # [R, D]
    kept = (ordered > excess).sum(-1, keepdim=True).clamp_min(1)  # [R, 1]
    return (values - excess.gather(-1, kept - 1)).clamp_min(0)[listener, slot]  # [F]
