"""Positions of the samples of rows with different numbers of steps."""

import numpy as np
import pytest
import torch

from p2pfl.data import batches, orders
from p2pfl.learning.steps import batching
from p2pfl.learning.steps.batching import BatchSchedule, DeviceSamples, StepPlan

CPU = torch.device("cpu")
BATCH = 4


def planned(sizes, *, epochs=2):
    """Return the plan of rows with so many samples each, most first, and the batches of each row alone."""
    sizes = np.array(sizes)
    peers = tuple(f"peer{row}" for row in range(len(sizes)))
    ends = np.cumsum(sizes)
    part = DeviceSamples([np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)], CPU)
    drawn = orders(sizes, np.full_like(sizes, epochs), seed=5, peers=peers, round=1, device=CPU)
    schedule = BatchSchedule(part, np.minimum(sizes, BATCH), epochs * -(-sizes // BATCH), 0, drawn)
    how = {"seed": 5, "round": 1, "batch": BATCH, "epochs": epochs, "steps": None}
    alone = [batches(size, peer=peer, **how) for size, peer in zip(sizes.tolist(), peers, strict=True)]
    return StepPlan(schedule, np.arange(len(sizes))), [
        [mine + start for mine in each] for each, start in zip(alone, ends - sizes, strict=True)
    ]


@pytest.mark.parametrize("located", [1, 40, 2**18])
@pytest.mark.parametrize("sizes", [[90, 41, 40, 9, 9, 5], [12, 12, 12], [7]])
def test_each_step_has_the_samples_that_each_row_draws_alone(monkeypatch, located, sizes):
    monkeypatch.setattr(batching, "POSITIONS_PER_CHUNK", located)
    plan, alone = planned(sizes)
    for step, active in enumerate(plan.active):
        found = plan.index(step)
        assert found.shape == (active, plan.widths[step])
        for row in range(active):
            mine = alone[row][step].tolist()
            assert found[row].tolist() == mine + [0] * (plan.widths[step] - len(mine))


def test_rows_without_further_steps_cost_no_positions(monkeypatch):
    counted = []
    plan, _ = planned([4000] + [8] * 500)
    position = plan._position
    monkeypatch.setattr(plan, "_position", lambda steps: counted.append(position(steps)) or counted[-1])
    for step in range(len(plan.active)):
        plan.index(step)
    assert sum(each.numel() for each in counted) <= 2 * plan.sizes.sum()
    assert len(counted) == 2
