"""Live peers and the simulation of one experiment end in the same rows.

Tolerance: both compute in double precision and differ only in the order of sums (a live peer adds
rows in the order of turns, the stack in the order of its sparse matrix; training one row and many
takes other kernels), so rows agree to a few units in the last place, amplified by a few steps of
training: 1e-10 is far above that and far below any other effect. Where rows are rounded onto the
grid of the masks, a unit in the last place can tip a number that lies half-way (and averages of
grid points often do), so there they agree to one step of the grid.
"""

import asyncio

import pytest
import torch
from swarms import SMALL, live

from p2pfl.experiment import read
from p2pfl.identity import SeededSource
from p2pfl.peer.child import connect
from p2pfl.simulation import simulate
from p2pfl.transport import MemoryTransport
from p2pfl.transport.broker import embedded

TOLERANCE = 1e-10
GRID = 2.0**-20

CASES = {
    "FedAvg": [],
    "FedAvg, all alike": ["learning.weighted=false"],
    "FedAvg, half of the peers": ["learning.fraction=0.5"],
    "FedAvg, Chebyshev": ["gossip.acceleration=chebyshev"],
    "FedAvg, one-peer exponential": ["topology.kind=one_peer_exponential", "topology.peers=8"],
    "FedAvg, static exponential": ["topology.kind=exponential"],
    "FedAvg, star": ["topology.kind=star"],
    "FedAvg, stopping rule": ["learning.stop=0.6"],
    "FedAvg, Adam": ["learning.optimizer=adam", "learning.rate=0.01"],
    "FedAvg, masks": ["privacy.mode=pairwise"],
    "FedAvg, masks, noise, clip": ["privacy.mode=pairwise", "privacy.noise=0.01", "privacy.clip=1.0"],
    "FedAvg, masks, half of the peers": ["privacy.mode=pairwise", "learning.fraction=0.5"],
    "FedAvg, private noise": ["privacy.mode=independent", "privacy.noise=0.01"],
    "FedAvg, masks on a denser graph": ["privacy.mode=pairwise", "privacy.mask_graph=complete", "topology.kind=ring"],
    "FedAvg, masks, secret participation": [
        "privacy.mode=pairwise",
        "privacy.noise=0.01",
        "privacy.clip=1.0",
        "privacy.participation=0.5",
    ],
    "FedAvg, masks and noise for an epsilon": ["privacy.mode=pairwise", "privacy.epsilon=8.0"],
    "FedAvg, scaled features, consensus": ["data.scale=true", "learning.consensus=true"],
    "FedAvg, scaled features, consensus, masks": [
        "data.scale=true",
        "learning.consensus=true",
        "privacy.mode=pairwise",
        "topology.kind=complete",
    ],
    "FedSGD": ["learning.algorithm=fedsgd"],
    "D-PSGD": ["learning.algorithm=dpsgd"],
    "D-PSGD, momentum": ["learning.algorithm=dpsgd", "learning.options={momentum=0.9}"],
    "D-PSGD, masks": ["learning.algorithm=dpsgd", "privacy.mode=pairwise"],
    "D-PSGD, one-peer exponential, masks": [
        "learning.algorithm=dpsgd",
        "privacy.mode=pairwise",
        "topology.kind=one_peer_exponential",
        "topology.peers=8",
    ],
}


def tolerance(experiment):
    return TOLERANCE if experiment.privacy.mode == "none" else GRID


def difference(ended, run):
    """Largest difference between a live peer's model and the simulated one."""
    largest = 0.0
    for name, end in ended.items():
        model = end.peer.plan.learner.state_dict(end.state.rows[0])
        for key, value in run.models[name].items():
            largest = max(largest, float((value - model[key]).abs().max()))
    return largest


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_live_peers_in_memory_end_where_the_simulation_ends(changes):
    experiment = read(SMALL, changes=changes)
    source = SeededSource(11)
    ended = asyncio.run(live(experiment, MemoryTransport(), source=source))
    run = simulate(experiment, source=source, baselines=False)
    assert difference(ended, run) < tolerance(experiment)
    rounds = {end.records[-1].round for end in ended.values()}
    assert rounds == {run.metrics[-1].round}


@pytest.fixture(scope="module")
def broker():
    with embedded() as running:
        yield running


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_live_peers_over_a_real_broker_end_where_the_simulation_ends(broker, changes):
    experiment = read(SMALL, changes=changes)
    source = SeededSource(11)
    ended = asyncio.run(live(experiment, connect(experiment, url=broker.url), source=source))
    run = simulate(experiment, source=source, baselines=False)
    assert difference(ended, run) < tolerance(experiment)


def test_with_secret_keys_the_means_agree_although_masks_differ(broker):
    experiment = read(SMALL, changes=["privacy.mode=pairwise", "gossip.steps=40", "rounds=1"])
    ended = asyncio.run(live(experiment, connect(experiment, url=broker.url)))
    run = simulate(experiment, baselines=False)
    live_mean = torch.cat([end.state.rows for end in ended.values()]).mean(0)
    rows = [
        ended[name].peer.plan.learner.layout.join({k: v[None] for k, v in run.models[name].items()}) for name in ended
    ]
    # 40 steps leave about 1e-6 of the masks, and the grid has steps of 1e-6
    assert torch.allclose(live_mean, torch.cat(rows).mean(0), atol=1e-5)


def test_the_records_of_a_live_peer_and_of_the_simulation_agree():
    experiment = read(SMALL)
    ended = asyncio.run(live(experiment, MemoryTransport()))
    run = simulate(experiment, baselines=False)
    for record in run.metrics:
        twin = ended[record.peer].records[record.round]
        assert twin.scores == pytest.approx(record.scores)
        assert twin.training_loss == pytest.approx(record.training_loss)
        assert twin.distance == pytest.approx(record.distance)
        assert twin.heard == record.heard


def test_live_peers_and_the_simulation_agree_on_statistics_and_on_the_score_of_one_model():
    experiment = read(SMALL, changes=["data.scale=true", "learning.consensus=true", "privacy.mode=pairwise"])
    source = SeededSource(11)
    ended = asyncio.run(live(experiment, MemoryTransport(), source=source))
    told = simulate(experiment, source=source, baselines=False).summary
    for end in ended.values():
        assert end.peer.statistics.mean[0].tolist() == pytest.approx(told["statistics"]["mean"], abs=1e-7)
        assert end.peer.common == pytest.approx(told["common"], abs=1e-4)  # masks on a grid move the model
        assert torch.equal(end.state.rows, ended["peer0"].state.rows)
