"""Live peers that are killed in the check of small cells, before the first round of a model from totals, and go on."""

import asyncio
import csv
import re

import numpy as np
import pytest

from p2pfl.experiment import read
from p2pfl.learning.small_cells import AgreedCheck
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from restarts import RestartablePeers

pytestmark = pytest.mark.slow


@pytest.fixture
def clinics(tmp_path):
    """Return a regression on the tables of four peers, whose levels are enough people's."""
    rng = np.random.default_rng(6)
    for number in range(4):
        with (tmp_path / f"peer{number}.csv").open("w", newline="") as file:
            rows = zip(rng.normal(50, 9, 60).round(1), rng.integers(0, 3, 60), rng.integers(0, 2, 60), strict=True)
            csv.writer(file).writerows([["age", "ward", "ill"], *rows])
    columns = {"age": "number", "ward": [0, 1, 2], "ill": [0, 1]}
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "ill", "columns": columns}
    return read(
        {
            "rounds": 20,
            "topology": {"kind": "complete", "peers": 4},
            "data": {"name": "table", "options": options},
            "model": {"name": "glm"},
            "privacy": {"mode": "pairwise"},
            "transport": {"patience": 4.0},
        }
    )


@pytest.mark.parametrize("killed", [[], ["peer2"]], ids=["all", "one"])
async def test_peers_that_are_killed_while_they_count_cells_end_with_the_model_of_the_simulation(
    clinics, tmp_path, monkeypatch, killed
):
    """Under masks, a total without one peer ends the run of the others, which then go on together."""
    counting, find = asyncio.Event(), AgreedCheck.find

    def counted(self, cells, count, *, nobody=None):
        counting.set()
        return find(self, cells, count, nobody=nobody)

    monkeypatch.setattr(AgreedCheck, "find", counted)
    folder = tmp_path / "run"
    folder.mkdir()
    async with asyncio.timeout(120):
        lives = RestartablePeers(clinics, MemoryTransport(), folder)
        lives.start()
        await counting.wait()
        await lives.kill(*killed)
        others = [task for task in lives.tasks.values() if not task.done()]
        for error in await asyncio.gather(*others, return_exceptions=True):
            assert re.search("peer2 did not answer; start the peers that are missing and the run again", str(error))
        assert not any(lives.records.values())
        lives.start(resume=True)
        ended = await lives.end()
    wanted = simulate(clinics, source=SeededSource(5), baselines=False).models
    for name, end in ended.items():
        for key, tensor in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), wanted[name][key].numpy()), (name, key)
