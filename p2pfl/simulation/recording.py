"""Records of the rounds of a simulation."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from p2pfl.algorithms import State
from p2pfl.core.rows import distances, mean
from p2pfl.results import Record
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.placing import on_host
from p2pfl.simulation.stacked import StackedNeighbourhood


def records_of(
    rounds: list[int],
    state: State,
    net: StackedNeighbourhood,
    learner: Inline,
    *,
    evaluated: Sequence[dict[str, float]],
    sent: torch.Tensor,
    spent: float | None,
    mean_model: dict[str, float],
) -> list[list[Record]]:
    """Return the records of each peer, as of live ones: one if it ends a round of its own; a round of -1 means none."""
    report = state.report
    received = net.received.tolist()
    public = state.public.rows  # [R, P]
    common = net.shard.mean(mean(public))  # [P]
    found = {"apart": distances(public, common.expand_as(public)).squeeze(-1)}  # [R] each
    found |= {"moved": net.distance} | ({} if learner.update is None else {"update": learner.update})
    found |= {} if report is None else {"loss": report.loss}
    told = {name: values.tolist() for name, values in on_host(found).items()}
    losses = [None] * len(net.peers)
    if report is not None:
        losses = [loss if steps else None for loss, steps in zip(told["loss"], report.steps.tolist(), strict=True)]
    updates = told.get("update", [None] * len(net.peers))
    diversity, mixed = learner.diversity, state.mixed
    return [
        [
            Record(
                peer=name,
                round=rounds[index],
                scores=evaluated[index],
                training_loss=losses[index],
                distance=told["moved"][index],
                bytes_out=int(sent[index]),
                bytes_in=0,
                seconds_training=0.0,
                seconds_waiting=0.0,
                received=received[index],
                privacy_spent=spent,
                update=updates[index],
                disagreement=told["apart"][index],
                diversity=diversity,
                mixed=mixed,
                mean_model=mean_model,
            )
        ]
        if rounds[index] >= 0
        else []
        for index, name in enumerate(net.peers)
    ]
