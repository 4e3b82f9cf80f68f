"""Simulations of clients that come, go and take their time."""

import numpy as np
import pytest
import torch

from p2pfl import FedAvg, TorchLearner, simulate
from p2pfl.algorithms import Averaging
from p2pfl.core.errors import ExperimentError
from p2pfl.data import LazyFederation
from p2pfl.experiment import plan, read
from p2pfl.privacy.keys import SecretSource
from p2pfl.simulation import cohort, playing
from p2pfl.topology import complete
from tests.simulation.test_cohort import check_alike, cohorts_seen, everyone, models

TABLE = {
    "rounds": 6,
    "seed": 3,
    "topology": {"kind": "complete", "peers": 12},
    "data": {"name": "wine", "split": "dirichlet"},
    "model": {"name": "linear"},
    "learning": {"fraction": 0.25, "dtype": "float64", "batch": 8, "device": "cpu"},
    "simulation": {"devices": {"seconds": 4.0, "spread": 0.7, "sample_seconds": 0.3, "invited": 1.5, "deadline": 12.0}},
}


@pytest.fixture
def trace(tmp_path):
    lines = [f"{number},{2 * number},{2 * number + 30}" for number in range(0, 12, 2)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["client,on,off", *lines, "peer01,60,60"]) + "\n")
    return path


def with_trace(trace, *changes):
    return read(TABLE, changes=[f'simulation.devices.trace="{trace}"', *changes])


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fednova", "fedadam"])
def test_a_cohort_of_devices_computes_what_all_peers_do(name, trace, monkeypatch):
    experiment = with_trace(trace, f"learning.algorithm={name}")
    rows = cohorts_seen(monkeypatch)
    few = simulate(experiment, baselines=False)
    assert rows == [6] * 6  # five invited, and one for all others
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    every = simulate(experiment, baselines=False)
    check_alike(few, every)
    assert [(each.counted, each.clock) for each in few.metrics] == [
        (each.counted, each.clock) for each in every.metrics
    ]


def test_devices_that_are_always_there_and_take_no_time_change_nothing():
    plain = read({key: value for key, value in TABLE.items() if key != "simulation"})
    neutral = read(TABLE | {"simulation": {"devices": {}}})
    one, other = (simulate(each, baselines=False) for each in (plain, neutral))
    assert torch.equal(models(one), models(other))
    assert [each.training_loss for each in one.metrics] == [each.training_loss for each in other.metrics]


def test_records_show_who_was_invited_who_counted_and_when_the_round_ended(trace, monkeypatch):
    monkeypatch.setattr(cohort, "MAX_LISTED", 8)
    experiment = with_trace(trace)
    run = simulate(experiment, baselines=False)
    average = plan(experiment).algorithm.average
    late = 0
    for round in range(6):
        records = [record for record in run.metrics if record.round == round]
        here = average.invitation(round)
        assert {record.peer for record in records} == {average.peers[number] for number in here.invited}
        counted = {average.peers[number] for number in here.counted}
        assert {record.peer for record in records if record.counted} == counted
        assert {record.peer for record in records if record.training_loss is not None} == counted
        assert {record.clock for record in records} == {here.ended / 1000}
        late += len(records) - len(counted)
    assert late > 0


def test_a_run_of_devices_goes_on_from_its_checkpoint_with_the_same_models(trace, tmp_path):
    experiment = with_trace(trace)
    whole = simulate(experiment, baselines=False)

    def stop(records):
        if records[0].round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(experiment, baselines=False, folder=tmp_path / "run", observe=stop)
    rest = simulate(experiment, baselines=False, folder=tmp_path / "run", resume=True)
    assert torch.equal(models(rest), models(whole))
    assert [record.clock for record in rest.metrics] == [record.clock for record in whole.metrics]


