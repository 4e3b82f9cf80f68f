"""Rounds that compute the cohort alone, and one of the peers that sit out."""

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch

from p2pfl.algorithms import SCAFFOLD, Averaging, FedAvg, State, devices
from p2pfl.core.errors import RunError
from p2pfl.core.rows import alike, blockwise, distances, mean, norms, repeated
from p2pfl.core.traits import AVERAGING, Traits
from p2pfl.data import Dataset, Federation, LazyFederation
from p2pfl.experiment import plan, read
from p2pfl.learning import TorchLearner
from p2pfl.simulation import cohort, playing, simulate
from p2pfl.simulation.cohort import AllPeers, Cohort
from p2pfl.simulation.sharding import Shard
from p2pfl.topology import complete

TABLE = {
    "rounds": 4,
    "seed": 3,
    "topology": {"kind": "complete", "peers": 9},
    "data": {"name": "wine", "split": "dirichlet"},
    "model": {"name": "linear"},
    "learning": {"fraction": 0.3, "dtype": "float64", "batch": 8, "epochs": 2, "device": "cpu"},
}


def models(run):
    rows = [torch.cat([part.flatten() for part in model.values()]) for _, model in sorted(run.models.items())]
    return torch.stack(rows)


def cohorts_seen(monkeypatch):
    """Return a list that receives the number of rows of each round."""
    seen, begin = [], cohort.Cohorts.open

    def watched(self, round):
        opened = begin(self, round)
        seen.append(len(opened.peers))
        return opened

    monkeypatch.setattr(cohort.Cohorts, "open", watched)
    return seen


def everyone(*_, shard, **_options):
    return AllPeers(shard)


def check_alike(few, every):
    """Compare a run that computed cohorts with one that computed all peers."""
    assert torch.allclose(models(few), models(every), rtol=0, atol=1e-12)
    for one, other in zip(few.metrics, every.metrics, strict=True):
        same = [(each.peer, each.round, each.bytes_out, each.received, each.mixed) for each in (one, other)]
        assert same[0] == same[1]
        for field in ("training_loss", "update", "disagreement", "distance", "diversity"):
            assert getattr(one, field) == pytest.approx(getattr(other, field), abs=1e-10), field
        assert one.scores == pytest.approx(other.scores)
    assert few.summary["gradients"] == every.summary["gradients"]


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    "name", ["fedavg", "fedsgd", "fedprox", "fednova", "fedavgm", "fedadam", "fedyogi", "fedadagrad"]
)
def test_a_cohort_computes_what_all_peers_do(name, weighted, monkeypatch):
    changes = [f"learning.algorithm={name}", f"learning.weighted={str(weighted).lower()}"]
    experiment = read(TABLE, changes=changes)
    rows = cohorts_seen(monkeypatch)
    few = simulate(experiment, baselines=False)
    assert rows == [4] * 4  # three participants, and one for all others
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    check_alike(few, simulate(experiment, baselines=False))


@dataclass(frozen=True)
class Remembering(FedAvg):
    """FedAvg whose peers also move by what they remember of the last round in which they trained."""

    traits: ClassVar[Traits] = AVERAGING

    async def round(self, state, learner, net, round):
        after = await super().round(state, learner, net, round)
        own = state.extra.get("own", torch.zeros_like(after.rows))
        trained = (after.report.steps > 0).unsqueeze(-1)
        return replace(after, rows=after.rows + 0.1 * own, extra={"own": torch.where(trained, state.rows + 1, own)})


def test_peers_that_took_part_have_a_state_of_their_own_and_no_others_do(monkeypatch):
    seen, spread = [], cohort.Cohorts.spread

    def watched(self, state):
        after = spread(self, state)
        seen.append(({*self.apart.tolist()}, {*self.average.drawn(len(seen)).tolist()}))
        return after

    monkeypatch.setattr(cohort.Cohorts, "spread", watched)
    run = partial(small_run, Remembering(average=Averaging(fraction=0.3)))
    few, took_part = run(), set()
    assert len(seen) == 4
    for apart, drawn in seen:
        took_part |= drawn
        assert apart == took_part
    assert len(took_part) < 9
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    check_alike(few, run())


