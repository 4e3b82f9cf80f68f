"""DiLoCo by gossip: many local steps, then a step of an outer optimiser, also while the next local steps run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, Local, State, lacks_moments, train_while
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Neighbourhood, Public, derived
from p2pfl.core.rows import Rows, part_of, with_part
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits

KEEP = 0.5
"""Share of the local model that a late step leaves by default."""


@dataclass(frozen=True)
class DiLoCo(Local):
    r"""Local training with an optimiser that keeps its state, then a step of Nesterov momentum along the mean change.

    .. math:: \Delta_i = \sum_j W_{ij} \theta_j - \phi_i, \qquad
              m_i \leftarrow \beta m_i + \Delta_i, \qquad
              \phi_i \leftarrow \phi_i + \eta (\Delta_i + \beta m_i)

    where :math:`\theta_j` is the result of local training from :math:`\phi_j`. If averages are exact, this is DiLoCo.
    With pairs and ``nesterov=False`` it is NoLoCo, whose step is :math:`\beta m_i + \eta \sum_j W_{ij} (\theta_j -
    \phi_j) - \gamma (\phi_i - \sum_j W_{ij} \phi_j)`, with :math:`\gamma = \eta` as in the authors' program. Without
    momentum and with rate 1 it is FedAvg with equal weights, bit for bit.

    Parameters
    ----------
    gossip
        Gossip steps per round.
    epochs, steps
        Training of a peer per round; the learner's default if both are ``None``.
    global_rate
        :math:`\eta`.
    momentum
        :math:`\beta`.
    nesterov
        False for :math:`\phi_i \leftarrow \phi_i + \eta m_i`.
    fragments
        Number F of parts of a model, of which each round sends the next one. A parameter is synchronised every F
        rounds, and trained locally in between.
    overlap
        ``"none"`` trains and then mixes. ``"start"`` mixes the models with which training begins while it runs, and
        adds the step along the own change to the result:
        :math:`\phi_i \leftarrow \sum_j W_{ij} \phi_j + \eta (\Delta_i + \beta m_i)` with
        :math:`\Delta_i = \theta_i - \phi_i`. Nothing is stale. ``"late"`` mixes the models that the round before left
        while the next training runs; its step is one round late.
    keep
        Share of the local model that a late step leaves, 0.5 if ``None``:
        :math:`\theta_i \leftarrow \alpha \theta_i + (1 - \alpha) \phi_i`.

    Raises
    ------
    ExperimentError
        ``overlap="start"`` with several fragments, or ``keep`` without ``overlap="late"``.

    References
    ----------
    Douillard et al., DiLoCo: distributed low-communication training of language models, 2023 (arXiv 2311.08105),
    Algorithm 1. Kolehmainen et al., NoLoCo: no-all-reduce low communication training method for large models, 2025
    (arXiv 2506.10911), section 3. Douillard et al., Streaming DiLoCo with overlapping communication, 2025 (arXiv
    2501.18512), section 2: ``fragments`` and ``overlap="late"``. Koneputugodage et al., Factored gossip DiLoCo, ICML
    2026 (arXiv 2606.22768): ``overlap="start"`` is its mixing of parameters behind computation, without the second,
    blocking mixing of changes.

    Examples
    --------
    >>> DiLoCo(momentum=0.5).step(torch.ones(1, 1), torch.ones(1, 1))
    (tensor([[1.2250]]), tensor([[1.5000]]))
    """

    traits: ClassVar[Traits] = Traits(linear=True, full_participation=True, moments=("momentum",))
    gossip: Gossip = UNSET
    global_rate: Annotated[float, Meta(gt=0)] = 0.7
    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    nesterov: bool = True
    fragments: Annotated[int, Meta(ge=1)] = 1
    overlap: Literal["none", "start", "late"] = "none"
    keep: Annotated[float, Meta(ge=0, le=1)] | None = None

    def __post_init__(self) -> None:
        if self.fragments > 1 and self.overlap == "start":
            raise ExperimentError(
                'overlap = "start" mixes the whole models with which training begins; set fragments to 1, or overlap '
                'to "late"'
            )
        if self.keep is not None and self.overlap != "late":
            raise ExperimentError(
                f'keep = {self.keep:g} is the share that a late step leaves; leave it out, or set overlap to "late"'
            )

    def places(self, size: int, *, round: int) -> torch.Tensor:
        """Return the places that peers send in a round, ``[Q]``: those of one fragment."""
        part = round % self.fragments
        return torch.arange(part * size // self.fragments, (part + 1) * size // self.fragments)

    def step(self, change: Rows, momentum: Rows) -> tuple[Rows, Rows]:
        """Return the step along a change ``[R, Q]``, and the momentum after it."""
        momentum = self.momentum * momentum + change
        return self.global_rate * (change + self.momentum * momentum if self.nesterov else momentum), momentum

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of local training, gossip and the outer step."""
        where = self.places(state.rows.shape[-1], round=round) if self.fragments > 1 else None  # [Q]
        before, since = part_of(state.rows, where), derived(lambda rows: part_of(rows, where), state.public)  # [R, Q]
        arrives = lacks_moments(self, state, round=round)
        momentum = state.extra.get("momentum", torch.zeros_like(state.rows))  # [R, P]
        training = learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        if self.overlap == "none":
            fitted = await training
            mixed = await self._mixed(net, part_of(fitted.rows, where), since=since)
        else:
            fitted, mixed = await train_while(learner, training, self._mixed(net, before, since=since))
        after = part_of(fitted.rows, where)  # [R, Q]
        change = after - before if self.overlap == "start" else mixed.rows - since.rows
        if arrives:
            change = torch.zeros_like(change)
        step, part = self.step(change, part_of(momentum, where))
        extra = {"momentum": with_part(momentum, part, where)}
        if self.overlap == "start":
            return State(mixed.rows + step, mixed, fitted.memory, extra, fitted.report)
        # not since + step, so that a step that is the change gives the average itself
        slow = derived(lambda rows: rows + (step - change), mixed)  # [R, Q]
        public = slow if where is None else derived(partial(with_part, where=where), state.public, slow)
        if self.overlap == "none" or arrives:
            after = slow.rows
        elif round > 0:  # in the first round there was nothing to send
            after = torch.lerp(slow.rows, after, KEEP if self.keep is None else self.keep)
        return State(with_part(fitted.rows, after, where), public, fitted.memory, extra, fitted.report)

    async def _mixed(self, net: Neighbourhood, rows: Rows, *, since: Public) -> Public:
        """Return the average of the models that peers release."""
        return (await self.gossip(net, await net.release(rows, since=since))).public