def test_a_lazy_federation_loads_clients_that_count_and_no_others():
    loaded = set()

    def load(number):
        loaded.add(number)
        x = np.random.default_rng(number).normal(size=(4 + number % 7, 3)).astype("float32")
        return x, (x[:, 0] > 0).astype("int64")

    graph = complete(200)
    clients = LazyFederation.over(graph.peers, load, sizes=[4 + n % 7 for n in range(200)], classes=2, test=load(0))
    learner, loaded = TorchLearner(torch.nn.Linear(3, 2), clients, device="cpu"), set()
    devices = {"seconds": 1.0, "spread": 1.0, "sample_seconds": 0.2, "invited": 2.0}
    average = Averaging(fraction=0.05)
    settings = {"simulation": {"devices": devices}}
    run = simulate(FedAvg(average=average), learner, graph, rounds=3, settings=settings, baselines=False)
    counted = [[each.peer for each in run.metrics if each.round == round and each.counted] for round in range(3)]
    assert [len(each) for each in counted] == [10] * 3
    assert loaded == {int(peer.removeprefix("peer")) for each in counted for peer in each}


def test_a_round_in_which_nobody_counts_leaves_the_model_as_it_was():
    changes = ["simulation.devices={ seconds = 9.0, deadline = 1.0 }", "rounds=1"]
    run = simulate(read(TABLE, changes=changes), baselines=False)
    start = plan(read(TABLE, changes=changes)).learner.start(("peer00",))
    assert torch.equal(models(run)[0], start[0])


PRIVATE = [
    "privacy.mode=pairwise",
    "privacy.clip=0.5",
    "privacy.noise=0.3",
    "simulation.devices={ seconds = 4.0, spread = 0.7, invited = 1.5, deadline = 12.0 }",
]


@pytest.mark.slow
def test_every_client_is_charged_each_round_whoever_counts():
    plain = [*PRIVATE[:3], "simulation.devices={}"]
    spent = [
        simulate(read(TABLE, changes=changes), baselines=False, source=SecretSource()).metrics[-1].privacy_spent
        for changes in (plain, PRIVATE, [*plain, "learning.fraction=1.0"])
    ]
    assert spent[0] is not None
    assert spent == [spent[0]] * 3


def test_private_rounds_of_devices_are_computed_in_cohorts_and_may_be_empty(monkeypatch):
    rows = cohorts_seen(monkeypatch)
    simulate(read(TABLE, changes=PRIVATE), baselines=False, source=SecretSource())
    assert rows == [6] * 6
    empty = "simulation.devices={ seconds = 9.0, deadline = 1.0 }"
    run = simulate(read(TABLE, changes=[*PRIVATE, empty]), baselines=False, source=SecretSource())
    assert torch.isfinite(models(run)).all()
    assert run.metrics[-1].privacy_spent > 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([*PRIVATE[:2], "privacy.participation=0.5"], "whose epsilon assumes that devices never decide"),
        (PRIVATE[:3], "by which the samples of one client decide whether others count"),
        (["learning.algorithm=dpsgd", "learning.fraction=1.0"], "all of whose peers take part"),
        (["topology.kind=ring"], "would have to pass on models"),
        (["simulation.absence=0.1"], "say otherwise who takes part"),
        (["privacy.mode=secagg"], "reveals their models"),
    ],
)
def test_devices_are_refused_where_a_claim_or_an_algorithm_contradicts_them(changes, why):
    with pytest.raises(ExperimentError, match=why):
        plan(read(TABLE, changes=changes))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("client,on,off\n", "no client is ever available"),
        ("client,on,off\n0,5,5\n", "no client is ever available"),
        ("0,1,2\n", "line 1: expected client,on,off"),
        ("client,on,off\n0,1,2\n12,1,2\n", "line 3: expected a peer"),
        ("client,on,off\n0,2,1\n", "line 2: expected a peer"),
        ("client,on,off\n0,1,nan\n", "line 2: expected a peer"),
        ("client,on,off\n-1,0,1\n", "line 2: expected a peer"),
        ("client,on,off\n0,0,1e12\n", "line 2: expected a peer"),
        (None, "cannot be read"),
    ],
)
def test_a_trace_that_is_none_is_refused_in_one_sentence(text, why, tmp_path):
    path = tmp_path / "trace.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ExperimentError, match=why):
        plan(with_trace(path))