@dataclass(frozen=True)
class Numbered(FedAvg):
    """FedAvg whose peers move by their number, so that no two are equal; it inherits traits that say otherwise."""

    async def round(self, state, learner, net, round):
        after = await super().round(state, learner, net, round)
        numbers = torch.tensor([float(peer.removeprefix("peer")) for peer in net.peers]).unsqueeze(-1)
        return replace(after, rows=after.rows + numbers)


@dataclass(frozen=True)
class Same(FedAvg):
    """FedAvg that inherits both the round and the traits that describe it."""


@dataclass(frozen=True)
class FirstPeer(Averaging):
    """Average in which the first peer takes part, whatever is drawn."""

    def participants(self, peers, *, round):
        del round
        return torch.tensor([peer == "peer0" for peer in peers])


@dataclass(frozen=True)
class Eager(FedAvg):
    """FedAvg that trains all peers, against the trait that it declares."""

    traits: ClassVar[Traits] = AVERAGING

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        mean = await self.average(net, fitted.rows, since=state.public, masses=None)
        return State(mean.rows, mean, report=fitted.report)


@dataclass(frozen=True)
class Receiving(FedAvg):
    """FedAvg by received models, whose own mean each peer takes."""

    traits: ClassVar[Traits] = AVERAGING

    async def round(self, state, learner, net, round):
        active = self.average.participants(net.peers, round=round)
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        received = await net.receive(await net.release(fitted.rows, since=state.public))
        terms = received.weights.unsqueeze(-1) * received.rows[received.sender]
        rows = torch.zeros_like(fitted.rows).index_add_(0, received.listener, terms)
        return replace(state, rows=rows, report=fitted.report)


def small_run(algorithm, **options):
    torch.manual_seed(5)  # of the parameters at the start
    samples = torch.randn(36, 3, dtype=torch.float64)
    data = {f"peer{number}": (part, part[:, 0].gt(0).long()) for number, part in enumerate(samples.split(4))}
    learner = TorchLearner(torch.nn.Linear(3, 2), data, seed=1, dtype=torch.float64, device="cpu")
    return simulate(algorithm, learner, complete(9), rounds=4, seed=3, baselines=False, **options)


@pytest.mark.parametrize(
    "algorithm", [Numbered(average=Averaging(fraction=0.3)), FedAvg(average=FirstPeer(fraction=0.3))]
)
def test_all_peers_are_computed_where_a_subclass_changes_what_the_traits_describe(algorithm, monkeypatch):
    rows = cohorts_seen(monkeypatch)
    run = small_run(algorithm)
    assert rows == []
    trained = {record.peer for record in run.metrics if record.training_loss is not None}
    if isinstance(algorithm.average, FirstPeer):
        assert trained == {"peer0"}
    else:
        assert len({tuple(model.flatten().tolist()) for model in models(run)}) == 9


def test_a_subclass_that_changes_neither_the_round_nor_the_draw_is_computed_in_cohorts(monkeypatch):
    rows = cohorts_seen(monkeypatch)
    small_run(Same(average=Averaging(fraction=0.3)))
    assert rows == [4] * 4


def test_an_algorithm_that_trains_peers_that_sit_out_is_refused():
    with pytest.raises(RunError, match="a peer that sits out the round has trained"):
        small_run(Eager(average=Averaging(fraction=0.3)))


def test_the_models_that_a_cohort_receives_weigh_as_those_of_all_peers(monkeypatch):
    rows = cohorts_seen(monkeypatch)
    few = small_run(Receiving(average=Averaging(fraction=0.3, weighted=False)))
    assert rows
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    every = small_run(Receiving(average=Averaging(fraction=0.3, weighted=False)))
    assert torch.allclose(models(few), models(every), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        "simulation.absence=0.2",
        "topology.kind=ring",
        "gossip.steps=2",
        "learning.fraction=1.0",
        "compression.name=qsgd",
        "compression.name=random_k",
    ],
)
def test_all_peers_are_computed_where_those_that_sit_out_may_differ(change, monkeypatch):
    rows = cohorts_seen(monkeypatch)
    simulate(read(TABLE, changes=[change, "rounds=1"]), baselines=False)
    assert rows == []


