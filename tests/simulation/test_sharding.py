"""Several workers end with the models, records and summary of one process.

Workers are threads of the test, connected by real process groups; ``test_workers.py`` starts processes. Sums over all
peers (the average of a complete graph, means in records) have another order than in one process, so what depends on
them agrees to rounding; other models are the same to the last bit wherever training is.
"""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

from network.peer.test_agreement import CASES
from p2pfl.algorithms.robust import Attack
from p2pfl.core.encodings import limit
from p2pfl.core.errors import InputError, LearningError, PrivacyError, RunError, TopologyError
from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.experiment import plan, read
from p2pfl.privacy.keys import SecretSource, SeededSource
from p2pfl.results import Run
from p2pfl.simulation import simulate, simulation_checkpoint
from p2pfl.simulation.mixing import Mixer
from p2pfl.simulation.sharding import Shard, shared_checkpoint
from p2pfl.simulation.sharding.part import WorkerShard
from p2pfl.simulation.sharding.workers import divide_plan, source_of
from p2pfl.simulation.simulation_checkpoint import FILE
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood
from p2pfl.topology import complete, metropolis, natural, one_peer_exponential, owners, partition, random_regular, ring
from sharding import one_learner_at_a_time, simulated, together
from sourcing import shared_source
from swarms import SMALL

COHORT = ["topology.kind=complete", "gossip.steps=1", "learning.fraction=0.4"]

MORE = {
    "losses and absences": ["simulation.loss=0.2", "simulation.absence=0.2"],
    "absences, masks": ["privacy.mode=pairwise", "simulation.absence=0.2"],
    "one test peer in a round": ["evaluation.peers=1", "evaluation.every=2"],
    "dissensus": ["learning.weighted=false", "attack.name=dissensus", "attack.peers=0.34"],
    "alie": ["learning.weighted=false", "attack.name=alie", "attack.peers=0.34", "attack.scale=1.5"],
    "ipm, a robust rule": [
        *("learning.weighted=false", "attack.name=ipm", "attack.peers=0.34", "attack.scale=0.5"),
        *("robustness.rule=trimmed_mean", "robustness.options.attackers=1"),
    ],
    "alie, losses and absences": [
        *("learning.weighted=false", "attack.name=alie", "attack.peers=0.34", "attack.scale=1.5"),
        *("simulation.loss=0.2", "simulation.absence=0.2"),
    ],
    "validation": ["data.validation=0.2"],
    "a cohort": [*COHORT, "learning.algorithm=fedavg"],
    "a cohort with momentum": [*COHORT, "learning.algorithm=fedavgm"],
    "a cohort with personal models": [*COHORT, "learning.algorithm=ditto", "rounds=2"],
    "a compressed cohort": [*COHORT, "learning.algorithm=fedavg", "compression.name=float16"],
    "devices": [
        *(*COHORT, "learning.algorithm=fedavg"),
        "simulation.devices={ seconds = 4.0, spread = 0.7, invited = 1.5, deadline = 9.0 }",
    ],
    "DP-SGD": ["learning.example_noise=1.0", "simulation.absence=0.2"],
    "data of peers": ["data.name=synthetic", "data.split=iid", "data.validation=0.1"],
}
LEFT_OUT = {"start_s", "wall_s", "total_s", "training_s", "began", "workers"}
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
GRID = 2.0**-20
"""Step of the grid of masks."""


def tolerance_of(experiment):
    """Return the tolerance of an experiment.

    Parameters without a gradient, whose average peers mix, may lie exactly between two points of the grid of masks. The
    last bit of a sum, which depends on its order, decides to which of them they are rounded, once a round.
    """
    masked = experiment.privacy.mode != "none"
    return experiment.horizon * GRID if masked else TOLERANCE[experiment.learning.dtype]


