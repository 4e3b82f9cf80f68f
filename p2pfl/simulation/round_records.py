"""Records of the rounds of a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch

from p2pfl.algorithms import Averaging, State
from p2pfl.algorithms.devices import MS
from p2pfl.core.encodings import Ints
from p2pfl.core.rows import Rows, distances, mean, repeated, to_device
from p2pfl.results import Record
from p2pfl.simulation.inline import Inline
from p2pfl.simulation.own_state import models_of
from p2pfl.simulation.sharding import Shard
from p2pfl.simulation.stacked import StackedNeighbourhood

HOST = torch.device("cpu")
"""Device of everything that peers would send, save and report."""


def move_state(state: State, device: torch.device) -> State:
    """Return a state with all rows ``[R, ...]`` on a device; one number for each row stays on the CPU."""
    if state.rows.device == device:
        return state

    def there(values: torch.Tensor) -> torch.Tensor:
        return to_device(values, device) if values.dim() > 1 or device == HOST else values

    return state.map(there)


def on_host(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors on the CPU, which waits for the device."""
    return {name: value.cpu() for name, value in values.items()}


@dataclass(frozen=True)
class RecordedPeers:
    """Peers of a process that have records of a round.

    Attributes
    ----------
    peers
        Their names.
    numbers
        Their numbers among the peers of the process; ``None`` for all.
    rows
        Their numbers among the peers that the round computes; ``None`` for all.
    """

    peers: tuple[str, ...]
    numbers: torch.Tensor | None = None
    rows: torch.Tensor | None = None

    @classmethod
    def some(cls, shard: Shard, numbers: Ints, rows: Ints | None = None) -> Self:
        """Return some peers of a process, such as those that are drawn for a round."""
        names = tuple(shard.peers[number] for number in numbers.tolist())
        return cls(names, torch.from_numpy(numbers), None if rows is None else torch.from_numpy(rows))

    def models(self, state: State) -> Rows:
        """Return the models of these peers out of the state of all peers of the process."""
        return state.rows if self.numbers is None else models_of(state, self.numbers.numpy())

    def of_all(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values of these peers out of those of all peers of the process."""
        return values if self.numbers is None else values[self.numbers.to(values.device)]

    def of_computed(self, values: torch.Tensor, computed: Shard) -> torch.Tensor:
        """Return the values of these peers out of those of the peers that a round computes."""
        return computed.spread(values) if self.rows is None else values[self.rows.to(values.device)]


@dataclass
class SentBytes:
    """Bytes that each peer has sent so far, one number in memory while all have sent the same.

    Attributes
    ----------
    each
        The bytes, ``[N]`` int64; further rounds do not write into them.

    Examples
    --------
    >>> sent = SentBytes.none(3)
    >>> sent.add(torch.tensor([5]).expand(3))
    >>> repeated(sent.each)
    True
    >>> sent.add(torch.tensor([1, 2, 3]))
    >>> sent.each.tolist()
    [6, 7, 8]
    """

    each: torch.Tensor

    @classmethod
    def none(cls, peers: int) -> Self:
        """Return those of so many peers before the first round."""
        return cls(torch.zeros(1, dtype=torch.int64).expand(peers))

    def add(self, bytes: torch.Tensor) -> None:
        """Add what each peer has sent, ``[N]``."""
        if repeated(self.each) and repeated(bytes):
            self.each = (self.each[:1] + bytes[:1]).expand(len(bytes))
        else:
            self.each = self.each + bytes


def records_of(
    rounds: list[int],
    state: State,
    net: StackedNeighbourhood,
    learner: Inline,
    *,
    shard: Shard,
    listed: RecordedPeers,
    evaluated: Sequence[dict[str, float]],
    sent: torch.Tensor,
    spent: float | None,
    mean_model: dict[str, float],
    average: Averaging | None,
) -> list[list[Record]]:
    """Return the records of each listed peer: one if it ends a round of its own; a round of -1 means none."""
    report, computed = state.report, partial(listed.of_computed, computed=net.shard)
    received, bytes_out = computed(net.received).tolist(), listed.of_all(sent).tolist()
    public = state.public.rows  # [R, P]
    common = shard.mean(mean(public))  # [P]
    tensors = {"apart": listed.of_all(distances(public, common.expand_as(public))).squeeze(-1)}  # [R] each
    tensors |= {"moved": computed(net.distance)}
    tensors |= {} if learner.update is None else {"update": computed(learner.update)}
    tensors |= {} if report is None else {"loss": computed(report.loss), "steps": computed(report.steps)}
    columns = {name: values.tolist() for name, values in on_host(tensors).items()}
    losses = [None] * len(listed.peers)
    if report is not None:
        losses = [loss if steps else None for loss, steps in zip(columns["loss"], columns["steps"], strict=True)]
    updates = columns.get("update", [None] * len(listed.peers))
    diversity, mixed = learner.diversity, state.mixed
    counted, clock = _attendance(average, max(rounds, default=-1))
    return [
        [
            Record(
                peer=name,
                round=rounds[index],
                scores=evaluated[index],
                training_loss=losses[index],
                distance=columns["moved"][index],
                bytes_out=bytes_out[index],
                bytes_in=0,
                seconds_training=0.0,
                seconds_waiting=0.0,
                received=received[index],
                privacy_spent=spent,
                update=updates[index],
                disagreement=columns["apart"][index],
                diversity=diversity,
                mixed=mixed,
                mean_model=mean_model,
                counted=counted.get(name),
                clock=clock,
            )
        ]
        if rounds[index] >= 0
        else []
        for index, name in enumerate(listed.peers)
    ]


def _attendance(average: Averaging | None, round: int) -> tuple[dict[str, bool], float | None]:
    """Return whether each invited client counts in a round, and when the round ends, in seconds of devices."""
    here = None if average is None or round < 0 else average.invitation(round)
    if average is None or here is None:
        return {}, None
    names, counted = average.peers, {*here.counted.tolist()}
    return {names[number]: number in counted for number in here.invited.tolist()}, here.ended / MS
