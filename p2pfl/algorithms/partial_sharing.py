"""Partial sharing: peers share another part of their models in each round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import msgspec

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.neighbourhood import Neighbourhood, derived
from p2pfl.core.rows import to_device
from p2pfl.core.sparse_codecs import choose_positions
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class PartialSharing:
    r"""FedAvg of a share of the parameters, which all peers draw alike and anew in each round.

    .. math:: x_k[S_t] \leftarrow \frac{\sum_{j} n_j x_j[S_t]}{\sum_{j} n_j}, \qquad
              x_k[\bar S_t] \leftarrow x_k[\bar S_t]

    by gossip, with :math:`S_t` a share of all places that follows from the seed and the round, so peers need not send
    places. Mixing is linear and exact on :math:`S_t`; no other way to save bytes works under masks.

    Parameters
    ----------
    average
        Average over the participants: who they are, their weights and the gossip steps.
    seed
        Seed of the places.
    share
        Share of the parameters, above 0 and at most 1; 1 is FedAvg.

    References
    ----------
    Random sampling of parameters as in Dhasade et al., Decentralized learning made easy with DecentralizePy, EuroMLSys
    2023; with one draw for all, as random sparsification with a shared seed.

    Examples
    --------
    >>> from p2pfl.simulation import simulate
    >>> table = {"rounds": 2, "topology": {"peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}}
    >>> part = {"algorithm": "partial", "algorithm_options": {"share": 0.25}}
    >>> whole = simulate(table, baselines=False).summary["bytes_sent"]
    >>> round(whole / simulate(table | {"learning": part}, baselines=False).summary["bytes_sent"])
    4
    """

    traits: ClassVar[Traits] = Traits(
        nonlinear="releases other numbers each round, so that what sums show differs from one to the next",
        no_compression="shares another part of the row each round",
    )
    average: Averaging = Averaging()
    seed: int = 0
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1

    def places(self, size: int, *, round: int) -> torch.Tensor:
        """Return the places that peers share in a round, ``[share P]``."""
        return torch.from_numpy(choose_positions(size, share=self.share, seed=self.seed, round=round))

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of local training and averaging of a part."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        positions = to_device(self.places(state.rows.shape[-1], round=round), state.rows.device)  # [share P]

        def part(rows: torch.Tensor) -> torch.Tensor:
            return rows.index_select(-1, positions)  # [R, share P]

        mean = await self.average(net, part(fitted.rows), since=derived(part, state.public), masses=masses)

        def with_part(rows: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
            return rows.index_copy(-1, positions, mean)  # [R, P]

        public = derived(with_part, state.public, mean)  # elsewhere as last seen
        return replace(state, rows=with_part(fitted.rows, mean.rows), public=public, report=fitted.report)
