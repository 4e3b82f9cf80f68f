"""Cohorts whose clients are protected: a clip of each update, noise on the sum, and secret participation."""

import math

import numpy as np
import pytest
import torch

from p2pfl.algorithms import Averaging, FedAvg
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.learning import TorchLearner
from p2pfl.privacy.accounting.accountant import account, find_isolated
from p2pfl.privacy.accounting.calibration import calibrate
from p2pfl.privacy.accounting.colluders import find_parted_peers
from p2pfl.privacy.keys import SecretSource, SeededSource
from p2pfl.simulation import cohort, playing, simulate
from p2pfl.simulation.cohort import AllPeers
from p2pfl.topology import Topology, complete, metropolis
from tests.simulation.test_cohort import cohorts_seen, models

TABLE = {
    "rounds": 3,
    "seed": 3,
    "topology": {"kind": "complete", "peers": 12},
    "data": {"name": "wine", "split": "dirichlet"},
    "model": {"name": "linear"},
    "learning": {"algorithm": "fedavg", "dtype": "float64", "batch": 8, "device": "cpu"},
    "privacy": {"mode": "pairwise", "clip": 0.5, "participation": 0.4},
}


class SameCoins:
    """Source whose peers draw, each alone, the coins that a cohort draws at once."""

    secret = True

    def __init__(self, peers):
        self.peers, self.seeded = peers, SeededSource(5)

    def bytes(self, size, *, purpose, peer, round=0):
        if purpose == "participation 0":
            coins = self.bytes(
                8 * len(self.peers), purpose="participation of a cohort", peer=self.peers[0], round=round
            )
            place = 8 * self.peers.index(peer)
            return coins[place : place + 8]
        return self.seeded.bytes(size, purpose=purpose, peer=peer, round=round)