def test_a_run_goes_on_from_its_checkpoint_with_the_same_models(tmp_path):
    experiment = read(TABLE, changes=["rounds=6"])
    whole = simulate(experiment, baselines=False)

    def stop(records):
        if records[0].round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(experiment, baselines=False, folder=tmp_path / "run", observe=stop)
    size = (tmp_path / "run" / "simulation.state").stat().st_size
    assert size < 9 * models(whole)[0].nbytes  # it has one model instead of nine
    rest = simulate(experiment, baselines=False, folder=tmp_path / "run", resume=True)
    assert torch.equal(models(rest), models(whole))


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_of_a_cohort_is_that_of_all_peers(option, weighted, monkeypatch):
    learning = [f"learning.weighted={str(weighted).lower()}", f'learning.algorithm_options.option="{option}"']
    experiment = read(TABLE, changes=["learning.algorithm=scaffold", "rounds=5", *learning])
    rows = cohorts_seen(monkeypatch)
    few = simulate(experiment, baselines=False)
    assert rows[0] == 4
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    check_alike(few, simulate(experiment, baselines=False))


PERSONAL = {
    "ditto": [],
    "fedper": ["model.name=mlp", "model.hidden=[6]"],
    "fedrep": ["model.name=mlp", "model.hidden=[6]", "learning.algorithm_options.head_steps=2"],
    "fedbn": ["model.name=norming:Normed", "model.hidden=[64]", "data.split=iid"],
}


def personal(name, *changes):
    """Return an experiment of an algorithm whose peers have models of their own."""
    changes = [
        f"learning.algorithm={name}",
        "topology.peers=20",
        "learning.fraction=0.15",
        *PERSONAL.get(name, []),
        *changes,
    ]
    return read(TABLE, changes=changes, trust_code=True)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", PERSONAL)