def close(one, other, *, tolerance):
    """Return whether two values of JSON are the same, numbers to a tolerance."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key], tolerance=tolerance) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(close(mine, theirs, tolerance=tolerance) for mine, theirs in pairs)
    return one == other


def check_same(whole, part, *, tolerance):
    """Check that models, records and summaries agree."""
    assert part.models.keys() == whole.models.keys()
    for peer, model in whole.models.items():
        for name, value in model.items():
            assert torch.allclose(part.models[peer][name], value, rtol=tolerance, atol=tolerance), (peer, name)
    assert len(whole.metrics) == len(part.metrics)
    for mine, theirs in zip(whole.metrics, part.metrics, strict=True):
        fields = [{key: getattr(each, key) for key in each.__struct_fields__} for each in (mine, theirs)]
        assert close(*fields, tolerance=10 * tolerance), (mine, theirs)
    kept = [{key: run.summary[key] for key in run.summary.keys() - LEFT_OUT} for run in (whole, part)]
    assert close(*kept, tolerance=10 * tolerance)


@pytest.mark.parametrize("seed", [3, 4])
def test_models_of_other_workers_are_saved_although_those_of_the_worker_that_leads_are_alike(seed):
    changes = [*MORE["a cohort with personal models"], "learning.fraction=0.1", "rounds=1", f"seed={seed}"]
    experiment = read(SMALL, changes=changes)
    whole, part = simulate(experiment, baselines=False), simulated(experiment, workers=2)
    check_same(whole, part, tolerance=tolerance_of(experiment))
    moved = [peer for peer, model in whole.models.items() if not same(model, whole.models)]
    assert len(moved) == 1  # the one that took part


def same(model, models):
    """Return whether most models are this one."""
    equal = (all(torch.equal(value, other[name]) for name, value in model.items()) for other in models.values())
    return sum(equal) > len(models) / 2


@pytest.mark.slow
@pytest.mark.sampled(fast=1, all=24)
@pytest.mark.parametrize("changes", (CASES | MORE).values(), ids=CASES | MORE)
def test_two_workers_end_as_one_process(changes):
    experiment = read(SMALL, changes=changes)
    source = shared_source()
    whole = simulate(experiment, baselines=False, source=source)
    part = simulated(experiment, workers=2, source=source)
    check_same(whole, part, tolerance=tolerance_of(experiment))


@pytest.mark.parametrize("masks", ["", ", masks"])
def test_peers_of_all_workers_agree_on_the_least_number_of_samples(masks):
    experiment = read(SMALL, changes=CASES[f"exact totals{masks}"])
    whole = simulate(experiment, baselines=False)
    check_same(whole, simulated(experiment, workers=2), tolerance=tolerance_of(experiment))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [3, 4, 6])
def test_any_number_of_workers_ends_as_one_process_with_baselines(workers):
    experiment = read(SMALL, changes=["data.scale=true", "learning.consensus=true"])
    whole = simulate(experiment)
    part = simulated(experiment, workers=workers, baselines=True)
    check_same(whole, part, tolerance=1e-10)
    assert sum(each["peers"] for each in part.summary["workers"]) == 6


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("name", ["wine", "synthetic"])
def test_the_model_on_all_data_is_that_of_one_process_though_no_worker_holds_them(name):
    experiment = read(SMALL, changes=[f"data.name={name}", "data.split=iid", "data.scale=true", "rounds=2"])
    whole = simulate(experiment)
    part = simulated(experiment, workers=2, baselines=True)
    check_same(whole, part, tolerance=1e-10)


def test_workers_draw_keys_from_the_source_that_they_are_given():
    experiment = read(SMALL, changes=["privacy.mode=independent", "privacy.noise=0.1", "privacy.clip=1.0", "rounds=1"])
    whole = simulate(experiment, baselines=False, source=SeededSource(5))
    part = simulated(experiment, workers=2, source=SeededSource(5))
    check_same(whole, part, tolerance=1e-10)


@pytest.mark.parametrize("given", [None, SecretSource()], ids=["default", "of the operating system"])
def test_the_worker_that_leads_hands_one_secret_key_to_the_others(given):
    experiment = read(SMALL, changes=["privacy.mode=pairwise", "privacy.noise=0.1", "privacy.clip=1.0"])

    def work(group):
        resolved, shard = divide_plan(experiment, group)
        return source_of(resolved, shard, given)

    with one_learner_at_a_time():
        (first, second), (third, fourth) = (together(work, workers=2) for _ in range(2))
    assert first.secret
    assert first == second
    assert third == fourth
    assert first != third


@pytest.mark.parametrize("attackers", [{"peer0", "peer5"}, {"peer0", "peer1", "peer2"}], ids=["both", "one"])
@pytest.mark.parametrize("name", ["alie", "ipm"])
def test_byzantine_peers_know_the_moments_of_the_honest_models_of_all_workers(name, attackers):
    attack = Attack(name, frozenset(attackers), 6, 1.5)
    weights = [metropolis(ring(6))]
    since, rows = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    where = {"round": 0, "step": 0}
    expected = attack.corrupted(rows, since=since, peers=weights[0].peers, **where)

    def work(group):
        shard = WorkerShard(weights, group)
        mine, before = rows[shard.places], since[shard.places]
        sent = attack.corrupted(mine, since=before, peers=shard.peers, sums=shard.sums, **where)
        return shard.places, sent, group.bytes_out

    for places, sent, travelled in together(work, workers=2):
        assert torch.allclose(sent, expected[places], rtol=0, atol=1e-14)
        assert travelled <= 2 * 4 * 8 + 8  # sums of two moments, and a number of peers


# ---------------------------------------------------------------------- partition and boundary


def test_a_partition_has_parts_of_equal_size_and_cuts_few_edges():
    weights = [metropolis(ring(100))]  # whose order of names is not that of the ring
    parts = partition(weights, 4)
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))
    assert {len(part) for part in parts} == {25}
    owner = owners(parts)
    matrix = weights[0].matrix.tocoo()
    assert (owner[matrix.row] != owner[matrix.col]).sum() == 2 * 4
    with pytest.raises(TopologyError, match="3 peers cannot be divided among 4 workers; start at most 3"):
        partition([metropolis(ring(3))], 4)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.3, absence=0.2)], ids=["plain", "faults"])
def test_a_gossip_step_is_that_of_one_process_and_only_boundary_models_travel(faults, workers):
    graph = random_regular(12, degree=4, seed=1)
    weights = [metropolis(graph)]
    rows = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    masses = torch.arange(12, dtype=torch.float64).view(12, 1) + 1

    def steps(net, rows, masses):
        released = run_without_loop(net.mix(run_without_loop(net.mix(Released(rows, masses)))))
        return released.values, released.masses, net.distance, net.received, net.bytes_out

    net = StackedNeighbourhood(weights, round=0, seed=0, faults=faults)
    expected = steps(net, rows, masses)

    def work(group):
        part = WorkerShard(weights, group)
        net = StackedNeighbourhood(weights, round=0, seed=0, faults=faults, shard=part, mixer=Mixer(weights))
        values = steps(net, rows[part.places], masses[part.places])
        return part.places, values, group.bytes_out

    found = together(work, workers=workers)
    for places, values, _ in found:
        assert all(torch.equal(mine, whole[places]) for mine, whole in zip(values, expected, strict=True))
    parts = partition(weights, workers)
    owner = owners(parts)
    if faults == Faults():
        edges = zip(*weights[0].matrix.nonzero(), strict=True)
        pairs = {(int(owner[to]), int(by)) for to, by in edges if owner[to] != owner[by]}
        assert sum(sent for _, _, sent in found) == 2 * len(pairs) * (5 * 4 + 8)


def test_where_everybody_gets_the_average_only_sums_travel():
    weights = [natural(complete(40))]
    rows = torch.randn(40, 100, generator=torch.Generator().manual_seed(0))

    def work(group):
        part = WorkerShard(weights, group)
        net = StackedNeighbourhood(weights, round=0, seed=0, shard=part)
        return run_without_loop(net.mix(Released(rows[part.places]))).values, group.bytes_out

    for values, sent in together(work, workers=2):
        assert torch.equal(values, values[:1].expand_as(values))
        assert torch.allclose(values[0], rows.mean(0), atol=1e-6)
        assert sent == 100 * 4


def test_a_schedule_has_a_boundary_of_its_own_in_each_step():
    schedule = one_peer_exponential(8)
    weights = [metropolis(schedule.at(phase)) for phase in range(schedule.period)]
    rows = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    expected = [
        run_without_loop(StackedNeighbourhood(weights, round=k, seed=0).mix(Released(rows))).values for k in range(6)
    ]

    def work(group):
        part, mixer = WorkerShard(weights, group), Mixer(weights)
        nets = [StackedNeighbourhood(weights, round=k, seed=0, shard=part, mixer=mixer) for k in range(6)]
        return part.places, [run_without_loop(net.mix(Released(rows[part.places]))).values for net in nets]

    for places, found in together(work, workers=2):
        assert all(torch.equal(mine, whole[places]) for mine, whole in zip(found, expected, strict=True))


# ---------------------------------------------------------------------- what workers tell each other


def test_workers_add_up_collect_and_share():
    weights = [metropolis(ring(5))]

    def work(group):
        part = WorkerShard(weights, group)
        rows = torch.arange(5.0).view(5, 1)[part.places]
        wraps = part.total(np.array([2**63 - 1 if part.leads else 1]))
        alike = [
            part.alike(rows),
            part.alike(torch.ones(len(rows), 2)),
            part.alike(torch.full((len(rows), 2), part.leads)),
        ]
        mean = part.mean(rows.mean(0))
        listed = part.collect([{"number": float(each)} for each in rows.flatten()], dict[str, float])
        blocks = [
            (numbers.tolist(), block["rows"].flatten().tolist()) for numbers, block in part.blocks({"rows": rows})
        ]
        return wraps.tolist(), alike, float(mean), listed, blocks, part.shared(7 if part.leads else 8)

    first, second = together(work, workers=2)
    assert first[0] == second[0] == [-(2**63)]
    assert first[1] == second[1] == [False, True, False]
    assert first[2] == second[2] == pytest.approx(2.0)
    assert first[3] == [{"number": float(each)} for each in range(5)]
    assert sorted(number for numbers, _ in first[4] for number in numbers) == list(range(5))
    assert all(numbers == [int(value) for value in values] for numbers, values in first[4])
    assert second[3:5] == ([], [])
    assert first[5] == second[5] == 7


def test_a_contribution_that_one_worker_refuses_ends_the_total_in_all():
    graph = ring(4)
    errors = []

    def work(group):
        part = WorkerShard([metropolis(graph)], group)
        net = StackedNeighbourhood([metropolis(graph)], round=0, seed=0, graph=graph, shard=part)
        most = limit(4, bits=64)
        values = {peer: np.array([most if peer == part.everyone[-1] else 1]) for peer in graph.peers}
        try:
            run_without_loop(net.total(values.__getitem__, size=1))
        except PrivacyError as error:
            errors.append(str(error))

    together(work, workers=2)
    assert len(errors) == 2
    assert errors[0] == errors[1]
    assert "contribution of peer3" in errors[0]


@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_a_worker_is_that_of_all(failing):
    def work(group):
        if group.rank == failing:
            raise LearningError("peer3 diverged; lower the learning rate")
        with pytest.raises(LearningError, match="peer3 diverged; lower"):
            group.total(torch.ones(1))
        group.close()

    with pytest.raises(LearningError):
        together(work, workers=2)


def test_a_worker_that_is_gone_is_named():
    def work(group):
        if group.rank == 1:
            group.close()
            return
        with pytest.raises(RunError, match=r"another worker has ended; .*--resume goes on from the last checkpoint"):
            group.total(torch.ones(1))

    together(work, workers=2)


def test_a_single_process_is_a_shard_of_all_peers():
    shard = Shard(("ada", "bob"))
    matrix = scipy.sparse.csr_array(np.eye(2))
    rows = torch.ones(2, 3)
    assert shard.own(rows) is rows
    assert shard.near(matrix, rows).rows is rows
    assert shard.mean(rows[0]) is not None
    assert shard.workers_done(1.0) == []
    with pytest.raises(PrivacyError, match="too large"):
        shard.total(np.ones(1, np.int64), refused=PrivacyError("too large"))


# ---------------------------------------------------------------------- resuming

RESUMED = {
    "adam": ["learning.algorithm=dpsgd", "learning.optimizer=adam", "learning.rate=0.01"],
    "masks": ["privacy.mode=pairwise"],
    "personal": [*COHORT, "learning.algorithm=ditto"],
    "compressed cohort": [*COHORT, "learning.algorithm=fedavg", "compression.name=quantise"],
    "compressed": [
        *("learning.algorithm=dpsgd", "compression.name=top_k", "compression.options.share=0.2"),
        "topology.kind=one_peer_exponential",
    ],
}


@pytest.fixture
def always_due(monkeypatch):
    """Write a checkpoint after every round."""
    monkeypatch.setattr(shared_checkpoint, "SOONEST", -1.0)
    monkeypatch.setattr(simulation_checkpoint, "PART", 0.0)


@pytest.mark.slow
@pytest.mark.sampled(fast=0, all=8)
@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 1), (1, 2)])
@pytest.mark.parametrize("changes", RESUMED.values(), ids=RESUMED)
@pytest.mark.usefixtures("always_due")
def test_an_interrupted_run_goes_on_with_any_number_of_workers(tmp_path, changes, before, after):
    experiment = read(SMALL, changes=[*changes, "rounds=4"])
    whole = simulate(experiment, baselines=False)
    folder = tmp_path / "run"
    interrupt(experiment, folder, workers=before)
    assert (folder / FILE).exists()
    assert {record.round for record in Run.load(folder).metrics} == {0, 1, 2}
    if after == 1:
        run = simulate(experiment, folder=folder, resume=True, baselines=False)
    else:
        run = simulated(experiment, workers=after, folder=folder, resume=True)
    check_same(whole, run, tolerance=1e-10)
    assert not (folder / FILE).exists()
    assert Run.load(folder).summary["rounds"] == 4


def interrupt(experiment, folder, *, workers):
    """Simulate until the third round is recorded."""

    def observe(records):
        if records[0].round == 2:
            raise KeyboardInterrupt

    alone = {"baselines": False} if workers == 1 else {"workers": workers}
    play = simulate if workers == 1 else simulated
    with pytest.raises(KeyboardInterrupt):
        play(experiment, folder=folder, observe=observe, **alone)


def test_a_run_without_a_checkpoint_is_refused_in_all_workers(tmp_path):
    experiment = read(SMALL)
    simulate(experiment, folder=tmp_path / "run", baselines=False)
    with pytest.raises(InputError, match="has no checkpoint of a simulation"):
        simulated(experiment, workers=2, folder=tmp_path / "run", resume=True)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_workers_that_are_no_number_of_processes_are_refused(workers):
    with pytest.raises(InputError, match="workers must be a whole number of processes above 0"):
        simulate({"rounds": 1, "topology": {"peers": 4}, "data": {"name": "wine"}}, workers=workers)


def test_more_workers_than_peers_are_refused():
    with pytest.raises(InputError, match="6 peers cannot be divided among 7 workers; start at most 6"):
        simulate(plan(read(SMALL)), workers=7)
