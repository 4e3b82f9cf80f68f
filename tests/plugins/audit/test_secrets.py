"""Live peers draw their secrets from the operating system, whatever the experiment's seed is."""

import numpy as np
import pytest

from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.audit.live.restarts import launch_peers, short
from p2pfl.plugins.audit.live.tap import Tap, TappedPlan
from p2pfl.privacy import Settings
from swarms import live

SETTINGS = Settings(clip=1.0, noise=1.0, mask=4.0)
ROUNDS = 2
SIZE = 400


def plans(tap):
    return TappedPlan.of(short(SETTINGS, kind="ring", peers=4, rounds=ROUNDS), tap, size=SIZE)


async def as_children(plan, folder):
    await launch_peers(plan, folder)


async def as_objects(plan, folder):
    del folder
    transport = MemoryTransport(lose=plan.tap.overhear)
    await live(plan.experiment, transport, resolved=plan)


@pytest.mark.slow
@pytest.mark.parametrize("run", [as_children, as_objects])
async def test_two_runs_of_one_experiment_share_no_key_mask_or_noise(run, tmp_path):
    tap = Tap()
    plan = plans(tap)
    for number in range(2):
        tap.run = number
        folder = tmp_path / str(number)
        folder.mkdir()
        await run(plan, folder)
    assert len(tap.keys[0]) == len(tap.keys[1]) == 8
    assert not tap.keys[0] & tap.keys[1]
    first, second = (np.array([each.points for each in tap.table([number])]) for number in range(2))
    released = np.concatenate([first, second]) * 2.0**-20
    sums = released.reshape(2 * ROUNDS, 4, SIZE).sum(axis=1)  # [turns, P]: masks cancel
    for rows, count in ((released, len(first)), (sums, ROUNDS)):
        alike = np.abs(np.corrcoef(rows))[:count, count:]
        assert alike.max() < 6 / SIZE**0.5