def test_personal_models_of_a_cohort_are_those_of_all_peers(name, weighted, monkeypatch):
    experiment = personal(name, f"learning.weighted={str(weighted).lower()}")
    rows = cohorts_seen(monkeypatch)
    few = simulate(experiment, baselines=False)
    assert rows[0] == 4
    assert rows == sorted(rows)  # with those that took part before
    assert 4 < len(torch.unique(models(few), dim=0)) < 20
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    check_alike(few, simulate(experiment, baselines=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", PERSONAL)
def test_of_very_many_clients_personal_models_are_kept_of_those_that_took_part(name, tmp_path, monkeypatch):
    every = simulate(personal(name), baselines=False)
    monkeypatch.setattr(cohort, "MAX_LISTED", 8)
    kept, spread = [], cohort.Cohorts.spread

    def watched(self, state):
        after = spread(self, state)
        kept.append((len(after.rows), len(self.apart)))
        return after

    def stop(records):
        if records[0].round == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(cohort.Cohorts, "spread", watched)
    few = simulate(personal(name), baselines=False, folder=tmp_path / "whole")
    took_part = {record.peer for record in few.metrics}
    assert kept[-1] == (len(took_part) + 1, len(took_part))
    with pytest.raises(KeyboardInterrupt):
        simulate(personal(name), baselines=False, folder=tmp_path / "run", observe=stop)
    rest = simulate(personal(name), baselines=False, folder=tmp_path / "run", resume=True)
    assert len(took_part) < 19
    assert few.models.keys() == rest.models.keys() == few.summary["per_peer"].keys() == took_part
    for peer, model in few.models.items():
        for part, values in model.items():
            assert torch.equal(values, every.models[peer][part])
            assert torch.equal(values, rest.models[peer][part])
        assert few.summary["per_peer"][peer] == every.summary["per_peer"][peer] == rest.summary["per_peer"][peer]
    scores = {(record.peer, record.round): record.scores for record in every.metrics}
    assert all(record.scores == pytest.approx(scores[record.peer, record.round]) for record in few.metrics)


def test_the_mean_of_sparse_models_is_that_of_all_peers(monkeypatch):
    every = small_run(Remembering(average=Averaging(fraction=0.2)))
    monkeypatch.setattr(cohort, "MAX_LISTED", 8)
    few = small_run(Remembering(average=Averaging(fraction=0.2)))
    means = {record.round: record.mean_model for record in every.metrics}
    assert len(few.models) < 8
    for record in few.metrics:
        assert record.mean_model == pytest.approx(means[record.round], rel=1e-12)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("name", ["ditto", "fedper"])
def test_personal_models_go_on_from_a_checkpoint_of_those_that_took_part(name, tmp_path, monkeypatch):
    whole = simulate(personal(name), baselines=False)

    def stop(records):
        if records[0].round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(personal(name), baselines=False, folder=tmp_path / "run", observe=stop)
    rows = cohorts_seen(monkeypatch)
    rest = simulate(personal(name), baselines=False, folder=tmp_path / "run", resume=True)
    assert max(rows) < 20
    assert torch.equal(models(rest), models(whole))


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("name", ["ditto", "fedper"])
def test_a_checkpoint_with_the_models_of_all_peers_goes_on_as_one_of_those_that_took_part(name, tmp_path, monkeypatch):
    whole = simulate(personal(name), baselines=False)

    def stop(records):
        if records[0].round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(personal(name), baselines=False, folder=tmp_path / "run", observe=stop)
    monkeypatch.setattr(cohort, "MAX_LISTED", 8)
    rest = simulate(personal(name), baselines=False, folder=tmp_path / "run", resume=True)
    assert 4 < len(rest.models) < 20
    for peer, model in rest.models.items():
        assert all(torch.equal(values, whole.models[peer][part]) for part, values in model.items())


def test_a_cohort_with_personal_models_hides_what_it_shares(monkeypatch):
    hidden = ["privacy.mode=pairwise", "privacy.clip=1.0"]
    experiment = personal("ditto", *hidden, "privacy.mask=4")
    rows = cohorts_seen(monkeypatch)
    few = simulate(experiment, baselines=False)
    assert rows[0] == 4
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    assert torch.allclose(models(few), models(simulate(experiment, baselines=False)), rtol=0, atol=1e-5)


def test_all_peers_are_computed_where_personal_models_would_show_who_takes_part_in_secret():
    hidden = ["privacy.mode=pairwise", "privacy.clip=1.0", "privacy.noise=1.0", "privacy.participation=0.5"]
    planned = [plan(personal(name, *hidden, "learning.fraction=1.0")) for name in ("ditto", "fedavg")]
    assert [cohort.sampled_average(each, workers=1) is None for each in planned] == [True, False]


CODECS = [
    ["compression.name=float16"],
    ["compression.name=bfloat16", "compression.zstd=true"],
    ["compression.name=quantise", "compression.options.bits=4"],
    ["compression.name=quantise", "compression.options.refresh=2"],
    ["compression.name=top_k", "compression.options.share=0.3"],
    ["compression.name=top_k", "compression.options.share=0.3", "compression.options.bits=4"],
    ["compression.zstd=true"],
]


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("name", ["fedavg", "fedadam", "ditto"])
@pytest.mark.parametrize("codec", CODECS, ids=" ".join)
def test_models_that_are_encoded_alike_are_computed_once(name, codec, monkeypatch):
    experiment = personal(name, *codec)
    rows = cohorts_seen(monkeypatch)
    few = simulate(experiment, baselines=False)
    assert rows[0] == 4
    assert rows[-1] < 20
    monkeypatch.setattr(playing, "cohorts_of", everyone)
    check_alike(few, simulate(experiment, baselines=False))


def scaffold_of_many(tmp_path, *, peers, observe=None, resume=False, rounds=6):
    """Run SCAFFOLD of three of many clients; return the run and the clients whose samples were loaded."""
    loaded = set()

    def load(number):
        loaded.add(number)
        x = np.random.default_rng(number).normal(size=(6 + number % 3, 5))
        return x, (x[:, 0] > 0).astype("int64")

    graph = complete(peers)
    sizes = [6 + number % 3 for number in range(peers)]
    clients = LazyFederation.over(graph.peers, load, sizes=sizes, classes=2, test=load(0))
    loaded.clear()
    torch.manual_seed(5)
    learner = TorchLearner(torch.nn.Linear(5, 2), clients, seed=1, dtype=torch.float64, device="cpu")
    algorithm = SCAFFOLD(average=Averaging(fraction=3 / peers))
    options = {"folder": tmp_path, "observe": observe, "resume": resume}
    run = simulate(algorithm, learner, graph, rounds=rounds, seed=3, baselines=False, **options)
    return run, loaded


def test_control_variates_are_kept_of_clients_that_took_part_and_a_run_goes_on_with_them(tmp_path, monkeypatch):
    whole, loaded = scaffold_of_many(tmp_path / "whole", peers=40)
    kept, spread = [], cohort.Cohorts.spread

    def watched(self, state):
        after = spread(self, state)
        kept.append((len(self.apart), len(after.extra["own"]), len(after.extra["common"])))
        return after

    monkeypatch.setattr(cohort.Cohorts, "spread", watched)

    def stop(records):
        if records[0].round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scaffold_of_many(tmp_path / "run", peers=40, observe=stop)
    rest, _ = scaffold_of_many(tmp_path / "run", peers=40, resume=True)
    assert torch.equal(models(rest), models(whole))
    assert len(kept) == 6
    assert kept[-1] == (len(loaded), len(loaded) + 1, len(loaded) + 1)
    assert len(loaded) < 20


def test_models_that_are_the_same_after_the_last_round_are_once_in_memory(tmp_path):
    run = simulate(read(TABLE), baselines=False, folder=tmp_path / "run")
    assert len(run.models) == 9
    assert len({value.data_ptr() for model in run.models.values() for value in model.values()}) == len(
        run.models["peer0"]
    )
    assert len(list((tmp_path / "run" / "peers").glob("*.safetensors"))) == 9


def test_values_of_a_cohort_spread_to_all_peers():
    local = Cohort(Shard(tuple("abcdef")), np.array([0, 1, 4]))
    assert local.peers == ("a", "b", "e", "c")
    values = torch.arange(6.0)
    assert local.spread(local.own(values)).tolist() == [0, 1, 2, 2, 4, 2]
    assert repeated(local.spread(torch.ones(4, 2)))
    assert local.own(np.arange(6)).tolist() == [0, 1, 4, 2]
    assert Cohort(Shard(tuple("ab")), np.arange(2)).others == 0


def test_functions_of_repeated_rows_are_those_of_the_same_rows_apart():
    rows, other = torch.randn(1, 7).expand(5, 7), torch.randn(1, 7).expand(5, 7)
    assert repeated(rows)
    assert not repeated(rows.clone())
    assert not repeated(rows[:1])
    assert alike(rows)
    assert torch.equal(mean(rows), rows[0])
    assert torch.equal(norms(rows), norms(rows.clone()))
    assert torch.equal(distances(rows, other), distances(rows.clone(), other.clone()))
    factor = torch.full((1, 1), 0.5, dtype=torch.float64).expand(5, 1)
    assert torch.equal(distances(rows, other, factor=factor), distances(rows.clone(), other.clone(), factor=factor))
    added = blockwise(torch.add, rows, other)
    assert repeated(added)
    assert torch.equal(added, rows + other)


def test_of_very_many_peers_those_that_took_part_have_records_results_and_models(tmp_path, monkeypatch):
    experiment = read(TABLE)
    every = simulate(experiment, baselines=False)
    monkeypatch.setattr(cohort, "MAX_LISTED", 8)
    few = simulate(experiment, baselines=False, folder=tmp_path / "run")
    drawn = [{record.peer for record in few.metrics if record.round == round} for round in range(4)]
    assert [len(peers) for peers in drawn] == [3] * 4
    trained = {(record.peer, record.round) for record in every.metrics if record.training_loss is not None}
    assert {(record.peer, record.round) for record in few.metrics} == trained
    took_part = set().union(*drawn)
    assert len(took_part) < 9
    assert few.models.keys() == few.summary["per_peer"].keys() == took_part
    assert {path.stem for path in (tmp_path / "run" / "peers").glob("*.safetensors")} == took_part
    for peer in took_part:
        assert few.summary["per_peer"][peer] == every.summary["per_peer"][peer]
    assert (few.summary["peers"], few.summary["bytes_sent"]) == (9, every.summary["bytes_sent"])
    assert torch.equal(models(few)[0], models(every)[0])


def test_of_a_few_recorded_peers_the_summary_states_how_many_were_evaluated_after_each_round(monkeypatch):
    monkeypatch.setattr(cohort, "MAX_LISTED", 8)
    summary = simulate(read(TABLE), baselines=False).summary
    assert len(summary["per_peer"]) > 3
    assert summary["evaluation"]["peers"] == 3


@pytest.mark.parametrize("kind", [FedAvg, Remembering])
def test_a_run_that_goes_on_records_the_peers_that_a_whole_one_does(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(cohort, "MAX_LISTED", 8)
    run = partial(small_run, kind(average=Averaging(fraction=0.2)))
    whole = run()
    assert len(whole.models) < 9

    def stop(records):
        if records[0].round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder=tmp_path / "run", observe=stop)
    rest = run(folder=tmp_path / "run", resume=True)
    assert rest.models.keys() == whole.models.keys()
    assert rest.summary["per_peer"] == whole.summary["per_peer"]
    fields = "peer", "round", "scores", "training_loss", "received", "disagreement"
    assert [[getattr(each, field) for field in fields] for each in rest.metrics] == [
        [getattr(each, field) for field in fields] for each in whole.metrics
    ]


def calls_of_a_run(clients):
    """Return how many functions of Python a run calls of which one client takes part in a round."""
    count = 0

    def watch(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    graph = complete(clients)
    x, none = torch.zeros(clients + 3, 2), dict.fromkeys(graph.peers, np.arange(0))
    train = {peer: np.arange(place, place + 1) for place, peer in enumerate(graph.peers)}
    test = dict.fromkeys(graph.peers, np.arange(clients, clients + 3))
    data = Federation(Dataset(x, x[:, 0].long(), classes=2), train, none, test)
    learner = TorchLearner(torch.nn.Linear(2, 2), data, device="cpu")
    sys.setprofile(watch)
    try:
        simulate(FedAvg(average=Averaging(fraction=1 / clients)), learner, graph, rounds=1, baselines=False)
    finally:
        sys.setprofile(None)
    return count


def test_planning_calls_no_function_of_python_for_each_client_that_sits_out(monkeypatch):
    monkeypatch.setattr(cohort, "MAX_LISTED", 50)
    calls_of_a_run(100)  # which imports and compiles
    assert calls_of_a_run(1100) - calls_of_a_run(100) < 100


@pytest.mark.parametrize("most", [100, 40])
def test_as_many_peers_as_the_fraction_asks_for_are_drawn_however_many_there_are(most, monkeypatch):
    monkeypatch.setattr(devices, "MAX_PERMUTED", most)
    names = complete(50).peers
    average = Averaging(names, seed=2, fraction=0.2)
    counts = torch.stack([average.participants(names, round=round) for round in range(200)]).sum(0)
    assert [int(average.participants(names, round=round).sum()) for round in range(5)] == [10] * 5
    assert 15 < counts.min() < counts.max() < 75  # of 40 in the mean