def everyone(*_, shard, **_options):
    return AllPeers(shard)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("weighted", ["true", "false"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedavgm", "fedadam"])
def test_a_cohort_of_secret_members_computes_what_all_peers_do(algorithm, weighted, monkeypatch):
    changes = [f"learning.algorithm={algorithm}", f"learning.weighted={weighted}", "privacy.mask=0.01"]
    experiment, source = read(TABLE, changes=changes), SameCoins(complete(12).peers)
    rows = cohorts_seen(monkeypatch)
    few = simulate(experiment, baselines=False, source=source)
    assert len(rows) == 3
    assert max(rows) < 12
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    every = simulate(experiment, baselines=False, source=source)
    start = models(simulate(read(TABLE, changes=[*changes, "rounds=1", "learning.rate=1e-9"]), baselines=False))
    grid = 2e-4 if algorithm == "fedadam" else 1e-5  # models round to a grid of 1e-6 before a division by 0.4
    assert torch.allclose(models(few), models(every), rtol=0, atol=grid)
    assert (models(few) - start).abs().max() > 100 * grid
    assert [each.bytes_out for each in few.metrics] == [each.bytes_out for each in every.metrics]
    assert few.summary["bytes_sent"] == every.summary["bytes_sent"]


def test_members_that_the_seed_draws_release_what_all_peers_do(monkeypatch):
    changes = ["privacy.participation=1.0", "learning.fraction=0.4", "privacy.mask=0.01"]
    experiment = read(TABLE, changes=changes)
    rows = cohorts_seen(monkeypatch)
    few = simulate(experiment, baselines=False)
    assert rows == [6] * 3
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    every = simulate(experiment, baselines=False)
    assert torch.allclose(models(few), models(every), rtol=0, atol=1e-5)
    assert few.summary["gradients"] == every.summary["gradients"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pairwise", "independent"])
@pytest.mark.parametrize("changes", [["privacy.participation=0.4"], ["learning.fraction=0.5"]])
def test_the_noise_of_a_cohort_is_that_of_all_peers(mode, changes, monkeypatch):
    noise = ["privacy.participation=1.0", "privacy.noise=0.3", "learning.rate=1e-12"]
    changes = [f"privacy.mode={mode}", *noise, *changes]
    large = ["rounds=1", "model.name=mlp", "model.hidden=[300]", "learning.weighted=false"]
    experiment = read(TABLE, changes=[*changes, *large])
    share = 0.4 if "privacy.participation=0.4" in changes else 0.5

    def moved():
        run = simulate(experiment, baselines=False)
        start = plan(experiment).learner.start(run.metrics[:1] and ("peer00",))
        return models(run)[0] - start[0]

    few = moved()
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    every = moved()
    wanted = 0.3 / math.sqrt(12) / share
    for found in (few, every):
        assert float(found.std()) == pytest.approx(wanted, rel=0.05)
        assert abs(float(found.mean())) < 5 * wanted / math.sqrt(len(found))


@pytest.mark.slow
def test_records_do_not_show_who_takes_part_in_secret(monkeypatch):
    changes = ["privacy.noise=0.3"]
    for most in (20_000, 8):
        monkeypatch.setattr(cohort, "MAX_LISTED", most)
        run = simulate(read(TABLE, changes=changes), baselines=False, source=SecretSource())
        fields = ("training_loss", "update", "distance", "bytes_out", "disagreement", "diversity", "received")
        for round in range(3):
            each = [record for record in run.metrics if record.round == round]
            assert len(each) == (12 if most == 20_000 else 1)
            assert len({tuple(getattr(record, field) for field in fields) for record in each}) == 1
        assert run.summary["gradients"] is None
        assert {record.peer for record in run.metrics} == ({"peer00"} if most == 8 else {*complete(12).peers})


def test_an_empty_cohort_moves_by_noise_alone(monkeypatch):
    rows = cohorts_seen(monkeypatch)
    experiment = read(TABLE, changes=["privacy.participation=1e-9", "privacy.mask=0.01", "learning.weighted=false"])
    run = simulate(experiment, baselines=False, source=SecretSource())
    assert rows == [2] * 3
    assert torch.isfinite(models(run)).all()


def client_run(clients, *, rounds, privacy):
    """Run rounds of clients with four samples each."""
    random = torch.Generator().manual_seed(0)
    samples = torch.randn(clients, 4, 3, generator=random)
    labels = samples[..., 0].gt(0).long()
    topology = complete(clients)
    data = {peer: (samples[number], labels[number]) for number, peer in enumerate(topology.peers)}
    learner = TorchLearner(torch.nn.Linear(3, 2), data, rate=0.5, device="cpu")
    return simulate(FedAvg(average=Averaging()), learner, topology, rounds=rounds, privacy=privacy, baselines=False)


@pytest.mark.slow
@pytest.mark.parametrize("clients", [200, 3000])
def test_epsilon_of_clients_is_that_of_dp_accounting(clients):
    """Beside McMahan et al. 2018: a sum of clipped updates, noise of z clips, and Poisson samples of clients."""
    import dp_accounting  # noqa: PLC0415
    from dp_accounting import pld  # noqa: PLC0415

    from p2pfl.experiment.modes import Pairwise  # noqa: PLC0415

    multiplier, rounds = 1.2, 20
    noise = multiplier / math.sqrt(clients - 1)  # of each peer; one may collude
    run = client_run(clients, rounds=rounds, privacy=Pairwise(clip=1.0, noise=noise, mask=1.0, participation=0.05))
    stated = run.summary["privacy"]
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    event = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(multiplier))
    accountant.compose(event, rounds)
    assert stated["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=0.02)
    assert "differential privacy of each peer's data" in stated["statement"]
    assert run.summary["together"] > 0.7


def test_a_seed_states_no_epsilon_of_clients():
    run = simulate(read(TABLE, changes=["privacy.noise=0.3"]), baselines=False, source=SeededSource(1))
    assert run.summary["privacy"]["epsilon"] is None


def test_an_epsilon_that_does_not_hold_is_refused_before_the_run():
    with pytest.raises(ExperimentError, match="does not suffice for one round"):
        plan(read(TABLE, changes=["privacy.noise=0.001", "privacy.epsilon=1"]))


def test_a_complete_graph_is_accounted_as_by_its_matrix():
    graph = complete(9)
    dense = Topology(graph.peers, graph.edges)
    dense.__dict__["is_complete"] = False
    for colluders in (0, 1, 4, 7, 8):
        for noise, mask in ((0.5, 2.0), (0.5, 0.0), (0.0, 2.0)):
            one, other = (
                account(each, clip=1.0, noise=noise, mask=mask, colluders=colluders, size=10) for each in (graph, dense)
            )
            assert one.mu == pytest.approx(other.mu, rel=1e-12)
            assert one.local == other.local
            if noise and mask:
                assert (one.colluders, one.peer, one.search) == (other.colluders, other.peer, other.search)
        assert find_isolated(graph, clip=1.0, noise=0.5, mask=2.0, colluders=colluders) == find_isolated(
            dense, clip=1.0, noise=0.5, mask=2.0, colluders=colluders
        )
        assert find_parted_peers(graph, colluders=colluders) == find_parted_peers(dense, colluders=colluders)
    for colluders in (0, 1, 4):
        one, other = (
            calibrate(each, metropolis(dense), mu=0.4, clip=1.0, rounds=5, colluders=colluders, size=10)
            for each in (graph, dense)
        )
        assert (one.noise, one.mask) == pytest.approx((other.noise, other.mask), rel=1e-9)
        assert one.guarantee.mu <= 0.4


@pytest.mark.slow
def test_many_clients_are_protected_without_a_matrix_of_all_pairs():
    from p2pfl.experiment.modes import Pairwise  # noqa: PLC0415

    run = client_run(25_000, rounds=2, privacy=Pairwise(clip=1.0, epsilon=2.0, participation=0.002))
    assert run.summary["privacy"]["epsilon"] <= 2.0
    assert len(run.models) == 1
    assert np.isfinite(run.summary["together"])
