"""Several workers end as one process where peers do not wait for each other, and go on from its checkpoints."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from p2pfl.algorithms import GossipLearning
from p2pfl.core.errors import InputError
from p2pfl.core.neighbourhood import Released, run_without_loop
from p2pfl.core.rows import draw
from p2pfl.experiment import plan, read
from p2pfl.results import Run
from p2pfl.simulation import simulate
from p2pfl.simulation.asynchronous import AsynchronousStackedNeighbourhood, Flight, edges_of
from p2pfl.simulation.resuming import simulation_checkpoint
from p2pfl.simulation.resuming.simulation_checkpoint import FILE, SimulationCheckpoint
from p2pfl.simulation.sharding import keeping
from p2pfl.simulation.sharding.boundary import crossing
from p2pfl.simulation.sharding.part import WorkerShard
from p2pfl.simulation.stacked import Faults
from p2pfl.topology import metropolis, one_peer_exponential, owners, partition, random_regular
from sharding import simulated, together
from simulation.test_sharding import check_same
from sourcing import shared_source
from swarms import SMALL

LATE = ["simulation.loss=0.2", "simulation.absence=0.2", "simulation.delay=1.5"]
SLOW = ["simulation.slow=0.4", "simulation.slow.pace=2"]
CASES = {
    "late, lost and slow": [*LATE, *SLOW],
    "on time": [],
    "late and lost": LATE,
    "schedule": [*LATE, "topology.kind=one_peer_exponential"],
    "private": [*LATE, *SLOW, "privacy.mode=independent", "privacy.epsilon=200.0"],
    "few scores": [*LATE, *SLOW, "evaluation.peers=2", "evaluation.every=2"],
    "DP-SGD": [
        *SLOW,
        "seed=4",
        "learning.algorithm=simulation.test_sharding_asynchronous:Counted",
        "learning.example_noise=1.0",
    ],
}


class Counted(GossipLearning):
    """Gossip learning whose batches may be secret."""

    traits = GossipLearning.traits.__class__(
        full_participation=True,
        weighs_neighbours=True,
        asynchronous=True,
        no_compression="merges rows of different cycles",
        private_examples=True,
    )


def experiment(changes, **more):
    """Return an experiment of peers that do not wait for each other."""
    table = {section: value for section, value in SMALL.items() if section != "gossip"} | more
    return read(table, changes=["learning.algorithm=gossip_learning", *changes])


# ---------------------------------------------------------------------- a gossip step


def delivered(weights, faults, rows, *, shard=None, cycles=12):
    """Return what each peer receives in each cycle: (peer, cycle, names, rows), and the last flight."""
    flight = Flight(weights, seed=1, faults=faults, shard=shard)
    found = []
    for round in range(cycles):
        net = AsynchronousStackedNeighbourhood(weights, round=round, seed=1, faults=faults, flight=flight)
        own = rows[round] if shard is None else rows[round][shard.places]
        got = run_without_loop(net.receive(Released(own)))
        for index, peer in enumerate(net.peers):
            senders = got.sender[got.listener == index]
            names = [got.peers[by] for by in senders.tolist()]
            found.append(
                (peer, round, names, got.rows[senders].tolist(), int(net.bytes_out[index]), int(net.received[index]))
            )
    return found, flight


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize(
    "faults", [Faults(), Faults(loss=0.3, absence=0.2, delay=2.0, slow=0.4, pace=3)], ids=["on time", "late"]
)
@pytest.mark.parametrize(
    "graph", [random_regular(12, degree=4, seed=1), one_peer_exponential(8)], ids=["graph", "schedule"]
)
def test_each_peer_receives_the_models_of_one_process_in_the_same_order(graph, faults, workers):
    weights = [metropolis(graph.at(phase)) for phase in range(graph.period)]
    rows = torch.randn(12, len(graph.peers), 5, generator=torch.Generator().manual_seed(0))
    whole, flight = delivered(weights, faults, rows)

    def work(group):
        shard = WorkerShard(weights, group)
        found, own = delivered(weights, faults, rows, shard=shard)
        return found, own.travelling, shard.held(own.travelling.code.numpy() % len(graph.peers))[group.rank]

    parts = together(work, workers=workers)
    assert sorted(each for found, _, _ in parts for each in found) == sorted(whole)
    left = flight.travelling
    for _, own, held in parts:
        assert torch.equal(own.rows, left.rows[torch.from_numpy(held)])
        for name in ("code", "edge", "sent", "due", "newest", "step"):
            assert torch.equal(getattr(own, name), getattr(left, name))
    assert sum(len(held) for _, _, held in parts) == len(left.code)


def test_a_model_crosses_a_boundary_when_it_arrives_and_once_for_all_who_receive_it_then():
    graph = random_regular(12, degree=4, seed=1)
    weights = [metropolis(graph)]
    owner = owners(partition(weights, 2))
    faults = Faults(delay=1.0)
    rows = torch.randn(1, 12, 5, generator=torch.Generator().manual_seed(0)).expand(6, -1, -1)

    def work(group):
        delivered(weights, faults, rows, shard=WorkerShard(weights, group), cycles=6)
        return group.bytes_out

    crossed = 0
    flight = Flight(weights, seed=1, faults=faults)
    for round in range(6):
        got = flight.receive(rows[round], torch.ones(12, dtype=torch.bool), round=round, step=0)
        pairs = zip(owner[got.to], owner[got.sender[got.place]], got.place, strict=True)
        crossed += len({(int(to), int(model)) for to, by, model in pairs if to != by})
    assert sum(together(work, workers=2)) == crossed * 5 * 4


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_each_worker_receives_the_models_that_it_lacks_and_no_others(seed, workers):
    random = draw(seed, "crossing")
    owner = random.integers(0, workers, 9)
    owner[:workers] = range(workers)
    count = int(random.integers(1, 20))
    to, item = random.integers(0, workers, count), random.integers(0, 9, count)
    found = [crossing(to, item, owner=owner, worker=worker, workers=workers) for worker in range(workers)]
    for worker, each in enumerate(found):
        lacks = {int(model) for model in item[to == worker]} - set(np.flatnonzero(owner == worker).tolist())
        assert set(each.outside.tolist()) == lacks
        own = np.flatnonzero(owner == worker)
        assert each.place[own].tolist() == list(range(len(own)))
        assert each.place[each.outside].tolist() == list(range(len(own), len(own) + len(each.outside)))
        assert [other.gives[worker] for other in found] == list(each.takes)


# ---------------------------------------------------------------------- whole simulations


@pytest.mark.slow
@pytest.mark.sampled(fast=1, all=7)
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_two_workers_end_as_one_process(changes):
    wanted = experiment(changes)
    if any("Counted" in each for each in changes):
        wanted = read({**wanted_table(), "rounds": 3}, changes=changes)
    source = shared_source()
    whole = simulate(wanted, baselines=False, source=source)
    part = simulated(wanted, workers=2, source=source)
    check_same(whole, part, tolerance=1e-10)


def wanted_table():
    """Return the small experiment without gossip steps."""
    return {section: value for section, value in SMALL.items() if section != "gossip"}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [3, 6])
def test_any_number_of_workers_ends_as_one_process_with_baselines(workers):
    wanted = experiment(CASES["late, lost and slow"])
    check_same(simulate(wanted), simulated(wanted, workers=workers, baselines=True), tolerance=1e-10)


# ---------------------------------------------------------------------- resuming


@pytest.fixture
def always_due(monkeypatch):
    """Write a checkpoint after every round."""
    monkeypatch.setattr(keeping, "SOONEST", -1.0)
    monkeypatch.setattr(simulation_checkpoint, "PART", 0.0)


def interrupt(wanted, folder, *, workers, after=3):
    """Simulate until so many rounds are recorded."""
    seen = []

    def observe(records):
        seen.append(records)
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        played(wanted, workers=workers, folder=folder, observe=observe)


def played(wanted, *, workers, **how):
    """Return the run of a simulation by one process or several workers."""
    if workers == 1:
        return simulate(wanted, baselines=False, **how)
    return simulated(wanted, workers=workers, **how)


def resumed(wanted, folder, *, workers):
    """Return the run that went on."""
    return played(wanted, workers=workers, folder=folder, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 2), (2, 1), (1, 2)])
@pytest.mark.usefixtures("always_due")
def test_an_interrupted_run_goes_on_with_any_number_of_workers(tmp_path, before, after):
    wanted = experiment([*CASES["late, lost and slow"], "rounds=4", "learning.optimizer=adam"])
    whole = simulate(wanted, baselines=False)
    for rounds in (1, 3, 5):
        folder = tmp_path / f"run {rounds}"
        interrupt(wanted, folder, workers=before, after=rounds)
        run = resumed(wanted, folder, workers=after)
        check_same(whole, run, tolerance=1e-10)
        assert not (folder / FILE).exists()
        assert Run.load(folder).metrics == run.metrics


@pytest.mark.slow
@pytest.mark.usefixtures("always_due")
def test_a_checkpoint_of_workers_is_that_of_one_process(tmp_path):
    wanted = experiment([*CASES["late, lost and slow"], "rounds=4"])
    resolved = plan(wanted)
    shape = {"peers": 6, "size": resolved.learner.layout.size, "edges": edges_of(resolved.weights)}
    interrupt(wanted, tmp_path / "one", workers=1)
    interrupt(wanted, tmp_path / "two", workers=2)
    one, two = (SimulationCheckpoint.load(tmp_path / name / FILE, **shape) for name in ("one", "two"))
    assert len(one.travelling.rows) > 2
    for name, value in one.travelling.tensors().items():
        assert torch.allclose(value, two.travelling.tensors()[name], rtol=0, atol=1e-10), name
    assert torch.allclose(one.state.rows, two.state.rows, rtol=0, atol=1e-10)
    assert (one.facts.round, one.facts.steps, one.facts.stop) == (two.facts.round, two.facts.steps, two.facts.stop)


@pytest.mark.slow
@pytest.mark.usefixtures("always_due")
def test_a_checkpoint_without_models_on_their_way_is_read_by_all_workers(tmp_path):
    wanted = experiment([])
    interrupt(wanted, tmp_path / "run", workers=2, after=2)
    check_same(simulate(wanted, baselines=False), resumed(wanted, tmp_path / "run", workers=3), tolerance=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("always_due")
def test_a_damaged_checkpoint_is_refused_in_all_workers(tmp_path):
    wanted = experiment(CASES["late, lost and slow"])
    interrupt(wanted, tmp_path / "run", workers=2)
    with safe_open(tmp_path / "run" / FILE, framework="pt") as file:
        about = file.metadata()
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    found["travelling.rows"] = found["travelling.rows"][:1].clone()
    save_file(found, tmp_path / "run" / FILE, about)
    with pytest.raises(InputError, match=r"is damaged \(.*\); start the simulation again$"):
        resumed(wanted, tmp_path / "run", workers=2)
    (tmp_path / "run" / FILE).write_bytes(b"torn")
    with pytest.raises(InputError, match=r"is damaged \(.*\); start the simulation again$"):
        resumed(wanted, tmp_path / "run", workers=2)
