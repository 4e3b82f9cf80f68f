"""Simulations of clients that come, go and take their time."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from p2pfl import FedAvg, TorchLearner, simulate
from p2pfl.algorithms import Averaging
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.data import LazyFederation
from p2pfl.experiment import plan, read
from p2pfl.experiment.parts.device_parts import read_trace
from p2pfl.privacy.keys import SecretSource
from p2pfl.results.summary import describe
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


@pytest.mark.sampled(fast=1)
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


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rounds_in_which_nobody_counts_after_one_in_which_some_do_change_nothing(dtype, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["client,on,off", *(f"{number},0,5" for number in range(12)), "0,10,11"]) + "\n")
    changes = ["simulation.devices={ seconds = 4.0 }", f'simulation.devices.trace="{path}"', f"learning.dtype={dtype}"]
    short, long = (simulate(read(TABLE, changes=[*changes, f"rounds={n}"]), baselines=False) for n in (1, 2))
    assert [sum(bool(each.counted) for each in long.metrics if each.round == round) for round in range(2)] == [3, 0]
    assert torch.equal(models(long), models(short))


def test_a_changed_trace_does_not_go_on_from_a_checkpoint(trace, tmp_path):
    experiment = with_trace(trace)

    def stop(records):
        if records[0].round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(experiment, baselines=False, folder=tmp_path / "run", observe=stop)
    kept = trace.read_text()
    trace.write_text("client,on,off\n11,0,9\n")
    with pytest.raises(InputError, match="is not the trace that the run began with; put that one back"):
        simulate(experiment, baselines=False, folder=tmp_path / "run", resume=True)
    trace.write_text(kept)
    rest = simulate(experiment, baselines=False, folder=tmp_path / "run", resume=True)
    assert {record.round for record in rest.metrics} == set(range(6))


def test_a_run_states_how_many_records_of_invited_clients_it_evaluated(monkeypatch, tmp_path):
    monkeypatch.setattr(cohort, "MAX_LISTED", 8)
    changes = ["simulation.devices={ invited = 2.0 }", "evaluation.every=2"]
    run = simulate(read(TABLE, changes=changes), baselines=False, folder=tmp_path / "run")
    assert {sum(record.round == round for record in run.metrics) for round in range(6)} == {6}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"] == {"every": 2, "peers": 6}


BARE = ["privacy.mode=pairwise", "privacy.mask=1000"]


@pytest.mark.parametrize(
    ("changes", "few"),
    [
        (["simulation.devices={ seconds = 9.0, stragglers = 0.9, slowdown = 20.0, deadline = 10.0 }"], "1 peer counts"),
        (["learning.fraction=0.05"], "1 peer counts"),
        (["learning.fraction=0.16"], "2 peers count"),
        (["learning.fraction=0.25", "privacy.colluders=2"], "3 peers count"),
        (["learning.fraction=0.25", "learning.stragglers={ share = 0.5, drop = true }"], "1 peer counts"),
        (["learning.fraction=1.0", "learning.stragglers={ share = 0.8, drop = true }"], "1 peer counts"),
    ],
)
def test_masks_alone_are_refused_where_few_models_count(changes, few):
    table = TABLE if "devices" in changes[0] else {key: value for key, value in TABLE.items() if key != "simulation"}
    with pytest.raises(ExperimentError, match=f"{few} in round .*; set privacy.clip and privacy.noise"):
        plan(read(table, changes=[*BARE, *changes]))


def test_masks_alone_hide_an_update_among_three_that_count():
    always = ["simulation.devices={}"]
    planned = plan(read(TABLE, changes=[*BARE, *always]))
    assert "its honest neighbours that count" in describe(planned, spent=None)["statement"]
    plan(read(TABLE, changes=[*PRIVATE, "learning.fraction=0.05"]))  # noise and a clip protect one model


def test_stragglers_that_are_dropped_are_counted_until_enough_are_there():
    average = Averaging(tuple(f"peer{i}" for i in range(1000)), seed=4, dropped=0.9)
    counts = [int(average.participants(average.peers, round=round).sum()) for round in range(5)]
    assert average.fewest(5, enough=2000) == (min(counts), counts.index(min(counts)))
    assert average.fewest(5, enough=3) == (3, 0)
    nobody = Averaging(("ada", "bob"), dropped=1.0)
    assert nobody.fewest(4, enough=3) == (3, 0)  # no model is in any mean


def test_noise_of_samples_is_charged_to_a_client_in_the_rounds_in_which_it_counts():
    changes = ["simulation.devices={ seconds = 4.0, spread = 0.7, invited = 1.5 }", "learning.example_noise=1.0"]
    planned = plan(read(TABLE, changes=changes))
    sampled = planned._sampled(planned.learner.bare, 6)
    counted = [planned.algorithm.average.invitation(round).counted.tolist() for round in range(6)]
    for number, peer in enumerate(planned.topology.peers):
        assert sum(sampled[peer].values()) == sum(number in here for here in counted)


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ("{ deadline = 4.0 }", r"deadline = 4\.0 has no effect, because no client takes time"),
        ("{ spread = 1.0 }", r"spread = 1\.0 has no effect, because no client takes time"),
        ("{ stragglers = 0.5, slowdown = 2.0 }", "has no effect, because no client takes time"),
        ("{ seconds = 1.0, slowdown = 2.0 }", r"slowdown = 2\.0 has no effect, because stragglers is 0"),
        ("{ seconds = 1.0, stragglers = 0.5 }", r"stragglers = 0\.5 has no effect, because slowdown is 1"),
        ("{ seconds = 1e17 }", r"simulation\.devices\.seconds is 1e\+17; set it to a number"),
        ("{ seconds = 1.0, spread = 1000.0 }", r"simulation\.devices\.spread is 1000\.0; set it to a number"),
        ("{ seconds = 1.0, deadline = 1e16 }", r"simulation\.devices\.deadline is 1e\+16; set it to a number"),
        ("{ seconds = 1.0, stragglers = 0.5, slowdown = 1e300 }", r"simulation\.devices\.slowdown is 1e\+300; set it"),
    ],
)
def test_keys_of_devices_without_effect_and_without_bound_are_refused(devices, why):
    with pytest.raises(ExperimentError, match=why):
        read(
            {key: value for key, value in TABLE.items() if key != "simulation"},
            changes=[f"simulation.devices={devices}"],
        )


def test_a_change_drops_keys_of_devices_that_it_makes_useless():
    kept = read(TABLE, changes=["simulation.devices.seconds=0.0", "simulation.devices.sample_seconds=0.0"])
    assert (kept.simulation.devices.deadline, kept.simulation.devices.spread) == (None, 0.0)


def test_the_largest_numbers_of_devices_run():
    changes = [
        "simulation.devices={ seconds = 4e6, spread = 10.0, stragglers = 0.5, slowdown = 1e6, sample_seconds = 4e6 }"
    ]
    run = simulate(read(TABLE, changes=changes), baselines=False)
    assert run.metrics[-1].clock > 4e6


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
        ("client,on,off\n0,0.0001,0.0004\n", "no client is ever available"),
        ("client,on,off\n0,0.0001,0.0004\n1,60,60\n", "no client is ever available"),
        ("client,on,off\n\n0,1,2\n\n12,1,2\n", "line 5: expected a peer"),
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


def test_a_trace_from_a_spreadsheet_is_read(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("\ufeffclient, on, off\n\n0, 0, 5\n , ,\n peer1 ,1,2\n", encoding="utf-8")
    trace = read_trace(path, complete(3).peers)
    assert (trace.owner.tolist(), trace.on.tolist(), trace.off.tolist()) == ([0, 1], [0, 1000], [5000, 2000])


def test_a_number_that_is_also_the_name_of_another_peer_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("client,on,off\n1,0,5\n")
    with pytest.raises(ExperimentError, match='line 2: "1" is the name of one peer and the number of another, 2'):
        read_trace(path, ["1", "2", "3"])
    assert read_trace(path, ["0", "1", "2"]).owner.tolist() == [1]


PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text("utf-8")


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Return the runs of the page's commands of clients, with fewer of them and in fewer rounds."""
    monkeypatch.chdir(tmp_path)
    content = re.search(r"^```toml\n(# clients.toml\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    commands = re.search(r"^```sh\n(printf .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1].replace("\\\n", "")
    traced, *runs = [shlex.split(line, comments=True) for line in commands.splitlines()]
    Path(traced[-1]).write_text(traced[1].encode().decode("unicode_escape"))
    Path("clients.toml").write_text(content)

    def run(*mark):
        chosen = next(words for words in runs if all(each in " ".join(words) for each in mark))
        changes = [after for before, after in pairwise(chosen) if before == "--set"]
        experiment = read("clients.toml", changes=["topology.peers=200", "rounds=4", *changes])
        return plan(experiment), simulate(experiment, baselines=False, source=SecretSource())

    return run


def test_the_clients_of_the_page_follow_traces_and_are_invited_in_excess_until_a_deadline(examples):
    _, run = examples()
    for round in range(4):
        records = [each for each in run.metrics if each.round == round]
        assert [sum(each.counted is value for each in records) for value in (True, False)] == [10, 3]
        assert records[0].clock <= 60 * (round + 1)
    invited = {each.peer for each in run.metrics if each.counted is not None}
    assert not invited & {"peer007", "peer008"}
    Path("trace.csv").write_text("client,on,off\n0,0,3600\n")
    always = {each.peer for each in examples()[1].metrics if each.counted is not None}
    assert always >= {"peer007", "peer008"}


def test_the_clients_of_the_page_weigh_as_many_samples_as_they_have(examples):
    weighed, alike = (examples(*mark)[1] for mark in ((), ("weighted=false",)))
    assert not torch.equal(models(weighed), models(alike))
    assert [each.counted for each in weighed.metrics] == [each.counted for each in alike.metrics]


def test_the_page_keeps_own_models_of_clients_that_took_part(examples):
    _, run = examples("ditto")
    took_part = {each.peer for each in run.metrics if each.counted}
    assert len(torch.unique(models(run), dim=0)) == len(took_part) + 1


@pytest.mark.slow
def test_the_page_states_the_differential_privacy_of_its_clients(examples):
    planned, run = examples("privacy.epsilon=8")
    assert "differential privacy of each peer's data" in describe(planned, spent=None)["statement"]
    assert {each.privacy_spent > 0 for each in run.metrics} == {True}
    assert run.metrics[-1].privacy_spent == pytest.approx(8, rel=1e-2)
