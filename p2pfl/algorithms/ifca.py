"""IFCA: several common models, among which each peer chooses its own."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Neighbourhood, derived
from p2pfl.core.rows import Layout, Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits

SEVERAL = "releases a row for each of its models"


@dataclass(frozen=True)
class IFCA:
    r"""FedAvg in clusters that are not known in advance.

    .. math:: j_k = \arg\min_j F_k(x^j), \qquad
              x^j \leftarrow \frac{\sum_{k: j_k = j} n_k\, \text{fit}_k(x^j)}{\sum_{k: j_k = j} n_k}

    Each peer trains the model with the smallest loss on its own training samples, and is evaluated with it. All models
    are averaged, those of other clusters with weight zero, so a round costs ``clusters`` times the gossip steps. The
    first model is the common start; each further one has the numbers of each tensor in another order, drawn by
    key, so it is as likely a start as the first.

    Parameters
    ----------
    average
        Average over the participants, as for :class:`FedAvg`.
    layout
        Layout of the models; a run fills it in.
    seed
        Seed of the further models.
    clusters
        Number of models; 1 is FedAvg.

    Examples
    --------
    >>> IFCA(layout=Layout(("weight",), ((3,),)), clusters=2).starts(torch.ones(1, 3)).shape
    torch.Size([1, 2, 3])

    References
    ----------
    Ghosh, Chung, Yin and Ramchandran, An efficient framework for clustered federated learning,
    NeurIPS 2020, Algorithm 1, option II (averages of models).
    """

    traits: ClassVar[Traits] = Traits(
        personal=True,
        nonlinear=SEVERAL,
        no_privacy=SEVERAL,
        no_compression=SEVERAL,
        needs_plain_averages="mixes rows of several models with masses that say whose they are",
    )
    average: Averaging = Averaging()
    layout: Layout = Layout((), ())
    seed: int = 0
    clusters: Annotated[int, Meta(ge=1)] = 2

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: choose a model, train it, and average each model among the peers that chose it."""
        peers = net.peers
        previous = state.known.get("models")
        if previous is None:
            previous = derived(self.starts, state.public)
        models = previous.rows  # [R, M, P]
        active = self.average.participants(peers, round=round)  # [R]
        choice = self._choice(models, learner, peers)  # [R]
        mine = torch.arange(len(peers), device=choice.device), choice
        fitted = await learner.fit(models[mine], peers=peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        averaged, chose = [], choice.cpu().unsqueeze(-1)  # [R, 1]; weights are on the CPU, which waits for this once
        for number, model in enumerate(models.unbind(1)):  # [R, P] each
            chosen = (choice == number).unsqueeze(-1)  # [R, 1]
            share = masses if self.clusters == 1 else (chose == number) * (1.0 if masses is None else masses)
            rows = torch.where(chosen, fitted.rows, model)
            weights = None if share is None else share.to(torch.float64)
            since = derived(operator.itemgetter((slice(None), number)), previous)
            averaged.append(await self.average(net, rows, since=since, masses=weights))
        after = derived(lambda *rows: torch.stack(rows, dim=1), *averaged)  # [R, M, P]
        public = derived(operator.itemgetter(mine), after)
        return State(public.rows, public, None, {"choice": choice}, fitted.report, {"models": after})

    def starts(self, rows: Rows) -> torch.Tensor:
        """Return the models from which all peers start, ``[R, M, P]``."""
        models = [rows]
        for number in range(1, self.clusters):
            random = draw(self.seed, f"cluster {number}")
            parts = {}
            for name, part in self.layout.split(rows).items():
                flat = part.flatten(1)  # [R, size]
                order = to_device(torch.from_numpy(random.permutation(flat.shape[1])), flat.device)
                parts[name] = flat[:, order].view_as(part)
            models.append(self.layout.join(parts))
        return torch.stack(models, dim=1)  # [R, M, P]

    def _choice(self, models: torch.Tensor, learner: AsyncLearner, peers: tuple[str, ...]) -> torch.Tensor:
        """Return the number of the model with the smallest loss on each peer's training samples, ``[R]`` int64."""
        if self.clusters == 1:
            return torch.zeros(len(peers), dtype=torch.int64, device=models.device)
        losses = [learner.learner.evaluate(model, peers=peers, part="train")["loss"] for model in models.unbind(1)]
        return torch.stack(losses, dim=1).argmin(dim=1)  # [R]
