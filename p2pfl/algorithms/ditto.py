"""Ditto: a personal model that is pulled towards the common one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class Ditto:
    r"""FedAvg for a common model w, and a personal model of each peer that is pulled towards w.

    .. math:: v_k \leftarrow v_k - \eta \bigl(\nabla F_k(v_k) + \lambda (v_k - w)\bigr)

    for the steps of a round, where w is the common model at its start. FedAvg learns w independently of v. Peers
    are evaluated with v, which never leaves them.

    Parameters
    ----------
    average
        Average over the participants, as for :class:`FedAvg`.
    pull
        :math:`\lambda`: at 0 each peer learns v alone; close to :math:`1 / \eta`, v follows w.

    Examples
    --------
    >>> Ditto(pull=0.5).traits.personal
    True

    References
    ----------
    Li, Hu, Beirami and Smith, Ditto: fair and robust federated learning through personalization,
    ICML 2021, Algorithm 1.
    """

    traits: ClassVar[Traits] = Traits(
        needs_gradients="corrects every gradient", linear=True, convex=True, personal=True, idle_alike=True
    )
    average: Averaging = Averaging()
    pull: Annotated[float, Meta(ge=0)] = 0.1

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of FedAvg and train the personal models for as many steps, which doubles the training."""
        common, peers = state.public, net.peers
        active = self.average.participants(peers, round=round)  # [R]

        def lead(rows: Rows, indices: torch.Tensor) -> Rows:
            return self.pull * (rows - common.rows.to(rows)[indices])

        fitted = await learner.fit(common.rows, peers=peers, round=round, active=active)
        own = await learner.fit(state.rows, peers=peers, round=round, active=active, correction=lead)
        masses = await self.average.masses(learner, net, active)
        mean = await self.average(net, fitted.rows, since=common, masses=masses)
        return State(own.rows, mean, report=own.report)
