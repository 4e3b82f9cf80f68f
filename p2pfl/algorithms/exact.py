"""Models that all peers compute from the same exact totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.core.errors import ModelError
from p2pfl.core.neighbourhood import Neighbourhood, derived
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits
from p2pfl.learning import Report, additive
from p2pfl.learning.additive import ContinuesPrivately, Step


@dataclass(frozen=True)
class Exact:
    r"""Take the totals that a model asks for, and compute the next model from them.

    .. math:: T = \sum_k s(D_k; x, q), \qquad x \leftarrow f(x, T)

    with s the private integers of a peer, f public and deterministic, and q the questions of a round, which depend on x
    and on earlier totals alone. All peers start with the same x and receive the same T, so their models are equal to
    the last bit: the model of the data of all peers together.

    Examples
    --------
    >>> Exact().traits.additive
    True
    """

    traits: ClassVar[Traits] = Traits(
        nonlinear="takes totals and releases no models",
        full_participation=True,
        single_step=True,
        additive=True,
        no_compression="releases no models",
        needs_plain_averages="takes exact totals, which one malicious peer can set to any value",
    )

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: one total after the other, until the model has what it asks for."""
        trained = additive(learner.learner)
        if trained is None:
            raise ModelError(
                f"{type(learner.learner.bare).__name__} trains by itself and asks for no totals; choose a model such "
                "as boosting, or another algorithm"
            )
        if isinstance(trained, ContinuesPrivately):
            asking = trained.asking_from(state.rows, peers=net.peers, round=round)
        else:
            asking = trained.asking(state.public.rows[0], round=round)
        total = None
        while True:
            try:
                question = next(asking) if total is None else asking.send(total)
            except StopIteration as stop:
                return _after(state, stop.value, net.peers)
            total = await net.total(
                question.answer, size=question.size, bits=question.bits, change=question.change, to=question.to
            )


def _after(state: State, step: Step, names: Sequence[str]) -> State:
    """Return the state after a round; rows share their memory where all of them are equal."""
    public = derived(lambda rows: step.row.to(rows).expand_as(rows), state.public)  # [R, P]
    peers = len(public.rows)
    rows = (
        public.rows if step.own is None else torch.stack([step.own(peer).to(public.rows) for peer in names])
    )  # [R, P]
    has_loss = step.loss is not None
    loss = torch.full((peers,), step.loss if step.loss is not None else 0.0, dtype=torch.float64)  # [R]
    report = Report(loss, torch.full((peers,), int(has_loss), dtype=torch.int64))
    return State(rows, public, report=report, over=step.over)
